"""Processes that a killed test run leaves behind: found by a mark in their environment, whatever session they are in.

Tests start engines in sessions of their own, as containers are; an interrupted pytest worker ends without a word to
them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

MARK = "QCS_TEST_RUN"
"""Environment variable that a run's processes inherit."""


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
    while pids := [pid for pid in marked(value) if pid not in ended]:
        for pid in pids:
            ended.append(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    return ended
