"""Rolls where something is scarce, slow or broken: GPUs, volumes, queues, nodes, revisions that do not start.

The test plays the kubelet (`driven_pods`) where a moment has to last; deployment controller, scheduler and volume
controller are the real ones.
"""

import signal

import pytest

from localkube.kwok import node_object
from qwen_cached_serve.kube.port import DEPLOYMENTS, EVENTS, SERVES
from tests.cluster.driven_pods import RUNNING, SERVER_UP, SimulatedKubelet, container, driven, ended
from tests.cluster.operator_resources import (
    complete,
    condition,
    failing_with,
    failure,
    report,
    serve,
    serving,
    with_message,
)
from tests.cluster.operator_support import eventually
from tests.cluster.test_operator_quiet import settled

GROUP = "qcs.test/group"
OTHER_IMAGE = {"spec": {"engine": {"image": "vllm/vllm-openai:v0.29.0"}}}


@pytest.fixture
def add_node(cluster, namespace):
    """Add simulated nodes that only this test's pods want."""
    made = []

    def add(gpus):
        name = f"{namespace[-10:].strip('-')}-{len(made)}"
        cluster.apply(node_object(name, gpus, False, {GROUP: namespace}))
        made.append(name)
        return name

    yield add
    for name in made:
        cluster.kubectl("delete", "node", name, "--wait=false", check=False)


@pytest.fixture
def node(cluster, namespace):
    return SimulatedKubelet(cluster, namespace)


def on_own_nodes(namespace, **spec):
    pod = {"nodeSelector": {GROUP: namespace}}
    return driven(serve(namespace, pod=pod, **spec))


async def shows(api, namespace, check):
    """Wait until the resource's status passes `check`; return the resource."""

    async def seen():
        resource = await api.get(SERVES, namespace, "q")
        return check(resource) and resource

    # A status that repeats a former one is written twice a minute at most (`control.pace`).
    return await eventually(seen, timeout=90)


def waits_for(reason, **figures):
    """A roll that waits for that."""

    def check(resource):
        roll = resource["status"]["roll"]
        assert roll["reason"] == reason, resource["status"]
        return all(roll[name] == value for name, value in figures.items())

    return check


def capacity(status, reason, words=""):
    def check(resource):
        found = condition(resource, "CapacityAvailable")
        assert (found["status"], found["reason"]) == (status, reason), found
        return words in found["message"]

    return check


async def reasons(api, namespace):
    return [one["reason"] for one in await api.list_all(EVENTS, namespace) if one["regarding"]["kind"] == SERVES.kind]


def uids(pods):
    return {one["metadata"]["uid"] for one in pods}


@pytest.mark.case("B30")
@pytest.mark.case("B36")
async def test_one_gpu_is_enough_for_every_roll(cluster, api, namespace, operator, start_operator, add_node, node):
    """One node with one GPU. An edit: the old pod goes first and no second one asks for the GPU meanwhile; it says
    Terminating, and nobody is told that a GPU is missing; a killed operator goes on with it. Two replicas: the second
    pod waits in the scheduler's words, and an edit then waits, too, without ending the pod that serves, until there is
    a GPU more.
    """
    add_node(1)
    cluster.apply(on_own_nodes(namespace))
    [first] = await eventually(node.placed)
    node.serves(first)
    await eventually(lambda: serving(api, namespace))
    node.hold(first)
    cluster.patch(namespace, "qcs", "q", OTHER_IMAGE)
    await shows(api, namespace, waits_for("Terminating", updated=0, total=1))
    await shows(api, namespace, capacity("Unknown", "Terminating"))
    assert node.pods() == []
    operator.stop(signal.SIGKILL)
    await start_operator()
    node.let_go(first)
    [second] = await eventually(node.placed)
    await shows(api, namespace, waits_for("Preparing", updated=1))
    node.serves(second)
    resource, _ = await eventually(lambda: serving(api, namespace))
    assert "roll" not in resource["status"]

    async def told():
        return {"RollStarted", "RollCompleted"} <= set(await reasons(api, namespace))

    await eventually(told)
    assert "WaitingForCapacity" not in await reasons(api, namespace)

    cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=2")
    resource = await shows(api, namespace, capacity("False", "WaitingForGPU", "Insufficient nvidia.com/gpu"))
    assert condition(resource, "Available")["status"] == "True"
    assert condition(resource, "Stalled")["status"] == "False"
    assert "roll" not in resource["status"]
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})
    await shows(api, namespace, waits_for("WaitingForGPU", updated=1, total=2))
    assert second["metadata"]["uid"] in uids(node.pods())
    add_node(1)

    def new_pod():
        found = [one for one in node.placed(2) or () if one["metadata"]["uid"] != second["metadata"]["uid"]]
        return found and found[0]

    node.serves(await eventually(new_pod, timeout=60))
    await shows(api, namespace, capacity("True", "Placed"))


