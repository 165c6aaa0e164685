"""What a serving pod is doing now: from two readings of its engine's metrics and one of its cache server's status.

Names were read in recorded answers of vLLM 0.32.0 (`/metrics`) and LMCache 0.5.6 (`/status`). Counters are sums over
all label sets; a figure that a release does not export is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.inpod.engine_metrics import engine_block_size
from qwen_cached_serve.inpod.registrations import registered_ids

_COUNTERS = {
    "local_queries": "vllm:prefix_cache_queries_total",
    "local_hits": "vllm:prefix_cache_hits_total",
    "external_queries": "vllm:external_prefix_cache_queries_total",
    "external_hits": "vllm:external_prefix_cache_hits_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
}
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^\n]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One reading of an engine's metrics."""

    seconds: float
    """Time of a clock that only goes forward."""
    block_size: int | None
    running: int | None
    waiting: int | None
    counters: Mapping[str, float]
    """Tokens since the engine started, by the names of `_COUNTERS`."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One store behind main memory, as the cache server sees it."""

    kind: str
    healthy: bool
    used_bytes: int | None
    """What this server has written and not deleted; None where the adapter does not count."""


@dataclass(frozen=True, slots=True)
class CacheReading:
    """One reading of a cache server's status."""

    used_bytes: int | None
    size_bytes: int | None
    registered: int
    """Engine workers that the server knows: one for each tensor-parallel rank."""
    tiers: tuple[Tier, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened between two readings; None where nothing was asked, or where the engine started anew."""

    local_hits: float | None
    """Share of the prompts' tokens that the engine's own prefix cache had, 0 to 1."""
    external_hits: float | None
    """Share of the tokens asked of the cache server that it had, 0 to 1."""
    prompt_tokens: float | None
    """Tokens a second."""
    generated_tokens: float | None


UNKNOWN_RATES = Rates(None, None, None, None)


def read_engine(metrics: str, seconds: float) -> EngineReading:
    """Read the text of an engine's `/metrics`."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(metrics):
        if name.startswith("vllm:"):
            sums[name] = sums.get(name, 0.0) + _number(value)
    counters = {short: sums[name] for short, name in _COUNTERS.items() if name in sums}
    running, waiting = (sums.get(f"vllm:num_requests_{state}") for state in ("running", "waiting"))
    return EngineReading(
        seconds=seconds,
        block_size=engine_block_size(metrics),
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
        counters=counters,
    )


def read_cache(status: str) -> CacheReading | None:
    """Read a cache server's `/status`; None when it is something else."""
    try:
        registered = registered_ids(status.encode())
    except ValueError:
        return None
    manager = json.loads(status).get("storage_manager") or {}
    used, size = (*(manager.get("l1_usage") or ()), None, None)[:2]
    return CacheReading(
        used_bytes=used,
        size_bytes=size,
        registered=len(registered),
        tiers=tuple(_tier(adapter) for adapter in manager.get("l2_adapters") or ()),
    )


def between(before: EngineReading, after: EngineReading) -> Rates:
    """Compare two readings of one engine."""
    moved = {name: value - before.counters.get(name, 0.0) for name, value in after.counters.items()}
    if any(value < 0 for value in moved.values()):
        return UNKNOWN_RATES
    elapsed = after.seconds - before.seconds

    def rate(name: str) -> float | None:
        return moved[name] / elapsed if name in moved and elapsed > 0 else None

    return Rates(
        local_hits=share(moved, "local"),
        external_hits=share(moved, "external"),
        prompt_tokens=rate("prompt_tokens"),
        generated_tokens=rate("generated_tokens"),
    )


def share(tokens: Mapping[str, float], which: str) -> float | None:
    """Hits by queries of `local` or `external`, 0 to 1; None where nothing was asked."""
    queries = tokens.get(f"{which}_queries") or 0.0
    return tokens.get(f"{which}_hits", 0.0) / queries if queries > 0 else None


def _tier(adapter: Mapping[str, Any]) -> Tier:
    used = adapter.get("current_size_bytes")
    return Tier(
        kind=str(adapter.get("type", "?")).removesuffix("L2Adapter"),
        healthy=bool(adapter.get("is_healthy", False)),
        used_bytes=used if isinstance(used, int) else None,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
