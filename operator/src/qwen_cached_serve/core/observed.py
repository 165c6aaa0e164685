"""What the cluster shows of one resource: the parts of Deployment, ReplicaSets and pods that a status is judged from.

The shell hands in objects as the API serves them (or trimmed copies); nothing here asks for more. Absent parts mean
"not said yet", as always in a status. Times stay the API's own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qwen_cached_serve.core.names import REVISION_ANNOTATION

PROBE = "probe"
CACHE_SERVER = "cache-server"
ENGINE = "engine"

_REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
_TEMPLATE_HASH_LABEL = "pod-template-hash"

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Termination:
    """How one life of a container ended."""

    exit_code: int
    reason: str
    message: str
    """Termination message, or the log's last lines with `FallbackToLogsOnError`."""
    finished_at: str = ""
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class ContainerObservation:
    """One container's status."""

    name: str
    state: str
    """`waiting`, `running` or `terminated`; `waiting` also when the kubelet has not said anything."""
    ready: bool = False
    started: bool = False
    """Running and past its startup probe."""
    restarts: int = 0
    waiting_reason: str = ""
    waiting_message: str = ""
    terminated: Termination | None = None
    last_terminated: Termination | None = None

    @property
    def latest_end(self) -> Termination | None:
        """The end that matters now: of this life when it is over, otherwise of the one before."""
        return self.terminated or self.last_terminated


@dataclass(frozen=True, slots=True)
class Verification:
    """What the running programs of one pod say themselves (read over the network; absent where that was not
    possible).
    """

    engine_block_size: int | None = None
    """`vllm:cache_config_info`."""
    server_chunk_size: int | None = None
    server_block_sizes: tuple[int, ...] = ()
    """`tokens_per_block` of the registered cache groups."""
    registered: bool | None = None
    """Whether the engine is registered with the cache server."""


@dataclass(frozen=True, slots=True)
class PodObservation:
    """One pod."""

    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    template_hash: str = ""
    revision: str = ""
    """Name of the revision that its ReplicaSet was made from; empty when that does not say."""
    created: str = ""
    deleting: bool = False
    ready: bool = False
    scheduled: bool = False
    unschedulable: str = ""
    """The scheduler's words while it finds no node."""
    gated: bool = False
    """Held back by a scheduling gate (a queueing system)."""
    gates: tuple[str, ...] = ()
    """Names of those gates, as far as the pod lists them."""
    nominated: str = ""
    """Node that is expected to take the pod and cannot yet (`status.nominatedNodeName`)."""
    status_reason: str = ""
    """`Evicted`, `NodeLost` and the like."""
    status_message: str = ""
    containers: Mapping[str, ContainerObservation] | None = None
    verification: Verification | None = None
    log_tails: Mapping[str, str] | None = None
    """By container: what decides in the log of its life that ended last, where the shell could read it."""

    def log_tail(self, name: str) -> str:
        """Return what is known of one container's log, empty when nothing is."""
        return (self.log_tails or {}).get(name, "")

    def container(self, name: str) -> ContainerObservation:
        """Return one container's status, an empty one when the kubelet has not said anything."""
        return (self.containers or {}).get(name) or ContainerObservation(name, "waiting")


