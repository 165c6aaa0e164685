"""Events: said once, when a status turns into another one; never again while it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qwen_cached_serve.core.conditions import state_of


@dataclass(frozen=True, slots=True)
class Event:
    """One event about the resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Event, ...]:
    """Name what happened between two statuses."""
    events: list[Event] = []
    old = before.get("conditions") or ()
    new = after.get("conditions") or ()

    def turned(kind: str, status: str) -> Mapping[str, Any] | None:
        condition, former = state_of(new, kind), state_of(old, kind)
        return condition if condition.get("status") == status and former.get("status") != status else None

    probed, formerly = _probed(after), _probed(before)
    if probed and probed != formerly:
        events.append(Event("Normal", "Probed", state_of(new, "Probed").get("message", "")))
    started = _updated(after)
    if started and _updated(before) and started != _updated(before):
        events.append(Event("Normal", "RollStarted", f"Rolling out revision {started}."))
    if (condition := turned("Ready", "True")) and condition.get("reason") == "Serving":
        events.append(Event("Normal", "RollCompleted", condition["message"]))
    if condition := turned("Stalled", "True"):
        reason = "SpecRejected" if condition["reason"] == "InvalidSpec" else "StartFailed"
        events.append(Event("Warning", reason, condition["message"]))
    if condition := turned("CapacityAvailable", "False"):
        events.append(Event("Warning", "WaitingForCapacity", condition["message"]))
    if condition := turned("CacheCompatible", "False"):
        events.append(Event("Warning", "CompatibilityChanged", condition["message"]))
    return (*events, *_cache(old, new))


def _cache(old: Any, new: Any) -> list[Event]:
    now, then = state_of(new, "CacheEffective"), state_of(old, "CacheEffective")
    if now.get("status") == "False" and then.get("status") == "True" and now.get("reason") != "Disabled":
        return [Event("Warning", "CacheDetached", now["message"])]
    detached = then.get("status") == "False" and then.get("reason") not in ("Disabled", "BlockLargerThanContext")
    if now.get("status") == "True" and detached:
        return [Event("Normal", "CacheAttached", now["message"])]
    return []


def _probed(status: Mapping[str, Any]) -> int | None:
    value = (status.get("blockSize") or {}).get("probed")
    return value if isinstance(value, int) else None


def _updated(status: Mapping[str, Any]) -> str:
    return str((status.get("revision") or {}).get("updated") or "")
