"""The Deployment and its pod (DESIGN §3):

    init probe -> native sidecar cache-server -> engine

The user's strings reach the programs through `settings.json`; container commands are constants, so no shell, no quoting
and no `$(NAME)` can change them (B20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.children.strategy import strategy
from qwen_cached_serve.core.environment import EnvEntry, cache_server_environment, engine_environment
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.volumes import Mount, VolumeEntry, pod_mounts, pod_volumes
from qwen_cached_serve.inpod import facts

RUN_AS_USER = 2000
RUN_AS_GROUP = 0
"""User and group of vLLM's public image; group 0 owns what an arbitrary user may write there (facts/vllm.md §6)."""

IMAGE_PULL_ALLOWANCE_SECONDS = 1800
"""Part of the progress deadline for pulling an engine image (several GB) and mounting volumes."""
MIN_READY_SECONDS = 5
REVISION_HISTORY_LIMIT = 3

_STARTUP_PERIOD_SECONDS = 5
_STARTUP_SLACK_SECONDS = 60
"""The engine's parent ends a start that takes too long, and says what the gate saw last (`inpod.start`). The kubelet
counts failed runs of the gate, of which a hanging one takes its whole time limit: it only stands behind, and later."""
_GATE_TIMEOUT_SECONDS = 300
"""One run of the start-up gate sends a request longer than N tokens; 37 s were seen on a slow processor, prompts of a
larger model without a GPU take minutes."""
_SERVER_PERIOD_SECONDS = 2
_SERVER_START_SECONDS = 300
"""Import of the libraries from a cold image; pinning L1 is added at 1 GiB/s, the rate LMCache's own operator
assumes."""

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Container:
    """What differs between the containers; the security context is the same and stands in the template."""

    verb: str
    """Verb of the pod's scripts: `python3 /opt/qcs <verb>`."""
    env: tuple[EnvEntry, ...]
    mounts: tuple[Mount, ...]
    requests: Mapping[str, str]
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Attempts:
    """Period and number of attempts of a start-up check, together its time budget."""

    period: int
    failures: int
    timeout: int


@dataclass(frozen=True, slots=True)
class DeploymentChild:
    """The Deployment and its pod."""

    meta: Meta
    replicas: int
    strategy: Mapping[str, Any]
    progress_deadline: int
    min_ready: int
    revision_history_limit: int
    selector: Mapping[str, str]
    pod_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    image: str
    image_pull_policy: str
    code_dir: str
    engine_port: int
    relay_port: int
    probe: Container
    cache_server: Container | None
    engine: Container
    engine_startup: Attempts
    cache_server_startup: Attempts
    drain_pause: int
    grace: int
    service_account: str
    security_context: Mapping[str, Any]
    share_process_namespace: bool
    runtime_class: str | None
    volumes: tuple[VolumeEntry, ...]
    placement: Mapping[str, Any] = field(default_factory=dict)
    """nodeSelector, tolerations and the like, in the API's shape and only where given."""


