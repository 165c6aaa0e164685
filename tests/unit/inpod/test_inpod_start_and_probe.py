"""Start of the engine, and the probe around its child: files, messages, signals, limits."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod import former_life
from qwen_cached_serve.inpod.addresses import wildcard
from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    Gpu,
    Ports,
    ProbeReport,
    ServeSettings,
    TokensPerStep,
    dump,
    dumps,
)
from qwen_cached_serve.inpod.flags import cache_server_argv, engine_argv
from qwen_cached_serve.inpod.message import CompactReport, ProbeFailure, argv_hash, read
from qwen_cached_serve.inpod.restarts import LONGEST_WAIT_SECONDS, STABLE_SECONDS
from tests.unit.inpod.pod_folder import PodFolder, wait_for

FAKE_VLLM = """
import json, os, sys
pids = {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp()}
print(json.dumps({"argv": sys.argv[1:], "quiet": os.environ.get("VLLM_NO_USAGE_STATS"), **pids}))
"""

FAKE_CONSTRUCT = """
import json, os, signal, sys, tempfile, time
from pathlib import Path
from .facts import ProbeReport, load
from .refusal import Refusal

def find_report(settings):
    mode = Path(__file__).with_name("mode").read_text()
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    tempfile.mkstemp()
    if mode == "refuse":
        raise Refusal("DeviceMissing", "no GPU", "Look for one.")
    if mode == "raise":
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "exit":
        os._exit(7)
    if mode == "hang":
        if os.fork() == 0:
            time.sleep(3600)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    print("noise of vllm", flush=True)
    return load(ProbeReport, json.loads(mode))
