"""Stored revisions: what runs stays as it is, byte for byte, until somebody asks for something else."""

import copy
import dataclasses
import json

import pytest

from qwen_cached_serve.control import desired as rendering
from qwen_cached_serve.control import drift
from qwen_cached_serve.core import names
from qwen_cached_serve.core.records import FORMAT, FORMAT_ANNOTATION
from qwen_cached_serve.core.revision import HISTORY_LIMIT, Hold
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.inpod.message import error_message
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    EVENTS,
    FIELD_MANAGER,
    SERVES,
    SERVICES,
    Conflict,
    Forbidden,
    Transient,
)
from tests.unit.control.bench import Bench
from tests.unit.control.fake_api import replica_set

TWO_CHUNKS = {"cache": {"l1": {"size": "10Gi"}, "chunkBlocks": 2}}
RENDERED = {"Deployment", "ConfigMap", "Service", "ServiceAccount"}


@pytest.fixture
def release(monkeypatch):
    """Make later reconcilers render as another release of the operator: other scripts in the pod."""

    def of(number):
        files = bundle.files()
        if number:
            files = files | {"__main__.py": files["__main__.py"] + f"# release {number}\n"}
        monkeypatch.setattr(rendering, "_scripts", lambda: files)

    return of


async def running(**spec):
    """A resource whose children are made and whose Deployment is rolled out."""
    bench = Bench(**spec)
    await bench.look()
    bench.settled()
    await bench.look()
    return bench


async def upgraded(bench):
    bench.reconciler = bench.restarted()
    return await bench.look()


def writes(bench):
    return [request[:2] for request in bench.api.writes()]


async def test_a_revision_is_stored_before_its_children():
    bench = Bench()
    await bench.look()
    order = writes(bench)
    assert not [request for request in bench.api.requests if request[:2] == ("list", "ControllerRevision")], (
        "what is new has no revisions"
    )
    assert {kind for verb, kind in order if verb == "apply"} == {"ControllerRevision", *RENDERED}
    before = order[: order.index(("apply", "ControllerRevision"))]
    assert before in ([], [("apply", "ConfigMap")]), "only the files, which are named by their content, need not wait"
    assert order.index(("apply", "Deployment")) == len(RENDERED), "the last of the children"
    [record] = bench.revisions()
    manifest = bench.api.of(CONTROLLER_REVISIONS)[record.name]
    assert manifest["metadata"]["ownerReferences"][0]["name"] == "q"
    assert manifest["metadata"]["labels"][names.OWNER_UID_LABEL]
    assert bench.status()["revision"] == {"updated": record.name}
    assert bench.api.of(DEPLOYMENTS)["q"]["metadata"]["annotations"][names.REVISION_ANNOTATION] == record.name
    assert len(json.dumps(manifest)) < 200_000


async def test_without_its_revision_a_new_resource_has_its_files_and_nothing_else():
    """A ConfigMap is named by its content and may be written beside the revision; all else waits for that."""
    bench = Bench()
    bench.api.refuse["apply", "ControllerRevision"] = Forbidden("exceeded quota", status=403)
    await bench.look()
    assert {kind for verb, kind in writes(bench) if verb == "apply"} == {"ControllerRevision", "ConfigMap"}
    assert bench.condition("Ready")["reason"] == "ApplyForbidden"
    await bench.look()
    assert {kind for kind, _, _ in bench.api.objects} >= {"ControllerRevision", *RENDERED}


@pytest.mark.parametrize("broken", ["ControllerRevision", "ConfigMap"])
async def test_no_deployment_before_its_revision_and_its_files(broken):
    bench = Bench()
    bench.api.refuse["apply", broken] = Transient("no answer", status=0)
    with pytest.raises(Transient):
        await bench.look()
    assert not bench.api.of(DEPLOYMENTS)
    await bench.look()
    assert bench.api.of(DEPLOYMENTS)


