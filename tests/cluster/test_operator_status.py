"""Status from pods: simulated pods whose probe ends with what the probe's own writer writes."""

import pytest

from qwen_cached_serve.kube.port import EVENTS, SERVES
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


async def status_of(api, namespace, name="q"):
    return (await api.get(SERVES, namespace, name))["status"]


async def ready(api, namespace, name="q"):
    return (await serving(api, namespace, name))[0]


async def reasons(api, namespace):
    return [
        event["reason"] for event in await api.list_all(EVENTS, namespace) if event["regarding"]["kind"] == SERVES.kind
    ]


@pytest.mark.parametrize(("model", "size"), [("Qwen/Qwen3.6-27B", 784), ("Qwen/Qwen3.5-0.8B", 544)])
async def test_the_probes_report_reaches_status_and_columns(cluster, api, namespace, operator, model, size):
    resource = serve(namespace, model={"name": model, "maxModelLen": 65536})
    cluster.apply(with_message(resource, report(size)))
    found = await eventually(lambda: ready(api, namespace))
    status = found["status"]
    assert status["blockSize"]["probed"] == size
    assert status["blockSize"]["predicted"] == size
    assert status["blockSize"]["verified"] == size
    assert status["resolved"]["vllm"] == "0.32.0"
    assert status["resolved"]["lmcache"] == "0.5.6"
    assert {kind: condition(found, kind)["status"] for kind in ("Ready", "Available", "Probed", "Stalled")} == {
        "Ready": "True",
        "Available": "True",
        "Probed": "True",
        "Stalled": "False",
    }
    [identity] = status["identities"]
    assert (identity["blockSize"], identity["gpu"], identity["pods"]) == (size, "NVIDIA H200", 1)
    [pod] = status["pods"]
    assert (pod["phase"], pod["blockSize"], pod["node"][:3]) == ("Serving", size, pod["node"][:3])
    assert all(entry["observedGeneration"] == 1 for entry in status["conditions"])
    header, row = cluster.kubectl("get", "qcs", "-n", namespace, "q").stdout.splitlines()
    columns = dict(zip(header.split(), row.split(), strict=False))
    assert (columns["READY"], columns["N"]) == ("True", str(size))

    async def said():
        return {"Probed", "RollCompleted"} <= set(await reasons(api, namespace))

    await eventually(said)
    assert cluster.kubectl("wait", "-n", namespace, "qcs/q", "--for=condition=Ready", "--timeout=5s")


async def test_a_refusing_probe_says_why(cluster, api, namespace, operator):
    text = failure("ModelNotSupported", "Qwen2 has no hybrid layers", "Choose a Qwen3.5, 3.6 or 3.8 model.")
    cluster.apply(failing_with(serve(namespace), text))

    async def shown():
        resource = await api.get(SERVES, namespace, "q")
        stalled = condition(resource, "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "ModelNotSupported"), resource["status"]
        assert condition(resource, "Probed")["status"] == "False"
        return "Choose a Qwen3.5" in stalled["message"]

    await eventually(shown)


@pytest.mark.case("B59")
async def test_an_unreadable_message_is_no_crash(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), '{"schema":1,"blockSize":78'))

    async def judged():
        resource, _ = await complete(api, namespace)
        return resource["status"].get("pods") and resource

    resource = await eventually(judged)
    assert "probed" not in resource["status"].get("blockSize", {})
    assert operator.metric("controller_runtime_reconcile_errors_total") == 0


async def test_events_are_said_once(cluster, api, namespace, operator, start_operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: ready(api, namespace))

    async def said():
        return "RollCompleted" in await reasons(api, namespace)

    await eventually(said)
    before = sorted(await reasons(api, namespace))
    assert operator.stop() == 0
    again = await start_operator()
    await eventually(lambda: again.events("reconciled"))
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "again"}}})
    await eventually(lambda: len(again.events("reconciled")) > 1)
    assert sorted(await reasons(api, namespace)) == before
    described = cluster.kubectl("describe", "-n", namespace, "qcs/q").stdout
    assert "RollCompleted" in described


async def test_a_new_report_after_an_edit_is_shown(cluster, api, namespace, operator):
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: ready(api, namespace))
    cluster.apply(with_message(serve(namespace, replicas=2, rollout={"maxUnavailable": 1}), report(1568)))

    async def rolled():
        resource = await ready(api, namespace)
        return resource["status"]["blockSize"]["probed"] == 1568

    await eventually(rolled)
    names = await reasons(api, namespace)
    assert "RollStarted" in names


async def test_no_room_is_told_in_the_schedulers_words(cluster, api, namespace, operator):
    gpus = {"accelerator": {"type": "GPU", "gpu": {"count": 8}}}
    cluster.apply(
        serve(namespace, engine=gpus | {"vllm": {"tensorParallelSize": 8}}, pod={"nodeSelector": {"no": "such"}})
    )

    async def waits():
        resource = await api.get(SERVES, namespace, "q")
        capacity = condition(resource, "CapacityAvailable")
        assert capacity["status"] == "False", capacity
        assert condition(resource, "Stalled")["status"] == "False"
        return "node" in capacity["message"].lower() and capacity

    await eventually(waits)

    async def said():
        return "WaitingForCapacity" in await reasons(api, namespace)

    await eventually(said)
