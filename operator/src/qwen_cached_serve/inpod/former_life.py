"""What the cache server still holds of a former life of the engine, and the wait until it lets go of it.

The server maps the engine's KV memory (GPU memory by interprocess handles, on a CPU segments of /dev/shm) and may read
it as long as the engine is registered. A killed engine takes nothing back: it stays registered until the server misses
its heartbeat. One that was killed before its first heartbeat is kept for an hour; then the server has to go.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from .cache_server_flags import REAP_FLAG, REAP_SECONDS
from .loopback import NoAnswer, ask
from .refusal import Refusal
from .registrations import STATUS_LIMIT_BYTES, registered_ids
from .restarts import LONGEST_WAIT_SECONDS

SERVER_WAIT_SECONDS = LONGEST_WAIT_SECONDS + 120.0
"""A crashed server waits that long before its next life, which then has to start."""
LET_GO_SECONDS = 1.25 * REAP_SECONDS + 10.0
"""LMCache looks for silent workers four times within its reap time (v1/multiprocess/modules/management.py)."""
TAKEN_SECONDS = 10.0
"""For the supervisor to see a request; it looks every second."""
ASK_EVERY_SECONDS = 1.0


def registrations(port: int) -> list[str]:
    """Ids of the workers that the cache server holds; waits for a server that is away.

    Raises:
        Refusal: CacheServerFailed; the engine would wait for the server as well, and end with a longer story.

    """
    deadline = time.monotonic() + SERVER_WAIT_SECONDS
    told = False
    while True:
        try:
            return _held(port)
        except (NoAnswer, ValueError) as error:
            if time.monotonic() >= deadline:
                raise Refusal(
                    "CacheServerFailed",
                    f"the cache server has not answered for {SERVER_WAIT_SECONDS:.0f} s: {error}",
                    "See the container cache-server; spec.cache.mode Disabled serves without it.",
                ) from error
        if not told:
            print("qcs engine: waiting for the cache server", flush=True)
            told = True
        time.sleep(ASK_EVERY_SECONDS)


def let_go(port: int, ids: list[str], server_argv: list[str], seconds: float = LET_GO_SECONDS) -> bool:
    """Wait until none of the workers is registered any more, not longer than `seconds`; whether that is so.

    A server that does not look for silent workers is not waited for.
    """
    deadline = time.monotonic() + seconds
    left = set(ids)
    while left and REAP_FLAG in server_argv and time.monotonic() < deadline:
        with contextlib.suppress(NoAnswer, ValueError):  # hung, or between two lives: nothing is known then
            left &= set(_held(port))
        if left:
            time.sleep(ASK_EVERY_SECONDS)
    return not left


def renew(request: Path, port: int, ids: list[str], seconds: float = SERVER_WAIT_SECONDS) -> bool:
    """Have the supervisor start another cache server, which holds nothing; whether none of the workers is left.

    What L1 holds is lost, but an engine that finds no memory for itself would not start at all. Where nobody takes the
    request, nothing has happened.
    """
    request.touch()
    deadline = time.monotonic() + TAKEN_SECONDS
    while request.exists():
        if time.monotonic() >= deadline:
            request.unlink(missing_ok=True)
            return False
        time.sleep(ASK_EVERY_SECONDS)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(NoAnswer, ValueError):  # the next one is not up yet
            return not set(ids) & set(_held(port))
        time.sleep(ASK_EVERY_SECONDS)
    return False


def _held(port: int) -> list[str]:
    answer = ask(port, "/status", timeout_seconds=5.0, limit_bytes=STATUS_LIMIT_BYTES)
    return sorted(registered_ids(answer.body))
