"""Flags: figures, agreement of probe and engine, quoting, what each accelerator and release gets."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod import flags
from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    Ports,
    ProbeReport,
    ServeSettings,
    TokensPerStep,
    Versions,
)
from qwen_cached_serve.inpod.refusal import Refusal


def value_of(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def connector(argv: list[str]) -> dict[str, object]:
    parsed: dict[str, object] = json.loads(value_of(argv, "--kv-transfer-config"))
    return parsed


@pytest.mark.parametrize(("block_size", "chunk", "tokens"), [(784, 784, 1567), (544, 544, 1087), (352, 352, 703)])
def test_chunk_and_tokens_follow_from_n(
    settings: ServeSettings, report: ProbeReport, block_size: int, chunk: int, tokens: int
) -> None:
    found = replace(report, block_size=block_size)
    assert value_of(flags.engine_argv(settings, found), "--max-num-batched-tokens") == str(tokens)
    assert value_of(flags.cache_server_argv(settings, found), "--chunk-size") == str(chunk)


def test_a_pod_with_an_ipv6_address_listens_on_both_families(settings: ServeSettings, report: ProbeReport) -> None:
    both = flags.engine_argv(settings, replace(report, engine_host="::"))
    plain = flags.engine_argv(settings, report)
    assert value_of(both, "--host") == "::"
    assert [argument for argument in plain if argument not in both] == ["0.0.0.0"]


def test_chunk_blocks_multiply(settings: ServeSettings, report: ProbeReport) -> None:
    four = replace(settings, cache=replace(settings.cache, chunk_blocks=4))
    assert value_of(flags.cache_server_argv(four, report), "--chunk-size") == "3136"
    assert value_of(flags.engine_argv(four, report), "--max-num-batched-tokens") == "1567"


def test_the_whole_engine_command_line(settings: ServeSettings, report: ProbeReport) -> None:
    argv = flags.engine_argv(settings, report)
    assert argv[:3] == ["vllm", "serve", "Qwen/Qwen3.6-27B"]
    for name, expected in {
        "--revision": "a" * 40,
        "--tensor-parallel-size": "1",
        "--mamba-cache-mode": "align",
        "--prefix-cache-retention-interval": "None",
        "--served-model-name": "qwen3.6-27b",
        "--host": "0.0.0.0",
        "--port": "8000",
        "--gpu-memory-utilization": "0.90",
        "--shutdown-timeout": "60",
    }.items():
        assert value_of(argv, name) == expected
    assert {"--enable-prefix-caching", "--language-model-only"} <= set(argv)
    assert connector(argv) == {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1",
            "lmcache.mp.port": 5555,
            "lmcache.mp.mq_timeout": 60,
            "lmcache.mp.heartbeat_interval": 5,
            "lmcache.mp.isolated_ipc": True,
        },
    }


def test_the_whole_cache_server_command_line(settings: ServeSettings, report: ProbeReport) -> None:
    argv = flags.cache_server_argv(settings, report)
    assert argv[:2] == ["lmcache", "server"]
    for name, expected in {
        "--host": "127.0.0.1",
        "--http-host": "127.0.0.1",
        "--port": "5555",
        "--http-port": "8080",
        "--l1-size-gb": "100",
        "--eviction-policy": "LRU",
        "--worker-reap-timeout-seconds": "30",
    }.items():
        assert value_of(argv, name) == expected
    assert {"--separate-object-groups", "--isolated-ipc"} <= set(argv)


def test_three_heartbeats_fit_the_reap_time() -> None:
    # LMCache: the server reaps a worker that it has not heard for the reap time, 30 s at least.
    assert 3 * flags.HEARTBEAT_SECONDS <= flags.REAP_SECONDS >= 30


def test_on_a_cpu_nothing_of_cuda_is_asked_for(cpu_settings: ServeSettings, report: ProbeReport) -> None:
    engine, server = flags.engine_argv(cpu_settings, report), flags.cache_server_argv(cpu_settings, report)
    extra = connector(engine)["kv_connector_extra_config"]
    assert isinstance(extra, dict)
    assert extra["lmcache.mp.mp_transfer_mode"] == "lmcache_driven"
    assert "lmcache.mp.isolated_ipc" not in extra
    assert "--isolated-ipc" not in server
    assert "--gpu-memory-utilization" not in engine


def test_both_sides_of_isolated_ipc_agree(settings: ServeSettings, report: ProbeReport) -> None:
    for lmcache in ("0.5.4", "0.5.5", "0.5.6", "0.5.7rc2", "0.6.0"):
        found = replace(report, versions=replace(report.versions, lmcache=lmcache))
        extra = connector(flags.engine_argv(settings, found))["kv_connector_extra_config"]
        assert isinstance(extra, dict)
        assert ("lmcache.mp.isolated_ipc" in extra) == ("--isolated-ipc" in flags.cache_server_argv(settings, found))


def test_flags_that_a_release_does_not_know_are_left_out(settings: ServeSettings, report: ProbeReport) -> None:
    def engine(vllm: str) -> list[str]:
        return flags.engine_argv(settings, replace(report, versions=replace(report.versions, vllm=vllm)))

    assert "--mamba-cache-mode" in engine("0.32.1")
    assert "--mamba-cache-mode" not in engine("0.33.0")
    assert "--prefix-cache-retention-interval" in engine("0.29.0")
    assert "--prefix-cache-retention-interval" not in engine("0.28.0")
    old = replace(report, versions=replace(report.versions, lmcache="0.5.0"))
    assert "--separate-object-groups" not in flags.cache_server_argv(settings, old)


def test_without_the_cache_nothing_depends_on_n(settings: ServeSettings, report: ProbeReport) -> None:
    plain = replace(settings, cache=CacheSettings(enabled=False))
    assert flags.cache_server_argv(plain, report) == []
    argv = flags.engine_argv(plain, report)
    for name in ("--kv-transfer-config", "--max-num-batched-tokens", "--mamba-cache-mode", "--enable-prefix-caching"):
        assert name not in argv
    fixed = replace(plain, engine=replace(plain.engine, tokens_per_step=TokensPerStep("Fixed", 8192)))
    assert value_of(flags.engine_argv(fixed, report), "--max-num-batched-tokens") == "8192"


@pytest.mark.parametrize(
    ("lmcache", "value", "fits"),
    [
        ("0.5.3", 783, False), ("0.5.3", 784, True), ("0.5.3", 1567, True), ("0.5.3", 1568, False),
        ("0.5.4", 783, False), ("0.5.4", 784, True), ("0.5.4", 1568, True), ("0.5.6", 8192, True),
        ("0.5.6", 783, False), ("0.5.7rc2", 16384, True), ("0.4.7", 1568, False),
    ],
)  # fmt: skip
def test_a_fixed_figure_follows_the_rule_of_the_release(
    settings: ServeSettings, report: ProbeReport, lmcache: str, value: int, fits: bool
) -> None:
    fixed = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("Fixed", value)))
    found = replace(report, versions=replace(report.versions, lmcache=lmcache))
    if fits:
        assert value_of(flags.engine_argv(fixed, found), "--max-num-batched-tokens") == str(value)
        return
    with pytest.raises(Refusal, match=rf"maxNumBatchedTokens.value is {value}, but .* N is 784: LMCache") as refused:
        flags.engine_argv(fixed, found)
    assert refused.value.code == "FixedTokensOutOfRange"
    assert ("before 0.5.4" in refused.value.message) is (value > 784)
    assert refused.value.hint == (
        "Choose a value from 784 to 1567 in spec.engine.vllm.maxNumBatchedTokens, or the policy TwoBlocksMinusOne."
    )


@pytest.mark.parametrize(("value", "fits"), [(783, False), (784, True), (1568, True)])
def test_without_a_known_release_only_the_rule_of_all_is_applied(
    settings: ServeSettings, value: int, fits: bool
) -> None:
    fixed = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("Fixed", value)))
    if fits:
        assert flags.tokens_per_step(fixed, 784) == value
    else:
        with pytest.raises(Refusal):
            flags.tokens_per_step(fixed, 784)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (TokensPerStep("TwoBlocksMinusOne"), "2N-1 with N = 784: one whole block a step, 783 tokens are left for"),
        (TokensPerStep("OneBlock"), "N with N = 784: one whole block a step, nothing is left for decoding"),
        (TokensPerStep("Fixed", 1000), "fixed with N = 784: one whole block a step, 216 tokens are left"),
        (TokensPerStep("Fixed", 1567), "fixed with N = 784: one whole block a step, 783 tokens are left"),
        (TokensPerStep("Fixed", 1568), "fixed by the resource: 2 blocks of 784 a step, one state kept of them"),
    ],
)
def test_the_figure_of_a_step_has_its_reason(
    settings: ServeSettings, report: ProbeReport, steps: TokensPerStep, words: str
) -> None:
    given = replace(settings, engine=replace(settings.engine, tokens_per_step=steps))
    entries = {flag.name: flag for flag in flags.engine_flags(given, report)}
    assert entries["--max-num-batched-tokens"].reason.startswith(words)
    plain = replace(given, cache=CacheSettings(enabled=False))
    unbound = [flag for flag in flags.engine_flags(plain, report) if flag.name == "--max-num-batched-tokens"]
    assert [flag.reason for flag in unbound] == (
        ["as the resource says; without the cache nothing ties it to N"] if steps.policy == "Fixed" else []
    )


@pytest.mark.parametrize(
    ("steps", "words"),
    [(TokensPerStep("Fixed"), "policy Fixed needs a value"), (TokensPerStep("Half"), "unknown policy 'Half'")],
)
def test_a_policy_that_cannot_be_is_refused(
    settings: ServeSettings, report: ProbeReport, steps: TokensPerStep, words: str
) -> None:
    given = replace(settings, engine=replace(settings.engine, tokens_per_step=steps))
    with pytest.raises(Refusal, match=words) as refused:
        flags.engine_argv(given, report)
    assert refused.value.code == "SettingsInvalid"


def test_one_block(settings: ServeSettings, report: ProbeReport) -> None:
    one = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("OneBlock")))
    assert value_of(flags.engine_argv(one, report), "--max-num-batched-tokens") == "784"


def test_the_default_number_of_sequences_is_bounded_by_a_step(settings: ServeSettings, report: ProbeReport) -> None:
    # 0.8B with TP8: N = 144, 287 tokens a step, but 1,024 sequences by default on an 80 GB GPU (facts/vllm.md §4).
    small = replace(report, block_size=144)
    entries = {flag.name: flag for flag in flags.engine_flags(settings, small)}
    assert entries["--max-num-seqs"].value == "287"
    assert "1024" in entries["--max-num-seqs"].reason
    assert "--max-num-seqs" not in flags.engine_argv(settings, report)


def test_a_cpu_or_a_small_gpu_has_a_smaller_default(cpu_settings: ServeSettings, report: ProbeReport) -> None:
    small = replace(report, block_size=144)
    assert "--max-num-seqs" not in flags.engine_argv(cpu_settings, small)  # 128 sequences fit 287 tokens
    tiny = replace(report, block_size=64)
    assert value_of(flags.engine_argv(cpu_settings, tiny), "--max-num-seqs") == "127"


def test_too_many_sequences_for_a_step_are_refused(settings: ServeSettings, report: ProbeReport) -> None:
    many = replace(settings, engine=replace(settings.engine, max_num_seqs=1568))
    with pytest.raises(Refusal) as refused:
        flags.engine_argv(many, report)
    assert refused.value.code == "MaxNumSeqsOutOfRange"
    assert "1567" in refused.value.hint


def test_a_model_name_that_splits_cache_keys_is_refused(settings: ServeSettings, report: ProbeReport) -> None:
    odd = replace(settings, model="/model/a@b")
    with pytest.raises(Refusal) as refused:
        flags.engine_argv(odd, report)
    assert refused.value.code == "ModelNameNotCacheable"
    assert flags.engine_argv(replace(odd, cache=CacheSettings(enabled=False)), report)[2] == "/model/a@b"


N_DEPENDENT = {
    "--max-num-batched-tokens", "--max-num-seqs", "--served-model-name", "--host", "--port", "--gpu-memory-utilization",
    "--shutdown-timeout",
}  # fmt: skip
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=40).filter(
    lambda name: not name.startswith("-") and "@" not in name
)


@st.composite
def serve_settings(draw: st.DrawFn) -> ServeSettings:
    optional_dtype = st.sampled_from([None, "bfloat16", "float32"])
    return ServeSettings(
        model=draw(NAMES),
        engine=EngineSettings(
            accelerator=draw(st.sampled_from(["GPU", "CPU"])),
            tensor_parallel_size=draw(st.sampled_from([1, 2, 4, 8])),
            tokens_per_step=TokensPerStep(draw(st.sampled_from(["TwoBlocksMinusOne", "OneBlock"]))),
            max_model_len=draw(st.none() | st.integers(1, 262144)),
            kv_cache_dtype=draw(st.sampled_from([None, "fp8", "auto"])),
            mamba_ssm_cache_dtype=draw(optional_dtype),
            attention_backend=draw(st.sampled_from([None, "FLASH_ATTN", "FLASHINFER"])),
            block_size=draw(st.sampled_from([None, 32, 128, 1024])),
            speculative_method=draw(st.sampled_from([None, "mtp"])),
            speculative_tokens=draw(st.sampled_from([None, 1, 3])),
            text_only=draw(st.booleans()),
            extra_args=tuple(draw(st.lists(st.sampled_from(["--seed=1", "--enforce-eager", "--dtype=auto"])))),
        ),
        cache=CacheSettings(
            enabled=draw(st.booleans()),
            l1_size_bytes=draw(st.integers(1 << 20, 1 << 50)),
            chunk_blocks=draw(st.integers(1, 16)),
        ),
        served_names=tuple(draw(st.lists(NAMES, max_size=3))),
        ports=Ports(engine=draw(st.integers(1024, 65535))),
    )


@st.composite
def reports(draw: st.DrawFn) -> ProbeReport:
    return ProbeReport(
        block_size=draw(st.integers(1, 200)) * 16,
        kernel_block_size=16,
        attention_backends=("FLASH_ATTN",),
        versions=Versions(
            vllm=draw(st.sampled_from(["0.31.0", "0.32.0+cpu", "0.33.0", "nightly"])),
            lmcache=draw(st.sampled_from(["0.5.6", "0.5.7rc2", "1.0"])),
        ),
        method="Construct",
        model_revision=draw(st.sampled_from(["", "b" * 40])),
    )


@pytest.mark.case("B15")
@given(serve_settings(), reports())
def test_b15_every_reserved_flag_occurs_at_most_once(settings: ServeSettings, report: ProbeReport) -> None:
    for entries, table in (
        (flags.engine_flags(settings, report), flags.RESERVED_ENGINE_FLAGS),
        (flags.cache_server_flags(settings, report), flags.RESERVED_CACHE_SERVER_FLAGS),
    ):
        counted = Counter(entry.name for entry in entries if entry.name)
        assert not [name for name, times in counted.items() if times > 1]
        reserved = {name for flag in table.flags for name in flag.spellings()}
        assert set(counted) <= reserved, "a derived flag that a user could pass as well"
        assert all(entry.reason and entry.source for entry in entries)


@pytest.mark.case("B17")
@given(serve_settings(), reports())
def test_b17_probe_and_engine_agree_on_every_shaping_flag(settings: ServeSettings, report: ProbeReport) -> None:
    probed = replace(settings, revision=report.model_revision or settings.revision)
    probe = flags.probe_argv(probed, report.versions.vllm, report.versions.lmcache)
    shaping: list[str] = ["vllm", "serve"]
    for entry in flags.engine_flags(settings, report):
        if entry.name not in N_DEPENDENT:
            shaping += entry.argv()
    assert sorted(probe) == sorted(shaping)


@pytest.mark.case("B20")
@given(serve_settings(), reports())
def test_b20_json_is_one_argument_that_parses(settings: ServeSettings, report: ProbeReport) -> None:
    argv = flags.engine_argv(settings, report)
    assert argv[2] == settings.model
    if settings.cache.enabled:
        assert connector(argv)["kv_connector"] == "LMCacheMPConnector"


@pytest.mark.case("B20")
def test_b20_a_name_with_quotes_and_dollars_survives(settings: ServeSettings, report: ProbeReport) -> None:
    name = 'org/it\'s a $HOME "test" `x` $(NAME)'
    assert flags.engine_argv(replace(settings, model=name), report)[2] == name


@pytest.mark.case("B40")
@pytest.mark.parametrize(("size", "text"), [(1 << 30, "1"), (60 << 30, "60"), (64 << 30, "64"), (100 << 30, "100")])
def test_b40_l1_is_given_in_gib(settings: ServeSettings, report: ProbeReport, size: int, text: str) -> None:
    sized = replace(settings, cache=replace(settings.cache, l1_size_bytes=size))
    assert value_of(flags.cache_server_argv(sized, report), "--l1-size-gb") == text


@given(st.integers(1, 1 << 52))
def test_l1_size_is_exact_to_the_byte(size: int) -> None:
    settings = ServeSettings("m", EngineSettings("GPU"), CacheSettings(True, l1_size_bytes=size))
    report = ProbeReport(784, 784, (), Versions("0.32.0", "0.5.6"), "Construct")
    text = value_of(flags.cache_server_argv(settings, report), "--l1-size-gb")
    # LMCache 0.5.6 computes `int(args.l1_size_gb * (1 << 30))` with a float.
    assert int(float(text) * (1 << 30)) == size
    assert re.fullmatch(r"[0-9.]+(e-\d+)?", text)


def test_unsupported_arguments_come_last(settings: ServeSettings, report: ProbeReport) -> None:
    own = replace(
        settings,
        engine=replace(settings.engine, extra_args=("--seed", "1"), unsupported_args=("--block-size", "1024")),
        cache=replace(settings.cache, extra_args=("--max-workers", "2"), unsupported_args=("--chunk-size", "1")),
    )
    assert flags.engine_argv(own, report)[-4:] == ["--seed", "1", "--block-size", "1024"]
    assert flags.probe_argv(own, "0.32.0", "0.5.6")[-4:] == ["--seed", "1", "--block-size", "1024"]
    assert flags.cache_server_argv(own, report)[-4:] == ["--max-workers", "2", "--chunk-size", "1"]
