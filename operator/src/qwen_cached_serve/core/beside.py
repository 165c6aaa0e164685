"""What stands beside the pods of a resource and is decided by its spec alone: nothing here is part of a revision.

All of it is off unless the resource asks for it (ADR 12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.resource import Spec


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads the figures of served pods: settings of the operator, known to its NetworkPolicies only."""

    operator_namespace: str = ""
    """Namespace of the operator's own pods; empty outside a cluster, where no selector could name it."""
    monitoring_namespaces: tuple[str, ...] = ("monitoring",)
    """Namespaces of Prometheus; `monitoring` is where kube-prometheus puts it."""


@dataclass(frozen=True, slots=True)
class NetworkPolicyAsked:
    """A NetworkPolicy that a resource asks for."""

    clients: tuple[Mapping[str, Any], ...]
    """NetworkPolicyPeers that may reach the engine's port; empty: everybody."""
    readers: Readers


@dataclass(frozen=True, slots=True)
class PodMonitorAsked:
    """A PodMonitor that a resource asks for."""

    interval: str | None
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Beside:
    """What a resource asks for beside its pods; None: not asked for."""

    service_annotations: Mapping[str, str] = field(default_factory=dict)
    network_policy: NetworkPolicyAsked | None = None
    pod_monitor: PodMonitorAsked | None = None
    drained_at_once: int | str | None = None
    """`maxUnavailable` of the PodDisruptionBudget."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes about what works as asked and surprises people."""
        if str(self.drained_at_once).rstrip("%") in ("0", "00"):
            return (
                "spec.disruptionBudget.maxUnavailable is 0: no drain of a node ends while a pod of this runs there",
            )
        return ()


def beside(spec: Spec, readers: Readers) -> Beside:
    """Decide what stands beside the pods."""
    policy, monitoring, budget = spec.network_policy, spec.monitoring, spec.disruption_budget
    return Beside(
        service_annotations=dict((spec.service and spec.service.annotations) or {}),
        network_policy=(
            NetworkPolicyAsked(
                tuple(
                    peer.model_dump(mode="json", by_alias=True, exclude_none=True)
                    for peer in policy.allowed_clients or ()
                ),
                readers,
            )
            if policy and (policy.mode or defaults.NETWORK_POLICY) == "Enabled"
            else None
        ),
        pod_monitor=(
            PodMonitorAsked(monitoring.interval, dict(monitoring.labels or {}))
            if monitoring and (monitoring.pod_monitor or defaults.POD_MONITOR) == "Enabled"
            else None
        ),
        drained_at_once=(
            None
            if budget is None
            else defaults.DISRUPTION_MAX_UNAVAILABLE
            if budget.max_unavailable is None
            else budget.max_unavailable
        ),
    )
