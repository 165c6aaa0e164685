"""The safety net under the watches: look at everything now and then, and find what a broken watch did not tell.

A watch that breaks with `410 Gone` is started anew by kopf with a list, which brings what is new or changed; what was
deleted meanwhile stays in the indices for ever. So after such a list, and with every periodic round, the uids in the
cache are compared with those the API server has. Only reads; only metadata.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import structlog

from qwen_cached_serve.control.cache import Cache, Key, owner_uid
from qwen_cached_serve.control.handlers import CHILD_SELECTOR, WATCHED
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.kube.port import SERVES, ApiError, Port, Resource

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 3.0
"""Time for the rest of a list to arrive before it is compared."""


class Resync:
    """See the module's text."""

    def __init__(
        self,
        *,
        port: Port,
        cache: Cache,
        queue: WorkQueue[Key],
        namespaces: Sequence[str],
        period_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._port = port
        self._cache = cache
        self._queue = queue
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
            try:
                async with asyncio.timeout_at(due):
                    await self._woken.wait()
            except TimeoutError:
                due = loop.time() + self._wait()
                if not self._cache.complete:
                    continue  # what the first lists bring is looked at anyway
                await self.compare(WATCHED)
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
                    uids, version = await self._port.list_identities(kind, namespace, selector=selector)
                except ApiError as error:
                    log.warning("cannot compare with the cluster", kind=kind.kind, error=error.message)
                    continue
                for ghost in self._cache.listed(kind, namespace, uids, version):
                    found += 1
                    metadata = ghost["metadata"]
                    log.info("missed a deletion", kind=kind.kind, object=f"{metadata['namespace']}/{metadata['name']}")
                    self._wake(kind, ghost)
        self._cache.sweep()
        return found

    def _wake(self, kind: Resource, ghost: dict[str, object]) -> None:
        metadata: dict[str, str] = ghost["metadata"]  # type: ignore[assignment]
        if kind is SERVES:
            self._queue.add((metadata["namespace"], metadata["name"]))
            return
        owner = self._cache.key_of_owner(owner_uid(ghost))
        if owner is not None:
            self._queue.add(owner)

    def _wait(self) -> float:
        # Jitter, so that the operators of many clusters or namespaces do not list at the same moment.
        return self._period * (0.9 + 0.2 * random.random())  # noqa: S311
