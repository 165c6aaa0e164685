"""The parent that stays while a container's program runs: it forwards signals, reaps orphans, returns the exit status.

The kernel drops a signal for pid 1 unless that process has a handler for it, and `vllm serve` has none while it imports
(20 to 90 s): as pid 1 it would use up the whole grace period (ADR 6). As a child it ends by the signal's default
action. The same holds where the pod shares one process namespace and this process is not pid 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .processes import reap

_PR_SET_PDEATHSIG = 1
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""What container runtimes stop with: SIGTERM, or the image's STOPSIGNAL."""
_FORWARDED = _STOPS | {signal.SIGUSR1, signal.SIGUSR2}
_WATCHED = _FORWARDED | {signal.SIGCHLD}
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
"""Left ignored by the interpreter; an ignored signal stays so in the program that is executed."""


@dataclass(frozen=True, slots=True)
class StartLimit:
    """How long the program may take until it can have clients."""

    ends: float
    """By `clock`."""
    overdue: Callable[[], int]
    """Says so, while the program still runs; returns the exit status for the container."""
    clock: Callable[[], float] = time.monotonic


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    begin: Callable[[], None],
    may_drain: Callable[[], bool],
    patience_seconds: float,
    limit: StartLimit,
) -> int:
    """Run `command` (its first word is a path) and return the exit status for the container, 128 + n for signal n.

    `begin` is called in the child before it becomes the program. A program that must stop and `may_drain` has all the
    time that the kubelet gives; any other has `patience_seconds` before it is killed. One that may not drain when its
    `limit` ends is told to stop in the same way.

    The calling process must have one thread, and has the signals of this module blocked afterwards.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Signals are taken from a queue, one at a time; blocked ones are kept even for pid 1.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    child = _spawn(command, environ, begin, former)
    status = _watch(child, may_drain, patience_seconds, limit)
    # What it started goes with it, also where a shared process namespace outlives this container's pid.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return status


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent's thread ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _spawn(
    command: Sequence[str], environ: Mapping[str, str], begin: Callable[[], None], mask: Iterable[signal.Signals | int]
) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        # On both sides, whichever comes first: the group must exist before somebody signals it.
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        return child
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() == parent:
            begin()
            for number in (*_FORWARDED, *_PYTHON_IGNORES):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execve(command[0], [*command], environ)  # noqa: S606
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def _watch(child: int, may_drain: Callable[[], bool], patience_seconds: float, limit: StartLimit) -> int:
    kill_at: float | None = None
    overdue_at: float | None = limit.ends
    verdict: int | None = None
    while (status := reap(child)) is None:
        number = _next_signal(overdue_at if kill_at is None else kill_at, limit.clock)
        if number is None and kill_at is not None:
            _say(f"the engine serves nobody and has not ended {patience_seconds:.0f} s after being told to: killing it")
            kill_at = overdue_at = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        elif number is None:
            overdue_at = None
            if not may_drain():
                verdict = limit.overdue()
                number = signal.SIGTERM
        if number in _FORWARDED:
            # Only the program itself: it stops its own workers in its own order.
            os.kill(child, number)
            if number in _STOPS and kill_at is None and not may_drain():
                kill_at = limit.clock() + patience_seconds
    if verdict is not None:
        return verdict
    if status < 0:
        _say(f"the engine was ended by signal {-status} ({signal.strsignal(-status)})")
        return 128 - status
    return status


def _next_signal(until: float | None, clock: Callable[[], float]) -> int | None:
    """Wait for a signal; None when the time has come first."""
    if until is None:
        return signal.sigwaitinfo(_WATCHED).si_signo
    caught = signal.sigtimedwait(_WATCHED, max(0.0, until - clock()))
    return caught.si_signo if caught else None


def _say(text: str) -> None:
    print(f"qcs engine: {text}", file=sys.stderr, flush=True)
