"""A pod's folders on this host, and its verbs as the real processes that they are in a container."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.layout import Layout

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], seconds: float = 60, every: float = 0.05) -> T:
    """Wait until a condition gives something true; the limit is for a broken program, not for a slow machine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(every)
    raise AssertionError(f"nothing came within {seconds} s")


def members(session: int) -> list[int]:
    """Living processes of a session: what a container would hold."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _alive_in(path, session)]


def kill_all(session: int) -> None:
    """End every process of a session as the kernel ends a container: at once, whatever group it is in."""
    while found := members(session):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _alive_in(process: Path, session: int) -> bool:
    try:
        state, _parent, _group, found = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return False
    return int(found) == session and state not in "ZX"


class PodFolder:
    """The mounts of one pod below a folder."""

    def __init__(self, root: Path, settings: ServeSettings, python: str = sys.executable) -> None:
        self.root, self.python, self.programs = root, python, root / "fake-bin"
        self.layout = Layout(root / "code", root / "state", root / "shm", root / "termination-log")
        for folder in (self.layout.code, self.layout.state, self.layout.shm, self.programs):
            folder.mkdir(parents=True, exist_ok=True)
        self.write(settings)
        self.running: list[subprocess.Popen[str]] = []

    def write(self, settings: ServeSettings) -> None:
        """Write the ConfigMap's files."""
        for name, text in bundle.files_for(settings).items():
            path = self.layout.code / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def fake_program(self, name: str, text: str) -> None:
        """Put a fake program first on PATH; `text` is Python."""
        path = self.programs / name
        path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        path.chmod(0o755)

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment of a container, the same in every test: an engine's variables are part of its identity."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "QCS_CODE_DIR": str(self.layout.code),
            "QCS_STATE_DIR": str(self.layout.state),
            "QCS_SHM_DIR": str(self.layout.shm),
            "QCS_TERMINATION_LOG": str(self.layout.termination_log),
            **(more or {}),
        }

    def start(
        self, verb: str, more: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a verb, by the command `within` if there is one; its output goes to `<verb>.log`."""
        with self.log(verb).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*within, self.python, str(self.layout.code), verb],
                env=self.environ(more),
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def run(
        self, verb: str, more: Mapping[str, str] | None = None, seconds: float = 600, arguments: Sequence[str] = ()
    ) -> tuple[int, str]:
        """Run a verb to its end: status and output."""
        done = subprocess.run(
            [self.python, str(self.layout.code), verb, *arguments],
            env=self.environ(more),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return done.returncode, done.stdout + done.stderr

    def log(self, verb: str) -> Path:
        """Where a started verb writes."""
        return self.root / f"{verb}.log"

    def said(self, verb: str) -> str:
        """What a started verb has written so far."""
        return self.log(verb).read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End everything that was started here and still runs."""
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                kill_all(process.pid)
                process.wait()
