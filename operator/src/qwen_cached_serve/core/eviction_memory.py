"""What the status remembers of evictions, and how soon after them the next may come (DESIGN D9, D13).

An eviction is written down before it is sent, under the uid of its pod: a process that ends in between leaves a mark
that the next one finds, and sending it twice for one uid evicts once. The list is short and changes with evictions
only, so it costs no write while nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from qwen_cached_serve.core.records import moment

COMPATIBILITY = "CompatibilityChanged"
MISMATCH = "BlockSizeMismatch"

KEPT = 8
"""Enough for the limit of an hour and for a whole row of growing pauses."""
PER_HOUR = 3
PAUSE = timedelta(minutes=10)
LONGEST_PAUSE = timedelta(hours=6)
REMEMBERED = timedelta(hours=24)
"""Recycles longer ago do not lengthen the pause."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One pod that is replaced."""

    uid: str
    pod: str
    reason: str
    template: str
    """Hash of the pod template it was made from."""
    time: str
    """When it was decided, RFC 3339."""
    identity: str = ""
    target: str = ""
    """For `CompatibilityChanged`: the pod's own identity, and the newer one it gives way to."""
    held_back: str = ""
    """Why the API server did not let it go yet, in its own words."""


def remembered(status: Mapping[str, Any]) -> tuple[Eviction, ...]:
    """Read `status.evictions`, oldest first; entries that say nothing usable are dropped."""
    found = [
        Eviction(
            uid=str(entry.get("uid") or ""),
            pod=str(entry.get("pod") or ""),
            reason=str(entry.get("reason") or ""),
            template=str(entry.get("template") or ""),
            time=str(entry.get("time") or ""),
            identity=str(entry.get("identity") or ""),
            target=str(entry.get("target") or ""),
            held_back=str(entry.get("heldBack") or ""),
        )
        for entry in status.get("evictions") or ()
    ]
    return tuple(entry for entry in found if entry.uid and entry.pod and moment(entry.time))


def shown(memory: Sequence[Eviction]) -> list[dict[str, str]]:
    """Return `status.evictions`."""
    entries = []
    for one in memory[-KEPT:]:
        entry = {"uid": one.uid, "pod": one.pod, "reason": one.reason, "template": one.template, "time": one.time}
        optional = {"identity": one.identity, "target": one.target, "heldBack": one.held_back}
        entries.append(entry | {name: value for name, value in optional.items() if value})
    return entries


def not_before(memory: Sequence[Eviction], reason: str, template: str, now: datetime) -> datetime | None:
    """Return when the next eviction for `reason` may be decided, None when that is now.

    At most PER_HOUR in any hour, whatever they were for. Recycles of pods of one template also wait longer each time:
    a fault that comes back with every new pod is not healed by replacing pods.
    """
    times = sorted(made for made in (moment(one.time) for one in memory) if made)
    earliest = times[-PER_HOUR] + timedelta(hours=1) if len(times) >= PER_HOUR else now
    if reason != COMPATIBILITY:
        recycles = sorted(
            made
            for one in memory
            if one.reason != COMPATIBILITY and one.template == template
            if (made := moment(one.time)) and now - made < REMEMBERED
        )
        if recycles:
            pause = min(PAUSE * 2 ** (len(recycles) - 1), LONGEST_PAUSE)
            earliest = max(earliest, recycles[-1] + pause)
    return earliest if earliest > now else None


def stamp_of(time: datetime) -> str:
    """Return a time as conditions have it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
