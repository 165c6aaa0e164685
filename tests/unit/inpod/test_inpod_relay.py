"""The relay: four paths, GET only, bounded, and a cache server that is slow, large or away."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from qwen_cached_serve.inpod import relay as relay_module
from qwen_cached_serve.inpod.facts import ProbeReport, dump, dumps
from qwen_cached_serve.inpod.layout import Layout
from qwen_cached_serve.inpod.relay import Relay, serve_in_background

Http = Callable[..., tuple[int, bytes]]


class FakeCacheServer(ThreadingHTTPServer):
    """A fake of the cache server's HTTP API that answers everything, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FakeHandler)
        self.asked: list[tuple[str, str]] = []
        self.size = 0


class _FakeHandler(BaseHTTPRequestHandler):
    server: FakeCacheServer

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path))
        body = b"x" * self.server.size or self.path.encode()
        self.send_response(503 if self.path == "/healthcheck" else 200)
        self.send_header("Content-Type", "text/x-fake")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[FakeCacheServer]:
    with FakeCacheServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def url(upstream: FakeCacheServer, layout: Layout) -> Iterator[str]:
    with Relay(layout, 0, upstream.server_address[1]) as server:
        serve_in_background(server)
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_three_paths_are_passed_on_with_their_status(url: str, upstream: FakeCacheServer, http: Http) -> None:
    assert http(f"{url}/healthcheck") == (503, b"/healthcheck")
    assert http(f"{url}/status") == (200, b"/status")
    assert http(f"{url}/metrics?name=x") == (200, b"/metrics")  # what follows the ? is not passed on
    assert upstream.asked == [("GET", "/healthcheck"), ("GET", "/status"), ("GET", "/metrics")]


@pytest.mark.parametrize(
    "path",
    ["/env", "/run_script", "/cache/clear", "/", "/status/", "/status/../env", "/Status", "/%73tatus", "/config"],
)
def test_nothing_else_is_served(url: str, upstream: FakeCacheServer, http: Http, path: str) -> None:
    assert http(f"{url}{path}")[0] == 404
    assert upstream.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_is_written(url: str, upstream: FakeCacheServer, http: Http, method: str) -> None:
    assert http(f"{url}/status", method)[0] == 405
    assert upstream.asked == []


def test_the_report_and_both_command_lines(url: str, layout: Layout, report: ProbeReport, http: Http) -> None:
    status, body = http(f"{url}/report")
    assert status == 503
    assert "probe" in json.loads(body)["error"].lower() or "cannot be read" in json.loads(body)["error"]
    (layout.state / "report.json").write_text(dumps(report))
    (layout.state / "engine.argv.json").write_text('["vllm", "serve"]')
    (layout.state / "cache-server.argv.json").write_text('["lmcache"]')
    status, body = http(f"{url}/report")
    content = json.loads(body)
    assert status == 200
    assert content["engineArgv"] == ["vllm", "serve"]
    assert content["cacheServerArgv"] == ["lmcache"]
    assert content["report"] == json.loads(json.dumps(dump(report)))


def test_the_report_hands_out_no_secrets(url: str, layout: Layout, report: ProbeReport, http: Http) -> None:
    (layout.state / "report.json").write_text(dumps(report))
    (layout.state / "engine.argv.json").write_text('["vllm", "serve", "--api-key", "777123", "--port", "1"]')
    adapter = json.dumps({"url": "redis://u:hunter2@h"})
    (layout.state / "cache-server.argv.json").write_text(json.dumps(["lmcache", "--l2-adapter", adapter]))
    content = json.loads(http(f"{url}/report")[1])
    assert content["engineArgv"] == ["vllm", "serve", "--api-key", "***", "--port", "1"]
    assert content["cacheServerArgv"] == ["lmcache", "--l2-adapter", '{"url":"redis://***@h"}']


def test_a_cache_server_that_is_away(layout: Layout, free_ports: Callable[[int], list[int]], http: Http) -> None:
    with Relay(layout, 0, free_ports(1)[0]) as server:
        serve_in_background(server)
        status, body = http(f"http://127.0.0.1:{server.server_address[1]}/healthcheck")
        server.shutdown()
    assert status == 503
    assert b"does not answer" in body


def test_an_answer_that_is_too_large(
    url: str, upstream: FakeCacheServer, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "LIMIT_BYTES", 1000)
    upstream.size = 1001
    assert http(f"{url}/metrics")[0] == 503
    upstream.size = 1000
    assert http(f"{url}/metrics")[0] == 200


def test_a_cache_server_that_hangs(layout: Layout, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "UPSTREAM_TIMEOUT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with Relay(layout, 0, silent.getsockname()[1]) as server:
            serve_in_background(server)
            assert http(f"http://127.0.0.1:{server.server_address[1]}/status")[0] == 503
            server.shutdown()


def test_idle_clients_do_not_block_others(url: str, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(url.rpartition(":")[2])
    idle = [
        socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(relay_module.CONCURRENT_REQUESTS - 1)
    ]
    try:
        assert http(f"{url}/status")[0] == 200
    finally:
        for sock in idle:
            sock.close()


def test_a_place_is_given_back(url: str, http: Http) -> None:
    for _ in range(3 * relay_module.CONCURRENT_REQUESTS):
        assert http(f"{url}/status")[0] == 200


def test_it_listens_for_ipv6_where_there_is_any(layout: Layout, upstream: FakeCacheServer, http: Http) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with Relay(layout, 0, upstream.server_address[1]) as server:
        serve_in_background(server)
        assert http(f"http://[::1]:{server.server_address[1]}/status")[0] == 200
        server.shutdown()
