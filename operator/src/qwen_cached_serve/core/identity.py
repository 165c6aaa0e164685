"""Which pods could read each other's cache entries, told from their probes' messages.

Every cache is a pod's own so far (there is no shared store), so this decides nothing yet: it is what people see when
pods of one resource differ. The full identity of DESIGN D7, which a shared store's namespace is made of, is derived in
the pod.
"""

from __future__ import annotations

from qwen_cached_serve.core import names
from qwen_cached_serve.inpod.message import CompactReport

_IDENTITY_CHARACTERS = 12


def identity_of(report: CompactReport) -> str:
    """Hash over everything in a message that two engines must agree on; the argument vectors are in it by their
    hash.
    """
    parts = (
        report.block_size,
        report.kernel_block_size,
        report.attention_backends,
        report.vllm,
        report.lmcache,
        report.mamba_cache_mode,
        report.kv_cache_dtype,
        report.mamba_ssm_cache_dtype,
        report.gdn_prefill_backend,
        report.architecture,
        report.model_revision,
        report.gpu_capability,
        report.argv_hash,
    )
    return names.digest(repr(parts))[:_IDENTITY_CHARACTERS]


def summary_of(report: CompactReport, tensor_parallel_size: int) -> str:
    """Short form for people, as in `FLASH_ATTN/784 N784 tp1 auto`."""
    backends = "+".join(report.attention_backends) or "?"
    kv = report.kv_cache_dtype or "auto"
    return f"{backends}/{report.kernel_block_size} N{report.block_size} tp{tensor_parallel_size} {kv}"
