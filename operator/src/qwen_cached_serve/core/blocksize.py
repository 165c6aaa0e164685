"""Prediction of N, vLLM's unified attention block size, from a model's `config.json`.

A hybrid model keeps, per linear-attention layer and sequence, one state of fixed size; vLLM makes the attention layers'
KV block so large that one block holds at least that state. N is that block in tokens. The formula, with the places in
vLLM it was read from, is in facts/vllm.md §1.2; every published value and every run known to us agrees with it.

The prediction is for planning, sizing and a warning when the probe disagrees. It is never a source of flags (DESIGN
D1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from qwen_cached_serve.core import backends
from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.geometry import DTYPE_BYTES, Geometry
from qwen_cached_serve.core.versions import Release, parse_release
from qwen_cached_serve.inpod.profiles import load_profiles

_GDN_CHECKPOINT_TOKENS = 64
"""vLLM 0.33: prefill checkpoints of the FlashInfer GDN kernel lie on multiples of 64 tokens."""

_KV_BYTES = DTYPE_BYTES | {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1}


class PredictionError(ValueError):
    """N cannot be predicted for this combination; `field` names the setting, the text says why and what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Everything besides the checkpoint that N depends on; None means the engine's own default."""

    accelerator: str = "GPU"
    """`GPU` or `CPU`."""
    capability: Capability | None = None
    """Compute capability of the GPU; None = not known, Hopper is assumed and said so."""
    tensor_parallel_size: int = 1
    kv_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_cache_dtype: str | None = None
    speculative_tokens: int = 0
    attention_backend: str | None = None
    gdn_prefill_backend: str | None = None
    block_size: int | None = None
    vllm_version: str | None = None


@dataclass(frozen=True, slots=True)
class PredictedBlockSize:
    """N and what it rests on. Sizes are bytes per tensor-parallel rank, blocks and granularity tokens."""

    block_size: int
    kernel_block_size: int | None
    """Size the attention kernel runs with; None when no size it takes divides N (the engine then refuses to start)."""
    granularity: int
    """N is a multiple of this."""
    token_bytes: int
    """Key and value of one token in one attention layer."""
    state_bytes: int
    """Convolution and recurrent state of one sequence in one linear-attention layer."""
    page_bytes: int
    """One block of one layer: N x token_bytes."""
    padding_bytes: int
    """Unused tail of a page that holds a state; 0 = they are equal."""
    pool_block_bytes: int
    """GPU memory that one more block of the engine's pool takes: one page for each layer of a group."""
    bytes_per_cached_token: int
    """Cache memory of one token of a stored prefix, all layers and ranks, when every block keeps its state."""
    attention_backend: str
    gdn_prefill_backend: str
    vllm_version: str
    explanation: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = field(default=())

    @property
    def padding_percent(self) -> float:
        """By how much a state is padded up to a page, as vLLM's log prints it."""
        return self.padding_bytes * 100 / self.state_bytes

    @property
    def tokens_per_step(self) -> int:
        """2N-1: the most that one step may compute so that every block boundary gets its state stored."""
        return 2 * self.block_size - 1


