"""The argument vectors that the pods really run with, as far as a status can know them.

A pod's message carries no arguments, only their hash. The operator derives them again with the pod's own code and shows
them when the hash agrees; otherwise it shows nothing rather than something almost right.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from qwen_cached_serve.inpod.facts import IPV4_WILDCARD, IPV6_WILDCARD, Gpu, ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.flags import cache_server_argv, engine_argv, tokens_per_step
from qwen_cached_serve.inpod.message import CompactReport, argv_hash
from qwen_cached_serve.inpod.redact import redact_arguments
from qwen_cached_serve.inpod.refusal import Refusal

_LARGE = 1 << 40
"""More memory than any threshold of the rules, in bytes: a message does not say how much a GPU has."""
_HOSTS = (IPV4_WILDCARD, IPV6_WILDCARD)
"""Where engines listen; a message does not say it either."""
_ARGUMENT_CHARACTERS = 8192
_ARGUMENTS = 400


def plan_status(settings: ServeSettings, reports: Sequence[CompactReport]) -> dict[str, Any] | None:
    """Show the plan that all reports agree on; None when they do not, or when it cannot be derived again."""
    if not reports or len({report.argv_hash for report in reports}) != 1:
        return None
    report = reports[0]
    sights = itertools.product(_HOSTS, ((), _gpus(report, 0), _gpus(report, _LARGE)))
    for host, gpus in sights:
        full = _full_report(report, gpus, host)
        try:
            engine, server = engine_argv(settings, full), cache_server_argv(settings, full)
            tokens = tokens_per_step(settings, report.block_size)
        except Refusal:
            return None
        if argv_hash(engine, server) == report.argv_hash:
            shown: dict[str, Any] = {"engineArgs": _show(engine)}
            if server:
                shown |= {
                    "chunkSize": settings.cache.chunk_blocks * report.block_size,
                    "cacheServerArgs": _show(server),
                }
            if tokens is not None:
                shown["maxNumBatchedTokens"] = tokens
            return shown
    return None


def _show(argv: Sequence[str]) -> list[str]:
    return [argument[:_ARGUMENT_CHARACTERS] for argument in redact_arguments(argv)[:_ARGUMENTS]]


def _gpus(report: CompactReport, memory: int) -> tuple[Gpu, ...]:
    return (Gpu(report.gpu_name, "", report.gpu_capability, report.gpu_driver, memory),)


def _full_report(report: CompactReport, gpus: tuple[Gpu, ...], host: str) -> ProbeReport:
    return ProbeReport(
        block_size=report.block_size,
        kernel_block_size=report.kernel_block_size,
        attention_backends=report.attention_backends,
        versions=Versions(vllm=report.vllm, lmcache=report.lmcache),
        method="Construct",
        model_revision=report.model_revision,
        gpus=gpus,
        engine_host=host,
        identity=report.identity,
    )
