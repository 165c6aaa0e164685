"""What is watched: kopf as informer framework, and nothing more (DESIGN D15).

Only `index` and `event` handlers are registered: they leave no annotation and no finalizer on anything. A handler
does one thing, it puts a key into the work queue; retries, order and writing live there. Ids are explicit: kopf
hands an index to others under its handler's id, which inside a function would be a qualified name (facts/kopf-and-
libraries.md §1).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.core import names
from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, GROUP, OWNED, READ_ONLY, SERVES, Manifest, Resource

WATCHED = (SERVES, *OWNED, CONTROLLER_REVISIONS, *READ_ONLY)
CHILD_SELECTOR = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{OWNER_UID_LABEL}"
CREDENTIALS_SECONDS = 600
"""How long kopf uses what it was told: a ServiceAccount's token is renewed by the kubelet well before it expires."""

LIST_CHUNK = 50
"""Objects in one answer of a list: a ConfigMap of ours has 160 KB, and memory that was needed once stays taken."""
COALESCE_SECONDS = 0.02
"""Wait after an event of a child: its siblings' events are usually on their way, and one look answers them all."""

Key = tuple[str, str]


class Watcher:
    """Builds kopf's registry and settings round a cache and a queue."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: WorkQueue[Key],
        origin: connection.Origin,
        on_relist: Callable[[Resource], None],
        on_gone: Callable[[Key], None],
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._origin = origin
        self._on_relist = on_relist
        self._on_gone = on_gone
        self._listed: set[str] = set()
        self.started = False

    def registry(self) -> kopf.OperatorRegistry:
        """Return a registry of our own: kopf's default one is global."""
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        kopf.on.startup(registry=registry, id="attach-indices")(self._attach)
        for resource in WATCHED:
            place = (resource.group, resource.version, resource.plural)
            kopf.index(*place, registry=registry, id=index_id(resource))(_indexer(resource))
            kopf.on.event(*place, registry=registry, id=f"queue-{resource.plural}")(self._enqueuer(resource))
        return registry

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        endpoint = await connection.endpoint(self._origin)
        scheme, _space, token = endpoint.authorization.rpartition(" ")
        # kopf sends "<scheme> <token>" as it is given.
        return kopf.ConnectionInfo(
            server=endpoint.server,
            ca_path=endpoint.ca_path,
            insecure=endpoint.insecure,
            scheme=scheme.capitalize() or None,
            token=token or None,
            certificate_path=endpoint.certificate_path,
            private_key_path=endpoint.private_key_path,
            proxy_url=endpoint.proxy_url,
            # As the other client does: HTTPS_PROXY must not count for one half of the requests only.
            trust_env=True,
            expiration=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=CREDENTIALS_SECONDS),
        )

    async def _attach(self, **kwargs: Any) -> None:
        indices: dict[str, Any] = kwargs
        self._cache.attach({resource: indices[index_id(resource)] for resource in WATCHED})
        self.started = True

    def _enqueuer(self, resource: Resource) -> Callable[..., Any]:
        async def enqueue(type: str | None, body: Mapping[str, Any], **_: Any) -> None:  # noqa: A002 - kopf's name
            self._seen(resource, type, body)

        return enqueue

    def _seen(self, resource: Resource, kind: str | None, body: Mapping[str, Any]) -> None:
        # kopf holds every event back until the first lists of all kinds are in the indices. `started` comes earlier:
        # it only says that the indices exist.
        self._cache.complete = True
        metadata = body["metadata"]
        if kind is None:
            if metadata["uid"] in self._listed:
                # Listed a second time: the watch broke (410 Gone) and may have missed deletions.
                self._on_relist(resource)
            self._listed.add(metadata["uid"])
        if kind == "DELETED":
            self._listed.discard(metadata["uid"])
            self._cache.deleted(resource, metadata["namespace"], metadata["name"], metadata["uid"])
        else:
            self._cache.seen(resource, metadata["uid"])
        if resource is SERVES:
            key = (metadata["namespace"], metadata["name"])
            if kind == "DELETED":
                self._on_gone(key)
            self._queue.add(key)
            return
        owner = self._cache.key_of_owner((metadata.get("labels") or {}).get(OWNER_UID_LABEL, ""))
        if owner is not None:
            self._queue.add_after(owner, COALESCE_SECONDS)


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last state: nothing here asks what changed, and kopf's own copies every object at every event for it.

    (Measured with 30 resources: 35 % of the operator's processor time.)
    """

    def build(self, **_: Any) -> Any:
        """Return an empty essence."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Know of no last state."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers: there are none that are tried again."""

    def fetch(self, **_: Any) -> None:
        """Know of no progress."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Return the essence as it is."""
        return essence


def index_id(resource: Resource) -> str:
    """Return the id of a kind's index handler, under which kopf passes it on."""
    return f"all_{resource.plural}"


def _indexer(resource: Resource) -> Callable[..., Any]:
    async def index(body: Mapping[str, Any], **_: Any) -> dict[Any, Packed]:
        packed = Packed(_plain(resource, body))
        _shed(body)
        if resource is SERVES:
            return {(packed.namespace, packed.name): packed, packed.uid: packed}
        return {(body["metadata"].get("labels") or {}).get(OWNER_UID_LABEL, ""): packed}

    return index


def _shed(body: Mapping[str, Any]) -> None:
    """Empty an object that was indexed of everything but its metadata.

    kopf holds on to every object of the first lists until all kinds are indexed, which with some hundred resources is
    more than everything else in this process. Nothing reads the parts that go: the index has its own copy.
    """
    parts = [body.get("spec"), body.get("status"), body.get("data"), body["metadata"].get("managedFields")]
    for part in parts:
        if isinstance(part, dict | list):
            part.clear()


def _plain(resource: Resource, body: Mapping[str, Any]) -> Manifest:
    """Return the object as the API gave it; items of a list carry neither apiVersion nor kind."""
    return {**dict(body), "apiVersion": resource.api_version, "kind": resource.kind}


def settings(*, cluster_wide: bool) -> kopf.OperatorSettings:
    """Return kopf's settings; why each: facts/kopf-and-libraries.md §1, "Settings to set always"."""
    made = kopf.OperatorSettings()
    made.peering.standalone = True
    made.peering.clusterwide = cluster_wide
    # Never added (no handler needs it), but never kopf's shared default either, which it would take off other objects.
    made.persistence.finalizer = f"{GROUP}/finalizer"
    made.persistence.progress_storage = NoProgress()
    made.persistence.diffbase_storage = NoDiffBase()
    made.posting.enabled = False  # events are our own, posted through our client
    made.posting.level = logging.CRITICAL
    # CRDs and namespaces are not watched: no permission needed; that the CRD is there is checked before the start.
    made.scanning.disabled = True
    made.networking.connect_timeout = 10
    made.networking.request_timeout = 60
    made.watching.connect_timeout = 10
    made.watching.server_timeout = 600
    made.watching.reconnect_backoff = 1.0
    made.watching.chunk_size = LIST_CHUNK
    for resource in WATCHED[1:]:
        made.watching.label_selectors[resource.group, resource.version, resource.plural] = CHILD_SELECTOR
    made.execution.max_workers = 1  # every handler is async
    return made
