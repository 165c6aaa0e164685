"""NetworkPolicy, PodDisruptionBudget and PodMonitor on a real control plane: made, kept, removed, in nobody's way."""

import pytest
import yaml

from qwen_cached_serve.control.optional import RETRY_SECONDS
from qwen_cached_serve.kube.port import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    POD_MONITORS,
    PODS,
    SERVES,
    SERVICES,
    NotFound,
)
from tests.chart.helm_support import monitoring_crds
from tests.cluster.operator_resources import complete, condition, report, serve, serving, with_message
from tests.cluster.operator_support import ROOT, eventually
from tests.machine import unavailable

ALL = {
    "networkPolicy": {"mode": "Enabled", "allowedClients": [{"namespaceSelector": {}}]},
    "disruptionBudget": {},
    "monitoring": {"podMonitor": "Enabled", "labels": {"release": "prometheus"}},
}
NOTICED_SECONDS = RETRY_SECONDS + 30


@pytest.fixture(scope="module")
def pod_monitor_definition():
    """The Prometheus operator's own."""
    return str(monitoring_crds()[0])


@pytest.fixture
async def no_pod_monitors(cluster):
    """A cluster that does not serve PodMonitors; one that was given to the tests and does is left as it is."""
    if cluster.kubectl("get", "--raw", POD_MONITORS.path(None), check=False).returncode == 0:
        labels = cluster.get("crd", "podmonitors.monitoring.coreos.com")["metadata"]
        if "deletionTimestamp" not in labels:
            unavailable("this cluster serves PodMonitors already")

    async def gone():
        return cluster.kubectl("get", "crd", "podmonitors.monitoring.coreos.com", check=False).returncode != 0

    await eventually(gone, timeout=60)
    yield
    cluster.kubectl("delete", "crd", "podmonitors.monitoring.coreos.com", "--ignore-not-found", "--wait=false")


async def absent(api, kind, namespace):
    try:
        await api.get(kind, namespace, "q")
    except NotFound:
        return True
    return False


async def lives(api, namespace):
    """What a restart would change: the Deployment's generation, the hash in its pods' names, the pods."""
    deployment = await api.get(DEPLOYMENTS, namespace, "q")
    pods = {pod["metadata"]["uid"] for pod in await api.list_all(PODS, namespace)}
    return deployment["metadata"]["generation"], deployment["spec"]["template"], pods


async def test_they_follow_the_spec_and_the_cluster_and_restart_nobody(
    cluster, api, namespace, operator, no_pod_monitors, pod_monitor_definition
):
    cluster.apply(with_message(serve(namespace), report(784)))
    resource, _ = await eventually(lambda: serving(api, namespace))
    before = await lives(api, namespace)
    cluster.patch(namespace, "qcs", "q", {"spec": ALL | {"service": {"annotations": {"example.org/lb": "internal"}}}})

    async def made_but_the_monitor():
        policy = await api.get(NETWORK_POLICIES, namespace, "q")
        budget = await api.get(DISRUPTION_BUDGETS, namespace, "q")
        service = await api.get(SERVICES, namespace, "q")
        assert service["metadata"]["annotations"]["example.org/lb"] == "internal"
        assert budget["status"]["currentHealthy"] == budget["status"]["disruptionsAllowed"] == 1
        current = await api.get(SERVES, namespace, "q")
        accepted = condition(current, "SpecAccepted")
        assert (accepted["status"], accepted["reason"]) == ("True", "AcceptedWithNotes")
        assert "does not serve monitoring.coreos.com/v1 PodMonitor" in accepted["message"]
        assert condition(current, "Ready")["status"] == "True"
        return policy, budget

    policy, budget = await eventually(made_but_the_monitor)
    for child in (policy, budget):
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (resource["metadata"]["uid"], True)
    prometheus = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring"]}
    readers = [{"namespaceSelector": {"matchExpressions": [prometheus]}}]
    assert policy["spec"]["ingress"] == [
        {"from": [{"namespaceSelector": {}}, *readers], "ports": [{"port": 8000, "protocol": "TCP"}]},
        {"from": readers, "ports": [{"port": 8081, "protocol": "TCP"}]},
    ]
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"

    # Drift, also what only adds to a selector or a list.
    wider = [*policy["spec"]["ingress"], {"ports": [{"port": 9999}]}]
    narrower = {"matchLabels": {**policy["spec"]["podSelector"]["matchLabels"], "none": "of-them"}}
    cluster.patch(namespace, "networkpolicy", "q", {"spec": {"ingress": wider}})
    cluster.patch(namespace, "networkpolicy", "q", {"spec": {"podSelector": narrower}})
    cluster.kubectl("delete", "-n", namespace, "pdb/q")

    async def put_back():
        again = await api.get(NETWORK_POLICIES, namespace, "q")
        fresh = await api.get(DISRUPTION_BUDGETS, namespace, "q")
        return again["spec"] == policy["spec"] and fresh["metadata"]["uid"] != budget["metadata"]["uid"]

    await eventually(put_back)

    cluster.kubectl("apply", "--server-side", "-f", pod_monitor_definition)

    async def monitored():
        monitor = await api.get(POD_MONITORS, namespace, "q")
        current = await api.get(SERVES, namespace, "q")
        assert condition(current, "SpecAccepted")["reason"] == "Accepted"
        return monitor

    monitor = await eventually(monitored, timeout=NOTICED_SECONDS)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["http", "relay"]
    cluster.kubectl("delete", "-n", namespace, "podmonitor/q")

    async def monitored_again():
        return (await api.get(POD_MONITORS, namespace, "q"))["metadata"]["uid"] != monitor["metadata"]["uid"]

    await eventually(monitored_again)

    off = {"networkPolicy": {"mode": "Disabled"}, "disruptionBudget": None, "monitoring": None}
    cluster.patch(namespace, "qcs", "q", {"spec": off})
    for kind in (NETWORK_POLICIES, DISRUPTION_BUDGETS, POD_MONITORS):
        await eventually(lambda kind=kind: absent(api, kind, namespace))

    # The definition goes while a PodMonitor is asked for.
    cluster.patch(namespace, "qcs", "q", {"spec": {"monitoring": {"podMonitor": "Enabled"}}})
    await eventually(lambda: api.get(POD_MONITORS, namespace, "q"))
    cluster.kubectl("delete", "crd", "podmonitors.monitoring.coreos.com", "--timeout=60s")

    async def noted():
        current = await api.get(SERVES, namespace, "q")
        return condition(current, "SpecAccepted")["reason"] == "AcceptedWithNotes"

    await eventually(noted, timeout=NOTICED_SECONDS)
    assert operator.alive()
    assert await lives(api, namespace) == before


