"""The dashboards' own shape: what Grafana needs to show every panel."""

import itertools
import json
import re

import pytest

from tools import dashboards


@pytest.fixture(params=dashboards.ALL)
def document(request):
    return json.loads(dashboards.rendered(dashboards.ALL[request.param]))


def cells(panel):
    place = panel["gridPos"]
    return set(
        itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    )  # fmt: skip


def test_panels_do_not_overlap_and_fit(document):
    taken = set()
    for panel in document["panels"]:
        wanted = cells(panel)
        assert not wanted & taken, panel["title"]
        assert max(x for x, _ in wanted) < 24, panel["title"]
        taken |= wanted


def test_ids_and_references_are_unique(document):
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in document["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(letters)) == len(letters)


def test_every_panel_asks_something_and_says_what_it_means(document):
    for panel in document["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["targets"], panel["title"]
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_variables_used_are_variables_defined(document):
    known = {variable["name"] for variable in document["templating"]["list"]}
    text = json.dumps([panel.get("targets", ()) for panel in document["panels"]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used <= known
    assert known - {"datasource"} <= used, "a variable that changes nothing"


def test_uids_differ():
    uids = {board.uid for board in dashboards.ALL.values()}
    assert len(uids) == len(dashboards.ALL)
    assert all(len(uid) <= 40 for uid in uids), "Grafana's limit"
