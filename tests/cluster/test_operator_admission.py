"""What admission says reaches the status, and what the shipped account may not do."""

import time

import pytest
import yaml

from qwen_cached_serve.control.preflight import Preflight
from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.port import DEPLOYMENTS, PODS, SERVES
from tests.cluster.operator_resources import complete, condition, report, serve, with_message
from tests.cluster.operator_support import ROOT, Cluster, eventually


def quota(namespace, **hard):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": namespace, "name": "team"},
        "spec": {"hard": hard},
    }


def pod_of(deployment):
    """The pod that the ReplicaSet controller would make."""
    template = deployment["spec"]["template"]
    metadata = {"namespace": deployment["metadata"]["namespace"], "name": "dry"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    }


@pytest.mark.case("B49")
async def test_quota_is_told_in_the_servers_words_and_recovers(cluster, api, namespace, operator):
    hard = {"limits.cpu": "1k", "limits.memory": "2Ti", "requests.cpu": "1k", "requests.memory": "2Ti"}
    cluster.apply(quota(namespace, **hard, **{"requests.nvidia.com/gpu": "1"}))
    cluster.apply(with_message(serve(namespace, name="one"), report(784)))

    async def first_ready():
        resource, _ = await complete(api, namespace, "one")
        return condition(resource, "Ready")["status"] == "True"

    await eventually(first_ready)  # all containers state what the quota asks for
    cluster.apply(with_message(serve(namespace, name="two"), report(784)))

    async def refused():
        resource, _ = await complete(api, namespace, "two")
        capacity = condition(resource, "CapacityAvailable")
        assert (capacity["status"], capacity["reason"]) == ("False", "QuotaExceeded"), capacity
        return "exceeded quota: team" in capacity["message"]

    await eventually(refused, timeout=60)
    looks = len(operator.events("reconciled"))
    start = time.monotonic()
    cluster.kubectl("delete", "-n", namespace, "quota/team")
    cluster.patch(namespace, "qcs", "two", {"spec": {"cache": {"chunkBlocks": 2}}})

    async def second_ready():
        resource, _ = await complete(api, namespace, "two")
        return condition(resource, "Ready")["status"] == "True"

    await eventually(second_ready, timeout=60)
    assert len(operator.events("reconciled")) - looks < 20 * (1 + time.monotonic() - start)


@pytest.mark.case("B50")
@pytest.mark.parametrize("accelerator", ["GPU", "CPU"])
async def test_pods_pass_the_restricted_level(cluster, api, namespace, operator, accelerator):
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster.apply(serve(namespace, engine={"accelerator": {"type": accelerator}}, replicas=0))
    await eventually(lambda: complete(api, namespace))
    deployment = await api.get(DEPLOYMENTS, namespace, "q")
    done = cluster.kubectl(
        "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod_of(deployment)), check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.case("B50")
async def test_pod_security_is_told_and_the_old_pod_serves_on(cluster, api, namespace, operator):
    privileged = {"securityContext": {"runAsUser": 0}}
    cluster.apply(with_message(serve(namespace, pod=privileged, replicas=2), report(784)))

    async def ready():
        resource, _ = await complete(api, namespace)
        return condition(resource, "Ready")["status"] == "True"

    await eventually(ready)
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster.patch(namespace, "qcs", "q", {"spec": {"cache": {"chunkBlocks": 2}}})

    async def blocked():
        resource, _ = await complete(api, namespace)
        assert condition(resource, "Ready")["reason"] == "PodSecurityBlocked", condition(resource, "Ready")
        assert "runAsNonRoot" in condition(resource, "Ready")["message"]
        return condition(resource, "Available")["status"] == "True"

    await eventually(blocked, timeout=60)


async def test_the_operators_own_pod_passes_the_level_its_namespace_enforces(cluster):
    shipped = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(ROOT / "config")).stdout))
    [deployment] = [one for one in shipped if one["kind"] == "Deployment"]
    done = cluster.kubectl(
        "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod_of(deployment)), check=False
    )
    assert done.returncode == 0, done.stderr
    weaker = pod_of(deployment)
    del weaker["spec"]["securityContext"]["seccompProfile"]
    refused = cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(weaker), check=False)
    assert 'violates PodSecurity "restricted' in refused.stderr


