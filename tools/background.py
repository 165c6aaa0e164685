"""Long builds beside the first tests: started in the background, logged to a file, waited for with signs of life."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

_END_BYTES = 4096
_LINE_CHARACTERS = 140


class BackgroundBuild:
    """A chain of commands run one after the other in a thread; the first failure ends it."""

    def __init__(self, name: str, commands: list[list[str]], log: Path) -> None:
        self.name = name
        self._commands = commands
        self._log = log
        self._done = [threading.Event() for _ in commands]
        self._failed: list[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait(self, stage: int = -1) -> float:
        """
        Wait for a command of the chain (the last by default); returns the seconds spent waiting.

        Raises:
            RuntimeError: it failed; the message holds the end of its log.

        """
        begun, said = time.monotonic(), time.monotonic()
        while not self._done[stage].wait(1.0):
            if self._failed:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])
                raise RuntimeError(f"`{' '.join(self._failed)}` failed; the end of {self._log}:\n{tail}")
            if time.monotonic() - said >= 30:
                said = time.monotonic()
                print(f"… waiting for {self.name} ({said - begun:.0f} s): {last_line(self._log)}", flush=True)
        return time.monotonic() - begun

    def stop(self) -> None:
        """End what still runs."""
        self._stopped = True
        if self._process and self._process.poll() is None:
            self._process.terminate()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        for command, done in zip(self._commands, self._done, strict=True):
            if self._stopped:
                return
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
                if self._process.wait():
                    self._failed = command
                    return
            done.set()


def last_line(log: Path) -> str:
    """The end of a log that grows, for a sign of life."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:_LINE_CHARACTERS] if lines else "starting"
