"""Probe, cache server, engine and gate as one pod on this host: hits after a restart, faults, the gate's refusal.

The tests come in their order and share one pod, and at the end its volume: an engine's start costs more than all that
is asked of it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.cache_server_flags import REAP_FLAG
from qwen_cached_serve.inpod.facts import CACHE_SERVER_ARGV_FILE, dumps
from qwen_cached_serve.inpod.flags import engine_argv
from qwen_cached_serve.inpod.namespaces import MARKER, namespace_of
from tests.engine.engine_pod import BROKEN_SECONDS, EnginePod, free_ports, prompt, write_copy
from tests.unit.inpod.pod_folder import members, wait_for

pytestmark = pytest.mark.timeout(1800)

N = 352
LONG = prompt(4 * N + 92, seed=1)


def test_the_gate_has_passed(chain: EnginePod) -> None:
    status = chain.server_status()
    assert status["chunk_size"] == N
    assert len(status["registered_gpu_ids"]) == 1
    assert chain.run("ready")[0] == 0
    assert json.loads(chain.get(chain.layout.settings().ports.relay, "/report")[1])["report"]["block_size"] == N
    assert chain.get(chain.layout.settings().ports.relay, "/env")[0] == 404


def test_another_n_by_one_granule_is_refused_by_the_gate(chain: EnginePod, tmp_path: Path) -> None:
    """The same running pod, but the probe is said to have found N + 32."""
    state = tmp_path / "state"
    write_copy(chain.layout.state / "report.json", state / "report.json", block_size=N + 32)
    write_copy(chain.layout.registrations, state / chain.layout.registrations.name)
    status, said = chain.run("ready", {"QCS_STATE_DIR": str(state)})
    assert status == 1
    assert said == f"not ready: the engine's block size N is {N}, but the probe found {N + 32}: replace the pod\n"


def test_a_restarted_engine_finds_its_prompts(chain: EnginePod, timings: dict[str, float | str]) -> None:
    timings["cold_1500_tokens_seconds"] = round(chain.complete(LONG), 2)
    wait_for(lambda: chain.server_status()["storage_manager"]["l1_manager"]["total_object_count"] >= 4)
    before = chain.registrations()
    left = {path.name for path in Path("/dev/shm").glob("lmcache_kv_*")}
    chain.kill_engine()
    assert {path.name for path in Path("/dev/shm").glob("lmcache_kv_*")} & left, "a killed engine leaves its segment"
    began = time.monotonic()
    chain.start_engine()
    said = chain.wait_ready()
    timings["engine_restart_seconds"] = round(time.monotonic() - began, 1)
    assert f"N = {N} in engine and cache server" in said
    assert "leftover segments of a former life" in chain.said("engine")
    assert chain.registrations() - before, "the new life has a registration of its own"
    loaded = chain.external_hits()
    assert loaded >= 0
    timings["hit_1500_tokens_seconds"] = round(chain.complete(LONG), 2)
    assert chain.external_hits() - loaded == 4 * N
    timings["external_hit_tokens"] = chain.external_hits() - loaded


def test_a_killed_cache_server_costs_no_request(chain: EnginePod, timings: dict[str, float | str]) -> None:
    """Measured: seconds without cache, seconds out of the Service (none), requests lost (none)."""
    chain.complete(LONG)  # this life's heartbeat runs from the first request on
    stop, failures, sent = threading.Event(), [], [0]

    def repeat(action: Callable[[int], object]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                action(number)
            except (AssertionError, OSError) as error:
                failures.append(repr(error))
            stop.wait(0.2)

    def check_health(_number: int) -> None:
        assert chain.healthy(), "the engine's /health failed"

    def send(number: int) -> None:
        chain.complete(prompt(N + 10, seed=100 + number))
        sent[0] += 1

    threads = [threading.Thread(target=repeat, args=(action,), daemon=True) for action in (check_health, send)]
    for thread in threads:
        thread.start()
    wait_for(lambda: sent[0] >= 1, BROKEN_SECONDS)
    (worker,) = chain.registrations() - known_before(chain)
    killed = time.monotonic()
    os.kill(chain.cache_server_pid(), signal.SIGKILL)
    wait_for(lambda: not chain.registrations())
    wait_for(chain.cache_server_answers, BROKEN_SECONDS, every=0.5)
    timings["cache_server_back_seconds"] = round(time.monotonic() - killed, 1)
    wait_for(lambda: worker in chain.registrations(), BROKEN_SECONDS, every=0.5)
    timings["cache_back_seconds"] = round(time.monotonic() - killed, 1)
    after = sent[0]
    wait_for(lambda: sent[0] > after, BROKEN_SECONDS)
    stop.set()
    for thread in threads:
        thread.join(timeout=BROKEN_SECONDS)
    timings["requests_sent_meanwhile"], timings["requests_lost"] = sent[0], len(failures)
    assert failures == []
    assert chain.cache_server.poll() is None, "the container went on"
    assert chain.run("ready")[0] == 0
    stored = chain.server_status()["storage_manager"]["l1_manager"]["total_object_count"]
    chain.complete(prompt(4 * N + 92, seed=7))
    wait_for(lambda: chain.server_status()["storage_manager"]["l1_manager"]["total_object_count"] > stored)


def known_before(chain: EnginePod) -> set[int]:
    return {int(item) for item in json.loads(chain.layout.registrations.read_text())["ids"]}


@pytest.fixture
def neighbour(chain: EnginePod, tmp_path: Path) -> Iterator[EnginePod]:
    """A second engine for the chain's cache server and its report, on a port of its own."""
    own = chain.layout.settings()
    settings = replace(own, ports=replace(own.ports, engine=free_ports(1)[0]))
    pod = EnginePod(tmp_path / "pod", settings, chain.python)
    report = chain.layout.report()
    (pod.layout.state / "report.json").write_text(dumps(report))
    (pod.layout.state / "engine.argv.json").write_text(json.dumps(engine_argv(settings, report)))
    # The chain's engine lives on, so its registration stays: with the reap flag each start would wait for it in vain.
    server = [word for word in chain.layout.cache_server_argv() if word != REAP_FLAG]
    (pod.layout.state / CACHE_SERVER_ARGV_FILE).write_text(json.dumps(server))
    try:
        yield pod
    finally:
        pod.close()
        pod.remove_own_segments()


