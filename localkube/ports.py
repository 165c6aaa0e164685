"""Free TCP ports for servers, away from the range the kernel hands to outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Sequence

from localkube.errors import LocalKubeError

_FIRST, _LAST = (
    20000,
    32000,
)  # below Linux's default ephemeral range (32768-60999) and Kubernetes' other well-known ports
_TRIES = 500


def choose(names: Sequence[str], address: str, taken: Iterable[int] = ()) -> dict[str, int]:
    """One port per name, free on ``address`` now and not in ``taken`` (of clusters that start beside us)."""
    used = set(taken)
    chosen: dict[str, int] = {}
    source = random.SystemRandom()
    for _ in range(_TRIES):
        if len(chosen) == len(names):
            return chosen
        port = source.randint(_FIRST, _LAST)
        if port not in used and _free(address, port):
            chosen[names[len(chosen)]] = port
            used.add(port)
    raise LocalKubeError(f"No free TCP ports on {address} between {_FIRST} and {_LAST}.", "End what listens there.")


def _free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
