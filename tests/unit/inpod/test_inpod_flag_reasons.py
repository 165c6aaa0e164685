"""Both command lines whole, with reason and source of every flag, against a table that a person reads in review.

`QCS_UPDATE_FLAG_TABLES=1 pytest tests/unit/inpod/test_inpod_flag_reasons.py` writes the table anew; look at the diff.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod import flags
from qwen_cached_serve.inpod.facts import CacheSettings, Gpu, L2Tier, Ports, ProbeReport, ServeSettings, TokensPerStep
from qwen_cached_serve.inpod.profiles import load_profiles
from qwen_cached_serve.inpod.refusal import Refusal

TABLE = Path(__file__).parent / "fixtures" / "flag-tables.txt"


def versions(report: ProbeReport, vllm: str, lmcache: str) -> ProbeReport:
    return replace(report, versions=replace(report.versions, vllm=vllm, lmcache=lmcache))


def cases(settings: ServeSettings, report: ProbeReport) -> dict[str, tuple[ServeSettings, ProbeReport]]:
    engine = settings.engine
    everything = replace(
        settings,
        engine=replace(
            engine, tensor_parallel_size=2, max_model_len=65536, text_only=False, kv_cache_dtype="fp8",
            mamba_ssm_cache_dtype="float32", attention_backend="FLASH_ATTN", block_size=32, max_num_seqs=64,
            speculative_method="mtp", speculative_tokens=1, gpu_memory_utilization_percent=85,
            shutdown_timeout_seconds=30, extra_args=("--seed", "1"), unsupported_args=("--enable-lora",),
        ),
        cache=replace(
            settings.cache, chunk_blocks=2, eviction_policy="ARC", extra_args=("--max-cpu-workers", "2"),
            unsupported_args=("--hash-algorithm", "builtin"),
        ),
        served_names=("a", "b"),
        ports=Ports(engine=1, cache_server=2, cache_server_http=3),
    )  # fmt: skip
    small = replace(report, block_size=144, model_revision="")
    cpu = replace(settings, engine=replace(engine, accelerator="CPU"), gpu_count=0, revision=None, served_names=())
    return {
        "one GPU, the advised pair": (settings, report),
        "everything set, vLLM 0.33 and LMCache 0.5.7": (everything, versions(report, "0.33.0", "0.5.7")),
        "a pod with an IPv6 address": (settings, replace(report, engine_host="::")),
        "an old pair": (settings, versions(report, "0.28.0", "0.5.4")),
        "a CPU": (cpu, replace(report, gpus=())),
        "without the cache, a fixed step": (
            replace(
                settings,
                engine=replace(engine, tokens_per_step=TokensPerStep("Fixed", 8192)),
                cache=CacheSettings(False),
            ),
            report,
        ),
        "one block a step, more sequences by default than a step holds": (
            replace(settings, engine=replace(engine, tokens_per_step=TokensPerStep("OneBlock"))),
            small,
        ),
        "a fixed step of several blocks, drafting without a number": (
            replace(
                settings,
                engine=replace(engine, tokens_per_step=TokensPerStep("Fixed", 2000), speculative_method="ngram"),
            ),
            report,
        ),
        "fewer sequences after a start with too few state blocks": (
            replace(settings, engine=replace(engine, tuned_max_num_seqs=96)),
            report,
        ),
        "and without the cache": (
            replace(settings, engine=replace(engine, tuned_max_num_seqs=96), cache=CacheSettings(False)),
            report,
        ),
        "entries on a volume and on a server": (
            replace(
                settings,
                cache=replace(
                    settings.cache,
                    l2=(
                        L2Tier("disk", "Filesystem", path="/mnt/kv", capacity_bytes=1 << 40),
                        L2Tier("valkey", "Valkey", endpoint="valkey.kv:6379", username="qcs"),
                    ),
                ),
            ),
            replace(report, identity="q36-5c4f0a"),
        ),
    }  # fmt: skip


def test_every_flag_with_its_reason(settings: ServeSettings, report: ProbeReport) -> None:
    lines = []
    for title, (given, found) in cases(settings, report).items():
        lines += [f"## {title}", ""]
        for program, table in (
            ("vllm serve", flags.engine_flags(given, found)),
            ("lmcache server", flags.cache_server_flags(given, found)),
        ):
            lines.append(program)
            assert all(isinstance(flag.name, str) for flag in table)
            lines += [f"  {' '.join(flag.argv())}\n      {flag.reason} [{flag.source}]" for flag in table]
        lines.append("")
    text = "\n".join(lines)
    if os.environ.get("QCS_UPDATE_FLAG_TABLES"):
        TABLE.write_text(text, encoding="utf-8")
    assert text == TABLE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("gpu", "vllm", "default"),
    [
        (("NVIDIA H100", "9.0", 80), "0.32.0", 1024),
        (("NVIDIA H100", "9.0", 70), "0.32.0", 1024),
        (("NVIDIA L40S", "8.9", 69), "0.32.0", 256),
        (("NVIDIA A100-SXM4-80GB", "8.0", 80), "0.32.0", 256),
        (("NVIDIA a100 of 2030", "8.0", 160), "0.32.0", 1024),
        (("NVIDIA GB10", "12.1", 119), "0.32.0", 1024),
        (("NVIDIA GB10", "12.1", 119), "0.33.0", 256),
        (("NVIDIA B200", "10.0", 179), "0.33.0", 1024),
        (None, "0.33.0", 1024),
    ],
)
@pytest.mark.parametrize("throughput", [1, 2])
def test_the_engines_own_number_of_sequences(
    settings: ServeSettings,
    report: ProbeReport,
    gpu: tuple[str, str, int] | None,
    vllm: str,
    default: int,
    throughput: int,
) -> None:
    # vLLM's EngineArgs.get_batch_defaults; `--performance-mode throughput` doubles it.
    gpus = (Gpu(gpu[0], "GPU-1", gpu[1], "580", gpu[2] << 30),) if gpu else ()
    extra = ("--performance-mode", "throughput") if throughput == 2 else ()
    given = replace(settings, engine=replace(settings.engine, extra_args=extra))

    def sequences(tokens: int) -> str | None:
        found = replace(versions(report, vllm, "0.5.6"), gpus=gpus, block_size=(tokens + 1) // 2)
        table = {flag.name: flag for flag in flags.engine_flags(given, found)}
        return table["--max-num-seqs"].value if "--max-num-seqs" in table else None

    # 2N-1 is odd and the default even: the largest step below it, the smallest above.
    assert sequences(throughput * default - 1) == str(throughput * default - 1)
    assert sequences(throughput * default + 1) is None


def names_of(settings: ServeSettings, report: ProbeReport) -> dict[str, str | None]:
    return {flag.name: flag.value for flag in flags.engine_flags(settings, report)}


def test_a_number_of_sequences_is_given_only_where_it_is_needed(settings: ServeSettings, report: ProbeReport) -> None:
    one_block = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("OneBlock")))
    assert "--max-num-seqs" not in names_of(one_block, replace(report, block_size=1024))  # its default is 1024 as well
    assert names_of(one_block, replace(report, block_size=1008))["--max-num-seqs"] == "1008"
    seeded = replace(settings, engine=replace(settings.engine, extra_args=("--seed", "1")))
    assert "--max-num-seqs" not in names_of(seeded, replace(report, block_size=528))  # 1055; only throughput doubles it
    for tuned, expected in ((96, "96"), (1566, "1566"), (5000, "1567")):
        given = replace(settings, engine=replace(settings.engine, tuned_max_num_seqs=tuned))
        assert names_of(given, report)["--max-num-seqs"] == expected
    assert "--revision" not in names_of(replace(settings, revision=""), replace(report, model_revision=""))


def test_ranks_of_a_cpu_add_up(cpu_settings: ServeSettings, report: ProbeReport) -> None:
    two = replace(cpu_settings, engine=replace(cpu_settings.engine, tensor_parallel_size=2))
    names = [flag.name for flag in flags.engine_flags(two, replace(report, block_size=128))]
    assert "--max-num-seqs" in names  # 256 by default, 255 tokens a step
    assert "--max-num-seqs" not in [flag.name for flag in flags.engine_flags(two, replace(report, block_size=129))]


@pytest.mark.parametrize("model", ["", "-x", "--model=y"])
def test_a_model_that_would_be_read_as_a_flag_is_refused(
    settings: ServeSettings, report: ProbeReport, model: str
) -> None:
    with pytest.raises(Refusal) as refused:
        flags.engine_argv(replace(settings, model=model), report)
    assert (refused.value.code, refused.value.message, refused.value.hint) == (
        "SettingsInvalid", f"model.name {model!r} is not a name", "Correct spec.model.name.",
    )  # fmt: skip


def test_words_of_refusals(settings: ServeSettings, report: ProbeReport) -> None:
    at = replace(settings, model="a@b")
    many = replace(settings, engine=replace(settings.engine, max_num_seqs=1568))
    nothing = replace(settings, cache=replace(settings.cache, l1_size_bytes=0))
    said = {}
    for given, make in ((at, flags.engine_argv), (many, flags.engine_argv), (nothing, flags.cache_server_argv)):
        with pytest.raises(Refusal) as refused:
            make(given, report)
        said[refused.value.code] = (refused.value.message, refused.value.hint)
    assert said == {
        "ModelNameNotCacheable": (
            "model.name 'a@b' contains \"@\", which separates the parts of LMCache's keys",
            "Use a path or id without it, or set spec.cache.mode to Disabled.",
        ),
        "MaxNumSeqsOutOfRange": (
            "maxNumSeqs is 1568, but a step holds 1567 tokens: every sequence needs one",
            "Set spec.engine.vllm.maxNumSeqs to 1567 or less.",
        ),
        "SettingsInvalid": ("cache.l1.size is 0 bytes", "Set spec.cache.l1.size to a positive size."),
    }
    assert flags.engine_argv(replace(settings, engine=replace(settings.engine, max_num_seqs=1567)), report)


OUT = "maxNumBatchedTokens.value is {}, but the unified block size N is 784: LMCache"


@pytest.mark.parametrize(
    ("steps", "message", "hint"),
    [
        (
            TokensPerStep("Fixed", 783),
            f"{OUT.format(783)} demands that a step can hold a whole block of N tokens",
            "Choose a value from 784 to 1567 in spec.engine.vllm.maxNumBatchedTokens, or the policy TwoBlocksMinusOne.",
        ),
        (
            TokensPerStep("Fixed", 1568),
            (
                f"{OUT.format(1568)} before 0.5.4 demands that a step holds less than two blocks, since it keeps "
                "only the last one's state"
            ),
            "Choose a value from 784 to 1567 in spec.engine.vllm.maxNumBatchedTokens, or the policy TwoBlocksMinusOne.",
        ),
        (
            TokensPerStep("Fixed"),
            "maxNumBatchedTokens: policy Fixed needs a value",
            "Set spec.engine.vllm.maxNumBatchedTokens.value.",
        ),
        (TokensPerStep("Half"), "maxNumBatchedTokens: unknown policy 'Half'", ""),
    ],
)
def test_words_of_a_step_that_cannot_be(
    settings: ServeSettings, report: ProbeReport, steps: TokensPerStep, message: str, hint: str
) -> None:
    given = replace(settings, engine=replace(settings.engine, tokens_per_step=steps))
    with pytest.raises(Refusal) as refused:
        flags.engine_argv(given, versions(report, "0.32.0", "0.5.3"))
    assert refused.value.code == ("FixedTokensOutOfRange" if steps.value else "SettingsInvalid")
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_profiles_that_are_given_are_the_ones_that_count(settings: ServeSettings, report: ProbeReport) -> None:
    """Not those beside the module: the operator asks about releases with the data of one reading."""
    profiles = load_profiles()
    one_block = tuple(replace(row, tokens_per_step="OneBlockOnly", isolated_ipc=False) for row in profiles.lmcache)
    other = replace(
        profiles,
        lmcache=one_block,
        vllm=tuple(replace(row, mamba_cache_mode_flag=False) for row in profiles.vllm),
        max_num_seqs_gpu_70gib=2000,
    )
    argv = flags.engine_argv(settings, report, other)
    assert "--mamba-cache-mode" not in argv
    assert argv[argv.index("--max-num-seqs") + 1] == "1567"
    assert "isolated_ipc" not in " ".join(argv)
    assert "--isolated-ipc" not in flags.cache_server_argv(settings, report, other)
    assert "--mamba-cache-mode" not in flags.probe_argv(settings, "0.32.0", "0.5.6", other)
    assert "--mamba-cache-mode" in flags.probe_argv(settings, "0.32.0", "0.5.6")
    fixed = replace(settings, engine=replace(settings.engine, tokens_per_step=TokensPerStep("Fixed", 5000)))
    with pytest.raises(Refusal):
        flags.engine_argv(fixed, report, other)
    assert flags.engine_argv(fixed, report)


@pytest.mark.parametrize(
    ("flag", "argv", "value"),
    [
        (flags.Flag("--x", ("1",), "r", "s"), ["--x", "1"], "1"),
        (flags.Flag("--x", ("-1",), "r", "s"), ["--x=-1"], "-1"),
        (flags.Flag("--x", ("-a", "-b"), "r", "s"), ["--x", "-a", "-b"], "-a -b"),
        (flags.Flag("--x", (), "r", "s"), ["--x"], None),
        (flags.Flag("", ("-a", "b"), "r", "s"), ["-a", "b"], "-a b"),
        (flags.Flag("", ("-a",), "r", "s"), ["-a"], "-a"),
    ],
)
def test_a_flag_as_arguments(flag: flags.Flag, argv: list[str], value: str | None) -> None:
    assert (flag.argv(), flag.value) == (argv, value)
