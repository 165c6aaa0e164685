"""Reserved arguments and variables: every spelling of a reserved one, none of an allowed one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.flags import (
    RESERVED_CACHE_SERVER_FLAGS,
    RESERVED_ENGINE_FLAGS,
    RESERVED_ENV,
    WARNED_ENV,
    FlagTable,
    check_env,
    check_extra_args,
    reserved_env_pattern,
    reserved_pattern,
)
from qwen_cached_serve.inpod.refusal import CODES, Refusal

ENGINE = RESERVED_ENGINE_FLAGS
SERVER = RESERVED_CACHE_SERVER_FLAGS


def refused(*args: str, table: FlagTable = ENGINE) -> list[str]:
    return [problem.flag for problem in check_extra_args(args, table)]


@pytest.mark.case("B15")
def test_b15_the_flag_in_equals_form() -> None:
    (problem,) = check_extra_args(["--max-num-batched-tokens=8192"], ENGINE)
    assert problem.flag == "--max-num-batched-tokens"
    assert "2N-1" in problem.message
    assert "spec.engine.vllm.maxNumBatchedTokens" in problem.message


@pytest.mark.case("B16")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--max_num_batched_tokens", "8192"], ["--max-num-batched-tokens"]),
        (["--max-num_batched-tokens=8192"], ["--max-num-batched-tokens"]),
        (["--no_enable_prefix_caching"], ["--enable-prefix-caching"]),
        (["--Max-Num-Batched-Tokens", "1"], []),
    ],
)
def test_b16_spellings(arguments: list[str], expected: list[str]) -> None:
    assert refused(*arguments) == expected


@pytest.mark.case("B17")
@pytest.mark.parametrize("arguments", [["--block-size", "128"], ["--block_size=816"]])
def test_b17_block_size(arguments: list[str]) -> None:
    assert refused(*arguments) == ["--block-size"]


@pytest.mark.case("B18")
def test_b18_each_flag_that_turns_the_cache_off_has_its_own_message() -> None:
    messages = {
        check_extra_args(arguments, ENGINE)[0].message
        for arguments in (
            ["--mamba-cache-mode", "all"],
            ["--no-enable-prefix-caching"],
            ["--disable-hybrid-kv-cache-manager"],
        )
    }
    assert len(messages) == 3
    assert refused("--mamba-cache-mode=none") == ["--mamba-cache-mode"]


@pytest.mark.case("B19")
def test_b19_the_users_own_connector() -> None:
    for arguments in (
        ["--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'],
        ['--kv-transfer-config={"kv_connector":"LMCacheConnectorV1"}'],
        ["--kv-transfer-config.kv_connector", "LMCacheConnectorV1"],
        ["--kv_transfer_config.kv_connector=LMCacheConnectorV1"],
    ):
        assert refused(*arguments) == ["--kv-transfer-config"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-tp", "2"], ["--tensor-parallel-size"]),
        (["-tp=2"], ["--tensor-parallel-size"]),
        (["-t", "2"], ["--tensor-parallel-size"]),
        (["-n2"], ["--nnodes"]),
        (["-sc.method=mtp"], ["--speculative-config"]),
        (["-ac.backend=FLASHINFER"], ["--attention-config"]),
        (["--config", "/etc/x.yaml"], ["--config"]),
        (["--max-num-b", "1"], ["--max-num-batched-tokens"]),
        (["--max-num-batched-tokens 8192"], ["--max-num-batched-tokens"]),
        (["--help"], ["--help"]),
        (["--"], ["--"]),
        (["other/model"], ["model"]),
        (["--seed", "1"], []),
        (["--load-format", "dummy", "--enforce-eager"], []),
        (["--config-format", "hf"], []),
        (["-dc", "{}"], []),
        (["--compilation-config", '{"mode": 3, "note": "--block-size"}'], []),
        (["--override-generation-config.temperature", "-1"], []),
    ],
)
def test_other_spellings(arguments: list[str], expected: list[str]) -> None:
    assert refused(*arguments) == expected


def test_an_ambiguous_beginning_says_so() -> None:
    (problem,) = check_extra_args(["--max-num"], ENGINE)
    assert "in full" in problem.message


# Names in the table that these two releases do not have: of other releases, or read before the parser (`--omni`).
ELSEWHERE = {
    "--disable-prefix-caching", "--disable-chunked-prefill", "--omni", "--enable-hybrid-kv-cache-manager",
}  # fmt: skip


def beginnings(name: str) -> list[str]:
    start = 3 if name.startswith("--") else 2
    return [name[:length] for length in range(start, len(name) + 1)]


def written(draw: st.DrawFn, name: str) -> str:
    dashes = 2 if name.startswith("--") else 1
    body = "".join(draw(st.sampled_from("-_")) if letter == "-" else letter for letter in name[dashes:])
    return name[:dashes] + body + draw(st.sampled_from(["", "=1", '={"a":1}', ".a.b", ".a=1"]))


@st.composite
def reserved_spelling(draw: st.DrawFn, table: FlagTable) -> str:
    flag = draw(st.sampled_from(table.flags))
    name = draw(st.sampled_from(flag.spellings()))
    return written(draw, draw(st.sampled_from([b for b in beginnings(name) if b not in table.allowed])))


@given(reserved_spelling(ENGINE))
def test_every_spelling_of_every_engine_flag_is_refused(item: str) -> None:
    assert check_extra_args(["--seed=1", item], ENGINE)[0].index == 1


@given(reserved_spelling(SERVER))
def test_every_spelling_of_every_cache_server_flag_is_refused(item: str) -> None:
    assert check_extra_args(["--max-workers=1", item], SERVER)[0].index == 1


@given(st.text(max_size=30) | st.text("-_=. \nabnotpc", max_size=12))
def test_the_check_is_the_pattern(item: str) -> None:
    for table in (ENGINE, SERVER):
        by_pattern = re.search(reserved_pattern(table), item) is not None
        assert by_pattern == bool(check_extra_args(["-x", item], table))


@pytest.mark.parametrize(("program", "table"), [("vllm serve 0.32.0", ENGINE), ("lmcache server 0.5.6", SERVER)])
def test_no_allowed_option_of_the_programs_is_refused(
    program: str, table: FlagTable, fixture_json: Callable[[str], Any]
) -> None:
    options = fixture_json("options.json")[program]
    reserved = {name for flag in table.flags for name in flag.spellings()}
    pattern = re.compile(reserved_pattern(table))
    wrongly = [name for name in options if pattern.search(name) and name not in reserved]
    assert wrongly == []
    assert reserved - set(options) - ELSEWHERE == set()


@pytest.mark.parametrize(("program", "table"), [("vllm serve 0.32.0", ENGINE), ("lmcache server 0.5.6", SERVER)])
def test_no_abbreviation_of_an_allowed_option_is_refused(
    program: str, table: FlagTable, fixture_json: Callable[[str], Any]
) -> None:
    options = fixture_json("options.json")[program]
    pattern = re.compile(reserved_pattern(table))
    reserved = {name for flag in table.flags for name in flag.spellings()}
    for name in set(options) - reserved:
        for short in beginnings(name):
            meant = [option for option in options if option.startswith(short)]
            if meant == [name] and not any(other.startswith(short) for other in ELSEWHERE):
                assert not pattern.search(short), f"{short} is the engine's unambiguous short form of {name}"


def test_patterns_are_re2() -> None:
    """No look-around, no back-reference, no possessive or lazy trick: what RE2 does not know."""
    for pattern in (reserved_pattern(ENGINE), reserved_pattern(SERVER), reserved_env_pattern(RESERVED_ENV)):
        assert not re.search(r"\(\?|\\\d|[+*?]\+|\\[bBAzZ]", pattern)
        assert pattern.startswith("^(")


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("VLLM_KV_CACHE_LAYOUT", True),
        ("LMCACHE_USE_UPSTREAM_MP", True),
        ("LMCACHE_", True),
        ("LMCACHE_LOG_LEVELS", True),
        ("LMCACHE_LOG_LEVE", True),
        ("LMCACHE_LOG_LEVEL", False),
        ("LMCACHE_TRACK_USAGE", False),
        ("CUDA_VISIBLE_DEVICES", True),
        ("LD_PRELOAD", True),
        ("PYTHONPATH", True),
        ("VLLM_PORT", True),
        ("VLLM_PORTS", False),
        ("HF_TOKEN", True),
        ("HF_TOKENS", False),
        ("MY_HOME", False),
        ("vllm_port", False),
        ("VLLM_LOGGING_LEVEL", False),
        ("VLLM_CPU_KVCACHE_SPACE", False),
        ("VLLM_API_KEY", False),
    ],
)
def test_environment_names(name: str, is_refused: bool) -> None:
    assert bool(check_env([(name, "x")], RESERVED_ENV)) is is_refused
    assert (re.search(reserved_env_pattern(RESERVED_ENV), name) is not None) is is_refused


@given(st.text("LMCACHE_OGVTRKUSNI", max_size=28).map(lambda tail: f"LMCACHE_{tail}"))
def test_everything_below_the_prefix_but_the_allowed(name: str) -> None:
    (rule,) = [rule for rule in RESERVED_ENV if rule.prefix and rule.name == "LMCACHE_"]
    assert (re.search(reserved_env_pattern(RESERVED_ENV), name) is None) == (name in rule.allowed)


def test_expandable_segments_are_refused_by_value() -> None:
    assert check_env([("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")], RESERVED_ENV)
    assert not check_env([("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")], RESERVED_ENV)
    assert not check_env([("PYTORCH_CUDA_ALLOC_CONF", None)], RESERVED_ENV)


@pytest.mark.case("B21")
def test_b21_the_attention_backend_variable_is_passed_on_with_a_warning() -> None:
    assert not check_env([("VLLM_ATTENTION_BACKEND", "TRITON_ATTN")], RESERVED_ENV)
    assert "spec.engine.vllm.attentionBackend" in WARNED_ENV["VLLM_ATTENTION_BACKEND"]
    assert refused("--attention-backend", "TRITON_ATTN") == ["--attention-backend"]


def test_every_message_names_a_remedy() -> None:
    for table in (ENGINE, SERVER):
        for flag in table.flags:
            assert flag.reason
            assert flag.remedy.endswith("."), flag


def test_a_refusal_needs_a_known_code() -> None:
    assert "Internal" in CODES
    with pytest.raises(ValueError, match="unknown refusal code"):
        Refusal("Whatever", "x")