@dataclass(frozen=True, slots=True)
class DeploymentObservation:
    """The Deployment's own word on its roll."""

    generation: int
    observed_generation: int
    wanted: int
    replicas: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    template_hash: str = ""
    """Of the ReplicaSet that the current template made; empty until it exists."""
    creation_failure: str = ""
    """Why pods of that ReplicaSet cannot be made, in the API server's words."""
    deadline_exceeded: bool = False

    @property
    def current(self) -> bool:
        """Whether the figures are about the template that was last applied."""
        return self.observed_generation >= self.generation


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything seen of one resource."""

    deployment: DeploymentObservation | None = None
    pods: tuple[PodObservation, ...] = ()


def observe(
    deployment: Manifest | None,
    replica_sets: Iterable[Manifest] = (),
    pods: Iterable[Manifest] = (),
    *,
    verifications: Mapping[str, Verification] | None = None,
    log_tails: Mapping[str, Mapping[str, str]] | None = None,
) -> Observation:
    """Read the API objects of one resource; what was read of its pods themselves comes by pod name."""
    seen, logs = verifications or {}, log_tails or {}
    replica_sets = list(replica_sets)
    revisions = {
        _labels(one).get(_TEMPLATE_HASH_LABEL, ""): _part(_part(one, "metadata"), "annotations").get(
            REVISION_ANNOTATION, ""
        )
        for one in replica_sets
    }
    named = [(str(_part(pod, "metadata").get("name", "")), pod) for pod in pods]
    return Observation(
        deployment=read_deployment(deployment, replica_sets) if deployment else None,
        pods=tuple(
            replace(found, revision=revisions.get(found.template_hash, ""))
            for found in (read_pod(pod, seen.get(name), logs.get(name)) for name, pod in named)
        ),
    )


def read_deployment(deployment: Manifest, replica_sets: Iterable[Manifest] = ()) -> DeploymentObservation:
    """Read a Deployment; its ReplicaSets tell the hash of the current template and why pods cannot be made."""
    status = _part(deployment, "status")
    metadata = _part(deployment, "metadata")
    conditions = _conditions(status)
    revision = _part(metadata, "annotations").get(_REVISION_ANNOTATION)
    newest = next(
        (
            candidate
            for candidate in replica_sets
            if revision and _part(_part(candidate, "metadata"), "annotations").get(_REVISION_ANNOTATION) == revision
        ),
        None,
    )
    failure = conditions.get("ReplicaFailure", {})
    if newest is not None:
        failure = _conditions(_part(newest, "status")).get("ReplicaFailure", failure)
    progressing = conditions.get("Progressing", {})
    return DeploymentObservation(
        generation=int(metadata.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        wanted=int(_part(deployment, "spec").get("replicas", 1)),
        replicas=int(status.get("replicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        available=int(status.get("availableReplicas") or 0),
        template_hash=_labels(newest).get(_TEMPLATE_HASH_LABEL, "") if newest is not None else "",
        creation_failure=str(failure.get("message", "")) if failure.get("status") == "True" else "",
        deadline_exceeded=progressing.get("reason") == "ProgressDeadlineExceeded",
    )


def read_pod(
    pod: Manifest, verification: Verification | None = None, log_tails: Mapping[str, str] | None = None
) -> PodObservation:
    """Read one pod."""
    metadata, spec, status = _part(pod, "metadata"), _part(pod, "spec"), _part(pod, "status")
    conditions = _conditions(status)
    scheduled = conditions.get("PodScheduled", {})
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = scheduled.get("status") == "False"
    return PodObservation(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        node=str(spec.get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        template_hash=_labels(pod).get(_TEMPLATE_HASH_LABEL, ""),
        created=str(metadata.get("creationTimestamp") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        ready=conditions.get("Ready", {}).get("status") == "True",
        scheduled=bool(spec.get("nodeName")),
        unschedulable=str(scheduled.get("message", "")) if waits and scheduled.get("reason") == "Unschedulable" else "",
        gated=waits and scheduled.get("reason") == "SchedulingGated",
        gates=tuple(str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ()),
        nominated=str(status.get("nominatedNodeName") or ""),
        status_reason=str(status.get("reason") or ""),
        status_message=str(status.get("message") or ""),
        containers={str(entry.get("name")): _container(entry) for entry in statuses},
        verification=verification,
        log_tails=log_tails,
    )


def _container(entry: Manifest) -> ContainerObservation:
    state = _part(entry, "state")
    kind = next((name for name in ("running", "terminated", "waiting") if state.get(name) is not None), "waiting")
    waiting = _part(state, "waiting")
    return ContainerObservation(
        name=str(entry.get("name")),
        state=kind,
        ready=bool(entry.get("ready")),
        started=bool(entry.get("started")) and kind == "running",
        restarts=int(entry.get("restartCount") or 0),
        waiting_reason=str(waiting.get("reason") or ""),
        waiting_message=str(waiting.get("message") or ""),
        terminated=_termination(state.get("terminated")),
        last_terminated=_termination(_part(entry, "lastState").get("terminated")),
    )


def _termination(entry: Any) -> Termination | None:
    if not entry:
        return None
    return Termination(
        exit_code=int(entry.get("exitCode") or 0),
        reason=str(entry.get("reason") or ""),
        message=str(entry.get("message") or ""),
        finished_at=str(entry.get("finishedAt") or ""),
        started_at=str(entry.get("startedAt") or ""),
    )


def _part(manifest: Manifest, name: str) -> Manifest:
    return manifest.get(name) or {}


def _labels(manifest: Manifest) -> Manifest:
    return _part(_part(manifest, "metadata"), "labels")


def _conditions(status: Manifest) -> dict[str, Manifest]:
    return {str(entry.get("type")): entry for entry in status.get("conditions") or ()}
