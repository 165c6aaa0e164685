"""The chart on a real kubelet: helm installs the operator from its image where Pod Security enforces `restricted`."""

import pytest
import yaml

from tests.chart.helm_support import OPERATOR, Helm, built

pytestmark = pytest.mark.timeout(2400)

RELEASE = "from-chart"


@pytest.fixture
def release_namespace(node, node_namespace):
    name = f"o-{node_namespace[-30:]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    node.shell.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    yield name
    node.keep_logs(name, "test_node_chart")
    node.shell.kubectl("delete", "namespace", name)


def test_helm_installs_a_working_operator_and_takes_it_away(node, node_namespace, release_namespace, tmp_path):
    repository, _, tag = node.place.images.operator.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag},
        "watchNamespaces": [node_namespace],
    }
    helm = Helm(built("helm"), tmp_path, node.kubeconfig)
    where = ("--namespace", release_namespace, "--wait", "--timeout", "300s")
    helm.run("install", RELEASE, OPERATOR, *where, *helm.values(values))
    pods = node.shell.list("pods", release_namespace, f"app.kubernetes.io/instance={RELEASE}")
    assert len(pods) == 2
    for pod in pods:
        assert pod["spec"]["containers"][0]["image"] == node.place.images.operator
        [status] = pod["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (True, 0)
    # Ready means that every kind it watches may be listed, with the Role of the watched namespace alone.
    holder = node.wait(
        "one of them leads",
        lambda: (node.shell.get("lease", RELEASE, release_namespace) or {}).get("spec", {}).get("holderIdentity"),
        seconds=60,
    )
    assert any(holder.startswith(pod["metadata"]["name"]) for pod in pods)
    helm.run("uninstall", RELEASE, *where)
    node.wait("its pods are gone", lambda: not node.shell.list("pods", release_namespace, ""), seconds=60)
