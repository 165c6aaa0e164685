"""Layout, atomic files, shared memory, GPUs, programs and environment: the edges of the pod."""

from __future__ import annotations

import json
import mmap
import multiprocessing.shared_memory
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.checkpoint import resolve
from qwen_cached_serve.inpod.environment import quiet
from qwen_cached_serve.inpod.facts import Gpu, ProbeReport, ServeSettings, dumps
from qwen_cached_serve.inpod.gpus import check_exclusive, check_same_gpus, parse_gpus, visible_gpus
from qwen_cached_serve.inpod.layout import Layout, read_json, write_atomic
from qwen_cached_serve.inpod.programs import engine_python, locate
from qwen_cached_serve.inpod.refusal import Refusal
from qwen_cached_serve.inpod.shm import remove_leftovers

SMI = "GPU-aaaa, NVIDIA H100 80GB HBM3, 9.0, 580.95.05, 81559\nGPU-bbbb, NVIDIA H100 80GB HBM3, 9.0, 580.95.05, 81559\n"


def test_the_places_can_be_moved() -> None:
    assert Layout.from_environ({}).code == Path("/opt/qcs")
    moved = Layout.from_environ({"QCS_STATE_DIR": "/s", "QCS_SHM_DIR": "/m", "QCS_TERMINATION_LOG": "/t"})
    assert (moved.state, moved.shm, moved.termination_log) == (Path("/s"), Path("/m"), Path("/t"))


def test_settings_that_cannot_be_read(layout: Layout, settings: ServeSettings) -> None:
    with pytest.raises(Refusal, match=r"settings\.json"):
        layout.settings()
    (layout.code / "settings.json").write_text('{"model": "x"}')
    with pytest.raises(Refusal, match="'engine' is missing") as refused:
        layout.settings()
    assert refused.value.code == "SettingsInvalid"
    (layout.code / "settings.json").write_text(dumps(settings))
    assert layout.settings() == settings


def test_results_that_are_not_there(layout: Layout, report: ProbeReport) -> None:
    for call in (layout.report, layout.engine_argv, layout.cache_server_argv):
        with pytest.raises(Refusal) as refused:
            call()
        assert refused.value.code == "ProbeMissing"
    write_atomic(layout.state / "report.json", dumps(report))
    assert layout.report() == report
    write_atomic(layout.state / "engine.argv.json", '["vllm", 1]')
    with pytest.raises(Refusal, match="not a list of arguments"):
        layout.engine_argv()


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomic(path, "[1]")
    write_atomic(path, "[2]")
    assert read_json(path) == [2]
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert read_json(path) == [2]
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]
    assert read_json(tmp_path / "none.json") is None