@pytest.mark.case("B35")
async def test_another_release_restarts_nobody_and_says_what_it_would_change(release):
    bench = await running()
    before, maps = bench.template(), copy.deepcopy(bench.api.of(CONFIG_MAPS))
    release(2)
    await upgraded(bench)
    assert bench.template() == before
    assert bench.api.of(CONFIG_MAPS) == maps
    assert {kind for _, kind in writes(bench)} == {"QwenCachedServe"}
    current = bench.condition("RevisionCurrent")
    assert (current["status"], current["reason"]) == ("False", "OperatorChanged")
    assert "the pod's scripts (1 of" in current["message"]
    assert bench.condition("Ready")["status"] == "True"
    await bench.look()
    assert bench.api.requests == []


async def test_the_stored_revision_repairs_what_drifted(release):
    bench = await running()
    before, maps = bench.template(), copy.deepcopy(bench.api.of(CONFIG_MAPS))
    release(2)
    await upgraded(bench)
    broken = copy.deepcopy(bench.api.of(DEPLOYMENTS)["q"])
    broken["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    bench.api.store(broken)
    [name] = maps
    del bench.api.objects["ConfigMap", "ns", name]
    await bench.look()
    assert bench.template() == before
    assert bench.api.of(CONFIG_MAPS)[name]["data"] == maps[name]["data"]


async def test_roll_takes_up_what_the_operator_renders(release):
    bench = await running(rollout={"onOperatorUpgrade": "Roll"})
    [first] = bench.revisions()
    before = bench.template()
    release(2)
    await upgraded(bench)
    assert bench.template() != before
    assert [record.number for record in bench.revisions()] == [1, 2]
    assert bench.status()["revision"]["history"] == [first.name]
    await bench.look()
    assert bench.api.requests == []


async def test_roll_goes_back_with_the_release_also_after_an_edit_that_keeps_the_pods(release):
    """helm rollback: the former release finds its own revision, although the spec beside it has other replicas now."""
    bench = await running(rollout={"onOperatorUpgrade": "Roll"})
    before = bench.template()
    release(2)
    await upgraded(bench)
    bench.edit(rollout={"onOperatorUpgrade": "Roll"}, replicas=3)
    await bench.look()
    release(0)
    await upgraded(bench)
    assert bench.template()["spec"] == before["spec"]
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["replicas"] == 3
    assert [record.number for record in bench.revisions()] == [2, 3]
    await bench.look()
    assert bench.api.writes() == []


@pytest.mark.case("B35")
async def test_the_operators_other_image_restarts_nobody():
    bench = await running()
    before = bench.template()
    image = bench.status()["resolved"]["image"]
    bench.defaults = dataclasses.replace(bench.defaults, engine_image="vllm/vllm-openai:v0.33.0")
    await upgraded(bench)
    assert bench.template() == before
    assert bench.status()["resolved"]["image"] == image
    assert f"image: {image} → vllm/vllm-openai:v0.33.0" in bench.condition("RevisionCurrent")["message"]


@pytest.mark.case("B35")
async def test_forward_and_back_again(release):
    bench = await running()
    first = bench.template()
    release(2)
    await upgraded(bench)
    assert bench.template() == first
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    second = bench.template()
    assert second != first
    release(0)
    await upgraded(bench)
    assert bench.template() == second  # the former release keeps what the later one rendered
    assert bench.condition("RevisionCurrent")["reason"] != "InvalidSpec"
    bench.edit()
    await bench.look()
    assert bench.template() == first
    bench.edit(replicas=3)
    await bench.look()
    assert bench.template() == first
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["replicas"] == 3


@pytest.mark.parametrize("change", [{"replicas": 2}, {"lifecycle": "Stopped"}, {"service": {"port": 8000}}], ids=str)
async def test_what_keeps_the_pods_follows_the_spec_at_once(release, change):
    bench = await running()
    before = bench.template()
    release(2)
    await upgraded(bench)
    bench.edit(**change)
    await bench.look()
    assert bench.template() == before
    assert len(bench.revisions()) == 1
    deployment = bench.api.of(DEPLOYMENTS)["q"]
    assert deployment["spec"]["replicas"] == (0 if "lifecycle" in change else change.get("replicas", 1))
    assert bench.api.of(SERVICES)["q"]["spec"]["ports"][0]["port"] == change.get("service", {}).get("port", 80)


async def test_a_newer_format_freezes_everything(release):
    bench = await running()
    [record] = bench.revisions()
    stored = copy.deepcopy(bench.api.of(CONTROLLER_REVISIONS)[record.name])
    stored["metadata"]["annotations"][FORMAT_ANNOTATION] = str(FORMAT + 1)
    bench.api.store(stored)
    before = {place: one for place, one in bench.api.objects.items() if place[0] in RENDERED}
    bench.edit(replicas=5, **TWO_CHUNKS)
    bench.settled()
    await upgraded(bench)
    for kind in ("RevisionCurrent", "Stalled", "Ready"):
        assert bench.condition(kind)["reason"] == "NewerFormat"
    assert record.name in bench.condition("Stalled")["message"]
    assert {k: v for k, v in bench.api.objects.items() if k[0] in RENDERED} == before
    await bench.look()
    assert bench.api.requests == []


async def test_going_back_to_a_spec_uses_its_revision_again():
    bench = await running()
    first = bench.template()
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    [one, two] = bench.revisions()
    bench.edit()
    await bench.look()
    assert bench.template() == first
    assert [(record.name, record.number) for record in bench.revisions()] == [(two.name, 2), (one.name, 3)]
    assert bench.status()["revision"]["updated"] == one.name
    await bench.look()
    assert bench.api.requests == []


async def test_a_restart_is_one_roll(release):
    bench = await running()
    before = bench.template()
    bench.annotate(restarted_at="2026-11-29T12:00:00Z")
    await bench.look()
    after = bench.template()
    assert after["metadata"]["annotations"]["qwencache.dev/restarted-at"] == "2026-11-29T12:00:00Z"
    assert after["spec"] == before["spec"]
    for change in ("2026-11-29T11:00:00Z", None, "tomorrow"):
        bench.annotate(restarted_at=change)
        await bench.look()
        assert bench.template() == after
    assert "restarted-at is no time" in bench.condition("SpecAccepted")["message"]
    release(2)
    await upgraded(bench)
    assert bench.template() == after
    bench.annotate(restarted_at="2026-11-29T13:00:00Z")
    await bench.look()
    assert bench.template()["spec"] != after["spec"]  # a restart takes up the running release's rendering
    assert len(bench.revisions()) == 3


async def test_a_rollback_holds_and_the_next_edit_ends_it():
    bench = await running()
    first = bench.template()
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    bench.settled()
    await bench.look()
    second = bench.template()
    [good, bad] = bench.revisions()
    bench.annotate(hold=Hold(good.name, bad.spec_hash).text())
    await bench.look()
    assert bench.template() == first
    assert bench.status()["revision"] == {"updated": good.name, "current": bad.name, "history": [bad.name]}
    for kind in ("Stalled", "Ready", "RevisionCurrent"):
        assert bench.condition(kind)["reason"] == "RolledBack"
    assert bench.condition("Stalled")["status"] == "True"
    reasons = [event["reason"] for event in bench.api.of(EVENTS).values()]
    assert reasons.count("RolledBack") == 1
    bench.settled()
    await bench.look()
    assert bench.condition("Available")["status"] == "True"
    assert bench.status()["revision"]["current"] == good.name
    bench.reconciler = bench.restarted()
    await bench.look()
    await bench.look()
    assert bench.api.requests == []
    bench.edit(replicas=2, **TWO_CHUNKS)
    await bench.look()
    assert bench.template() == first  # scaling is no edit of the pods
    bench.edit(cache={"l1": {"size": "10Gi"}, "chunkBlocks": 3})
    await bench.look()
    assert bench.template() not in (first, second)
    assert bench.condition("Stalled")["reason"] != "RolledBack"


@pytest.mark.parametrize("meanwhile", [{"replicas": 0}, {"lifecycle": "Stopped"}], ids=str)
async def test_a_roll_that_fails_after_an_edit_without_pods_is_rolled_back(release, meanwhile):
    roll_back = {"rollout": {"onFailure": "RollBack"}}
    bench = await running(**roll_back)
    [good] = bench.revisions()
    for spec in (meanwhile, meanwhile | TWO_CHUNKS):
        bench.edit(**roll_back, **spec)
        await bench.look()
        bench.settled()
        await bench.look()
        assert bench.status()["revision"]["current"] == good.name  # nobody knows yet whether the other's pods start
        assert bench.condition("Ready")["status"] == "True"
    bench.edit(**roll_back, **TWO_CHUNKS)
    await bench.look()
    refused_by_the_probe(bench, replicas=1)
    await bench.look()
    assert bench.revisions()[-1].rejected_for == good.name
    await bench.look()
    assert bench.condition("Stalled")["reason"] == "RolledBack"


def refused_by_the_probe(bench, replicas):
    """The first pod of the second revision: its probe refuses the model."""
    live = bench.api.of(DEPLOYMENTS)["q"]
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    bench.api.store(live | {"status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": 1}})
    bench.api.store(replica_set(live, "new", "2"))
    refusal = error_message("ArchitectureNotSupported", "no such model", "choose another")
    state = {"terminated": {"exitCode": 1, "message": refusal, "reason": "Error"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "ns",
            "name": "new-1",
            "labels": live["spec"]["template"]["metadata"]["labels"] | {"pod-template-hash": "new"},
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": "Pending", "initContainerStatuses": [{"name": "probe", "state": state, "restartCount": 3}]},
    }
    bench.api.store(pod)


async def test_a_failed_roll_is_rolled_back_and_not_tried_again(release):
    bench = await running(rollout={"onFailure": "RollBack"}, replicas=2)
    first = bench.template()
    bench.edit(rollout={"onFailure": "RollBack"}, replicas=2, **TWO_CHUNKS)
    await bench.look()
    [good, bad] = bench.revisions()
    refused_by_the_probe(bench, replicas=2)
    await bench.look()
    assert bench.condition("Stalled")["reason"] == "ArchitectureNotSupported"
    assert bench.revisions()[-1].rejected_for == good.name
    bench.reconciler = bench.restarted()
    await bench.look()
    assert bench.template() == first
    assert bench.condition("Stalled")["reason"] == "RolledBack"
    assert f"revision {bad.number} ({bad.name}) failed" in bench.condition("Stalled")["message"]
    del bench.api.objects["Pod", "ns", "new-1"]
    bench.settled()
    release(2)
    await upgraded(bench)
    assert bench.template() == first
    await bench.look()
    assert bench.api.requests == []
    bench.annotate(restarted_at="2026-11-29T12:00:00Z")
    await bench.look()
    assert bench.template() != first
    assert bench.condition("Stalled")["reason"] != "RolledBack"


def starve(bench, room, *, replicas=1):
    """The engine of the live template's pod has too few state blocks."""
    live = bench.api.of(DEPLOYMENTS)["q"]
    name = live["metadata"]["annotations"][names.REVISION_ANNOTATION][-6:]
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = name
    counts = {"replicas": replicas, "updatedReplicas": replicas}
    bench.api.store(live | {"status": {"observedGeneration": live["metadata"].get("generation", 1), **counts}})
    bench.api.store(replica_set(live, name, name))
    text = f"ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks ({room}). Please lower."
    ended = {"terminated": {"exitCode": 1, "message": text, "reason": "Error"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "ns",
            "name": "one",
            "labels": live["spec"]["template"]["metadata"]["labels"] | {"pod-template-hash": name},
        },
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [
                {"name": "probe", "state": {"terminated": {"exitCode": 0, "message": "", "reason": "Completed"}}},
                {"name": "cache-server", "state": {"running": {}}, "started": True, "ready": True},
            ],
            "containerStatuses": [{"name": "engine", "state": ended, "restartCount": 1}],
        },
    }
    bench.api.store(pod)


