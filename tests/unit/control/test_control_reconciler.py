"""The reconciler's order and restraint, with a stand-in API that records every request."""

import copy
import datetime as dt

import pytest

from qwen_cached_serve.control.apply import REFUSED_AGAIN_SECONDS
from qwen_cached_serve.control.belonging import COLLECTING_SECONDS
from qwen_cached_serve.control.desired import Designer
from qwen_cached_serve.core import names
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    SERVES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Conflict,
    Forbidden,
    Invalid,
    Transient,
)
from tests.unit.control.bench import Bench
from tests.unit.control.fake_api import UID, replica_set


async def test_children_come_in_order_and_the_status_last():
    bench = Bench()
    await bench.look()
    writes = bench.api.writes()
    assert [kind for verb, kind, _ in writes if verb == "apply"][-1] == "Deployment"
    assert {kind for verb, kind, _ in writes if verb == "apply"} == {
        "ControllerRevision",
        "ConfigMap",
        "ServiceAccount",
        "Service",
        "Deployment",
    }
    assert [verb for verb, _, _ in writes if verb != "create"][-1] == "apply_status"


@pytest.mark.case("B53")
async def test_the_second_look_asks_nothing():
    bench = Bench()
    await bench.look()
    await bench.look()
    assert bench.api.requests == []
    bench.reconciler = bench.restarted()
    await bench.look()
    assert bench.api.requests == []


async def test_only_what_drifted_is_applied():
    bench = Bench()
    await bench.look()
    service = copy.deepcopy(bench.api.of(SERVICES)["q"])
    service["spec"]["ports"][0]["port"] = 81
    bench.api.store(service)
    outcome = await bench.look()
    assert [request[:2] for request in bench.api.writes()] == [("apply", "Service")]
    assert outcome.summary["applied"] == ["Service/q (spec.ports[80,TCP])"]


async def test_an_invalid_spec_touches_no_child_and_says_what_to_change():
    bench = Bench()
    await bench.look()
    before = {place: m for place, m in bench.api.objects.items() if place[0] not in ("QwenCachedServe", "Event")}
    bench.edit(model={"name": "Qwen/Qwen3.6-27B"}, cache={"l1": {"size": "-1"}})
    await bench.look()
    after = {place: m for place, m in bench.api.objects.items() if place[0] not in ("QwenCachedServe", "Event")}
    assert after == before
    assert bench.condition("Stalled")["status"] == "True"
    assert "spec.cache.l1.size" in bench.condition("Stalled")["message"]
    assert {verb for verb, _, _ in bench.api.writes()} == {"apply_status", "create"}


async def test_paused_writes_a_status_and_nothing_else():
    bench = Bench(lifecycle="Paused")
    await bench.look()
    assert {verb for verb, _, _ in bench.api.writes()} <= {"apply_status", "create"}


