"""Processes that a killed test run leaves behind: found by a mark in their environment, whatever session they are in.

Tests start engines in sessions of their own, as containers are; an interrupted pytest worker ends without a word to
them.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "QCS_TEST_RUN"
"""Environment variable that a run's processes inherit."""
_QUIET_LOOKS = 3
_LOOK_AGAIN_SECONDS = 0.05
"""A process shows no environment for a moment while it becomes another program."""


def marked(value: str, proc: Path = Path("/proc")) -> list[int]:
    """Pids of all processes with this mark, without the asking one."""
    wanted = f"{MARK}={value}".encode()
    found = []
    for path in proc.glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile, or is not ours
        if wanted in variables and int(path.name) != os.getpid():
            found.append(int(path.name))
    return sorted(found)


def end(value: str) -> list[int]:
    """Kill all processes with this mark, those that they start meanwhile too; returns the pids that were found."""
    ended: list[int] = []
    quiet = 0
    while quiet < _QUIET_LOOKS:
        pids = [pid for pid in marked(value) if pid not in ended]
        quiet = 0 if pids else quiet + 1
        if not pids:
            time.sleep(_LOOK_AGAIN_SECONDS)
        for pid in pids:
            ended.append(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    return ended
