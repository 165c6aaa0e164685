"""Reading the log of a container that failed, when its termination message left the cause open. Optional.

A life of a container is asked once: not at every reconcile, and never while nothing fails. What is kept is the
decisive piece (`core.diagnose.decisive`), not the log. Without the permission (pods/log) nothing is known and nothing
is said about it but one line in the operator's log; a node that does not answer is asked a few times.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from qwen_cached_serve.control.cache import Key
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.core.diagnose import decisive
from qwen_cached_serve.core.observed import Observation, PodObservation
from qwen_cached_serve.core.status import LogRequest
from qwen_cached_serve.kube.port import ApiError, Forbidden, LogWindow, Port, Transient

log = structlog.get_logger(__name__)

TAIL_LINES = 500
LIMIT_BYTES = 256 << 10
TRIES = 3
PAUSE_SECONDS = 5.0
FORBIDDEN_SECONDS = 600.0
"""How long to believe that there is no permission."""
_REMEMBERED = 4096

Life = tuple[str, str, str]
"""Pod's uid, container, and when that life of it ended."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    key: Key
    pod: str
    life: Life
    previous: bool
    tries: int = 0


class PodLogs:
    """See the module's text."""

    def __init__(self, *, port: Port, queue: WorkQueue[Key], pause_seconds: float = PAUSE_SECONDS) -> None:
        self._port = port
        self._queue = queue
        self._pause = pause_seconds
        self._found: OrderedDict[Life, str] = OrderedDict()
        """Empty text: asked, and nothing was learned."""
        self._asked: set[Life] = set()
        self._wanted: asyncio.Queue[_Wanted] = asyncio.Queue()
        self._forbidden_until = 0.0

    def enriched(self, observation: Observation) -> Observation:
        """Return the observation with what is known of the logs of its failed containers."""
        return replace(observation, pods=tuple(self._with_tail(pod) for pod in observation.pods))

    def _with_tail(self, pod: PodObservation) -> PodObservation:
        lives = {name: life[0] for name in pod.containers or {} if (life := _life(pod, name))}
        tails = {name: text for name, life in lives.items() if (text := self._found.get(life))}
        return replace(pod, log_tails=tails) if tails else pod

    def want(self, key: Key, observation: Observation, requests: Iterable[LogRequest]) -> None:
        """Have the logs read that a judgement asks for; each life of a container once."""
        pods = {pod.name: pod for pod in observation.pods}
        for request in requests:
            pod = pods.get(request.pod)
            life = _life(pod, request.container) if pod else None
            if life is None or life[0] in self._found or life[0] in self._asked:
                continue
            self._asked.add(life[0])
            self._wanted.put_nowait(_Wanted(key, request.pod, *life))

    async def run(self) -> None:
        """Read for ever, one log after the other."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Read the next log that is wanted."""
        wanted = await self._wanted.get()
        now = asyncio.get_running_loop().time()
        if now < self._forbidden_until:
            self._asked.discard(wanted.life)  # may be asked again when the permission may have come
            return
        try:
            text = await self._read(wanted)
        except Forbidden as error:
            self._asked.discard(wanted.life)
            if error.status != 403:
                return  # a token that is being renewed says nothing about permissions
            self._forbidden_until = now + FORBIDDEN_SECONDS
            log.info("no permission to read logs of pods", error=error.message, effect="causes may stay unknown")
            return
        except Transient as error:
            if wanted.tries + 1 < TRIES:
                again = replace(wanted, tries=wanted.tries + 1)
                asyncio.get_running_loop().call_later(self._pause, self._wanted.put_nowait, again)
                return
            log.info("log of a pod cannot be read", pod=wanted.pod, container=wanted.life[1], error=error.message)
            text = ""
        except ApiError as error:
            # The pod or its log is gone.
            log.debug("no log", pod=wanted.pod, container=wanted.life[1], error=error.message)
            text = ""
        try:
            # Regular expressions over some hundred kilobytes: not on the loop.
            text = await asyncio.to_thread(decisive, text)
        except Exception:
            # Whatever a program printed, it must not end the operator.
            log.exception("log of a pod cannot be read", pod=wanted.pod, container=wanted.life[1])
            text = ""
        self._remember(wanted.life, text)
        if self._found[wanted.life]:
            self._queue.add(wanted.key)

    async def _read(self, wanted: _Wanted) -> str:
        window = LogWindow(previous=wanted.previous, tail_lines=TAIL_LINES, limit_bytes=LIMIT_BYTES)
        return await self._port.pod_log(wanted.key[0], wanted.pod, wanted.life[1], window)

    def _remember(self, life: Life, text: str) -> None:
        self._asked.discard(life)
        self._found[life] = text
        while len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)


def _life(pod: PodObservation, name: str) -> tuple[Life, bool] | None:
    """Name the life of a container that ended last, and whether the kubelet calls it the previous one."""
    container = pod.container(name)
    end = container.latest_end
    if end is None:
        return None
    ended = end.finished_at or f"restart {container.restarts}"
    return (pod.uid, name, ended), container.terminated is None
