"""One spelling for arguments: what means the same is the same, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.arguments import canonical
from qwen_cached_serve.inpod.neutral import CACHE_SERVER, ENGINE, load_neutral

FLAGS = load_neutral().programs[ENGINE]


def one(*arguments: str, version: str = "0.32.0") -> dict[str, str]:
    return canonical(arguments, FLAGS, version)


@pytest.mark.parametrize(
    "spellings",
    [
        (["--load-format", "dummy"], ["--load_format=dummy"], ["--load-format=dummy"], ["--load-f", "dummy"]),
        (["--enforce-eager"], ["--enforce_eager"], ["--enforce-e"]),
        (["--no-enforce-eager"], ["--no_enforce_eager"], ["--no-enforce-e"]),
        (["--quantization", "fp8"], ["-q", "fp8"], ["-q=fp8"], ["-qfp8"], ["--quantization=fp8"]),
        (["--optimization-level", "3"], ["-O3"], ["-O", "3"], ["-O=3"]),
        (
            ["--hf-overrides", '{"a": 1, "b": {"c": [1, 2]}}'],
            ['--hf_overrides={"b":{"c":[1,2]},"a":1}'],
            ["--hf-overrides.a", "1", "--hf-overrides.b.c", "[1, 2]"],
            ["--hf-overrides.b.c=[1,2]", "--hf_overrides.a=1"],
        ),
        (
            ["--compilation-config.cudagraph_capture_sizes+", "1,2"],
            ["-cc", '{"cudagraph_capture_sizes": ["1", "2"]}'],
            ["-cc.cudagraph_capture_sizes+=1", "-cc.cudagraph_capture_sizes+=2"],
        ),
        (["--seed", "-1"], ["--seed=-1"]),
        (["--seed", "1", "--seed", "2"], ["--seed=2"]),
        (["--dtype", "half", "--seed", "2"], ["--seed", "2", "--dtype=half"]),
        (["--gpu-memory-utilization", ".9"], ["--device-memory-utilization", ".9"]),
    ],
)
def test_spelling_and_order_do_not_matter(spellings: tuple[list[str], ...]) -> None:
    maps = [one(*arguments) for arguments in spellings]
    assert all(found == maps[0] for found in maps), maps


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--seed", "1", "--seed", "2"], ["--seed", "2", "--seed", "1"]),
        (["--enforce-eager"], ["--no-enforce-eager"]),
        (["--enforce-eager"], []),
        (["--Seed", "1"], ["--seed", "1"]),  # case counts (B16)
        (["--unheard-of", "1", "--unheard-of", "2"], ["--unheard-of", "2"]),  # it may add up
        (["--middleware", "a", "--middleware", "b"], ["--middleware", "b"]),
        (["--m", "1"], ["--model-impl", "1"]),  # an ambiguous beginning
        (['--hf-overrides={"a": 1}'], ['--hf-overrides={"a": "1"}']),
        (["--seed", "1"], ["--seed", "1", "stray"]),
        (["--seed="], ["--seed"]),
    ],
)
def test_what_differs_stays_different(first: list[str], second: list[str]) -> None:
    assert one(*first) != one(*second)


def test_a_newer_release_may_have_a_flag_of_the_abbreviations_name() -> None:
    assert one("--load-f", "dummy", version="0.33.0") == {"--load-f": "dummy"}
    assert one("--load-f", "dummy", version="nightly") == {"--load-f": "dummy"}
    assert one("-q", "fp8", version="0.34.1") == {"--quantization": "fp8"}


def test_vllms_order_of_dotted_keys_and_json() -> None:
    # FlexibleArgumentParser appends what dotted keys add up to; argparse then lets the last one win.
    assert one("--hf-overrides.a", "1", "--hf-overrides", '{"a": 2}') == {"--hf-overrides": '{"a":1}'}


def test_damaged_json_is_kept_as_it_is() -> None:
    assert one("--hf-overrides", '{"a": ') == {"--hf-overrides": '{"a": '}
    assert one("--hf-overrides", "[" * 100_000)["--hf-overrides"].startswith("[[[")


VALUES = st.text(st.sampled_from("abc019.{}[]\"',:=- "), max_size=12)
NAMES = st.sampled_from(["--seed", "--dtype", "--unheard-of", "-q", "--hf-overrides", "--middleware"])


@given(st.lists(st.tuples(NAMES, VALUES.filter(lambda text: not text.startswith("-"))), unique_by=lambda pair: pair[0]))
def test_order_and_equals_signs_never_matter(pairs: list[tuple[str, str]]) -> None:
    spaced = [word for name, value in pairs for word in (name, value)]
    joined = [f"{name}={value}" for name, value in reversed(pairs)]
    assert one(*spaced) == one(*joined)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_nothing_is_refused(arguments: list[str]) -> None:
    json.dumps(one(*arguments))


def test_the_list_names_only_flags_that_exist_and_gives_reasons(fixture_json) -> None:  # type: ignore[no-untyped-def]
    options = fixture_json("options.json")
    for program, title in ((ENGINE, "vllm serve 0.32.0"), (CACHE_SERVER, "lmcache server 0.5.6")):
        flags = load_neutral().programs[program]
        known = {name for name in options[title] if name.startswith("--")} - {"--help"}
        assert flags.spellings == known
        assert {alias for alias in flags.aliases if alias != "-O"} <= set(options[title])
        assert not flags.counting & set(flags.neutral)
    lists = [*(program.neutral for program in load_neutral().programs.values()), load_neutral().environment]
    assert all(reason.strip() for reasons in lists for reason in reasons.values())


@pytest.mark.parametrize(
    "name",
    ["--quantization", "--dtype", "--load-format", "--seed", "--hf-overrides", "--enforce-eager", "--mamba-cache-dtype",
     "--gdn-prefill-backend", "--kv-cache-dtype", "--attention-backend", "--enable-lora", "--trust-remote-code",
     "--middleware", "--worker-cls", "--mamba-backend", "--compilation-config"],
)  # fmt: skip
def test_flags_that_shape_the_state_are_not_on_the_list(name: str) -> None:
    assert FLAGS.known(name)
    assert name not in FLAGS.neutral


@pytest.mark.parametrize(
    ("name", "neutral"),
    [
        ("HOSTNAME", True),
        ("KUBERNETES_PORT_443_TCP", True),
        ("QCS_NODE_NAME", True),
        ("NVIDIA_VISIBLE_DEVICES", True),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", True),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", True),
        ("NV_CUDA_CUDART_VERSION", True),
        ("VLLM_ATTENTION_BACKEND", True),
        ("HF_TOKEN", True),
        ("PYTHONPATH", False),
        ("LD_PRELOAD", False),
        ("LD_LIBRARY_PATH", False),
        ("VLLM_KV_CACHE_LAYOUT", False),
        ("VLLM_SSM_CONV_STATE_LAYOUT", False),
        ("VLLM_USE_V2_MODEL_RUNNER", False),
        ("NVIDIA_TF32_OVERRIDE", False),
        ("PYTHONHASHSEED", False),
        ("VLLM_MODEL_REDIRECT_PATH", False),
        ("unheard_of", False),
        ("hostname", False),
    ],
)
def test_variables_of_the_surroundings_do_not_count(name: str, neutral: bool) -> None:
    assert (load_neutral().variable(name) is not None) is neutral
