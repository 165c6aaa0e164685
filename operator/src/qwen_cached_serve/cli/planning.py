"""`qcs plan`: from a file, a `config.json` or a model id to a plan, and a plan as text or JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen_cached_serve.api.quantity import format_bytes, format_bytes_up
from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND
from qwen_cached_serve.api.validate import InvalidResource, parse
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.core.accelerators import UnknownGpuError, capability_of
from qwen_cached_serve.core.budget import BudgetError
from qwen_cached_serve.core.catalogue import known_models, lookup
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.geometry import Geometry, GeometryError, geometry_from_config
from qwen_cached_serve.core.plan import Environment, Plan, plan_resource
from qwen_cached_serve.core.resolve import Resolved, ResolveError, resolve
from qwen_cached_serve.inpod.flags import Flag
from qwen_cached_serve.inpod.redact import redact_arguments


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says besides a file; absent = not said."""

    config: str | None = None
    model: str | None = None
    tensor_parallel_size: int | None = None
    kv_cache_dtype: str | None = None
    ssm_dtype: str | None = None
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    block_size: int | None = None
    attention_backend: str | None = None
    accelerator: str | None = None
    gpu: str | None = None
    l1_size: str | None = None
    max_model_len: int | None = None
    vllm: str | None = None
    lmcache: str | None = None


SHAPING = {
    "tensor_parallel_size": "--tp",
    "kv_cache_dtype": "--kv-cache-dtype",
    "ssm_dtype": "--ssm-dtype",
    "speculative_tokens": "--speculative-tokens",
    "block_size": "--block-size",
    "attention_backend": "--attention-backend",
    "accelerator": "--accelerator",
    "l1_size": "--l1-size",
    "max_model_len": "--max-model-len",
    "model": "--model",
}
"""Options that make a resource; with a file its spec says these."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and the resource it is for."""

    name: str
    resolved: Resolved
    plan: Plan


def plan_documents(documents: list[Any], options: Options, defaults: OperatorDefaults) -> list[Planned]:
    """Plan parsed resources.

    Raises:
        CliError: a resource that would be refused, or options that contradict the file.

    """
    given = [flag for field, flag in SHAPING.items() if getattr(options, field) is not None]
    if given:
        raise CliError(f"{', '.join(given)}: with a file, change its spec instead")
    geometry = _geometry(options.config) if options.config else None
    return [_plan(document, options, defaults, geometry) for document in documents]


def plan_options(options: Options, defaults: OperatorDefaults) -> Planned:
    """Plan what the options describe.

    Raises:
        CliError: nothing to plan, or values that the resource would be refused for.

    """
    if not options.config and not options.model:
        raise CliError("nothing to plan: give a FILE, --model ID or --config config.json")
    if options.model and not options.config and lookup(options.model) is None:
        known = ", ".join(known_models())
        raise CliError(f"--model {options.model}: not in the catalogue ({known}); give its --config config.json")
    geometry = _geometry(options.config) if options.config else None
    return _plan(_document(options), options, defaults, geometry)


def _document(options: Options) -> dict[str, Any]:
    name = options.model or Path(options.config or "").resolve().parent.name
    vllm: dict[str, Any] = {
        "kvCacheDtype": options.kv_cache_dtype,
        "mambaSsmCacheDtype": options.ssm_dtype,
        "blockSize": options.block_size,
        "attentionBackend": options.attention_backend,
    }
    if options.speculative_tokens:
        vllm["speculative"] = {"method": options.speculative_method or "mtp", "tokens": options.speculative_tokens}
    accelerator: dict[str, Any] = {"type": options.accelerator.upper() if options.accelerator else None}
    if options.tensor_parallel_size is not None:
        vllm["tensorParallelSize"] = options.tensor_parallel_size
        if accelerator["type"] != "CPU":
            accelerator["gpu"] = {"count": options.tensor_parallel_size}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "plan", "namespace": "default"},
        "spec": {
            "model": {"name": name, "maxModelLen": options.max_model_len},
            "engine": {"accelerator": accelerator, "vllm": vllm},
            "cache": {"l1": {"size": options.l1_size or "100Gi"}},
        },
    }


