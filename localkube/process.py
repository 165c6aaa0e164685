"""
Starts, watches and ends components (long-running child processes), and recognises them again later.

Every component carries ``LOCALKUBE_CLUSTER=<folder>`` in its environment; so do its own children (shims, CNI plugins).
That mark, not a remembered number, decides what belongs to a cluster: it survives a killed ``up`` and reused pids.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localkube import prereqs
from localkube.errors import ComponentDiedError, LocalKubeError

MARK = "LOCALKUBE_CLUSTER"
# A proxy of the machine cannot reach a cluster's own addresses (``hostnet.Block``).
_DIRECT = "localhost,127.0.0.1,10.96.0.0/16,10.99.0.0/16,10.244.0.0/16,.svc,.cluster.local"
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/<pid>/stat)."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The live process with that pid; None when there is none or it is a zombie."""
        stat = _stat(pid)
        return None if stat is None else cls(pid, stat)

    def alive(self) -> bool:
        """Whether it still runs; a dead child of ours is reaped on the way."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return _stat(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless the process is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> int | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return None if fields[0] in "ZX" else int(fields[19])


def start(argv: Sequence[str], log: Path, mark: Path, path: Sequence[Path] = ()) -> Process:
    """Start a component detached from the terminal, its output appended to ``log``."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KUBE", "NOTIFY_SOCKET"))}
    environment[MARK] = str(mark)
    environment |= direct(os.environ)
    environment["PATH"] = prereqs.search_path(*path)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        pid = os.posix_spawn(
            prereqs.which(argv[0]) or argv[0],
            list(argv),
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
        )
    except OSError as failed:
        raise LocalKubeError(f"{argv[0]} cannot be started: {failed.strerror}.") from failed
    finally:
        os.close(output)
    return Process.of(pid) or Process(pid, -1)  # -1 never matches: it ended at once and reads as dead


def direct(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep a proxy, where one is set, out of the way to the cluster's addresses."""
    found = {key: environment.get(key, "") for key in ("NO_PROXY", "no_proxy")}
    return {key: f"{value},{_DIRECT}" if value else _DIRECT for key, value in found.items()}


def wait_until(
    ready: Callable[[], bool], component: str, process: Process | None, log: Path, timeout_s: float, what: str = "ready"
) -> None:
    """Poll until ``ready()``; raise with the last log lines when the component ends or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if process is not None and not process.alive():
            raise ComponentDiedError(component, "ended while it was starting", tail(log))
        if time.monotonic() > deadline:
            raise ComponentDiedError(component, f"is not {what} after {timeout_s:.0f} s", tail(log))
        time.sleep(0.1)


def tail(log: Path, lines: int = 12) -> list[str]:
    """The last lines of a log, at most 300 characters each."""
    try:
        with log.open("rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - 64 * 1024))
            text = handle.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line[:300] for line in text.splitlines()[-lines:]]


def marked(mark: Path) -> list[Process]:
    """Every live process that carries the cluster's mark (only those this user may look into)."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and (p := Process.of(int(entry.name))):
                found.append(p)
    return found


def stop(processes: Iterable[Process], patience_s: float) -> None:
    """SIGTERM to all, wait up to ``patience_s`` seconds, SIGKILL to the rest, wait for their end."""
    rest = [p for p in processes if p.alive()]
    for number, patience in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        for process in rest:
            process.signal(number)
        deadline = time.monotonic() + patience
        while (rest := [p for p in rest if p.alive()]) and time.monotonic() < deadline:
            time.sleep(0.05)
    if rest:
        raise LocalKubeError(
            f"Processes {', '.join(str(p.pid) for p in rest)} do not end after SIGKILL.",
            "They wait in the kernel (a hung mount or device?); run `down` again when they are gone.",
        )
