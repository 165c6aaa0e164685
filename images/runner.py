"""Runs the long commands of a build: output to a log file, a sign of life now and then, an end when we are ended."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SIGN_OF_LIFE_SECONDS = 15.0
_LOG_LINES_SHOWN = 40
_POLL_SECONDS = 0.5
_END_SECONDS = 10.0

Report = Callable[[str], None]


class BuildError(Exception):
    """An image cannot be built; the message says what to do or holds the end of the log."""


class Runner:
    """Runs commands for one or more threads and ends them all on `stop`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def report(self, line: str) -> None:
        """Says something to whoever watches."""
        self._report(line)

    def run(self, label: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """
        Runs a command; its output is appended to the log file.

        Raises BuildError with the last lines of the log when it fails or was stopped.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            with self._lock:
                if self._stopped:
                    raise BuildError(f"{label}: stopped")
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                self._wait(label, process, log)
            finally:
                with self._lock:
                    self._running.discard(process)
                end(process)
        if process.returncode:
            raise BuildError(f"{label}: {command[0]} ended with {process.returncode}; the end of {log}:\n{tail(log)}")

    def _wait(self, label: str, process: subprocess.Popen[bytes], log: Path) -> None:
        began = spoke = time.monotonic()
        while True:
            try:
                process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now - spoke >= SIGN_OF_LIFE_SECONDS:
                    spoke = now
                    self._report(f"{label}: {now - began:.0f} s, {tail(log, 1)[:120]}")
            else:
                return

    def stop(self) -> None:
        """Ends what runs; later commands are refused."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command if it still runs: asks first, since buildah unmounts what it mounted."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = _LOG_LINES_SHOWN) -> str:
    """The last lines of a log file that are not empty."""
    text = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in text if line.strip()][-lines:])