def sequences(bench):
    """What the pods are told about the number of sequences."""
    [volume] = [v for v in bench.template()["spec"]["volumes"] if "configMap" in v]
    data = bench.api.of(CONFIG_MAPS)[volume["configMap"]["name"]]["data"]
    return json.loads(data["settings.json"])["engine"]["tuned_max_num_seqs"]


@pytest.mark.case("B23")
async def test_the_engines_number_is_stored_with_a_revision_and_survives_restarts_and_releases(release):
    bench = Bench()
    await bench.look()
    starve(bench, 614)
    await bench.look()
    [plain, tuned] = bench.revisions()
    assert (plain.tuning_hash, bool(tuned.tuning_hash)) == ("", True)
    assert (plain.spec_hash, plain.image) == (tuned.spec_hash, tuned.image)
    bench.reconciler = bench.restarted()  # it ended between storing and applying
    await bench.look()
    assert sequences(bench) == 614
    assert [(one["name"], one["value"]) for one in bench.status()["tuning"]] == [("maxNumSeqs", "614")]
    assert bench.status()["roll"]["to"] == tuned.name
    said = [event["reason"] for event in bench.api.of(EVENTS).values()]
    assert said.count("Tuned") == 1
    del bench.api.objects["Pod", "ns", "one"]
    bench.settled()
    await bench.look()
    await bench.look()
    assert bench.api.requests == []
    before = bench.template()
    release(2)
    await upgraded(bench)
    assert bench.template() == before
    assert bench.condition("RevisionCurrent")["reason"] == "OperatorChanged"
    assert "tuned" not in bench.condition("RevisionCurrent")["message"]
    bench.annotate(restarted_at="2026-11-29T12:00:00Z")
    await bench.look()
    assert sequences(bench) == 614  # a restart keeps what is known to be needed
    assert bench.revisions()[-1].tuning_hash == tuned.tuning_hash
    bench.edit(engine={"autoTune": "Disabled"})
    uses = bench.template()
    await bench.look()
    assert bench.template() == uses
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    assert sequences(bench) is None  # another spec begins without
    assert "tuning" not in bench.status()
    bench.edit()
    await bench.look()
    assert sequences(bench) == 614  # and the former one comes back with its own


