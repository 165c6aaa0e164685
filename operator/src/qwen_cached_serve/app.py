"""The operator as a process: everything is made here, started in order, and ended in order.

Start: health endpoints, preflight, watches (on both replicas), leadership, workers. End (SIGTERM, lost leadership,
or an essential task that ended): no new work, work in hand is finished, watches stop, and only then the Lease is
given back, so that the next leader never writes beside this one.

kopf cancels every task that was created after it started when it stops (facts/kopf-and-libraries.md §1); ours are
made before. It also takes SIGTERM for itself; we take it back afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, cast

import kopf
import structlog

from qwen_cached_serve import __version__
from qwen_cached_serve import settings as configuration
from qwen_cached_serve.control import handlers
from qwen_cached_serve.control.cache import Cache, Key
from qwen_cached_serve.control.optional import OptionalChildren
from qwen_cached_serve.control.podlogs import PodLogs
from qwen_cached_serve.control.preflight import Preflight
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.control.reconciler import Reconciler
from qwen_cached_serve.control.resync import Resync
from qwen_cached_serve.control.verify import Verifier
from qwen_cached_serve.control.watch_lag import CHECK_SECONDS, WatchLag
from qwen_cached_serve.control.worker import work
from qwen_cached_serve.core.beside import Readers
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.lease import LeaseElector
from qwen_cached_serve.kube.watch import Watches
from qwen_cached_serve.observe.metrics import Metrics, QueueMetrics, UnfinishedWork
from qwen_cached_serve.observe.pods import PodReader
from qwen_cached_serve.observe.web import WebServer
from qwen_cached_serve.settings import OperatorSettings

log = structlog.get_logger(__name__)

FINISH_SECONDS = 8.0
"""Time for work in hand when the process is asked to end (a pod has 30 s by default)."""

LEASE_REQUEST_SECONDS = 5.0
LOG_REQUEST_SECONDS = 10.0


class Operator:
    """One operator process; `run` once."""

    def __init__(self, settings: OperatorSettings, client: KubeClient, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._client = client
        origin = connection.Origin(settings.kubeconfig, settings.context)
        self._stop = asyncio.Event()
        self._lead = asyncio.Event()
        self._fatal = ""
        self._busy: list[asyncio.Task[None]] = []
        self._helpers: list[asyncio.Task[None]] = []
        self._preflight = Preflight(client, settings.namespaces)
        self._elector = self._make_elector() if settings.leader_election else None
        port = client.guarded(self._elector.seconds_left) if self._elector else client
        self._queue: WorkQueue[Key] = WorkQueue(observer=QueueMetrics(metrics))
        UnfinishedWork(metrics, self._queue.processing_since, asyncio.get_running_loop().time)
        self._cache = Cache()
        self._lag = WatchLag(
            metrics,
            dead_seconds=settings.watch_behind_seconds,
            check_seconds=min(CHECK_SECONDS, settings.resync_seconds),
        )
        self._resync = Resync(
            port=client,
            cache=self._cache,
            queue=self._queue,
            lag=self._lag,
            namespaces=settings.namespaces,
            period_seconds=settings.resync_seconds,
        )
        self._reader = PodReader()
        self._verifier = Verifier(reader=self._reader, cache=self._cache, queue=self._queue)
        self._logs = PodLogs(port=client.limited(LOG_REQUEST_SECONDS), queue=self._queue)
        self._optional = OptionalChildren(
            source=Watches(client), cache=self._cache, queue=self._queue, namespaces=settings.namespaces
        )
        self._watcher = handlers.Watcher(
            cache=self._cache,
            queue=self._queue,
            origin=origin,
            on_relist=self._resync.suspect,
            on_gone=lambda key: metrics.forget(*key),
        )
        self._reconciler = Reconciler(
            port=port,
            cache=self._cache,
            metrics=metrics,
            defaults=OperatorDefaults(
                settings.engine_image,
                settings.engine_cpu_image,
                Readers(connection.own_namespace(), settings.monitoring_namespaces),
            ),
            enrich=lambda seen: self._logs.enriched(self._verifier.enriched(seen)),
            want_logs=self._logs.want,
            problem=self._optional.problem,
            wants=self._optional.wants,
        )
        self._web = WebServer(
            host=settings.bind_address,
            health_port=settings.health_port,
            metrics_port=settings.metrics_port,
            metrics=metrics,
            alive=lambda: self._fatal or self._lag.dead(),
            ready=self._not_ready,
        )

    async def run(self) -> int:
        """Run until told to stop; return the exit status (1: something essential ended)."""
        self._take_signals()
        try:
            await self._web.start()
        except OSError as error:
            await self._web.stop()
            await self._client.close()
            raise configuration.SettingsError(
                f"--health-port, --metrics-port or --bind-address cannot be used: {error}"
            ) from error
        log.info(
            "operator starts",
            version=__version__,
            namespaces=list(self._settings.namespaces) or "all",
            health_port=self._web.health_port,
            metrics_port=self._web.metrics_port,
        )
        self._metrics.running(__version__, self._settings.workers)
        watching: asyncio.Task[None] | None = None
        try:
            warm_up = asyncio.to_thread(self._reconciler.warm_up)
            if await self._until_stopped(_both(self._preflight.wait(), warm_up)):
                return 0
            self._start_tasks()
            watching = await self._watch()
            await self._stop.wait()
        finally:
            await self._end(watching)
        return 1 if self._fatal else 0

    def _start_tasks(self) -> None:
        self._helpers += [
            self._essential("leadership", self._leadership()),
            self._essential("resync", self._resync.run()),
            self._essential("pod-logs", self._logs.run()),
        ]
        self._helpers += [self._essential(name, follow) for name, follow in self._optional.followers()]
        if self._settings.pod_status:
            self._helpers.append(self._essential("verifier", self._verify()))
        for number in range(self._settings.workers):
            self._busy.append(self._essential(f"worker-{number}", self._work()))

    async def _work(self) -> None:
        await self._lead.wait()
        await self._optional.tried()
        await work(self._queue, self._reconciler.reconcile, self._metrics)
        if not self._stop.is_set():
            raise RuntimeError("a worker ended: this process no longer leads")

    async def _verify(self) -> None:
        await self._lead.wait()
        await self._verifier.run()

    async def _leadership(self) -> None:
        name = self._settings.lease_name
        if self._elector is None:
            self._metrics.leading(name, True)
            self._lead.set()
            await asyncio.Event().wait()
            return
        self._metrics.leading(name, False)
        await self._elector.acquire()
        self._metrics.leading(name, True)
        self._lead.set()
        await self._elector.lead()
        self._metrics.leading(name, False)
        raise RuntimeError("leadership lost")

    async def _watch(self) -> asyncio.Task[None]:
        mine = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        tasks = await kopf.spawn_tasks(
            registry=self._watcher.registry(),
            settings=handlers.settings(cluster_wide=self._settings.cluster_wide),
            clusterwide=self._settings.cluster_wide,
            namespaces=list(self._settings.namespaces),
            standalone=True,
            # Unused without peering; left out, kopf asks for the user's name, which a bare uid (65532) does not have.
            identity=cast("Any", "qwen-cached-serve"),
        )
        self._take_signals()
        current = asyncio.current_task()
        ignored = mine | ({current} if current else set())
        return self._essential("watches", kopf.run_tasks(tasks, ignored=ignored))

    def _essential(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task whose end is the end of the process."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._stop.is_set():
            return
        error = task.exception()
        self._fatal = f"{task.get_name()}: {error}" if error else f"{task.get_name()} ended"
        log.error("operator ends", task=task.get_name(), error=str(error) if error else "it ended", exc_info=error)
        self._stop.set()

    async def _until_stopped(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Wait for a coroutine; True when the process was told to stop first."""
        work_task = asyncio.ensure_future(coroutine)
        stop_task = asyncio.ensure_future(self._stop.wait())
        done, pending = await asyncio.wait({work_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if work_task in done:
            await work_task
        return work_task not in done

    async def _end(self, watching: asyncio.Task[None] | None) -> None:
        self._stop.set()
        log.info("operator stops", reason=self._fatal or "asked to")
        self._queue.shut_down()
        self._lead.set()  # workers that never led see the end of the queue
        if self._busy:
            _done, late = await asyncio.wait(self._busy, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
        # The renewing of the Lease ends before it is given back, or it would be taken again at once.
        for task in (*self._helpers, *([watching] if watching else [])):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        if self._elector is not None:
            await self._elector.release()
        await self._reader.close()
        await self._web.stop()
        await self._client.close()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _not_ready(self) -> str:
        if self._preflight.problem:
            return self._preflight.problem
        return self._lag.behind() if self._watcher.started else "the watches are starting"

    def _make_elector(self) -> LeaseElector:
        namespace = self._settings.lease_namespace or connection.own_namespace()
        return LeaseElector(
            self._client.limited(LEASE_REQUEST_SECONDS),
            namespace=namespace or next(iter(self._settings.namespaces), "default"),
            name=self._settings.lease_name,
            identity=configuration.identity(self._settings),
        )


async def _both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(one, other)


async def run(settings: OperatorSettings) -> int:
    """Connect and run; return the exit status.

    Raises:
        kube.connection.ConnectionFailed: no usable credentials.
        settings.SettingsError: a port or address that cannot be listened on.

    """
    metrics = Metrics()
    origin = connection.Origin(settings.kubeconfig, settings.context)
    client = await KubeClient.connect(origin, observe=metrics.requested)
    return await Operator(settings, client, metrics).run()
