"""Where the engine listens: the pod's address families, as /proc tells them, and what a socket takes."""

from __future__ import annotations

import errno
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod import addresses
from qwen_cached_serve.inpod.addresses import wildcard
from qwen_cached_serve.inpod.loopback import ask
from tests.machine import unavailable

LOOPBACK = "00000000000000000000000000000001 01 80 10 80       lo"
LINK_LOCAL = "fe80000000000000fc00fffe00000001 04 40 20 80     eth0"
UNIQUE_LOCAL = "fd000000000000000000000000000002 04 40 00 82     eth0"
GLOBAL = "20010db8000000000000000000000002 02 40 00 80     eth0"
SITE_LOCAL = "fec00000000000000000000000000002 02 40 40 80     eth0"


def proc(folder: Path, *lines: str) -> Path:
    """A /proc with these IPv6 addresses."""
    (folder / "net").mkdir()
    (folder / "net/if_inet6").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return folder


@pytest.mark.parametrize(
    ("lines", "host"),
    [
        ((), "0.0.0.0"),
        ((LOOPBACK,), "0.0.0.0"),
        ((LOOPBACK, LINK_LOCAL), "0.0.0.0"),
        ((LINK_LOCAL, UNIQUE_LOCAL, LOOPBACK), "::"),
        ((GLOBAL,), "::"),
        ((SITE_LOCAL, LOOPBACK), "::"),
        (("", "nonsense"), "0.0.0.0"),
    ],
)
def test_only_a_pod_with_an_ipv6_address_listens_on_both(tmp_path: Path, lines: tuple[str, ...], host: str) -> None:
    assert wildcard(proc(tmp_path, *lines), takes_both=lambda: True) == host


def test_a_kernel_without_ipv6(tmp_path: Path) -> None:
    assert wildcard(tmp_path, takes_both=lambda: True) == "0.0.0.0"


def test_a_socket_for_ipv6_alone_would_shut_the_gate_out(tmp_path: Path) -> None:
    assert wildcard(proc(tmp_path, GLOBAL), takes_both=lambda: False) == "0.0.0.0"


class _Socket(socket.socket):
    only = 0
    error = 0

    def bind(self, address: Any) -> None:
        if self.error:
            raise OSError(self.error, "no")

    def getsockopt(self, level: int, option: int, *_: Any) -> Any:
        assert (level, option) == (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        return self.only


@pytest.mark.parametrize(
    ("only", "error", "host"),
    [
        (0, 0, "::"),
        (1, 0, "0.0.0.0"),  # sysctl net.ipv6.bindv6only
        (0, errno.EADDRNOTAVAIL, "0.0.0.0"),
        (0, errno.EAFNOSUPPORT, "0.0.0.0"),
    ],
)
def test_what_the_kernel_does_with_vllms_socket_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: int, error: int, host: str
) -> None:
    kind = type("Socket", (_Socket,), {"only": only, "error": error})
    monkeypatch.setattr(addresses.socket, "socket", lambda *_: kind(socket.AF_INET, socket.SOCK_STREAM))
    assert wildcard(proc(tmp_path, GLOBAL)) == host


class _Here(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


def test_the_pods_own_programs_reach_both_on_loopback(tmp_path: Path) -> None:
    """The socket as vLLM makes it: nothing is set, and the gate asks on 127.0.0.1."""
    if wildcard(proc(tmp_path, GLOBAL)) != "::":
        unavailable("this kernel has no socket for both families")

    class Server(HTTPServer):
        address_family = socket.AF_INET6

    with Server(("::", 0), _Here) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert ask(server.server_port, "/", timeout_seconds=10, limit_bytes=1).status == 200
        server.shutdown()
