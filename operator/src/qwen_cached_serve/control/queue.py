"""A work queue with client-go's guarantees, for asyncio.

The reconciler is level-triggered: a key says "look again", never what happened. Hence three rules (client-go's):

- a key that waits is there once, however often it is added (a burst of events costs one reconcile);
- a key is never worked on by two workers; added meanwhile, it is kept and handed out again after `done`;
- failures wait exponentially longer, with jitter, until `forget` (a broken resource must not starve the others).

One rule is not client-go's, whose client waits inside the request: a key on `hold` is not handed out before its time,
whatever happens. An API server that asked for time would otherwise hear from us again with the next event (B55).

Times are seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
import itertools
import random
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

BASE_DELAY_SECONDS = 0.2
MAX_DELAY_SECONDS = 300.0
JITTER = 0.25
"""Share of the delay that is random, so that resources that failed together do not come back together."""


class QueueObserver(Protocol):
    """What a queue tells its metrics (names of controller-runtime are the observer's business)."""

    def added(self, depth: int) -> None:
        """Tell that a key was taken in; `depth` keys wait now."""

    def started(self, depth: int, waited_seconds: float) -> None:
        """Tell that a worker took a key."""

    def finished(self, worked_seconds: float) -> None:
        """Tell that a worker is done with a key."""

    def retried(self) -> None:
        """Tell that a key was added after a failure."""


class ShutDown(Exception):  # noqa: N818 - it is the end of the queue, not an error
    """Raised by `get` when the queue was shut down and nothing is left to hand out."""


class WorkQueue(Generic[K]):
    """See the module's text. Not thread-safe: one event loop."""

    def __init__(
        self,
        *,
        observer: QueueObserver | None = None,
        rng: random.Random | None = None,
        base_delay_seconds: float = BASE_DELAY_SECONDS,
        max_delay_seconds: float = MAX_DELAY_SECONDS,
    ) -> None:
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._base = base_delay_seconds
        self._max = max_delay_seconds
        self._ready: collections.deque[K] = collections.deque()
        self._dirty: dict[K, float] = {}  # key -> when it was added
        self._processing: dict[K, float] = {}  # key -> when its worker began
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}  # key -> earliest time it is wanted
        self._held: dict[K, float] = {}  # key -> time before which it is not handed out
        self._heap: list[tuple[float, int, K]] = []
        self._ticket = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._wakeup = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is worked on (keys that are due later do not count)."""
        return not self._ready and not self._processing

    def processing_since(self) -> list[float]:
        """Return when each key that is worked on now was started (loop time), for the metrics of stuck workers."""
        return list(self._processing.values())

    def add(self, key: K) -> None:
        """Ask for `key` to be worked on as soon as possible."""
        if self._closed or key in self._dirty:
            return
        if (held := self._held_seconds(key)) > 0:
            self.add_after(key, held)
            return
        self._due.pop(key, None)  # it runs now, a later wish is answered by the same look
        self._dirty[key] = self._now()
        if key not in self._processing:
            self._ready.append(key)
            self._wakeup.set()
        if self._observer:
            self._observer.added(len(self._ready))

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Ask for `key` in `delay_seconds`; of several wishes the earliest holds."""
        delay_seconds = max(delay_seconds, self._held_seconds(key))
        if delay_seconds <= 0:
            self.add(key)
            return
        if self._closed or key in self._dirty:
            return  # it is looked at before that anyway, and that look has its own wishes
        due = self._now() + delay_seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._ticket), key))
        self._arm()

    def hold(self, key: K, delay_seconds: float) -> None:
        """Ask for `key`, which is worked on, in `delay_seconds` and not before, whatever is added meanwhile."""
        if key in self._processing:
            self._dirty.pop(key, None)  # the look that is asked for here answers what was added during this one
        self._held[key] = self._now() + delay_seconds
        self._due.pop(key, None)
        self.add_after(key, delay_seconds)

    def add_failed(self, key: K) -> float:
        """Ask for `key` again after a failure; return the delay in seconds, which grows until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is bounded: 2**1100 would overflow a float after days of failures.
        delay: float = min(self._max, self._base * 2.0 ** min(failures, 40))
        delay *= 1 - JITTER * self._rng.random()
        if self._observer:
            self._observer.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Forget the failures of `key`: the next one waits the shortest time again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often `key` failed since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Wait for a key to work on; the caller owes a `done`.

        Raises:
            ShutDown: the queue was shut down.

        """
        while not self._ready:
            if self._closed:
                raise ShutDown
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._ready.popleft()
        now = self._now()
        added = self._dirty.pop(key)
        self._processing[key] = now
        if self._observer:
            self._observer.started(len(self._ready), now - added)
        return key

    def done(self, key: K) -> None:
        """Hand `key` back; when it was added meanwhile it waits again at once."""
        started = self._processing.pop(key)
        if self._observer:
            self._observer.finished(self._now() - started)
        if key in self._dirty:
            self._ready.append(key)
            self._wakeup.set()

    def shut_down(self) -> None:
        """Take nothing in any more, drop what waits, and end every `get`."""
        self._closed = True
        self._ready.clear()
        self._dirty.clear()
        self._due.clear()
        self._held.clear()
        self._heap.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._wakeup.set()

    def _held_seconds(self, key: K) -> float:
        if key not in self._held:
            return 0.0
        left = self._held[key] - self._now()
        if left <= 0:
            del self._held[key]
        return max(0.0, left)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:  # else an entry that was overtaken
                del self._due[key]
                self.add(key)
        self._arm()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
