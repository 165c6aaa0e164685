"""What the operator's chart renders, by Helm's own engine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from qwen_cached_serve import settings
from qwen_cached_serve.inpod.facts import ENGINE_PORT, RELAY_PORT
from tests.chart.helm_support import CRDS, NAMESPACE, NEWEST, OLDEST, ROOT, environment, of, one, pod_of

EVERYTHING = yaml.safe_load((Path(__file__).parent / "everything.yaml").read_text())
PER_NAMESPACE = {"watchNamespaces": ["llm", "chat"]}
KUBECTL = Path(sys.executable).parent / "kubectl"
MONITORING = "monitoring.coreos.com/v1"


@pytest.fixture(scope="module")
def kustomized():
    text = subprocess.run([KUBECTL, "kustomize", ROOT / "config"], capture_output=True, text=True, check=True).stdout
    return [document for document in yaml.safe_load_all(text) if document["kind"] != "Namespace"]


@pytest.mark.parametrize("kube", [OLDEST, NEWEST])
@pytest.mark.parametrize("values", [{}, PER_NAMESPACE, EVERYTHING], ids=["defaults", "namespaced", "everything"])
def test_kubernetes_takes_every_object(helm, values, kube):
    """The objects of the Prometheus operator meet their definitions on a real API server, in the cluster tier."""
    rendered = helm.template(values, kube=kube)
    assert len({(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in rendered}) == len(rendered)
    for manifest in rendered:
        if manifest["apiVersion"] != MONITORING:
            kubernetes_validate.validate(manifest, kube.removesuffix(".0"), strict=True)


def test_without_a_lease_the_old_one_ends_before_the_new_one_starts(helm):
    """A rolling update runs both for a while, and both would write."""
    assert "strategy" not in one(helm.template(), "Deployment")["spec"]
    alone = one(helm.template({"replicas": 1, "leaderElection": {"enabled": False}}), "Deployment")
    assert alone["spec"]["strategy"] == {"type": "Recreate", "rollingUpdate": None}
    for kube in (OLDEST, NEWEST):
        kubernetes_validate.validate(alone, kube.removesuffix(".0"), strict=True)


def test_an_older_kubernetes_is_refused(helm):
    with pytest.raises(AssertionError, match=r"requires kubeVersion: >=1\.34"):
        helm.template(kube="1.33.0")


def test_defaults_are_the_kustomize_base(helm, kustomized):
    """Same names, permissions, pods: whoever changes one changes the other, and can move from one to the other."""
    rendered = helm.template()

    def comparable(manifest):
        text = json.dumps(manifest).replace('"app.kubernetes.io/instance": "qwen-cached-serve"', '"": ""')
        made = json.loads(text.replace(', "": ""', "").replace('"": "", ', ""))
        del made["metadata"]["labels"]
        if made["kind"] == "Deployment":
            [container] = made["spec"]["template"]["spec"]["containers"]
            container.pop("env", None)
        return made

    def keyed(manifests):
        return {(m["kind"], m["metadata"]["name"]): comparable(m) for m in manifests}

    assert keyed(rendered) == keyed(kustomized)
    # What differs: environment with the operator's own defaults.
    defaults = settings.OperatorSettings()
    assert settings.load([], environment(rendered)) == defaults


def test_everything_is_used(helm):
    rendered = helm.template(EVERYTHING)
    pod = pod_of(rendered)
    [container] = pod["containers"]
    digest = EVERYTHING["image"]["digest"]
    assert container["image"] == f"registry.example:5000/ai/qcs-operator:1.2.3@{digest}"
    assert container["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    for field in ("priorityClassName", "nodeSelector", "affinity", "tolerations", "terminationGracePeriodSeconds"):
        assert pod[field] == EVERYTHING[field]
    assert container["resources"] == EVERYTHING["resources"]
    selector = one(rendered, "Deployment")["spec"]["selector"]
    assert pod["topologySpreadConstraints"] == [
        EVERYTHING["topologySpreadConstraints"][0] | {"labelSelector": selector}
    ]
    assert pod["volumes"] == [{"name": "custom-ca", "secret": {"secretName": "corporate"}}]
    assert container["volumeMounts"][0]["mountPath"] == "/etc/qwen-cached-serve/ca"
    set_to = environment(rendered)
    assert set_to["SSL_CERT_FILE"] == "/etc/qwen-cached-serve/ca/bundle.pem"
    assert set_to["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert {"$(KUBERNETES_SERVICE_HOST)", ".svc", "10.0.0.0/8"} <= set(set_to["NO_PROXY"].split(","))
    loaded = settings.load([], {name: value for name, value in set_to.items() if isinstance(value, str)})
    assert loaded == settings.OperatorSettings(
        namespaces=("llm", "chat"),
        engine_image="registry.example/engine:1",
        engine_cpu_image="registry.example/engine-cpu:1",
        lease_name="mine",
        monitoring_namespaces=("prometheus",),
        log_level="debug",
        log_format="console",
        workers=8,
        resync_seconds=300,
        watch_behind_seconds=120,
        bind_address="::",
    )
    for manifest in rendered:
        assert manifest["metadata"]["labels"]["team"] == "ml", manifest["kind"]
        assert manifest["metadata"]["annotations"]["example.com/owner"] == "ml", manifest["kind"]
    metadata = one(rendered, "Deployment")["spec"]["template"]["metadata"]
    assert {"pod": "1", "team": "ml"}.items() <= metadata["labels"].items()
    assert metadata["annotations"]["example.com/pod"] == "2"
    assert one(rendered, "ServiceAccount")["metadata"]["annotations"]["example.com/role"] == "reader"
    assert one(rendered, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"


def test_a_role_in_each_watched_namespace_and_nothing_cluster_wide(helm):
    cluster_wide, per_namespace = helm.template(), helm.template(PER_NAMESPACE)
    assert not [manifest for manifest in per_namespace if manifest["kind"].startswith("Cluster")]
    rules = one(cluster_wide, "ClusterRole")["rules"]
    roles = {r["metadata"]["namespace"]: r["rules"] for r in of(per_namespace, "Role") if r["rules"] == rules}
    assert set(roles) == {"llm", "chat"}
    bindings = [b for b in of(per_namespace, "RoleBinding") if b["metadata"]["namespace"] in roles]
    assert len(bindings) == 2
    account = {"kind": "ServiceAccount", "name": "qwen-cached-serve-operator", "namespace": NAMESPACE}
    assert all(b["subjects"] == [account] and b["roleRef"]["kind"] == "Role" for b in bindings)
    assert environment(per_namespace)["QCS_NAMESPACES"] == "llm,chat"
    assert "QCS_NAMESPACES" not in environment(cluster_wide)


@pytest.mark.parametrize("values", [{}, PER_NAMESPACE, EVERYTHING], ids=["defaults", "namespaced", "everything"])
def test_no_permission_reaches_secrets_or_everything(helm, values):
    for role in of(helm.template(values), "Role") + of(helm.template(values), "ClusterRole"):
        for rule in role["rules"]:
            assert "secrets" not in rule["resources"]
            assert "*" not in json.dumps(rule)


def test_reading_logs_can_be_left_out(helm):
    def reads(values):
        return {name for rule in one(helm.template(values), "ClusterRole")["rules"] for name in rule["resources"]}

    assert reads({}) - reads({"rbac": {"podLogs": False}}) == {"pods/log"}


def test_the_lease_is_the_releases_own(helm):
    for release in ("qwen-cached-serve", "other"):
        rendered = helm.template(release=release)
        [role] = [role for role in of(rendered, "Role") if role["metadata"]["name"].endswith("-lease")]
        assert role["rules"][1]["resourceNames"] == [environment(rendered)["QCS_LEASE_NAME"]] == [release]
    assert not of(helm.template({"replicas": 1, "leaderElection": {"enabled": False}}), "Role")


def test_no_account_or_role_where_others_make_them(helm):
    rendered = helm.template({"serviceAccount": {"create": False, "name": "given"}, "rbac": {"create": False}})
    assert not [m for m in rendered if m["kind"] in ("ServiceAccount", "Role", "ClusterRole", "RoleBinding")]
    assert pod_of(rendered)["serviceAccountName"] == "given"


@pytest.mark.parametrize("length", [1, 44, 53])
def test_names_stay_valid_for_every_release_name(helm, length):
    for manifest in helm.template({"monitoring": {"dashboards": {"enabled": True}}}, release="r" * length):
        limit = 63 if manifest["kind"] == "Service" else 253
        assert len(manifest["metadata"]["name"]) <= limit
        assert all(len(str(value)) <= 63 for value in manifest["metadata"]["labels"].values())


def test_two_releases_do_not_meet(helm):
    def names(release):
        return {(m["kind"], m["metadata"]["name"]) for m in helm.template(PER_NAMESPACE, release=release)}

    assert not names("one") & names("two")
    selectors = [one(helm.template(release=name), "Deployment")["spec"]["selector"] for name in ("one", "two")]
    assert selectors[0] != selectors[1]


def test_pods_do_not_change_with_the_charts_version(helm):
    """`helm upgrade` to a chart that changes nothing else restarts nobody."""
    template = one(helm.template(), "Deployment")["spec"]["template"]
    assert not re.search(r"chart|version", json.dumps(template["metadata"]))


def test_pods_pass_pod_security_restricted(helm):
    pod = pod_of(helm.template())
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_a_field_of_the_security_context_can_be_dropped(helm):
    context = pod_of(helm.template({"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}))["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_network_policy_opens_what_the_operator_needs(helm):
    spec = one(helm.template({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    assert spec["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    names, api, pods = spec["egress"]
    assert {p["port"] for p in names["ports"]} == {53}
    assert {p["port"] for p in api["ports"]} == {443, 6443}
    assert {p["port"] for p in pods["ports"]} == {ENGINE_PORT, RELAY_PORT}
    assert pods["to"][0]["namespaceSelector"] == {}
    assert pods["to"][0]["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "qwen-cached-serve",
        "app.kubernetes.io/component": "serving",
    }
    without = helm.template({"networkPolicy": {"enabled": True}, "podStatus": False})
    assert len(one(without, "NetworkPolicy")["spec"]["egress"]) == 2


def test_network_policy_narrows(helm):
    spec = one(helm.template(EVERYTHING), "NetworkPolicy")["spec"]
    assert spec["ingress"][0]["from"] == EVERYTHING["networkPolicy"]["metricsFrom"]
    _, api, pods, *proxies, extra = spec["egress"]
    assert api == {"ports": [{"port": 6443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
    [expression] = pods["to"][0]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["llm", "chat"]
    assert [p["ports"][0]["port"] for p in proxies] == [80, 3128]
    assert extra == EVERYTHING["networkPolicy"]["extraEgress"][0]


def test_monitors_select_what_the_chart_and_the_operator_make(helm):
    rendered = helm.template(EVERYTHING)
    own = one(rendered, "ServiceMonitor")
    assert own["spec"]["selector"]["matchLabels"].items() <= one(rendered, "Service")["metadata"]["labels"].items()
    [endpoint] = own["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True, "else Prometheus writes its own namespace over the resource's"
    assert endpoint["port"] in {port["name"] for port in one(rendered, "Service")["spec"]["ports"]}
    served = one(rendered, "PodMonitor")
    assert served["spec"]["namespaceSelector"] == {"matchNames": ["llm", "chat"]}
    golden = list(yaml.safe_load_all((ROOT / "tests/golden/minimal/out.yaml").read_text()))
    pod = one(golden, "Deployment")["spec"]["template"]
    assert served["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {p["name"] for c in pod["spec"]["initContainers"] + pod["spec"]["containers"] for p in c.get("ports", ())}
    assert {e["port"] for e in served["spec"]["podMetricsEndpoints"]} == ports
    assert "app.kubernetes.io/instance" in pod["metadata"]["labels"]
    own_pods = helm.template({"monitoring": {"assumeInstalled": True, "podMonitor": {"enabled": True}}})
    assert one(own_pods, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"


def test_rules_are_those_of_the_file_with_the_users_labels(helm):
    source = yaml.safe_load((ROOT / "charts/qwen-cached-serve/files/alerts.yaml").read_text())
    asked = {"monitoring": {"assumeInstalled": True, "prometheusRule": {"enabled": True}}}
    made = one(helm.template(asked), "PrometheusRule")
    severities = {"page": "critical", "ticket": "warning"}
    for group in source["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["labels"]["severity"] = severities[rule["labels"]["severity"]]
    assert made["spec"] == source
    chosen = one(helm.template(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    alerts = {rule["alert"]: rule["labels"] for group in chosen for rule in group["rules"] if "alert" in rule}
    assert "QwenCachedServeSpecRefused" not in alerts
    assert alerts["QwenCachedServeUnavailable"] == {"severity": "high", "team": "ml"}
    assert alerts["QwenCachedServeCacheThrashing"] == {"severity": "low", "team": "ml"}


def test_dashboards_arrive_unchanged(helm):
    maps = of(helm.template({"monitoring": {"dashboards": {"enabled": True}}}), "ConfigMap")
    files = {name: text for config in maps for name, text in config["data"].items()}
    folder = ROOT / "charts/qwen-cached-serve/files/dashboards"
    assert {name: json.loads(text) for name, text in files.items()} == {
        path.name: json.loads(path.read_text()) for path in folder.glob("*.json")
    }
    assert all(config["metadata"]["labels"]["grafana_dashboard"] == "1" for config in maps)


def test_definitions_keep_and_are_those_of_crds(helm):
    sources = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    made = helm.template({"annotations": {"a": "b"}, "labels": {"c": "d"}}, chart=CRDS)
    assert [m["spec"] for m in made] == [s["spec"] for s in sources]
    for manifest in made:
        assert manifest["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"}
        assert manifest["metadata"]["labels"]["c"] == "d"
    [released] = helm.template({"keep": False}, chart=CRDS)
    assert "annotations" not in released["metadata"]


def test_notes_tell_the_next_step(helm):
    notes = helm.notes()
    assert "Unless it was installed a moment ago: helm install qwen-cached-serve-crds" in " ".join(notes.split())
    assert "kubectl -n qwen-cached-serve rollout status deployment/qwen-cached-serve-operator" in notes
    assert "engineImages.gpu is empty" in notes
    quiet = helm.notes({"engineImages": {"gpu": "x"}, "watchNamespaces": ["llm"]})
    assert "NOTE" not in quiet
    assert "kubectl apply -n llm" in quiet
    [resource] = [yaml.safe_load(text) for text in re.findall(r"<<'YAML'\n(.*?)\n  YAML", quiet, re.DOTALL)]
    assert resource["kind"] == "QwenCachedServe"
    assert "helm install qwen-cached-serve charts/qwen-cached-serve" in helm.notes(chart=CRDS)
    assert "WARNING: keep is false" in helm.notes({"keep": False}, chart=CRDS)
