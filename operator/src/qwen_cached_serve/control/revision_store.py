"""ControllerRevisions in the cluster: listing, reading, making and marking them; nothing is decided here.

What a revision stores never changes, so its tuning is read once.
"""

from __future__ import annotations

import asyncio

from qwen_cached_serve.control.cache import Cache, Key, Snapshot
from qwen_cached_serve.control.composition import revision_manifest
from qwen_cached_serve.core import names, stored
from qwen_cached_serve.core.inputs import tuning_hash
from qwen_cached_serve.core.records import Content, Record, annotations_of, record_of
from qwen_cached_serve.core.tuning import Tuning, from_data
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, Manifest, Port


class RevisionStore:
    """See the module's text."""

    def __init__(self, port: Port, cache: Cache) -> None:
        self._port = port
        self._cache = cache
        self._tunings: dict[Key, tuple[str, Tuning]] = {}

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a resource that is gone."""
        self._tunings.pop(key, None)

    async def listed(self, snapshot: Snapshot) -> list[Record]:
        """Ask the API server for a resource's revisions: the cache may lag."""
        metadata = snapshot.serve["metadata"]
        selector = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{names.OWNER_UID_LABEL}={metadata['uid']}"
        found = await self._port.list_all(CONTROLLER_REVISIONS, metadata["namespace"], selector=selector)
        return [record_of(one) for one in found]

    async def load(self, snapshot: Snapshot, record: Record) -> Content:
        """Read what a revision stores.

        Raises:
            UnreadableRevision: naming it.

        """
        live = await self._port.get(CONTROLLER_REVISIONS, snapshot.serve["metadata"]["namespace"], record.name)
        try:
            return stored.unpack(live.get("data"), record.content_hash)
        except stored.UnreadableRevision as error:
            raise stored.UnreadableRevision(f"{record.name}: {error}") from error

    async def tuning(self, snapshot: Snapshot, record: Record) -> Tuning:
        """Return what the operator adjusted in a revision.

        Raises:
            UnreadableRevision: naming it.

        """
        if not record.tuning_hash:
            return ()
        metadata = snapshot.serve["metadata"]
        key = metadata["namespace"], metadata["name"]
        known = self._tunings.get(key)
        if known is None or known[0] != record.name:
            data = (await self.load(snapshot, record)).tuning
            try:
                found = from_data(data)
            except ValueError as error:
                raise stored.UnreadableRevision(f"{record.name}: {error}") from error
            if tuning_hash(data) != record.tuning_hash:
                raise stored.UnreadableRevision(f"{record.name}: its tuning is not the one that its label names")
            known = self._tunings[key] = record.name, found
        return known[1]

    async def create(self, snapshot: Snapshot, record: Record, content: Content) -> None:
        """Store a revision; one that is there already is met by its name."""
        # Packing takes ten milliseconds, in which the children's requests are on their way.
        manifest = await asyncio.to_thread(revision_manifest, snapshot.serve, record, content)
        self._cache.wrote(await self._port.apply(manifest))

    async def mark(self, snapshot: Snapshot, record: Record) -> None:
        """Write a revision's number and annotations."""
        known: Manifest = {}
        for one in snapshot.revisions:
            if one["metadata"]["name"] == record.name:
                known = {key: one["metadata"][key] for key in ("uid", "resourceVersion")}
        # Only what changes is sent: the API server compares immutable data byte by byte.
        patch = {"metadata": {"annotations": annotations_of(record), **known}, "revision": record.number}
        namespace = snapshot.serve["metadata"]["namespace"]
        self._cache.wrote(await self._port.merge(CONTROLLER_REVISIONS, namespace, record.name, patch))

    async def remove(self, snapshot: Snapshot, record: Record, uid: str) -> None:
        """Delete a revision that nothing needs."""
        namespace = snapshot.serve["metadata"]["namespace"]
        await self._port.delete(CONTROLLER_REVISIONS, namespace, record.name, uid=uid)
        self._cache.deleted(CONTROLLER_REVISIONS, namespace, record.name, uid)
