"""Processes that have ended: told by /proc, where they stay until their parent collects them, and collected."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")
_SESSION_FIELD, _START_TIME_FIELD = 3, 19
"""Of /proc/PID/stat, counted from the state, which is 0 (proc(5) counts from 1 and has it third)."""
_ENDED = ("Z", "X")
"""States of processes that run no more (proc(5)): they hold no memory and answer nobody."""


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Clock ticks after boot at which the process began; None when there is none of that number, or it has ended."""
    fields = _running(proc / str(pid))
    return int(fields[_START_TIME_FIELD]) if fields else None


def members(session: int, proc: Path = PROC) -> list[int]:
    """Pids of the processes of a session that have not ended."""
    found = ((int(path.name), _running(path)) for path in proc.glob("[0-9]*"))
    return [pid for pid, fields in found if fields and int(fields[_SESSION_FIELD]) == session]


def _running(path: Path) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none when there is no such process, or it has ended."""
    try:
        # The command's name stands in parentheses and may hold anything; the fields after it may not.
        fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > _START_TIME_FIELD and fields[0] not in _ENDED else []


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
