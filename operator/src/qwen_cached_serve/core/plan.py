"""What a pod would be started with, before any pod exists: predicted N, both command lines, memory, warnings.

The command lines come from `inpod.flags`, the same code that the probe runs in the pod; only N is predicted here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.blocksize import EngineShape, PredictedBlockSize, PredictionError, predict
from qwen_cached_serve.core.budget import Budget
from qwen_cached_serve.core.catalogue import CatalogueEntry, lookup
from qwen_cached_serve.core.geometry import Geometry
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.inpod.facts import ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.flags import Flag, cache_server_flags, engine_flags
from qwen_cached_serve.inpod.profiles import load_profiles, parse_version
from qwen_cached_serve.inpod.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Environment:
    """What a plan assumes about where the pod will run; None = not known, the advised release or Hopper is taken."""

    vllm_version: str | None = None
    lmcache_version: str | None = None
    capability: Capability | None = None


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
    version = environment.vllm_version or resolved.vllm_version
    entry = None if geometry else lookup(resolved.settings.model)
    plan = make_plan(
        resolved.settings,
        geometry or (entry.geometry if entry else None),
        Environment(version, environment.lmcache_version, environment.capability),
        resolved.budget,
    )
    warnings = (*plan.warnings, *resolved.warnings, *_catalogue_warnings(entry))
    return _with_warnings(plan, warnings)


def make_plan(
    settings: ServeSettings, geometry: Geometry | None, environment: Environment, budget: Budget | None = None
) -> Plan:
    """Plan settings for a known or unknown geometry; never raises for what a plan can say in words."""
    profiles = load_profiles()
    vllm = environment.vllm_version or profiles.advised_vllm
    lmcache = environment.lmcache_version or profiles.advised_lmcache
    predicted, problem = _predict(settings, geometry, environment)
    engine: tuple[Flag, ...] = ()
    server: tuple[Flag, ...] = ()
    if predicted:
        report = ProbeReport(
            block_size=predicted.block_size,
            kernel_block_size=predicted.kernel_block_size or predicted.block_size,
            attention_backends=(predicted.attention_backend,),
            versions=Versions(vllm=vllm, lmcache=lmcache),
            method="Predicted",
            page_padding_bytes=predicted.padding_bytes,
        )
        try:
            engine = tuple(engine_flags(settings, report))
            server = tuple(cache_server_flags(settings, report))
        except Refusal as refusal:
            problem = f"{refusal.message}. {refusal.hint}".strip()
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
            *_block_warnings(settings, predicted, _without_step(settings, geometry, environment)),
            *_pair_warnings(settings, vllm, lmcache),
        ),
    )


def _predict(
    settings: ServeSettings, geometry: Geometry | None, environment: Environment
) -> tuple[PredictedBlockSize | None, str | None]:
    if geometry is None:
        return None, (
            f"N of {settings.model} cannot be predicted: the model is not in the catalogue. "
            "Give its config.json (qcs plan --config), or let the probe find N"
        )
    engine = settings.engine
    try:
        predicted = predict(
            geometry,
            EngineShape(
                accelerator=engine.accelerator,
                capability=environment.capability,
                tensor_parallel_size=engine.tensor_parallel_size,
                kv_cache_dtype=engine.kv_cache_dtype,
                mamba_ssm_cache_dtype=engine.mamba_ssm_cache_dtype,
                mamba_cache_dtype=_argument(engine.extra_args, "--mamba-cache-dtype"),
                speculative_tokens=engine.speculative_tokens or 0,
                attention_backend=engine.attention_backend,
                gdn_prefill_backend=_argument(engine.extra_args, "--gdn-prefill-backend"),
                block_size=engine.block_size,
                vllm_version=environment.vllm_version,
            ),
        )
    except PredictionError as error:
        return None, str(error)
    return predicted, None


def _without_step(settings: ServeSettings, geometry: Geometry | None, environment: Environment) -> int | None:
    """N without the user's `blockSize`, None when there is none."""
    if settings.engine.block_size is None:
        return None
    plain = replace(settings, engine=replace(settings.engine, block_size=None))
    predicted, _ = _predict(plain, geometry, environment)
    return predicted.block_size if predicted else None


def _argument(arguments: tuple[str, ...], flag: str) -> str | None:
    """Value of a flag in a list of arguments, given as `--flag value` or `--flag=value`."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == flag:
            if equals:
                return value
            return arguments[index + 1] if index + 1 < len(arguments) else None
    return None


def _number(flags: tuple[Flag, ...], name: str) -> int | None:
    return next((int(flag.values[0]) for flag in flags if flag.name == name), None)


def _block_warnings(
    settings: ServeSettings, predicted: PredictedBlockSize | None, without_step: int | None
) -> list[str]:
    if predicted is None or not settings.cache.enabled:
        return []
    warnings = []
    n, limit = predicted.block_size, settings.engine.max_model_len
    chunk = n * settings.cache.chunk_blocks
    if limit is not None and limit <= chunk:
        warnings.append(
            f"a cache entry holds {chunk} tokens, but maxModelLen is {limit}: no prompt is ever cached; "
            "raise spec.model.maxModelLen"
        )
    if settings.engine.accelerator == "CPU" and predicted.padding_bytes:
        warnings.append(
            f"without a GPU, LMCache caches only models whose state fills a block exactly; this one is padded by "
            f"{predicted.padding_percent:.2f} %: set spec.cache.mode: Disabled"
        )
    if without_step is not None and n > without_step:
        warnings.append(
            f"engine.vllm.blockSize is an alignment step, not the block size: {settings.engine.block_size} makes "
            f"N = {n} instead of {without_step}"
        )
    if predicted.kernel_block_size is None:
        warnings.append(
            f"no block size that {predicted.attention_backend} takes divides N = {n}; the engine will refuse"
        )
    elif predicted.kernel_block_size != n:
        warnings.append(
            f"{predicted.attention_backend} works in blocks of {predicted.kernel_block_size} tokens inside N = {n}: "
            "entries cannot be shared with engines that use another backend"
        )
    if settings.engine.speculative_method:
        warnings.append(
            "speculative decoding together with LMCache has open reports of wrong output on hybrid models "
            "(LMCache#4984, vllm#53912)"
        )
    return warnings


def _pair_warnings(settings: ServeSettings, vllm: str, lmcache: str) -> list[str]:
    if not settings.cache.enabled:
        return []
    profiles = load_profiles()
    pair = parse_version(vllm), parse_version(lmcache)
    notes = [profile.note for profile in (profiles.for_vllm(vllm), profiles.for_lmcache(lmcache)) if profile.note]
    if pair[0] is None or pair[1] is None:
        return notes
    known = [rule for rule in (*profiles.denied, *profiles.warned) if rule.matches(pair[0], pair[1])]
    return notes + [f"vLLM {vllm} with LMCache {lmcache} {rule.effect} ({', '.join(rule.issues)})" for rule in known]


def _catalogue_warnings(entry: CatalogueEntry | None) -> list[str]:
    if entry is None or entry.confidence == "Confirmed":
        return []
    return [f"the dimensions of {entry.model} are not confirmed: {entry.note}"]


def _with_warnings(plan: Plan, warnings: tuple[str, ...]) -> Plan:
    return replace(plan, warnings=tuple(dict.fromkeys(warnings)))
