"""One stage of the probe: a child process with a time limit, ended with everything it started, whatever happens.

A hanging driver, a killed import or SIGTERM still end in one coded answer. The child has a process group of its own and
a temporary folder of its own; neither outlives the stage.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from .environment import quiet
from .processes import members
from .programs import CODE_FOLDER
from .refusal import Refusal

_GONE_SECONDS = 30.0
"""How long killed processes may take to go: a driver gives their GPU memory back first."""
_STOPS = (signal.SIGTERM, signal.SIGINT)


class Terminated(Exception):  # noqa: N818 - a signal, not an error
    """The probe was told to stop."""


class TimeIsUp(Exception):  # noqa: N818 - a limit, not an error
    """The stage took too long; the message names it."""


class Crashed(Exception):  # noqa: N818 - an observation
    """The child ended without an answer; `status` as subprocess tells it."""

    def __init__(self, status: int) -> None:
        what = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        super().__init__(f"the probe's child ended with {what} and no result")
        self.status = status


@contextlib.contextmanager
def stop_raises() -> Iterator[None]:
    """Let SIGTERM and SIGINT raise Terminated: pid 1 would ignore them otherwise."""

    def raise_terminated(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    former = {number: signal.signal(number, raise_terminated) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def run_stage(python: str, verb: str, deadline: float) -> dict[str, Any]:
    """Run `PYTHON CODE VERB RESULT` and return the JSON object that it wrote to RESULT.

    `deadline` is a time of the monotonic clock. To be called within `stop_raises`.

    Raises:
        Terminated, TimeIsUp, Crashed.

    """
    folder = child = None
    try:
        with _undisturbed():
            folder = Path(tempfile.mkdtemp(prefix="qcs-probe-"))
            result = folder / "result.json"
            child = subprocess.Popen(
                [python, str(CODE_FOLDER), verb, str(result)],
                env=quiet({**os.environ, "TMPDIR": str(folder)}),
                start_new_session=True,
                preexec_fn=_unblock,
            )
        try:
            status = child.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise TimeIsUp(verb) from error
        return _read(result, status)
    finally:
        with _undisturbed():
            if child is not None:
                _end_group(child)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def error_data(refusal: Refusal) -> dict[str, Any]:
    """What a child writes instead of its answer."""
    return {"error": {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}}


def _read(result: Path, status: int) -> dict[str, Any]:
    try:
        data = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Crashed(status) from error
    if not isinstance(data, dict):
        raise Crashed(status)
    if "error" in data:
        raise Refusal(data["error"]["code"], data["error"]["message"], data["error"]["hint"])
    return data


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back while something is made or cleaned that must not be left half done; they are not lost."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and whatever it started, and wait until the kernel has taken them and their memory away."""
    deadline = time.monotonic() + _GONE_SECONDS
    while (left := members(child.pid)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.05)
    child.poll()
    if left:
        pids = ", ".join(map(str, left))
        print(f"qcs probe: processes {pids} do not end; they may still hold the device", file=sys.stderr, flush=True)
