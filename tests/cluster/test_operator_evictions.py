"""Evictions on a real API server: a tag that moves under a running resource, mixed GPUs, a budget that says no, a cache
that does not come back; and an operator that ends in the middle of it."""

import json
import signal

import pytest

from qwen_cached_serve.core import names
from qwen_cached_serve.kube.port import DEPLOYMENTS, EVENTS, PODS, SERVES
from tests.cluster.operator_resources import MESSAGE_ANNOTATION, condition, report, serve, serving
from tests.cluster.operator_support import eventually
from tests.cluster.registry import waiting
from tests.cluster.test_operator_quiet import settled


def another_build():
    """The report of an image that differs in nothing but its build."""
    made = json.loads(report(784))
    return json.dumps(made | {"identity": f"{made['identity'][:-4]}beef"})


async def identities(api, namespace):
    """Identity of each live pod by its uid; empty while it has none."""
    pods = await api.list_all(PODS, namespace)
    live = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    texts = {pod["uid"]: (pod.get("annotations") or {}).get(MESSAGE_ANNOTATION, "{}") for pod in live}
    return {uid: json.loads(text).get("identity", "") for uid, text in texts.items()}


async def evictions(api, namespace):
    return (await api.get(SERVES, namespace, "q"))["status"].get("evictions") or []


async def reasons(api, namespace):
    return [one["reason"] for one in await api.list_all(EVENTS, namespace) if one["regarding"]["kind"] == SERVES.kind]


async def compatible(api, namespace, status):
    resource = await api.get(SERVES, namespace, "q")
    found = condition(resource, "CacheCompatible")
    assert found["status"] == status, (found, resource["status"].get("evictions"))
    return found


ROLL = {"rollout": {"onCompatibilityChange": "Roll"}}


@pytest.mark.case("B11")
async def test_a_tag_moves_under_a_running_resource(cluster, api, namespace, start_operator, registry):
    """One at a time until all are equal, the template untouched, also with an operator killed in the middle."""
    operator = await start_operator()
    cluster.apply(waiting(serve(namespace, replicas=3, **ROLL)))
    await eventually(lambda: serving(api, namespace), timeout=60)
    before, old = await api.get(DEPLOYMENTS, namespace, "q"), await identities(api, namespace)
    assert len(set(old.values())) == 1
    registry.choose = lambda _pod: another_build()
    registry.least_ready = 3
    victim = (await api.list_all(PODS, namespace))[0]["metadata"]
    await api.delete(PODS, namespace, victim["name"], uid=victim["uid"])
    await eventually(lambda: compatible(api, namespace, "False"), timeout=60)
    # The next one that is made waits: the operator is killed between an eviction and its replacement.
    registry.choose = lambda _pod: None
    await eventually(lambda: evictions(api, namespace), timeout=60)

    async def first_is_gone():
        left = old.keys() & (await identities(api, namespace)).keys()
        return len(left) == 1 and "PodRecycled" in await reasons(api, namespace)

    await eventually(first_is_gone, timeout=60)
    operator.stop(signal.SIGKILL)
    again = await start_operator()
    await eventually(lambda: again.events("reconciled"))
    await settled(api, namespace, again, seconds=1.0)
    assert len(await evictions(api, namespace)) == 1  # it waits for the replacement, as the one before would have
    registry.choose = lambda _pod: another_build()

    async def equal():
        now = await identities(api, namespace)
        assert len(now) == 3
        assert set(now.values()) == {json.loads(another_build())["identity"]}, now
        return now

    await eventually(equal, timeout=120)
    await eventually(lambda: compatible(api, namespace, "True"), timeout=60)
    await eventually(lambda: serving(api, namespace), timeout=60)
    done = await evictions(api, namespace)
    assert {one["uid"] for one in done} == old.keys() - {victim["uid"]}
    assert len(done) == 2
    assert registry.least_ready >= 2
    after = await api.get(DEPLOYMENTS, namespace, "q")
    assert after["spec"] == before["spec"]
    told = await reasons(api, namespace)
    assert told.count("PodRecycled") == 2
    assert told.count("CompatibilityChanged") == 1
    assert told.count("RollCompleted") == 1  # the first one: no roll of a revision went on
    assert again.metric("qwen_cached_serve_evictions_total", reason="CompatibilityChanged", result="evicted") == 1


@pytest.mark.case("B09")
async def test_mixed_gpus_are_left_alone(cluster, api, namespace, operator, registry):
    """Two nodes with a GPU each, of different models: a pod gets the one that no other pod has."""
    gpus = {}

    def free(pod):
        others = [gpu for uid, gpu in gpus.items() if uid != pod["metadata"]["uid"]]
        gpu = next(one for one in ("NVIDIA L40S", "NVIDIA H200") if one not in others)
        gpus[pod["metadata"]["uid"]] = gpu
        return json.dumps(json.loads(report(784)) | {"gpu": gpu, "identity": f"v1-{gpu[-4:].lower():0>40}"})

    registry.choose = free
    cluster.apply(waiting(serve(namespace, replicas=2, **ROLL)))
    await eventually(lambda: serving(api, namespace), timeout=60)
    uids = (await identities(api, namespace)).keys()
    victim = (await api.list_all(PODS, namespace))[0]["metadata"]
    del gpus[victim["uid"]]
    await api.delete(PODS, namespace, victim["name"], uid=victim["uid"])
    await eventually(lambda: serving(api, namespace), timeout=60)
    told = await eventually(lambda: compatible(api, namespace, "False"), timeout=60)
    assert "spec.pod.nodeSelector" in told["message"]
    await settled(api, namespace, operator, seconds=2.0)
    assert await evictions(api, namespace) == []
    assert len((await identities(api, namespace)).keys() & uids) == 1


