"""Every N that vLLM's own code, its tables or public reports gave (facts/vllm.md §1.5-1.7, facts/lmcache.md §1.4).

Each row names its source; what is not a run of vLLM's code says where it was reported.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.core import backends
from qwen_cached_serve.core.accelerators import UnknownGpuError, capability_of
from qwen_cached_serve.core.backends import BackendContext, KernelBlocks
from qwen_cached_serve.core.blocksize import EngineShape, PredictionError, predict
from qwen_cached_serve.core.blocksize_words import explain
from qwen_cached_serve.core.catalogue import lookup
from qwen_cached_serve.core.geometry import DTYPE_BYTES, GeometryError, geometry_from_config
from qwen_cached_serve.core.kv_groups import kv_groups
from qwen_cached_serve.inpod.profiles import load_profiles

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
    pytest.param(shape, model, tp, n, id=f"vllm.md §1.6 {label}, {model} TP{tp}")
    for label, shape, models, values in TABLES
    for model in models.split()
    for tp, n in zip((1, 2, 4, 8), values, strict=True)
]


@pytest.mark.parametrize(("shape", "model", "tp", "n"), ROWS)
def test_tables_of_the_facts(shape, model, tp, n):
    assert predicted(model, tensor_parallel_size=tp, **shape).block_size == n


S15, S17, LM14 = "vllm.md §1.5", "vllm.md §1.7", "lmcache.md §1.4"
SM90_33_FP8 = SM90_33 | {"kv_cache_dtype": "fp8"}
SM100_33 = SM90_33 | {"gpu": "B200"}
CPU_33 = {"accelerator": "CPU", "vllm_version": "0.33.0"}
CPU_32 = {"accelerator": "CPU"}
# source, model, engine, N, kernel block (None = the source does not tell it)
RUN = [
    (f"{S15} 27B g=16", "27B", SM90_32, 784, None),
    (f"{S15} 27B g=64", "27B", SM90_33, 832, None),
    (f"{S15} 27B g=128", "27B", SM100_FA, 896, None),
    (f"{S15} 0.8B g=16", "0.8B", SM90_32, 544, None),
    (f"{S15} 0.8B g=64", "0.8B", SM90_33, 576, None),
    (f"{S15} 0.8B g=128", "0.8B", SM100_FA, 640, None),
    (f"{S17} 0.32 27B SM90", "27B", SM90_32, 784, 784),
    (f"{S17} 0.32 0.8B SM90", "0.8B", SM90_32, 544, 544),
    (f"{S17} 27B SM80", "27B", SM80_33, 784, 784),
    (f"{S17} 27B SM90", "27B", SM90_33, 832, 832),
    (f"{S17} 27B SM12x", "27B", SM90_33 | {"gpu": "RTX PRO 6000"}, 832, 832),
    (f"{S17} 27B SM90 triton", "27B", SM90_33 | {"gdn_prefill_backend": "triton"}, 784, 784),
    (f"{S17} 27B SM100", "27B", SM100_33, 832, 64),
    (f"{S17} 27B SM100 FLASH_ATTN", "27B", SM100_FA, 896, 128),
    (f"{S17} 27B fp8 SM90", "27B", SM90_33_FP8, 1600, 1600),
    (f"{S17} 27B fp8 SM100", "27B", SM100_33 | {"kv_cache_dtype": "fp8"}, 1600, 64),
    (f"{S17} 27B fp8 SM80", "27B", SM80_33 | {"kv_cache_dtype": "fp8"}, 1568, 32),
    (f"{S17} 27B SM90 MTP1", "27B", SM90_33 | {"speculative_tokens": 1}, 832, 832),
    (f"{S17} 27B SM90 TP8", "27B", SM90_33 | {"tensor_parallel_size": 8}, 448, 448),
    (f"{S17} 27B SM90 fp8 MTP3", "27B", SM90_33_FP8 | {"speculative_tokens": 3}, 1600, 1600),
    (f"{S17} 0.8B SM90", "0.8B", SM90_33, 576, 576),
    (f"{S17} 0.8B SM80", "0.8B", SM80_33, 544, 544),
    (f"{S17} 9B SM90 TP2", "9B", SM90_33 | {"tensor_parallel_size": 2}, 576, 576),
    (f"{S17} 27B SM90 --block-size 784", "27B", SM90_33 | {"block_size": 784}, 3136, 3136),
    (f"{S17} 27B SM80 --block-size 1024", "27B", SM80_33 | {"block_size": 1024}, 1024, 1024),
    (f"{S17} 27B SM90 --block-size 1024", "27B", SM90_33 | {"block_size": 1024}, 1024, 1024),
    (f"{S17} 27B SM100 --block-size 1024", "27B", SM100_33 | {"block_size": 1024}, 1024, 1024),
    (f"{S17} 27B SM100 FLASH_ATTN 1024", "27B", SM100_FA | {"block_size": 1024}, 1024, 128),
    (f"{S17} 27B fp8 SM90 1024", "27B", SM90_33_FP8 | {"block_size": 1024}, 2048, 2048),
    (f"{S17} 0.8B SM90 1024", "0.8B", SM90_33 | {"block_size": 1024}, 1024, 1024),
    (f"{S17} 27B SM80 --block-size 832", "27B", SM80_33 | {"block_size": 832}, 832, 832),
    (f"{S17} 27B CPU 0.33", "27B", CPU_33, 896, None),
    (f"{S17} 27B CPU engine", "27B", CPU_32, 896, None),
    (f"{S17} 0.8B CPU engine", "0.8B", CPU_32, 640, None),
    (f"{LM14} 27B", "27B", SM90_32, 784, None),
    (f"{LM14} 0.8B", "0.8B", SM90_32, 544, None),
    (f"{LM14} 27B fp8", "27B", SM90_32 | {"kv_cache_dtype": "fp8"}, 1568, None),
    (f"{LM14} 27B fp8 align 64", "27B", SM90_33_FP8, 1600, None),
    (f"{LM14} 27B TP8", "27B", SM90_32 | {"tensor_parallel_size": 8}, 400, None),
    (f"{LM14} 27B TP2", "27B", SM90_32 | {"tensor_parallel_size": 2}, 784, None),
    (f"{LM14} 27B TP4", "27B", SM90_32 | {"tensor_parallel_size": 4}, 784, None),
    (f"{LM14} 27B one draft token, vllm#54076", "27B", SM90_32 | {"speculative_tokens": 1}, 800, None),
    (f"{LM14} 27B fp8 S=4", "27B", SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 4}, 1616, None),
    (f"{LM14} 27B fp8 S=5", "27B", SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 5}, 1616, None),
    (f"{LM14} 0.33 H100", "27B", SM90_33 | {"gpu": "H100"}, 832, None),
    (f"{LM14} 0.33 B200", "0.8B", SM100_33, 576, None),
    (f"{LM14} 0.33 Ada", "27B", SM90_33 | {"gpu": "L40S"}, 784, None),
    (f"{LM14} 0.33 triton", "0.8B", SM90_33 | {"gdn_prefill_backend": "triton"}, 544, None),
    ("vllm.md §1.2 27B, bfloat16 state", "27B", SM90_32 | {"mamba_ssm_cache_dtype": "bfloat16"}, 400, 400),
    ("vllm.md §0.3 0.8B, 640 is enough", "0.8B", SM90_33 | {"block_size": 640}, 640, 640),
    ("vllm.md §1.6 vllm#53595", "27B", SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 3}, 1600, None),
    ("vllm.md §1.6 LMCache#4984", "27B",
     SM90_32 | {"kv_cache_dtype": "fp8", "speculative_tokens": 4, "tensor_parallel_size": 2}, 1616, None),
    ("vllm.md §1.4 vllm#40696", "4B", SM90_32 | {"vllm_version": "0.20.2"}, 528, None),
    ("vllm.md §1.4 vllm#36697", "122B", SM90_32 | {"vllm_version": "0.20.0"}, 2096, 16),
    ("vllm.md §1.4 vLLM's ROCm comment", "35B-A3B", SM90_32, 1056, None),
    ("B08 9B", "9B", SM90_32, 528, None),
    ("B08 9B fp8", "9B", SM90_32 | {"kv_cache_dtype": "fp8"}, 1056, None),
    ("B08 27B fp8 on Ada", "27B", SM90_32 | {"kv_cache_dtype": "fp8", "gpu": "L40S"}, 1568, 32),
    ("B17 128 turns 784 into 896", "27B", SM90_32 | {"block_size": 128}, 896, 896),
    ("B17 816 becomes 1632", "27B", SM90_32 | {"block_size": 816, "speculative_tokens": 8}, 1632, 1632),
]  # fmt: skip


@pytest.mark.parametrize(("model", "shape", "n", "kernel"), [pytest.param(*row, id=source) for source, *row in RUN])
def test_what_the_engine_itself_returned(model, shape, n, kernel):
    result = predicted(model, **shape)
    assert result.block_size == n
    assert kernel in (None, result.kernel_block_size)


# vLLM's wheels, read by tools/release_facts.py: rules that no published figure covers.
SOURCES = [
    ("0.24: FLASH_ATTN with a float32 state takes 16, 32, 64", {"vllm_version": "0.24.0"}, 784, 16),
    ("0.24: and with a 16 bit state any multiple of 16",
     {"vllm_version": "0.24.0", "mamba_ssm_cache_dtype": "bfloat16"}, 400, 400),
    ("0.24: a float32 window counts as such",
     {"vllm_version": "0.24.0", "mamba_ssm_cache_dtype": "bfloat16", "mamba_cache_dtype": "float32"}, 416, 32),
    ("0.25: no longer", {"vllm_version": "0.25.0"}, 784, 784),
    ("0.28: no block of 128 yet",
     {"vllm_version": "0.28.0", "gpu": "B200", "attention_backend": "FLASH_ATTN"}, 784, 784),
    ("0.29: FlashAttention 4", {"vllm_version": "0.29.0", "gpu": "B200", "attention_backend": "FLASH_ATTN"}, 896, 128),
    ("SM11x has FlashAttention 2 (facts say 4; fa_utils.py says major == 10)",
     {"vllm_version": "0.32.0", "gpu": "11.0", "attention_backend": "FLASH_ATTN"}, 784, 784),
    ("fp8_e5m2 is not for FLASH_ATTN, not even on Hopper", {"kv_cache_dtype": "fp8_e5m2"}, 1568, 32),
    ("SM100 takes large blocks", {"gpu": "B200", "block_size": 256}, 1024, 1024),
    ("and none above 1024", {"gpu": "B200", "block_size": 1024, "kv_cache_dtype": "fp8"}, 2048, 1024),
    ("not with 0.22", {"gpu": "B200", "block_size": 256, "vllm_version": "0.22.1"}, 1024, 64),
    ("SM12x: FlashInfer since 0.30 matters from 0.33 on", {"gpu": "RTX 5090", "vllm_version": "0.32.0"}, 784, 784),
    ("0.33 with CUDA 12: Triton on Blackwell",
     {"vllm_version": "0.33.0", "gpu": "RTX 5090", "cuda_major": 12}, 784, 784),
    ("0.33 with CUDA 12: Hopper keeps FlashInfer", {"vllm_version": "0.33.0", "cuda_major": 12}, 832, 832),
    ("FlashInfer cannot be had on Ampere by asking",
     {"vllm_version": "0.33.0", "gpu": "A100", "gdn_prefill_backend": "flashinfer"}, 784, 784),
    ("CuteDSL has no 64 rule", {"vllm_version": "0.33.0", "gpu": "B200", "gdn_prefill_backend": "cutedsl"}, 784, 16),
    ("auto is the default", {"vllm_version": "0.33.0", "gdn_prefill_backend": "auto"}, 832, 832),
    ("TRITON_ATTN", {"attention_backend": "TRITON_ATTN"}, 784, 784),
    ("FLEX_ATTENTION", {"attention_backend": "FLEX_ATTENTION"}, 784, 784),
    ("FLASHINFER asked for on Hopper", {"attention_backend": "FLASHINFER"}, 784, 16),
    ("0.33.1 is 0.33", {"vllm_version": "0.33.1"}, 832, 832),
    ("0.33.0rc1 is 0.33", {"vllm_version": "0.33.0rc1"}, 832, 832),
    ("auto is what the checkpoint says", {"mamba_cache_dtype": "auto", "mamba_ssm_cache_dtype": "auto"}, 784, 784),
    ("a float32 model", {"model_dtype": "float32"}, 400, 400),
    ("CPU of 0.28", {"accelerator": "CPU", "vllm_version": "0.28.0", "block_size": 16}, 784, 784),
    ("CPU of 0.29", {"accelerator": "CPU", "vllm_version": "0.29.0", "block_size": 32}, 800, 800),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "n", "kernel"), [pytest.param(*row, id=source) for source, *row in SOURCES])
def test_rules_read_in_the_sources(shape, n, kernel):
    result = predicted("27B", **shape)
    assert (result.block_size, result.kernel_block_size) == (n, kernel)


def context(gpu, **parts):
    defaults = {"head_dim": 256, "kv_dtype": "fp8_e4m3", "float32_state": True, "queries_per_kv": 6, "cuda_major": 13}
    profile = load_profiles().for_vllm(parts.pop("vllm", "0.32.0"))
    return BackendContext(profile, "GPU", capability_of(gpu), **(defaults | parts))


def test_block_sizes_that_flashinfer_takes():
    """`get_supported_kernel_block_sizes` of v1/attention/backends/flashinfer.py, 0.32.0."""
    assert backends.kernel_blocks("FLASHINFER", context("B200")) == KernelBlocks(16, (16, 32, 64, 128, 256, 512, 1024))
    assert backends.kernel_blocks("FLASHINFER", context("H100")) == KernelBlocks(16, (16, 32, 64))


@pytest.mark.parametrize(
    ("backend", "gpu", "parts", "takes"),
    [
        ("TRITON_ATTN", "A100", {}, False),
        ("TRITON_ATTN", "L40S", {}, True),
        ("TRITON_ATTN", "H100", {}, True),
        ("TRITON_ATTN", "A100", {"kv_dtype": "fp8_e5m2"}, True),
        ("TRITON_ATTN", "A100", {"kv_dtype": "bfloat16"}, True),
        ("FLEX_ATTENTION", "H100", {}, False),
        ("FLEX_ATTENTION", "H100", {"kv_dtype": "bfloat16"}, True),
        ("FLASH_ATTN", "H100", {}, True),
        ("FLASH_ATTN", "H100", {"kv_dtype": "fp8_e5m2"}, False),
        ("FLASH_ATTN", "A100", {"head_dim": 128}, False),
        ("FLASH_ATTN", "L40S", {}, False),
        ("FLASH_ATTN", "B200", {}, False),
        ("FLASH_ATTN", "B200", {"head_dim": 128}, True),
        ("FLASH_ATTN", "B200", {"vllm": "0.28.0"}, True),
        ("FLASH_ATTN", "RTX 5090", {"head_dim": 128}, False),
        ("FLASHINFER", "A100", {}, True),
    ],
)
def test_who_reads_quantised_kv(backend, gpu, parts, takes):
    """fa_utils.flash_attn_supports_kv_cache_dtype; the rest as docs/gpu-matrix.md found it."""
    assert backends.takes_kv_dtype(backend, context(gpu, **parts)) is takes


def test_one_query_head_per_kv_head_has_no_large_blocks():
    # flashinfer.py: TensorRT-LLM's kernels need grouped queries. 0.8B on 8 ranks has 1 query and 1 KV head each.
    shape = {"gpu": "B200", "block_size": 128}
    assert predicted("0.8B", tensor_parallel_size=8, **shape).kernel_block_size == 64
    assert predicted("0.8B", tensor_parallel_size=4, **shape).kernel_block_size == 128


def test_the_worked_example():
    # facts/vllm.md §1.5
    big, small = predicted("27B"), predicted("0.8B")
    assert (big.conv_bytes, big.ssm_bytes, big.state_bytes, big.token_bytes) == (61_440, 3_145_728, 3_207_168, 4096)
    assert (small.conv_bytes, small.ssm_bytes, small.state_bytes, small.token_bytes) == (
        36_864, 1_048_576, 1_085_440, 2048,
    )  # fmt: skip
    assert (big.state_bytes / big.token_bytes, small.state_bytes / small.token_bytes) == (783.0, 530.0)


@pytest.mark.parametrize(("fixture", "n"), [("tiny-chain", 2144), ("tiny-chain-352", 352)])
def test_the_small_models_of_the_real_chain_have_no_padding(fixture, n):
    model = geometry_from_config(json.loads((FIXTURES / fixture / "config.json").read_text()))
    shape = EngineShape(accelerator="CPU", block_size=32, mamba_ssm_cache_dtype="bfloat16", vllm_version="0.32.0")
    result = predict(model, shape)
    assert (result.block_size, result.padding_bytes) == (n, 0)


def test_padding_is_what_the_engine_logged():
    # healthy-0.8b-geometry-padded.log: "Padding mamba page size by 20.75%"
    assert f"{predicted('0.8B', accelerator='CPU').padding_percent:.2f}" == "20.75"


def test_blocks_of_the_pool():
    # facts/vllm.md §1.8: 27B has 4 groups of 16 layers, 0.8B 4 of 6.
    big, small = predicted("27B"), predicted("0.8B")
    assert (big.page_bytes, big.pool_block_bytes) == (3_211_264, 16 * 3_211_264)
    assert (small.page_bytes, small.pool_block_bytes) == (1_114_112, 6 * 1_114_112)
    for result, layers in ((big, 16), (small, 6)):
        groups = result.groups
        assert (groups.linear, groups.attention, groups.count, groups.layers_per_group) == (3, 1, 4, layers)


def test_bytes_of_a_cached_token():
    # club-3090#133 (facts/lmcache.md §9) measured about 131 KB a token: 27B with fp8 KV.
    assert predicted("27B", kv_cache_dtype="fp8").bytes_per_cached_token == 131_072
    assert predicted("27B").bytes_per_cached_token == 64 * 4096
    # From 8 ranks on KV heads are repeated, and every rank stores its own.
    assert predicted("27B", tensor_parallel_size=4).bytes_per_cached_token == 64 * 4096
    assert predicted("27B", tensor_parallel_size=8).bytes_per_cached_token == 2 * 64 * 4096


def test_drafting_with_the_models_own_layer_adds_one_to_the_pool():
    plain, drafting = predicted("27B"), predicted("27B", speculative_tokens=3, speculative_method="mtp")
    assert (plain.groups.layers_per_group, drafting.groups.layers_per_group) == (16, 17)
    assert drafting.bytes_per_cached_token == 65 * 4096
    assert drafting.assumptions == ()
    other = predicted("27B", speculative_tokens=3, speculative_method="dflash")
    assert other.groups.layers_per_group == 16
    assert "dflash" in other.assumptions[0]


@pytest.mark.parametrize(
    ("layers", "groups"),
    [((48, 16), (3, 1, 16)), ((3, 1), (3, 1, 1)), ((10, 20), (1, 2, 10)), ((12, 13), (1, 1, 13)),
     ((20, 30), (1, 2, 20)), ((20, 29), (1, 1, 29)), ((5, 5), (1, 1, 5)), ((48, 17), (3, 1, 17))],
)  # fmt: skip
def test_groups_as_vllm_forms_them(layers, groups):
    # kv_cache_utils.py _get_kv_cache_groups_uniform_page_size, with its own examples
    formed = kv_groups(*layers)
    assert (formed.linear, formed.attention, formed.layers_per_group) == groups


def test_explanation_is_the_arithmetic():
    text = "\n".join(explain(predicted("27B")))
    for part in ("61,440 B convolution", "3,145,728 B recurrent", "= 3,207,168 B", "attention layer: 4,096 B",
                 "granularity: 16 tokens (16, the engine's default block)", "/ 4,096 = 783.00, up to a multiple of 16",
                 "N = 784", "784 x 4,096 = 3,211,264 B", "4,096 B of it unused (0.13 %)",
                 "FLASH_ATTN works on it in blocks of 784 tokens (N itself)",
                 "4 groups of 16 (3 linear, 1 attention)", "takes 51,380,224 B on each rank",
                 "one cached token takes 262,144 B"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (SM90_33, "granularity: 64 tokens (lcm of 16, the engine's default block, and 64, where FlashInfer's"),
        (SM90_33 | {"block_size": 784}, "granularity: 3136 tokens (lcm of 784, --block-size, and 64,"),
        (SM100_FA_32, "granularity: 128 tokens (128, the smallest kernel block)"),
        ({"gpu": "B200"}, "FLASHINFER works on it in blocks of 16 tokens\n"),
        ({"accelerator": "CPU"}, "granularity: 128 tokens (128, the engine's default block)"),
    ],
)
def test_explanation_of_the_granularity(shape, words):
    assert words in "\n".join(explain(predicted("27B", **shape)))


def test_what_is_not_known_is_said_and_not_hidden():
    result = predict(geometry("27B"), EngineShape())
    assert result.assumptions == (
        "vLLM version not known: 0.32.0 assumed",
        "GPU not named: Hopper (compute capability 9.0) assumed",
    )
    assert result.vllm_version == "0.32.0"
    assert predicted("27B").assumptions == ()


def test_a_newer_release_gets_the_newest_rules_and_says_so():
    result = predicted("27B", vllm_version="0.35.0")
    assert result.block_size == 832
    assert result.vllm_version == "0.35.0"
    assert result.assumptions == (
        "vLLM 0.35.0 is newer than the newest reviewed release (0.33) and treated as that one",
    )


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (SM100_33, True),
        (SM90_33 | {"gpu": "RTX 5090"}, True),
        (SM100_33 | {"cuda_major": 13}, False),
        (SM90_33, False),
        (SM80_33, False),
        (SM100_33 | {"vllm_version": "0.32.0"}, False),
        (CPU_33, False),
    ],
)
def test_the_cuda_runtime_is_assumed_aloud_where_it_matters(shape, said):
    assert any("CUDA 13 assumed" in line for line in predicted("27B", **shape).assumptions) is said


def quantised(**quantization):
    config = json.loads((FIXTURES / "qwen3.6-27b-geometry.json").read_text())
    config["quantization_config"] = quantization
    return geometry_from_config(config)


MODELOPT = {"quant_method": "modelopt"}


@pytest.mark.parametrize(
    "quantization",
    [
        {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}},
        MODELOPT | {"kv_cache_quant_algo": "FP8"},
        MODELOPT | {"quantization": {"kv_cache_quant_algo": "FP8"}},
        MODELOPT | {"quantization": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "kv_cache_quant_algo": "X"},
    ],
)
def test_a_quantised_checkpoint_turns_auto_into_fp8(quantization):
    model = quantised(**quantization)
    result = predict(model, EngineShape(capability=(9, 0), vllm_version="0.32.0"))
    assert result.block_size == 1568
    assert result.assumptions == ("the checkpoint's own quantisation scheme makes the KV cache fp8",)
    assert predict(model, EngineShape(kv_cache_dtype="bfloat16")).block_size == 784


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (MODELOPT | {"kv_cache_quant_algo": "NVFP4"}, "quantization_config: nvfp4 packs KV"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "quantization_config: nvfp4 packs KV"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "'a scheme of 8 bits .int.' is not a KV dtype known"),
        (
            {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": True}},
            "'a scheme of 8 bits .float.' is not a KV dtype known",
        ),
        (MODELOPT | {"kv_cache_quant_algo": "int8"}, "'int8' is not a KV dtype known here"),
    ],
)
def test_a_checkpoint_with_an_unknown_kv_scheme_is_not_guessed(quantization, words):
    model = quantised(**quantization)
    with pytest.raises(PredictionError, match=words):
        predict(model, EngineShape())
    assert predict(model, EngineShape(kv_cache_dtype="fp8")).block_size == 1568


@pytest.mark.parametrize("quantization", [{}, {"quant_method": "fp8", "kv_cache_scheme": None}, {"quantization": "x"}])
def test_weights_alone_do_not_change_the_kv_dtype(quantization):
    assert predict(quantised(**quantization), EngineShape()).block_size == 784


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensor_parallel_size": 5}, "tensorParallelSize: 5 does not divide"),
        ({"tensor_parallel_size": 0}, "tensorParallelSize: must be 1 or more"),
        ({"kv_cache_dtype": "nvfp4"}, "kvCacheDtype: nvfp4 packs KV in pages whose size is not known"),
        ({"kv_cache_dtype": "fp8_per_token_head"}, "kvCacheDtype: fp8_per_token_head packs KV"),
        ({"kv_cache_dtype": "fp9"}, "kvCacheDtype: 'fp9' is not a KV dtype known here .bfloat16, float"),
        ({"kv_cache_dtype": "fp8", "attention_backend": "FLASH_ATTN", "gpu": "L40S"}, "FLASH_ATTN does not read fp8"),
        ({"kv_cache_dtype": "fp8_e5m2", "attention_backend": "FLASH_ATTN"}, "FLASH_ATTN does not read fp8_e5m2"),
        ({"kv_cache_dtype": "fp8", "attention_backend": "FLASH_ATTN", "gpu": "B200"}, "FLASH_ATTN does not read fp8"),
        ({"kv_cache_dtype": "fp8", "attention_backend": "FLEX_ATTENTION"}, "FLEX_ATTENTION does not read fp8"),
        ({"block_size": 24}, "blockSize: FLASH_ATTN takes multiples of 16 tokens, and 24 is none"),
        ({"gpu": "B200", "attention_backend": "FLASH_ATTN", "block_size": 784}, "takes multiples of 128 tokens"),
        ({"accelerator": "CPU", "block_size": 16}, "blockSize: CPU_ATTN takes multiples of 32 tokens, and 16 is none"),
        ({"gpu": "T4"}, "GPU: compute capability 7.5 is older than Ampere"),
        ({"tensor_parallel_size": 3}, "tensorParallelSize: 3 does not divide the model's 16 linear key heads"),
        ({"mamba_cache_dtype": "fp8"}, "--mamba-cache-dtype: 'fp8' is not one of"),
        ({"model_dtype": "int8"}, "--dtype: 'int8' is not one of"),
        (
            {"kv_cache_dtype": "fp8", "attention_backend": "TRITON_ATTN", "gpu": "A100"},
            "^engine.vllm.attentionBackend: TRITON_ATTN does not read fp8 KV on this GPU; leave it unset$",
        ),
        (
            {"mamba_cache_dtype": "int8"},
            f"'int8' is not one of {', '.join(sorted(DTYPE_BYTES))}$",
        ),
        ({"attention_backend": "NOVEL_ATTN"}, "attentionBackend: the block sizes of NOVEL_ATTN are not known"),
        ({"mamba_ssm_cache_dtype": "int4"}, "mambaSsmCacheDtype: 'int4' is not one of"),
        ({"vllm_version": "nightly"}, "vLLM version: 'nightly' is not a release"),
    ],
)
def test_no_number_is_better_than_a_wrong_one(change, words):
    with pytest.raises(PredictionError, match=words) as refused:
        predicted("27B", **change)
    assert str(refused.value).startswith(f"{refused.value.field}: ")


@pytest.mark.parametrize(
    ("change", "tp", "words"),
    [
        ({}, 5, "5 does not divide the model's 24 attention heads; choose one that does"),
        ({}, 3, "3 does not divide the model's 16 linear key heads; choose one that does"),
        ({"linear_value_heads": 20}, 8, "8 does not divide the model's 20 linear value heads; choose one that does"),
        ({"kv_heads": 3}, 2, "3 KV heads can be neither split nor repeated over 2 ranks"),
        ({}, 0, "must be 1 or more, got 0"),
        ({}, -1, "must be 1 or more, got -1"),
    ],
)
def test_ranks_that_the_model_cannot_be_split_over(change, tp, words):
    with pytest.raises(PredictionError) as refused:
        predict(replace(geometry("27B"), **change), EngineShape(tensor_parallel_size=tp))
    assert str(refused.value) == f"engine.vllm.tensorParallelSize: {words}"


@pytest.mark.parametrize(
    ("shape", "backend"),
    [
        ({"gpu": "H100"}, "FLASH_ATTN"),
        ({"gpu": "H100", "kv_cache_dtype": "fp8"}, "FLASH_ATTN"),
        ({"gpu": "H100", "kv_cache_dtype": "fp8_e5m2"}, "FLASHINFER"),
        ({"gpu": "A100"}, "FLASH_ATTN"),
        ({"gpu": "A100", "kv_cache_dtype": "fp8_e4m3"}, "FLASHINFER"),
        ({"gpu": "B200"}, "FLASHINFER"),
        ({"gpu": "11.0"}, "FLASH_ATTN"),
        ({"gpu": "RTX 5090"}, "FLASH_ATTN"),
        ({"accelerator": "CPU"}, "CPU_ATTN"),
        ({"attention_backend": "TRITON_ATTN"}, "TRITON_ATTN"),
    ],
)
def test_the_engines_choice_of_a_backend(shape, backend):
    assert predicted("27B", **shape).attention_backend == backend


@pytest.mark.parametrize(
    ("gpu", "vllm", "requested", "cuda", "kernel"),
    [
        ("H100", "0.20.0", None, 12, "flashinfer"),
        ("H100", "0.33.0", "auto", 12, "flashinfer"),
        ("H100", "0.33.0", "flashinfer", 13, "flashinfer"),
        ("H100", "0.33.0", "triton", 13, "triton"),
        ("H100", "0.33.0", "cutedsl", 13, "triton"),
        ("B200", "0.20.0", None, 13, "triton"),
        ("B200", "0.22.0", None, 13, "flashinfer"),
        ("B200", "0.22.0", None, 12, "triton"),
        ("B200", "0.33.0", "cutedsl", 13, "cutedsl"),
        ("B200", "0.33.0", "cutedsl", 12, "triton"),
        ("RTX 5090", "0.29.0", None, 13, "triton"),
        ("RTX 5090", "0.30.0", None, 14, "flashinfer"),
        ("RTX 5090", "0.30.0", "cutedsl", 13, "triton"),
        ("11.0", "0.33.0", None, 13, "triton"),
        ("A100", "0.33.0", None, 13, "triton"),
    ],
)
def test_the_kernel_of_the_linear_layers(gpu, vllm, requested, cuda, kernel):
    result = predicted("27B", gpu=gpu, vllm_version=vllm, gdn_prefill_backend=requested, cuda_major=cuda)
    assert result.gdn_prefill_backend == kernel


def test_the_kernel_of_the_linear_layers_needs_heads_of_128_on_blackwell():
    narrow = replace(geometry("27B"), linear_key_head_dim=64)
    for gpu, kernel in (("B200", "triton"), ("H100", "flashinfer")):
        shape = EngineShape(capability=capability_of(gpu), vllm_version="0.33.0")
        assert predict(narrow, shape).gdn_prefill_backend == kernel
    assert predicted("27B", accelerator="CPU", vllm_version="0.33.0").gdn_prefill_backend == "triton"


def test_flash_attention_4_is_for_heads_of_256():
    shape = EngineShape(capability=(10, 0), vllm_version="0.32.0", attention_backend="FLASH_ATTN")
    assert predict(geometry("27B"), shape).granularity == 128
    assert predict(replace(geometry("27B"), head_dim=128), shape).granularity == 16


@pytest.mark.parametrize(
    ("blocks", "size", "kernel"),
    [
        (KernelBlocks(16), 784, 784), (KernelBlocks(16), 24, None), (KernelBlocks(128, (128,)), 896, 128),
        (KernelBlocks(128, (128,)), 64, None), (KernelBlocks(16, (16, 32, 64)), 784, 16),
        (KernelBlocks(16, (16, 32, 64)), 64, 64), (KernelBlocks(16, (16, 32, 64)), 96, 32),
    ],
)  # fmt: skip
def test_the_block_a_kernel_runs_with(blocks, size, kernel):
    assert blocks.kernel_block_for(size) == kernel


def test_profiles_that_are_given_count():
    profiles = load_profiles()
    other = replace(
        profiles,
        advised_vllm="0.31.0",
        vllm=tuple(replace(row, gdn_checkpoint_tokens=48) for row in profiles.vllm),
    )
    result = predict(geometry("27B"), EngineShape(capability=(9, 0)), other)
    assert (result.vllm_version, result.granularity, result.block_size) == ("0.31.0", 48, 816)
    two = replace(other, vllm=tuple(replace(row, gdn_checkpoint_tokens=2) for row in profiles.vllm))
    result = predict(geometry("27B"), EngineShape(capability=(12, 0)), two)
    assert (result.granularity, result.block_size) == (16, 784)
    assert "and 2, where FlashInfer's" in result.granularity_reason
    assert "CUDA 13 assumed; an older runtime changes N on this GPU" in result.assumptions


DIMENSIONS = {
    "num_hidden_layers": 4, "full_attention_interval": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 256, "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 16,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text_config": {"dtype": "int8"} | DIMENSIONS}, "dtype: 'int8' is not one of"),
        ({"text_config": {"mamba_ssm_dtype": "fp8"} | DIMENSIONS}, "text_config.mamba_ssm_dtype: 'fp8' is not one of"),
        ({"text_config": {"mtp_num_hidden_layers": -1} | DIMENSIONS}, "mtp_num_hidden_layers: expected a whole number"),
        (
            {"text_config": DIMENSIONS | {"head_dim": True}},
            "text_config.head_dim: expected a whole number .*, got True",
        ),
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
        ("NVIDIA Thor", (11, 0)),
        ("Tesla T4", (7, 5)),
        ("NVIDIA A2", (8, 6)),
        ("NVIDIA-A10", (8, 6)),
        ("NVIDIA GB10", (12, 1)),
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
