"""Rules about rolls, the Service and what is not implemented yet around them."""

from __future__ import annotations

import re

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import not_implemented
from qwen_cached_serve.api.v1alpha1 import defaults

_NONE = ("0", "0%", "00%")


def _moves(rollout: Node) -> bool:
    surge = str(rollout.get("maxSurge", defaults.MAX_SURGE))
    unavailable = str(rollout.get("maxUnavailable", defaults.MAX_UNAVAILABLE))
    return surge not in _NONE or unavailable not in _NONE


def _is_pods(node: Node) -> bool:
    if isinstance(node, int):
        return node >= 0
    return re.fullmatch(r"(100|[0-9]{1,2})%", node) is not None


RULES = (
    not_implemented(
        "spec.monitoring",
        "podMonitor",
        "Enabled",
        instead="remove monitoring.podMonitor or set it to Disabled, and scrape the pods' ports by your own PodMonitor",
        base={"podMonitor": "Disabled"},
    ),
    not_implemented(
        "spec.networkPolicy",
        "mode",
        "Enabled",
        instead="remove networkPolicy.mode or set it to Disabled, and apply a NetworkPolicy of your own",
        base={"mode": "Disabled"},
    ),
    Rule(
        name="disruptionBudget-not-implemented",
        scopes=("spec",),
        cel="!has(self.disruptionBudget)",
        holds=lambda spec: "disruptionBudget" not in spec,
        field=".disruptionBudget",
        problem="disruptionBudget is not implemented yet",
        remedy="remove it and apply a PodDisruptionBudget of your own",
        accepts=({},),
        rejects=({"disruptionBudget": {"maxUnavailable": 1}}, {"disruptionBudget": {}}),
    ),
    Rule(
        name="rollout-pods",
        scopes=("spec.rollout.maxSurge", "spec.rollout.maxUnavailable"),
        cel=f"type(self) == int ? self >= 0 : self.matches({quote('^(100|[0-9]{1,2})%$')})",
        holds=_is_pods,
        problem="not a number of pods",
        remedy="write a number such as 1, or a quoted percentage such as '25%'",
        accepts=({"rollout": {"maxSurge": 1, "maxUnavailable": "25%"}}, {"rollout": {"maxSurge": "100%"}}),
        rejects=(
            {"rollout": {"maxSurge": -1}},
            {"rollout": {"maxUnavailable": "1"}},
            {"rollout": {"maxUnavailable": "101%"}},
            {"rollout": {"maxSurge": "-1%"}},
        ),
    ),
    Rule(
        name="rollout-moves",
        scopes=("spec.rollout",),
        cel=(
            f"!((has(self.maxSurge) ? string(self.maxSurge) : '{defaults.MAX_SURGE}') in {list(_NONE)} && "
            f"(has(self.maxUnavailable) ? string(self.maxUnavailable) : '{defaults.MAX_UNAVAILABLE}') in {list(_NONE)})"
        ),
        holds=_moves,
        field=".maxUnavailable",
        problem="rollout.maxSurge and rollout.maxUnavailable are both 0, so no roll could ever begin",
        remedy="set rollout.maxUnavailable: 1, or rollout.maxSurge: 1 where free GPUs exist",
        accepts=({"rollout": {"maxUnavailable": 0, "maxSurge": 1}}, {"rollout": {}}),
        rejects=({"rollout": {"maxUnavailable": 0}}, {"rollout": {"maxUnavailable": "0%", "maxSurge": "0%"}}),
    ),
)
