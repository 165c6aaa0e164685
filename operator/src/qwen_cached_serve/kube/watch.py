"""Watches of kinds that kopf does not watch (`port.Watching`): a list, then changes, until the API server ends it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from qwen_cached_serve.kube.client import JSON, PAGE_SIZE, KubeClient
from qwen_cached_serve.kube.port import Change, Manifest, Resource

WATCH_SECONDS = 600
"""After that a watch of ours ends, and the next one begins with a list: what a broken watch missed is found so."""


class Watches:
    """See the module's text."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def changes(self, resource: Resource, namespace: str | None, *, selector: str = "") -> AsyncGenerator[Change]:
        """See `Watching.changes`."""
        items: list[Manifest] = []
        version = ""
        async for page in self._client.pages(resource, namespace, selector, PAGE_SIZE, JSON):
            items += page.get("items") or []
            version = page["metadata"]["resourceVersion"]
        yield Change("LISTED", tuple(items))
        query = [("watch", "true"), ("resourceVersion", version), ("timeoutSeconds", str(WATCH_SECONDS))]
        query += [("allowWatchBookmarks", "true"), *([("labelSelector", selector)] if selector else [])]
        async for line in self._client.lines(resource.path(namespace), query):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return  # usually 410 Gone: the next list tells
            if event["type"] != "BOOKMARK":
                yield Change(event["type"], (event["object"],))
