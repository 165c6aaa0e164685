"""Metric names are controller-runtime's and client-go's; series go with their resource."""

from prometheus_client.parser import text_string_to_metric_families

from qwen_cached_serve.observe.metrics import CONTROLLER, Metrics, QueueMetrics, UnfinishedWork

EXPECTED = {
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_retries_total",
    "workqueue_queue_duration_seconds_bucket",
    "workqueue_work_duration_seconds_bucket",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "leader_election_master_status",
    "rest_client_requests_total",
}


def samples(metrics):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.expose().decode())
        for sample in family.samples
    }


def filled():
    metrics = Metrics()
    queue = QueueMetrics(metrics)
    metrics.running("1.2.3", 4)
    metrics.leading("lease", True)
    metrics.requested("PATCH", "200")
    metrics.reconciled("error", 0.2)
    queue.added(1)
    queue.started(0, 0.1)
    queue.finished(0.1)
    queue.retried()
    return metrics, queue


def test_names_are_those_of_controller_runtime():
    metrics, _ = filled()
    UnfinishedWork(metrics, list, lambda: 0.0)
    names = {key[0] for key in samples(metrics)}
    assert names >= EXPECTED


def test_unfinished_work_shows_a_stuck_worker():
    metrics = Metrics()
    UnfinishedWork(metrics, lambda: [990.0, 900.0], lambda: 1000.0)
    found = samples(metrics)
    assert found["workqueue_unfinished_work_seconds", ("name", CONTROLLER)] == 110
    assert found["workqueue_longest_running_processor_seconds", ("name", CONTROLLER)] == 100


def test_errors_are_counted_twice_and_active_workers_go_back_to_zero():
    metrics, _ = filled()
    found = samples(metrics)
    assert found["controller_runtime_reconcile_errors_total", ("controller", CONTROLLER)] == 1
    assert found["controller_runtime_reconcile_total", ("controller", CONTROLLER), ("result", "error")] == 1
    assert found["controller_runtime_active_workers", ("controller", CONTROLLER)] == 0


def test_conditions_are_series_that_go_with_the_resource():
    metrics = Metrics()
    metrics.conditions("ns", "q", {"Ready": "False", "Probed": "Unknown"})
    key = ("qwen_cached_serve_condition", ("name", "q"), ("namespace", "ns"), ("status", "False"), ("type", "Ready"))
    assert samples(metrics)[key] == 1
    metrics.conditions("ns", "q", {"Ready": "True"})
    found = samples(metrics)
    assert key not in found
    assert [k for k in found if ("type", "Ready") in k and ("status", "True") in k]
    assert not [k for k in found if ("type", "Probed") in k]
    metrics.forget("ns", "q")
    metrics.forget("ns", "never-seen")
    assert not [k for k in samples(metrics) if ("name", "q") in k]


def series(metrics, name):
    """Labels of a metric's samples, without the resource's."""
    return {
        frozenset(dict(key[1:]).items() - {("namespace", "ns"), ("name", "q")})
        for key in samples(metrics)
        if key[0] == name
    }


def test_reasons_are_there_while_they_hold():
    """Bounded: one reason of Stalled, and one series for each child that was refused."""
    metrics = Metrics()
    metrics.stalled("ns", "q", "ImageTooOld")
    metrics.stalled("ns", "q", "RolledBack")
    assert series(metrics, "qwen_cached_serve_stalled") == {frozenset({("reason", "RolledBack")})}
    metrics.refused("ns", "q", [("PodMonitor", "NameTaken"), ("PodMonitor", "NameTaken"), ("Service", "ApplyRefused")])
    assert series(metrics, "qwen_cached_serve_child_refused") == {
        frozenset({("kind", "PodMonitor"), ("reason", "NameTaken")}),
        frozenset({("kind", "Service"), ("reason", "ApplyRefused")}),
    }
    metrics.stalled("ns", "q", "")
    metrics.refused("ns", "q", [])
    assert not series(metrics, "qwen_cached_serve_stalled") | series(metrics, "qwen_cached_serve_child_refused")
    metrics.stalled("ns", "q", "RolledBack")
    metrics.refused("ns", "q", [("Service", "NameTaken")])
    metrics.forget("ns", "q")
    assert not [key for key in samples(metrics) if ("name", "q") in key]
