"""A plan as text for people or as JSON for programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from qwen_cached_serve.api.quantity import format_bytes, format_bytes_up
from qwen_cached_serve.cli.planning import Planned
from qwen_cached_serve.core.blocksize import PredictedBlockSize
from qwen_cached_serve.core.blocksize_words import explain
from qwen_cached_serve.core.plan import Plan
from qwen_cached_serve.inpod.flags import Flag
from qwen_cached_serve.inpod.redact import redact_arguments


def as_json(planned: Planned) -> dict[str, Any]:
    """A plan as data; names are camelCase, sizes bytes, block sizes tokens."""
    plan, predicted = planned.plan, planned.plan.predicted
    return {
        "name": planned.name,
        "namespace": planned.resolved.namespace,
        "model": plan.settings.model,
        "image": planned.resolved.image,
        "versions": {"vllm": plan.vllm_version, "lmcache": plan.lmcache_version},
        "blockSize": predicted.block_size if predicted else None,
        "kernelBlockSize": predicted.kernel_block_size if predicted else None,
        "chunkSize": plan.chunk_size,
        "maxNumBatchedTokens": plan.tokens_per_step,
        "bytesPerToken": predicted.bytes_per_cached_token if predicted else None,
        "bytesPerBlock": predicted.pool_block_bytes if predicted else None,
        "engineArgs": ["vllm", "serve", *_shown(plan.engine)] if plan.engine else None,
        "cacheServerArgs": ["lmcache", "server", *_shown(plan.cache_server)] if plan.cache_server else None,
        "engineFlags": _flags(plan.engine),
        "cacheServerFlags": _flags(plan.cache_server),
        "memory": _memory(plan),
        "l1Tokens": plan.l1_tokens,
        "problem": plan.problem,
        "warnings": list(plan.warnings),
        "prediction": _prediction(predicted) if predicted else None,
    }


def _prediction(predicted: PredictedBlockSize) -> dict[str, Any]:
    groups = predicted.groups
    return {
        "stateBytes": predicted.state_bytes,
        "convolutionBytes": predicted.conv_bytes,
        "recurrentBytes": predicted.ssm_bytes,
        "tokenBytes": predicted.token_bytes,
        "granularity": predicted.granularity,
        "granularityReason": predicted.granularity_reason,
        "pageBytes": predicted.page_bytes,
        "paddingBytes": predicted.padding_bytes,
        "kvGroups": {"linear": groups.linear, "attention": groups.attention, "layersEach": groups.layers_per_group},
        "attentionBackend": predicted.attention_backend,
        "gdnPrefillBackend": predicted.gdn_prefill_backend,
        "explanation": list(explain(predicted)),
    }


def _flags(flags: tuple[Flag, ...]) -> list[dict[str, Any]]:
    return [
        {"name": flag.name, "values": _values(flag), "reason": flag.reason, "source": flag.source} for flag in flags
    ]


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
    if predicted:
        yield (
            f"  bytes             {predicted.bytes_per_cached_token:,} per cached token, "
            f"{predicted.pool_block_bytes:,} per block of the engine's pool on each rank"
        )
    yield from _memory_lines(plan)
    if plan.problem:
        yield f"  problem           {plan.problem}"
    for warning in plan.warnings:
        yield f"  note              {warning}"
    if predicted:
        yield "why this N"
        yield from (f"  {line}" for line in explain(predicted))
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
