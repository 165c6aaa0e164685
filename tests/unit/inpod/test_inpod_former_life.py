"""An engine that starts after a kill waits until the cache server has let go of its former life's memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod import former_life
from qwen_cached_serve.inpod.cache_server_flags import REAP_FLAG, REAP_SECONDS
from qwen_cached_serve.inpod.engine_flags import HEARTBEAT_SECONDS

REAPS = ["lmcache", "server", REAP_FLAG, str(REAP_SECONDS)]
ServeIds = Callable[[list[list[int]]], int]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_life, "ASK_EVERY_SECONDS", 0.01)


@pytest.fixture
def fake_status() -> Iterator[ServeIds]:
    """A fake cache server; each list of ids is one answer, the last is repeated."""
    servers: list[HTTPServer] = []

    def serve(answers: list[list[int]]) -> int:
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ids = left.pop(0) if len(left) > 1 else left[0]
                body = json.dumps({"chunk_size": 784, "registered_gpu_ids": ids}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_it_waits_until_the_former_workers_are_gone(fake_status: ServeIds) -> None:
    """Others that are registered meanwhile are not its own."""
    port = fake_status([[7], [7], [7, 9], [9]])
    assert former_life.registrations(port) == ["7"]
    assert former_life.let_go(port, ["7"], REAPS)
    assert former_life.registrations(port) == ["9"]


def test_the_wait_has_an_end(fake_status: ServeIds) -> None:
    assert not former_life.let_go(fake_status([[7]]), ["7"], REAPS, seconds=0.1)


def test_without_a_former_life_nobody_is_asked() -> None:
    assert former_life.let_go(1, [], REAPS)


def test_a_server_that_does_not_reap_is_not_waited_for() -> None:
    assert not former_life.let_go(1, ["7"], ["lmcache", "server"])


def taken(request: Path) -> threading.Thread:
    """A supervisor that takes the request."""

    def take() -> None:
        while not request.exists():
            time.sleep(0.005)
        request.unlink()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread


def test_a_server_that_keeps_a_dead_engine_is_renewed(fake_status: ServeIds, tmp_path: Path) -> None:
    request = tmp_path / "renewal"
    thread = taken(request)
    assert former_life.renew(request, fake_status([[]]), ["7"])
    thread.join(10)
    assert not request.exists()


def test_a_new_server_that_holds_the_same_is_not_believed(fake_status: ServeIds, tmp_path: Path) -> None:
    taken(tmp_path / "renewal")
    assert not former_life.renew(tmp_path / "renewal", fake_status([[7]]), ["7"])


def test_a_request_that_nobody_takes_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_life, "TAKEN_SECONDS", 0.1)
    assert not former_life.renew(tmp_path / "renewal", 1, ["7"])
    assert list(tmp_path.iterdir()) == []


def test_a_new_server_that_never_comes_has_an_end(free_ports: Callable[[int], list[int]], tmp_path: Path) -> None:
    taken(tmp_path / "renewal")
    assert not former_life.renew(tmp_path / "renewal", free_ports(1)[0], ["7"], seconds=0.1)


def test_a_server_that_is_away_tells_nothing(free_ports: Callable[[int], list[int]]) -> None:
    assert not former_life.let_go(free_ports(1)[0], ["7"], REAPS, seconds=0.1)


def test_the_limit_leaves_room_for_the_reaper() -> None:
    """A worker is silent from its last heartbeat on, and looked for every quarter of the time."""
    assert former_life.LET_GO_SECONDS > REAP_SECONDS * 1.25 + HEARTBEAT_SECONDS
