"""When the programs of a pod are asked: soon after it became ready, and now and then while it is.

Answers are kept by pod and life of its engine, so that a reconcile reads memory and never the network. A changed
answer puts the owner's key into the queue. Pods that cannot be reached are asked rarely: they may be unreachable for
good, and that is no fault (see `observe.pods`).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from qwen_cached_serve.control.cache import Cache, Key
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.core.observed import CACHE_SERVER, ENGINE, Observation, PodObservation, Verification, read_pod
from qwen_cached_serve.kube.port import Manifest

log = structlog.get_logger(__name__)

PERIOD_SECONDS = 60.0
UNREACHABLE_SECONDS = 600.0
TICK_SECONDS = 5.0
CONCURRENCY = 8


class Reader(Protocol):
    """See `observe.pods.PodReader`."""

    async def read(self, address: str) -> Verification | None:
        """Return what the pod says, None when that is not known."""
        ...


@dataclass(slots=True)
class _Known:
    life: tuple[str, int]
    answer: Verification | None
    due: float


class Verifier:
    """See the module's text."""

    def __init__(
        self, *, reader: Reader, cache: Cache, queue: WorkQueue[Key], tick_seconds: float = TICK_SECONDS
    ) -> None:
        self._reader = reader
        self._cache = cache
        self._queue = queue
        self._tick = tick_seconds
        self._known: dict[str, _Known] = {}

    def enriched(self, observation: Observation) -> Observation:
        """Return the observation with what its pods said about their present lives."""
        return replace(observation, pods=tuple(self._with_answer(pod) for pod in observation.pods))

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(self._tick)
            await self.round()

    async def round(self) -> None:
        """Ask every pod that is due."""
        now = asyncio.get_running_loop().time()
        serving = [(key, *found) for key, manifest in self._cache.all_pods() if (found := _serving(manifest))]
        alive = {pod.uid for _, pod, _ in serving}
        self._known = {uid: known for uid, known in self._known.items() if uid in alive}
        due = [entry for entry in serving if self._due(entry[1]) <= now]
        for start in range(0, len(due), CONCURRENCY):
            await asyncio.gather(*(self._ask(*entry) for entry in due[start : start + CONCURRENCY]))

    async def _ask(self, key: Key, pod: PodObservation, address: str) -> None:
        try:
            answer = await self._reader.read(address)
        except Exception:
            # Whatever a pod answers, it must not end the operator.
            log.exception("answer of a pod cannot be read", pod=pod.name, address=address)
            answer = None
        known = self._known.get(pod.uid)
        before = known.answer if known and known.life == _life(pod) else None
        pause = PERIOD_SECONDS if answer else UNREACHABLE_SECONDS
        due = asyncio.get_running_loop().time() + pause * (0.9 + 0.2 * random.random())  # noqa: S311
        self._known[pod.uid] = _Known(_life(pod), answer, due)
        if answer != before:
            self._queue.add(key)

    def _due(self, pod: PodObservation) -> float:
        known = self._known.get(pod.uid)
        return known.due if known and known.life == _life(pod) else 0.0

    def _with_answer(self, pod: PodObservation) -> PodObservation:
        known = self._known.get(pod.uid)
        if known is None or known.life != _life(pod) or known.answer is None:
            return pod
        return replace(pod, verification=known.answer)


def _serving(manifest: Manifest) -> tuple[PodObservation, str] | None:
    """Return a pod that can be asked, with its address."""
    address = (manifest.get("status") or {}).get("podIP")
    pod = read_pod(manifest)
    if not address or not pod.ready or pod.deleting or CACHE_SERVER not in (pod.containers or {}):
        return None
    return pod, str(address)


def _life(pod: PodObservation) -> tuple[str, int]:
    """Identify one life of a pod's programs: after a restart of either, old answers say nothing."""
    return pod.uid, pod.container(ENGINE).restarts + pod.container(CACHE_SERVER).restarts
