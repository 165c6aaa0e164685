"""Which address family the engine has to listen on: a pod's own address, which the kubelet probes, can be IPv6.

vLLM makes one socket, and an IPv6 one only when `--host` is an IPv6 address. Its socket keeps the kernel's default of
IPV6_V6ONLY, so that `::` takes IPv4 as well: the gate, the relay and the supervisor ask on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from .facts import IPV4_WILDCARD, IPV6_WILDCARD

_SCOPE_FIELD = 3
_ROUTED_SCOPES = (["00"], ["40"])
"""Global (fd00::/8 too) and site-local, of /proc/net/if_inet6; loopback is 10, link-local 20."""


def wildcard(proc: Path = Path("/proc"), takes_both: Callable[[], bool] | None = None) -> str:
    """`::` in a pod that has an IPv6 address and where its socket takes IPv4 too, `0.0.0.0` in every other.

    A pod without an IPv6 address keeps the command line it always had, whatever its kernel could do.
    """
    return IPV6_WILDCARD if _has_ipv6_address(proc) and (takes_both or _takes_both)() else IPV4_WILDCARD


def _has_ipv6_address(proc: Path) -> bool:
    with contextlib.suppress(OSError, UnicodeError):  # no IPv6 in this kernel
        addresses = [line.split() for line in (proc / "net/if_inet6").read_text(encoding="ascii").splitlines()]
        return any(address[_SCOPE_FIELD : _SCOPE_FIELD + 1] in _ROUTED_SCOPES for address in addresses)
    return False


def _takes_both() -> bool:
    """Make the socket that vLLM will make; nothing is set on it, as nothing is by vLLM."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.bind((IPV6_WILDCARD, 0))
        return sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 0
    return False
