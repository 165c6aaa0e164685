"""Every metric and label in the dashboards and alerts is one that the operator, vLLM or LMCache really exports.

The engine's and the cache server's were read from the real programs (fixtures/README.md); the operator's come from its
own registry.
"""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from qwen_cached_serve.core.conditions import TYPES
from qwen_cached_serve.core.lifecycle import HOLDS_NO_ROLL
from qwen_cached_serve.observe.metrics import CONTROLLER, Metrics, QueueMetrics, UnfinishedWork
from tools import dashboards
from tools.charts import OPERATOR

FIXTURES = Path(__file__).parent / "fixtures"
FILES = ("engine-metrics-0.32.0.txt", "cache-server-idle-0.5.6.txt", "cache-server-instruments-0.5.6.txt")
# What Prometheus and monitoring.servedPods add.
TARGET = {"job", "instance", "namespace", "pod", "container", "endpoint"}
SERVED = TARGET | {"qwencachedserve"}

METRIC = re.compile(
    r"\b((?:vllm:|lmcache_mp_|qwen_cached_serve_|controller_runtime_|workqueue_|rest_client_|leader_election_|process_"
    r"|qwencachedserve:)[a-zA-Z0-9_:]*)(\{(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*\})?"
)
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.)*)\"")
GROUPED = re.compile(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)")


def exported(text):
    """Sample name -> label names -> values seen."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def operators_own():
    metrics = Metrics()
    queue = QueueMetrics(metrics)
    UnfinishedWork(metrics, lambda: [1.0], lambda: 2.0)
    metrics.running("1", 4)
    metrics.reconciled("error", 0.1)
    metrics.requested("PATCH", "200")
    metrics.applied("Deployment", "applied")
    metrics.leading("lease", True)
    metrics.watch_behind("Pod", 0)
    for kind in TYPES:
        for status in ("True", "False", "Unknown"):
            metrics.conditions("llm", f"{kind}-{status}", {kind: status})
    for reason in ("InvalidSpec", "NameTaken"):
        metrics.stalled("llm", reason, reason)
    metrics.refused("llm", "q", [("PodMonitor", "NameTaken")])
    queue.added(1)
    queue.started(0, 0.1)
    queue.finished(0.1)
    return exported(metrics.expose().decode())


KNOWN = {
    **{name: (labels, TARGET) for name, labels in operators_own().items()},
    **{name: (labels, SERVED) for file in FILES for name, labels in exported((FIXTURES / file).read_text()).items()},
}


def alert_rules():
    return [
        rule
        for group in yaml.safe_load((OPERATOR / "files" / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]


RECORDED = {rule["record"] for rule in alert_rules() if "record" in rule}


def expressions():
    for name, board in dashboards.ALL.items():
        for row in board.rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield pytest.param(query.expr, id=f"{name}: {panel.title}: {query.legend}")
        for variable, query in board.variables:
            yield pytest.param(re.sub(r"^label_values\((.*), \w+\)$", r"\1", query), id=f"{name}: ${variable}")
    for rule in alert_rules():
        yield pytest.param(rule["expr"], id=rule.get("alert") or rule["record"])


@pytest.mark.parametrize("expr", list(expressions()))
def test_uses_what_is_exported(expr):
    used = [(found[1], found[2] or "") for found in METRIC.finditer(expr)]
    assert used, "no metric found in it"
    all_labels = set(TARGET)
    for metric, selector in used:
        if metric in RECORDED:
            all_labels |= SERVED
            continue
        assert metric in KNOWN, f"nothing exports {metric}"
        labels, added = KNOWN[metric]
        all_labels |= set(labels) | added
        for label, operation, value in MATCHER.findall(selector):
            assert label in labels or label in added, f"{metric} has no label {label}"
            if operation == "=" and label not in added and "$" not in value:
                assert value in labels[label], f"{metric}: no series has {label}={value!r}"
    for names in GROUPED.findall(expr):
        assert {name.strip() for name in names.split(",") if name.strip()} <= all_labels, names


def test_legends_use_labels_that_are_left():
    for board in dashboards.ALL.values():
        for row in board.rows:
            for panel in row.panels:
                for query in panel.queries:
                    kept = set()
                    for names in GROUPED.findall(query.expr):
                        kept |= {name.strip() for name in names.split(",")}
                    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept, panel.title


def test_conditions_that_alerts_name_exist():
    texts = [rule["expr"] for rule in alert_rules()]
    named = {kind for text in texts for kind in re.findall(r'type="(\w+)"', text)}
    assert named
    assert named <= set(TYPES)
    assert any(f'controller="{CONTROLLER}"' in text for text in texts)


def test_the_reasons_that_hold_no_roll_are_those_of_the_operator():
    [rule] = [rule for rule in alert_rules() if rule.get("alert") == "QwenCachedServeRollHeld"]
    [left_out] = re.findall(r'reason!~"([^"]+)"', rule["expr"])
    assert set(left_out.split("|")) == HOLDS_NO_ROLL


def test_the_check_notices_what_nobody_exports():
    for wrong in (
        "vllm:prefix_cache_hit_total",
        'vllm:prefix_cache_hits_total{resource="x"}',
        'qwen_cached_serve_condition{type="Happy"}',
        'qwen_cached_serve_condition{reason="InvalidSpec"}',
        "sum by (resource) (vllm:prefix_cache_hits_total)",
    ):
        with pytest.raises(AssertionError):
            test_uses_what_is_exported(wrong)
