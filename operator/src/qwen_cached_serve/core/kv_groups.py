"""How vLLM puts a hybrid model's layers into groups that share one pool of equally large blocks.

Every group has the same number of layers, and one block of the pool holds one page of each of them
(`vllm/v1/core/kv_cache_utils.py`, facts/vllm.md §1.8): the figures of memory follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KvGroups:
    """Groups of layers; both counts are of one tensor-parallel rank, which holds every layer."""

    linear: int
    """Groups of linear-attention layers."""
    attention: int
    """Groups of full-attention layers."""
    layers_per_group: int

    @property
    def count(self) -> int:
        """Groups in all: so many pool blocks hold N tokens of one prefix."""
        return self.linear + self.attention


def kv_groups(linear_layers: int, attention_layers: int) -> KvGroups:
    """Group layers as vLLM does: by the smaller kind, unless the kinds are about equally many."""
    fewer, more = sorted((linear_layers, attention_layers))
    size = more if more * 2 < fewer * 3 else fewer
    return KvGroups(-(-linear_layers // size), -(-attention_layers // size), size)
