"""The charts on a real API server: install, upgrade, rollback, uninstall, with a resource that serves all the time.

The operator's pods are simulated ones here, so a process of this checkout does their work: with the settings of the
chart's Deployment and as the chart's ServiceAccount, so each step also proves that the chart's permissions suffice. The
pods' admission is real: the namespace enforces Pod Security `restricted`.
"""

import json
import time

import pytest
import yaml

from tests.chart.helm_support import CRDS, OPERATOR, Helm, built, monitoring_crds
from tests.cluster.chart_release import ChartOperators, lives, seen_again
from tests.cluster.conftest import LOGS
from tests.cluster.operator_resources import report, serve, serving, with_message
from tests.cluster.operator_support import ROOT, eventually

pytestmark = pytest.mark.timeout(2400)

CRD = "qwencachedserves.qwencache.dev"
RELEASE, CRD_RELEASE = "qcs", "qcs-crds"
WAIT = ("--wait", "--timeout", "120s")
TAKE_OVER = ("--take-ownership", "--force-conflicts")


class Transcript(Helm):
    """Helm that writes down what was asked and answered."""

    def __init__(self, binary, home, kubeconfig, path):
        super().__init__(binary, home, kubeconfig)
        self._file = path.open("w")

    def run(self, *arguments, check=True):
        began = time.monotonic()
        done = super().run(*arguments, check=False)
        asked = " ".join(str(argument).replace(f"{ROOT}/", "") for argument in arguments)
        self.note(f"$ helm {asked}\n{done.stdout}{done.stderr}({time.monotonic() - began:.1f} s)\n")
        assert not check or done.returncode == 0, done.stderr
        return done

    def note(self, text):
        self._file.write(text + "\n")
        self._file.flush()


@pytest.fixture
def helm(cluster, namespace, tmp_path):
    LOGS.mkdir(parents=True, exist_ok=True)
    return Transcript(built("helm"), tmp_path, cluster.kubeconfig, LOGS / f"{namespace}.helm.txt")


@pytest.fixture
def release_namespace(cluster, namespace):
    """Where the operator goes; whatever a test leaves, the namespace and its definition end well."""
    name = f"o-{namespace[-30:]}"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.fixture
def operators(cluster, release_namespace, tmp_path):
    """Operators as the chart's Deployment says, one at a time."""
    made = ChartOperators(cluster, release_namespace, RELEASE, folder=tmp_path, logs=LOGS)
    yield made
    made.kill()


def values(namespace, **more):
    return {"watchNamespaces": [namespace], "engineImages": {"gpu": "localhost/engine:1"}} | more


async def test_a_resource_outlives_every_step_of_its_operators_release(
    cluster, api, namespace, helm, release_namespace, operators
):
    in_namespace = ("--namespace", release_namespace)
    # The definition was applied by kubectl before (conftest.py): Helm takes it over.
    notes = helm.run("install", CRD_RELEASE, CRDS, *in_namespace, *TAKE_OVER).stdout
    assert "kubectl explain qcs.spec" in notes

    notes = helm.run("install", RELEASE, OPERATOR, *in_namespace, *WAIT, *helm.values(values(namespace))).stdout
    assert "CustomResourceDefinition" not in notes, "the definition is there"
    assert operators.deployment()["status"]["availableReplicas"] == 2, "admitted by Pod Security restricted"
    operator = await operators.start()
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace), timeout=60)
    helm.note(cluster.kubectl("get", "qcs", "-n", namespace, "-o", "wide").stdout)
    assert "forbidden" not in operator.log.read_text().lower()
    before = lives(cluster, namespace)

    more = values(namespace, image={"tag": "9.9.9"}, log={"level": "debug"}, workers=8, commonLabels={"team": "ml"})
    notes = helm.run("upgrade", RELEASE, OPERATOR, *in_namespace, *WAIT, *helm.values(more)).stdout
    assert "RevisionCurrent" in notes
    assert "Serve a model" not in notes
    assert operators.image().endswith(":9.9.9")
    operator = await operators.start()
    await eventually(lambda: seen_again(operator, namespace))
    assert lives(cluster, namespace) == before, "an upgrade restarted or changed what serves"

    helm.run("rollback", RELEASE, "1", *in_namespace, *WAIT)
    assert not operators.image().endswith(":9.9.9")
    operator = await operators.start()
    await eventually(lambda: seen_again(operator, namespace))
    assert lives(cluster, namespace) == before, "a rollback restarted or changed what serves"
    assert operator.stop() == 0

    helm.run("uninstall", RELEASE, *in_namespace, *WAIT)
    left = cluster.get(
        "deployments,services,serviceaccounts,configmaps,poddisruptionbudgets,roles,rolebindings",
        "-A", "-l", f"app.kubernetes.io/instance={RELEASE}",
    )["items"]  # fmt: skip
    assert left == []
    assert lives(cluster, namespace) == before, "uninstalling the operator took pods along"

    helm.run("uninstall", CRD_RELEASE, *in_namespace, *WAIT)
    kept = cluster.get("crd", CRD)["metadata"]
    assert kept["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "deletionTimestamp" not in kept
    assert cluster.get("qcs", "-n", namespace)["items"], "resources went with the chart"
    helm.note(cluster.kubectl("get", "qcs", "-n", namespace).stdout)

    # With no operator there, the resource and its children still go, and so do both namespaces.
    cluster.kubectl("delete", "qcs", "--all", "-n", namespace, "--timeout=60s")
    for name in (namespace, release_namespace):
        cluster.kubectl("delete", "namespace", name, "--timeout=120s")


async def test_reinstalled_operator_takes_up_what_runs(cluster, api, namespace, helm, release_namespace, operators):
    in_namespace = ("--namespace", release_namespace)
    helm.run("install", RELEASE, OPERATOR, *in_namespace, *helm.values(values(namespace)))
    operator = await operators.start()
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: serving(api, namespace), timeout=60)
    before = lives(cluster, namespace)
    assert operator.stop() == 0
    helm.run("uninstall", RELEASE, *in_namespace, *WAIT)
    helm.run("install", RELEASE, OPERATOR, *in_namespace, *helm.values(values(namespace)))
    operator = await operators.start()
    await eventually(lambda: seen_again(operator, namespace))
    assert lives(cluster, namespace) == before
    cluster.patch(namespace, "qcs", "q", {"spec": {"replicas": 2}})
    await eventually(lambda: len(cluster.get("pods", "-n", namespace)["items"]) == 2)
    assert before[0] < lives(cluster, namespace)[0]


