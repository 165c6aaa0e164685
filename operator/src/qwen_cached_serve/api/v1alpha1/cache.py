"""`spec.cache`: the LMCache server beside the engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import BY_NAME, KEEPS_PODS, ApiModel, Default, LabelName, ObjectName, Size, Toggle
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import EnvVars, ExtraArgs, ResourceRequirements, SecretKeySelector


class L1Spec(ApiModel):
    """The first tier: main memory of the cache server."""

    size: Size | None = None
    """Memory for cached blocks, for example 100Gi. Required while the cache is on. The cache server's memory request
    and limit become this plus 2Gi unless cache.resources says otherwise."""
    eviction_policy: Annotated[Literal["LRU", "ARC", "IsolatedLRU"] | None, Default(defaults.EVICTION_POLICY)] = None
    """Which blocks go first when L1 is full."""


class L2Filesystem(ApiModel):
    """A directory on a volume, with one below it for each compatibility identity. The operator deletes none."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim, in the same namespace."""
    path: Annotated[str | None, Field(max_length=1024)] = None
    """Directory inside the volume; its root when not given."""
    capacity: Size | None = None
    """Most that what one cache server writes during its life may take; the oldest entries go first. Without it they
    stay until somebody deletes them."""


class L2Valkey(ApiModel):
    """A Valkey server."""

    endpoint: Annotated[str, Field(min_length=3, max_length=512)]
    """Host and port of the server, as in valkey.example:6379."""
    password_secret_key_ref: SecretKeySelector | None = None
    """Key of the Secret that holds the password."""
    capacity: Size | None = None
    """Most that entries may take."""


class L2S3(ApiModel):
    """A bucket."""

    endpoint: Annotated[str, Field(min_length=3, max_length=2048)]
    """URL of the bucket, with its scheme."""
    region: Annotated[str | None, Field(max_length=64)] = None
    """Region that the bucket is in."""
    credentials_secret_name: ObjectName | None = None
    """Secret that holds the access key."""
    capacity: Size | None = None
    """Most that entries may take."""


class L2Tier(ApiModel):
    """One tier behind main memory: `type` and the block of that name. Only Filesystem is implemented yet."""

    name: LabelName
    """Name of the tier, for status and messages."""
    type: Literal["Filesystem", "Valkey", "S3"]
    """Kind of store behind this tier."""
    filesystem: L2Filesystem | None = None
    """The directory of type Filesystem."""
    valkey: L2Valkey | None = None
    """The server of type Valkey."""
    s3: L2S3 | None = None
    """The bucket of type S3."""


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
