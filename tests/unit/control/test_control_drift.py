"""What counts as drift, and what does not. The same comparison against a real API server:
tests/cluster/test_operator_port.py."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.control.drift import HASH_ANNOTATION, condensed, differences, manifest_hash, stamped

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "namespace": "n", "labels": {"a": "b"}},
    "spec": {
        "replicas": 2,
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {
            "spec": {
                "enableServiceLinks": False,
                "containers": [
                    {
                        "name": "engine",
                        "image": "i:1",
                        "args": ["a", "b"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "resources": {"requests": {"memory": "1024Mi", "cpu": "1000m"}},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
                "volumes": [
                    {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "2048Mi"}},
                    {"name": "w", "emptyDir": {}},
                ],
            }
        },
    },
}


def live():
    """The same Deployment with what an API server adds and respells."""
    made = copy.deepcopy(DEPLOYMENT)
    made["metadata"] |= {"uid": "u", "resourceVersion": "7", "annotations": {"deployment.kubernetes.io/revision": "1"}}
    made["spec"]["progressDeadlineSeconds"] = 600
    pod = made["spec"]["template"]["spec"]
    pod["dnsPolicy"] = "ClusterFirst"
    engine = pod["containers"][0]
    engine["resources"]["requests"] = {"memory": "1Gi", "cpu": "1"}
    engine["env"] = [{"name": "A", "value": "1"}, {"name": "B"}]
    engine["ports"][0]["protocol"] = "TCP"
    engine["terminationMessagePath"] = "/dev/termination-log"
    pod["volumes"][0]["emptyDir"]["sizeLimit"] = "2Gi"
    return made


@pytest.mark.case("B53")
def test_defaulted_fields_and_other_spellings_are_no_drift():
    assert differences(DEPLOYMENT, live()) == []


def test_what_others_add_is_theirs():
    made = live()
    made["metadata"]["annotations"]["team"] = "x"
    made["spec"]["template"]["spec"]["containers"].insert(0, {"name": "injected", "image": "proxy"})
    made["spec"]["template"]["spec"]["containers"][1]["env"].append({"name": "C", "value": "3"})
    assert differences(DEPLOYMENT, made) == []


CHANGES = {
    "spec.replicas": lambda d: d["spec"].update(replicas=7),
    "metadata.labels.a": lambda d: d["metadata"]["labels"].pop("a"),
    "spec.strategy.rollingUpdate.maxSurge": lambda d: d["spec"]["strategy"]["rollingUpdate"].update(maxSurge=1),
    "spec.template.spec.enableServiceLinks": lambda d: d["spec"]["template"]["spec"].update(enableServiceLinks=True),
    "spec.template.spec.containers[engine].image": lambda d: engine_of(d).update(image="i:2"),
    "spec.template.spec.containers[engine].args": lambda d: engine_of(d)["args"].append("c"),
    "spec.template.spec.containers[engine].args[0]": lambda d: engine_of(d)["args"].__setitem__(0, "z"),
    "spec.template.spec.containers[engine].env[A].value": lambda d: engine_of(d)["env"][0].update(value="2"),
    "spec.template.spec.containers[engine].env[B].value": lambda d: engine_of(d)["env"][1].update(value="x"),
    "spec.template.spec.containers[engine].resources.requests.memory": lambda d: engine_of(d)["resources"][
        "requests"
    ].update(memory="2Gi"),
    "spec.template.spec.containers[engine]": lambda d: d["spec"]["template"]["spec"].update(containers=[]),
    "spec.template.spec.volumes[v].emptyDir.sizeLimit": lambda d: d["spec"]["template"]["spec"]["volumes"][0][
        "emptyDir"
    ].update(sizeLimit="1Gi"),
}


def engine_of(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("path", CHANGES)
def test_each_change_of_a_stated_field_is_named(path):
    made = live()
    CHANGES[path](made)
    assert differences(DEPLOYMENT, made) == [path]


def test_only_the_first_few_are_named():
    made = live()
    made["spec"] = {}
    assert len(differences(DEPLOYMENT, made, limit=2)) == 2


def test_hash_does_not_depend_on_itself_or_on_order():
    once = stamped(DEPLOYMENT)
    assert once["metadata"]["annotations"][HASH_ANNOTATION] == manifest_hash(DEPLOYMENT)
    assert stamped(once) == once
    turned = {key: DEPLOYMENT[key] for key in reversed(DEPLOYMENT)}
    assert manifest_hash(turned) == manifest_hash(DEPLOYMENT)
    assert "annotations" not in DEPLOYMENT["metadata"]


def test_a_removed_field_changes_the_hash():
    smaller = copy.deepcopy(DEPLOYMENT)
    del engine_of(smaller)["env"][1]
    assert differences(stamped(smaller), stamped(live())) == [f"metadata.annotations.{HASH_ANNOTATION}"]


def test_condensed_config_maps_differ_with_their_data():
    one = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    same = {"kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": {"a": "1"}}
    other = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}}
    assert "data" not in condensed(one)
    assert differences(condensed(one), condensed(same)) == []
    assert differences(condensed(one), condensed(other)) == ["contentHash"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=3), json_values, max_size=4))
def test_nothing_differs_from_itself(value):
    assert differences(value, copy.deepcopy(value)) == []


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), json_values, max_size=4),
    st.dictionaries(st.text(min_size=4, max_size=5), json_values, max_size=4),
)
def test_additions_are_never_drift(value, added):
    assert differences(value, copy.deepcopy(value) | added) == []


@pytest.mark.parametrize(
    ("desired", "found", "same"),
    [
        ("1Gi", "1024Mi", True),
        ("1", "1000m", True),
        (1, "1", True),
        ("1e3", "1k", True),
        ("1G", "1Gi", False),
        ("0.5", "500m", True),
        ("abc", "abd", False),
        ("100E", "1", False),
    ],
)
def test_quantities_are_compared_by_amount(desired, found, same):
    differing = differences({"limits": {"memory": desired}}, {"limits": {"memory": found}})
    assert (differing == []) is same
    if desired != found:
        assert differences({"image": desired}, {"image": found}) == ["image"]


SELECTOR = {"matchLabels": {"a": "1"}}


@pytest.mark.parametrize(
    ("desired", "live", "found"),
    [
        ({"podSelector": SELECTOR}, {"podSelector": SELECTOR}, []),
        ({"podSelector": SELECTOR}, {"podSelector": {**SELECTOR, "matchExpressions": []}}, []),
        (
            {"podSelector": SELECTOR},
            {"podSelector": {"matchLabels": {"a": "1", "b": "2"}}},
            ["podSelector.matchLabels.b"],
        ),
        ({"selector": {"a": "1"}}, {"selector": {"a": "1", "b": "2"}}, ["selector.b"]),
        ({"selector": SELECTOR}, {"selector": {**SELECTOR, "matchExpressions": [{}]}}, ["selector.matchExpressions"]),
        ({"namespaceSelector": {}}, {"namespaceSelector": {"matchLabels": {"a": "1"}}}, ["namespaceSelector"]),
        ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "1", "b": "2"}}, []),  # theirs
    ],
)
def test_one_more_label_in_a_selector_is_a_difference(desired, live, found):
    assert differences(desired, live) == found


def test_one_more_port_in_a_policy_is_a_difference():
    port = {"port": 8000, "protocol": "TCP"}
    policy = {"spec": {"ingress": [{"ports": [port]}]}}
    assert differences(policy, {"spec": {"ingress": [{"ports": [port, {"port": 9}]}]}}) == ["spec.ingress[0].ports"]
    service = {"spec": {"ports": [port]}}
    assert differences(service, {"spec": {"ports": [port, {"port": 9}]}}) == []