async def test_it_falls_again_and_ends_in_an_explanation():
    bench = Bench()
    await bench.look()
    for room in (614, 600, 95):
        starve(bench, room)
        await bench.look()
        await bench.look()
        assert sequences(bench) == room
    starve(bench, 90)
    await bench.look()
    await bench.look()
    assert sequences(bench) == 95
    assert len(bench.revisions()) == 4
    assert bench.condition("Stalled")["reason"] == "MaxNumSeqsTooLarge"
    assert "3 times" in bench.condition("Stalled")["message"]


async def test_a_tuning_that_cannot_be_read_changes_nothing():
    bench = Bench()
    await bench.look()
    starve(bench, 614)
    await bench.look()
    name = bench.revisions()[-1].name
    broken = copy.deepcopy(bench.api.of(CONTROLLER_REVISIONS)[name])
    broken["data"]["content"] = "eA=="
    bench.api.store(broken)
    before = bench.template()
    bench.reconciler = bench.restarted()
    await bench.look()
    assert bench.template() == before
    assert bench.condition("Stalled")["reason"] == "RevisionUnreadable"
    assert name in bench.condition("Stalled")["message"]


async def test_tuning_goes_before_rolling_back():
    bench = await running(rollout={"onFailure": "RollBack"})
    bench.edit(rollout={"onFailure": "RollBack"}, **TWO_CHUNKS)
    await bench.look()
    starve(bench, 614)
    await bench.look()
    await bench.look()
    assert sequences(bench) == 614
    assert [record.rejected_for for record in bench.revisions()] == ["", "", ""]


