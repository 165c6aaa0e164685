"""The PodDisruptionBudget: how many pods drains may have away at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.resolve import Resolved


@dataclass(frozen=True, slots=True)
class DisruptionBudgetChild:
    """What drains have to leave."""

    meta: Meta
    selector: Mapping[str, str]
    max_unavailable: int | str


def disruption_budget(resolved: Resolved) -> DisruptionBudgetChild | None:
    """Compute the PodDisruptionBudget; None when the resource asks for none."""
    at_once = resolved.beside.drained_at_once
    if at_once is None:
        return None
    return DisruptionBudgetChild(meta_of(resolved), names.selector_labels(resolved.name), at_once)
