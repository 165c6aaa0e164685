"""What the cache server's `/status` says about engines: which are registered, and with which block and chunk sizes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

STATUS_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The parts of `/status` that the gate and the operator compare."""

    chunk_size: int
    ids: frozenset[str]
    """Registered engine workers; their numbers do not fit a double, so they are kept as text."""
    tokens_per_block: dict[str, frozenset[int]]
    """Per worker: the block sizes of its groups of KV layers."""


def registered_ids(status: bytes) -> frozenset[str]:
    """Ids of the registered workers.

    Raises:
        ValueError: not the cache server's status.

    """
    return parse_status(status).ids


def parse_status(status: bytes) -> ServerStatus:
    """Read `GET /status` (LMCache 0.5.6).

    Raises:
        ValueError: not the cache server's status.

    """
    try:
        data = json.loads(status)
    except RecursionError as error:  # nested too deeply: whatever answers there, it is no cache server
        raise ValueError("the answer is not the cache server's status") from error
    if not isinstance(data, dict) or not isinstance(data.get("chunk_size"), int):
        raise ValueError("the answer is not the cache server's status")
    ids = data.get("registered_gpu_ids")
    metas = data.get("cache_context_meta")
    return ServerStatus(
        chunk_size=data["chunk_size"],
        ids=frozenset(str(item) for item in ids) if isinstance(ids, list) else frozenset(),
        tokens_per_block={str(key): _blocks(meta) for key, meta in metas.items()} if isinstance(metas, dict) else {},
    )


def _blocks(meta: Any) -> frozenset[int]:
    layout = meta.get("kv_cache_layout") if isinstance(meta, dict) else None
    groups = layout.get("kernel_groups") if isinstance(layout, dict) else None
    if not isinstance(groups, list):
        return frozenset()
    return frozenset(
        group["tokens_per_block"]
        for group in groups
        if isinstance(group, dict) and isinstance(group.get("tokens_per_block"), int)
    )
