"""The safety net under the watches: look at everything now and then, and find what a broken watch did not tell.

A watch that breaks with `410 Gone` is started anew by kopf with a list, which brings what is new or changed; what was
deleted meanwhile stays in the indices for ever. So after such a list, and with every periodic round, the uids in the
cache are compared with those the API server has. What the cache has in an older version than the API server is late,
and still so a while later a sign that the watch is dead (`watch_lag`); it is read then, so that an edit is carried out
all the same. Only reads, and of everything else only metadata.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import structlog

from qwen_cached_serve.control.cache import WRITTEN, Cache, Key, owner_uid
from qwen_cached_serve.control.handlers import CHILD_SELECTOR, WATCHED
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.control.watch_lag import WatchLag, late
from qwen_cached_serve.kube.port import SERVES, ApiError, Manifest, NotFound, Port, Resource

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 3.0
"""Time for the rest of a list to arrive before it is compared, and for events that are on their way."""
READ_AT_ONCE = 20
"""Late objects that are read one by one after a comparison."""


class Resync:
    """See the module's text."""

    def __init__(
        self,
        *,
        port: Port,
        cache: Cache,
        queue: WorkQueue[Key],
        lag: WatchLag,
        namespaces: Sequence[str],
        period_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._port = port
        self._cache = cache
        self._queue = queue
        self._lag = lag
        self._namespaces: list[str | None] = list(namespaces) or [None]
        self._period = period_seconds
        self._settle = settle_seconds
        self._suspects: set[Resource] = set()
        self._woken = asyncio.Event()

    def suspect(self, resource: Resource) -> None:
        """Have a kind compared soon: its watch was broken."""
        self._suspects.add(resource)
        self._woken.set()

    async def run(self) -> None:
        """Run for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._wait()
        while True:
            soon = loop.time() + self._lag.check_seconds if self._lag.doubtful() else due
            try:
                async with asyncio.timeout_at(min(soon, due)):
                    await self._woken.wait()
            except TimeoutError:
                if soon < due:
                    await self.compare(self._lag.doubtful())
                    continue
                due = loop.time() + self._wait()
                await self.compare(WATCHED)
                if self._cache.complete:  # else what the first lists bring is looked at anyway
                    for key in self._cache.all_keys():
                        self._queue.add(key)
                continue
            await asyncio.sleep(self._settle)
            self._woken.clear()
            suspects, self._suspects = self._suspects, set()
            await self.compare(tuple(suspects))

    async def compare(self, kinds: Sequence[Resource]) -> int:
        """Compare kinds with the cluster; return how many ghosts were found. API errors are left to the next round."""
        found = 0
        for kind in kinds:
            selector = "" if kind is SERVES else CHILD_SELECTOR
            for namespace in self._namespaces:
                try:
                    versions, version = await self._port.list_identities(kind, namespace, selector=selector)
                except ApiError as error:
                    log.warning("cannot compare with the cluster", kind=kind.kind, error=error.message)
                    continue
                await self._judge_lag(kind, namespace, versions)
                for ghost in self._cache.listed(kind, namespace, versions, version):
                    found += 1
                    metadata = ghost["metadata"]
                    log.info("missed a deletion", kind=kind.kind, object=f"{metadata['namespace']}/{metadata['name']}")
                    self._wake(kind, ghost)
        self._cache.sweep()
        return found

    async def _judge_lag(self, kind: Resource, namespace: str | None, versions: dict[str, str]) -> None:
        if late(versions, self._cache.told(kind)):
            await asyncio.sleep(self._settle)
        lost = self._lag.compared((kind, namespace), versions, self._cache.told(kind))
        if lost and kind in WRITTEN:
            await self._read(kind, {uid: versions[uid] for uid in lost})

    async def _read(self, kind: Resource, lost: dict[str, str]) -> None:
        newest = {one.uid: one for one in self._cache.newest(kind)}
        unread = late(lost, {uid: one.version for uid, one in newest.items()})
        for one in [newest[uid] for uid in unread if uid in newest][:READ_AT_ONCE]:
            try:
                manifest = await self._port.get(kind, one.namespace, one.name)
            except NotFound:
                continue
            except ApiError as error:
                log.warning("cannot read what the watch did not tell", kind=kind.kind, error=error.message)
                return
            self._cache.wrote(manifest)
            self._wake(kind, manifest)

    def _wake(self, kind: Resource, one: Manifest) -> None:
        if not self._cache.complete:
            return  # nothing is concluded from half of the first lists
        metadata = one["metadata"]
        if kind is SERVES:
            self._queue.add((metadata["namespace"], metadata["name"]))
            return
        owner = self._cache.key_of_owner(owner_uid(one))
        if owner is not None:
            self._queue.add(owner)

    def _wait(self) -> float:
        # Jitter, so that the operators of many clusters or namespaces do not list at the same moment.
        return self._period * (0.9 + 0.2 * random.random())  # noqa: S311
