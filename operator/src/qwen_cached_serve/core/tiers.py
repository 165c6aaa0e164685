"""Tiers behind the cache server's memory: from the resource to what the pod is told and what is mounted."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.v1alpha1.cache import L2Tier as TierSpec
from qwen_cached_serve.inpod.facts import L2_DIR, L2Tier


def tiers(specs: Sequence[TierSpec]) -> tuple[L2Tier, ...]:
    """The tiers as the pod knows them; types that `api.rules` refuses are left out."""
    return tuple(
        L2Tier(
            name=spec.name,
            type=spec.type,
            path=posixpath.normpath(posixpath.join(L2_DIR, spec.name, spec.filesystem.path or "")),
            capacity_bytes=0 if spec.filesystem.capacity is None else quantity.to_bytes(spec.filesystem.capacity),
        )
        for spec in specs
        if spec.filesystem
    )


def claims(specs: Sequence[TierSpec]) -> dict[str, str]:
    """Claim of every file-system tier by the tier's name; each is mounted below `L2_DIR` under that name."""
    return {spec.name: spec.filesystem.claim_name for spec in specs if spec.filesystem}
