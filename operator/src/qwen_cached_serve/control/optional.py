"""Children of optional kinds (`port.OPTIONAL`), watched beside kopf.

kopf fixes at its start what it watches, and ends the operator over a watch that is refused. Here a kind that the
cluster does not serve, or that the operator may not list, is a sentence for those who ask for it, and is found as soon
as it is there; nothing else waits for it. As long as nobody asks for it, nobody looks for it either.

One follower a kind and namespace: list, watch until the watch ends (the API server ends it after some minutes), again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from qwen_cached_serve.control.cache import Cache, Key, Packed, owner_uid
from qwen_cached_serve.control.handlers import CHILD_SELECTOR, COALESCE_SECONDS
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.kube.port import (
    OPTIONAL,
    ApiError,
    Change,
    Forbidden,
    Manifest,
    NotFound,
    Resource,
    Watching,
)

log = structlog.get_logger(__name__)

RETRY_SECONDS = 10.0
"""How often a kind that cannot be used is tried again while somebody asks for it."""
PAUSE_SECONDS = 1.0
"""Least time between two lists."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why children of a kind can neither be read nor applied."""

    reason: Literal["NotServed", "ApplyForbidden", "ApplyFailed"]
    message: str


@dataclass(slots=True)
class _Follower:
    kind: Resource
    namespace: str | None
    problem: Unusable | None
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    known: dict[str, tuple[str, Packed]] = field(default_factory=dict)
    """Owner's uid and object, by uid."""


class OptionalChildren:
    """See the module's text."""

    def __init__(
        self,
        *,
        source: Watching,
        cache: Cache,
        queue: WorkQueue[Key],
        namespaces: Sequence[str],
        kinds: Sequence[Resource] = OPTIONAL,
        retry_seconds: float = RETRY_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._source = source
        self._cache = cache
        self._queue = queue
        self._retry = retry_seconds
        self._pause = pause_seconds
        places: list[str | None] = list(namespaces) or [None]
        self._followers = [
            _Follower(kind, place, Unusable("ApplyFailed", f"{kind.kind}: not read yet"))
            for kind in kinds
            for place in places
        ]
        self._index: dict[Resource, dict[str, list[Packed]]] = {kind: {} for kind in kinds}
        self._wanted: dict[Resource, set[Key]] = {kind: set() for kind in kinds}
        self._asked: dict[Resource, asyncio.Event] = {kind: asyncio.Event() for kind in kinds}
        cache.attach(self._index)

    def followers(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what has to run for ever, with a name each."""
        return [(f"watch-{one.kind.plural}-{one.namespace or 'all'}", self._follow(one)) for one in self._followers]

    async def tried(self) -> None:
        """Wait until every kind was asked for once, whatever came of it: then absence says something."""
        await asyncio.gather(*(one.tried.wait() for one in self._followers))

    def problem(self, kind: Resource, namespace: str) -> Unusable | None:
        """Return why a kind cannot be used in a namespace, None when it can."""
        found = [one.problem for one in self._followers if one.kind is kind and one.namespace in (None, namespace)]
        return found[0] if found else Unusable("ApplyForbidden", f"this operator does not serve namespace {namespace}")

    def wants(self, key: Key, kinds: Collection[Resource]) -> None:
        """Remember which kinds a resource asks for; none when it is gone."""
        for kind, keys in self._wanted.items():
            if kind in kinds:
                keys.add(key)
                self._asked[kind].set()
            else:
                keys.discard(key)
                if not keys:
                    self._asked[kind].clear()

    async def _follow(self, follower: _Follower) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            usable, asked_seconds = await self._watch(follower)
            if not usable:
                await self._asked[follower.kind].wait()
            pause = self._pause if usable else self._retry
            await asyncio.sleep(max(asked_seconds, pause - (loop.time() - began)))

    async def _watch(self, follower: _Follower) -> tuple[bool, float]:
        """Follow until the watch ends; whether it may be started again, and the seconds the API server asked for."""
        kind = follower.kind
        try:
            async for change in self._source.changes(kind, follower.namespace, selector=CHILD_SELECTOR):
                self._take(follower, change)
                if change.type == "LISTED":
                    self._judge(follower, None)
        except NotFound:
            where = f"{kind.api_version} {kind.kind}"
            self._take(follower, Change("LISTED", ()))
            self._judge(follower, Unusable("NotServed", f"this cluster does not serve {where}"))
            return False, 0.0
        except Forbidden as error:
            self._judge(
                follower, Unusable("ApplyForbidden", f"The operator may not list {kind.plural}: {error.message}")
            )
            return False, 0.0
        except ApiError as error:
            log.warning("a watch broke", kind=kind.kind, namespace=follower.namespace, error=error.message)
            if not follower.tried.is_set():
                self._judge(follower, Unusable("ApplyFailed", f"{kind.kind}: {error.message}"))
            return True, error.retry_after_seconds
        return True, 0.0

    def _judge(self, follower: _Follower, problem: Unusable | None) -> None:
        changed = follower.problem != problem
        follower.problem = problem
        follower.tried.set()
        if not changed:
            return
        if problem:
            log.info("optional kind cannot be used", kind=follower.kind.kind, problem=problem.message)
        for key in list(self._wanted[follower.kind]):
            if follower.namespace in (None, key[0]):
                self._queue.add(key)

    def _take(self, follower: _Follower, change: Change) -> None:
        kind, known = follower.kind, follower.known
        found = {one["metadata"]["uid"]: one for one in change.objects if change.type != "DELETED"}
        gone = set(known) - set(found) if change.type == "LISTED" else set()
        if change.type == "DELETED":
            gone = {one["metadata"]["uid"] for one in change.objects} & set(known)
        for uid in gone:
            owner, packed = known.pop(uid)
            self._cache.deleted(kind, packed.namespace, packed.name, uid)
            self._reindex(kind, owner, uid, None)
        for uid, manifest in found.items():
            self._cache.seen(kind, uid)
            owner, packed = owner_uid(manifest), _packed(kind, manifest)
            former, before = known.get(uid, (owner, None))
            if before is not None and before.version == packed.version:
                continue
            known[uid] = owner, packed
            if former != owner:
                self._reindex(kind, former, uid, None)
            self._reindex(kind, owner, uid, packed)

    def _reindex(self, kind: Resource, owner: str, uid: str, packed: Packed | None) -> None:
        index = self._index[kind]
        others = [one for one in index.get(owner, ()) if one.uid != uid]
        index[owner] = [*others, packed] if packed else others
        if not index[owner]:
            del index[owner]
        if (key := self._cache.key_of_owner(owner)) is not None:
            self._queue.add_after(key, COALESCE_SECONDS)


def _packed(kind: Resource, manifest: Manifest) -> Packed:
    """Pack an object; items of a list carry neither apiVersion nor kind."""
    return Packed({**manifest, "apiVersion": kind.api_version, "kind": kind.kind})
