"""Prediction of N, vLLM's unified attention block size, from a model's `config.json`.

A hybrid model keeps, per linear-attention layer and sequence, one state of fixed size; vLLM makes the attention layers'
KV block so large that one block holds at least that state. N is that block in tokens. The formula, with the places in
vLLM it was read from, is in facts/vllm.md §1.2; every published value and every run known to us agrees with it.

The prediction is for planning, sizing and a warning when the probe disagrees. It is never a source of flags (DESIGN
D1). What is not modelled is refused: a number that may be wrong is worse than none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from qwen_cached_serve.core import backends
from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.geometry import DTYPE_BYTES, Geometry
from qwen_cached_serve.core.kv_groups import KvGroups, kv_groups
from qwen_cached_serve.inpod.profiles import Profiles, VllmProfile, load_profiles, parse_version

_KV_BYTES = DTYPE_BYTES | {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1}
_PACKED_KV = (
    *("fp8_ds_mla", "nvfp4_ds_mla", "nvfp4", "nvfp4_4over6", "ultraquant_4bit"),
    *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
    *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
)
"""KV dtypes whose pages hold scales or packed values beside the plain elements (`vllm/config/cache.py CacheDType`)."""

_OLDEST_GENERATION = 8
"""FLASH_ATTN needs Ampere; what vLLM does on older GPUs is not modelled."""
_LATEST_CUDA = 13
_MTP_METHODS = ("mtp", "qwen3_5_mtp", "qwen3_next_mtp")
"""Drafting with the checkpoint's own layer; the last two are former names of the first."""


class PredictionError(ValueError):
    """N cannot be predicted for this combination; `field` names the setting, the text says why and what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Everything besides the checkpoint that N depends on; None means the engine's own default."""

    accelerator: str = "GPU"
    """`GPU` (NVIDIA) or `CPU`."""
    capability: Capability | None = None
    """Compute capability of the GPU; None = not known, Hopper is assumed and said so."""
    tensor_parallel_size: int = 1
    model_dtype: str | None = None
    """`--dtype`."""
    kv_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_cache_dtype: str | None = None
    speculative_method: str | None = None
    speculative_tokens: int = 0
    attention_backend: str | None = None
    gdn_prefill_backend: str | None = None
    block_size: int | None = None
    vllm_version: str | None = None
    cuda_major: int | None = None
    """Major version of the image's CUDA runtime; None = 13, vLLM's default."""


