"""`status`: what the operator found out and did. Nothing here changes with traffic, so idle means no writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import BY_NAME, Default, ListType, StatusModel

Text = Annotated[str, Field(max_length=1024)]
Name = Annotated[str, Field(max_length=253)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
UNSEEN_GENERATION = -1
"""`status.observedGeneration` of a resource that no operator has looked at."""
Arguments = Annotated[tuple[Annotated[str, Field(max_length=8192)], ...] | None, Field(max_length=400)]


class Condition(StatusModel):
    """One statement about the resource, in the shape of metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the statement is about, for example Ready or BlockSizeVerified."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, as one word for machines."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, as a sentence for people that says what to do."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """Generation of the spec that the statement is about."""


class ResolvedStatus(StatusModel):
    """What open choices of the spec became."""

    image: Annotated[str | None, Field(max_length=512)] = None
    """Image that the pods run."""
    vllm: Name | None = None
    """Version of vLLM in that image, as the probe found it."""
    lmcache: Name | None = None
    """Version of LMCache in that image, as the probe found it."""
    model_revision: Name | None = None
    """Commit that the model's revision was resolved to."""
    tensor_parallel_size: int | None = None
    """GPUs that one copy of the model is split over."""
    cache_memory: Name | None = None
    """Memory request of the cache server."""


class BlockSizeStatus(StatusModel):
    """The unified block size N, in tokens, from three sources; only `probed` decides about flags."""

    predicted: int | None = None
    """By formula, before any pod exists."""
    probed: int | None = None
    """By the probe in the serving pods."""
    probed_with: Name | None = None
    """Digest of the settings that `probed` holds for."""
    verified: int | None = None
    """By the running engine and its cache server."""


class IdentityStatus(StatusModel):
    """One group of pods that can read each other's cache entries."""

    identity: Name
    """Hash over everything that two engines must agree on."""
    summary: Text | None = None
    """Short form for people: backend, kernel block size, N, parallel size, data type."""
    block_size: int | None = None
    """N of these pods."""
    gpu: Name | None = None
    """GPU model of these pods."""
    namespace: Name | None = None
    """Where their entries are kept in shared stores."""
    pods: int | None = None
    """Number of these pods."""


class DetachedStatus(StatusModel):
    """That an engine serves without its cache."""

    reason: Name
    """NotRegistered or CacheServerDown."""
    since: Time
    """When the operator first saw it."""


class PodStatus(StatusModel):
    """One pod, as far as it is known."""

    name: Name
    """Name of the pod."""
    node: Name | None = None
    """Node it runs on."""
    revision: Name | None = None
    """Revision it was made from."""
    phase: Name | None = None
    """Where its start has got to, for example Probing, Starting or Serving."""
    reason: Text | None = None
    """Why it does not serve."""
    block_size: int | None = None
    """N as its probe found it."""
    identity: Name | None = None
    """Its compatibility identity."""
    gpu: Name | None = None
    """Its GPU model."""
    restarts: int | None = None
    """Restarts of its containers."""
    detached: DetachedStatus | None = None
    """That its engine serves without its cache."""


class EvictionStatus(StatusModel):
    """One pod that the operator has replaced, or is about to."""

    uid: Name
    """The pod's uid."""
    pod: Name
    """The pod's name."""
    reason: Name
    """Why: CompatibilityChanged, NotRegistered, CacheServerDown or BlockSizeMismatch."""
    template: Name | None = None
    """Hash of the pod template that it was made from."""
    identity: Name | None = None
    """Compatibility identity that it had."""
    target: Name | None = None
    """Compatibility identity of the newer pods."""
    time: Time
    """When it was decided."""
    held_back: Text | None = None
    """Why the API server does not let it go yet, for example a PodDisruptionBudget."""


class PlanStatus(StatusModel):
    """The argument vectors that the pods run with; shown while all of them agree, values that may be secret masked."""

    chunk_size: int | None = None
    """Tokens per cache entry."""
    max_num_batched_tokens: int | None = None
    """Tokens per scheduler step."""
    engine_args: Arguments = None
    """Arguments of the engine."""
    cache_server_args: Arguments = None
    """Arguments of the cache server."""


class TuningStatus(StatusModel):
    """One remedy that the operator applied by itself."""

    name: Name
    """Field of spec.engine.vllm that it stands in for."""
    value: Text
    """Value that was set."""
    reason: Text | None = None
    """What was adjusted, and the failure it answers."""


class RevisionStatus(StatusModel):
    """Which revision the pods are at."""

    current: Name | None = None
    """Revision that is fully rolled out."""
    updated: Name | None = None
    """Revision that the spec asks for."""
    identity: Name | None = None
    """Compatibility identity that all its pods had last."""
    history: Annotated[tuple[Name, ...] | None, Field(max_length=10)] = None
    """Revisions before, newest first."""


class RollStatus(StatusModel):
    """How far a roll has come."""

    from_: Annotated[Name | None, Field(alias="from")] = None
    """Revision that was rolled out before; absent when none ever was."""
    to: Name | None = None
    """Revision that the pods are being brought to."""
    updated: int | None = None
    """Pods of that revision that exist; UPDATED of kubectl get."""
    total: int | None = None
    """Pods that there should be."""
    reason: Name | None = None
    """What the roll waits for, for example Terminating, Starting, WaitingForGPU or the class of a failure."""


class Status(StatusModel):
    """What the operator found out and did."""

    # kstatus takes an object without conditions for current, so Flux would be content before the operator has looked. A
    # generation that never was says "not yet", as it does in Flux's own definitions.
    observed_generation: Annotated[int | None, Field(ge=UNSEEN_GENERATION), Default(UNSEEN_GENERATION, stored=True)] = (
        None
    )
    """Generation of the spec that this status is about; -1 until the operator has looked at the resource."""
    conditions: Annotated[tuple[Condition, ...] | None, Field(max_length=32), ListType("map", ("type",))] = None
    """Ready, Available, Reconciling, Stalled and the conditions of the domain."""
    resolved: ResolvedStatus | None = None
    """What open choices of the spec became."""
    block_size: BlockSizeStatus | None = None
    """The unified block size N, in tokens."""
    identities: Annotated[tuple[IdentityStatus, ...] | None, Field(max_length=16), ListType("map", ("identity",))] = (
        None
    )
    """Groups of pods that can read each other's cache entries."""
    pods: Annotated[tuple[PodStatus, ...] | None, Field(max_length=20), BY_NAME] = None
    """The first twenty pods."""
    evictions: Annotated[tuple[EvictionStatus, ...] | None, Field(max_length=8), ListType("map", ("uid",))] = None
    """The pods that the operator replaced by itself last, the oldest first."""
    plan: PlanStatus | None = None
    """The argument vectors that the pods run with."""
    tuning: Annotated[tuple[TuningStatus, ...] | None, Field(max_length=16), BY_NAME] = None
    """Remedies that the operator applied by itself."""
    revision: RevisionStatus | None = None
    """Which revision the pods are at."""
    roll: RollStatus | None = None
    """How far the roll has come that goes on; absent while there is none."""
    replicas: int | None = None
    """Pods that exist."""
    ready_replicas: int | None = None
    """Pods that are ready."""
    available_replicas: int | None = None
    """Pods that have been ready for long enough."""
    updated_replicas: int | None = None
    """Pods of the revision that the spec asks for."""
    selector: Annotated[str | None, Field(max_length=1024)] = None
    """Label selector of the pods, for autoscalers."""
    url: Annotated[str | None, Field(max_length=2048)] = None
    """Address of the OpenAI-compatible API inside the cluster."""