async def test_taking_the_hold_off_goes_on():
    bench = await running()
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    second = bench.template()
    [good, bad] = bench.revisions()
    bench.annotate(hold=Hold(good.name, bad.spec_hash).text())
    await bench.look()
    bench.annotate(hold=None)
    await bench.look()
    assert bench.template() == second


async def test_a_hold_at_nothing_leaves_everything():
    bench = await running()
    [record] = bench.revisions()
    bench.annotate(hold=Hold("q-gone", record.spec_hash).text())
    bench.edit(replicas=9)
    await bench.look()
    assert bench.condition("Stalled")["reason"] == "HoldUnknown"
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["replicas"] == 1


async def test_paused_changes_nothing_whichever_release_runs(release):
    bench = await running()
    bench.edit(lifecycle="Paused")
    await bench.look()
    release(2)
    await upgraded(bench)
    assert {kind for _, kind in writes(bench)} <= {"QwenCachedServe", "Event"}
    assert "pending edit" not in bench.condition("Ready")["message"]
    assert len(bench.revisions()) == 1
    bench.edit(lifecycle="Paused", **TWO_CHUNKS)
    await bench.look()
    assert "pending edit" in bench.condition("Ready")["message"]
    assert len(bench.revisions()) == 1
    bench.annotate(restarted_at="2026-11-29T12:00:00Z")
    await bench.look()
    assert len(bench.revisions()) == 1
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    assert len(bench.revisions()) == 2
    assert bench.template()["metadata"]["annotations"]["qwencache.dev/restarted-at"]


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "Deployment"])
async def test_a_process_that_ends_in_the_middle_is_taken_over(kind):
    bench = await running()
    bench.edit(service={"port": 81}, **TWO_CHUNKS)
    bench.api.refuse["apply", kind] = Transient("the process ended here")
    with pytest.raises(Transient):
        await bench.look()
    assert len(bench.revisions()) == 2
    await upgraded(bench)
    assert len(bench.revisions()) == 2
    assert bench.api.of(DEPLOYMENTS)["q"]["metadata"]["annotations"][names.REVISION_ANNOTATION] == (
        bench.revisions()[-1].name
    )


