"""The operator as it is shipped: its own image, exactly the RBAC of config/, a namespace that enforces `restricted`."""

import json

NAMESPACE = "qwen-cached-serve"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:qwen-cached-serve-operator"


def operator_pods(node):
    return node.shell.list("pods", NAMESPACE, "app.kubernetes.io/name=qwen-cached-serve-operator")


def test_both_replicas_run_without_privileges_and_one_leads(node):
    pods = operator_pods(node)
    assert len(pods) == 2
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert container["image"] == node.place.images.operator
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    holder = node.shell.get("lease", "qwen-cached-serve", NAMESPACE)["spec"]["holderIdentity"]
    assert any(holder.startswith(pod["metadata"]["name"]) for pod in pods)


def test_the_operator_cannot_read_secrets(node):
    for verb in ("get", "list", "watch"):
        answer = node.shell.kubectl("auth", "can-i", verb, "secrets", "-A", "--as", ACCOUNT, check=False)
        assert answer.strip() == "no", verb


def test_its_log_is_json_with_one_line_a_reconcile(node, node_namespace):
    node.apply(node_namespace, node.tiny("logged", lifecycle="Stopped"))
    node.wait("the resource is seen", lambda: node.conditions(node_namespace, "logged").get("Ready"), seconds=60)
    lines = []
    for pod in operator_pods(node):
        lines += node.shell.kubectl("logs", "-n", NAMESPACE, pod["metadata"]["name"]).splitlines()
    entries = [json.loads(line) for line in lines]
    mine = [
        entry for entry in entries if entry.get("namespace") == node_namespace and entry.get("event") == "reconciled"
    ]
    assert mine
    assert all({"result", "duration", "name"} <= entry.keys() for entry in mine), mine[0]
