"""When a crashed cache server is started again, and when the container gives up: a pure decision over what happened.

A restart waits until the engine must have noticed the outage. Its heartbeat asks every T seconds and waits T seconds
for the answer, and a new server answers "all well" to an engine that it does not know: an outage shorter than 2 T
stays unnoticed and caching stays off without an error (LMCache#4642). So a server is down for 2 T + 1 seconds at
least, in whichever way it went away, and from then on the engine registers again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engine_flags import HEARTBEAT_SECONDS

NOTICED_OUTAGE_SECONDS = 2 * HEARTBEAT_SECONDS + 1.0
LONGEST_WAIT_SECONDS = 60.0
GIVE_UP_AFTER_LIVES = 4
"""Lives in a row that ended without the server ever having answered."""
STABLE_SECONDS = 120.0
"""A life that answered that long ends the series of short ones."""
BAD_ARGUMENTS_STATUS = 2
"""argparse's exit status: another try cannot help."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the server; times are seconds of one clock."""

    began: float
    ended: float
    status: int
    answered_first: float | None
    """When it first answered healthy; None if never."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again once `at` is reached."""

    at: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the container; the kubelet starts it anew with its own back-off, and the status shows why."""

    reason: str


@dataclass(slots=True)
class RestartPolicy:
    """Remembers how the lives before went."""

    outage_seconds: float = NOTICED_OUTAGE_SECONDS
    never_answered: int = 0
    short_lives: int = 0

    def after(self, life: Life) -> Restart | GiveUp:
        """Decide after the end of a life."""
        if life.answered_first is None:
            self.never_answered += 1
            if life.status == BAD_ARGUMENTS_STATUS:
                return GiveUp("it refuses its arguments")
            if self.never_answered >= GIVE_UP_AFTER_LIVES:
                return GiveUp(f"it ended {self.never_answered} times without ever having answered")
        else:
            self.never_answered = 0
        stable = life.answered_first is not None and life.ended - life.answered_first >= STABLE_SECONDS
        self.short_lives = 0 if stable else self.short_lives + 1
        backoff = 0.0 if self.short_lives <= 1 else min(LONGEST_WAIT_SECONDS, 2.0**self.short_lives)
        return Restart(life.ended + max(self.outage_seconds, backoff))


def first_start(now: float, last_answer: float | None) -> float:
    """When to start the first server of a container: at once, unless one in a former container answered just before."""
    if last_answer is None or last_answer > now:
        return now
    return max(now, last_answer + NOTICED_OUTAGE_SECONDS)
