"""The shipped manifests (config/): what they grant, and that the operator's own pod is a restricted one."""

import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from qwen_cached_serve.kube.lease import LeaseTimes
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, LEASES, OPTIONAL, OWNED, READ_ONLY, SERVES
from qwen_cached_serve.settings import DEFAULT_LEASE_NAME

ROOT = Path(__file__).parents[3]
KUBECTL = Path(sys.executable).parent / "kubectl"


@pytest.fixture(scope="module")
def shipped():
    text = subprocess.run([KUBECTL, "kustomize", ROOT / "config"], capture_output=True, text=True, check=True).stdout
    return list(yaml.safe_load_all(text))


def of(shipped, kind):
    return [manifest for manifest in shipped if manifest["kind"] == kind]


def rules(shipped):
    return [rule for role in of(shipped, "ClusterRole") + of(shipped, "Role") for rule in role["rules"]]


def test_everything_is_valid_for_the_oldest_and_newest_supported_release(shipped):
    for manifest in shipped:
        for version in ("1.34", "1.37"):
            kubernetes_validate.validate(manifest, version, strict=True)


def test_no_rule_reaches_secrets(shipped):
    for rule in rules(shipped):
        assert "secrets" not in rule["resources"]
        assert "*" not in json.dumps(rule)


def test_nothing_is_escalated(shipped):
    verbs = {verb for rule in rules(shipped) for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch", "create", "patch", "update", "delete"}
    resources = {resource for rule in rules(shipped) for resource in rule["resources"]}
    assert not resources & {"roles", "rolebindings", "clusterroles", "pods/exec", "pods/attach", "nodes/proxy"}


def test_the_resource_itself_is_never_written(shipped):
    [verbs] = [rule["verbs"] for rule in rules(shipped) if rule["resources"] == [SERVES.plural]]
    assert set(verbs) == {"get", "list", "watch"}


@pytest.mark.parametrize(
    "resource", [*OWNED, *OPTIONAL, CONTROLLER_REVISIONS, *READ_ONLY], ids=lambda resource: resource.plural
)
def test_what_is_watched_may_be_watched_and_only_children_written(shipped, resource):
    verbs = {
        verb
        for rule in rules(shipped)
        if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
        for verb in rule["verbs"]
    }
    written = {"create", "patch", "delete"} if resource in (*OWNED, *OPTIONAL, CONTROLLER_REVISIONS) else set()
    assert verbs == {"get", "list", "watch"} | written


def test_logs_may_be_read_and_that_is_a_rule_of_its_own(shipped):
    # A rule of its own, so that it can be taken out: reading logs is optional.
    [rule] = [rule for rule in rules(shipped) if "pods/log" in rule["resources"]]
    assert (rule["resources"], rule["verbs"]) == (["pods/log"], ["get"])


def test_lease_is_the_one_the_operator_uses(shipped):
    named = [rule for rule in rules(shipped) if LEASES.plural in rule["resources"] and "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in named] == [[DEFAULT_LEASE_NAME]]
    assert {namespace for role in of(shipped, "Role") if (namespace := role["metadata"]["namespace"])} == {
        "qwen-cached-serve"
    }


def test_two_replicas_of_a_restricted_pod(shipped):
    [deployment] = of(shipped, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert "hostNetwork" not in pod
    assert set(container) >= {"livenessProbe", "readinessProbe", "resources"}
    # A leader that is asked to stop finishes work and gives the Lease back well before it is killed.
    assert pod["terminationGracePeriodSeconds"] > LeaseTimes().renew_deadline
