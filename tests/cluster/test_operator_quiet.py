"""What costs nothing: idling, restarting, foreign edits. And what stops everything: Paused, Stopped, no leadership."""

import asyncio
import json
import signal
import time

import pytest

from qwen_cached_serve.kube.port import DEPLOYMENTS, LEASES, OWNED, SERVES
from tests.cluster.operator_resources import children, complete, condition, report, serve, serving, with_message
from tests.cluster.operator_support import eventually


async def versions(api, namespace):
    """Resource versions of everything the operator could write."""
    return {
        (kind.kind, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for kind in (SERVES, *OWNED)
        for item in await api.list_all(kind, namespace)
    }


async def settled(api, namespace, operator, seconds=2.0):
    """Wait until nothing was written and nothing reconciled for a while."""
    last, since = None, time.monotonic()
    while time.monotonic() - since < seconds:
        now = (await versions(api, namespace), operator.writes(), len(operator.events("reconciled")))
        if now != last:
            last, since = now, time.monotonic()
        await asyncio.sleep(0.4)  # a look is a dozen lists
    return last


@pytest.mark.case("B53")
async def test_a_restart_writes_nothing(cluster, api, namespace, operator, start_operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace))
    before, *_ = await settled(api, namespace, operator)
    assert operator.stop() == 0
    for _ in range(2):
        again = await start_operator()
        await eventually(lambda again=again: again.events("reconciled"))
        after, writes, _ = await settled(api, namespace, again, seconds=1.0)
        assert after == before
        assert writes == 0
        assert again.stop() == 0


@pytest.mark.case("B53")
async def test_idle_and_foreign_touches_cost_no_write(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace))
    before, writes, looks = await settled(api, namespace, operator)
    for number in range(20):
        cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"touched": str(number)}}})
    after, writes_after, looks_after = await settled(api, namespace, operator)
    assert writes_after == writes
    assert looks_after > looks  # it looked, and found nothing to do
    del before["QwenCachedServe", "q"], after["QwenCachedServe", "q"]
    assert after == before
    cluster.patch(namespace, "deployment", "q", {"metadata": {"annotations": {"theirs": "kept"}}})
    await settled(api, namespace, operator)
    assert (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["annotations"]["theirs"] == "kept"
    assert operator.memory_bytes() < 150e6


async def test_a_burst_of_events_is_few_reconciles(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace))
    await settled(api, namespace, operator)
    operator.process.send_signal(signal.SIGSTOP)
    for number in range(20):
        cluster.patch(namespace, "service", "q", {"metadata": {"annotations": {"touched": str(number)}}})
    looks = len(operator.events("reconciled"))
    operator.process.send_signal(signal.SIGCONT)
    await eventually(lambda: len(operator.events("reconciled")) > looks)
    *_, looks_after = await settled(api, namespace, operator)
    assert looks_after - looks <= 10


async def test_paused_touches_nothing(cluster, api, namespace, operator):
    cluster.apply(serve(namespace))
    _, found = await eventually(lambda: complete(api, namespace))
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Paused", "replicas": 3}})

    async def seen():
        resource = await api.get(SERVES, namespace, "q")
        assert resource["status"]["observedGeneration"] == 2
        return condition(resource, "Reconciling")["reason"] == "Paused"

    await eventually(seen)
    cluster.kubectl("scale", "-n", namespace, "deployment/q", "--replicas=0")
    cluster.kubectl("delete", "-n", namespace, "service/q")
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "again"}}})
    await settled(api, namespace, operator)
    resource = await api.get(SERVES, namespace, "q")
    now = await children(api, namespace, resource["metadata"]["uid"])
    assert ("Service", "q") not in now
    assert now["Deployment", "q"]["spec"]["replicas"] == 0
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Running"}})

    async def resumed():
        _, again = await complete(api, namespace)
        return again["Deployment", "q"]["spec"]["replicas"] == 3

    await eventually(resumed)
    assert found["Deployment", "q"]["metadata"]["uid"] == now["Deployment", "q"]["metadata"]["uid"]


async def test_paused_from_the_start_makes_nothing(cluster, api, namespace, operator):
    cluster.apply(serve(namespace, lifecycle="Paused"))

    async def seen():
        resource = await api.get(SERVES, namespace, "q")
        return condition(resource, "Reconciling")["reason"] == "Paused" and resource

    resource = await eventually(seen)
    assert await children(api, namespace, resource["metadata"]["uid"]) == {}