@dataclass(frozen=True, slots=True)
class PredictedBlockSize:
    """N and what it rests on. Sizes are bytes per tensor-parallel rank, blocks and granularity tokens."""

    block_size: int
    kernel_block_size: int
    """Size the attention kernel runs with."""
    granularity: int
    """N is a multiple of this."""
    token_bytes: int
    """Key and value of one token in one attention layer."""
    conv_bytes: int
    """Convolution window of one sequence in one linear-attention layer."""
    ssm_bytes: int
    """Recurrent state of one sequence in one linear-attention layer."""
    groups: KvGroups
    bytes_per_cached_token: int
    """Cache memory of one token of a stored prefix, all layers and ranks, when every block keeps its state."""
    attention_backend: str
    gdn_prefill_backend: str
    vllm_version: str
    granularity_reason: str
    assumptions: tuple[str, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Convolution window and recurrent state of one sequence in one linear-attention layer."""
        return self.conv_bytes + self.ssm_bytes

    @property
    def page_bytes(self) -> int:
        """One block of one layer: N x token_bytes."""
        return self.block_size * self.token_bytes

    @property
    def padding_bytes(self) -> int:
        """Unused tail of a page that holds a state; 0 = they are equal."""
        return self.page_bytes - self.state_bytes

    @property
    def padding_percent(self) -> float:
        """By how much a state is padded up to a page, as vLLM's log prints it."""
        return self.padding_bytes * 100 / self.state_bytes

    @property
    def pool_block_bytes(self) -> int:
        """GPU memory that one more block of the engine's pool takes: one page for each layer of a group."""
        return self.page_bytes * self.groups.layers_per_group


def predict(geometry: Geometry, shape: EngineShape, profiles: Profiles | None = None) -> PredictedBlockSize:
    """Predict N for a checkpoint and an engine configuration.

    Raises:
        PredictionError: the combination is impossible, or uses something whose effect on N is not known here.

    """
    assumptions: list[str] = []
    version, profile = _profile(shape, profiles or load_profiles(), assumptions)
    model_dtype = _state_dtype("--dtype", shape.model_dtype, geometry.model_dtype)
    kv_dtype = _kv_dtype(geometry, shape, model_dtype, assumptions)
    ssm_dtype = _state_dtype("engine.vllm.mambaSsmCacheDtype", shape.mamba_ssm_cache_dtype, geometry.ssm_dtype)
    conv_dtype = _state_dtype("--mamba-cache-dtype", shape.mamba_cache_dtype, model_dtype)
    tp = shape.tensor_parallel_size
    _check_parallelism(geometry, tp)
    kv_heads = max(1, geometry.kv_heads // tp)
    context = backends.BackendContext(
        profile=profile,
        accelerator=shape.accelerator,
        capability=_capability(shape, assumptions),
        head_dim=geometry.head_dim,
        kv_dtype=kv_dtype,
        float32_state=4 in (DTYPE_BYTES[ssm_dtype], DTYPE_BYTES[conv_dtype]),
        queries_per_kv=geometry.attention_heads // tp // kv_heads,
        cuda_major=shape.cuda_major or _LATEST_CUDA,
    )
    backend, kernel = _backend(shape, context)
    gdn = backends.gdn_prefill_backend(shape.gdn_prefill_backend, context, geometry.linear_key_head_dim)
    _note_cuda(shape, context, assumptions)

    token_bytes = 2 * kv_heads * geometry.head_dim * _KV_BYTES[kv_dtype]
    conv_bytes = _conv_elements(geometry, tp, shape.speculative_tokens) * DTYPE_BYTES[conv_dtype]
    ssm_bytes = _ssm_elements(geometry, tp) * DTYPE_BYTES[ssm_dtype]
    granularity, why = _granularity(shape, kernel, context, gdn)
    block_size = _round_up(-(-(conv_bytes + ssm_bytes) // token_bytes), granularity)
    kernel_block = kernel.kernel_block_for(block_size)
    # A kernel takes every multiple of its smallest block, and N is one.
    assert kernel_block is not None  # noqa: S101
    attention_layers = geometry.attention_layers + _draft_layers(geometry, shape, assumptions)
    layers = geometry.linear_layers + attention_layers
    return PredictedBlockSize(
        block_size=block_size,
        kernel_block_size=kernel_block,
        granularity=granularity,
        token_bytes=token_bytes,
        conv_bytes=conv_bytes,
        ssm_bytes=ssm_bytes,
        groups=kv_groups(geometry.linear_layers, attention_layers),
        bytes_per_cached_token=token_bytes * layers * tp,
        attention_backend=backend,
        gdn_prefill_backend=gdn,
        vllm_version=version,
        granularity_reason=why,
        assumptions=tuple(assumptions),
    )


def _profile(shape: EngineShape, profiles: Profiles, assumptions: list[str]) -> tuple[str, VllmProfile]:
    version = shape.vllm_version
    if version is None:
        version = profiles.advised_vllm
        assumptions.append(f"vLLM version not known: {version} assumed")
    elif parse_version(version) is None:
        raise PredictionError("vLLM version", f"{version!r} is not a release number such as {profiles.advised_vllm}")
    profile = profiles.for_vllm(version)
    if profile.note:
        assumptions.append(profile.note)
    return version, profile


def _capability(shape: EngineShape, assumptions: list[str]) -> Capability:
    if shape.accelerator != "GPU":
        return backends.NO_GPU
    if shape.capability is None:
        assumptions.append("GPU not named: Hopper (compute capability 9.0) assumed")
        return backends.HOPPER
    if shape.capability[0] < _OLDEST_GENERATION:
        major, minor = shape.capability
        raise PredictionError(
            "GPU", f"compute capability {major}.{minor} is older than Ampere (8.0), whose rules are not known here"
        )
    return shape.capability


def _note_cuda(shape: EngineShape, context: backends.BackendContext, assumptions: list[str]) -> None:
    """Say that CUDA 13 is assumed where another one would change N."""
    generations = context.profile.gdn_flashinfer_generations
    matters = context.capability[0] in generations and context.capability[0] > backends.HOPPER[0]
    if shape.cuda_major is None and matters and context.profile.gdn_checkpoint_tokens > 1:
        assumptions.append(f"CUDA {_LATEST_CUDA} assumed; an older runtime changes N on this GPU")


def _kv_dtype(geometry: Geometry, shape: EngineShape, model_dtype: str, assumptions: list[str]) -> str:
    field, asked = "engine.vllm.kvCacheDtype", shape.kv_cache_dtype or "auto"
    if asked == "auto":
        asked = geometry.checkpoint_kv_dtype or model_dtype
        if geometry.checkpoint_kv_dtype:
            field = "quantization_config"
            assumptions.append(f"the checkpoint's own quantisation scheme makes the KV cache {asked}")
    if asked in _PACKED_KV:
        raise PredictionError(field, f"{asked} packs KV in pages whose size is not known here; the probe will tell N")
    if asked not in _KV_BYTES:
        raise PredictionError(
            field, f"{asked!r} is not a KV dtype known here ({', '.join(sorted(_KV_BYTES))}); the probe will tell N"
        )
    return asked


def _state_dtype(field: str, asked: str | None, default: str) -> str:
    dtype = default if asked is None or asked == "auto" else asked
    if dtype not in DTYPE_BYTES:
        raise PredictionError(field, f"{dtype!r} is not one of {', '.join(sorted(DTYPE_BYTES))}")
    return dtype


def _check_parallelism(geometry: Geometry, tp: int) -> None:
    if tp < 1:
        raise PredictionError("engine.vllm.tensorParallelSize", f"must be 1 or more, got {tp}")
    for name, heads in (
        ("attention heads", geometry.attention_heads),
        ("linear key heads", geometry.linear_key_heads),
        ("linear value heads", geometry.linear_value_heads),
    ):
        if heads % tp:
            raise PredictionError(
                "engine.vllm.tensorParallelSize",
                f"{tp} does not divide the model's {heads} {name}; choose one that does",
            )
    if geometry.kv_heads % tp and tp % geometry.kv_heads:
        raise PredictionError(
            "engine.vllm.tensorParallelSize",
            f"{geometry.kv_heads} KV heads can be neither split nor repeated over {tp} ranks",
        )


def _backend(shape: EngineShape, context: backends.BackendContext) -> tuple[str, backends.KernelBlocks]:
    field = "engine.vllm.attentionBackend"
    backend = shape.attention_backend or backends.default_backend(context)
    kernel = backends.kernel_blocks(backend, context)
    if kernel is None:
        raise PredictionError(field, f"the block sizes of {backend} are not known here; the probe will tell N")
    if not backends.takes_kv_dtype(backend, context):
        raise PredictionError(field, f"{backend} does not read {context.kv_dtype} KV on this GPU; leave it unset")
    if shape.block_size is not None and shape.block_size % kernel.smallest:
        raise PredictionError(
            "engine.vllm.blockSize",
            f"{backend} takes multiples of {kernel.smallest} tokens, and {shape.block_size} is none; leave it unset",
        )
    return backend, kernel


def _conv_elements(geometry: Geometry, tp: int, speculative_tokens: int) -> int:
    channels = (
        2 * geometry.linear_key_heads * geometry.linear_key_head_dim
        + geometry.linear_value_heads * geometry.linear_value_head_dim
    ) // tp
    # Draft tokens lengthen the convolution window: they may have to be rolled back.
    return channels * (geometry.conv_kernel - 1 + speculative_tokens)


def _ssm_elements(geometry: Geometry, tp: int) -> int:
    return geometry.linear_value_heads // tp * geometry.linear_value_head_dim * geometry.linear_key_head_dim


def _draft_layers(geometry: Geometry, shape: EngineShape, assumptions: list[str]) -> int:
    """Attention layers that drafting adds to the pool."""
    if not shape.speculative_tokens:
        return 0
    if shape.speculative_method in (None, *_MTP_METHODS):
        return geometry.mtp_layers
    assumptions.append(f"the memory that {shape.speculative_method} drafting takes in the pool is not counted")
    return 0


def _granularity(
    shape: EngineShape, kernel: backends.KernelBlocks, context: backends.BackendContext, gdn: str
) -> tuple[int, str]:
    """Return the step that N is rounded up to, and where it comes from (`_align_hybrid_block_size`).

    vLLM 0.32 rounds once more to the backends' smallest kernel blocks, which changes nothing: these models have one
    backend, and a `--block-size` that is no multiple of its block is refused before.
    """
    base, origin = backends.default_block_size(context), "the engine's default block"
    if shape.block_size is not None:
        base, origin = shape.block_size, "--block-size"
    step, why = base, f"{base}, {origin}"
    if kernel.smallest > base:
        step, why = kernel.smallest, f"{kernel.smallest}, the smallest kernel block"
    checkpoint = context.profile.gdn_checkpoint_tokens
    if gdn == "flashinfer" and checkpoint > 1:
        step = math.lcm(step, checkpoint)
        why = f"lcm of {why}, and {checkpoint}, where FlashInfer's linear-attention prefill can leave a state"
    return step, why


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
