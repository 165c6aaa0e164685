"""What a running engine says of its KV cache: the labels of `vllm:cache_config_info` on its `/metrics`."""

from __future__ import annotations

import re

METRICS_LIMIT_BYTES = 8 << 20
"""The most that is read of an answer; an engine's is far below 1 MiB."""
_CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
# A name begins where no word goes on: otherwise a long word that is no label is tried from each of its characters.
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')

_NUMBER = re.compile(r"[0-9]{1,9}")


def cache_config(metrics: str) -> dict[str, str] | None:
    """Every label of the first `vllm:cache_config_info`; None when the engine does not export it (yet)."""
    match = _CACHE_CONFIG.search(metrics)
    return dict(_LABEL.findall(match[1])) if match else None


def engine_block_size(metrics: str) -> int | None:
    """N of a running engine from its `/metrics`; None when it is not told.

    `mamba_block_size` is not N: with a user's `--block-size` it keeps that value (facts/vllm.md §2.3).
    """
    labels = cache_config(metrics) or {}
    for name in ("effective_attention_block_size", "block_size"):
        if _NUMBER.fullmatch(labels.get(name, "")):
            return int(labels[name])
    return None
