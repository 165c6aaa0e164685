"""The engine's own number becomes a flag (D12) on a real control plane, over restarts of the operator."""

import json
import signal

import pytest

from qwen_cached_serve.core.records import record_of
from qwen_cached_serve.kube.port import CONFIG_MAPS, CONTROLLER_REVISIONS, DEPLOYMENTS, EVENTS, SERVES
from tests.cluster.driven_pods import SimulatedKubelet, driven
from tests.cluster.operator_resources import condition, serve, serving
from tests.cluster.operator_support import eventually
from tests.cluster.test_operator_quiet import settled


def starved(room, asked=1024):
    """What vLLM 0.32 says (facts/vllm.md §4) behind its usual last words."""
    return (
        f"ValueError: max_num_seqs ({asked}) exceeds available Mamba cache blocks ({room}). Each decode sequence "
        "requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{room} or increase gpu_memory_utilization.\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    )


async def told_to_run(api, namespace):
    """Sequences that the pods' settings say the operator lowered to."""
    template = (await api.get(DEPLOYMENTS, namespace, "q"))["spec"]["template"]
    [name] = [one["configMap"]["name"] for one in template["spec"]["volumes"] if "configMap" in one]
    data = (await api.get(CONFIG_MAPS, namespace, name))["data"]
    return json.loads(data["settings.json"])["engine"]["tuned_max_num_seqs"]


async def stored(api, namespace):
    return sorted(map(record_of, await api.list_all(CONTROLLER_REVISIONS, namespace)), key=lambda one: one.number)


@pytest.mark.case("B23")
@pytest.mark.case("B57")
async def test_too_few_state_blocks_are_answered_with_the_engines_number(
    cluster, api, namespace, operator, start_operator
):
    """A start fails with too few state blocks: a revision with the engine's number, told in status and event, nobody is
    called. The operator is killed right after storing it; the number falls once more; then a restart writes nothing.
    """
    node = SimulatedKubelet(cluster, namespace)
    cluster.apply(driven(serve(namespace)))
    [pod] = await eventually(lambda: node.placed())
    node.fails(pod, starved(614))

    async def stored_twice():
        return len(await stored(api, namespace)) == 2

    await eventually(stored_twice, interval=0.005)
    operator.stop(signal.SIGKILL)
    second = await start_operator()

    async def applied():
        return await told_to_run(api, namespace) == 614

    await eventually(applied)

    def another():
        [found] = node.placed() or [None]
        return found and found["metadata"]["uid"] != pod["metadata"]["uid"] and found

    again = await eventually(another)
    node.fails(again, starved(600, asked=614))

    async def lower():
        return await told_to_run(api, namespace) == 600

    await eventually(lower)
    pod = again
    node.serves(await eventually(another))
    resource, _ = await eventually(lambda: serving(api, namespace))
    assert [(one["name"], one["value"]) for one in resource["status"]["tuning"]] == [("maxNumSeqs", "600")]
    assert condition(resource, "Stalled")["status"] == "False"
    assert "roll" not in resource["status"]
    assert resource["status"]["revision"]["current"] == (await stored(api, namespace))[-1].name
    said = [one["reason"] for one in await api.list_all(EVENTS, namespace) if one["regarding"]["kind"] == SERVES.kind]
    assert said.count("Tuned") == 2
    assert "StartFailed" not in said
    await settled(api, namespace, second, seconds=1.0)
    assert second.stop() == 0
    third = await start_operator()
    await eventually(lambda: third.events("reconciled"))
    await settled(api, namespace, third, seconds=1.0)
    assert third.writes() == 0


async def test_a_number_of_the_users_own_is_only_explained(cluster, api, namespace, operator):
    """maxNumSeqs is set in the spec: Stalled has the cause, the number and why it stays; no second revision."""
    node = SimulatedKubelet(cluster, namespace)
    cluster.apply(driven(serve(namespace, engine={"vllm": {"maxNumSeqs": 1024}})))
    [pod] = await eventually(lambda: node.placed())
    node.fails(pod, starved(614))

    async def explained():
        resource = await api.get(SERVES, namespace, "q")
        message = condition(resource, "Stalled")["message"]
        return "614" in message and "a number of your own stays as it is" in message

    await eventually(explained)
    assert len(await stored(api, namespace)) == 1
