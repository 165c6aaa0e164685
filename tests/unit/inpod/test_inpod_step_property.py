"""No settings whatever lead to a step outside [N, 2N), unless it was asked for by number and the release takes it.

What counts is what the engine's parser makes of the whole command line, the user's accepted extra arguments included:
argparse with the option names of vLLM 0.32 and its rule that underscores are dashes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path

from hypothesis import assume, event, given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    ProbeReport,
    ServeSettings,
    TokensPerStep,
    Versions,
)
from qwen_cached_serve.inpod.flags import RESERVED_ENGINE_FLAGS, check_extra_args, engine_argv
from qwen_cached_serve.inpod.profiles import load_profiles
from qwen_cached_serve.inpod.refusal import Refusal

OPTIONS = json.loads((Path(__file__).parent / "fixtures" / "options.json").read_text())["vllm serve 0.32.0"]
STEP = "--max-num-batched-tokens"
VLLM = ["0.24.0", "0.31.0", "0.32.0+cpu", "0.33.0", "0.34.0rc1", "1.0", "nightly"]
LMCACHE = ["", "0.4.7", "0.5.3", "0.5.4rc1", "0.5.4", "0.5.6", "0.5.7rc2", "2.0", "main"]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(add_help=False)
    for name in OPTIONS:
        made.add_argument(name, nargs="?", dest=name)
    return made


PARSER = parser()


def tokens_the_engine_takes(argv: list[str]) -> str | None:
    """Value of the flag for the engine; an assumption fails when its parser refuses the command line."""
    dashed = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        dashed.append((name.replace("_", "-") if name.startswith("--") else name) + equals + value)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            known, _ = PARSER.parse_known_args(dashed)
        except SystemExit:
            assume(False)
    taken: str | None = getattr(known, STEP)
    return taken


@st.composite
def written(draw: st.DrawFn) -> str:
    """One extra argument: a real option, often the one in question, begun, misspelt or joined with a value."""
    name = draw(st.sampled_from([STEP, STEP, "--max-num-scheduled-tokens", *OPTIONS]))
    name = name[: draw(st.integers(2, len(name)))] if draw(st.booleans()) else name
    name = name.replace("-", draw(st.sampled_from(["-", "_"]))).replace("__", "--", 1)
    return name + draw(st.sampled_from(["", "", "=8192", "=1", "="]))


@st.composite
def anything(draw: st.DrawFn) -> ServeSettings:
    extra = draw(st.lists(written() | st.sampled_from(["8192", "1", "-1", "x"]) | st.text(max_size=8), max_size=5))
    assume(not check_extra_args(extra, RESERVED_ENGINE_FLAGS))
    policy = draw(st.sampled_from(["TwoBlocksMinusOne", "OneBlock", "Fixed"]))
    return ServeSettings(
        model="m",
        engine=EngineSettings(
            accelerator=draw(st.sampled_from(["GPU", "CPU"])),
            tensor_parallel_size=draw(st.sampled_from([1, 2, 8])),
            tokens_per_step=TokensPerStep(policy, draw(st.integers(1, 20000)) if policy == "Fixed" else None),
            max_model_len=draw(st.none() | st.integers(1, 262144)),
            max_num_seqs=draw(st.none() | st.integers(1, 4096)),
            block_size=draw(st.sampled_from([None, 16, 784, 1024])),
            kv_cache_dtype=draw(st.sampled_from([None, "fp8"])),
            speculative_method=draw(st.sampled_from([None, "mtp"])),
            speculative_tokens=draw(st.sampled_from([None, 1, 5])),
            extra_args=tuple(extra),
        ),
        cache=CacheSettings(draw(st.booleans()), l1_size_bytes=1 << 30, chunk_blocks=draw(st.integers(1, 8))),
    )


@given(anything(), st.integers(1, 4300), st.sampled_from(VLLM), st.sampled_from(LMCACHE))
def test_a_step_holds_one_block_and_less_than_two(
    settings: ServeSettings, block_size: int, vllm: str, lmcache: str
) -> None:
    report = ProbeReport(block_size, block_size, (), Versions(vllm, lmcache), "Construct")
    try:
        taken = tokens_the_engine_takes(engine_argv(settings, report))
    except Refusal as refusal:
        event(refusal.code)
        return
    asked = settings.engine.tokens_per_step
    if not settings.cache.enabled:
        assert taken == (None if asked.policy != "Fixed" else str(asked.value))
        return
    assert taken is not None
    tokens = int(taken)
    assert tokens >= block_size
    if tokens >= 2 * block_size:
        event("larger, by number")
        assert (asked.policy, asked.value) == ("Fixed", tokens)
        assert load_profiles().for_lmcache(lmcache).tokens_per_step == "AtLeastOneBlock"
