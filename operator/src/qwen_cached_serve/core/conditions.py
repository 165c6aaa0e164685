"""Conditions in the shape and with the manners of metav1.Condition.

`lastTransitionTime` moves only when `status` changes (KEP-1623), so that an unchanged judgement gives an unchanged
status and costs no write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

State = Literal["True", "False", "Unknown"]

TYPES = (
    "Ready",
    "Reconciling",
    "Stalled",
    "Available",
    "SpecAccepted",
    "Probed",
    "BlockSizeVerified",
    "CacheEffective",
    "CacheCompatible",
    "CapacityAvailable",
    "RevisionCurrent",
    "Validated",
)
"""Every condition that a status has, in the order in which it shows them."""

_MESSAGE_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Condition:
    """One statement, before it gets its times."""

    type: str
    status: State
    reason: str
    message: str

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"unknown condition type {self.type!r}")


def timed(
    conditions: Iterable[Condition], previous: Iterable[Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Give conditions their generation and transition times, keeping a former time while `status` stays the same."""
    before = {entry.get("type"): entry for entry in previous}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    dated = []
    for condition in sorted(conditions, key=lambda entry: TYPES.index(entry.type)):
        former = before.get(condition.type, {})
        same = former.get("status") == condition.status and former.get("lastTransitionTime")
        dated.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:_MESSAGE_CHARACTERS],
                "lastTransitionTime": former["lastTransitionTime"] if same else stamp,
                "observedGeneration": generation,
            }
        )
    return dated


def state_of(conditions: Iterable[Mapping[str, Any]], type_: str) -> Mapping[str, Any]:
    """Find a condition in a status; empty when it is not there."""
    return next((entry for entry in conditions if entry.get("type") == type_), {})
