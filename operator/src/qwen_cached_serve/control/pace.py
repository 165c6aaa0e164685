"""How often a status is written: what says something new at once, what repeats itself twice a minute.

Fifty pods that flap between two kinds of nodes change figures, pods and conditions every second, and each write costs
the API server, etcd and everybody who watches. So a resource has a stock of BURST writes, which fills up again at
PER_MINUTE, and at once with a new generation of the spec, since somebody is looking then:

- a status whose headline (conditions without their words, revision, evictions) was not written within NEWS_SECONDS is
  news and goes while the stock lasts;
- a status whose answers (True or False of ANSWERS) differ from the last one written goes while a quarter of it is left:
  `kubectl wait`, Argo CD and alerts hang on those, and a pod that restarted and serves again says nothing new by it;
- any other goes while half of it is left, and then as long as fewer than PER_MINUTE were written within a minute.

A status that has to wait is not lost: whatever is true when its time comes is written.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen_cached_serve.control.cache import Key

PER_MINUTE = 2
BURST = 20
NEWS_SECONDS = 600.0
ANSWERS = frozenset({"Ready", "Available", "Stalled", "Reconciling"})
"""Conditions that people and tools wait for."""


@dataclass(slots=True)
class _Written:
    """What was written about one resource."""

    generation: int
    stock: float = float(BURST)
    at: float = 0.0
    """When `stock` was counted."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=PER_MINUTE))
    headlines: dict[str, float] = field(default_factory=dict)
    """When each was last written."""
    answers: tuple[str, ...] = ()
    """Those of the last status written."""


class Pace:
    """See the module's text. `clock` gives seconds; when it is set back, nothing waits longer than a minute for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._written: dict[Key, _Written] = {}

    def wait_seconds(self, key: Key, status: Mapping[str, Any]) -> float:
        """Return how long this status has to wait, 0 when it may go now."""
        known, now = self._of(key, status), self._now()
        empty = max(0.0, (1.0 - known.stock) * 60.0 / PER_MINUTE)
        if now - known.headlines.get(headline(status), -NEWS_SECONDS) >= NEWS_SECONDS:
            return empty
        reserve = BURST / 4 if answers(status) != known.answers else BURST / 2
        if known.stock >= reserve:
            return 0.0
        crowded = known.recent[0] + 60.0 - now if len(known.recent) == PER_MINUTE else 0.0
        return min(60.0, max(0.0, empty, crowded))

    def wrote(self, key: Key, status: Mapping[str, Any]) -> None:
        """Take note of a write."""
        known, now = self._of(key, status), self._now()
        known.stock -= 1.0
        known.recent.append(now)
        known.headlines[headline(status)] = now
        known.answers = answers(status)
        for old in [one for one, at in known.headlines.items() if now - at >= NEWS_SECONDS]:
            del known.headlines[old]

    def forget(self, key: Key) -> None:
        """Drop what is known of a resource that is gone."""
        self._written.pop(key, None)

    def _of(self, key: Key, status: Mapping[str, Any]) -> _Written:
        now, generation = self._now(), int(status.get("observedGeneration") or 0)
        known = self._written.get(key)
        if known is None or known.generation != generation:
            known = self._written[key] = _Written(generation, at=now)
        known.stock = min(float(BURST), known.stock + max(0.0, now - known.at) * PER_MINUTE / 60.0)
        known.at = now
        return known


def answers(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a status answers to those who wait for it."""
    return tuple(
        sorted(f"{one['type']}={one['status']}" for one in status.get("conditions") or () if one["type"] in ANSWERS)
    )


def headline(status: Mapping[str, Any]) -> str:
    """Return what of a status is news when it changes."""
    conditions = [[one["type"], one["status"], one["reason"]] for one in status.get("conditions") or ()]
    evictions = [[one["uid"], "heldBack" in one] for one in status.get("evictions") or ()]
    return json.dumps([conditions, status.get("revision"), evictions], sort_keys=True)
