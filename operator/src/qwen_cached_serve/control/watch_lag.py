"""Watches that are dead while everything else looks alive (B55): told by what the API server has newer than the cache.

A watch that the API server refuses, or one that hangs somewhere on the way, is not an error anywhere: kopf tries again
for ever, and edits go unheard. A missing event proves nothing either, since there may be none. Only one sign is
certain: an object whose version of a while ago has not reached the cache yet. So whoever compares the cache with a list
tells it here, and an object that was late counts from then on, however often it changes meanwhile.

Time counts between comparisons that succeeded, and at most COUNTED_CHECKS checks' worth of it at once: while the API
server cannot be asked, a watch cannot be heard either, and is given its time afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from qwen_cached_serve.kube.port import Resource
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)

CHECK_SECONDS = 30.0
"""Between two looks at a kind that was late, and what an event may take without being called late: kopf waits up to
21 s between two tries of a refused request."""
COUNTED_CHECKS = 2

Place = tuple[Resource, str | None]


@dataclass(slots=True)
class _Late:
    """A version that the API server has and the cache has not."""

    version: int
    seconds: float = 0.0
    """For how long that was so at least."""


class WatchLag:
    """See the module's text.

    `dead_seconds`: how long a watch may be behind before only a new process is trusted with it; 0: for ever.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        dead_seconds: float,
        check_seconds: float = CHECK_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._dead = dead_seconds
        self.check_seconds = check_seconds
        self._now = monotonic
        self._late: dict[Place, dict[str, _Late]] = {}
        self._compared: dict[Place, float] = {}
        self._told: set[Resource] = set()

    def compared(self, place: Place, listed: Mapping[str, str], held: Mapping[str, str]) -> set[str]:
        """Take note of a comparison: versions by uid, as the API server and the cache have them.

        Return the uids of which the cache has lacked a version for so long that no event is on its way any more.
        """
        now = self._now()
        passed = min(now - self._compared.get(place, now), COUNTED_CHECKS * self.check_seconds)
        self._compared[place] = now
        before, found = self._late.get(place, {}), {}
        for uid in late(listed, held):
            known = before.get(uid)
            if known is not None and _number(held.get(uid, "")) < known.version:
                found[uid] = _Late(known.version, known.seconds + passed)
            else:
                found[uid] = _Late(_number(listed[uid]))
        self._late[place] = found
        self._publish(place[0])
        return {uid for uid, one in found.items() if self._sure(one)}

    def doubtful(self) -> tuple[Resource, ...]:
        """Return the kinds that are worth another look soon."""
        return tuple({place[0]: None for place, found in self._late.items() if found})

    def behind(self) -> str:
        """Return which watches are behind and since when, empty when none is known to be."""
        words = [f"{kind.kind} (for {seconds:.0f} s)" for kind, seconds in self._seconds().items()]
        return f"the API server has newer objects than the watch told: {', '.join(words)}" if words else ""

    def dead(self) -> str:
        """Return what only a new process may cure, empty when nothing is as far as that."""
        if not self._dead or max(self._seconds().values(), default=0.0) < self._dead:
            return ""
        return self.behind()

    def _seconds(self) -> dict[Resource, float]:
        """Return for each kind that is surely behind for how long it has been."""
        longest: dict[Resource, float] = {}
        for (kind, _), found in self._late.items():
            for one in found.values():
                if self._sure(one):
                    longest[kind] = max(longest.get(kind, 0.0), one.seconds)
        return longest

    def _sure(self, one: _Late) -> bool:
        return one.seconds >= self.check_seconds

    def _publish(self, kind: Resource) -> None:
        seconds = self._seconds().get(kind, 0.0)
        self._metrics.watch_behind(kind.kind, seconds)
        if seconds and kind not in self._told:
            self._told.add(kind)
            log.warning("a watch is behind", kind=kind.kind, seconds=round(seconds))
        elif not seconds and kind in self._told:
            self._told.discard(kind)
            log.info("a watch has caught up", kind=kind.kind)


def late(listed: Mapping[str, str], held: Mapping[str, str]) -> list[str]:
    """Return the uids of which the cache has an older version than the list, or none."""
    return [uid for uid, version in listed.items() if _number(held.get(uid, "")) < _number(version)]


def _number(version: str) -> int:
    # Versions of one kind can be compared as numbers (KEP-5504); one that is none is never called newer.
    return int(version) if version.isdecimal() else -1
