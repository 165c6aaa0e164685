"""Processes that have ended: told by /proc, where they stay until their parent collects them, and collected."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")
_START_TIME_FIELD = 22
"""Of /proc/PID/stat, counted from 1."""
_ENDED = ("Z", "X")
"""States of processes that run no more (proc(5)): they hold no memory and answer nobody."""


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Clock ticks after boot at which the process began; None when there is none of that number, or it has ended."""
    try:
        # The command's name stands in parentheses and may hold anything; the fields after it may not.
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in _ENDED else int(fields[_START_TIME_FIELD - 3])
    except (OSError, ValueError, IndexError):
        return None


def reap(child: int | None) -> int | None:
    """Collect everything that has ended, orphans that pid 1 inherits included.

    Returns the child's exit status, -n for signal n, when it is among them.
    """
    ended = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                ended = os.waitstatus_to_exitcode(status)
    return ended