def _geometry(config: str) -> Geometry:
    path = Path(config)
    if path.is_dir():
        path /= "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"--config {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CliError(f"--config {path}: not JSON: {error}") from error
    try:
        return geometry_from_config(data if isinstance(data, dict) else {})
    except GeometryError as error:
        raise CliError(f"--config {path}: {error}") from error


def _plan(document: Any, options: Options, defaults: OperatorDefaults, geometry: Geometry | None) -> Planned:
    try:
        capability = capability_of(options.gpu) if options.gpu else None
        resolved = resolve(parse(document), defaults)
    except InvalidResource as error:
        raise CliError("\n".join(str(problem) for problem in error.problems)) from error
    except (ResolveError, BudgetError, UnknownGpuError) as error:
        raise CliError(str(error)) from error
    environment = Environment(options.vllm, options.lmcache, capability)
    return Planned(resolved.name, resolved, plan_resource(resolved, environment, geometry))


def as_json(planned: Planned) -> dict[str, Any]:
    """A plan as data; names are camelCase, sizes bytes, block sizes tokens."""
    plan, predicted = planned.plan, planned.plan.predicted
    data: dict[str, Any] = {
        "name": planned.name,
        "namespace": planned.resolved.namespace,
        "model": plan.settings.model,
        "image": planned.resolved.image,
        "versions": {"vllm": plan.vllm_version, "lmcache": plan.lmcache_version},
        "blockSize": predicted.block_size if predicted else None,
        "chunkSize": plan.chunk_size,
        "maxNumBatchedTokens": plan.tokens_per_step,
        "engine": _command("vllm serve", plan.engine),
        "cacheServer": _command("lmcache server", plan.cache_server) if plan.cache_server else None,
        "memory": _memory(plan),
        "l1Tokens": plan.l1_tokens,
        "problem": plan.problem,
        "warnings": list(plan.warnings),
    }
    if predicted:
        data["prediction"] = {
            "kernelBlock": predicted.kernel_block_size,
            "granularity": predicted.granularity,
            "stateBytes": predicted.state_bytes,
            "tokenBytes": predicted.token_bytes,
            "pageBytes": predicted.page_bytes,
            "paddingBytes": predicted.padding_bytes,
            "attentionBackend": predicted.attention_backend,
            "explanation": list(predicted.explanation),
        }
    return data


def _command(program: str, flags: tuple[Flag, ...]) -> dict[str, Any] | None:
    if not flags:
        return None
    return {
        "argv": [*program.split(), *_shown(flags)],
        "flags": [
            {"name": flag.name, "values": _values(flag), "reason": flag.reason, "source": flag.source} for flag in flags
        ],
    }


def _values(flag: Flag) -> list[str]:
    return redact_arguments([flag.name, *flag.values])[1:] if flag.name else redact_arguments(flag.values)


def _shown(flags: tuple[Flag, ...]) -> list[str]:
    return redact_arguments([argument for flag in flags for argument in flag.argv()])


def _memory(plan: Plan) -> dict[str, Any] | None:
    budget = plan.budget
    if budget is None:
        return None
    return {
        "engine": {"requests": dict(budget.engine.requests), "limits": dict(budget.engine.limits)},
        "cacheServer": {"requests": dict(budget.cache_server.requests), "limits": dict(budget.cache_server.limits)}
        if budget.cache_server
        else None,
        "sharedMemoryBytes": budget.shm_bytes,
        "podBytes": budget.pod_memory_bytes,
    }


def as_text(planned: Planned) -> Iterator[str]:
    """A plan as lines for people."""
    plan, predicted = planned.plan, planned.plan.predicted
    yield f"{planned.name}: {plan.settings.model}, vLLM {plan.vllm_version}, LMCache {plan.lmcache_version}"
    if predicted:
        kernel = f"kernel block {predicted.kernel_block_size}, {predicted.attention_backend}"
        yield f"  block size N      {predicted.block_size} tokens (predicted; {kernel}; the probe decides)"
    if plan.chunk_size:
        yield f"  chunk size        {plan.chunk_size} tokens"
    if plan.tokens_per_step:
        yield f"  tokens per step   {plan.tokens_per_step}"
    yield from _memory_lines(plan)
    if plan.problem:
        yield f"  problem           {plan.problem}"
    for warning in plan.warnings:
        yield f"  note              {warning}"
    if predicted:
        yield "why this N"
        yield from (f"  {line}" for line in predicted.explanation)
    for program, flags in (("vllm serve", plan.engine), ("lmcache server", plan.cache_server)):
        if flags:
            yield program
            yield from _flag_lines(flags)
    if plan.engine:
        yield "command lines"
        yield "  " + shlex.join(["vllm", "serve", *_shown(plan.engine)])
    if plan.cache_server:
        yield "  " + shlex.join(["lmcache", "server", *_shown(plan.cache_server)])


def _memory_lines(plan: Plan) -> Iterator[str]:
    budget = plan.budget
    if budget is None:
        return
    parts = [f"engine {budget.engine.requests['memory']} (limit {budget.engine.limits['memory']})"]
    if budget.cache_server:
        parts.append(f"cache server {budget.cache_server.requests['memory']}")
    parts.append(f"shared memory {format_bytes(budget.shm_bytes)} of the engine's")
    yield f"  memory            {', '.join(parts)}; pod {format_bytes_up(budget.pod_memory_bytes)}"
    if plan.l1_tokens:
        size = format_bytes(plan.settings.cache.l1_size_bytes)
        yield f"  L1                {size}, about {plan.l1_tokens:,} tokens of prompts"


def _flag_lines(flags: tuple[Flag, ...]) -> Iterator[str]:
    rows = [(" ".join([flag.name, *_values(flag)]).strip(), flag.reason) for flag in flags]
    width = max(len(text) for text, _ in rows if len(text) <= 44)
    for text, reason in rows:
        if len(text) <= width:
            yield f"  {text:<{width}}  {reason}"
        else:
            yield f"  {text}"
            yield f"  {'':<{width}}  {reason}"
