"""One tier's tests as a process of its own, which nothing outlives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from tools import strays

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
INTERRUPTED_SECONDS = 90.0
"""For pytest to end after an interrupt: less than the lane that it belongs to is given (tools.lanes)."""


def pytest(tier: str, *options: str, env: dict[str, str] | None = None) -> int:
    """One tier's tests with a JUnit report."""
    report = BUILD / "reports" / f"{tier}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", f"tests/{tier}", f"--junitxml={report}", "--durations=5", *options]
    mark = uuid.uuid4().hex
    # In a session of its own: a terminal's Ctrl-C would reach it beside ours, and a second one ends its fixtures early.
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(env or {}), strays.MARK: mark}, start_new_session=True
    )
    try:
        return process.wait()
    except BaseException:
        # Interrupted: its fixtures may take down what they have started, then the rest goes.
        process.send_signal(signal.SIGINT)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPTED_SECONDS)
        finally:
            strays.end(mark)
        process.wait()
        raise
