"""`qcs status`: what the operator wrote into the resources' status, as a table or as JSON. Reads the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qwen_cached_serve.cli.cluster import ask
from qwen_cached_serve.cli.options import aligned
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import SERVES, Manifest

_SHOWN_CONDITIONS = (
    "Ready",
    "Stalled",
    "Probed",
    "BlockSizeVerified",
    "CacheEffective",
    "CacheCompatible",
    "CapacityAvailable",
    "Validated",
)


def fetch(origin: Origin, namespace: str | None, name: str | None) -> list[Manifest]:
    """Read one resource, all of a namespace, or (`namespace=None`) all.

    Raises:
        CliError: no cluster, no permission, no such resource; in the API server's words.

    """

    async def read(client: KubeClient) -> list[Manifest]:
        if name is not None:
            return [await client.get(SERVES, namespace or "default", name)]
        return await client.list_all(SERVES, namespace)

    return ask(origin, read)


def table(resources: list[Manifest]) -> Iterator[str]:
    """One line a resource."""
    header = ("NAMESPACE", "NAME", "READY", "REASON", "AVAILABLE", "N", "CACHE", "MODEL")
    return aligned([header, *(_row(resource) for resource in resources)])


def detail(resource: Manifest) -> Iterator[str]:
    """Everything about one resource that a person asks for first."""
    status = resource.get("status") or {}
    yield from table([resource])
    block = status.get("blockSize") or {}
    if block:
        yield "block size: " + ", ".join(
            f"{kind} {block[kind]}" for kind in ("predicted", "probed", "verified") if kind in block
        )
    plan = status.get("plan") or {}
    if plan:
        figures = (("chunk size", "chunkSize"), ("tokens per step", "maxNumBatchedTokens"))
        yield "plan: " + ", ".join(f"{words} {plan[key]}" for words, key in figures if key in plan)
    if roll := status.get("roll"):
        former = f"from {roll['from']} " if roll.get("from") else ""
        yield (
            f"roll: {former}to {roll.get('to')}, {roll.get('updated', 0)} of {roll.get('total')} pods, "
            f"{roll.get('reason')}"
        )
    for one in status.get("tuning") or ():
        yield f"tuning: {one.get('name')} {one.get('value')}: {one.get('reason', '')}"
    for kind in _SHOWN_CONDITIONS:
        condition = _condition(resource, kind)
        if condition:
            yield f"{kind}={condition.get('status')} ({condition.get('reason')}): {condition.get('message')}"
    for pod in status.get("pods") or ():
        trouble = f": {pod['reason']}" if pod.get("reason") else ""
        yield f"pod {pod.get('name')} on {pod.get('node', '-')}: {pod.get('phase')}{trouble}"
    for one in status.get("evictions") or ():
        held = f", held back: {one['heldBack']}" if one.get("heldBack") else ""
        yield f"evicted by the operator: pod {one.get('pod')} ({one.get('reason')}) at {one.get('time')}{held}"
    if status.get("url"):
        yield f"url: {status['url']}"


def _row(resource: Manifest) -> tuple[str, ...]:
    status, metadata = resource.get("status") or {}, resource["metadata"]
    ready, cache = _condition(resource, "Ready"), _condition(resource, "CacheEffective")
    wanted = resource.get("spec", {}).get("replicas", 1)
    return (
        str(metadata.get("namespace", "")),
        str(metadata["name"]),
        str(ready.get("status", "Unknown")),
        str(ready.get("reason", "NotSeenYet")),
        f"{status.get('availableReplicas', 0)}/{wanted}",
        str((status.get("blockSize") or {}).get("probed", "-")),
        str(cache.get("reason", "-")),
        str(resource.get("spec", {}).get("model", {}).get("name", "-")),
    )


def _condition(resource: Manifest, kind: str) -> Mapping[str, Any]:
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == kind), {})
