"""The resource itself: `QwenCachedServe` and its spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from qwen_cached_serve.api.base import KEEPS_PODS, ApiModel, Default
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.cache import CacheSpec
from qwen_cached_serve.api.v1alpha1.engine import EngineSpec
from qwen_cached_serve.api.v1alpha1.model import ModelSpec
from qwen_cached_serve.api.v1alpha1.operations import (
    LIFECYCLE,
    BlockSizeProbeSpec,
    DisruptionBudgetSpec,
    MonitoringSpec,
    NetworkPolicySpec,
    RolloutSpec,
    ServiceSpec,
    UnsupportedSpec,
)
from qwen_cached_serve.api.v1alpha1.pod import PodSpec
from qwen_cached_serve.api.v1alpha1.status import Status

GROUP = "qwencache.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "QwenCachedServe"
PLURAL = "qwencachedserves"


class Spec(ApiModel):
    """What is to be served, and how. Required: model.name, and cache.l1.size while the cache is on."""

    lifecycle: Annotated[Literal["Running", "Paused", "Stopped"] | None, Default(defaults.LIFECYCLE), LIFECYCLE] = None
    """Running serves. Paused: the operator changes nothing, what runs keeps running. Stopped: no pods, everything else
    is kept."""
    replicas: Annotated[int, Field(ge=0, le=10000), Default(defaults.REPLICAS, stored=True), KEEPS_PODS] = (
        defaults.REPLICAS
    )
    """Pods that serve, each with its own GPUs and its own cache server. Leave it out when an autoscaler sets it."""
    model: ModelSpec
    """Which checkpoint is served."""
    engine: EngineSpec | None = None
    """The serving engine; absent means vLLM on one GPU."""
    cache: CacheSpec | None = None
    """The LMCache server beside the engine; required unless its mode is Disabled."""
    pod: PodSpec | None = None
    """Placement, security, volumes and metadata of the pods."""
    service: Annotated[ServiceSpec | None, KEEPS_PODS] = None
    """The Service in front of the pods."""
    monitoring: Annotated[MonitoringSpec | None, KEEPS_PODS] = None
    """Objects for Prometheus that the operator makes."""
    network_policy: Annotated[NetworkPolicySpec | None, KEEPS_PODS] = None
    """Who may reach the pods."""
    disruption_budget: Annotated[DisruptionBudgetSpec | None, KEEPS_PODS] = None
    """A PodDisruptionBudget for the pods; absent means none. Leave it out where another budget selects the pods:
    Kubernetes refuses every eviction of a pod that has two."""
    rollout: Annotated[RolloutSpec | None, KEEPS_PODS] = None
    """How a change reaches the pods."""
    block_size_probe: BlockSizeProbeSpec | None = None
    """The init container that finds the block size N before the engine starts."""
    unsupported: UnsupportedSpec | None = None
    """Arguments appended verbatim and unchecked, for the day an engine release breaks a derived flag."""


class ObjectMeta(ApiModel):
    """The part of a resource's metadata that the operator reads; everything else is skipped."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class QwenCachedServe(ApiModel):
    """Serves one Qwen model on vLLM with an LMCache server beside it, every flag derived from the probed block size."""

    api_version: Literal["qwencache.dev/v1alpha1"]
    kind: Literal["QwenCachedServe"]
    metadata: ObjectMeta
    spec: Spec
    status: Status | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the resource as JSON data, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
