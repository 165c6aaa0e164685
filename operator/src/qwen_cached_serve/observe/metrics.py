"""The operator's metrics, under controller-runtime's and client-go's names, so that their dashboards and alerts fit.

A registry of our own is injected everywhere: nothing is global, tests read exact values. Labels are bounded by the
number of resources, and a resource's series go when it goes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTROLLER = "qwencachedserve"
QUEUE_BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1000.0)
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_Key = tuple[str, str]
"""Namespace and name of a resource."""
_T = TypeVar("_T")

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
            "Objects applied, by kind and result (applied, unchanged, delayed, failed); only applied and failed ask.",
            ["kind", "result"],
            registry=self.registry,
        )
        self._evictions = Counter(
            "qwen_cached_serve_evictions",
            "Pods that the operator replaced by itself, by reason and result (evicted, gone, held_back).",
            ["reason", "result"],
            registry=self.registry,
        )
        self._behind = Gauge(
            "qwen_cached_serve_watch_behind_seconds",
            "Seconds for which the API server has had a newer object of that kind than the watch told; 0: none.",
            ["kind"],
            registry=self.registry,
        )
        self._leader = Gauge(
            "leader_election_master_status", "1 while this process leads.", ["name"], registry=self.registry
        )
        self._resources = _Resources()
        self.registry.register(self._resources)
        self._unknown = Gauge(
            "qwen_cached_serve_definition_unknown_fields",
            "Status fields that the installed CustomResourceDefinition lacks: it is older than this operator.",
            registry=self.registry,
        )
        self._info = Gauge("qwen_cached_serve_operator_info", "Version.", ["version"], registry=self.registry)
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

    def evicted(self, reason: str, result: str) -> None:
        """Count one answer to an eviction: `evicted`, `gone` (it was not there any more) or `held_back`."""
        self._evictions.labels(reason, result).inc()

    def definition_lacks(self, fields: int) -> None:
        """Tell how many status fields the installed definition lacks."""
        self._unknown.set(fields)

    def watch_behind(self, kind: str, seconds: float) -> None:
        """Publish for how long a kind's watch has been behind; 0: it is not."""
        self._behind.labels(kind).set(seconds)

    def leading(self, name: str, leads: bool) -> None:
        """Publish whether this process leads."""
        self._leader.labels(name).set(int(leads))

    def active(self, busy: int) -> None:
        """Publish how many workers are busy."""
        self._active.labels(CONTROLLER).set(busy)

    def conditions(self, namespace: str, name: str, states: Mapping[str, str]) -> None:
        """Publish a resource's conditions (type -> status); types that are gone lose their series."""
        self._resources.states[namespace, name] = tuple((sys.intern(k), sys.intern(v)) for k, v in states.items())

    def stalled(self, namespace: str, name: str, reason: str) -> None:
        """Publish why a person is needed for a resource; empty: nobody is."""
        _set_or_drop(self._resources.stalled, (namespace, name), reason)

    def refused(self, namespace: str, name: str, children: Iterable[tuple[str, str]]) -> None:
        """Publish a resource's children that are not as asked (kind, reason); none: all are."""
        _set_or_drop(self._resources.refused, (namespace, name), tuple(sorted(set(children))))

    def forget(self, namespace: str, name: str) -> None:
        """Drop the series of a resource that is gone."""
        for series in (self._resources.states, self._resources.stalled, self._resources.refused):
            series.pop((namespace, name), None)

    def expose(self) -> bytes:
        """Return all metrics in the text format; takes a while with many resources, and may run in a thread."""
        return generate_latest(self.registry)


def _set_or_drop(series: dict[_Key, _T], key: _Key, value: _T) -> None:
    if value:
        series[key] = value
    else:
        series.pop(key, None)


class _Resources(Collector):
    """What is known of each resource, computed when scraped: hundreds of them have a dozen conditions each.

    Reasons are a label of `qwen_cached_serve_stalled` only, where alerts need them: they are enumerated, there is one
    at a time, and a resource that does well has none. With the conditions they would start a series at every step of
    a roll.
    """

    def __init__(self) -> None:
        self.states: dict[_Key, tuple[tuple[str, str], ...]] = {}
        self.stalled: dict[_Key, str] = {}
        self.refused: dict[_Key, tuple[tuple[str, str], ...]] = {}

    def collect(self) -> Iterable[Metric]:
        yield _family(
            "qwen_cached_serve_condition",
            "Conditions of the resources: 1 with the status that holds, no series for the others.",
            ("type", "status"),
            self.states,
        )
        yield _family(
            "qwen_cached_serve_stalled",
            "Resources for which a person is needed (condition Stalled), with the reason.",
            ("reason",),
            {key: ((reason,),) for key, reason in list(self.stalled.items())},
        )
        yield _family(
            "qwen_cached_serve_child_refused",
            "Children of resources that are not as asked, with the reason of the refusal.",
            ("kind", "reason"),
            self.refused,
        )


def _family(
    name: str, words: str, labels: tuple[str, ...], series: Mapping[_Key, tuple[tuple[str, ...], ...]]
) -> GaugeMetricFamily:
    """Return a family with the value 1 for each entry of each resource."""
    family = GaugeMetricFamily(name, words, labels=["namespace", "name", *labels])
    for key, entries in list(series.items()):  # a copy: other threads write while one is scraped
        for entry in entries:
            family.add_metric([*key, *entry], 1)
    return family


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

    def __init__(
        self,
        metrics: Metrics,
        since: Callable[[], Iterable[float]],
        now: Callable[[], float],
        name: str = CONTROLLER,
    ) -> None:
        self._since = since
        self._now = now
        self._name = name
        metrics.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the two gauges of client-go."""
        now = self._now()
        busy = [max(0.0, now - began) for began in self._since()]
        for metric, value in (
            ("workqueue_unfinished_work_seconds", sum(busy)),
            ("workqueue_longest_running_processor_seconds", max(busy, default=0.0)),
        ):
            family = GaugeMetricFamily(metric, "Seconds of work in progress.", labels=["name"])
            family.add_metric([self._name], value)
            yield family
