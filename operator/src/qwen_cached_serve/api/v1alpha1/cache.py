"""`spec.cache`: the LMCache server beside the engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import BY_NAME, KEEPS_PODS, ApiModel, Default, Size, Toggle
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import EnvVars, ExtraArgs, ResourceRequirements
from qwen_cached_serve.api.v1alpha1.tiers import L2Tier


class L1Spec(ApiModel):
    """The first tier: main memory of the cache server."""

    size: Size | None = None
    """Memory for cached blocks, for example 100Gi. Required while the cache is on. The cache server's memory request
    and limit become this plus 2Gi unless cache.resources says otherwise."""
    eviction_policy: Annotated[Literal["LRU", "ARC", "IsolatedLRU"] | None, Default(defaults.EVICTION_POLICY)] = None
    """Which blocks go first when L1 is full."""


class CacheSpec(ApiModel):
    """The cache server."""

    mode: Annotated[Toggle | None, Default(defaults.CACHE_MODE)] = None
    """Disabled serves with plain vLLM and no cache server: the first thing to try when the cache is suspected."""
    on_unavailable: Annotated[
        Literal["ServeWithoutCache", "RecyclePod"] | None, Default(defaults.ON_UNAVAILABLE), KEEPS_PODS
    ] = None
    """What happens when an engine serves without its cache for longer than it heals by itself (ten minutes, and a
    second for each GiB of L1). ServeWithoutCache leaves it so. RecyclePod replaces the pod by eviction, one at a time;
    with one replica nobody answers meanwhile, with more the last one that answers is never taken."""
    l1: L1Spec | None = None
    """The first tier: main memory. Required while the cache is on."""
    chunk_blocks: Annotated[int | None, Field(ge=1, le=64), Default(defaults.CHUNK_BLOCKS)] = None
    """Blocks per cache entry: the chunk size is chunkBlocks x N tokens. More means fewer and larger entries, and
    prompts match in coarser steps."""
    l2: Annotated[tuple[L2Tier, ...] | None, Field(max_length=8), BY_NAME] = None
    """Further tiers behind main memory, which outlive pods. Pods share what they hold exactly when their compatibility
    identities are equal."""
    resources: ResourceRequirements | None = None
    """CPU and memory of the cache server. A memory limit below L1 plus 2Gi is refused."""
    env: Annotated[EnvVars, BY_NAME] = None
    """Further environment variables of the cache server."""
    extra_args: ExtraArgs = None
    """Further arguments of the cache server, one list item each. A flag that the operator derives is refused in every
    spelling."""
