"""What a pod would be started with, before any pod exists: predicted N, both command lines, memory, warnings.

The command lines come from `inpod.flags`, the same code that the probe runs in the pod; only N is predicted here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from qwen_cached_serve.core.accelerators import Capability, UnknownGpuError, capability_of, typical_gpu
from qwen_cached_serve.core.blocksize import PredictedBlockSize, PredictionError, predict
from qwen_cached_serve.core.budget import Budget
from qwen_cached_serve.core.catalogue import CatalogueEntry, lookup, refusal
from qwen_cached_serve.core.geometry import Geometry
from qwen_cached_serve.core.plan_warnings import block_warnings, catalogue_warnings, pair_warnings, step_warnings
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.shaping import Environment, engine_shape
from qwen_cached_serve.core.versions import cuda_of_image
from qwen_cached_serve.inpod.facts import ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.flags import Flag, cache_server_flags, engine_flags
from qwen_cached_serve.inpod.groundwork import check_versions
from qwen_cached_serve.inpod.profiles import load_profiles
from qwen_cached_serve.inpod.refusal import Refusal

__all__ = ["Environment", "Plan", "make_plan", "plan_resource"]

_GPU_PRODUCT = "nvidia.com/gpu.product"
"""Node label by which GPU feature discovery tells the product."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A preview. Token figures are None when N cannot be predicted."""

    settings: ServeSettings
    predicted: PredictedBlockSize | None
    problem: str | None
    """Why N cannot be predicted, or why the pod would refuse to start with it."""
    chunk_size: int | None
    tokens_per_step: int | None
    engine: tuple[Flag, ...]
    cache_server: tuple[Flag, ...]
    vllm_version: str
    lmcache_version: str
    budget: Budget | None
    l1_tokens: int | None
    """Tokens of prompts that L1 holds, about; None without a cache or a prediction."""
    warnings: tuple[str, ...] = ()


def plan_resource(resolved: Resolved, environment: Environment | None = None, geometry: Geometry | None = None) -> Plan:
    """Plan a resolved resource; without `geometry` the catalogue is asked for the model."""
    environment = environment or Environment()
    entry = None if geometry else lookup(resolved.settings.model)
    product = _selected_product(resolved)
    known = replace(
        environment,
        vllm_version=environment.vllm_version or resolved.vllm_version,
        capability=environment.capability or _capability(product),
        gpu=environment.gpu or (typical_gpu(product) if environment.capability is None else None),
        cuda_major=environment.cuda_major or cuda_of_image(resolved.image),
    )
    reason = _not_predictable(resolved, entry)
    model = geometry or (entry.geometry if entry else None)
    plan = make_plan(resolved.settings, reason or model, known, resolved.budget)
    warnings = (*plan.warnings, *resolved.warnings, *catalogue_warnings(entry))
    return replace(plan, warnings=tuple(dict.fromkeys(warnings)))


def make_plan(
    settings: ServeSettings, geometry: Geometry | str | None, environment: Environment, budget: Budget | None = None
) -> Plan:
    """Plan settings for a geometry, or say why there is no prediction; never raises for what words can say."""
    profiles = load_profiles()
    vllm = environment.vllm_version or profiles.advised_vllm
    lmcache = environment.lmcache_version or profiles.advised_lmcache
    predicted, problem = _predict(settings, geometry, environment)
    engine: tuple[Flag, ...] = ()
    server: tuple[Flag, ...] = ()
    if predicted:
        report = ProbeReport(
            block_size=predicted.block_size,
            kernel_block_size=predicted.kernel_block_size,
            attention_backends=(predicted.attention_backend,),
            versions=Versions(vllm=vllm, lmcache=lmcache),
            method="Predicted",
            page_padding_bytes=predicted.padding_bytes,
            gpus=(environment.gpu,) if environment.gpu else (),
        )
        try:
            engine = tuple(engine_flags(settings, report))
            server = tuple(cache_server_flags(settings, report))
            check_versions(settings, report.versions, profiles)
        except Refusal as refused:
            problem = f"{refused.message}. {refused.hint}".strip()
    return Plan(
        settings=settings,
        predicted=predicted,
        problem=problem,
        chunk_size=_number(server, "--chunk-size"),
        tokens_per_step=_number(engine, "--max-num-batched-tokens"),
        engine=engine,
        cache_server=server,
        vllm_version=vllm,
        lmcache_version=lmcache,
        budget=budget,
        l1_tokens=settings.cache.l1_size_bytes // predicted.bytes_per_cached_token
        if predicted and settings.cache.enabled
        else None,
        warnings=(
            *(predicted.assumptions if predicted else ()),
            *block_warnings(settings, predicted, _without_step(settings, geometry, environment)),
            *step_warnings(settings, predicted, engine),
            *pair_warnings(settings, vllm, lmcache),
        ),
    )


def _not_predictable(resolved: Resolved, entry: CatalogueEntry | None) -> str | None:
    """Why a resource's N is not predicted although its model may be known."""
    if resolved.gpu and not resolved.gpu.nvidia:
        return f"N on {resolved.gpu.resource_name} is not predicted, only on NVIDIA GPUs and CPUs; the probe finds it"
    kv_dtype = resolved.settings.engine.kv_cache_dtype
    if entry is not None and not entry.kv_dtype_known and kv_dtype in (None, "auto"):
        return (
            f"N of {entry.model} is not predicted: such checkpoints can make the KV cache fp8 or nvfp4 by themselves. "
            "Give its config.json (qcs plan --config), set spec.engine.vllm.kvCacheDtype, or let the probe find N"
        )
    return None


def _selected_product(resolved: Resolved) -> str:
    """The one GPU product that the node selector admits; empty when it names none."""
    return str((resolved.pod.node_selector or {}).get(_GPU_PRODUCT, "")) if resolved.gpu else ""


def _capability(product: str) -> Capability | None:
    with contextlib.suppress(UnknownGpuError):
        return capability_of(product)
    return None


def _predict(
    settings: ServeSettings, geometry: Geometry | str | None, environment: Environment
) -> tuple[PredictedBlockSize | None, str | None]:
    if isinstance(geometry, str):
        return None, geometry
    if geometry is None:
        reason = refusal(settings.model)
        if reason:
            return None, f"N of {settings.model} cannot be predicted: {reason}"
        return None, (
            f"N of {settings.model} cannot be predicted: the model is not in the catalogue. "
            "Give its config.json (qcs plan --config), or let the probe find N"
        )
    try:
        return predict(geometry, engine_shape(settings, environment)), None
    except PredictionError as error:
        return None, str(error)


def _without_step(
    settings: ServeSettings, geometry: Geometry | str | None, environment: Environment
) -> PredictedBlockSize | None:
    """Prediction without the user's `blockSize`, None when there is none."""
    if settings.engine.block_size is None:
        return None
    plain = replace(settings, engine=replace(settings.engine, block_size=None))
    return _predict(plain, geometry, environment)[0]


def _number(flags: tuple[Flag, ...], name: str) -> int | None:
    return next((int(flag.values[0]) for flag in flags if flag.name == name), None)
