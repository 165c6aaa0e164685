"""Events: said once, when a status turns into another one; never again while it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qwen_cached_serve.core.conditions import state_of
from qwen_cached_serve.core.eviction_memory import COMPATIBILITY, MISMATCH, Eviction
from qwen_cached_serve.core.podstate import NOT_REGISTERED, SERVER_DOWN


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
    events += [
        Event("Normal", "Tuned", f"{one['name']}: {one.get('reason', '')}")
        for one in after.get("tuning") or ()
        if one not in (before.get("tuning") or ())
    ]
    events += _roll(before, after)
    if condition := turned("Stalled", "True") or _rolled_back(old, new):
        events.append(Event("Warning", _stalled_reason(condition["reason"], after), condition["message"]))
    if condition := turned("CapacityAvailable", "False"):
        events.append(Event("Warning", "WaitingForCapacity", condition["message"]))
    if condition := turned("CacheCompatible", "False"):
        events.append(Event("Warning", "CompatibilityChanged", condition["message"]))
    elif state_of(old, "CacheCompatible").get("status") != "False":
        events += _other_identity(before.get("revision") or {}, after.get("revision") or {})
    return (*events, *_cache(old, new))


def _other_identity(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Event]:
    """Tell that all pods have turned into others on the same revision: a single one that was replaced, for instance."""
    former, found = then.get("identity"), now.get("identity")
    if not former or not found or former == found or then.get("updated") != now.get("updated"):
        return []
    words = (
        f"The pods of revision {now['updated']} have identity {found} now and had {former} before, although the spec "
        "did not change: a tag has moved, or the node has another driver. What they stored before is not read any more."
    )
    return [Event("Warning", "CompatibilityChanged", words)]


def _roll(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Event]:
    """Tell the beginning and the end of a roll, and of the first start."""
    then, now = before.get("roll") or {}, after.get("roll") or {}
    held = state_of(after.get("conditions") or (), "Stalled").get("reason") in ("RolledBack", *_BLOCKED)
    if now and now.get("to") != then.get("to") and not held:
        instead = f" in place of {now['from']}" if now.get("from") else ""
        return [Event("Normal", "RollStarted", f"Rolling out revision {now['to']}{instead}.")]
    done, former = _current(after), _current(before)
    pods = after.get("availableReplicas")
    if done and done != former and not now and pods and (then or not former):
        return [Event("Normal", "RollCompleted", f"Revision {done} is rolled out: {pods} pods serve it.")]
    return []


def recycled(eviction: Eviction) -> Event:
    """Say that a pod was let go."""
    return Event("Normal", "PodRecycled", f"Pod {eviction.pod} is replaced: {_RECYCLED[eviction.reason]}.")


_RECYCLED = {
    COMPATIBILITY: "newer pods of the same spec have another compatibility identity",
    MISMATCH: "its programs run with another block size than its probe found",
    NOT_REGISTERED: "its engine was not registered with its cache server any more",
    SERVER_DOWN: "its cache server did not come back",
}


def _rolled_back(old: Any, new: Any) -> Mapping[str, Any] | None:
    """Return Stalled when it was so before for another reason: a rollback usually answers a roll that is stuck."""
    condition = state_of(new, "Stalled")
    reasons = (state_of(old, "Stalled").get("reason"), condition.get("reason"))
    return condition if reasons[0] != reasons[1] == "RolledBack" else None


def _stalled_reason(reason: str, status: Mapping[str, Any]) -> str:
    if reason in _STALLED_REASONS:
        return _STALLED_REASONS[reason]
    # Pods of the revision before still serve: nothing failed but the roll.
    revision = status.get("revision") or {}
    return "RollHeld" if revision.get("current") not in (None, revision.get("updated")) else "StartFailed"


_BLOCKED = ("NewerFormat", "HoldUnknown", "RevisionUnreadable")
"""Reasons for which the operator changes nothing (`core.revision.Blocked`)."""
_STALLED_REASONS = {
    "InvalidSpec": "SpecRejected",
    "RolledBack": "RolledBack",
    **dict.fromkeys(("NameTaken", "ApplyRefused", "OptionalChildRefused"), "ChildRefused"),
    **dict.fromkeys(_BLOCKED, "RollHeld"),
}


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


def _current(status: Mapping[str, Any]) -> str:
    return str((status.get("revision") or {}).get("current") or "")