async def test_a_budget_that_says_no_is_waited_for(cluster, api, namespace, operator, registry):
    cluster.apply(waiting(serve(namespace, replicas=2, **ROLL)))
    await eventually(lambda: serving(api, namespace), timeout=60)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": "nobody"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {names.INSTANCE_LABEL: "q"}}},
    }
    pod = (await api.list_all(PODS, namespace))[0]
    assert pod["metadata"]["labels"][names.INSTANCE_LABEL] == "q"
    cluster.apply(budget)
    await eventually(
        lambda: cluster.get("pdb", "-n", namespace, "nobody").get("status", {}).get("currentHealthy") == 2, timeout=60
    )
    registry.choose = lambda _pod: another_build()
    await api.delete(PODS, namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])
    [held] = await eventually(lambda: evictions(api, namespace), timeout=60)

    async def told():
        found = await compatible(api, namespace, "False")
        assert "held back" in found["message"], found["message"]
        assert "disruption budget" in found["message"]
        return found

    await eventually(told, timeout=60)
    await settled(api, namespace, operator, seconds=1.0)
    assert held["uid"] in await identities(api, namespace)
    assert "PodRecycled" not in await reasons(api, namespace)
    writes = operator.metric("qwen_cached_serve_apply_total", kind="Status", result="applied")
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "again"}}})
    await eventually(lambda: operator.metric("qwen_cached_serve_evictions_total", result="held_back") >= 2, timeout=60)
    assert operator.metric("qwen_cached_serve_apply_total", kind="Status", result="applied") == writes
    assert operator.events("reconcile failed") == []
    cluster.kubectl("delete", "-n", namespace, "pdb", "nobody")
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "once more"}}})
    await eventually(lambda: compatible(api, namespace, "True"), timeout=90)
    assert held["uid"] not in await identities(api, namespace)
    assert (await reasons(api, namespace)).count("PodRecycled") == 1
    [done] = await evictions(api, namespace)
    assert "heldBack" not in done


@pytest.mark.case("B32")
async def test_a_cache_server_that_stays_away_costs_the_pod_where_that_is_asked_for(
    cluster, api, namespace, operator, registry
):
    cluster.apply(waiting(serve(namespace, cache={"l1": {"size": "1Gi"}, "onUnavailable": "RecyclePod"})))
    await eventually(lambda: serving(api, namespace), timeout=60)
    [pod] = await api.list_all(PODS, namespace)
    status = pod["status"]["initContainerStatuses"]
    server = next(one for one in status if one["name"] == "cache-server")
    end = {"exitCode": 1, "message": "bye", "startedAt": "2026-11-30T00:00:00Z", "finishedAt": "2026-11-30T00:00:01Z"}
    server |= {
        "ready": False,
        "started": False,
        "restartCount": 6,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": end | {"reason": "Error"}},
    }
    cluster.patch(
        namespace, "pod", pod["metadata"]["name"], {"status": {"initContainerStatuses": status}}, "--subresource=status"
    )

    async def seen():
        resource = await api.get(SERVES, namespace, "q")
        assert condition(resource, "CacheEffective")["status"] == "False"
        assert "it is replaced" in condition(resource, "CacheEffective")["message"]
        return resource

    resource = await eventually(seen, timeout=60)
    assert resource["status"]["pods"][0]["detached"]["reason"] == "CacheServerDown"
    await settled(api, namespace, operator, seconds=1.0)
    assert await evictions(api, namespace) == []
    # Ten minutes later, as the status remembers it.
    for one in resource["status"]["pods"]:
        one["detached"]["since"] = "2026-01-01T00:00:00Z"
    cluster.patch(namespace, "qcs", "q", {"status": {"pods": resource["status"]["pods"]}}, "--subresource=status")

    async def another():
        uids = [one["metadata"]["uid"] for one in await api.list_all(PODS, namespace)]
        assert len(uids) == 1
        assert uids[0] != pod["metadata"]["uid"]
        return uids

    await eventually(another, timeout=60)
    await eventually(lambda: serving(api, namespace), timeout=60)
    [done] = await evictions(api, namespace)
    assert (done["uid"], done["reason"]) == (pod["metadata"]["uid"], "CacheServerDown")
    told = await reasons(api, namespace)
    assert told.count("PodRecycled") == 1
    assert told.count("CacheDetached") == 1
