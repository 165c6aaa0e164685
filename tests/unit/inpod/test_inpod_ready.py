"""The start-up gate, check by check, against recorded answers of the real programs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.engine_metrics import engine_block_size
from qwen_cached_serve.inpod.facts import CacheSettings, Ports, ProbeReport, ServeSettings, dumps
from qwen_cached_serve.inpod.layout import Layout
from qwen_cached_serve.inpod.life import begin_life, current_life, noted
from qwen_cached_serve.inpod.ready import (
    NotReady,
    check_engine_block_size,
    check_server,
    run_ready,
    warm_up_prompt,
)
from qwen_cached_serve.inpod.registrations import ServerStatus, parse_status
from tests.unit.inpod.pod_folder import wait_for

N = 2144
WORKER = "4436339027237201773"


def test_n_of_a_recorded_engine(fixture_text: Callable[[str], str]) -> None:
    metrics = fixture_text("cache-config-info.txt")
    assert engine_block_size(metrics) == N  # and not the 32 of mamba_block_size
    check_engine_block_size(metrics, N)
    with pytest.raises(NotReady, match="is 2144, but the probe found 2176"):
        check_engine_block_size(metrics, 2176)


def test_n_of_older_engines_and_of_none() -> None:
    assert engine_block_size('vllm:cache_config_info{engine="0",block_size="784",mamba_block_size="16"} 1.0\n') == 784
    unresolved = 'vllm:cache_config_info{effective_attention_block_size="None",block_size="544"} 1.0\n'
    assert engine_block_size(unresolved) == 544
    odd = 'vllm:cache_config_info{a="x\\"}, y",block_size="16"} 1.0\n'
    assert engine_block_size(odd) == 16
    assert engine_block_size("# HELP vllm:cache_config_info\n") is None
    with pytest.raises(NotReady, match="do not tell"):
        check_engine_block_size("", N)


def test_a_recorded_server_passes(fixture_text: Callable[[str], str]) -> None:
    status = parse_status(fixture_text("status-registered.json").encode())
    assert status == ServerStatus(N, frozenset({WORKER}), {WORKER: frozenset({N})})
    check_server(status, N, N, frozenset(), 1)


def test_an_n_one_granule_off_never_passes(fixture_text: Callable[[str], str]) -> None:
    status = parse_status(fixture_text("status-registered.json").encode())
    with pytest.raises(NotReady, match="chunk size is 2144, not 2176"):
        check_server(status, N + 32, N + 32, frozenset(), 1)
    with pytest.raises(NotReady, match="holds blocks of 2144 tokens for this engine, not N = 2112"):
        check_server(status, N - 32, N, frozenset(), 1)


def test_a_registration_of_a_former_life_does_not_count(fixture_text: Callable[[str], str]) -> None:
    status = parse_status(fixture_text("status-registered.json").encode())
    with pytest.raises(NotReady, match=r"0 of 1 .* 1 of a former life"):
        check_server(status, N, N, frozenset({WORKER}), 1)
    with pytest.raises(NotReady, match="1 of 2"):
        check_server(status, N, N, frozenset(), 2)


def test_a_worker_with_mixed_or_no_groups_does_not_pass() -> None:
    mixed = ServerStatus(N, frozenset({"1"}), {"1": frozenset({N, 16})})
    with pytest.raises(NotReady, match="16, 2144"):
        check_server(mixed, N, N, frozenset(), 1)
    with pytest.raises(NotReady, match="blocks of none"):
        check_server(ServerStatus(N, frozenset({"1"}), {}), N, N, frozenset(), 1)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"chunk_size": "784"}'])
def test_what_is_no_status(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_status(body)


@given(st.integers(16, 8000), st.integers(0, 16000))
def test_the_warm_up_is_longer_than_a_chunk_and_fits(chunk: int, longest: int) -> None:
    prompt = warm_up_prompt(chunk, longest)
    if prompt is None:
        assert 0 < longest < chunk + 2  # the prompt and its one generated token
    else:
        assert len(prompt) == chunk + 1
        assert longest == 0 or len(prompt) + 1 <= longest
        assert all(0 < token < 256 for token in prompt)


class FakePod(ThreadingHTTPServer):
    """A fake of engine and cache server on one port, with answers that a test sets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FakeHandler)
        self.answers: dict[str, tuple[int, str]] = {}
        self.completions: list[tuple[dict[str, Any], str | None]] = []
        self.hold_completions = threading.Event()
        self.hold_completions.set()


class _FakeHandler(BaseHTTPRequestHandler):
    server: FakePod

    def do_GET(self) -> None:
        self._answer(*self.server.answers.get(self.path, (404, "not found")))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.completions.append((body, self.headers.get("Authorization")))
        self.server.hold_completions.wait(60)
        self._answer(*self.server.answers.get(self.path, (200, "{}")))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def pod(fixture_text: Callable[[str], str]) -> Iterator[FakePod]:
    with FakePod() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.answers = {
            "/health": (200, ""),
            "/metrics": (200, fixture_text("cache-config-info.txt")),
            "/status": (200, fixture_text("status-registered.json")),
        }
        yield server
        server.shutdown()


@pytest.fixture
def started(layout: Layout, pod: FakePod, settings: ServeSettings, report: ProbeReport) -> Layout:
    """A pod whose engine has been started, without former registrations."""
    port = pod.server_address[1]
    served = replace(settings, ports=Ports(engine=port, cache_server_http=port))
    (layout.code / "settings.json").write_text(dumps(served))
    (layout.state / "report.json").write_text(dumps(replace(report, block_size=N)))
    begin_life(layout.registrations, [])  # this process stands for the engine
    return layout


