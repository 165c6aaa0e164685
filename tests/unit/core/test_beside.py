"""What stands beside the pods: each child from the spec, and none of it a reason for a restart."""

import json

import pytest

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.beside import Readers
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.render import render_children

ON = {"networkPolicy": {"mode": "Enabled"}, "disruptionBudget": {}, "monitoring": {"podMonitor": "Enabled"}}
OPTIONAL_KINDS = {"NetworkPolicy", "PodDisruptionBudget", "PodMonitor"}


@pytest.fixture
def rendered(resource):
    """Manifests by kind, under an operator that knows where it and Prometheus run."""

    def make(spec=None, readers=Readers("qwen-system", ("monitoring", "observability")), **metadata):  # noqa: B008
        defaults = OperatorDefaults(readers=readers)
        made = render_children(children(resolve(parse(resource(spec, **metadata)), defaults), {}))
        return {manifest["kind"]: manifest for manifest in made}

    return make


def test_nothing_is_made_unless_asked_for(rendered):
    off = {"networkPolicy": {"mode": "Disabled"}, "monitoring": {"podMonitor": "Disabled"}}
    for spec in ({}, {"networkPolicy": {}, "monitoring": {"labels": {"a": "b"}}}, off):
        assert not OPTIONAL_KINDS & set(rendered(spec))
    assert set(rendered(ON)) >= OPTIONAL_KINDS


def test_pods_are_the_same_with_and_without(rendered):
    plain, full = rendered(), rendered(ON | {"service": {"annotations": {"a": "b"}}})
    assert full["Deployment"] == plain["Deployment"]
    assert full["ConfigMap"] == plain["ConfigMap"]
    assert full["Service"]["metadata"]["annotations"] == {**plain["Service"]["metadata"]["annotations"], "a": "b"}


def test_every_selector_is_that_of_the_pods(rendered):
    made = rendered(ON, name="qwen3.6-27b")
    pods = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        made["PodMonitor"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector == made["Deployment"]["spec"]["selector"]["matchLabels"]
        assert selector.items() <= pods.items()


OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "qwen-system"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "qwen-cached-serve-operator"}},
}
PROMETHEUS = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring", "observability"]}
        ]
    }
}


def test_the_policy_opens_the_engine_to_clients_and_figures_to_those_who_read_them(rendered):
    spec = rendered(ON)["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress"]  # pods reach the hub, names and L2 stores as before
    assert spec["ingress"] == [
        {"ports": [{"port": 8000, "protocol": "TCP"}]},
        {"ports": [{"port": 8081, "protocol": "TCP"}], "from": [OPERATOR, PROMETHEUS]},
    ]


def test_named_clients_do_not_shut_out_operator_and_prometheus(rendered):
    clients = [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"namespaceSelector": {}, "podSelector": {}}]
    policy = {"networkPolicy": {"mode": "Enabled", "allowedClients": clients}}
    [engine, relay] = rendered(policy)["NetworkPolicy"]["spec"]["ingress"]
    assert engine["from"] == [*clients, OPERATOR, PROMETHEUS]
    assert relay["from"] == [OPERATOR, PROMETHEUS]


@pytest.mark.parametrize(
    ("readers", "spec", "peers"),
    [
        (Readers("", ("monitoring",)), {}, 1),  # outside a cluster no selector names the operator
        (Readers("qwen-system", ()), {}, 1),
        (Readers("", ()), {}, None),  # an empty `from` would mean everybody
        (Readers("qwen-system"), {"cache": {"mode": "Disabled"}}, None),  # no cache server, no relay
    ],
)
def test_the_relay_is_open_to_known_readers_only(rendered, readers, spec, peers):
    ingress = rendered(ON | spec, readers)["NetworkPolicy"]["spec"]["ingress"]
    relay = [rule for rule in ingress if rule["ports"][0]["port"] == 8081]
    assert [len(rule["from"]) for rule in relay] == ([] if peers is None else [peers])


@pytest.mark.parametrize(("given", "stated"), [({}, 1), ({"maxUnavailable": "25%"}, "25%"), ({"maxUnavailable": 0}, 0)])
def test_the_budget_states_what_was_asked_and_never_protects_broken_pods(rendered, given, stated):
    spec = rendered({"disruptionBudget": given})["PodDisruptionBudget"]["spec"]
    assert spec["maxUnavailable"] == stated
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize(("value", "warned"), [(0, True), ("0%", True), ("00%", True), (1, False), ("10%", False)])
def test_a_budget_that_blocks_every_drain_is_noted(resolved, value, warned):
    warnings = resolved({"disruptionBudget": {"maxUnavailable": value}}).warnings
    assert any("no drain of a node ends" in warning for warning in warnings) is warned


def test_the_monitor_names_the_resource_on_every_series(rendered):
    monitoring = {"podMonitor": "Enabled", "interval": "1m", "labels": {"release": "prometheus"}}
    monitor = rendered({"monitoring": monitoring}, name="q" * 80)["PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    endpoints = monitor["spec"]["podMetricsEndpoints"]
    assert [(one["port"], one["path"], one["interval"]) for one in endpoints] == [
        ("http", "/metrics", "1m"),
        ("relay", "/metrics", "1m"),
    ]
    instance = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"]
    for endpoint in endpoints:
        # The chart's PodMonitor and its dashboards take the same label from the pods.
        assert endpoint["relabelings"][0] == {
            "action": "replace",
            "targetLabel": "qwencachedserve",
            "replacement": instance,
        }


def test_the_monitor_scrapes_no_relay_that_is_not_there(rendered):
    monitor = rendered({"monitoring": {"podMonitor": "Enabled"}, "cache": {"mode": "Disabled"}})["PodMonitor"]
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["http"]


@pytest.mark.case("B51")
def test_nothing_of_the_resources_own_metadata_reaches_them(rendered):
    made = rendered(ON, labels={"crew": "x"}, annotations={"argocd.argoproj.io/tracking-id": "x"})
    assert "argocd" not in json.dumps(made)
    assert "crew" not in json.dumps([made[kind] for kind in OPTIONAL_KINDS])
