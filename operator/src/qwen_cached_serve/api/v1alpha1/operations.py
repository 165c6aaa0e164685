"""How the served pods are reached, watched, rolled and probed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import ApiModel, Default, IntOrPercent, Port, Restarts, Toggle
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import UncheckedArgs
from qwen_cached_serve.api.v1alpha1.scheduling import LabelSelector
from qwen_cached_serve.api.v1alpha1.volumes import Annotations, Labels


class ServiceSpec(ApiModel):
    """The Service in front of the pods; it has the resource's name where that is a valid Service name."""

    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"] | None, Default(defaults.SERVICE_TYPE)] = None
    """How the Service is reached."""
    port: Annotated[Port | None, Default(defaults.SERVICE_PORT)] = None
    """Port that clients connect to."""
    annotations: Annotations = None
    """Annotations of the Service, such as those that a cloud's load balancer reads."""


class MonitoringSpec(ApiModel):
    """Objects for Prometheus."""

    pod_monitor: Annotated[Toggle | None, Default(defaults.POD_MONITOR)] = None
    """Enabled makes a PodMonitor (monitoring.coreos.com/v1) for /metrics of engine and cache server. Where the cluster
    does not serve that kind, SpecAccepted says so, and the PodMonitor is made once it does."""
    interval: Annotated[
        str | None, Field(min_length=2, max_length=10, pattern=r"^([1-9][0-9]{0,3}m([1-9][0-9]?s)?|[1-9][0-9]{0,4}s)$")
    ] = None
    """Time between two scrapes (30s, 1m, 1m30s); absent means Prometheus' own."""
    labels: Labels = None
    """Labels of the PodMonitor, by which a Prometheus selects it, such as release: prometheus."""


class IpBlock(ApiModel):
    """A range of addresses."""

    cidr: Annotated[str, Field(min_length=4, max_length=43, pattern=r"^[0-9a-f.:]+/(0|[1-9][0-9]{0,2})$")]
    """The range, such as 10.0.0.0/8 or fd00::/8."""


class NetworkPolicyPeer(ApiModel):
    """Whom a NetworkPolicy admits, as in networking.k8s.io/v1: pods, or a range of addresses."""

    pod_selector: LabelSelector | None = None
    """Pods, by their labels; without namespaceSelector those of this namespace."""
    namespace_selector: LabelSelector | None = None
    """Namespaces, by their labels; without podSelector all of their pods. An empty one selects every namespace."""
    ip_block: IpBlock | None = None
    """Addresses outside the cluster; it stands alone."""


class NetworkPolicySpec(ApiModel):
    """Who may reach the pods."""

    mode: Annotated[Toggle | None, Default(defaults.NETWORK_POLICY)] = None
    """Enabled makes a NetworkPolicy: clients reach the engine's port, the operator and Prometheus also the cache
    server's read-only figures, nobody anything else; what the pods ask of others is not touched. Needs a network plugin
    that enforces policies. Policies add up: this one admits clients even where another one denies everything."""
    allowed_clients: Annotated[tuple[NetworkPolicyPeer, ...] | None, Field(min_length=1, max_length=32)] = None
    """Who may reach the engine's port with mode Enabled; absent means everybody. Operator and Prometheus always may."""


class DisruptionBudgetSpec(ApiModel):
    """How many pods a drain may take at once: a PodDisruptionBudget. Pods that are not ready never block a drain."""

    max_unavailable: Annotated[IntOrPercent | None, Default(defaults.DISRUPTION_MAX_UNAVAILABLE)] = None
    """Pods that drains may have away at a time. 0 blocks every drain until a person acts."""


UPGRADE = Restarts(pods=False, sentence="Keep restarts nothing; Roll takes up at once what waits.")


class RolloutSpec(ApiModel):
    """How a change reaches the pods."""

    max_surge: Annotated[IntOrPercent | None, Default(defaults.MAX_SURGE)] = None
    """Pods above replicas during a roll. Each needs GPUs of its own; without free ones a surge waits for ever."""
    max_unavailable: Annotated[IntOrPercent | None, Default(defaults.MAX_UNAVAILABLE)] = None
    """Pods below replicas during a roll."""
    on_failure: Annotated[Literal["Hold", "RollBack"] | None, Default(defaults.ON_FAILURE)] = None
    """Hold leaves a failed roll where it stopped, the pods not yet replaced keep serving. RollBack brings
    the last revision that was fully rolled out back and keeps it until the spec changes; Stalled says so."""
    on_compatibility_change: Literal["Isolate", "Roll"] | None = None
    """What happens when new pods of an unchanged spec cannot read the older ones' cache entries (a moved tag, another
    driver). Isolate leaves both. Roll replaces the older ones by eviction, one at a time, at most three an hour; on
    different GPU models it replaces none. Default: Roll with cache.l2, which pods share, and Isolate without."""
    on_operator_upgrade: Annotated[
        Literal["Keep", "Roll"] | None,
        Default(defaults.ON_OPERATOR_UPGRADE),
        UPGRADE,
    ] = None
    """What happens when another release of the operator renders the pods differently. Keep leaves them as they are (the
    condition RevisionCurrent says what would change) until the spec changes or a restart is asked for. Roll replaces
    them."""


class BlockSizeProbeSpec(ApiModel):
    """The init container that finds N before the engine starts."""

    method: Annotated[Literal["Auto", "Construct", "DryStart"] | None, Default(defaults.PROBE_METHOD)] = None
    """Construct builds the model's layers without weights and asks vLLM. DryStart starts the engine with random weights
    and reads its log, which takes longer and needs the memory of the weights. Auto takes Construct, and DryStart where
    the image's vLLM has a Python interface that Construct does not know."""
    timeout_seconds: Annotated[int | None, Field(ge=30, le=86400), Default(defaults.PROBE_TIMEOUT_SECONDS)] = None
    """Time after which the probe gives up."""


class UnsupportedSpec(ApiModel):
    """The way out when an engine release breaks a derived flag: appended verbatim, after everything derived.

    Nothing here is checked; the condition Validated becomes False.
    """

    engine_args: UncheckedArgs = None
    """Arguments for the engine, derived flags included."""
    cache_server_args: UncheckedArgs = None
    """Arguments for the cache server, derived flags included."""


LIFECYCLE = Restarts(
    pods=False,
    sentence="Paused and back restarts nothing; Stopped ends the pods and Running starts new ones.",
)
