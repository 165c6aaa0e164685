"""What `qcs diff` prints: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qwen_cached_serve.cli.diffing import Difference


def as_json(found: Difference) -> dict[str, Any]:
    """Return the answer as JSON data."""
    return {
        "name": found.name,
        "restarts": found.restarts,
        "why": list(found.why),
        "otherChanges": list(found.other),
        "revisionUsedAgain": found.reused.number if found.reused else None,
        "blockSize": {"old": found.block_size[0], "new": found.block_size[1], "probed": found.probed},
        "cacheStaysReadable": found.warm,
        "cache": found.warm_words,
        "outage": found.outage,
        "tuning": list(found.tuning),
    }


def as_text(found: Difference) -> Iterator[str]:
    """Return the answer as lines for people."""
    yield f"{found.name}: {'restarts its pods' if found.restarts else 'restarts nothing'}"
    yield from (f"  {'because' if found.restarts else 'since  '}   {line}" for line in found.why)
    yield from (f"  also      {line}" for line in found.other)
    if found.reused:
        yield f"  revision  {found.reused.number} ({found.reused.name}) is used again, as it was"
    old, new = (size or "unknown" for size in found.block_size)
    seen = f"; probed now: {found.probed}" if found.probed else ""
    yield f"  N         {old} → {new} (predicted{seen})" if old != new else f"  N         {old} (predicted{seen})"
    yield f"  cache     {found.warm_words}"
    yield f"  outage    {found.outage}"
    yield from (f"  tuning    {line}" for line in found.tuning)
