"""Which prompts can ever be answered from the cache."""

from __future__ import annotations

from qwen_cached_serve.inpod.facts import ServeSettings


def chunk_tokens(settings: ServeSettings, block_size: int) -> int:
    """Return the tokens of one cache entry."""
    return block_size * settings.cache.chunk_blocks


def never_cached_tokens(settings: ServeSettings, block_size: int) -> int:
    """Return the length in tokens up to which no prompt is ever cached (LMCache/LMCache#4094, by design).

    A draft looks one block further back, so with speculative decoding the last whole block is computed again.
    """
    return chunk_tokens(settings, block_size) + (block_size if settings.engine.speculative_method else 0)