async def test_stopped_keeps_everything_but_pods(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace, replicas=2), report(784)))
    await eventually(lambda: serving(api, namespace))
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Stopped"}})

    async def stopped():
        resource, found = await complete(api, namespace)
        assert found["Deployment", "q"]["spec"]["replicas"] == 0
        assert condition(resource, "Ready")["reason"] == "Stopped"
        return resource

    resource = await eventually(stopped)
    assert resource["spec"]["replicas"] == 2
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Running"}})
    await eventually(lambda: serving(api, namespace))


async def test_scale_subresource_moves_the_pods(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace))
    cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=3")

    async def three():
        resource, found = await serving(api, namespace)
        assert found["Deployment", "q"]["spec"]["replicas"] == 3
        return resource["status"]["readyReplicas"] == 3 and resource

    resource = await eventually(three)
    scale = json.loads(
        cluster.kubectl(
            "get", "--raw", f"/apis/qwencache.dev/v1alpha1/namespaces/{namespace}/qwencachedserves/q/scale"
        ).stdout
    )
    assert scale["status"]["replicas"] == 3
    selected = cluster.get("pods", "-n", namespace, "-l", scale["status"]["selector"])["items"]
    assert len(selected) == 3
    assert resource["status"]["selector"] == scale["status"]["selector"]


async def holder(api, namespace):
    return (await api.get(LEASES, namespace, "qwen-cached-serve"))["spec"]["holderIdentity"]


@pytest.fixture
def lease_kubeconfig(cluster, namespace, tmp_path):
    """The shipped account, also allowed its Lease in this test's namespace."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "lease", "namespace": namespace},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": ["qwen-cached-serve"],
                "verbs": ["get", "update"],
            },
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "lease", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "qwen-cached-serve-operator", "namespace": "qwen-cached-serve"}
        ],
    }
    cluster.apply(role, binding)
    return cluster.kubeconfig_for("qwen-cached-serve", "qwen-cached-serve-operator", tmp_path / "kubeconfig")


async def test_one_of_two_writes_and_the_other_takes_over_at_once(
    cluster, api, namespace, start_operator, lease_kubeconfig
):
    arguments = ("--lease-namespace", namespace)
    first = await start_operator(*arguments, "--identity", "first", kubeconfig=lease_kubeconfig, lease=True)
    await eventually(lambda: first.metric("leader_election_master_status") == 1)
    second = await start_operator(*arguments, "--identity", "second", kubeconfig=lease_kubeconfig, lease=True)
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    assert await holder(api, namespace) == "first"
    assert second.events("reconciled") == []
    assert second.metric("leader_election_master_status") == 0

    began = time.monotonic()
    assert first.stop() == 0
    assert time.monotonic() - began < 3

    async def taken_over():
        return await holder(api, namespace) == "second" and second.events("reconciled")

    await eventually(taken_over, timeout=6)  # well below the lease's 15 s: it was released
    before = await versions(api, namespace)
    cluster.kubectl("delete", "-n", namespace, "service/q")
    await eventually(lambda: complete(api, namespace))
    assert before != await versions(api, namespace)


async def test_lost_leadership_stops_writes_and_the_process(cluster, api, namespace, start_operator, lease_kubeconfig):
    arguments = ("--lease-namespace", namespace, "--identity", "first")
    first = await start_operator(*arguments, kubeconfig=lease_kubeconfig, lease=True)
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    writes = first.writes()
    assert writes > 0
    # Frozen for longer than the lease (a paused VM): somebody else leads when it wakes up.
    first.process.send_signal(signal.SIGSTOP)
    lease = await api.get(LEASES, namespace, "qwen-cached-serve")
    lease["spec"]["holderIdentity"] = "thief"
    await api.replace(LEASES, lease)
    cluster.kubectl("delete", "-n", namespace, "service/q", "deployment/q")
    await asyncio.sleep(11)  # the renew deadline: this is about real time passing, nothing to wait for
    first.process.send_signal(signal.SIGCONT)
    await eventually(lambda: not first.alive(), timeout=15)
    assert first.process.returncode == 1
    resource = await api.get(SERVES, namespace, "q")
    left = await children(api, namespace, resource["metadata"]["uid"])
    assert ("Deployment", "q") not in left
    assert ("Service", "q") not in left
    assert await holder(api, namespace) == "thief"


async def test_sigterm_ends_within_seconds_and_says_so(operator):
    began = time.monotonic()
    assert operator.stop() == 0
    assert time.monotonic() - began < 3
    assert operator.events("operator stops")[-1]["reason"] == "asked to"
