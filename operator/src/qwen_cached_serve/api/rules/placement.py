"""Rules about where the pods go: tolerations, affinity, topology spread."""

from __future__ import annotations

import re

from qwen_cached_serve.api.rules.rule import Node, Rule
from qwen_cached_serve.api.rules.shapes import pod

_TERMS = "DuringSchedulingIgnoredDuringExecution"
_NODE_TERMS = (
    f"spec.pod.affinity.nodeAffinity.required{_TERMS}.nodeSelectorTerms[]",
    f"spec.pod.affinity.nodeAffinity.preferred{_TERMS}[].preference",
)
_POD_TERMS = tuple(
    f"spec.pod.affinity.{kind}.{term}"
    for kind in ("podAffinity", "podAntiAffinity")
    for term in (f"required{_TERMS}[]", f"preferred{_TERMS}[].podAffinityTerm")
)
LABEL_SELECTORS = (
    *(f"{term}.{field}" for term in _POD_TERMS for field in ("labelSelector", "namespaceSelector")),
    "spec.pod.topologySpreadConstraints[].labelSelector",
    *(f"spec.networkPolicy.allowedClients[].{field}" for field in ("podSelector", "namespaceSelector")),
)
"""Scopes of all label selectors."""


def _toleration_valid(toleration: Node) -> bool:
    exists = toleration.get("operator") == "Exists"
    return (exists or toleration.get("key", "") != "") and not (exists and toleration.get("value", "") != "")


def _seconds_valid(toleration: Node) -> bool:
    return "tolerationSeconds" not in toleration or toleration.get("effect") == "NoExecute"


def _requirement_valid(requirement: Node) -> bool:
    values = requirement.get("values", ())
    if requirement["operator"] in {"Gt", "Lt"}:
        return len(values) == 1 and re.fullmatch(r"-?[0-9]{1,18}", values[0]) is not None
    return bool(values) == (requirement["operator"] in {"In", "NotIn"})


def _label_requirement_valid(requirement: Node) -> bool:
    return bool(requirement.get("values")) == (requirement["operator"] in {"In", "NotIn"})


def _required_nodes(*requirements: Node) -> dict[str, Node]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def _spread(**fields: object) -> dict[str, Node]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return pod(topologySpreadConstraints=[{**constraint, **fields}])


def _selected(**fields: object) -> dict[str, Node]:
    return _spread(labelSelector=fields)


def _near(**fields: object) -> dict[str, Node]:
    return pod(affinity={"podAffinity": {f"required{_TERMS}": [{"topologyKey": "zone", **fields}]}})


RULES = (
    Rule(
        name="pod.tolerations-operator",
        scopes=("spec.pod.tolerations[]",),
        cel=(
            "(self.?operator.orValue('Equal') == 'Exists' || self.?key.orValue('') != '') && "
            "(self.?operator.orValue('Equal') != 'Exists' || self.?value.orValue('') == '')"
        ),
        holds=_toleration_valid,
        problem="a toleration with operator Exists has no value, and only with Exists the key may be absent",
        remedy="set operator: Exists without a value, or key and value",
        accepts=(pod(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),),
        rejects=(
            pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            pod(tolerations=[{"value": "b"}]),
        ),
    ),
    Rule(
        name="pod.tolerations-seconds",
        scopes=("spec.pod.tolerations[]",),
        cel="!has(self.tolerationSeconds) || self.?effect.orValue('') == 'NoExecute'",
        holds=_seconds_valid,
        field=".effect",
        problem="tolerationSeconds counts with effect NoExecute only",
        remedy="set effect: NoExecute or remove tolerationSeconds",
        accepts=(pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),),
        rejects=(pod(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]),),
    ),
    Rule(
        name="pod.affinity-node-values",
        scopes=tuple(f"{term}.matchExpressions[]" for term in _NODE_TERMS),
        cel=(
            "self.operator in ['In', 'NotIn'] ? self.?values.orValue([]).size() > 0 : "
            "self.operator in ['Gt', 'Lt'] ? (self.?values.orValue([]).size() == 1 && "
            "self.values[0].matches('^-?[0-9]{1,18}$')) : self.?values.orValue([]).size() == 0"
        ),
        holds=_requirement_valid,
        field=".values",
        problem="operators In and NotIn need values, Gt and Lt exactly one integer, Exists and DoesNotExist none",
        remedy="correct values or the operator",
        accepts=(
            _required_nodes({"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "Exists"}),
            _required_nodes({"key": "a", "operator": "Gt", "values": ["8"]}),
        ),
        rejects=(
            _required_nodes({"key": "a", "operator": "In"}),
            _required_nodes({"key": "a", "operator": "Exists", "values": ["b"]}),
            _required_nodes({"key": "a", "operator": "Gt", "values": ["many"]}),
        ),
    ),
    Rule(
        name="pod-selector-values",
        scopes=tuple(f"{selector}.matchExpressions[]" for selector in LABEL_SELECTORS),
        cel="(self.operator in ['In', 'NotIn']) == (self.?values.orValue([]).size() > 0)",
        holds=_label_requirement_valid,
        field=".values",
        problem="operators In and NotIn need values, Exists and DoesNotExist take none",
        remedy="correct values or the operator",
        accepts=(
            _selected(matchExpressions=[{"key": "a", "operator": "In", "values": ["b"]}]),
            _near(labelSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        ),
        rejects=(
            _selected(matchExpressions=[{"key": "a", "operator": "NotIn"}]),
            _near(labelSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        ),
    ),
    Rule(
        name="pod.affinity-label-keys",
        scopes=_POD_TERMS,
        cel="has(self.labelSelector) || (!has(self.matchLabelKeys) && !has(self.mismatchLabelKeys))",
        holds=lambda term: "labelSelector" in term or not {"matchLabelKeys", "mismatchLabelKeys"} & set(term),
        field=".labelSelector",
        problem="matchLabelKeys and mismatchLabelKeys add to a labelSelector, and there is none",
        remedy="add labelSelector or remove the keys",
        accepts=(_near(labelSelector={"matchLabels": {"a": "b"}}, matchLabelKeys=["c"]),),
        rejects=(_near(matchLabelKeys=["c"]), _near(mismatchLabelKeys=["c"])),
    ),
    Rule(
        name="pod.topologySpreadConstraints-minDomains",
        scopes=("spec.pod.topologySpreadConstraints[]",),
        cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
        holds=lambda constraint: "minDomains" not in constraint or constraint["whenUnsatisfiable"] == "DoNotSchedule",
        field=".minDomains",
        problem="minDomains counts with whenUnsatisfiable DoNotSchedule only",
        remedy="set whenUnsatisfiable: DoNotSchedule or remove minDomains",
        accepts=(_spread(minDomains=2),),
        rejects=(_spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),),
    ),
)
