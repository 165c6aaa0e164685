"""Read-only HTTP relay on the pod's address: what may be read of the cache server, and nothing else.

The cache server's own API stays on loopback, since it hands out its environment and runs code for anyone (DESIGN §3).
Served: GET /healthcheck, /status, /metrics (passed on) and /report (probe's report and both argument vectors,
secrets masked: anybody who reaches the pod may read it).
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .facts import dump
from .layout import Layout
from .loopback import NoAnswer, ask
from .redact import redact_arguments
from .refusal import Refusal

PASSED_ON = ("/healthcheck", "/status", "/metrics")
_REPORT = "/report"

UPSTREAM_TIMEOUT_SECONDS = 5.0
CLIENT_TIMEOUT_SECONDS = 10.0
"""A client that sends or reads more slowly is dropped."""
LIMIT_BYTES = 4 << 20
CONCURRENT_REQUESTS = 16


class Relay(ThreadingHTTPServer):
    """The server; `port` 0 takes a free one (tests), `server_address` has it then."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, layout: Layout, port: int, upstream_port: int, *, host: str | None = None) -> None:
        self.layout = layout
        self.upstream_port = upstream_port
        self._slots = threading.BoundedSemaphore(CONCURRENT_REQUESTS)
        self.address_family = socket.AF_INET
        if host is None:
            # One socket for both families where the node has IPv6: a pod's address can be either.
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind for IPv4 as well when the address is IPv6's wildcard."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a request when one of the few places is free; drop it otherwise, so that nothing piles up."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread could not be started, so nobody else gives the place back
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one request and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    server_version = "qcs-relay"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_SECONDS

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in PASSED_ON:
            self._pass_on(path)
        elif path == _REPORT:
            self._report()
        else:
            self._answer(404, _error(f"only {', '.join((*PASSED_ON, _REPORT))} are served here"))

    def _refuse(self) -> None:
        self.close_connection = True
        self._answer(405, _error("only GET is served here"), {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer methods that nobody knows like those that are known and refused."""
        if code == 501:
            self._refuse()
        else:
            super().send_error(code, message, explain)

    def _pass_on(self, path: str) -> None:
        try:
            answer = ask(
                self.server.upstream_port, path, timeout_seconds=UPSTREAM_TIMEOUT_SECONDS, limit_bytes=LIMIT_BYTES
            )
        except NoAnswer as reason:
            self._answer(503, _error(f"the cache server does not answer: {reason}"))
            return
        self._answer(answer.status, answer.body, {"Content-Type": answer.content_type})

    def _report(self) -> None:
        layout = self.server.layout
        try:
            content = {
                "report": dump(layout.report()),
                "engineArgv": redact_arguments(layout.engine_argv()),
                "cacheServerArgv": redact_arguments(layout.cache_server_argv()),
            }
        except Refusal as refusal:
            self._answer(503, _error(refusal.message))
            return
        self._answer(200, json.dumps(content).encode("utf-8"))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        self.send_response(status)
        for name, value in {**sent, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Probes come every few seconds: no access log."""


def _error(text: str) -> bytes:
    return json.dumps({"error": text}).encode("utf-8")


def serve_in_background(relay: Relay) -> threading.Thread:
    """Serve in a daemon thread until `relay.shutdown()`."""
    thread = threading.Thread(target=relay.serve_forever, name="qcs-relay", daemon=True)
    thread.start()
    return thread