def predict(geometry: Geometry, shape: EngineShape) -> PredictedBlockSize:
    """Predict N for a checkpoint and an engine configuration.

    Raises:
        PredictionError: the combination is impossible, or uses a format whose page layout is not known here.

    """
    assumptions: list[str] = []
    version, release = _release(shape, assumptions)
    kv_dtype = _kv_dtype(geometry, shape, assumptions)
    ssm_dtype = _state_dtype("engine.vllm.mambaSsmCacheDtype", shape.mamba_ssm_cache_dtype, geometry.ssm_dtype)
    conv_dtype = _state_dtype("--mamba-cache-dtype", shape.mamba_cache_dtype, geometry.model_dtype)
    if shape.accelerator == "GPU" and shape.capability is None:
        assumptions.append("GPU not named: Hopper (compute capability 9.0) assumed")
    _check_parallelism(geometry, shape.tensor_parallel_size)

    context = backends.BackendContext(
        release=release,
        accelerator=shape.accelerator,
        capability=shape.capability,
        head_dim=geometry.head_dim,
        kv_quantised=_KV_BYTES[kv_dtype] == 1,
        ssm_float32=ssm_dtype in ("float32", "float"),
    )
    backend = shape.attention_backend or backends.default_backend(context)
    kernel = backends.kernel_blocks(backend, context)
    if kernel is None:
        raise PredictionError(
            "engine.vllm.attentionBackend", f"the block sizes of {backend} are not known here; the probe will tell N"
        )
    gdn = backends.gdn_prefill_backend(shape.gdn_prefill_backend, context, geometry.linear_key_head_dim)

    tp = shape.tensor_parallel_size
    token_bytes = 2 * max(1, geometry.kv_heads // tp) * geometry.head_dim * _KV_BYTES[kv_dtype]
    conv_bytes = _conv_elements(geometry, tp, shape.speculative_tokens) * DTYPE_BYTES[conv_dtype]
    ssm_bytes = (
        geometry.linear_value_heads
        // tp
        * geometry.linear_value_head_dim
        * geometry.linear_key_head_dim
        * DTYPE_BYTES[ssm_dtype]
    )
    state_bytes = conv_bytes + ssm_bytes
    base = shape.block_size or backends.default_block_size(context)
    granularity, why = _granularity(base, kernel, release, gdn)
    needed = -(-state_bytes // token_bytes)
    block_size = _round_up(needed, granularity)
    page = block_size * token_bytes
    return PredictedBlockSize(
        block_size=block_size,
        kernel_block_size=kernel.kernel_block_for(block_size),
        granularity=granularity,
        token_bytes=token_bytes,
        state_bytes=state_bytes,
        page_bytes=page,
        padding_bytes=page - state_bytes,
        pool_block_bytes=page * geometry.attention_layers,
        bytes_per_cached_token=-(-page * geometry.layers * tp // block_size),
        attention_backend=backend,
        gdn_prefill_backend=gdn,
        vllm_version=version,
        explanation=_explain(conv_bytes, ssm_bytes, token_bytes, granularity, block_size, why),
        assumptions=tuple(assumptions),
    )


def _release(shape: EngineShape, assumptions: list[str]) -> tuple[str, Release]:
    advised = load_profiles().advised_vllm
    version = shape.vllm_version or advised
    release = parse_release(version)
    if release is None:
        raise PredictionError("vLLM version", f"{version!r} is not a release number such as {advised}")
    if shape.vllm_version is None:
        assumptions.append(f"vLLM version not known: {advised} assumed")
    return version, release


def _kv_dtype(geometry: Geometry, shape: EngineShape, assumptions: list[str]) -> str:
    asked = shape.kv_cache_dtype or "auto"
    if asked == "auto":
        asked = geometry.checkpoint_kv_dtype or geometry.model_dtype
        if geometry.checkpoint_kv_dtype:
            assumptions.append(f"the checkpoint's own quantisation scheme makes the KV cache {asked}")
    if asked not in _KV_BYTES:
        raise PredictionError(
            "engine.vllm.kvCacheDtype",
            f"{asked} stores KV in a packed format whose page size is not known here; the probe will tell N",
        )
    return asked


def _state_dtype(field: str, asked: str | None, default: str) -> str:
    dtype = default if asked in (None, "auto") else asked
    assert dtype is not None  # noqa: S101 - narrows the type: default is a str
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


def _conv_elements(geometry: Geometry, tp: int, speculative_tokens: int) -> int:
    channels = (
        2 * geometry.linear_key_heads * geometry.linear_key_head_dim
        + geometry.linear_value_heads * geometry.linear_value_head_dim
    ) // tp
    # Draft tokens lengthen the convolution window: they may have to be rolled back.
    return channels * (geometry.conv_kernel - 1 + speculative_tokens)


def _granularity(base: int, kernel: backends.KernelBlocks, release: Release, gdn: str) -> tuple[int, str]:
    granularity = max(kernel.smallest, base)
    why = "the larger of kernel block and --block-size"
    if release >= (0, 32, 0):
        granularity = math.lcm(granularity, kernel.smallest)
    if release >= (0, 33, 0) and gdn == "flashinfer":
        granularity = math.lcm(granularity, _GDN_CHECKPOINT_TOKENS)
        why += f", and {_GDN_CHECKPOINT_TOKENS} for FlashInfer's linear-attention prefill"
    return granularity, why


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _explain(conv: int, ssm: int, token: int, granularity: int, block_size: int, why: str) -> tuple[str, ...]:
    state = conv + ssm
    tokens = f"{state / token:,.2f}"
    return (
        f"one sequence's state in a linear layer: {conv:,} B convolution + {ssm:,} B recurrent = {state:,} B",
        f"one token's key and value in an attention layer: {token:,} B",
        f"{state:,} / {token:,} = {tokens}, up to a multiple of {granularity} ({why}): N = {block_size}",
    )