"""


@pytest.fixture
def pod(tmp_path: Path, settings: ServeSettings) -> Iterator[PodFolder]:
    folder = PodFolder(tmp_path / "pod", settings)
    folder.fake_program("vllm", FAKE_VLLM)
    (folder.layout.code / "qwen_cached_serve/inpod/construct.py").write_text(FAKE_CONSTRUCT)
    yield folder
    folder.close()


def set_mode(pod: PodFolder, mode: str) -> None:
    (pod.layout.code / "qwen_cached_serve/inpod/mode").write_text(mode)


def state_names(pod: PodFolder) -> set[str]:
    return {path.name for path in pod.layout.state.iterdir()}


@pytest.fixture
def tmpdir_of_probe(pod: PodFolder) -> Path:
    folder = pod.root / "tmp"
    folder.mkdir()
    return folder


def probe(pod: PodFolder, tmp: Path) -> tuple[int, str]:
    return pod.run("probe", {"TMPDIR": str(tmp)})


def failure(pod: PodFolder) -> ProbeFailure:
    found = read(pod.layout.termination_log.read_text())
    assert isinstance(found, ProbeFailure)
    return found


def test_the_probe_writes_report_vectors_and_message(
    pod: PodFolder, settings: ServeSettings, report: ProbeReport, tmpdir_of_probe: Path
) -> None:
    set_mode(pod, dumps(report))
    status, said = probe(pod, tmpdir_of_probe)
    assert status == 0, said
    written = pod.layout.report()
    assert written.identity
    report = replace(report, engine_host=wildcard())
    assert replace(written, identity="", identity_summary="", identity_components={}, timings_seconds={}) == report
    assert f"qcs probe: report {json.dumps(dump(written), sort_keys=True)}" in said.splitlines()
    assert pod.layout.engine_argv() == engine_argv(settings, report)
    assert pod.layout.cache_server_argv() == cache_server_argv(settings, report)
    assert state_names(pod) == {"report.json", "engine.argv.json", "cache-server.argv.json"}
    found = read(pod.layout.termination_log.read_text())
    assert isinstance(found, CompactReport)
    assert found.argv_hash == argv_hash(pod.layout.engine_argv(), pod.layout.cache_server_argv())
    last = said.splitlines()[-1]
    assert "N = 784" in last
    assert "1567 tokens per step" in last
    assert list(tmpdir_of_probe.iterdir()) == []


def test_a_refusal_is_one_line_and_removes_an_older_report(
    pod: PodFolder, report: ProbeReport, tmpdir_of_probe: Path
) -> None:
    set_mode(pod, dumps(report))
    assert probe(pod, tmpdir_of_probe)[0] == 0
    set_mode(pod, "refuse")
    status, said = probe(pod, tmpdir_of_probe)
    assert status == 1
    assert said.splitlines()[-1] == "qcs probe: DeviceMissing: no GPU Look for one."
    assert failure(pod) == ProbeFailure("DeviceMissing", "no GPU", "Look for one.")
    assert state_names(pod) == set()


@pytest.mark.parametrize(
    ("mode", "code"),
    [("raise", "OutOfMemory"), ("killed", "OutOfMemory"), ("exit", "ConstructFailed"), ("{}", "ConstructFailed")],
)
def test_other_ends_are_coded(
    pod: PodFolder, settings: ServeSettings, tmpdir_of_probe: Path, mode: str, code: str
) -> None:
    (pod.layout.code / "settings.json").write_text(dumps(replace(settings, probe_method="Construct")))
    set_mode(pod, mode)
    assert probe(pod, tmpdir_of_probe)[0] == 1
    assert failure(pod).code == code
    assert list(tmpdir_of_probe.iterdir()) == []


def group_is_gone(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that nobody reaps on this host."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_the_time_limit_ends_everything(pod: PodFolder, settings: ServeSettings, tmpdir_of_probe: Path) -> None:
    (pod.layout.code / "settings.json").write_text(dumps(replace(settings, probe_timeout_seconds=6)))
    set_mode(pod, "hang")
    status, said = probe(pod, tmpdir_of_probe)
    assert status == 1, said
    assert failure(pod).code == "Timeout"
    assert "spec.blockSizeProbe.timeoutSeconds" in failure(pod).hint
    child = int((pod.layout.code / "qwen_cached_serve/inpod/pid").read_text())
    wait_for(lambda: group_is_gone(child))
    assert list(tmpdir_of_probe.iterdir()) == []


def test_sigterm_ends_everything(pod: PodFolder, tmpdir_of_probe: Path) -> None:
    set_mode(pod, "hang")
    process = pod.start("probe", {"TMPDIR": str(tmpdir_of_probe)})
    pid_file = pod.layout.code / "qwen_cached_serve/inpod/pid"
    wait_for(lambda: pid_file.exists() and pid_file.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1
    assert failure(pod).code == "Terminated"
    wait_for(lambda: group_is_gone(int(pid_file.read_text())))
    assert list(tmpdir_of_probe.iterdir()) == []


def test_a_child_does_not_outlive_a_killed_probe(pod: PodFolder, tmpdir_of_probe: Path) -> None:
    set_mode(pod, "hang")
    process = pod.start("probe", {"TMPDIR": str(tmpdir_of_probe)})
    pid_file = pod.layout.code / "qwen_cached_serve/inpod/pid"
    wait_for(lambda: pid_file.exists() and pid_file.read_text())
    child = int(pid_file.read_text())
    process.kill()
    process.wait()
    wait_for(lambda: is_dead(child))
    # What the child itself had forked dies with the container; here it is ours to end.
    if not group_is_gone(child):
        os.killpg(child, signal.SIGKILL)


def test_a_fixed_figure_out_of_range_is_found_out_by_the_probe(
    pod: PodFolder, settings: ServeSettings, report: ProbeReport, tmpdir_of_probe: Path
) -> None:
    fixed = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("Fixed", 200)))
    (pod.layout.code / "settings.json").write_text(dumps(fixed))
    set_mode(pod, dumps(report))
    assert probe(pod, tmpdir_of_probe)[0] == 1
    assert failure(pod).code == "FixedTokensOutOfRange"
    assert state_names(pod) == set()


@pytest.fixture
def status_server() -> Iterator[int]:
    """A fake cache server that holds one registration of a former life."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"chunk_size": 784, "registered_gpu_ids": [4436339027237201773]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def probed(pod: PodFolder, settings: ServeSettings, report: ProbeReport, status_server: int) -> PodFolder:
    served = replace(settings, ports=Ports(cache_server_http=status_server))
    (pod.layout.code / "settings.json").write_text(dumps(served))
    (pod.layout.state / "report.json").write_text(dumps(replace(report, gpus=())))
    (pod.layout.state / "engine.argv.json").write_text(json.dumps(["vllm", "serve", "it's a $HOME", "--x", '{"a": 1}']))
    (pod.layout.state / "cache-server.argv.json").write_text(json.dumps(["lmcache", "server"]))
    return pod


