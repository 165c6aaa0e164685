"""Termination messages: never above the limit, always readable, tolerant of what is not ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.facts import TERMINATION_MESSAGE_LIMIT_BYTES, Gpu, ProbeReport, Versions
from qwen_cached_serve.inpod.message import (
    CompactReport,
    ProbeFailure,
    argv_hash,
    compact,
    error_message,
    read,
    termination_message,
)

ANY_TEXT = st.text(st.characters(), max_size=3000)
SMALL = st.integers(0, 2**63 - 1)
GPUS = st.builds(Gpu, name=ANY_TEXT, uuid=ANY_TEXT, capability=ANY_TEXT, driver=ANY_TEXT, memory_bytes=SMALL)
REPORTS = st.builds(
    ProbeReport,
    block_size=st.integers(1, 2**63 - 1),
    kernel_block_size=SMALL,
    attention_backends=st.lists(ANY_TEXT, max_size=8).map(tuple),
    versions=st.builds(Versions, vllm=ANY_TEXT, lmcache=ANY_TEXT, torch=ANY_TEXT, python=ANY_TEXT),
    method=ANY_TEXT,
    construct_failure=ANY_TEXT,
    architecture=ANY_TEXT,
    gdn_prefill_backend=ANY_TEXT,
    mamba_cache_mode=ANY_TEXT,
    kv_cache_dtype=ANY_TEXT,
    mamba_ssm_cache_dtype=ANY_TEXT,
    prefix_caching=st.booleans(),
    page_padding_bytes=SMALL,
    max_model_len=SMALL,
    model_revision=ANY_TEXT,
    gpus=st.lists(GPUS, max_size=8).map(tuple),
    timings_seconds=st.dictionaries(st.sampled_from(["import", "construct"]), st.floats(0, 1e6)),
)


@given(REPORTS)
def test_a_report_always_fits_and_keeps_n_and_the_hash(report: ProbeReport) -> None:
    text = termination_message(report, "0123456789abcdef")
    assert len(text.encode("utf-8")) < TERMINATION_MESSAGE_LIMIT_BYTES
    again = read(text)
    assert isinstance(again, CompactReport)
    assert (again.block_size, again.kernel_block_size) == (report.block_size, report.kernel_block_size)
    assert again.argv_hash == "0123456789abcdef"
    assert again.prefix_caching == report.prefix_caching


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_a_failure_always_fits(code: str, message: str, hint: str) -> None:
    text = error_message(code, message, hint)
    assert len(text.encode("utf-8")) < TERMINATION_MESSAGE_LIMIT_BYTES
    assert "error" in json.loads(text)


@given(st.text(st.sampled_from('"\\\x00\n€😀'), min_size=1000, max_size=3000))
def test_a_long_message_keeps_code_and_hint(message: str) -> None:
    again = read(error_message("BadEngineArgs", message, "Correct the field."))
    assert isinstance(again, ProbeFailure)
    assert (again.code, again.hint) == ("BadEngineArgs", "Correct the field.")


def test_an_ordinary_report_loses_nothing(report: ProbeReport) -> None:
    digest = argv_hash(["vllm"], ["lmcache"])
    assert read(termination_message(report, digest)) == compact(report, digest)


def test_eight_gpus_fit_whole(report: ProbeReport) -> None:
    gpus = tuple(replace(report.gpus[0], uuid=f"GPU-{number:08x}-aaaa-bbbb-cccc-0123456789ab") for number in range(8))
    again = read(termination_message(replace(report, gpus=gpus), "0" * 16))
    assert isinstance(again, CompactReport)
    assert again.gpu_uuids == tuple(gpu.uuid for gpu in gpus)


NAME = "n" * 253
"""The longest name of a Secret, claim or node."""


@given(st.integers(1, 64), st.sampled_from(["GPU-01234567-89ab-cdef-0123-456789abcdef", "MIG-" + "f" * 60]))
def test_the_longest_that_a_cluster_can_hold(gpus: int, uuid: str) -> None:
    """Every field at its longest, as far as Kubernetes, the hub and drivers go; N, hash and identity stay."""
    longest = ProbeReport(
        block_size=10**6,
        kernel_block_size=10**6,
        attention_backends=tuple(f"ROCM_AITER_UNIFIED_ATTN_{number}" for number in range(4)),
        versions=Versions("0.32.0rc10.dev9999+g5df63a720.d20261017.cu130", "0.5.6.post99+g0123456789", "2.13.0+cu130"),
        method="DryStart",
        construct_failure="AttributeError: " + NAME,
        architecture="Qwen3_5MoeForConditionalGeneration",
        gdn_prefill_backend="aiter_flydsl",
        mamba_cache_mode="align",
        kv_cache_dtype="fp8_per_token_head",
        mamba_ssm_cache_dtype="bfloat16",
        page_padding_bytes=10**9,
        max_model_len=10**7,
        model_revision="f" * 40,
        gpus=tuple(
            Gpu("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", uuid[:-2] + f"{number:02d}", "12.0",
                "580.105.08", 96 << 30)
            for number in range(gpus)
        ),
        node=NAME,
        identity="v1-" + "f" * 40,
        identity_summary=f"FLASH_ATTN/1000000 N1000000 tp64 {NAME}",
        identity_components={NAME: NAME},
        timings_seconds={"import": 1e6},
    )  # fmt: skip
    text = termination_message(longest, "f" * 16)
    assert len(text.encode("utf-8")) < TERMINATION_MESSAGE_LIMIT_BYTES
    again = read(text)
    assert isinstance(again, CompactReport)
    assert (again.block_size, again.identity, again.argv_hash) == (10**6, longest.identity, "f" * 16)
    assert again.vllm == longest.versions.vllm


def test_a_failure_that_names_the_longest_things_keeps_what_to_do() -> None:
    hint = "Check spec.model.source.huggingFace.tokenSecretKeyRef."
    text = error_message("ModelAccessDenied", f"the hub refuses {'o' * 96}/{'m' * 96}: {NAME} {'/p' * 2048}", hint)
    assert len(text.encode("utf-8")) < TERMINATION_MESSAGE_LIMIT_BYTES
    again = read(text)
    assert isinstance(again, ProbeFailure)
    assert (again.code, again.hint) == ("ModelAccessDenied", hint)
    assert NAME in again.message


def test_colours_and_line_breaks_are_taken_out() -> None:
    again = read(error_message("Internal", "\x1b[32;20mred\x1b[0m\nnext\tline", ""))
    assert again == ProbeFailure("Internal", "red next line", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm: error: unrecognized arguments",
        "null",
        "[]",
        "{}",
        '{"error": "text"}',
        '{"error": {"code": 1}}',
        '{"schema": 1, "blockSize": 784',
        '{"schema": 1, "blockSize": "784", "kernelBlock": 784, "argvHash": "x"}',
        '{"schema": 1, "blockSize": true, "kernelBlock": 784, "argvHash": "x"}',
        '{"schema": 1, "blockSize": 0, "kernelBlock": 784, "argvHash": "x"}',
        '{"schema": 1, "blockSize": 784, "argvHash": "x"}',
        "[" * 100000,
        '{"schema": 1, "blockSize": 99999999999999999999, "kernelBlock": 784, "argvHash": "x"}',
        '{"schema": 1, "blockSize": 784, "kernelBlock": -1, "argvHash": "x"}',
        '{"error": {"code": "400", "message": "a web server\'s own"}}',
        '{"error": {"code": "no reason", "message": "m"}}',
        json.dumps({"error": {"code": "x" * 81, "message": "m"}}),
    ],
)
def test_what_is_not_ours_is_none(text: str) -> None:
    assert read(text) is None


def test_a_newer_writer_is_read() -> None:
    again = read('{"schema": 2, "blockSize": 784, "kernelBlock": 784, "argvHash": "x", "news": [1]}')
    assert isinstance(again, CompactReport)
    assert again.block_size == 784


def test_what_another_program_wrote_is_cut_to_what_ours_writes() -> None:
    report = {"schema": 1, "blockSize": 784, "kernelBlock": 784, "argvHash": "x", "gpu": "long\n" * 400}
    again = read(json.dumps(report | {"gpuUuids": ["u" * 400] * 400}))
    assert isinstance(again, CompactReport)
    assert (len(again.gpu_name), "\n" in again.gpu_name) == (80, False)
    assert (len(again.gpu_uuids), len(again.gpu_uuids[0])) == (16, 80)


def test_the_argv_hash_tells_every_argument_apart() -> None:
    assert argv_hash(["a", "b"], []) != argv_hash(["a"], ["b"])
    assert argv_hash(["a b"]) != argv_hash(["a", "b"])
    assert argv_hash(["ä"]) == argv_hash(("ä",))
