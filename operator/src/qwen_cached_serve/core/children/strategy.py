"""How the Deployment replaces its pods (DESIGN D11), and what it may not be told while it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.core.resolve import Resolved

RECREATE = "Recreate"
_ONE_BY_ONE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def strategy(resolved: Resolved) -> dict[str, Any]:
    """Return the strategy that a resource asks for."""
    surge, unavailable = resolved.max_surge, resolved.max_unavailable
    if resolved.replicas <= 1 and surge in (0, "0%"):
        # One GPU, one pod: the new one can only be scheduled when the old one is gone (B30).
        return {"type": RECREATE}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def strategy_now(asked: Mapping[str, Any], replica_sets_in_use: int) -> Mapping[str, Any]:
    """Return the strategy to apply while that many ReplicaSets of the Deployment have replicas.

    Recreate never has two of them. Scaled to one or none in the middle of a rolling update, a Deployment gets it then,
    and its controller does nothing any more: it first wants to bring the replicas into line with the new number, which
    it does for one ReplicaSet or for a rolling update (`scale` of pkg/controller/deployment/sync.go, seen with 1.36).
    So what was begun as a rolling update ends as one.
    """
    if asked.get("type") == RECREATE and replica_sets_in_use > 1:
        return _ONE_BY_ONE
    return asked
