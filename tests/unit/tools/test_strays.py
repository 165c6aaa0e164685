"""What an interrupted test run leaves behind is found and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

from tests.unit.inpod.pod_folder import wait_for
from tools import strays

PARENT = """
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("on", flush=True)
input()
"""


def test_processes_in_other_sessions_are_ended_with_their_run() -> None:
    run = uuid.uuid4().hex
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    mine, other = (
        subprocess.Popen([sys.executable, "-c", PARENT], env={**os.environ, strays.MARK: mark}, text=True, **pipes)
        for mark in (run, f"{run}-other")
    )
    try:
        for process in (mine, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "on\n"
        wait_for(lambda: len(strays.marked(run)) == 2)
        assert mine.pid in strays.end(run)
        assert mine.wait() == -signal.SIGKILL
        wait_for(lambda: strays.marked(run) == [])
        assert other.poll() is None
    finally:
        # All of them, or what holds the pipes open would be waited for.
        strays.end(run)
        strays.end(f"{run}-other")
        for process in (mine, other):
            process.communicate()
