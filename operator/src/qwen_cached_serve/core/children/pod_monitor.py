"""The PodMonitor: which ports of the pods a Prometheus scrapes.

Namespace, pod and container are labels that the Prometheus operator adds by itself. The resource's name is added here,
under the label that the shipped dashboards and alerts use. Pods carry no name of their revision (they would restart
for it); the hash of their template, which is another one for every revision, is on every series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.resolve import Resolved


@dataclass(frozen=True, slots=True)
class PodMonitorChild:
    """What is scraped."""

    meta: Meta
    selector: Mapping[str, str]
    ports: tuple[str, ...]
    """Names of container ports; each has /metrics."""
    interval: str | None
    resource: str
    """Value of the label `qwencachedserve`."""


def pod_monitor(resolved: Resolved) -> PodMonitorChild | None:
    """Compute the PodMonitor; None when the resource asks for none."""
    asked = resolved.beside.pod_monitor
    if asked is None:
        return None
    return PodMonitorChild(
        meta=meta_of(resolved, labels=asked.labels),
        selector=names.selector_labels(resolved.name),
        ports=("http", "relay") if resolved.cached else ("http",),
        interval=asked.interval,
        resource=names.instance_label(resolved.name),
    )
