"""Which attention backend vLLM picks and which KV block sizes its kernels take.

Read in vLLM's sources 0.20 to 0.33 (facts/vllm.md §1.3); what differs between releases is in the version profile. A
row says either "any multiple of k" or "exactly one of these"; vLLM starts from the smallest and, once N is known, uses
N itself when the kernel takes it, otherwise the largest size that divides N.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.inpod.profiles import VllmProfile

NO_GPU: Capability = (0, 0)
HOPPER: Capability = (9, 0)
"""Taken when the GPU is not named: what most of these models are served on."""
_HOPPER, _BLACKWELL_DATACENTER = 9, 10
_NATIVE_E4M3 = (8, 9)
_FA4_WIDE_HEAD = 256
_ALIGNMENT = 16
"""Tokens; every CUDA attention backend takes multiples of it (`get_supported_kernel_block_sizes`)."""


@dataclass(frozen=True, slots=True)
class KernelBlocks:
    """Block sizes, in tokens, that a backend's kernels take."""

    smallest: int
    exactly: tuple[int, ...] = ()
    """The only sizes taken; empty = every multiple of `smallest`."""

    def kernel_block_for(self, block_size: int) -> int | None:
        """Return the size the kernel will run with for N tokens, or None when no size divides N."""
        if not self.exactly:
            return block_size if block_size % self.smallest == 0 else None
        dividing = [size for size in self.exactly if block_size % size == 0]
        return max(dividing, default=None)


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What the choice of backend and block sizes depends on."""

    profile: VllmProfile
    accelerator: str
    """`GPU` (CUDA) or `CPU`."""
    capability: Capability
    head_dim: int
    kv_dtype: str
    """After resolution, for example `bfloat16` or `fp8_e4m3`."""
    float32_state: bool
    """Whether a part of the recurrent state is kept in float32."""
    queries_per_kv: int
    """Query heads that share one KV head on a rank."""
    cuda_major: int
    """Major version of the CUDA runtime that vLLM was built with."""

    @property
    def kv_quantised(self) -> bool:
        """Whether KV is stored in 8 bits."""
        return self.kv_dtype.startswith("fp8")


def default_backend(context: BackendContext) -> str:
    """Name the backend vLLM takes when none is asked for."""
    if context.accelerator == "CPU":
        return "CPU_ATTN"
    if context.capability[0] == _BLACKWELL_DATACENTER:
        return "FLASHINFER"
    return "FLASH_ATTN" if takes_kv_dtype("FLASH_ATTN", context) else "FLASHINFER"


def takes_kv_dtype(backend: str, context: BackendContext) -> bool:
    """Tell whether a backend reads the KV dtype on this GPU, as far as it is known here."""
    if not context.kv_quantised or backend not in ("FLASH_ATTN", "FLEX_ATTENTION", "TRITON_ATTN"):
        return True
    if backend == "TRITON_ATTN":
        # Its kernels use the hardware's e4m3, which Ampere does not have (docs/gpu-matrix.md, vLLM 0.29 on SM80).
        return context.kv_dtype == "fp8_e5m2" or context.capability >= _NATIVE_E4M3
    if backend == "FLEX_ATTENTION" or context.kv_dtype == "fp8_e5m2":
        return False
    # fa_utils.flash_attn_supports_kv_cache_dtype; B08 saw the switch to FLASHINFER on Ada. FlashAttention 4's kernel
    # for heads of 256 falls back to FlashAttention 2 for quantised KV, which does not read it.
    fa4 = context.head_dim == _FA4_WIDE_HEAD and bool(context.profile.flash_attention_blackwell_block)
    generation = context.capability[0]
    return generation == _HOPPER or (generation == _BLACKWELL_DATACENTER and not fa4)


def kernel_blocks(backend: str, context: BackendContext) -> KernelBlocks | None:
    """Return what the backend's kernels take, or None when the backend is not known here."""
    if backend == "FLASH_ATTN":
        return _flash_attention(context)
    if backend == "FLASHINFER":
        return KernelBlocks(_ALIGNMENT, (16, 32, 64, 128, 256, 512, 1024) if _trtllm(context) else (16, 32, 64))
    if backend == "CPU_ATTN":
        return KernelBlocks(context.profile.cpu_kernel_block)
    return _OTHERS.get(backend)


def _flash_attention(context: BackendContext) -> KernelBlocks:
    profile = context.profile
    # FlashAttention 4's kernel for heads of 256.
    wide = context.head_dim == _FA4_WIDE_HEAD and not context.kv_quantised
    fa4 = context.capability[0] == _BLACKWELL_DATACENTER and wide
    if fa4 and profile.flash_attention_blackwell_block:
        block = profile.flash_attention_blackwell_block
        return KernelBlocks(block, (block,))
    return KernelBlocks(_ALIGNMENT, profile.flash_attention_float32_state_blocks if context.float32_state else ())


def _trtllm(context: BackendContext) -> bool:
    """Tell whether FlashInfer can use TensorRT-LLM's attention, whose kernels take large pages."""
    return (
        context.profile.flashinfer_large_blocks
        and context.capability[0] == _BLACKWELL_DATACENTER
        and context.queries_per_kv > 1
    )


_OTHERS = {"TRITON_ATTN": KernelBlocks(_ALIGNMENT), "FLEX_ATTENTION": KernelBlocks(_ALIGNMENT)}


def default_block_size(context: BackendContext) -> int:
    """Tokens of a KV block when the user sets none: 16 on GPUs, 128 in vLLM's CPU build."""
    return 128 if context.accelerator == "CPU" else _ALIGNMENT


def gdn_prefill_backend(requested: str | None, context: BackendContext, linear_key_head_dim: int) -> str:
    """Name the kernel of the linear-attention layers' prefill; from vLLM 0.33 `flashinfer` makes N a multiple of 64.

    A kernel that the GPU does not have is silently replaced by Triton's, as in vLLM (qwen_gdn_linear_attn.py).
    """
    generation = context.capability[0]
    blackwell_ready = linear_key_head_dim == 128 and context.cuda_major >= 13
    flashinfer = generation in context.profile.gdn_flashinfer_generations
    if flashinfer and (generation == _HOPPER or blackwell_ready) and requested in (None, "auto", "flashinfer"):
        return "flashinfer"
    if requested == "cutedsl" and generation == _BLACKWELL_DATACENTER and blackwell_ready:
        return "cutedsl"
    return "triton"
