"""For whoever runs the operator: resources by condition, and the operator itself."""

from __future__ import annotations

from tools.dashboards.grafana import Dashboard, Panel, Query, Row
from tools.dashboards.promql import CONDITION, JOB, RESOURCE, conditions, operator_quantile

OPERATORS = Dashboard(
    uid="qwen-cached-serve-operators",
    title="Qwen cached serving / operators",
    variables=(
        ("job", "label_values(qwen_cached_serve_operator_info, job)"),
        ("namespace", "label_values(qwen_cached_serve_condition, namespace)"),
        ("name", 'label_values(qwen_cached_serve_condition{namespace=~"$namespace"}, name)'),
    ),
    rows=(
        Row(
            "Resources",
            (
                Panel(
                    "Available",
                    (Query(f"count({conditions('Available', 'True')} == 1) or vector(0)", instant=True),),
                    "Resources for which somebody answers.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "Nobody answers",
                    (
                        Query(
                            f"count({conditions('Available', 'False')} == 1 unless on (namespace, name) "
                            f"{conditions('Ready', 'True')} == 1) or vector(0)",
                            instant=True,
                        ),
                    ),
                    "Not available although pods are wanted. Pages after 5 minutes.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "A person is needed",
                    (Query(f"count({conditions('Stalled', 'True')} == 1) or vector(0)", instant=True),),
                    "Held rolls, refused specs and children: nothing more happens by itself.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "Block size mismatch",
                    (Query(f"count({conditions('BlockSizeVerified', 'False')} == 1) or vector(0)", instant=True),),
                    "Engine or cache server runs with another N than was probed.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "Cache without effect",
                    (
                        Query(
                            f"count({conditions('CacheEffective', 'False')} == 1 and on (namespace, name) "
                            f"{conditions('BlockSizeVerified', 'True')} == 1) or vector(0)",
                            instant=True,
                        ),
                    ),
                    "Serves, but nothing is cached; resources whose cache is switched off do not count.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "Waiting for a GPU",
                    (Query(f"count({conditions('CapacityAvailable', 'False')} == 1) or vector(0)", instant=True),),
                    "The scheduler finds no place.",
                    kind="stat",
                    width=4,
                    height=4,
                ),
                Panel(
                    "Available over time",
                    (Query(conditions("Available", "True"), RESOURCE),),
                    "1 while somebody answers; a gap is time without an answer.",
                    width=12,
                    maximum=1,
                ),
                Panel(
                    "Conditions that are False",
                    (
                        Query(
                            f'max by (namespace, name, type) (qwen_cached_serve_condition{{{CONDITION},status="False",'
                            'type!~"Reconciling|Stalled"}) == 1',
                            instant=True,
                        ),
                    ),
                    "`kubectl describe qcs` says why. CacheEffective is also False where the cache is off.",
                    kind="table",
                    width=12,
                ),
            ),
        ),
        Row(
            "Operator",
            (
                Panel(
                    "Leaders",
                    (
                        Query(
                            f"sum(leader_election_master_status{{{JOB}}} and on (job, instance) "
                            f"qwen_cached_serve_operator_info{{{JOB}}})"
                        ),
                    ),
                    "Must be 1. 0: nobody reconciles, served pods go on.",
                    maximum=2,
                ),
                Panel(
                    "Reconciles",
                    (
                        Query(
                            f"sum by (result) (rate(controller_runtime_reconcile_total{{{JOB}}}[$__rate_interval]))",
                            "{{result}}",
                        ),
                        Query(
                            f"sum(rate(controller_runtime_reconcile_errors_total{{{JOB}}}[$__rate_interval]))",
                            "errors",
                        ),
                    ),
                    "Every reconcile is one line in the log.",
                    unit="ops",
                ),
                Panel(
                    "Seconds for a reconcile",
                    (
                        Query(operator_quantile(0.5, "controller_runtime_reconcile_time_seconds"), "p50"),
                        Query(operator_quantile(0.99, "controller_runtime_reconcile_time_seconds"), "p99"),
                    ),
                    "Without the time in the queue.",
                    unit="s",
                ),
                Panel(
                    "Queue",
                    (
                        Query(f"sum by (name) (workqueue_depth{{{JOB}}})", "waiting"),
                        Query(f"sum(controller_runtime_active_workers{{{JOB}}})", "busy workers"),
                        Query(f"sum(controller_runtime_max_concurrent_reconciles{{{JOB}}})", "workers"),
                    ),
                    "Waiting resources and workers, of all replicas.",
                ),
                Panel(
                    "Seconds in the queue",
                    (
                        Query(operator_quantile(0.5, "workqueue_queue_duration_seconds"), "p50"),
                        Query(operator_quantile(0.99, "workqueue_queue_duration_seconds"), "p99"),
                        Query(
                            f"max(workqueue_longest_running_processor_seconds{{{JOB}}})",
                            "longest running now",
                        ),
                    ),
                    "A longest reconcile that only grows is a stuck worker.",
                    unit="s",
                ),
                Panel(
                    "API requests",
                    (
                        Query(
                            f"sum by (method, code) (rate(rest_client_requests_total{{{JOB}}}[$__rate_interval]))",
                            "{{method}} {{code}}",
                        ),
                    ),
                    "All but the watches. An idle cluster has none that write.",
                    unit="reqps",
                ),
                Panel(
                    "Objects applied",
                    (
                        Query(
                            f"sum by (kind, result) (rate(qwen_cached_serve_apply_total{{{JOB}}}[$__rate_interval]))",
                            "{{kind}} {{result}}",
                        ),
                    ),
                    "`unchanged` costs no request.",
                    unit="ops",
                    width=12,
                ),
                Panel(
                    "Versions",
                    (Query(f"count by (version) (qwen_cached_serve_operator_info{{{JOB}}})", "{{version}}"),),
                    "Two at a time: an upgrade is under way.",
                    width=12,
                ),
            ),
        ),
    ),
)