def test_usage_reporting_is_off_unless_the_user_answered() -> None:
    assert quiet({}) == {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    answered = quiet({"VLLM_NO_USAGE_STATS": "0", "X": "y"})
    assert answered == {"VLLM_NO_USAGE_STATS": "0", "X": "y", "LMCACHE_TRACK_USAGE": "false"}


def segment(shm: Path, name: str, age: float = 60) -> Path:
    path = shm / name
    path.write_bytes(b"x" * 8192)
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_segments_of_the_dead_are_removed(layout: Layout, dead_pid: int) -> None:
    kept = [
        segment(layout.shm, f"lmcache_kv_{os.getpid()}_0"),
        segment(layout.shm, "lmcache_kv_x_0"),
        segment(layout.shm, "somebody_elses"),
    ]
    gone = [
        segment(layout.shm, f"lmcache_kv_{dead_pid}_0"),
        segment(layout.shm, f"torch_{dead_pid}_1"),
        segment(layout.shm, "psm_0123abcd"),
        segment(layout.shm, "nccl-F9ffgB"),
    ]
    removed = remove_leftovers(layout.shm, now=time.time() + 60)
    assert set(removed.names) == {path.name for path in gone}
    assert removed.bytes >= 4 * 8192
    assert {path.name for path in layout.shm.iterdir()} == {path.name for path in kept}
    assert remove_leftovers(layout.shm, now=time.time() + 60).names == ()


@pytest.mark.parametrize("empty", [True, False])
def test_the_memory_of_a_mapped_segment_is_given_back_when_nobody_may_read_it(dead_pid: int, empty: bool) -> None:
    """As a cache server maps it, which drops an engine long before its mapping. Touching it ends nobody."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = segment(Path(folder), f"lmcache_kv_{dead_pid}_0")
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            assert os.fstat(file.fileno()).st_blocks
            assert remove_leftovers(Path(folder), empty=empty).names == (path.name,)
            assert bool(os.fstat(file.fileno()).st_blocks) is not empty
            assert mapped[:2] == (b"\0\0" if empty else b"xx")


def test_a_segment_somebody_uses_is_kept(layout: Layout) -> None:
    held = segment(layout.shm, "psm_held")
    with held.open("rb"):
        assert remove_leftovers(layout.shm, now=time.time() + 60).names == ()
    assert remove_leftovers(layout.shm, now=time.time() + 60).names == ("psm_held",)


def test_a_segment_of_an_uncollected_process_is_removed(layout: Layout) -> None:
    """A killed worker stays in /proc until its parent, or who inherits it, has collected it."""
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = segment(layout.shm, f"lmcache_kv_{worker.pid}_0")
    assert remove_leftovers(layout.shm).names == ()
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert remove_leftovers(layout.shm).names == (path.name,)
    worker.communicate()


def test_a_young_segment_is_kept(layout: Layout) -> None:
    path = segment(layout.shm, "psm_young")
    assert remove_leftovers(layout.shm, now=path.stat().st_ctime + 0.5).names == ()
    assert remove_leftovers(layout.shm, now=path.stat().st_ctime + 1.5).names == ("psm_young",)


def test_pythons_own_shared_memory_is_seen_as_used() -> None:
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    name = memory.name.lstrip("/")
    try:
        # Everything in the real /dev/shm but this one is out of bounds for a test, so only its own name is looked at.
        from qwen_cached_serve.inpod.shm import _used

        assert name in _used(Path("/dev/shm"), Path("/proc"))
    finally:
        memory.close()
        memory.unlink()


def test_no_shm_folder_is_no_fault(tmp_path: Path) -> None:
    assert remove_leftovers(tmp_path / "none").names == ()


def test_gpus_are_read() -> None:
    first, second = parse_gpus(SMI)
    assert first == Gpu("NVIDIA H100 80GB HBM3", "GPU-aaaa", "9.0", "580.95.05", 81559 << 20)
    assert second.uuid == "GPU-bbbb"
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("GPU-x, Some MIG, [N/A], 580, [N/A]\n")[0].memory_bytes == 0


@pytest.fixture
def fake_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake nvidia-smi that prints what its file holds, or fails when the file is missing."""
    folder = tmp_path / "fake-driver"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexec cat {folder}/answer\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "answer"


def test_visible_gpus_ask_the_driver(fake_smi: Path) -> None:
    assert visible_gpus() is None  # it is there, but fails
    fake_smi.write_text(SMI)
    found = visible_gpus()
    assert found is not None
    assert [gpu.uuid for gpu in found] == ["GPU-aaaa", "GPU-bbbb"]


@pytest.mark.case("B41")
def test_b41_the_engine_must_see_exactly_the_probed_gpus() -> None:
    one, two = parse_gpus(SMI)
    check_same_gpus((one,), (one,), exclusive=True)
    check_same_gpus((), None, exclusive=True)
    for visible in ((two,), (one, two)):
        with pytest.raises(Refusal) as refused:
            check_same_gpus((one,), visible, exclusive=True)
        assert refused.value.code == "DeviceChanged"
    with pytest.raises(Refusal) as refused:
        check_same_gpus((one,), None, exclusive=True)
    assert refused.value.code == "DeviceMissing"


def test_more_gpus_than_asked_for_are_nobodys_own() -> None:
    one, two = parse_gpus(SMI)
    check_exclusive((one,), 1)
    check_exclusive((one, two), 2)
    check_exclusive((one,), 2)  # two slices of one GPU
    check_exclusive((), 1)  # no nvidia-smi: another vendor's
    check_exclusive((one, two), 0)
    with pytest.raises(Refusal, match=r"sees 2 GPUs, but spec\.engine\.accelerator\.gpu\.count asks for 1") as refused:
        check_exclusive((one, two), 1)
    assert refused.value.code == "DeviceNotExclusive"
    for cause in ("NVIDIA_VISIBLE_DEVICES=all", "list strategy", "privileged", "spec.engine.image"):
        assert cause in refused.value.hint


@pytest.mark.case("B41")
def test_b41_the_cache_server_may_see_more() -> None:
    one, two = parse_gpus(SMI)
    check_same_gpus((one,), (one, two), exclusive=False)
    with pytest.raises(Refusal) as refused:
        check_same_gpus((one, two), (two,), exclusive=False)
    assert refused.value.code == "DeviceChanged"


def test_programs_are_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "qcs-fake-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert locate("qcs-fake-program") == str(program)
    with pytest.raises(Refusal) as refused:
        locate("qcs-no-such-program")
    assert refused.value.code == "ProgramMissing"


def test_the_engines_python_is_the_one_its_script_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "vllm"
    other = tmp_path / "python3.99"
    other.symlink_to(sys.executable)
    script.write_text(f"#!{other}\nimport vllm\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_python() == str(other)
    script.write_text("#!/bin/sh\nexec other\n")
    assert engine_python() == sys.executable


def test_a_model_folder(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="not a folder") as refused:
        resolve(str(tmp_path / "none"), None)
    assert refused.value.code == "CheckpointMissing"
    with pytest.raises(Refusal, match=r"config\.json cannot be read"):
        resolve(str(tmp_path), None)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Refusal, match="not JSON"):
        resolve(str(tmp_path), None)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(Refusal, match="not a model configuration"):
        resolve(str(tmp_path), None)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3_5ForCausalLM"]}))
    assert resolve(str(tmp_path), "main") == ""


def test_a_report_without_gpus_checks_nothing(report: ProbeReport) -> None:
    check_same_gpus(replace(report, gpus=()).gpus, None, exclusive=True)