@pytest.mark.case("B30")
@pytest.mark.parametrize(
    ("edit", "left"), [({"replicas": 1}, 1), ({"replicas": 0}, 0), ({"lifecycle": "Stopped"}, 0)], ids=str
)
async def test_a_roll_that_waits_for_a_gpu_ends_when_it_is_scaled(
    cluster, api, namespace, operator, add_node, node, edit, left
):
    """Two pods of the new revision would need two GPUs and there is one: the roll waits. Scaled to one, the serving pod
    makes room for the new one; scaled to none or stopped, all end. With the strategy of a single pod set at once, the
    Deployment's controller would do nothing more.
    """
    add_node(1)
    cluster.apply(on_own_nodes(namespace))
    [first] = await eventually(node.placed)
    node.serves(first)
    await eventually(lambda: serving(api, namespace))
    cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=2")
    await shows(api, namespace, capacity("False", "WaitingForGPU"))
    cluster.patch(namespace, "qcs", "q", OTHER_IMAGE)
    await shows(api, namespace, waits_for("WaitingForGPU", updated=1, total=2))
    assert first["metadata"]["uid"] in uids(node.pods())
    cluster.patch(namespace, "qcs", "q", {"spec": edit})
    if left:
        [second] = await eventually(
            lambda: node.placed() if first["metadata"]["uid"] not in uids(node.pods()) else None
        )
        node.serves(second)
        resource, _ = await eventually(lambda: serving(api, namespace))
        assert resource["status"]["revision"]["current"] == resource["status"]["revision"]["updated"]
    else:
        await eventually(lambda: not node.pods())

    async def recreates():
        deployment = await api.get(DEPLOYMENTS, namespace, "q")
        return deployment["spec"]["strategy"] == {"type": "Recreate"}

    if "replicas" in edit:
        await eventually(recreates)


