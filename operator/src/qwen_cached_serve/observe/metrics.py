"""The operator's metrics, under controller-runtime's and client-go's names, so that their dashboards and alerts fit.

A registry of our own is injected everywhere: nothing is global, tests read exact values. Labels are bounded by the
number of resources, and a resource's series go when it goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTROLLER = "qwencachedserve"
QUEUE_BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1000.0)
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
CONDITION_STATES = ("True", "False", "Unknown")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All metrics of one operator process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._reconciles = Counter(
            "controller_runtime_reconcile",
            "Reconciles by result (success, error, requeue_after).",
            ["controller", "result"],
            registry=self.registry,
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Failed reconciles.", ["controller"], registry=self.registry
        )
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Seconds for one reconcile.",
            ["controller"],
            buckets=RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self._active = Gauge(
            "controller_runtime_active_workers", "Workers busy now.", ["controller"], registry=self.registry
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers.", ["controller"], registry=self.registry
        )
        self._requests = Counter(
            "rest_client_requests", "API requests by code and method.", ["code", "method"], registry=self.registry
        )
        self._writes = Counter(
            "qwen_cached_serve_apply",
            "Objects applied, by kind and result (applied, unchanged, failed); unchanged ones cost no request.",
            ["kind", "result"],
            registry=self.registry,
        )
        self._leader = Gauge(
            "leader_election_master_status", "1 while this process leads.", ["name"], registry=self.registry
        )
        self._condition = Gauge(
            "qwen_cached_serve_condition",
            "Conditions of the resources, 1 for the state that holds.",
            ["namespace", "name", "type", "status"],
            registry=self.registry,
        )
        self._info = Gauge("qwen_cached_serve_operator_info", "Version.", ["version"], registry=self.registry)
        self._shown: dict[tuple[str, str], set[str]] = {}
        for result in ("success", "error", "requeue_after"):
            self._reconciles.labels(CONTROLLER, result)
        self._errors.labels(CONTROLLER)
        self._active.labels(CONTROLLER).set(0)

    def running(self, version: str, workers: int) -> None:
        """Publish what this process is."""
        self._info.labels(version).set(1)
        self._workers.labels(CONTROLLER).set(workers)

    def reconciled(self, result: str, seconds: float) -> None:
        """Count one reconcile; `result` is `success`, `error` or `requeue_after`."""
        self._reconciles.labels(CONTROLLER, result).inc()
        self._time.labels(CONTROLLER).observe(seconds)
        if result == "error":
            self._errors.labels(CONTROLLER).inc()

    def requested(self, method: str, code: str) -> None:
        """Count one API request of our own client (kopf's watches are not in it)."""
        self._requests.labels(code, method).inc()

    def applied(self, kind: str, result: str) -> None:
        """Count one decision about an object: `applied`, `unchanged` or `failed`."""
        self._writes.labels(kind, result).inc()

    def leading(self, name: str, leads: bool) -> None:
        """Publish whether this process leads."""
        self._leader.labels(name).set(int(leads))

    def active(self, busy: int) -> None:
        """Publish how many workers are busy."""
        self._active.labels(CONTROLLER).set(busy)

    def conditions(self, namespace: str, name: str, states: Mapping[str, str]) -> None:
        """Publish a resource's conditions (type -> status); types that are gone lose their series."""
        before = self._shown.get((namespace, name), set())
        for gone in before - states.keys():
            self._drop(namespace, name, gone)
        for kind, state in states.items():
            for candidate in CONDITION_STATES:
                self._condition.labels(namespace, name, kind, candidate).set(int(candidate == state))
        self._shown[namespace, name] = set(states)

    def forget(self, namespace: str, name: str) -> None:
        """Drop the series of a resource that is gone."""
        for kind in self._shown.pop((namespace, name), set()):
            self._drop(namespace, name, kind)

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def _drop(self, namespace: str, name: str, kind: str) -> None:
        for state in CONDITION_STATES:
            self._condition.remove(namespace, name, kind, state)


class QueueMetrics:
    """client-go's work queue metrics; given to `WorkQueue` as its observer."""

    def __init__(self, metrics: Metrics, name: str = CONTROLLER) -> None:
        registry = metrics.registry
        self._metrics = metrics
        self._busy = 0
        self._depth = Gauge("workqueue_depth", "Keys that wait.", ["name"], registry=registry).labels(name)
        self._adds = Counter("workqueue_adds", "Keys taken in.", ["name"], registry=registry).labels(name)
        self._retries = Counter("workqueue_retries", "Retries.", ["name"], registry=registry).labels(name)
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds a key waited.",
            ["name"],
            buckets=QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds a key was worked on.",
            ["name"],
            buckets=QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)

    def added(self, depth: int) -> None:
        """See `QueueObserver.added`."""
        self._adds.inc()
        self._depth.set(depth)

    def started(self, depth: int, waited_seconds: float) -> None:
        """See `QueueObserver.started`."""
        self._busy += 1
        self._metrics.active(self._busy)
        self._depth.set(depth)
        self._waited.observe(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        """See `QueueObserver.finished`."""
        self._busy -= 1
        self._metrics.active(self._busy)
        self._worked.observe(worked_seconds)

    def retried(self) -> None:
        """See `QueueObserver.retried`."""
        self._retries.inc()


class UnfinishedWork(Collector):
    """Seconds that workers have been busy with keys not finished yet, computed when scraped: shows a stuck worker."""

    def __init__(self, metrics: Metrics, since: Callable[[], Iterable[float]], name: str = CONTROLLER) -> None:
        self._since = since
        self._name = name
        metrics.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the two gauges of client-go."""
        now = asyncio.get_running_loop().time() if self._running() else 0.0
        busy = [max(0.0, now - began) for began in self._since()] if now else []
        for metric, value in (
            ("workqueue_unfinished_work_seconds", sum(busy)),
            ("workqueue_longest_running_processor_seconds", max(busy, default=0.0)),
        ):
            family = GaugeMetricFamily(metric, "Seconds of work in progress.", labels=["name"])
            family.add_metric([self._name], value)
            yield family

    @staticmethod
    def _running() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True
