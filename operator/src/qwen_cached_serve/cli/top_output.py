"""What `qcs top` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qwen_cached_serve.cli.options import aligned
from qwen_cached_serve.cli.topping import Row
from qwen_cached_serve.core.traffic import UNKNOWN_RATES, CacheReading, share

_HEADER = (
    "NAMESPACE", "NAME", "POD", "N", "RUN", "WAIT", "PROMPT/S", "GEN/S", "LOCAL", "EXTERNAL", "L1", "L2", "REGISTERED",
)  # fmt: skip
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Return a line for each pod; shares are of the last interval, in brackets since the engine's start."""
    return aligned([_HEADER, *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    now, engine, cache = row.now, row.now.engine, row.now.cache
    rates = row.rates or UNKNOWN_RATES
    start = (now.namespace, now.resource, now.pod)
    if engine is None:
        middle = ("-", "-", "-", "-", "-", now.phase if now.phase != "Running" else "no answer", "-")
    else:
        middle = (
            _number(engine.block_size),
            _number(engine.running),
            _number(engine.waiting),
            _number(rates.prompt_tokens),
            _number(rates.generated_tokens),
            _hits(rates.local_hits, share(engine.counters, "local")),
            _hits(rates.external_hits, share(engine.counters, "external")),
        )
    if cache is None:
        return (*start, *middle, "-", "-", "-")
    return (*start, *middle, _l1(cache), _l2(cache), str(cache.registered))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _hits(now: float | None, ever: float | None) -> str:
    shown = "-" if now is None else f"{now:.0%}"
    return shown if ever is None else f"{shown} ({ever:.0%})"


def _l1(cache: CacheReading) -> str:
    if cache.used_bytes is None or not cache.size_bytes:
        return "-"
    return f"{size(cache.used_bytes)}/{size(cache.size_bytes)}"


def _l2(cache: CacheReading) -> str:
    words = []
    for tier in cache.tiers:
        used = "" if tier.used_bytes is None else f" {size(tier.used_bytes)}"
        words.append(f"{tier.kind}{used}{'' if tier.healthy else ' (away)'}")
    return ", ".join(words) or "-"


def size(count: float) -> str:
    """Return bytes with a unit that keeps the figure short."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f}{unit}" if unit == "B" or count >= 100 else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}{_UNITS[-1]}"
