"""Every N that vLLM's own code, its tables or public reports gave (facts/vllm.md §1.5-1.7, facts/lmcache.md §1.4)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.core.accelerators import UnknownGpuError, capability_of
from qwen_cached_serve.core.blocksize import EngineShape, PredictionError, predict
from qwen_cached_serve.core.catalogue import lookup
from qwen_cached_serve.core.geometry import GeometryError, geometry_from_config

FIXTURES = Path(__file__).parent / "fixtures" / "model-configs"

MODELS = {
    "0.8B": "Qwen/Qwen3.5-0.8B",
    "2B": "Qwen/Qwen3.5-2B",
    "4B": "Qwen/Qwen3.5-4B",
    "9B": "Qwen/Qwen3.5-9B",
    "27B": "Qwen/Qwen3.6-27B",
    "35B-A3B": "Qwen/Qwen3.6-35B-A3B",
    "122B": "Qwen/Qwen3.5-122B-A10B",
    "397B": "Qwen/Qwen3.5-397B-A17B",
}


def geometry(name):
    return lookup(MODELS[name]).geometry


def predicted(name, gpu="H100", **shape):
    shape.setdefault("vllm_version", "0.32.0")
    return predict(geometry(name), EngineShape(capability=capability_of(gpu), **shape))


SM90_32 = {"gpu": "H100", "vllm_version": "0.32.0"}
SM80_33 = {"gpu": "A100", "vllm_version": "0.33.0"}
SM90_33 = {"gpu": "H200", "vllm_version": "0.33.0"}
SM100_FA = {"gpu": "B200", "vllm_version": "0.33.0", "attention_backend": "FLASH_ATTN"}
SM100_FA_32 = SM100_FA | {"vllm_version": "0.32.0"}

TABLES = [
    ("g16", SM90_32, "0.8B 2B", (544, 544, 272, 144)),
    ("g16", SM90_32, "4B 9B", (528, 528, 528, 272)),
    ("g16", SM90_32, "27B", (784, 784, 784, 400)),
    ("g16", SM90_32, "35B-A3B", (1056, 1056, 528, 272)),
    ("g16", SM90_32, "122B 397B", (2096, 2096, 1056, 528)),
    ("g16 on Ampere, 0.33", SM80_33, "27B", (784, 784, 784, 400)),
    ("g64", SM90_33, "0.8B 2B", (576, 576, 320, 192)),
    ("g64", SM90_33, "4B 9B", (576, 576, 576, 320)),
    ("g64", SM90_33, "27B", (832, 832, 832, 448)),
    ("g64", SM90_33, "35B-A3B", (1088, 1088, 576, 320)),
    ("g64", SM90_33, "122B 397B", (2112, 2112, 1088, 576)),
    ("g128", SM100_FA_32, "0.8B 2B", (640, 640, 384, 256)),
    ("g128", SM100_FA_32, "4B 9B", (640, 640, 640, 384)),
    ("g128", SM100_FA, "27B", (896, 896, 896, 512)),
    ("g128", SM100_FA, "35B-A3B", (1152, 1152, 640, 384)),
    ("g128", SM100_FA, "122B 397B", (2176, 2176, 1152, 640)),
    ("fp8 g16", SM90_32 | {"kv_cache_dtype": "fp8"}, "0.8B 2B", (1072, 1072, 544, 272)),
    ("fp8 g16", SM90_32 | {"kv_cache_dtype": "fp8"}, "4B 9B", (1056, 1056, 1056, 528)),
    ("fp8 g16", SM90_32 | {"kv_cache_dtype": "fp8_e4m3"}, "27B", (1568, 1568, 1568, 784)),
    ("fp8 g16", SM90_32 | {"kv_cache_dtype": "fp8"}, "35B-A3B", (2096, 2096, 1056, 528)),
    ("fp8 g16", SM90_32 | {"kv_cache_dtype": "fp8"}, "122B 397B", (4176, 4176, 2096, 1056)),
    ("fp8 g64", SM90_33 | {"kv_cache_dtype": "fp8"}, "0.8B 2B", (1088, 1088, 576, 320)),
    ("fp8 g64", SM90_33 | {"kv_cache_dtype": "fp8"}, "4B 9B", (1088, 1088, 1088, 576)),
    ("fp8 g64", SM90_33 | {"kv_cache_dtype": "fp8"}, "27B", (1600, 1600, 1600, 832)),
    ("fp8 g64", SM90_33 | {"kv_cache_dtype": "fp8"}, "35B-A3B", (2112, 2112, 1088, 576)),
    ("fp8 g64", SM90_33 | {"kv_cache_dtype": "fp8"}, "122B 397B", (4224, 4224, 2112, 1088)),
    ("S=1", SM90_32 | {"speculative_tokens": 1}, "0.8B 2B", (544, 544, 272, 144)),
    ("S=1", SM90_32 | {"speculative_tokens": 1}, "4B 9B", (528, 528, 528, 272)),
    ("S=1", SM90_32 | {"speculative_tokens": 1}, "27B", (800, 800, 800, 400)),
    ("S=1", SM90_32 | {"speculative_tokens": 1}, "35B-A3B", (1056, 1056, 528, 272)),
    ("S=1", SM90_32 | {"speculative_tokens": 1}, "122B 397B", (2096, 2096, 1056, 528)),
    ("S=3", SM90_32 | {"speculative_tokens": 3}, "0.8B 2B", (560, 560, 288, 144)),
    ("S=3", SM90_32 | {"speculative_tokens": 3}, "4B 9B", (544, 544, 544, 272)),
    ("S=3", SM90_32 | {"speculative_tokens": 3}, "27B", (800, 800, 800, 400)),
    ("S=3", SM90_32 | {"speculative_tokens": 3}, "35B-A3B", (1072, 1072, 544, 272)),
    ("S=3", SM90_32 | {"speculative_tokens": 3}, "122B 397B", (2128, 2128, 1072, 544)),
    ("fp8 S=3", SM90_32 | {"speculative_tokens": 3, "kv_cache_dtype": "fp8"}, "0.8B 2B", (1104, 1104, 560, 288)),
    ("fp8 S=3", SM90_32 | {"speculative_tokens": 3, "kv_cache_dtype": "fp8"}, "4B 9B", (1072, 1072, 1072, 544)),
    ("fp8 S=3", SM90_32 | {"speculative_tokens": 3, "kv_cache_dtype": "fp8"}, "27B", (1600, 1600, 1600, 800)),
    ("fp8 S=3", SM90_32 | {"speculative_tokens": 3, "kv_cache_dtype": "fp8"}, "35B-A3B", (2144, 2144, 1072, 544)),
    ("fp8 S=3", SM90_32 | {"speculative_tokens": 3, "kv_cache_dtype": "fp8"}, "122B 397B", (4240, 4240, 2128, 1072)),
]
ROWS = [
    pytest.param(shape, model, tp, n, id=f"{label}-{model}-tp{tp}")
    for label, shape, models, values in TABLES
    for model in models.split()
    for tp, n in zip((1, 2, 4, 8), values, strict=True)
]


@pytest.mark.parametrize(("shape", "model", "tp", "n"), ROWS)
def test_tables_of_the_facts(shape, model, tp, n):
    assert predicted(model, tensor_parallel_size=tp, **shape).block_size == n


RUN = [
    ("27B", SM90_32, 784, 784),
    ("0.8B", SM90_32, 544, 544),
    ("27B", SM80_33, 784, 784),
    ("27B", SM90_33, 832, 832),
    ("27B", SM90_33 | {"gpu": "RTX PRO 6000"}, 832, 832),
    ("27B", SM90_33 | {"gdn_prefill_backend": "triton"}, 784, 784),
    ("27B", SM90_33 | {"gpu": "B200"}, 832, 64),
    ("27B", SM100_FA, 896, 128),
    ("27B", SM90_33 | {"kv_cache_dtype": "fp8"}, 1600, 1600),
    ("27B", SM90_33 | {"kv_cache_dtype": "fp8", "gpu": "B200"}, 1600, 64),
    ("27B", SM80_33 | {"kv_cache_dtype": "fp8"}, 1568, 32),
    ("27B", SM90_33 | {"speculative_tokens": 1}, 832, 832),
    ("27B", SM90_33 | {"tensor_parallel_size": 8}, 448, 448),
    ("27B", SM90_33 | {"kv_cache_dtype": "fp8", "speculative_tokens": 3}, 1600, 1600),
    ("0.8B", SM90_33, 576, 576),
    ("0.8B", SM80_33, 544, 544),
    ("9B", SM90_33 | {"tensor_parallel_size": 2}, 576, 576),
    ("27B", SM90_33 | {"block_size": 784}, 3136, 3136),
    ("27B", SM80_33 | {"block_size": 1024}, 1024, 1024),
    ("27B", SM90_33 | {"block_size": 1024}, 1024, 1024),
    ("27B", SM90_33 | {"block_size": 1024, "gpu": "B200"}, 1024, 1024),
    ("27B", SM100_FA | {"block_size": 1024}, 1024, 128),
    ("27B", SM90_33 | {"block_size": 1024, "kv_cache_dtype": "fp8"}, 2048, 2048),
    ("0.8B", SM90_33 | {"block_size": 1024}, 1024, 1024),
    ("27B", SM80_33 | {"block_size": 832}, 832, 832),
    ("27B", {"accelerator": "CPU", "vllm_version": "0.33.0"}, 896, 896),
    ("27B", {"accelerator": "CPU"}, 896, 896),
    ("0.8B", {"accelerator": "CPU"}, 640, 640),
    # Public reports, not runs of ours.
    ("27B", SM90_32 | {"mamba_ssm_cache_dtype": "bfloat16"}, 400, 400),
    ("27B", SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 4, "tensor_parallel_size": 2}, 1616, 1616),
    ("27B", SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 5}, 1616, 1616),
    ("27B", SM90_32 | {"speculative_tokens": 2}, 800, 800),
    ("27B", SM90_32 | {"speculative_tokens": 7}, 832, 832),
    ("122B", SM90_32 | {"vllm_version": "0.17.1"}, 2096, 16),
    ("27B", SM90_32 | {"vllm_version": "0.24.0", "block_size": 128}, 896, 64),
]


@pytest.mark.parametrize(("model", "shape", "n", "kernel"), RUN)
def test_what_the_engine_itself_returned(model, shape, n, kernel):
    result = predicted(model, **shape)
    assert (result.block_size, result.kernel_block_size) == (n, kernel)


@pytest.mark.parametrize(("fixture", "n"), [("tiny-chain", 2144), ("tiny-chain-352", 352)])
def test_the_small_models_of_the_real_chain_have_no_padding(fixture, n):
    model = geometry_from_config(json.loads((FIXTURES / fixture / "config.json").read_text()))
    shape = EngineShape(accelerator="CPU", block_size=32, mamba_ssm_cache_dtype="bfloat16", vllm_version="0.32.0")
    result = predict(model, shape)
    assert (result.block_size, result.padding_bytes) == (n, 0)


def test_padding_is_what_the_engine_logged():
    # healthy-0.8b-geometry-padded.log: "Padding mamba page size by 20.75%"
    assert f"{predicted('0.8B', accelerator='CPU').padding_percent:.2f}" == "20.75"


def test_pool_block_of_27b_is_51_megabytes():
    result = predicted("27B")
    assert result.page_bytes == 3_211_264
    assert result.pool_block_bytes == 16 * 3_211_264


def test_explanation_is_the_arithmetic():
    text = " ".join(predicted("27B").explanation)
    for part in ("61,440", "3,145,728", "3,207,168", "4,096", "783.00", "multiple of 16", "N = 784"):
        assert part in text


def test_what_is_not_known_is_said_and_not_hidden():
    result = predict(geometry("27B"), EngineShape())
    assert any("vLLM version" in line for line in result.assumptions)
    assert any("Hopper" in line for line in result.assumptions)


def test_a_quantised_checkpoint_turns_auto_into_fp8():
    config = json.loads((FIXTURES / "qwen3.6-27b-geometry.json").read_text())
    config["quantization_config"] = {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    result = predict(geometry_from_config(config), EngineShape(capability=(9, 0), vllm_version="0.32.0"))
    assert result.block_size == 1568
    assert any("checkpoint" in line for line in result.assumptions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensor_parallel_size": 5}, "tensorParallelSize: 5 does not divide"),
        ({"tensor_parallel_size": 0}, "tensorParallelSize: must be 1 or more"),
        ({"kv_cache_dtype": "nvfp4"}, "kvCacheDtype: nvfp4 stores KV in a packed format"),
        ({"attention_backend": "NOVEL_ATTN"}, "attentionBackend: the block sizes of NOVEL_ATTN are not known"),
        ({"mamba_ssm_cache_dtype": "int4"}, "mambaSsmCacheDtype: 'int4' is not one of"),
        ({"vllm_version": "nightly"}, "vLLM version: 'nightly' is not a release"),
    ],
)
def test_no_number_is_better_than_a_wrong_one(change, words):
    with pytest.raises(PredictionError, match=words):
        predicted("27B", **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["Qwen4ExpForCausalLM"]}, "architectures: Qwen4ExpForCausalLM has another cache layout"),
        ({"architectures": []}, "architectures: missing"),
        ({"text_config": "x"}, "text_config: expected an object"),
        ({"text_config": {"num_hidden_layers": "4"}}, "num_hidden_layers: expected a whole number above 0, got '4'"),
        ({"text_config": {"num_hidden_layers": 4, "layer_types": ["x"] * 4}}, "layer_types: 0 linear_attention"),
        (
            {"text_config": {"num_hidden_layers": 1, "layer_types": ["full_attention"]}},
            "needs linear and full attention",
        ),
        ({"text_config": {"num_hidden_layers": 4}}, "text_config.full_attention_interval: missing"),
    ],
)
def test_other_models_are_refused_with_the_reason(change, words):
    config = json.loads((FIXTURES / "qwen3.5-0.8b-geometry.json").read_text()) | change
    with pytest.raises(GeometryError, match=words):
        geometry_from_config(config)


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("H100", (9, 0)),
        ("NVIDIA-H100-80GB-HBM3", (9, 0)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA-L40S", (8, 9)),
        ("sm_120", (12, 0)),
        ("10.0", (10, 0)),
        ("8.9", (8, 9)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0)),
        ("GB200", (10, 0)),
    ],
)
def test_gpu_names(text, capability):
    assert capability_of(text) == capability


def test_an_unknown_gpu_is_refused_with_the_other_form():
    with pytest.raises(UnknownGpuError, match=r"compute capability instead, e\.g\. 9\.0"):
        capability_of("Voodoo 2")


@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, "fp8"]),
    st.integers(0, 8),
    st.sampled_from([None, 16, 32, 128, 1024]),
    st.sampled_from(["0.26.0", "0.32.0", "0.33.0"]),
    st.sampled_from(["A100", "H100", "B200", "RTX 5090"]),
)
def test_a_block_always_holds_a_state_and_never_one_granule_too_many(model, tp, kv, spec, block, vllm, gpu):
    shape = {"tensor_parallel_size": tp, "kv_cache_dtype": kv, "speculative_tokens": spec, "block_size": block}
    result = predicted(model, gpu=gpu, vllm_version=vllm, **shape)
    assert result.block_size % result.granularity == 0
    assert result.page_bytes >= result.state_bytes
    assert (result.block_size - result.granularity) * result.token_bytes < result.state_bytes
    assert result.padding_bytes == result.page_bytes - result.state_bytes
