"""Rules about labels and annotations, and about the node selector and the security context of the pods."""

from __future__ import annotations

import re

from qwen_cached_serve.api.base import LABEL_KEY, LABEL_VALUE
from qwen_cached_serve.api.rules.placement import LABEL_SELECTORS
from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import pod

_DOMAIN = "qwencache.dev"
_OWN_KEYS = tuple(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "part-of", "managed-by"))


def _keys_valid(entries: Node) -> bool:
    return all(re.fullmatch(LABEL_KEY, key) for key in entries)


def _values_valid(entries: Node) -> bool:
    return all(re.fullmatch(LABEL_VALUE, value) for value in entries.values())


def _keys_free(entries: Node) -> bool:
    return not any(
        key in _OWN_KEYS or key.split("/")[0] == _DOMAIN or key.split("/")[0].endswith(f".{_DOMAIN}") for key in entries
    )


def _spread_over(labels: Node) -> Node:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {**constraint, "labelSelector": {"matchLabels": labels}}


RULES = (
    Rule(
        name="pod-keys",
        scopes=(
            "spec.pod.labels",
            "spec.pod.annotations",
            "spec.pod.nodeSelector",
            "spec.service.annotations",
            "spec.monitoring.labels",
            *(f"{selector}.matchLabels" for selector in LABEL_SELECTORS),
        ),
        cel=f"self.all(key, key.matches({quote(f'^{LABEL_KEY}$')}))",
        holds=_keys_valid,
        problem="a key is not a qualified name",
        remedy="write an optional DNS domain and a slash, then at most 63 letters, digits, dots, dashes, underscores",
        accepts=(pod(labels={"team": "a", "example.com/team": "a"}, nodeSelector={"kubernetes.io/os": "linux"}),),
        rejects=(
            pod(labels={"my team": "a"}),
            pod(annotations={"/x": "a"}),
            pod(nodeSelector={"a/b/c": "d"}),
            pod(topologySpreadConstraints=[_spread_over({"a b": "c"})]),
            {"service": {"annotations": {"a b": "c"}}},
            {"monitoring": {"labels": {"a b": "c"}}},
        ),
    ),
    Rule(
        name="pod-label-values",
        scopes=(
            "spec.pod.labels",
            "spec.pod.nodeSelector",
            "spec.monitoring.labels",
            *(f"{selector}.matchLabels" for selector in LABEL_SELECTORS),
        ),
        cel=f"self.all(key, self[key].matches({quote(f'^{LABEL_VALUE}$')}))",
        holds=_values_valid,
        problem="a value is not a label value",
        remedy="use at most 63 letters, digits, dots, dashes, underscores, with a letter or digit at both ends",
        accepts=(pod(labels={"a": "", "b": "v1.2_x"}, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L40S"}),),
        rejects=(
            pod(labels={"model": "Qwen/Qwen3.6-27B"}),
            pod(nodeSelector={"a": "two words"}),
            pod(topologySpreadConstraints=[_spread_over({"a": "-"})]),
            {"monitoring": {"labels": {"release": "two words"}}},
            {"networkPolicy": {"allowedClients": [{"podSelector": {"matchLabels": {"a": "-"}}}]}},
        ),
    ),
    Rule(
        name="pod-own-keys",
        scopes=("spec.pod.labels", "spec.pod.annotations", "spec.service.annotations", "spec.monitoring.labels"),
        cel=(
            f"!self.exists(key, key in {list(_OWN_KEYS)} || key.split('/')[0] == '{_DOMAIN}' || "
            f"key.split('/')[0].endsWith('.{_DOMAIN}'))"
        ),
        holds=_keys_free,
        problem=f"keys below {_DOMAIN} and the usual app.kubernetes.io keys are set by the operator",
        remedy="choose a key of your own",
        accepts=(pod(labels={"app.kubernetes.io/version": "1"}, annotations={"example.com/x": "y"}),),
        rejects=(
            pod(labels={"app.kubernetes.io/name": "x"}),
            pod(annotations={"qwencache.dev/revision": "x"}),
            pod(labels={"a.qwencache.dev/b": "x"}),
            {"service": {"annotations": {"qwencache.dev/name": "x"}}},
            {"monitoring": {"labels": {"app.kubernetes.io/managed-by": "x"}}},
        ),
    ),
    Rule(
        name="pod.securityContext-root",
        scopes=("spec.pod.securityContext",),
        cel="!(self.?runAsNonRoot.orValue(false) && self.?runAsUser.orValue(1000) == 0)",
        holds=lambda context: not (context.get("runAsNonRoot", False) and context.get("runAsUser", 1000) == 0),
        field=".runAsUser",
        problem="pod.securityContext.runAsUser is 0 while runAsNonRoot is true, so no container could start",
        remedy="choose another user or set runAsNonRoot: false",
        accepts=(
            pod(securityContext={"runAsUser": 0}),
            pod(securityContext={"runAsUser": 1000, "runAsNonRoot": True}),
        ),
        rejects=(pod(securityContext={"runAsUser": 0, "runAsNonRoot": True}),),
    ),
    Rule(
        name="pod.securityContext-profile",
        scopes=("spec.pod.securityContext.seccompProfile", "spec.pod.securityContext.appArmorProfile"),
        cel="(self.type == 'Localhost') == has(self.localhostProfile)",
        holds=lambda profile: (profile["type"] == "Localhost") == ("localhostProfile" in profile),
        field=".localhostProfile",
        problem="localhostProfile goes with type Localhost, which needs it",
        remedy="set both or neither",
        accepts=(pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),),
        rejects=(
            pod(securityContext={"seccompProfile": {"type": "Localhost"}}),
            pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}),
        ),
    ),
)