def test_the_engine_is_a_child_and_gets_its_arguments_as_they_are(probed: PodFolder) -> None:
    probed.layout.gate.write_text('{"life": "former"}')
    process = probed.start("engine")
    assert process.wait(timeout=30) == 0
    started = json.loads(probed.said("engine").splitlines()[-1])
    assert started["argv"] == ["serve", "it's a $HOME", "--x", '{"a": 1}']
    assert started["parent"] == process.pid != started["pid"] == started["group"]
    assert started["quiet"] == "1"
    life = json.loads(probed.layout.registrations.read_text())
    assert life["pid"] == started["pid"]
    assert life["ids"] == ["4436339027237201773"]
    assert not probed.layout.gate.exists()
    assert probed.run("engine")[0] == 0
    assert json.loads(probed.layout.registrations.read_text())["life"] != life["life"]


def test_the_engine_starts_on_a_clean_shm(probed: PodFolder) -> None:
    (probed.layout.shm / "lmcache_kv_999999999_0").write_bytes(b"x")
    status, said = probed.run("engine")
    assert (status, list(probed.layout.shm.iterdir())) == (0, [])
    assert "removed 1 leftover segments" in said


def test_a_server_that_keeps_a_dead_engine_is_asked_to_go(probed: PodFolder) -> None:
    """This one holds the registration for ever; the request is taken as by the supervisor, in vain."""
    probed.layout.alive.touch()
    process = probed.start("engine")
    wait_for(probed.layout.renewal.exists)
    probed.layout.renewal.unlink()
    assert process.wait(timeout=60) == 0
    assert "the cache server has not let go of a former life's memory" in probed.said("engine")


def test_the_engine_outwaits_a_crashed_cache_servers_longest_pause_and_its_start() -> None:
    assert former_life.SERVER_WAIT_SECONDS >= LONGEST_WAIT_SECONDS + STABLE_SECONDS


def test_without_the_cache_nobody_is_asked(probed: PodFolder, settings: ServeSettings) -> None:
    plain = replace(settings, cache=CacheSettings(enabled=False), ports=Ports(cache_server_http=1))
    (probed.layout.code / "settings.json").write_text(dumps(plain))
    assert probed.run("engine")[0] == 0
    assert json.loads(probed.layout.registrations.read_text())["ids"] == []


def test_sigterm_while_the_engine_waits_for_the_cache_server(
    probed: PodFolder, settings: ServeSettings, free_ports: Callable[[int], list[int]]
) -> None:
    away = replace(settings, ports=Ports(cache_server_http=free_ports(1)[0]))
    (probed.layout.code / "settings.json").write_text(dumps(away))
    (probed.layout.shm / "lmcache_kv_999999999_0").write_bytes(b"x")
    process = probed.start("engine")
    wait_for(lambda: "waiting for the cache server" in probed.said("engine"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert not probed.layout.registrations.exists()


@pytest.mark.case("B41")
def test_b41_the_engine_does_not_start_on_another_gpu(probed: PodFolder, report: ProbeReport) -> None:
    (probed.layout.state / "report.json").write_text(dumps(report))
    probed.fake_program("nvidia-smi", "print('GPU-other, NVIDIA H100 80GB HBM3, 9.0, 580.95, 81559')")
    status, said = probed.run("engine")
    assert status == 1
    assert "DeviceChanged" in said
    assert failure(probed).code == "DeviceChanged"
    same: Gpu = report.gpus[0]
    probed.fake_program("nvidia-smi", f"print('{same.uuid}, {same.name}, 9.0, 580.95, 81559')")
    assert probed.run("engine")[0] == 0


def test_an_image_without_vllm_says_so(probed: PodFolder) -> None:
    (probed.programs / "vllm").unlink()
    status, _ = probed.run("engine", {"PATH": str(Path(sys.executable).parent / "nowhere")})
    assert status == 1
    assert failure(probed).code == "ProgramMissing"
