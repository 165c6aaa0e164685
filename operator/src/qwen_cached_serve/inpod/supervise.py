"""The cache server's container: pid 1 that runs `lmcache server`, keeps it running, and serves the read-only relay.

A crash of the cache server must not take the engine out of the Service: a restarted native sidecar makes the pod not
Ready for about 12 s (facts/local-cluster.md §6), so the restart happens in here. Persistent failure ends the
container, with the server's last words as its termination message.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import BinaryIO

from .environment import quiet
from .facts import ServeSettings
from .layout import Layout
from .loopback import NoAnswer, ask
from .message import clean, error_message
from .processes import reap
from .programs import locate
from .relay import Relay, serve_in_background
from .restarts import GiveUp, Life, RestartPolicy, first_start

_TICK_SECONDS = 1.0
_HEALTH_TIMEOUT_SECONDS = 5.0
_HEALTH_EVERY_SECONDS = 5.0
_HUNG_SECONDS = 120.0
"""A server that answered once and then is silent that long is taken for hung (LMCache#4676) and killed."""
_STOP_SECONDS = 20.0
"""The server gets that long to end after SIGTERM; it needs about 4 (facts/lmcache.md §2.5)."""
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
_LAST_LINES = 20


@dataclass(slots=True)
class _Server:
    """A running server and what is known about it."""

    pid: int
    began: float
    words: deque[str]
    reader: threading.Thread
    answered_first: float | None = None
    answered_last: float | None = None
    asked_last: float = 0.0


@dataclass(slots=True)
class Supervisor:
    """Runs one command for the life of a container."""

    layout: Layout
    settings: ServeSettings
    command: list[str]
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    _server: _Server | None = None
    _start_at: float = 0.0
    _stopping: bool = False

    def run(self) -> int:
        """Supervise until SIGTERM (0) or persistent failure (1)."""
        # Signals are taken from a queue, one at a time, so that no handler runs in the middle of anything.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        ports = self.settings.ports
        try:
            relay = Relay(self.layout, ports.relay, ports.cache_server_http)
        except OSError as error:
            return self._give_up(f"its relay cannot listen on port {ports.relay}: {error.strerror}")
        with relay:
            serve_in_background(relay)
            try:
                return self._loop()
            finally:
                self._end()
                relay.shutdown()

    def _loop(self) -> int:
        self._start_at = first_start(time.time(), _modified(self.layout))
        while True:
            now = time.time()
            if self._server is None and not self._stopping and now >= self._start_at:
                self._server = self._spawn()
            caught = signal.sigtimedwait(_SIGNALS, _TICK_SECONDS)
            if caught is not None and caught.si_signo in (signal.SIGTERM, signal.SIGINT):
                return self._stop()
            status = self._reap()
            if status is not None:
                if (reason := self._ended(status)) is not None:
                    return self._give_up(reason)
            elif self._server is not None:
                self._check_health(self._server)
            self._renew()

    def _spawn(self) -> _Server:
        program = locate(self.command[0])
        read_end, write_end = os.pipe()
        try:
            pid = os.posix_spawn(
                program,
                [program, *self.command[1:]],
                quiet(os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 2)],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGPIPE),
            )
        finally:
            os.close(write_end)
        words: deque[str] = deque(maxlen=_LAST_LINES)
        reader = threading.Thread(target=_copy_lines, args=(os.fdopen(read_end, "rb"), words), daemon=True)
        reader.start()
        _say(f"cache server started (pid {pid})")
        return _Server(pid, time.time(), words, reader)

    def _reap(self) -> int | None:
        return reap(self._server.pid if self._server is not None else None)

    def _ended(self, status: int) -> str | None:
        """Note the end of the server; returns the reason to give up, if there is one."""
        server = self._server
        assert server is not None  # noqa: S101 - its pid was just reaped
        self._kill(signal.SIGKILL)  # what it started must not hold its ports
        server.reader.join(timeout=1.0)
        self._server = None
        now = time.time()
        decision = self.policy.after(Life(server.began, now, status, server.answered_first))
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        last = next((line for line in reversed(server.words) if line), "")
        if isinstance(decision, GiveUp):
            return f"{decision.reason} ({how}): {last}"
        self._start_at = decision.at
        _say(f"cache server ended ({how}): {last[:200]}; next start in {decision.at - now:.0f} s")
        return None

    def _check_health(self, server: _Server) -> None:
        now = time.time()
        if now - server.asked_last < (_HEALTH_EVERY_SECONDS if server.answered_first else _TICK_SECONDS):
            return
        server.asked_last = now
        port = self.settings.ports.cache_server_http
        try:
            answer = ask(port, "/healthcheck", timeout_seconds=_HEALTH_TIMEOUT_SECONDS, limit_bytes=1 << 16)
            healthy = answer.status == 200
        except NoAnswer:
            healthy = False
        now = time.time()
        if healthy:
            if server.answered_first is None:
                server.answered_first = now
                _say(f"cache server answers after {now - server.began:.1f} s")
            server.answered_last = now
            with contextlib.suppress(OSError):
                self.layout.alive.touch()
        elif server.answered_last is not None and now - server.answered_last > _HUNG_SECONDS:
            _say(f"cache server has not answered for {_HUNG_SECONDS:.0f} s: killing it")
            self._kill(signal.SIGKILL)

    def _renew(self) -> None:
        """End the server when the engine's start asks for another one; the request goes once it is dead."""
        if not self.layout.renewal.exists():
            return
        if self._server is not None:
            _say("the engine's start asks for a new cache server: this one keeps the memory of a dead engine")
            self._kill(signal.SIGKILL)
        self.layout.renewal.unlink(missing_ok=True)

    def _stop(self) -> int:
        self._stopping = True
        self._kill(signal.SIGTERM)
        deadline = time.time() + _STOP_SECONDS
        while self._server is not None and (left := deadline - time.time()) > 0:
            signal.sigtimedwait(_SIGNALS, min(left, _TICK_SECONDS))
            if self._reap() is not None:
                self._server = None
        if self._server is not None:
            _say(f"cache server did not end within {_STOP_SECONDS:.0f} s: killing it")
        return 0

    def _end(self) -> None:
        """Leave no server behind, nor its zombie."""
        if self._server is not None:
            self._kill(signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._server.pid, 0)
            self._server = None

    def _give_up(self, reason: str) -> int:
        _say(f"giving up on the cache server: {reason}")
        hint = "See the container's log; spec.cache.extraArgs and unsupported.cacheServerArgs are passed on as written."
        self.layout.write_termination_message(error_message("CacheServerFailed", reason, hint))
        return 1

    def _kill(self, number: signal.Signals) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._server.pid, number)


def _copy_lines(stream: BinaryIO, words: deque[str]) -> None:
    """Pass the server's stderr on and keep its last lines; a line may be long, memory may not."""
    with stream:
        while line := stream.readline(1 << 16):
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            words.append(clean(line[:1000].decode("utf-8", "replace")))


def _modified(layout: Layout) -> float | None:
    with contextlib.suppress(OSError):
        return layout.alive.stat().st_mtime
    return None


def _say(text: str) -> None:
    print(f"qcs cache-server: {text}", file=sys.stderr, flush=True)
