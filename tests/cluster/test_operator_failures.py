"""Failures of the engine as a real API server shows them: named from the message, and logs that cannot be read."""

import pytest

from qwen_cached_serve.control.podlogs import TRIES
from qwen_cached_serve.kube.port import PODS, SERVES, ApiError, LogWindow, Transient
from tests.cluster.operator_resources import condition, report, serve, with_message
from tests.cluster.operator_support import eventually

WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
SEQUENCES = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).\n" + WRAPPER


def failing_engine(namespace, words, exit_code=1):
    """A resource whose simulated engine ends with `words` (stages/operator-engine-fails.yaml)."""
    made = with_message(serve(namespace), report(784))
    made["spec"]["pod"]["annotations"] |= {
        "qcs.test/engine-exit": str(exit_code),
        "qcs.test/message.engine": words,
    }
    return made


async def told(api, namespace, reason):
    async def shown():
        resource = await api.get(SERVES, namespace, "q")
        assert condition(resource, "Ready")["reason"] == reason, resource.get("status")
        return resource

    return await eventually(shown)


@pytest.mark.case("B23")
async def test_a_cause_in_the_message_is_named_with_field_and_number(cluster, api, namespace, operator):
    made = failing_engine(namespace, SEQUENCES)
    made["spec"]["engine"] = {"autoTune": "Disabled"}
    cluster.apply(made)
    found = await told(api, namespace, "MaxNumSeqsTooLarge")
    message = condition(found, "Stalled")["message"]
    assert "spec.engine.vllm.maxNumSeqs" in message
    assert "614" in message
    assert "spec.engine.autoTune is Disabled" in message


@pytest.mark.case("B26")
async def test_a_log_that_cannot_be_read_leaves_the_cause_open_and_costs_little(cluster, api, namespace, operator):
    """Simulated nodes have no kubelet that could give a log: asked a few times, and never again."""
    cluster.apply(failing_engine(namespace, WRAPPER))
    found = await told(api, namespace, "EngineStartFailed")
    assert condition(found, "Stalled")["status"] == "False"
    [pod] = await api.list_all(PODS, namespace)
    with pytest.raises(ApiError) as refused:
        await api.pod_log(namespace, pod["metadata"]["name"], "engine", LogWindow(True, 10, 1000))
    tries = TRIES if isinstance(refused.value, Transient) else 1
    asked = {"method": "GET", "code": str(refused.value.status)}
    await eventually(lambda: operator.metric("rest_client_requests_total", **asked) >= tries)
    await looked_at_again(cluster, namespace, operator)
    assert operator.fetch(operator.health, "/readyz")[0] == 200
    await told(api, namespace, "EngineStartFailed")


async def looked_at_again(cluster, namespace, operator):
    """Five more reconciles; none of them reads anything."""
    reads = operator.metric("rest_client_requests_total", method="GET")
    for number in range(5):
        looks = len(operator.events("reconciled"))
        cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"touched": str(number)}}})
        await eventually(lambda looks=looks: len(operator.events("reconciled")) > looks)
    assert operator.metric("rest_client_requests_total", method="GET") == reads


async def test_without_the_permission_to_read_logs_everything_else_works(
    cluster, api, namespace, start_operator, tmp_path
):
    """config/ gives `pods/log`; it says that the rule can be taken out."""
    role = cluster.get("clusterrole", "qwen-cached-serve-operator")
    role["metadata"] = {"name": f"{namespace}-no-logs"}
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["pods/log"]]
    subject = {"kind": "ServiceAccount", "name": "no-logs", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
    cluster.apply(
        role,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "no-logs", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "no-logs", "namespace": namespace},
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    try:
        kubeconfig = cluster.kubeconfig_for(namespace, "no-logs", tmp_path / "kubeconfig")
        operator = await start_operator(kubeconfig=kubeconfig)
        cluster.apply(failing_engine(namespace, WRAPPER))
        await told(api, namespace, "EngineStartFailed")
        [said] = await eventually(lambda: operator.events("no permission to read logs of pods"))
        assert "pods/log" in said["error"] or 'resource "pods/log"' in said["error"]
        await looked_at_again(cluster, namespace, operator)
        assert len(operator.events("no permission to read logs of pods")) == 1
        assert operator.fetch(operator.health, "/readyz")[0] == 200
    finally:
        cluster.kubectl("delete", "clusterrole", role["metadata"]["name"], check=False)
