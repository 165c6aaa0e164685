"""What the cache server still holds of a former life of the engine, and the wait until it lets go of it.

The server maps the engine's KV memory (GPU memory by interprocess handles, on a CPU segments of /dev/shm). A killed
engine takes nothing back, so its memory stays taken until the server misses its heartbeat; an engine that starts sooner
finds too little of it and ends.
"""

from __future__ import annotations

import time

from .cache_server_flags import REAP_FLAG, REAP_SECONDS
from .loopback import NoAnswer, ask
from .refusal import Refusal
from .registrations import STATUS_LIMIT_BYTES, registered_ids
from .restarts import LONGEST_WAIT_SECONDS

SERVER_WAIT_SECONDS = LONGEST_WAIT_SECONDS + 120.0
"""A crashed server waits that long before its next life, which then has to start."""
LET_GO_SECONDS = 1.25 * REAP_SECONDS + 10.0
"""LMCache looks for silent workers four times within its reap time (v1/multiprocess/modules/management.py). One that
was killed before its first heartbeat is kept for an hour, which no start waits for.
"""
ASK_EVERY_SECONDS = 1.0


def registrations(port: int) -> list[str]:
    """Ids of the workers that the cache server holds; waits for a server that is away.

    Raises:
        Refusal: CacheServerFailed; the engine would wait for the server as well, and end with a longer story.

    """
    deadline = time.monotonic() + SERVER_WAIT_SECONDS
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
        time.sleep(ASK_EVERY_SECONDS)


def wait_until_let_go(port: int, ids: list[str], server_argv: list[str], seconds: float = LET_GO_SECONDS) -> str:
    """Wait until none of the workers is registered any more, not longer than `seconds`; returns a line for the log.

    Empty when there was nothing to wait for: no former life, or a server that does not look for silent workers.
    """
    if not ids or REAP_FLAG not in server_argv:
        return ""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        try:
            if not set(ids) & set(_held(port)):
                return f"the cache server let go of a former life's memory after {waited:.0f} s"
        except (NoAnswer, ValueError):
            pass  # a server that has ended holds nothing, and the next one is asked
        time.sleep(ASK_EVERY_SECONDS)
    return f"the cache server still holds a former life's memory after {waited:.0f} s; going on"


def _held(port: int) -> list[str]:
    answer = ask(port, "/status", timeout_seconds=5.0, limit_bytes=STATUS_LIMIT_BYTES)
    return sorted(registered_ids(answer.body))
