"""Which pods can read each other's cache entries, as their probes' messages tell it (DESIGN D7, D9).

The identity itself is computed in the pod (`inpod.identity`). A message without one comes from a pod without a cache or
from the scripts of an older operator: nothing is said about it then.
"""

from __future__ import annotations

from qwen_cached_serve.inpod.message import CompactReport


def identity_of(report: CompactReport) -> str:
    """The identity that the pod reported; empty when it reported none."""
    return report.identity


def summary_of(report: CompactReport, tensor_parallel_size: int) -> str:
    """Short form for people, as in `FLASH_ATTN/16 N784 tp1 auto`; put together again where the message lost it."""
    if report.identity_summary:
        return report.identity_summary
    backends = "+".join(report.attention_backends) or "?"
    kv = report.kv_cache_dtype or "auto"
    return f"{backends}/{report.kernel_block_size or '?'} N{report.block_size} tp{tensor_parallel_size} {kv}"