async def test_the_charts_account_has_what_it_needs_and_no_more(cluster, namespace, helm, release_namespace):
    helm.run("install", RELEASE, OPERATOR, "--namespace", release_namespace, *helm.values(values(namespace)))
    account = f"system:serviceaccount:{release_namespace}:{RELEASE}-operator"

    def may(verb, resource, where, *more):
        asked = cluster.kubectl("auth", "can-i", verb, resource, "-n", where, "--as", account, *more, check=False)
        return asked.stdout.strip() == "yes"

    assert may("patch", "deployments.apps", namespace)
    assert may("patch", "qwencachedserves.qwencache.dev", namespace, "--subresource=status")
    assert not may("patch", "qwencachedserves.qwencache.dev", namespace)
    assert may("create", "leases.coordination.k8s.io", release_namespace)
    assert may("update", f"leases.coordination.k8s.io/{RELEASE}", release_namespace)
    for verb, resource, where in (
        ("get", "secrets", namespace),
        ("get", "secrets", release_namespace),
        ("list", "pods", "default"),
        ("list", "qwencachedserves.qwencache.dev", "default"),
        ("update", "leases.coordination.k8s.io/other", release_namespace),
        ("create", "roles.rbac.authorization.k8s.io", namespace),
    ):
        assert not may(verb, resource, where), (verb, resource, where)


async def test_takes_over_what_kustomize_installed(cluster, namespace, helm, release_namespace):
    """As docs/install.md says; the ClusterRole is left out, since it is the one that other tests use."""
    text = cluster.kubectl("kustomize", str(ROOT / "config")).stdout
    shipped = [item for item in yaml.safe_load_all(text) if "namespace" in item["metadata"]]
    for item in shipped:
        item["metadata"]["namespace"] = release_namespace
        for subject in item.get("subjects", ()):
            subject["namespace"] = release_namespace
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(shipped))
    name = "qwen-cached-serve-operator"
    cluster.kubectl("delete", "deployment", name, "-n", release_namespace)
    taking = (*TAKE_OVER, *WAIT, *helm.values(values(namespace)))
    helm.run("install", "qwen-cached-serve", OPERATOR, "--namespace", release_namespace, *taking)
    made = {(item["kind"], item["metadata"]["name"]) for item in shipped}
    for kind, named in made:
        owned = cluster.get(kind, named, "-n", release_namespace)["metadata"]
        assert owned["annotations"]["meta.helm.sh/release-name"] == "qwen-cached-serve", (kind, named)
    service = cluster.get("service", f"{name}-metrics", "-n", release_namespace)
    assert service["spec"]["selector"]["app.kubernetes.io/instance"] == "qwen-cached-serve"
    assert cluster.get("deployment", name, "-n", release_namespace)["status"]["availableReplicas"] == 2


async def test_every_option_is_accepted_by_the_api_server(cluster, namespace, helm, release_namespace):
    """The Prometheus operator's definitions included: first without them, then with the real ones."""
    everything = yaml.safe_load((ROOT / "tests" / "chart" / "everything.yaml").read_text())
    everything["monitoring"]["assumeInstalled"] = False
    everything["watchNamespaces"] = [namespace]
    arguments = ("install", RELEASE, OPERATOR, "--namespace", release_namespace, *helm.values(everything))
    served = json.loads(cluster.kubectl("get", "--raw", "/apis").stdout)["groups"]
    theirs = "monitoring.coreos.com" in {group["name"] for group in served}
    if not theirs:
        refused = helm.run(*arguments, check=False)
        assert refused.returncode
        assert "this cluster does not serve monitoring.coreos.com/v1 ServiceMonitor" in refused.stderr
        for path in monitoring_crds():
            cluster.kubectl("apply", "--server-side", "-f", str(path))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "-l", "!none", "--timeout=60s")
    try:
        helm.run(*arguments)
        objects = "servicemonitors,podmonitors,prometheusrules,networkpolicies,configmaps"
        made = cluster.get(objects, "-n", release_namespace, "-l", f"app.kubernetes.io/instance={RELEASE}")["items"]
        assert sorted(item["kind"] for item in made) == [
            "ConfigMap", "ConfigMap", "NetworkPolicy", "PodMonitor", "PrometheusRule", "ServiceMonitor",
        ]  # fmt: skip
        helm.run("uninstall", RELEASE, "--namespace", release_namespace, *WAIT)
    finally:
        if not theirs:
            for path in monitoring_crds():
                cluster.kubectl("delete", "-f", str(path), "--wait=false")
