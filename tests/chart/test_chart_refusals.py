"""Values that cannot be used: the sentence names the value and what to do instead."""

import json
import re

import pytest
import yaml

from tests.chart.helm_support import CRDS, OPERATOR, one

CASES = [
    ({"replicaCount": 3}, "replicaCount is called replicas here."),
    ({"installCRDs": True}, "the CustomResourceDefinition is in the chart qwen-cached-serve-crds"),
    ({"watchNamespace": "llm"}, "watchNamespace is called watchNamespaces here and is a list."),
    ({"extraArgs": ["--workers=8"]}, "every flag of the operator has an environment variable QCS_…"),
    (
        {"leaderElection": {"enabled": False}},
        "replicas: 2 with leaderElection.enabled: false: all of them would write at once. Set replicas to 1",
    ),
    ({"serviceAccount": {"create": False}}, "serviceAccount.create: false without serviceAccount.name"),
    (
        {"serviceAccount": {"create": False, "name": "x", "annotations": {"a": "b"}}},
        "serviceAccount.annotations with serviceAccount.create: false",
    ),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "podDisruptionBudget.maxUnavailable: 0 would block every drain"),
    (
        {"podDisruptionBudget": {"maxUnavailable": "0%"}},
        "podDisruptionBudget.maxUnavailable: 0 would block every drain",
    ),
    ({"customCA": {"configMap": "a", "secret": "b"}}, "customCA.configMap and customCA.secret: only one"),
    (
        {"monitoring": {"assumeInstalled": True, "serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
        "every operator pod would be scraped twice",
    ),
    (
        {
            "metricsService": {"enabled": False},
            "monitoring": {"assumeInstalled": True, "serviceMonitor": {"enabled": True}},
        },
        "monitoring.serviceMonitor.enabled needs the Service it selects. Set metricsService.enabled to true",
    ),
    (
        {"monitoring": {"prometheusRule": {"disabledAlerts": ["Nobody"]}}},
        "there is no alert Nobody. There are QwenCachedServeUnavailable, ",
    ),
    (
        {"monitoring": {"prometheusRule": {"alertLabels": {"severity": "x"}}}},
        "Set monitoring.prometheusRule.severities.page and .ticket.",
    ),
    (
        {"commonLabels": {"app.kubernetes.io/name": "x"}},
        "commonLabels: app.kubernetes.io/name selects the operator's pods",
    ),
    (
        {"podLabels": {"app.kubernetes.io/instance": "x"}},
        "podLabels: app.kubernetes.io/instance selects the operator's pods",
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]},
        "topologySpreadConstraints[0] has no whenUnsatisfiable",
    ),
    (
        {"extraEnv": [{"name": "QCS_NAMESPACES", "value": "llm"}]},
        "extraEnv: QCS_NAMESPACES is set by the value watchNamespaces. Use that.",
    ),
    ({"extraEnv": [{"name": "QCS_HEALTH_PORT", "value": "1"}]}, "extraEnv: QCS_HEALTH_PORT would break"),
    ({"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "extraEnv: A is there twice. Keep one."),
    # By the schema, before any template is looked at.
    ({"replicas": "2"}, "at '/replicas': got string, want integer"),
    ({"relpicas": 2}, "additional properties 'relpicas' not allowed"),
    ({"image": {"digest": "abc"}}, "at '/image/digest': 'abc' does not match pattern"),
    ({"image": {"repository": "qcs:1.0"}}, "at '/image/repository'"),
    ({"watchNamespaces": ["llm", "llm"]}, "at '/watchNamespaces': items at 0 and 1 are equal"),
    ({"watchNamespaces": ["LLM"]}, "at '/watchNamespaces/0'"),
    ({"log": {"level": "loud"}}, "at '/log/level': value must be one of 'debug', 'info', 'warning', 'error'"),
    ({"workers": 65}, "at '/workers': maximum: got 65, want 64"),
    ({"proxy": {"https": "proxy:3128"}}, "at '/proxy/https'"),
]


@pytest.mark.parametrize(("values", "sentence"), CASES, ids=lambda case: json.dumps(case)[:60])
def test_says_what_and_what_instead(helm, values, sentence):
    said = helm.refusal(values)
    assert " ".join(sentence.split()) in said
    if "at '" not in sentence and "additional" not in sentence:
        assert "These values cannot be used:" in said


@pytest.mark.parametrize("release", ["my.release", "1qcs", "a.b.c", "a" * 42 + "--b"])
def test_a_release_whose_name_is_no_services(helm, release):
    """Helm takes these names; the API server would refuse the Service, after the roles and the account were made."""
    said = helm.refusal({}, release=release)
    assert f"the release's name {release} cannot begin the name of a Service" in said
    assert "Set nameOverride, or name the release otherwise." in said
    made = helm.template({"nameOverride": "qcs"}, release=release)
    assert one(made, "Service")["metadata"]["name"].startswith("qcs-operator")


@pytest.mark.parametrize("release", ["q", "qcs-2", "a" * 53])
def test_other_names_of_releases_are_taken(helm, release):
    assert one(helm.template(release=release), "Service")["metadata"]["name"].startswith(release[:44])


@pytest.mark.parametrize("release", ["my.release", "1qcs"])
def test_definitions_are_named_after_no_release(helm, release):
    assert helm.template(chart=CRDS, release=release)


def test_all_problems_at_once(helm):
    said = helm.refusal({"replicaCount": 3, "leaderElection": {"enabled": False}, "dashboards": {}})
    assert said.count(" - ") == 3


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("serviceMonitor", "ServiceMonitor"),
        ("podMonitor", "PodMonitor"),
        ("servedPods", "PodMonitor"),
        ("prometheusRule", "PrometheusRule"),
    ],
)
def test_a_cluster_without_the_prometheus_operator_is_told(helm, value, kind):
    values = {"monitoring": {value: {"enabled": True}}}
    said = helm.refusal(values)
    assert f"monitoring.{value}.enabled: this cluster does not serve monitoring.coreos.com/v1 {kind}." in said
    assert f"--api-versions monitoring.coreos.com/v1/{kind}" in said, "the remedy is in the sentence"
    made = helm.template(values, options=("--api-versions", f"monitoring.coreos.com/v1/{kind}"))
    assert kind in {manifest["kind"] for manifest in made}


def test_nothing_of_the_prometheus_operator_unless_asked_for(helm):
    options = ("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor,monitoring.coreos.com/v1/PodMonitor")
    assert not [m for m in helm.template(options=options) if m["apiVersion"].startswith("monitoring")]


@pytest.mark.parametrize("chart", [OPERATOR, CRDS], ids=lambda path: path.name)
def test_lint_strict(helm, chart):
    said = helm.run("lint", "--strict", chart).stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert not re.search(r"\[(WARNING|ERROR)\]", said)


def test_the_schema_lets_pass_exactly_what_the_templates_explain():
    schema = json.loads((OPERATOR / "values.schema.json").read_text())
    checks = (OPERATOR / "templates" / "_checks.tpl").read_text()
    unknown = checks.partition('define "qcs.check.unknown"')[2].partition("{{- define")[0]
    explained = set(re.findall(r'^  "(\w+)" "', unknown, re.MULTILINE))
    former = {name for name, entry in schema["properties"].items() if entry["description"].startswith("Not a value")}
    assert former == explained
    assert not former & set(yaml.safe_load((OPERATOR / "values.yaml").read_text()))
