"""`qcs explain`: a log in, the cause out."""

import functools
import json
from pathlib import Path

import pytest

from qwen_cached_serve.cli import explaining
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.inpod.message import error_message

LOGS = Path(__file__).parents[1] / "core" / "fixtures" / "engine-logs"
SEQUENCES = (
    "(EngineCore pid=187) ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614). Each decode "
    "sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at "
    "most 614 or increase gpu_memory_utilization.\n"
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
)


@pytest.fixture
def qcs(run_qcs):
    """Run `qcs explain`."""
    return functools.partial(run_qcs, "explain")


@pytest.mark.case("B23")
def test_a_log_is_explained_for_people(qcs, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text(SEQUENCES)
    status, out, _ = qcs(log)
    assert status == 0
    assert out.splitlines() == [
        "MaxNumSeqsTooLarge: The engine may run 1024 sequences at once but has state blocks for 614.",
        "  field:   spec.engine.vllm.maxNumSeqs",
        "  do:      Set it to 614 or less, or raise gpuMemoryUtilizationPercent.",
        "  numbers: maxNumSeqs 1024, availableBlocks 614",
        f"  line 1: {SEQUENCES.splitlines()[0].split(') ', 1)[1]}"[:249].rstrip() + "…",
    ]


@pytest.mark.case("B22")
def test_and_for_programs(qcs, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        "  Assertion failed, In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens (2048). "
        "[type=assertion_error]\n"
    )
    status, out, _ = qcs(log, "-o", "json")
    said = json.loads(out)
    assert status == 0
    assert (said["code"], said["field"]) == ("TokensPerStepOutOfRange", "spec.engine.vllm.maxNumBatchedTokens")
    assert said["numbers"] == {"blockSize": 2096, "maxNumBatchedTokens": 2048}
    assert "2096" in said["explanation"]
    assert "TwoBlocksMinusOne" in said["remedy"]
    assert (said["line"], said["needsAPerson"]) == (2, True)


def test_standard_input_with_bytes_that_are_no_text(qcs):
    status, out, _ = qcs("-", stdin=b"\xff\xfe\x00 noise\n" + SEQUENCES.encode())
    assert (status, out.split(":")[0]) == (0, "MaxNumSeqsTooLarge")


@pytest.mark.parametrize(("name", "block_size"), [("healthy-with-cache", 2144), ("healthy-0.8b-geometry-padded", 640)])
def test_a_healthy_log_shows_what_the_engine_says(qcs, name, block_size):
    status, out, _ = qcs(LOGS / f"{name}.log", "-o", "json")
    said = json.loads(out)
    assert (status, said["code"], said["facts"]["blockSize"]) == (0, "NoFailure", block_size)


@pytest.mark.case("B06")
def test_an_image_that_cannot_cache_is_told_though_nothing_failed(qcs, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text(
        "(APIServer pid=1) INFO 02-12 09:46:30 [config.py:302] Hybrid or mamba-based model detected without support "
        "for prefix caching: disabling.\n"
        "(APIServer pid=1) INFO 02-12 09:46:31 [config.py:439] Setting attention block size to 1072 tokens to ensure "
        "that attention page size is >= mamba page size.\n"
    )
    _, out, _ = qcs(log, "-o", "json")
    said = json.loads(out)
    assert (said["code"], said["field"], said["facts"]["blockSize"]) == ("ImageTooOld", "spec.engine.image", 1072)
    assert "disabling" in said["excerpt"]


def test_a_termination_message_of_the_pod_is_read_too(qcs):
    text = error_message("ArchitectureNotSupported", "Qwen2 has no linear layers", "Correct spec.model.name.")
    _, out, _ = qcs("-", stdin=text.encode())
    assert out.startswith("ArchitectureNotSupported: Qwen2 has no linear layers.\n  field:   spec.model.name\n")


def test_what_kubectl_describe_says_is_read_too(qcs):
    _, out, _ = qcs("-", stdin=b"    Last State:     Terminated\n      Reason:       OOMKilled\n")
    assert out.startswith("OOMKilled: ")


def test_the_container_decides_about_the_field(qcs):
    _, out, _ = qcs("-c", "cache-server", "-", stdin=b"MemoryError\n")
    assert "spec.cache.resources.limits.memory" in out


def test_nothing_is_guessed(qcs):
    _, out, _ = qcs("-", stdin=b"ZeroDivisionError: division by zero\n")
    assert out.startswith("Unknown: ")
    assert "ZeroDivisionError: division by zero" in out


def test_mistakes_are_one_line(qcs, tmp_path):
    status, _, err = qcs(tmp_path / "missing.log")
    assert (status, err.count("\n")) == (1, 1)
    assert "missing.log: cannot be read" in err
    with pytest.raises(CliError, match="engine, cache-server or probe"):
        explaining.explain("", "sidecar")


def test_of_a_huge_file_the_end_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(explaining, "LIMIT_BYTES", 1000)
    log = tmp_path / "engine.log"
    log.write_text("x" * 5000 + "\n" + "MemoryError\n")
    text = explaining.read_text(str(log))
    assert len(text) == 1000
    assert explaining.explain(text).diagnosis.code == "HostMemoryExhausted"