@pytest.mark.case("B37")
@pytest.mark.parametrize(("replicas", "rollout", "lost"), [(3, {}, 1), (4, {"maxUnavailable": "50%"}, 2)])
async def test_a_broken_revision_stops_after_the_first_pods(
    cluster, api, namespace, operator, start_operator, replicas, rollout, lost
):
    """A revision whose probe refuses takes maxUnavailable pods (1, or half of 4) and no more: the others serve on,
    Stalled and `status.roll` say why, RollHeld is said once, also over a restart of the operator. A good
    edit goes through.
    """
    good = with_message(serve(namespace, replicas=replicas, rollout=rollout), report(784))
    cluster.apply(good)
    await eventually(lambda: serving(api, namespace))
    before = uids(SimulatedKubelet(cluster, namespace).pods())
    text = failure("ModelNotSupported", "Qwen2 has no hybrid layers", "Choose a Qwen3.5, 3.6 or 3.8 model.")
    cluster.apply(failing_with(serve(namespace, replicas=replicas, rollout=rollout), text))

    def held(resource):
        stalled = condition(resource, "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "ModelNotSupported"), stalled
        assert resource["status"]["roll"]["reason"] == "ModelNotSupported"
        return (resource["status"]["roll"]["updated"], resource["status"]["availableReplicas"]) == (
            lost,
            replicas - lost,
        )

    resource = await shows(api, namespace, held)
    assert condition(resource, "Available")["status"] == "True"
    assert condition(resource, "Ready")["status"] == "False"
    assert resource["status"]["revision"]["current"] == resource["status"]["roll"]["from"]
    await settled(api, namespace, operator, seconds=1.0)
    assert operator.stop() == 0
    again = await start_operator()
    await eventually(lambda: again.events("reconciled"))
    await settled(api, namespace, again, seconds=1.0)
    left = uids(SimulatedKubelet(cluster, namespace).pods())
    assert len(left & before) == replicas - lost
    assert (await reasons(api, namespace)).count("RollHeld") == 1
    good["spec"]["cache"]["chunkBlocks"] = 2
    cluster.apply(good)
    resource, _ = await eventually(lambda: serving(api, namespace), timeout=90)
    assert "roll" not in resource["status"]


async def test_a_queue_and_a_scale_up_are_no_lack_of_capacity(cluster, api, namespace, operator, add_node, node):
    """Kueue's scheduling gate on the pod: SchedulingGated with its name, no warning. Admitted, but no node: the
    scheduler's words. A node is nominated for the pod: ScaleUpInProgress. The node comes: placed.
    """
    cluster.apply(on_own_nodes(namespace, replicas=0))
    await eventually(lambda: complete(api, namespace))
    gates = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}}}
    cluster.patch(namespace, "deployment", "q", gates, field_manager="queue")
    cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=1")
    await shows(api, namespace, capacity("Unknown", "SchedulingGated", "Kueue"))
    gated = await shows(api, namespace, lambda one: condition(one, "Ready")["reason"] == "SchedulingGated")
    assert "kueue.x-k8s.io/admission" in condition(gated, "CapacityAvailable")["message"]
    assert "WaitingForCapacity" not in await reasons(api, namespace)
    [pod] = node.pods()
    cluster.patch(namespace, "pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
    await shows(api, namespace, capacity("False", "WaitingForNode", "node"))
    nominated = {"status": {"nominatedNodeName": "coming"}}
    cluster.patch(namespace, "pod", pod["metadata"]["name"], nominated, "--subresource=status")
    await shows(api, namespace, capacity("Unknown", "ScaleUpInProgress", "coming"))
    add_node(1)
    [pod] = await eventually(node.placed)
    node.serves(pod)
    resource, _ = await eventually(lambda: serving(api, namespace))
    assert condition(resource, "CapacityAvailable")["reason"] == "Placed"

    async def warned():
        return "WaitingForCapacity" in await reasons(api, namespace)

    await eventually(warned)  # while there was no node and none was nominated


def claim(namespace, on):
    """A volume on one node that one pod at a time may use, and the claim that it is bound to."""
    name = f"{namespace[-20:].strip('-')}-weights"
    common = {"accessModes": ["ReadWriteOncePod"], "storageClassName": ""}
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "weights"}
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": common
        | {
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
            "claimRef": bound,
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
        },
    }
    wish = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": "weights"},
        "spec": common | {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name},
    }
    return volume, wish


@pytest.mark.case("B34")
@pytest.mark.case("B56")
async def test_a_volume_of_one_node_and_one_pod(cluster, api, namespace, operator, add_node, node):
    """The claim does not exist yet: told, no failure, and the pod starts once it does, without an edit or more
    writes. Then a roll is old-first; a second replica waits for the volume in the scheduler's words; a pod
    whose node is closed waits for the volume that cannot follow it and starts when the node is open again.
    """
    first_node, _ = add_node(8), add_node(8)
    source = {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "weights"}}
    cluster.apply(on_own_nodes(namespace, model={"name": "qwen", "source": source, "maxModelLen": 65536}))
    resource = await shows(api, namespace, capacity("False", "WaitingForVolume", '"weights" not found'))
    assert condition(resource, "Stalled")["status"] == "False"
    volume, wish = claim(namespace, first_node)
    try:
        cluster.apply(volume, wish)
        [pod] = await eventually(node.placed, timeout=60)
        assert pod["spec"]["nodeName"] == first_node
        node.serves(pod)
        await eventually(lambda: serving(api, namespace))
        _, writes, _ = await settled(api, namespace, operator, seconds=1.0)
        assert (await settled(api, namespace, operator, seconds=1.0))[1] == writes
        node.hold(pod)
        cluster.patch(namespace, "qcs", "q", OTHER_IMAGE)
        await shows(api, namespace, waits_for("Terminating"))
        assert node.pods() == []
        node.let_go(pod)
        [pod] = await eventually(node.placed, timeout=60)
        node.serves(pod)
        await eventually(lambda: serving(api, namespace))
        cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=2")
        resource = await shows(api, namespace, capacity("False", "WaitingForVolume", "ReadWriteOncePod"))
        assert condition(resource, "Available")["status"] == "True"
        cluster.kubectl("scale", "-n", namespace, "qcs/q", "--replicas=1")
        await eventually(lambda: len(node.pods()) == 1)
        cluster.kubectl("cordon", first_node)
        cluster.kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
        resource = await shows(api, namespace, capacity("False", "WaitingForVolume", "node affinity"))
        assert condition(resource, "Stalled")["status"] == "False"
        cluster.kubectl("uncordon", first_node)
        [pod] = await eventually(node.placed, timeout=60)
        node.serves(pod)
        await eventually(lambda: serving(api, namespace))
    finally:
        cluster.kubectl("delete", "pv", volume["metadata"]["name"], "--wait=false", check=False)


