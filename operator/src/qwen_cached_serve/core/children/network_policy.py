"""The NetworkPolicy of the pods: the engine's port for clients, figures for those who read them, nothing else inwards.

Egress stays as it is: pods download models, reach L2 stores and ask for names, at addresses that nobody can list here.
The kubelet's probes come from the pod's own node, whose traffic Kubernetes exempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.core import names
from qwen_cached_serve.core.beside import Readers
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.resolve import Resolved

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Label with its own name that the API server gives every namespace."""

Peer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ingress:
    """Who may reach a port."""

    port: int
    peers: tuple[Peer, ...]
    """NetworkPolicyPeers; empty: everybody."""


@dataclass(frozen=True, slots=True)
class NetworkPolicyChild:
    """Who may reach the pods."""

    meta: Meta
    selector: Mapping[str, str]
    ingress: tuple[Ingress, ...]


def network_policy(resolved: Resolved) -> NetworkPolicyChild | None:
    """Compute the NetworkPolicy; None when the resource asks for none."""
    asked = resolved.beside.network_policy
    if asked is None:
        return None
    readers = _readers(asked.readers)
    ports = resolved.settings.ports
    ingress = [Ingress(ports.engine, (*asked.clients, *readers) if asked.clients else ())]
    if resolved.cached and readers:
        ingress.append(Ingress(ports.relay, readers))
    return NetworkPolicyChild(meta_of(resolved), names.selector_labels(resolved.name), tuple(ingress))


def _readers(readers: Readers) -> tuple[Peer, ...]:
    peers: list[Peer] = []
    if readers.operator_namespace:
        peers.append(
            {
                "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: readers.operator_namespace}},
                "podSelector": {"matchLabels": {names.NAME_LABEL: names.OPERATOR_NAME}},
            }
        )
    if readers.monitoring_namespaces:
        expression = {"key": NAMESPACE_LABEL, "operator": "In", "values": list(readers.monitoring_namespaces)}
        peers.append({"namespaceSelector": {"matchExpressions": [expression]}})
    return tuple(peers)
