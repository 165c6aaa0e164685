"""The Service: what clients talk to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.resolve import Resolved


@dataclass(frozen=True, slots=True)
class ServiceChild:
    """What clients talk to."""

    meta: Meta
    type: str
    port: int
    selector: Mapping[str, str]


def service(resolved: Resolved) -> ServiceChild:
    """Compute the Service; its name never changes."""
    meta = meta_of(resolved, annotations=resolved.beside.service_annotations)
    return ServiceChild(meta, resolved.service_type, resolved.service_port, names.selector_labels(resolved.name))


def service_url(resolved: Resolved) -> str:
    """Address of the OpenAI-compatible API inside the cluster."""
    port = "" if resolved.service_port == 80 else f":{resolved.service_port}"
    return f"http://{names.base_name(resolved.name)}.{resolved.namespace}.svc{port}/v1"