async def test_a_taken_port_is_one_line(start_operator, operator):
    other = await start_operator("--health-port", str(operator.health), ready=False)
    assert other.process.wait(20) == 2
    assert other.log.read_text().startswith("qwen-cached-serve-operator: --health-port, --metrics-port")


@pytest.mark.case("B61")
async def test_a_terminating_namespace_is_left_alone(cluster, api, namespace, operator):
    holding = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": "holds", "finalizers": ["example.com/holds-the-namespace"]},
    }
    cluster.apply(holding)
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")

    async def resource_gone():
        return not await api.list_all(SERVES, namespace)

    await eventually(resource_gone, timeout=60)
    # What was under way while it went may still be written.
    await eventually(
        lambda: operator.metric("workqueue_depth") + operator.metric("controller_runtime_active_workers") == 0
    )
    looks = len(operator.lines())
    writes = operator.writes()
    cluster.patch(namespace, "configmap", "holds", {"metadata": {"finalizers": None}})
    await eventually(lambda: cluster.kubectl("get", "namespace", namespace, check=False).returncode, timeout=60)
    assert operator.writes() == writes
    assert len(operator.lines()) - looks < 20
    assert operator.alive()


async def test_the_shipped_account_cannot_read_secrets(cluster, namespace, operator_kubeconfig):
    own = Cluster(operator_kubeconfig)
    cluster.kubectl("create", "secret", "generic", "-n", namespace, "hf", "--from-literal=token=x")
    for verb in ("get", "list", "watch", "create", "patch", "delete"):
        assert own.kubectl("auth", "can-i", verb, "secrets", "-n", namespace, check=False).stdout.strip() == "no"
    read = own.kubectl("get", "secret", "-n", namespace, "hf", check=False)
    assert "forbidden" in read.stderr.lower()
    for verb, resource in (
        ("update", "qwencachedserves.qwencache.dev"),
        ("patch", "qwencachedserves.qwencache.dev"),
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "pods/exec"),
        ("get", "nodes"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("impersonate", "users"),
    ):
        assert own.kubectl("auth", "can-i", verb, resource, "-n", namespace, check=False).stdout.strip() == "no", (
            verb,
            resource,
        )


async def test_cluster_wide_with_the_shipped_account_and_its_lease(cluster, api, namespace, start_operator):
    operator = await start_operator("--lease-namespace", "qwen-cached-serve", lease=True, namespaces="")
    cluster.apply(serve(namespace))
    await eventually(lambda: complete(api, namespace))
    text = operator.log.read_text()
    assert "forbidden" not in text.lower()
    assert "not enough permissions" not in text.lower()
    assert operator.stop() == 0


async def test_without_permissions_it_says_which_and_waits(cluster, namespace, start_operator, tmp_path):
    cluster.kubectl("create", "serviceaccount", "-n", namespace, "nobody")
    path = cluster.kubeconfig_for(namespace, "nobody", tmp_path / "kubeconfig")
    operator = await start_operator(kubeconfig=path, ready=False)
    await operator.wait_for_ports()
    await eventually(lambda: operator.events("cannot start yet"))
    status, text = operator.fetch(operator.health, "/readyz")
    assert status == 503
    assert "cannot list resource" in text
    assert "config/" in text
    assert operator.fetch(operator.health, "/healthz")[0] == 200
    assert operator.stop() == 0


async def test_a_missing_crd_is_named(api, monkeypatch):
    check = Preflight(api, ["default"])
    assert await check.check() == ""

    class Unserved(KubeClient):
        async def served(self, group, version):
            return await super().served("not.installed", version)

    other = Unserved(api._api, connection.Origin())
    assert "kubectl apply -f crds/" in await Preflight(other, ["default"]).check()
    assert PODS.plural