def deployment(resolved: Resolved, account: str, code: VolumeEntry) -> DeploymentChild:
    """Compute the Deployment; its pods run as `account` and mount `code`."""
    pod = resolved.pod
    own_labels = names.labels(resolved.name, resolved.uid)
    engine, server = _engine(resolved, "engine"), _cache_server(resolved)
    return DeploymentChild(
        meta=meta_of(resolved),
        replicas=resolved.wanted_replicas,
        strategy=strategy(resolved),
        progress_deadline=(
            resolved.timing.probe
            + resolved.timing.startup
            + _server_start_seconds(resolved)
            + IMAGE_PULL_ALLOWANCE_SECONDS
        ),
        min_ready=MIN_READY_SECONDS,
        revision_history_limit=REVISION_HISTORY_LIMIT,
        selector=names.selector_labels(resolved.name),
        pod_labels=dict(sorted({**(pod.labels or {}), **own_labels}.items())),
        pod_annotations=dict(
            sorted(
                {
                    "kubectl.kubernetes.io/default-container": "engine",
                    **(pod.annotations or {}),
                    names.NAME_ANNOTATION: resolved.name,
                }.items()
            )
        ),
        image=resolved.image,
        image_pull_policy=resolved.image_pull_policy,
        code_dir=facts.CODE_DIR,
        engine_port=resolved.settings.ports.engine,
        relay_port=resolved.settings.ports.relay,
        probe=_engine(resolved, "probe"),
        cache_server=server,
        engine=engine,
        engine_startup=Attempts(
            _STARTUP_PERIOD_SECONDS,
            -(-(resolved.timing.startup + _STARTUP_SLACK_SECONDS) // _STARTUP_PERIOD_SECONDS),
            _GATE_TIMEOUT_SECONDS,
        ),
        cache_server_startup=Attempts(
            _SERVER_PERIOD_SECONDS, -(-_server_start_seconds(resolved) // _SERVER_PERIOD_SECONDS), 5
        ),
        drain_pause=resolved.timing.drain_pause,
        grace=resolved.timing.grace,
        service_account=account,
        security_context=_security_context(resolved),
        # Isolated IPC hands GPU memory over by process id and fails when both sides have the same number, which two
        # containers with process namespaces of their own can have (facts/lmcache.md §4.1). One namespace rules it out.
        # Its price: the cache server, same user, could read the engine's environment.
        share_process_namespace=resolved.gpu is not None and resolved.cached,
        runtime_class=resolved.gpu.runtime_class if resolved.gpu else None,
        volumes=(code, *pod_volumes(resolved)),
        placement=_placement(resolved),
    )


def _server_start_seconds(resolved: Resolved) -> int:
    if not resolved.cached:
        return 0
    return _SERVER_START_SECONDS + -(-resolved.settings.cache.l1_size_bytes // GIB)


def _engine(resolved: Resolved, verb: str) -> Container:
    """Probe and engine are one container with two verbs: same GPUs, image, volumes, variables and resources (B02)."""
    gpus = {resolved.gpu.resource_name: str(resolved.gpu.count)} if resolved.gpu else {}
    return Container(
        verb=verb,
        env=tuple(engine_environment(resolved)),
        mounts=pod_mounts(resolved, "engine"),
        requests=dict(sorted({**resolved.budget.engine.requests, **gpus}.items())),
        limits=dict(sorted({**resolved.budget.engine.limits, **gpus}.items())),
    )


def _cache_server(resolved: Resolved) -> Container | None:
    """The cache server requests no GPU: a second request would get it another one (B41)."""
    resources = resolved.budget.cache_server
    if resources is None:
        return None
    return Container(
        verb="cache-server",
        env=tuple(cache_server_environment(resolved)),
        mounts=pod_mounts(resolved, "cache-server"),
        requests=resources.requests,
        limits=resources.limits,
    )


def _security_context(resolved: Resolved) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if resolved.pod.security_context:
        given = resolved.pod.security_context.model_dump(mode="json", by_alias=True, exclude_none=True)
    context = {
        "runAsNonRoot": given.get("runAsUser") != 0,
        "runAsUser": RUN_AS_USER,
        "runAsGroup": RUN_AS_GROUP,
        "fsGroup": RUN_AS_USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return dict(sorted({**context, **given}.items()))


def _placement(resolved: Resolved) -> dict[str, Any]:
    fields = (
        "node_selector",
        "tolerations",
        "affinity",
        "topology_spread_constraints",
        "priority_class_name",
        "scheduler_name",
        "image_pull_secrets",
    )
    given: dict[str, Any] = resolved.pod.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(fields))
    for constraint in given.get("topologySpreadConstraints", []):
        constraint.setdefault("labelSelector", {"matchLabels": names.selector_labels(resolved.name)})
    return dict(sorted(given.items()))
