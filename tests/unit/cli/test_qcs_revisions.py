"""`qcs diff`, and what `qcs rollback`, `history` and `restart` decide before they write (tests/cluster runs them)."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli import diff_output, diffing, history, rollback
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.history import Stored
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.inputs import spec_hash
from qwen_cached_serve.core.records import FORMAT, Record
from qwen_cached_serve.core.revision import HOLD_ANNOTATION, Hold
from qwen_cached_serve.core.tuning import Adjustment

N = {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "100Gi"}}}


def resource(status=None, **spec):
    made = {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": "q36", "namespace": "llm", "uid": "uid-1", "generation": 2},
        "spec": N | spec,
    }
    return made | ({"status": status} if status else {})


def answer(new, old=None, stored=None):
    return diffing.answer(old or resource(), new, OperatorDefaults(), stored)


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"service": {"port": 8000}},
        {"engine": {}},
        {"cache": {"l1": {"size": "100Gi"}, "chunkBlocks": 1}},
        {"rollout": {"onOperatorUpgrade": "Roll"}},
    ],
    ids=str,
)
def test_what_keeps_the_pods_is_told(change):
    found = answer(resource(**change))
    assert (found.restarts, found.outage, found.warm) == (False, "none", True)


def test_a_size_spelled_otherwise_makes_the_same_pods():
    found = answer(resource(cache={"l1": {"size": "107374182400"}}))
    assert found.restarts is False
    assert found.why[-1] == "the pods come out the same"


def test_a_restart_says_why_and_who_answers():
    found = answer(resource(cache={"l1": {"size": "100Gi"}, "chunkBlocks": 2}, replicas=2))
    assert found.restarts is True
    assert found.why == ("spec.cache.chunkBlocks: default → 2",)
    assert found.other == ("spec.replicas: default → 2",)
    assert found.block_size == (784, 784)
    assert found.warm is False
    assert "chunkSize 784 → 1568" in found.warm_words
    assert "at most 1 of 2 pods" in found.outage


def test_one_pod_is_an_outage_for_one_start():
    found = answer(resource(engine={"vllm": {"kvCacheDtype": "fp8_e4m3"}}))
    assert found.block_size == (784, 1568)
    assert "nobody answers for one start (at most 3600 s)" in found.outage


def test_what_engines_need_not_agree_on_leaves_entries_readable():
    found = answer(resource(engine={"vllm": {"gpuMemoryUtilizationPercent": 80}}))
    assert (found.restarts, found.warm) == (True, True)
    assert "stay readable" in found.warm_words


@pytest.mark.parametrize(
    ("lifecycle", "restarts", "outage"),
    [("Stopped", False, "all pods end, nobody answers"), ("Paused", False, "none")],
)
def test_lifecycles(lifecycle, restarts, outage):
    found = answer(resource(lifecycle=lifecycle))
    assert (found.restarts, found.outage) == (restarts, outage)
    assert answer(resource(), resource(lifecycle="Stopped")).outage == "nobody answers until the first pod has started"


def test_an_edit_of_a_paused_resource_waits():
    found = answer(resource(lifecycle="Paused", cache={"l1": {"size": "1Gi"}}), resource(lifecycle="Paused"))
    assert found.restarts is False
    assert "this waits until it is Running again" in found.why[-1]


def record(number, spec=None, **values):
    base = {
        "format": FORMAT,
        "spec_hash": spec_hash(parse(resource(**(spec or {}))).spec),
        "tuning_hash": "",
        "content_hash": "c",
        "image": "mine/vllm:v0.32.0",
        "image_from": "Operator",
    }
    return Record(f"q36-{number}", number, **(base | values))


def stored(records, used=None, reason="Current", **status):
    conditions = [
        {"type": "SpecAccepted", "status": "True", "reason": "Accepted"},
        {"type": "RevisionCurrent", "status": "True" if reason == "Current" else "False", "reason": reason},
        {"type": "Stalled", "status": "True" if reason == "RolledBack" else "False", "reason": reason},
    ]
    revision = {"updated": (used or records[0]).name, "current": records[0].name}
    made = {"observedGeneration": 2, "conditions": conditions, "revision": revision} | status
    return Stored(resource(status=made), tuple(records))


def test_the_frozen_image_is_taken_for_both_sides():
    one = record(1)
    # Naming the image that runs anyway is no other image.
    found = answer(resource(engine={"image": "mine/vllm:v0.32.0"}), stored=stored([one]))
    assert found.restarts is False
    assert answer(resource(engine={"image": "mine/vllm:v0.33.0"}), stored=stored([one])).restarts is True


def test_a_former_revision_would_be_used_again():
    now, former = record(2, {"cache": {"l1": {"size": "1Gi"}}}), record(1)
    old = resource(cache={"l1": {"size": "1Gi"}})
    found = answer(resource(), old, stored([now, former], blockSize={"probed": 784}))
    assert (found.restarts, found.reused, found.probed) == (True, former, 784)
    assert "revision  1 (q36-1) is used again, as it was" in "\n".join(diff_output.as_text(found))


def test_what_the_operator_found_out_is_shown_and_missed_where_it_gets_lost():
    adjusted = (Adjustment("maxNumSeqs", 614, 1024, "MaxNumSeqsTooLarge"),)
    plain, tuned = record(1), record(2, tuning_hash="7e" * 8)
    found = replace(stored([tuned, plain]), tunings={tuned.name: adjusted})
    assert answer(resource(replicas=3), stored=found).restarts is False  # the tuned revision is the one for this spec
    edited = answer(resource(cache={"l1": {"size": "1Gi"}}), stored=found)
    assert edited.restarts is True
    assert "maxNumSeqs 614" in edited.tuning[0]
    assert "tuning    maxNumSeqs 614" in "\n".join(diff_output.as_text(edited))
    own = {"engine": {"vllm": {"maxNumSeqs": 614}}}
    assert answer(resource(cache={"l1": {"size": "1Gi"}}, **own), stored=found).tuning == ()
    assert history.states(found, tuned) == ["in use", "maxNumSeqs 614"]
    assert history.as_json(found)[0]["tuning"][0]["value"] == "614"
    assert history.as_json(found)[1]["tuning"] == []


def cluster(records, used=None, annotations=None, running=None, spec=None, **status):
    """What a cluster has: `spec` in the resource, `running` in the pods."""
    found = stored(records, used=used, **status)
    found.resource["spec"] |= spec or {}
    found.resource["metadata"]["annotations"] = annotations or {}
    return replace(found, running=resource(**(running or {}))["spec"])


SMALL = {"cache": {"l1": {"size": "1Gi"}}}


def test_going_back_to_what_a_hold_keeps_running_restarts_nothing():
    new, former = record(2, SMALL), record(1)
    hold = {HOLD_ANNOTATION: Hold(former.name, new.spec_hash).text()}
    found = cluster([new, former], used=former, annotations=hold, spec=SMALL, reason="RolledBack")
    assert answer(resource(), found.resource, found).restarts is False
    still = answer(resource(**SMALL), found.resource, found)
    assert still.restarts is False
    assert "held at revision 1" in still.why[-1]
    assert answer(resource(cache={"l1": {"size": "2Gi"}}), found.resource, found).restarts is True


def test_a_revision_that_failed_is_not_promised_again():
    failed, good = record(2, SMALL, rejected_for="q36-1"), record(1)
    found = cluster([failed, good], used=good)
    back = answer(resource(**SMALL), found.resource, found)
    assert (back.restarts, back.reused) == (False, None)


def test_an_edit_that_waited_rolls_with_the_end_of_the_pause():
    found = cluster([record(1)], spec={"lifecycle": "Paused", **SMALL})
    assert answer(resource(**SMALL), found.resource, found).restarts is True


def test_what_was_refused_is_not_what_runs():
    found = cluster([record(1)], spec={"cache": {"l1": {"size": "-1Gi"}}})
    assert answer(resource(), found.resource, found).restarts is False


def test_a_blocked_resource_changes_nothing():
    found = cluster([record(2, SMALL, format=FORMAT + 1), record(1)], used=record(1))
    blocked = answer(resource(**SMALL), found.resource, found)
    assert blocked.restarts is False
    assert "newer release" in blocked.why[0]


def test_a_resource_without_pods_restarts_none():
    small = resource(lifecycle="Stopped", **SMALL)
    found = answer(small, resource(lifecycle="Stopped"))
    assert (found.restarts, found.outage) == (False, "no pods run")


@pytest.mark.parametrize(("rollout", "replicas"), [({"maxSurge": 1}, 1), ({"maxUnavailable": "100%"}, 2)])
def test_pods_that_may_all_be_away_are_an_outage(rollout, replicas):
    spec = {"replicas": replicas, "rollout": rollout}
    found = answer(resource(**spec, **SMALL), resource(**spec))
    assert "may be away at once" in found.outage


def test_an_edit_takes_up_what_another_release_renders():
    one = record(1)
    # The same pods in this release's rendering, but those that run were rendered by another.
    edited = resource(cache={"l1": {"size": "107374182400"}})
    found = answer(edited, stored=stored([one], reason="OperatorChanged"))
    assert found.restarts is True
    assert "the operator renders differently" in found.why[-1]


def test_two_files_are_compared_without_a_cluster(qcs, tmp_path: Path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(yaml.safe_dump(resource()))
    new.write_text(yaml.safe_dump(resource(cache={"l1": {"size": "100Gi"}, "chunkBlocks": 2})))
    code, out, _ = qcs("diff", "-f", new, "--against", old, "-o", "json")
    data = yaml.safe_load(out)
    assert (code, data["restarts"], data["blockSize"]) == (0, True, {"old": 784, "new": 784, "probed": None})
    new.write_text(yaml.safe_dump(resource(cache={"l1": {"size": "-1"}})))
    code, _, err = qcs("diff", "-f", new, "--against", old)
    assert (code, "spec.cache.l1.size" in err) == (1, True)
    new.write_text(yaml.safe_dump(resource() | {"metadata": "hello"}))
    for files in ((new, old), (old, new)):
        code, _, err = qcs("diff", "-f", files[0], "--against", files[1])
        assert (code, "metadata: this has to be an object" in err) == (1, True)
    new.write_text(yaml.safe_dump_all([resource(), resource()]))
    code, _, err = qcs("diff", "-f", new, "--against", old)
    assert (code, "holds 2 resources" in err) == (1, True)


def test_the_revision_before_is_chosen():
    three, two, one = record(3), record(2), record(1)
    assert rollback.choose(stored([three, two, one]), None) == (two, three)
    assert rollback.choose(stored([three, two, one]), 1) == (one, three)
    held = stored([three, two, one], used=two, reason="RolledBack")
    held.resource["metadata"]["annotations"] = {HOLD_ANNOTATION: Hold(two.name, three.spec_hash).text()}
    assert held.held
    assert rollback.choose(held, None) == (one, three)
    assert rollback.choose(held, 3) == (three, three)  # the hold comes off


def test_the_revision_before_is_one_that_ran():
    """Not one whose roll failed, nor the same spec without the tuning that made its engine start."""
    other = {"cache": {"l1": {"size": "100Gi"}, "chunkBlocks": 2}}
    four, three = record(4), record(3, rejected_for="q36-1")
    two, one = record(2, other, tuning_hash="t"), record(1, other)
    assert rollback.choose(stored([four, three, two, one]), None) == (two, four)
    tuned, plain, former = record(3, tuning_hash="t"), record(2), record(1, other)
    assert rollback.choose(stored([tuned, plain, former]), None) == (former, tuned)
    assert rollback.choose(stored([tuned, plain, former]), 2) == (plain, tuned)
    assert rollback.choose(stored([record(2, content_hash="d"), record(1)]), None)[0].number == 1
    assert rollback.choose(stored([record(2, image="other"), record(1)]), None)[0].number == 1


@pytest.mark.parametrize(
    ("found", "to", "words"),
    [
        (Stored(resource(status={"observedGeneration": 2}), ()), None, "no revision is stored yet"),
        (stored([record(1)]), None, "no revision before 1"),
        (stored([record(3), record(2, rejected_for="q36-1")]), None, "no revision before 3"),
        (stored([record(1)]), 1, "in use already"),
        (stored([record(2), record(1)]), 7, "there are 2, 1"),
        (stored([record(2), record(1)], observedGeneration=1), None, "try again"),
        (stored([record(2, rejected_for="q36-1"), record(1)], used=record(1)), 2, "qcs restart q36` tries it again"),
        (stored([record(2), record(1)], conditions=[{"type": "SpecAccepted", "status": "False"}]), None, "refused"),
    ],
)
def test_what_cannot_be_rolled_back_says_why(found, to, words):
    with pytest.raises(CliError, match=words):
        rollback.choose(found, to)


def test_a_paused_resource_is_not_rolled_back():
    found = stored([record(2), record(1)])
    found.resource["spec"]["lifecycle"] = "Paused"
    with pytest.raises(CliError, match=r"spec\.lifecycle is Paused"):
        rollback.choose(found, None)


def test_history_is_a_table():
    two, one = record(2, restarted_at="2026-11-29T12:00:00Z"), record(1, spec_hash="")
    lines = list(history.table(stored([two, one])))
    assert lines[0].split() == ["REVISION", "NAME", "CREATED", "IMAGE", "STATE"]
    assert lines[1].endswith("in use, restart")
    assert lines[2].endswith("adopted")
    assert [entry["revision"] for entry in history.as_json(stored([two, one]))] == [2, 1]


def test_an_item_of_a_list_is_told_by_itself():
    old = resource(engine={"extraArgs": ["--seed", "1", "--enforce-eager"]})
    found = answer(resource(engine={"extraArgs": ["--seed", "2", "--enforce-eager"]}), old)
    assert found.why == ("spec.engine.extraArgs[1]: 1 → 2",)