async def test_a_release_that_starts_in_the_middle_of_a_roll_goes_on_with_it(release):
    bench = await running()
    bench.edit(**TWO_CHUNKS)
    bench.api.refuse["apply", "Deployment"] = Transient("the process ended here")
    with pytest.raises(Transient):
        await bench.look()
    stored = bench.revisions()[-1]
    release(2)
    await upgraded(bench)
    assert len(bench.revisions()) == 2
    [volume] = [one for one in bench.template()["spec"]["volumes"] if "configMap" in one]
    assert volume["configMap"]["name"] == stored.config_map


async def test_a_cache_that_lags_makes_no_second_revision(release):
    bench = await running()
    before = bench.template()
    release(2)
    bench.reconciler = bench.restarted()
    snapshot = bench.cache.snapshot
    bench.cache.snapshot = lambda key: dataclasses.replace(snapshot(key), revisions=())
    await bench.look()
    assert bench.template() == before
    assert len(bench.revisions()) == 1
    assert "list" in {verb for verb, *_ in bench.api.requests}


async def test_two_that_make_the_same_meet_each_other():
    bench = await running()
    bench.edit(**TWO_CHUNKS)
    real = bench.api.apply

    async def first_elsewhere(manifest, **options):
        if manifest["kind"] == "ControllerRevision":
            await real(manifest, **options)
        return await real(manifest, **options)

    bench.api.apply = first_elsewhere
    await bench.look()
    assert len(bench.revisions()) == 2


async def test_a_number_that_moved_on_is_looked_at_again():
    bench = await running()
    bench.edit(**TWO_CHUNKS)
    await bench.look()
    bench.edit()
    [one, _] = bench.revisions()
    snapshot = bench.cache.snapshot
    behind = snapshot(("ns", "q"))
    moved = copy.deepcopy(bench.api.of(CONTROLLER_REVISIONS)[one.name])
    moved["metadata"]["annotations"]["somebody"] = "else"
    bench.api.store(moved)
    bench.cache.snapshot = lambda key: behind
    with pytest.raises(Conflict):
        await bench.look()
    bench.cache.snapshot = snapshot
    await bench.look()
    assert bench.revisions()[-1].name == one.name


