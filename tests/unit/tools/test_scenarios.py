"""The list of scenarios is made from the tests, and the one that is checked in is the present one."""

from tools import scenarios


def test_the_page_is_the_present_one():
    assert scenarios.TARGET.read_text(encoding="utf-8") == scenarios.page(), "run python -m tools.scenarios"


def test_scenarios_are_listed_by_their_cases():
    rows = [line for line in scenarios.page().splitlines() if line.startswith("| B")]
    listed = {case for row in rows for case in row.split("|")[1].split()}
    assert {"B35", "B54", "B57", "B58", "B61"} <= listed
    assert all(len(row.split("|")[3].strip()) > 10 for row in rows)