async def test_an_edit_of_a_paused_resource_waits_and_is_not_shown_as_running():
    bench = Bench()
    await bench.look()
    await bench.look()
    image = bench.status()["resolved"]["image"]
    bench.edit(lifecycle="Paused")
    await bench.look()
    assert "pending edit" not in bench.condition("Ready")["message"]
    bench.edit(lifecycle="Paused", engine={"image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(2):
        await bench.look()
        assert bench.status()["resolved"]["image"] == image
    bench.edit(engine={"image": "vllm/vllm-openai:v0.33.0"})
    await bench.look()
    assert bench.status()["resolved"]["image"] == "vllm/vllm-openai:v0.33.0"


async def test_deleted_and_dying_resources_are_left_alone():
    bench = Bench()
    dying = bench.api.of(SERVES)["q"]
    dying["metadata"]["deletionTimestamp"] = "2026-11-29T00:00:00Z"
    bench.api.store(dying)
    assert (await bench.look()).summary == {"deleting": True}
    assert bench.api.requests == []
    del bench.api.objects["QwenCachedServe", "ns", "q"]
    assert (await bench.look()).summary == {"gone": True}
    assert bench.api.requests == []


@pytest.mark.case("B58")
async def test_a_taken_name_stops_the_whole_set():
    bench = Bench()
    bench.api.store({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": "q"}, "spec": {}})
    outcome = await bench.look()
    assert [verb for verb, _, _ in bench.api.writes() if verb == "apply"] == []
    assert outcome.summary["refused"] == ["Service/q: NameTaken"]
    assert outcome.again_after_seconds == REFUSED_AGAIN_SECONDS
    assert bench.condition("Ready")["reason"] == "NameTaken"
    assert "Service named q exists already" in bench.condition("Ready")["message"]


async def test_a_refused_child_is_told_and_the_deployment_waits():
    bench = Bench()
    bench.api.refuse["apply", "ConfigMap"] = Invalid("data: Too long", status=422)
    outcome = await bench.look()
    assert "Deployment" not in {kind for verb, kind, _ in bench.api.writes() if verb == "apply"}
    assert "data: Too long" in bench.condition("Ready")["message"]
    assert outcome.again_after_seconds == REFUSED_AGAIN_SECONDS
    outcome = await bench.look()
    assert outcome.again_after_seconds is None
    assert bench.api.of(DEPLOYMENTS)


@pytest.mark.parametrize(
    "error",
    [
        Transient("no answer"),
        Conflict("modified", status=409),
        Forbidden("because it is being terminated", status=403),
        Forbidden("Unauthorized", status=401),
    ],
    ids=["transient", "conflict", "terminating", "unauthorized"],
)
async def test_trouble_that_is_not_the_childs_is_raised(error):
    bench = Bench()
    bench.api.refuse["apply", "Service"] = error
    with pytest.raises(type(error)):
        await bench.look()
    await bench.look()
    assert bench.api.of(DEPLOYMENTS)


@pytest.mark.case("B57")
async def test_a_lost_answer_converges_without_a_second_child():
    bench = Bench()
    real = bench.api.apply

    async def lost(manifest, **options):
        await real(manifest, **options)
        bench.api.apply = real
        raise Transient("connection reset after the request was sent")

    bench.api.apply = lost
    with pytest.raises(Transient):
        await bench.look()
    bench.reconciler = bench.restarted()
    await bench.look()
    await bench.look()
    assert bench.api.requests == []
    assert len(bench.api.of(CONFIG_MAPS)) == 1


async def test_a_wrong_immutable_config_map_is_replaced():
    bench = Bench()
    await bench.look()
    [name] = bench.api.of(CONFIG_MAPS)
    wrong = copy.deepcopy(bench.api.of(CONFIG_MAPS)[name])
    wrong["data"]["settings.json"] = "{}"
    bench.api.store(wrong)
    await bench.look()
    assert [request[:2] for request in bench.api.writes()] == [("delete", "ConfigMap"), ("apply", "ConfigMap")]
    assert bench.api.of(CONFIG_MAPS)[name]["data"]["settings.json"] != "{}"


async def test_old_config_maps_stay_while_a_replica_set_names_them():
    bench = Bench()
    await bench.look()
    [first] = bench.api.of(CONFIG_MAPS)
    old = replica_set(bench.api.of(DEPLOYMENTS)["q"], "old")
    bench.api.store(old)
    bench.edit(cache={"l1": {"size": "10Gi"}, "chunkBlocks": 2})
    await bench.look()
    await bench.look()
    assert len(bench.api.of(CONFIG_MAPS)) == 2
    del bench.api.objects["ReplicaSet", "ns", "old"]
    await bench.look()
    assert len(bench.api.of(CONFIG_MAPS)) == 2  # its revision is in the history
    bench.forget_revision_of(first)
    outcome = await bench.look()
    assert outcome.summary["deleted"] == [f"ConfigMap/{first}"]
    assert first not in bench.api.of(CONFIG_MAPS)


async def test_an_account_of_the_users_replaces_ours():
    bench = Bench()
    await bench.look()
    assert "q" in bench.api.of(SERVICE_ACCOUNTS)
    bench.edit(pod={"serviceAccountName": "mine"})
    await bench.look()
    assert bench.api.of(SERVICE_ACCOUNTS) == {}


async def test_events_are_said_once_and_only_with_their_status():
    bench = Bench()
    await bench.look()
    bench.edit(model={"name": "Qwen/Qwen3.6-27B"}, cache={"l1": {"size": "-1"}})
    bench.api.refuse["apply_status", "QwenCachedServe"] = Transient("no answer")
    with pytest.raises(Transient):
        await bench.look()
    assert [verb for verb, _, _ in bench.api.requests] == ["apply_status"]
    await bench.look()
    [event] = bench.api.of(EVENTS).values()
    assert (event["type"], event["reason"]) == ("Warning", "SpecRejected")
    assert event["regarding"]["uid"] == UID
    assert event["eventTime"] == "2026-11-29T00:00:00.000000Z"
    await bench.look()
    assert bench.api.requests == []


async def test_an_event_that_cannot_be_posted_fails_nothing():
    bench = Bench()
    await bench.look()
    bench.edit(model={"name": "Qwen/Qwen3.6-27B"}, cache={"l1": {"size": "-1"}})
    bench.api.refuse["create", "Event"] = Forbidden("no events here", status=403)
    assert (await bench.look()).summary["status"] == "written"


@pytest.mark.case("B52")
async def test_a_status_field_that_an_older_crd_lacks_is_left_out_and_tried_again_later():
    bench = Bench()
    words = (
        "failed to create typed patch object (ns/q; qwencache.dev/v1alpha1, Kind=QwenCachedServe): errors:\n"
        "  .status.blockSize: field not declared in schema\n"
        '  .status.conditions[type="Ready"].observedGeneration: field not declared in schema'
    )
    real = bench.api.apply_status

    async def older(manifest):
        if "blockSize" in manifest["status"]:
            bench.api.requests.append(("apply_status", "refused", "q"))
            raise Invalid(words, status=500)
        return await real(manifest)

    bench.api.apply_status = older
    await bench.look()
    assert "blockSize" not in bench.status()
    assert bench.status()["conditions"]
    assert all("observedGeneration" not in entry for entry in bench.status()["conditions"])
    await bench.look()
    assert bench.api.requests == []  # no circle
    lacking = "qwen_cached_serve_definition_unknown_fields"
    assert bench.metrics.registry.get_sample_value(lacking) == 2
    bench.api.apply_status = real
    bench.now += dt.timedelta(seconds=601)
    await bench.look()
    assert bench.status()["blockSize"] == {"predicted": 784}
    assert bench.metrics.registry.get_sample_value(lacking) == 0


async def test_a_status_that_is_refused_for_another_reason_is_an_error():
    bench = Bench()
    bench.api.refuse["apply_status", "QwenCachedServe"] = Invalid("status.replicas: must not be negative", status=422)
    with pytest.raises(Invalid):
        await bench.look()


async def test_conditions_are_metrics_too():
    bench = Bench()
    await bench.look()
    labels = {"namespace": "ns", "name": "q", "type": "SpecAccepted", "status": "True"}
    assert bench.metrics.registry.get_sample_value("qwen_cached_serve_condition", labels) == 1


def former(kind, name, **metadata):
    """A child of a deleted resource that was called q too."""
    owner = {"apiVersion": SERVES.api_version, "kind": SERVES.kind, "name": "q", "uid": "former", "controller": True}
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.OWNER_UID_LABEL: "former"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "ns", "name": name, "ownerReferences": [owner], "labels": labels} | metadata,
        "spec": {},
    }


ORPHAN_GOING = {
    "ownerReferences": [],
    "annotations": {names.NAME_ANNOTATION: "q"},
    "deletionTimestamp": "2026-11-29T00:00:00Z",
}


@pytest.mark.parametrize("metadata", [{}, ORPHAN_GOING], ids=["not-yet-collected", "orphan-being-deleted"])
async def test_a_former_resources_children_are_waited_for(metadata):
    bench = Bench()
    bench.api.store(former(SERVICES, "q", **metadata))
    with pytest.raises(Conflict, match="Service q has to go first") as caught:
        await bench.look()
    assert 0 < caught.value.retry_after_seconds < 5
    assert bench.api.writes() == []
    del bench.api.objects["Service", "ns", "q"]
    await bench.look()
    assert bench.api.of(DEPLOYMENTS)
    assert bench.condition("Ready")["reason"] != "NameTaken"


async def test_a_former_resources_child_that_never_goes_is_told():
    bench = Bench()
    resource = bench.api.of(SERVES)["q"]
    resource["metadata"]["creationTimestamp"] = "2026-11-29T00:00:00Z"
    bench.api.store(resource)
    bench.api.store(former(SERVICES, "q"))
    with pytest.raises(Conflict):
        await bench.look()
    bench.now += dt.timedelta(seconds=COLLECTING_SECONDS + 1)
    assert (await bench.look()).summary["refused"] == ["Service/q: NameTaken"]
    assert "QwenCachedServe q (uid former)" in bench.condition("Ready")["message"]


async def test_a_child_of_another_kind_of_owner_is_not_waited_for():
    bench = Bench()
    service = former(SERVICES, "q")
    service["metadata"]["ownerReferences"][0]["kind"] = "Other"
    bench.api.store(service)
    assert (await bench.look()).summary["refused"] == ["Service/q: NameTaken"]


async def test_the_status_speaks_of_the_deployment_of_the_right_name():
    bench = Bench()
    await bench.look()
    right = bench.api.of(DEPLOYMENTS)["q"]
    right["status"] = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    bench.api.store(right)
    await bench.look()
    before = bench.status()
    other = copy.deepcopy(bench.api.of(DEPLOYMENTS).pop("q"))
    other["metadata"] |= {"name": "another", "uid": "another"}
    other["status"] = {"observedGeneration": 1, "replicas": 7}
    bench.api.objects = {("Deployment", "ns", "another"): other} | bench.api.objects  # listed first
    bench.api.store(other)
    await bench.look()
    assert bench.status() == before


async def test_a_roll_begun_pod_by_pod_ends_so():
    """Two ReplicaSets in use: the Deployment's controller could do nothing with Recreate (test_operator_rolls)."""
    bench = Bench()
    await bench.look()
    recreate, one_by_one = (
        {"type": "Recreate"},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    )
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["strategy"] == recreate
    sets = [replica_set(bench.api.of(DEPLOYMENTS)["q"], name) for name in ("q-1", "q-2")]
    for one in sets:
        one["spec"]["replicas"] = 1
        bench.api.store(one)
    outcome = await bench.look()
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["strategy"] == one_by_one
    assert [entry.partition(" ")[0] for entry in outcome.summary["applied"]] == ["Deployment/q"]
    bench.api.requests.clear()
    await bench.look()
    assert bench.api.requests == []
    sets[0]["spec"]["replicas"] = 0
    bench.api.store(sets[0])
    await bench.look()
    assert bench.api.of(DEPLOYMENTS)["q"]["spec"]["strategy"] == recreate


async def test_nothing_is_removed_before_all_pods_are_known():
    bench = Bench()
    await bench.look()
    bench.edit(cache={"l1": {"size": "10Gi"}, "chunkBlocks": 2})
    bench.cache.complete = False
    [first] = bench.api.of(CONFIG_MAPS)
    await bench.look()
    bench.forget_revision_of(first)
    await bench.look()
    assert len(bench.api.of(CONFIG_MAPS)) == 2
    bench.cache.complete = True
    await bench.look()
    assert len(bench.api.of(CONFIG_MAPS)) == 1


async def test_tokens_that_the_probed_size_rules_out_touch_no_child():
    bench = Bench()
    await bench.look()
    resource = bench.api.of(SERVES)["q"]
    settings = Designer(bench.defaults).desired(resource).probed_with
    resource["status"]["blockSize"] = {"probed": 784, "probedWith": settings}
    bench.api.store(resource)
    before = {place: m for place, m in bench.api.objects.items() if place[0] not in ("QwenCachedServe", "Event")}
    bench.edit(engine={"vllm": {"maxNumBatchedTokens": {"policy": "Fixed", "value": 700}}})
    await bench.look()
    after = {place: m for place, m in bench.api.objects.items() if place[0] not in ("QwenCachedServe", "Event")}
    assert after == before
    assert "from 784 to 1567" in bench.condition("Stalled")["message"]
    assert bench.condition("SpecAccepted")["status"] == "False"