def test_the_gate_passes_and_remembers_the_life(
    started: Layout, pod: FakePod, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert run_ready(started) == 0
    assert "N = 2144" in capsys.readouterr().out
    ((request, authorization),) = pod.completions
    assert (request["model"], request["max_tokens"], authorization) == ("qwen3.6-27b", 1, None)
    assert len(request["prompt"]) == N + 1
    pod.answers.clear()  # nothing is asked again in this life, whatever happens to the programs
    assert run_ready(started) == 0
    assert capsys.readouterr().out == ""
    begin_life(started.registrations, [])
    assert run_ready(started) == 1


def test_the_pass_of_a_former_life_does_not_count(
    started: Layout, pod: FakePod, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubelet may run the probe in a new container before its script has written anything."""
    assert run_ready(started) == 0
    life = json.loads(started.registrations.read_text())
    for other in ({"started": life["started"] - 1}, {"pid": 2**22 + 1}):
        started.registrations.write_text(json.dumps({**life, **other}))
        assert current_life(started.registrations) is None
        assert run_ready(started) == 1
        assert "has not been started yet" in capsys.readouterr().out


def test_the_warm_up_uses_the_engines_key(started: Layout, pod: FakePod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert run_ready(started) == 0
    assert pod.completions[0][1] == "Bearer secret"


@pytest.mark.parametrize(
    ("path", "answer", "line"),
    [
        ("/health", (503, ""), "the engine is not healthy (/health says 503)"),
        ("/metrics", (200, "nothing"), "do not tell its block size"),
        ("/metrics", (500, ""), "/metrics answers 500"),
        ("/status", (200, "{}"), "/status cannot be read"),
        ("/status", (503, "{}"), "/status answers 503"),
        ("/v1/completions", (400, '{"error": "bad"}'), "the warm-up request was answered with 400"),
    ],
)
def test_each_failing_check_is_one_line(
    started: Layout,
    pod: FakePod,
    capsys: pytest.CaptureFixture[str],
    path: str,
    answer: tuple[int, str],
    line: str,
) -> None:
    pod.answers[path] = answer
    assert run_ready(started) == 1
    said = capsys.readouterr().out
    assert line in said
    assert said.count("\n") == 1
    assert not started.gate.exists()
    assert line in noted(started.seen, started.registrations)
    begin_life(started.registrations, [])
    assert noted(started.seen, started.registrations) == ""


def test_a_run_that_hangs_in_the_warm_up_has_said_so(started: Layout, pod: FakePod) -> None:
    """The kubelet kills it after five minutes: what it would say then is never said."""
    pod.hold_completions.clear()
    run = threading.Thread(target=run_ready, args=(started,))
    run.start()
    try:
        words = wait_for(lambda: noted(started.seen, started.registrations) if pod.completions else None)
        assert words == (
            "N = 2144 in engine and cache server, chunk 2144, all workers registered; the warm-up request has got no "
            "answer"
        )
    finally:
        pod.hold_completions.set()
        run.join()
    assert started.gate.exists()


def test_a_full_disk_does_not_fail_the_gate(started: Layout, pod: FakePod) -> None:
    started.seen.mkdir()  # nothing can be written there
    assert run_ready(started) == 0


def test_a_chunk_that_no_request_can_fill_is_a_note(
    started: Layout, pod: FakePod, report: ProbeReport, capsys: pytest.CaptureFixture[str]
) -> None:
    (started.state / "report.json").write_text(dumps(replace(report, block_size=N, max_model_len=N)))
    assert run_ready(started) == 0
    assert "nothing will ever be cached" in capsys.readouterr().out
    assert pod.completions == []


def test_without_the_cache_health_is_all(started: Layout, pod: FakePod, settings: ServeSettings) -> None:
    port = pod.server_address[1]
    plain = replace(settings, cache=CacheSettings(enabled=False), ports=Ports(engine=port))
    (started.code / "settings.json").write_text(dumps(plain))
    (started.state / "report.json").unlink()
    pod.answers = {"/health": (200, "")}
    assert run_ready(started) == 0
    assert pod.completions == []


def test_before_the_engine_is_started(
    layout: Layout, settings: ServeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    (layout.code / "settings.json").write_text(dumps(settings))
    assert run_ready(layout) == 1
    assert capsys.readouterr().out == "not ready: the engine has not been started yet\n"


def test_an_engine_that_does_not_listen(
    layout: Layout,
    settings: ServeSettings,
    report: ProbeReport,
    free_ports: Callable[[int], list[int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (layout.code / "settings.json").write_text(dumps(replace(settings, ports=Ports(engine=free_ports(1)[0]))))
    (layout.state / "report.json").write_text(dumps(report))
    begin_life(layout.registrations, [])  # this process stands for the engine
    assert run_ready(layout) == 1
    assert "the engine does not answer yet" in capsys.readouterr().out


def test_a_life_ends_with_its_process_also_while_nobody_collects_it(layout: Layout) -> None:
    """Killed together with its parent, an engine waits as a zombie for whoever reaps orphans."""
    begun, end = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        begin_life(layout.registrations, [])
        os.write(begun[1], b"x")
        os.read(end[0], 1)
        os._exit(0)
    try:
        os.read(begun[0], 1)
        assert current_life(layout.registrations) is not None
        os.write(end[1], b"x")
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, and stays
        assert current_life(layout.registrations) is None
    finally:
        os.waitpid(child, 0)
        for descriptor in (*begun, *end):
            os.close(descriptor)