@pytest.mark.parametrize("phase", ["imports", "engine-core"])
def test_an_engine_told_to_stop_while_it_loads_ends_at_once(
    neighbour: EnginePod, timings: dict[str, float | str], phase: str
) -> None:
    """Before vLLM has a handler for SIGTERM, and when its engine process loads."""
    neighbour.start_engine()
    if phase == "imports":
        wait_for(neighbour.layout.registrations.exists)
    else:
        wait_for(lambda: "EngineCore" in neighbour.said("engine"), BROKEN_SECONDS)
    began = time.monotonic()
    neighbour.engine.send_signal(signal.SIGTERM)
    status = neighbour.engine.wait(timeout=BROKEN_SECONDS)
    timings[f"stop_while_loading_{phase}_seconds"] = round(time.monotonic() - began, 1)
    if phase == "imports":
        assert status == 128 + signal.SIGTERM
    assert status != 0
    wait_for(lambda: not members(neighbour.engine.pid))


def test_an_engine_with_another_n_never_becomes_ready(neighbour: EnginePod) -> None:
    """The probe measured 352; the engine is started so that its N is 384, one granule of 32 more."""
    path = neighbour.layout.state / "engine.argv.json"
    argv = json.loads(path.read_text())
    argv[argv.index("--block-size") + 1] = "128"  # 405,504 bytes / (128 x 1,152) = 2.75, so N = 3 x 128
    path.write_text(json.dumps(argv))
    neighbour.start_engine()

    def ended() -> bool:
        status, said = neighbour.run("ready")
        assert status == 1, said
        return neighbour.engine.poll() is not None

    wait_for(ended, BROKEN_SECONDS, every=2)
    assert neighbour.run("ready")[0] == 1
    assert not neighbour.layout.gate.exists()
    assert neighbour.engine.returncode != 0
    assert f"LMCache chunk size {N} must be a multiple of" in neighbour.said("engine")


def test_both_end_on_sigterm(chain: EnginePod, timings: dict[str, float | str]) -> None:
    """The engine first answers what it was asked."""
    with ThreadPoolExecutor() as clients:
        answer = clients.submit(chain.complete, prompt(40, seed=9), length=300)
        wait_for(lambda: chain.metric("vllm:num_requests_running") == 1)
        for name, process in (("engine", chain.engine), ("cache_server", chain.cache_server)):
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=BROKEN_SECONDS) == 0
            timings[f"{name}_stop_seconds"] = round(time.monotonic() - began, 1)
        timings["drained_request_seconds"] = round(answer.result(), 1)
    assert not members(chain.engine.pid)
    assert not members(chain.cache_server.pid)


def test_entries_outlive_the_pod_and_never_reach_another_model(
    chain: EnginePod, new_pod: Callable[[], EnginePod], timings: dict[str, float | str]
) -> None:
    """Hits with the same identity, none with another model at the same path (DESIGN D7, D8).

    By hand and without an identity, the other model got 8,576 wrong hits (facts/local-cluster.md §6).
    """
    identity = chain.layout.report().identity
    volume = Path(chain.layout.settings().cache.l2[0].path)
    store = volume / namespace_of(identity)
    assert json.loads((store / MARKER).read_text(encoding="utf-8"))["identity"] == identity
    assert len(list(store.glob("*.data"))) >= 4, "the first pod has stored its prompts"

    second = new_pod()
    assert second.layout.report().identity == identity
    before = second.external_hits()
    timings["l2_hit_seconds"] = round(second.complete(LONG), 2)
    assert second.external_hits() - before == 4 * N
    second.close()

    config = Path(second.layout.settings().model) / "config.json"
    changed = json.loads(config.read_text(encoding="utf-8"))
    part = changed.get("text_config", changed)
    part["rms_norm_eps"] = 2 * part.get("rms_norm_eps", 1e-6)
    config.write_text(json.dumps(changed), encoding="utf-8")
    third = new_pod()
    report = third.layout.report()
    assert report.identity != identity
    before = third.external_hits()
    third.complete(LONG)
    assert third.external_hits() - before == 0
    assert {path.name for path in volume.iterdir()} == {namespace_of(identity), namespace_of(report.identity)}
