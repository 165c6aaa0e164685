"""What the demo says: one line a step with its figures, progress while something takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Narrator:
    """Prints numbered steps, their figures and a sign of life; every line carries the elapsed minutes and seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._step = 0
        self._lock = threading.Lock()
        self.tty = sys.stdout.isatty()

    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._start

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self._print(f"\n[{self._stamp()}] {self._step}. {title}")

    def say(self, line: str) -> None:
        """One indented line below the current step; embedded newlines keep the indentation."""
        for part in line.rstrip().splitlines():
            self._print(f"         {part}")

    @contextmanager
    def waiting(self, what: str, every_seconds: float = 15.0) -> Iterator[Progress]:
        """Say `what` again every few seconds, with the last remark, until the block ends."""
        progress = Progress()
        stop = threading.Event()

        def beat() -> None:
            begun = time.monotonic()
            while not stop.wait(every_seconds):
                remark = f": {progress.remark}" if progress.remark else ""
                self.say(f"… {what} ({time.monotonic() - begun:.0f} s){remark}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            stop.set()
            thread.join()

    def _stamp(self) -> str:
        seconds = int(self.elapsed())
        return f"{seconds // 60:2d}:{seconds % 60:02d}"

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, flush=True)


class Progress:
    """The remark that the next sign of life carries."""

    def __init__(self) -> None:
        self.remark = ""