async def test_a_revision_that_may_not_be_stored_is_told_and_no_pod_is_made():
    bench = Bench()
    bench.api.refuse["apply", "ControllerRevision"] = Forbidden("cannot create controllerrevisions", status=403)
    outcome = await bench.look()
    assert outcome.summary["refused"] == ["ControllerRevision/of this resource: ApplyForbidden"]
    assert bench.api.of(DEPLOYMENTS) == {}
    assert "cannot create controllerrevisions" in bench.condition("Ready")["message"]
    await bench.look()
    assert bench.api.of(DEPLOYMENTS)


async def test_damaged_data_is_told_and_changes_nothing(release):
    bench = await running()
    [record] = bench.revisions()
    bench.api.objects["ControllerRevision", "ns", record.name]["data"] = {"format": FORMAT}
    before = bench.template()
    await upgraded(bench)
    assert bench.condition("Stalled")["status"] == "False"  # not needed, so not read
    release(2)
    await upgraded(bench)
    assert bench.condition("Stalled")["reason"] == "RevisionUnreadable"
    assert bench.template() == before
    del bench.api.objects["ControllerRevision", "ns", record.name]
    live_fields(bench)
    await bench.look()
    assert stated(bench) == before  # adopted as it runs
    assert bench.condition("RevisionCurrent")["reason"] == "OperatorChanged"


async def test_the_history_is_bounded_and_its_config_maps_with_it():
    bench = await running()
    old = replica_set(bench.api.of(DEPLOYMENTS)["q"], "old")
    old["metadata"]["annotations"] |= bench.api.of(DEPLOYMENTS)["q"]["metadata"]["annotations"]
    bench.api.store(old)
    [first] = bench.revisions()
    for blocks in range(2, HISTORY_LIMIT + 6):
        bench.edit(cache={"l1": {"size": "10Gi"}, "chunkBlocks": blocks})
        await bench.look()
    await bench.look()
    kept = bench.revisions()
    assert first.name in {record.name for record in kept}  # a ReplicaSet is made from it
    assert len(kept) == HISTORY_LIMIT + 2
    assert {record.config_map for record in kept} == set(bench.api.of(CONFIG_MAPS))
    assert len(bench.status()["revision"]["history"]) == HISTORY_LIMIT
    del bench.api.objects["ReplicaSet", "ns", "old"]
    await bench.look()
    assert first.name in {record.name for record in bench.revisions()}  # the last one that was fully rolled out
    bench.settled()
    await bench.look()  # another one is now; writing that brings the next look
    await bench.look()
    assert first.name not in {record.name for record in bench.revisions()}
    assert first.config_map not in bench.api.of(CONFIG_MAPS)


