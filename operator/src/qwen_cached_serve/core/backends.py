"""Which attention backend vLLM picks and which KV block sizes its kernels take.

Read in vLLM's sources 0.20 to 0.33 (facts/vllm.md §1.3). A row says either "any multiple of k" or "exactly one of
these"; vLLM starts from the smallest and, once N is known, uses N itself when the kernel takes it, otherwise the
largest size that divides N.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.versions import Release

_BLACKWELL_DATACENTER = (10, 11)
"""Major capabilities SM10x and SM11x."""


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
        if block_size in self.exactly:
            return block_size
        dividing = [size for size in self.exactly if block_size % size == 0]
        return max(dividing, default=None)


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What the choice of backend and block sizes depends on."""

    release: Release
    accelerator: str
    capability: Capability | None
    head_dim: int
    kv_quantised: bool
    ssm_float32: bool


def default_backend(context: BackendContext) -> str:
    """Name the backend vLLM takes when none is asked for."""
    if context.accelerator == "CPU":
        return "CPU_ATTN"
    major = context.capability[0] if context.capability else 9
    if major == 10:
        return "FLASHINFER"
    if context.kv_quantised and major != 9:
        # FLASH_ATTN reads a quantised KV cache on Hopper only (run with SM80 faked; B08 saw it on Ada).
        return "FLASHINFER"
    return "FLASH_ATTN"


def kernel_blocks(backend: str, context: BackendContext) -> KernelBlocks | None:
    """Return what the backend's kernels take, or None when the backend is not known here."""
    if backend == "FLASH_ATTN":
        return _flash_attention(context)
    if backend == "FLASHINFER":
        big = context.capability is not None and context.capability[0] == 10 and context.release >= (0, 25, 0)
        return KernelBlocks(16, (16, 32, 64, 128, 256, 512, 1024) if big else (16, 32, 64))
    if backend == "CPU_ATTN":
        return KernelBlocks(32 if context.release >= (0, 29, 0) else 16)
    return _OTHERS.get(backend)


def _flash_attention(context: BackendContext) -> KernelBlocks:
    major = context.capability[0] if context.capability else 9
    fa4 = major in _BLACKWELL_DATACENTER and context.head_dim == 256 and not context.kv_quantised
    if context.release >= (0, 29, 0) and fa4:
        return KernelBlocks(128, (128,))
    if context.release < (0, 25, 0) and context.ssm_float32:
        return KernelBlocks(16, (16, 32, 64))
    return KernelBlocks(16)


_OTHERS = {
    "TRITON_ATTN": KernelBlocks(16),
    "FLEX_ATTENTION": KernelBlocks(16),
    "ROCM_ATTN": KernelBlocks(16),
    "ROCM_AITER_FA": KernelBlocks(16, (16, 32)),
    "ROCM_AITER_UNIFIED_ATTN": KernelBlocks(16),
}


def default_block_size(context: BackendContext) -> int:
    """Tokens of a KV block when the user sets none: 16 on GPUs, 128 in vLLM's CPU build."""
    return 128 if context.accelerator == "CPU" else 16


def gdn_prefill_backend(requested: str | None, context: BackendContext, linear_key_head_dim: int) -> str:
    """Name the kernel of the linear-attention layers' prefill; from vLLM 0.33 `flashinfer` makes N a multiple of 64.

    CUDA 13 is assumed for Blackwell (the images' default since 0.20).
    """
    if requested:
        return requested
    if context.accelerator == "CPU":
        return "none"
    capability = context.capability or (9, 0)
    if capability[0] == 9:
        return "flashinfer"
    since = {10: (0, 22, 0), 12: (0, 30, 0)}.get(capability[0])
    if since is not None and context.release >= since and linear_key_head_dim == 128:
        return "flashinfer"
    return "triton"
