"""Find N the quick way: build the model's layers without weights in this process and ask vLLM's platform code.

It runs in a process of its own; its parent (`probe`) holds the time limit and writes the files. Stages are timed:
versions, model, import, configure, construct, verify (seconds).
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from . import vllm_api
from .classify import check_architecture, page_padded, prefix_caching_disabled, refuse_arguments
from .facts import ProbeReport, ServeSettings
from .flags import engine_argv, probe_argv
from .groundwork import Groundwork, prepare
from .refusal import Refusal


def find_report(settings: ServeSettings) -> ProbeReport:
    """Find N and what belongs to it on this container's device.

    Raises:
        Refusal: every coded answer that is final.
        Exception: anything else means that this way of asking does not work with the image (`classify`).

    """
    work = prepare(settings)
    settings, profiles, watch, versions = work.settings, work.profiles, work.watch, work.versions
    with watch.stage("import"):
        vllm_api.import_vllm()
        _check_platform(settings)
    try:
        with watch.stage("configure"):
            config = vllm_api.configure(vllm_api.parse(probe_argv(settings, versions.vllm, versions.lmcache, profiles)))
        check_architecture(str(config.model_config.architecture), profiles)
        _check_prefix_caching(settings, config)
        with watch.stage("construct"):
            built = vllm_api.construct(config)
        report = _report(work, config, built)
        _check_pages(settings, report)
        _check_chunk(settings, report, built)
        with watch.stage("verify"):
            # The whole command line, with all that depends on N, must pass the engine's own parser and checks too.
            vllm_api.configure(vllm_api.parse(engine_argv(settings, report, profiles)))
    except vllm_api.ArgumentsRefused as refused:
        raise refuse_arguments(str(refused), profiles) from refused
    return dataclasses.replace(report, timings_seconds=dict(watch.seconds))


def _check_platform(settings: ServeSettings) -> None:
    kind, wanted = vllm_api.platform_kind(), settings.engine.accelerator
    if wanted == "GPU" and kind == "CPU":
        raise Refusal(
            "DeviceMissing",
            "the image holds vLLM's CPU build, but the resource asks for a GPU",
            "Set spec.engine.image to a GPU build, or spec.engine.accelerator.type to CPU.",
        )
    if wanted == "CPU" and kind != "CPU":
        raise Refusal(
            "DeviceMissing",
            "the image holds vLLM's GPU build, but the resource asks for the CPU",
            "Set spec.engine.image to a CPU build, or spec.engine.accelerator.type to GPU.",
        )
    if wanted == "GPU" and (kind != "GPU" or vllm_api.device_count() < max(1, settings.gpu_count)):
        raise Refusal(
            "DeviceMissing",
            f"vLLM sees {vllm_api.device_count()} GPUs, {max(1, settings.gpu_count)} are needed",
            "Check spec.engine.accelerator.gpu, the node's driver and its device plugin.",
        )


def _check_prefix_caching(settings: ServeSettings, config: Any) -> None:
    cache = config.cache_config
    if not settings.cache.enabled or (cache.enable_prefix_caching and _mamba_mode(cache) != "none"):
        return
    raise prefix_caching_disabled(f"mamba cache mode {_mamba_mode(cache)!r}")


def _check_pages(settings: ServeSettings, report: ProbeReport) -> None:
    if settings.cache.enabled and settings.engine.accelerator == "CPU" and report.page_padding_bytes:
        raise page_padded(f"{report.page_padding_bytes} bytes")


def _check_chunk(settings: ServeSettings, report: ProbeReport, built: vllm_api.Constructed) -> None:
    """N can be too large for the cache: a chunk that does not fit into L1 is never stored."""
    chunk = settings.cache.chunk_blocks * built.block_bytes * settings.engine.tensor_parallel_size
    if settings.cache.enabled and chunk > settings.cache.l1_size_bytes:
        raise Refusal(
            "ChunkLargerThanL1",
            f"one chunk ({settings.cache.chunk_blocks} x N, N = {report.block_size} tokens) takes {chunk} bytes, but "
            f"L1 holds {settings.cache.l1_size_bytes}",
            "Raise spec.cache.l1.size, or lower spec.cache.chunkBlocks.",
        )


def _report(work: Groundwork, config: Any, built: vllm_api.Constructed) -> ProbeReport:
    cache, model = config.cache_config, config.model_config
    return ProbeReport(
        block_size=built.block_size,
        kernel_block_size=built.kernel_block_size,
        attention_backends=built.attention_backends,
        versions=work.versions,
        method="Construct",
        architecture=str(model.architecture),
        gdn_prefill_backend=built.gdn_prefill_backend,
        mamba_cache_mode=_mamba_mode(cache),
        kv_cache_dtype=str(cache.cache_dtype),
        mamba_ssm_cache_dtype=str(cache.mamba_ssm_cache_dtype),
        prefix_caching=bool(cache.enable_prefix_caching),
        page_padding_bytes=built.page_padding_bytes,
        max_model_len=int(model.max_model_len),
        model_revision=work.commit,
        gpus=work.gpus,
        node=os.environ.get("QCS_NODE_NAME", ""),
        timings_seconds=dict(work.watch.seconds),
    )


def _mamba_mode(cache_config: Any) -> str:
    # Gone as a setting one day (0.33 ignores it): a release without the field keeps state at block ends.
    return str(getattr(cache_config, "mamba_cache_mode", "align"))
