"""Everything the manifests of a resource's children say, computed: the templates only put it in its place.

One module a kind. What pods are made of (ConfigMap, ServiceAccount, the Deployment's template) is stored in a revision
(ADR 7); the rest follows the spec at once and restarts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.config_map import ConfigMapChild, config_map
from qwen_cached_serve.core.children.deployment import DeploymentChild, deployment
from qwen_cached_serve.core.children.disruption_budget import DisruptionBudgetChild, disruption_budget
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.children.network_policy import NetworkPolicyChild, network_policy
from qwen_cached_serve.core.children.pod_monitor import PodMonitorChild, pod_monitor
from qwen_cached_serve.core.children.service import ServiceChild, service
from qwen_cached_serve.core.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Children:
    """All objects of one resource, in the order in which they are applied."""

    config_map: ConfigMapChild
    service_account: Meta | None
    """None when the pods run as an account of the user's."""
    service: ServiceChild
    network_policy: NetworkPolicyChild | None
    disruption_budget: DisruptionBudgetChild | None
    pod_monitor: PodMonitorChild | None
    """None of the three: not asked for."""
    deployment: DeploymentChild


def children(resolved: Resolved, scripts: Mapping[str, str]) -> Children:
    """Compute the children of a resolved resource; `scripts` (`inpod.bundle.files()`) maps paths in the pod to
    texts.
    """
    code, volume = config_map(resolved, scripts)
    account = resolved.pod.service_account_name
    return Children(
        config_map=code,
        service_account=None if account else meta_of(resolved),
        service=service(resolved),
        network_policy=network_policy(resolved),
        disruption_budget=disruption_budget(resolved),
        pod_monitor=pod_monitor(resolved),
        deployment=deployment(resolved, account or names.base_name(resolved.name), volume),
    )
