"""Workers: take a key, reconcile it, decide when to look again. One log line and one metric for every reconcile."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from qwen_cached_serve.control.cache import Key
from qwen_cached_serve.control.queue import MAX_DELAY_SECONDS, ShutDown, WorkQueue
from qwen_cached_serve.kube.port import ApiError, Conflict, Forbidden, Transient, WriteDenied
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)


class Outcome(Protocol):
    """What a reconcile tells its worker."""

    @property
    def again_after_seconds(self) -> float | None:
        """When to look again although nothing happens; None: only when something does."""

    @property
    def summary(self) -> dict[str, object]:
        """What was done, for the log line."""


Reconcile = Callable[[Key], Awaitable[Outcome]]


async def work(queue: WorkQueue[Key], reconcile: Reconcile, metrics: Metrics) -> None:
    """Work until the queue is shut down or the leadership is gone."""
    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        try:
            if not await _once(queue, key, reconcile, metrics):
                return
        finally:
            queue.done(key)


async def _once(queue: WorkQueue[Key], key: Key, reconcile: Reconcile, metrics: Metrics) -> bool:
    """Reconcile one key; whether to go on working."""
    started = time.perf_counter()
    namespace, name = key
    with structlog.contextvars.bound_contextvars(namespace=namespace, name=name, reconcile_id=uuid.uuid4().hex[:8]):
        try:
            outcome = await reconcile(key)
        except WriteDenied as denied:
            log.warning("stopped writing", reason=str(denied))
            return False
        except ApiError as error:
            delay = _again(queue, key, error)
            result = "error"
            # A conflict only says that the cluster moved on, which is everyday life.
            report = log.info if isinstance(error, Conflict) else log.warning
            report(
                "reconcile failed",
                result=result,
                error=error.message,
                status=error.status,
                kind=type(error).__name__,
                again_after=round(delay, 2),
                duration=_since(started),
            )
        except Exception:
            delay = queue.add_failed(key)
            result = "error"
            log.exception("reconcile failed", result=result, again_after=round(delay, 2), duration=_since(started))
        else:
            queue.forget(key)
            again = outcome.again_after_seconds
            if again is not None:
                queue.add_after(key, again)
            result = "success" if again is None else "requeue_after"
            log.info("reconciled", result=result, again_after=again, duration=_since(started), **outcome.summary)
    metrics.reconciled(result, time.perf_counter() - started)
    return True


def _again(queue: WorkQueue[Key], key: Key, error: ApiError) -> float:
    if isinstance(error, Forbidden) and error.namespace_terminating:
        # Nothing to do until the namespace is gone, and then its resource is gone as well (B61).
        queue.add_after(key, 60.0)
        return 60.0
    if isinstance(error, Transient) and error.retry_after_seconds > 0:
        # The server asked for time (B55): the next event, often one of our own writes, is no reason to come back
        # earlier. A proxy that asks for days is not believed.
        seconds = min(error.retry_after_seconds, MAX_DELAY_SECONDS)
        queue.hold(key, seconds)
        return seconds
    if error.retry_after_seconds > 0:
        queue.add_after(key, error.retry_after_seconds)
        return error.retry_after_seconds
    return queue.add_failed(key)


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 4)