@pytest.mark.case("B58")
async def test_a_foreign_policy_is_left_alone_and_nothing_else_waits(cluster, api, namespace, operator):
    foreign = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": "q"},
        "spec": {"podSelector": {"matchLabels": {"other": "app"}}, "policyTypes": ["Egress"]},
    }
    cluster.apply(foreign)
    asked = {"networkPolicy": {"mode": "Enabled"}, "disruptionBudget": {"maxUnavailable": "50%"}}
    cluster.apply(with_message(serve(namespace, **asked), report(784)))

    async def told():
        current, _ = await complete(api, namespace)
        assert condition(current, "Available")["status"] == "True"
        for kind, status, reason in (("Ready", "False", "NameTaken"), ("Stalled", "True", "OptionalChildRefused")):
            found = condition(current, kind)
            assert (found["status"], found["reason"]) == (status, reason), found
        return condition(current, "Ready")["message"]

    assert "NetworkPolicy named q exists already" in await eventually(told)
    assert operator.metric("qwen_cached_serve_child_refused", namespace=namespace, kind="NetworkPolicy") == 1
    assert operator.metric("qwen_cached_serve_stalled", namespace=namespace, reason="OptionalChildRefused") == 1
    assert (await api.get(DISRUPTION_BUDGETS, namespace, "q"))["spec"]["maxUnavailable"] == "50%"
    live = await api.get(NETWORK_POLICIES, namespace, "q")
    assert live["spec"]["podSelector"] == {"matchLabels": {"other": "app"}}
    assert "ownerReferences" not in live["metadata"]
    cluster.kubectl("delete", "-n", namespace, "networkpolicy/q")
    cluster.patch(namespace, "qcs", "q", {"metadata": {"annotations": {"look": "again"}}})
    await eventually(lambda: serving(api, namespace))
    assert (await api.get(NETWORK_POLICIES, namespace, "q"))["metadata"]["ownerReferences"]


async def test_without_their_permissions_all_else_works(cluster, api, namespace, start_operator, tmp_path):
    """As after an upgrade of the operator under the former release's ClusterRole."""
    shipped = yaml.safe_load_all((ROOT / "config" / "cluster-role.yaml").read_text())
    [rules] = [one["rules"] for one in shipped if one["kind"] == "ClusterRole"]
    optional = {"networkpolicies", "poddisruptionbudgets", "podmonitors"}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"namespace": namespace, "name": "operator"},
        "rules": [rule for rule in rules if not optional & set(rule["resources"])],
    }
    assert len(role["rules"]) == len(rules) - 3
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    cluster.kubectl("create", "serviceaccount", "-n", namespace, "operator")
    cluster.apply(role, binding)
    await start_operator(kubeconfig=cluster.kubeconfig_for(namespace, "operator", tmp_path / "kubeconfig"))
    cluster.apply(with_message(serve(namespace, **ALL), report(784)))

    async def told():
        current, _ = await complete(api, namespace)
        assert condition(current, "Available")["status"] == "True"
        found = condition(current, "Ready")
        assert (found["status"], found["reason"]) == ("False", "ApplyForbidden"), found
        assert condition(current, "Stalled")["status"] == "False"
        return found["message"]

    message = await eventually(told)
    assert "networkpolicies" in message
    cluster.apply(role | {"rules": rules})
    await eventually(lambda: api.get(NETWORK_POLICIES, namespace, "q"), timeout=NOTICED_SECONDS)
    await eventually(lambda: api.get(DISRUPTION_BUDGETS, namespace, "q"), timeout=NOTICED_SECONDS)