async def test_foreign_fields_of_the_template_are_named():
    bench = await running()
    live = copy.deepcopy(bench.api.of(DEPLOYMENTS)["q"])
    where = {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:sidecar/inject": {}}}}}}
    live["metadata"]["managedFields"] = [{"manager": "mesh", "operation": "Update", "fieldsV1": where}]
    bench.api.store(live)
    await bench.look()
    assert "spec.template.metadata.annotations.sidecar/inject (mesh)" in bench.condition("RevisionCurrent")["message"]


# A resource that a release without stored revisions left behind.


def fields(value):
    """`fieldsV1` of an applied value, as the API server would record them; a fieldRef is merged as a whole."""
    if isinstance(value, dict):
        return {f"f:{key}": {} if key == "fieldRef" else fields(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value):
        return {f"k:{json.dumps({'name': item['name']})}": {".": {}, **fields(item)} for item in value}
    return {}


def live_fields(bench):
    """Give the live Deployment its managed fields and what the API server adds to the template by itself."""
    live = copy.deepcopy(bench.api.of(DEPLOYMENTS)["q"])
    applied = {"f:spec": {"f:template": fields(live["spec"]["template"])}}
    live["metadata"]["managedFields"] = [
        {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": applied},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {}},
    ]
    pod = live["spec"]["template"]["spec"]
    pod |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}
    references = [one for c in (*pod["initContainers"], *pod["containers"]) for one in c["env"] if "valueFrom" in one]
    assert references
    for one in references:
        one["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    bench.api.store(live)
    return live


async def left_behind(**spec):
    bench = await running(**spec)
    for record in bench.revisions():
        del bench.api.objects["ControllerRevision", "ns", record.name]
    live = copy.deepcopy(bench.api.of(DEPLOYMENTS)["q"])
    del live["metadata"]["annotations"][names.REVISION_ANNOTATION]
    bench.api.store(drift.stamped(live))
    resource = bench.api.of(SERVES)["q"]
    resource["status"].pop("revision")
    bench.api.store(resource)
    live_fields(bench)
    return bench


def stated(bench):
    """The live template without what the API server added."""
    template = copy.deepcopy(bench.template())
    for name in ("dnsPolicy", "restartPolicy"):
        template["spec"].pop(name, None)
    for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
        for variable in container["env"]:
            variable.get("valueFrom", {}).get("fieldRef", {}).pop("apiVersion", None)
    return template


async def test_what_runs_is_taken_over_without_a_restart():
    bench = await left_behind()
    before = stated(bench)
    await upgraded(bench)
    assert stated(bench) == before
    assert len(bench.revisions()) == 1
    assert bench.condition("RevisionCurrent")["reason"] != "OperatorChanged"
    assert "RollStarted" not in [event["reason"] for event in bench.api.of(EVENTS).values()]


async def test_what_runs_in_a_former_rendering_is_taken_over_as_it_is(release):
    bench = await left_behind()
    before, maps = stated(bench), copy.deepcopy(bench.api.of(CONFIG_MAPS))
    release(2)
    await upgraded(bench)
    assert stated(bench) == before
    bench.settled()
    await bench.look()
    assert bench.condition("RevisionCurrent")["reason"] == "OperatorChanged"
    assert "the pod's scripts" in bench.condition("RevisionCurrent")["message"]
    assert "apiVersion" not in bench.condition("RevisionCurrent")["message"]
    assert bench.api.of(CONFIG_MAPS) == maps
    [record] = bench.revisions()
    assert {record.config_map} == set(maps)
    await upgraded(bench)
    assert stated(bench) == before
    await bench.look()
    assert bench.api.requests == []


@pytest.mark.parametrize(("stalled", "revisions"), [("OptionalChildRefused", 1), ("ApplyRefused", 2)])
async def test_a_refused_child_beside_the_pods_does_not_unsettle_them(release, stalled, revisions):
    """Ready has the same reason for a refused PodMonitor as for a refused Deployment; Stalled tells them apart."""
    bench = await left_behind()
    before = stated(bench)
    resource = bench.api.of(SERVES)["q"]
    for entry in resource["status"]["conditions"]:
        if entry["type"] in ("Ready", "Stalled"):
            entry["reason"] = "ApplyRefused" if entry["type"] == "Ready" else stalled
    bench.api.store(resource)
    release(2)
    await upgraded(bench)
    assert len(bench.revisions()) == revisions
    assert (stated(bench) == before) is (revisions == 1)


async def test_an_edit_made_in_between_rolls_and_what_ran_stays_in_the_history(release):
    bench = await left_behind()
    before = stated(bench)
    release(2)
    bench.edit(**TWO_CHUNKS)
    await upgraded(bench)
    assert stated(bench) != before
    [former, new] = bench.revisions()
    assert former.spec_hash == ""
    assert bench.status()["revision"]["history"] == [former.name]
    bench.annotate(hold=Hold(former.name, new.spec_hash).text())
    await bench.look()
    assert stated(bench) == before


async def test_what_runs_without_its_scripts_is_made_anew(release):
    bench = await left_behind()
    release(2)
    for name in list(bench.api.of(CONFIG_MAPS)):
        del bench.api.objects["ConfigMap", "ns", name]
    await upgraded(bench)
    [record] = bench.revisions()
    assert record.config_map in bench.api.of(CONFIG_MAPS)