@pytest.mark.case("B31")
@pytest.mark.case("B32")
async def test_a_container_that_restarts_is_shown_and_replaces_no_pod(cluster, api, namespace, operator, node):
    """The engine restarts inside the pod: not ready until the start-up gate lets its new life through, then
    Serving. The cache server is killed for memory: CacheEffective says so while the engine serves on, and
    heals. Neither touches the Deployment or the pod.
    """
    cluster.apply(driven(serve(namespace)))
    [pod] = await eventually(node.placed)
    node.serves(pod)
    resource, found = await eventually(lambda: serving(api, namespace))
    generation = found["Deployment", "q"]["metadata"]["generation"]
    node.loads(pod, restarts=1, last=ended(137))
    await shows(api, namespace, lambda one: condition(one, "Available")["status"] == "False")
    node.serves(pod, restarts=1)
    resource, _ = await eventually(lambda: serving(api, namespace))
    assert resource["status"]["pods"][0]["restarts"] == 1
    killed = container(
        "cache-server",
        {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        restarts=1,
        last=ended(137, reason="OOMKilled"),
    )
    engine = container("engine", RUNNING, started=True, ready=True, restarts=1)
    node.says(pod, server=killed, engine=engine, ready=True)

    def detached(resource):
        found = condition(resource, "CacheEffective")
        assert (found["status"], found["reason"]) == ("False", "OOMKilled"), found
        return "spec.cache.resources.limits.memory" in found["message"]

    resource = await shows(api, namespace, detached)
    assert condition(resource, "Available")["status"] == "True"
    assert condition(resource, "Ready")["status"] == "True"
    node.says(pod, server={**SERVER_UP, "restartCount": 1}, engine=engine, ready=True)
    await shows(api, namespace, lambda one: condition(one, "CacheEffective")["status"] == "True")
    assert uids(node.pods()) == uids([pod])
    assert (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["generation"] == generation


@pytest.mark.case("B33")
async def test_a_slow_load_is_still_loading(cluster, api, namespace, operator, node):
    """The progress deadline comes from the start-up budget; when it passes, the resource says "still loading"
    and nobody is called. (The deadline is shortened by hand while the resource is Paused.)
    """
    cluster.apply(driven(serve(namespace)))
    [pod] = await eventually(node.placed)
    live = await api.get(DEPLOYMENTS, namespace, "q")
    [engine] = [one for one in live["spec"]["template"]["spec"]["containers"] if one["name"] == "engine"]
    gate = engine["startupProbe"]
    assert gate["periodSeconds"] * gate["failureThreshold"] >= 3600
    assert live["spec"]["progressDeadlineSeconds"] > gate["periodSeconds"] * gate["failureThreshold"]
    cluster.patch(namespace, "qcs", "q", {"spec": {"lifecycle": "Paused"}})
    await shows(api, namespace, lambda one: condition(one, "Reconciling")["reason"] == "Paused")
    cluster.patch(namespace, "deployment", "q", {"spec": {"progressDeadlineSeconds": 6}})
    node.loads(pod)

    def late(resource):
        found = condition(resource, "Ready")
        assert found["reason"] == "Starting", found
        return "still loading" in found["message"]

    resource = await shows(api, namespace, late)
    assert condition(resource, "Stalled")["status"] == "False"
    live = await api.get(DEPLOYMENTS, namespace, "q")
    assert "ProgressDeadlineExceeded" in [one["reason"] for one in live["status"]["conditions"]]
