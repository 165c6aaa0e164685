"""The alerts of the chart, judged by promtool itself: when each fires, when not, and what it then says.

A scenario is a set of series and what must be firing at given times; the texts expected are those of the rule file with
the labels put in, so that they are written once.
"""

import json
import re
import subprocess
from dataclasses import dataclass, field

import pytest
import yaml

from tests.chart.helm_support import OPERATOR
from tools import dashboards

RULES = OPERATOR / "files" / "alerts.yaml"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
SERVED = 'namespace="llm",qwencachedserve="q"'
OPERATOR_PODS = 'job="qcs",instance="10.0.0.{}:8080"'


def condition(kind, status, values="1x60", name="q"):
    labels = f'namespace="llm",name="{name}",type="{kind}",status="{status}"'
    return f"qwen_cached_serve_condition{{{labels}}}", values


def stalled(reason, values="1x60"):
    """What the operator publishes while a person is needed: the condition, and its reason beside it."""
    labels = f'namespace="llm",name="q",reason="{reason}"'
    return [condition("Stalled", "True", values), (f"qwen_cached_serve_stalled{{{labels}}}", values)]


def refused(kind, reason, values="1x60"):
    labels = f'namespace="llm",name="q",kind="{kind}",reason="{reason}"'
    return f"qwen_cached_serve_child_refused{{{labels}}}", values


def leader(number, values):
    return [
        (f'qwen_cached_serve_operator_info{{{OPERATOR_PODS.format(number)},version="1"}}', "1x120"),
        (f'leader_election_master_status{{{OPERATOR_PODS.format(number)},name="qcs"}}', values),
    ]


@dataclass
class Scenario:
    name: str
    alert: str
    series: list
    firing_at: dict  # minutes -> labels of the alert, None: silent
    value: str = ""
    extra: dict = field(default_factory=dict)

    def __str__(self):
        return self.name


ONE = {"namespace": "llm", "name": "q"}
CACHED = {"namespace": "llm", "qwencachedserve": "q"}
RULE_MINUTES = 1


def counters(before, after, restarted_at=None, minutes=900):
    """Hit and query counters with that share of hits before and after; the engine's start time beside them."""
    roll = restarted_at or 0
    hits = f"0+{before}x{roll} 0+{after}x{minutes - roll}" if roll else f"0+{after}x{minutes}"
    queries = f"0+100x{roll} 0+100x{minutes - roll}" if roll else f"0+100x{minutes}"
    started = f"0x{roll} {roll * 60}x{minutes - roll}" if roll else f"0x{minutes}"
    return [
        (f"vllm:prefix_cache_hits_total{{{SERVED}}}", f"0x{minutes}"),
        (f"vllm:external_prefix_cache_hits_total{{{SERVED}}}", hits),
        (f"vllm:prefix_cache_queries_total{{{SERVED}}}", queries),
        (f'process_start_time_seconds{{{SERVED},endpoint="http"}}', started),
    ]


def reuse(soon, late):
    """Evicted chunks a minute that were asked for again within two minutes, and later or never."""
    gap = "lmcache_mp_l1_chunk_evict_reuse_gap_seconds"
    return [
        (f'{gap}_bucket{{{SERVED},le="120.0"}}', f"0+{soon}x240"),
        (f'{gap}_bucket{{{SERVED},le="300.0"}}', f"0+{soon + late}x240"),
        (f"{gap}_count{{{SERVED}}}", f"0+{soon + late}x240"),
    ]


SCENARIOS = [
    Scenario(
        "nobody answers",
        "QwenCachedServeUnavailable",
        [condition("Available", "False"), condition("Ready", "False")],
        {4: None, 6: ONE},
    ),
    Scenario(
        "nobody answers, told by two operators during a change of leader",
        "QwenCachedServeUnavailable",
        [
            (
                'qwen_cached_serve_condition{namespace="llm",name="q",type="Available",status="False",instance="a"}',
                "1x3",
            ),
            (
                'qwen_cached_serve_condition{namespace="llm",name="q",type="Available",status="False",instance="b"}',
                "_x3 1x60",
            ),
        ],
        {6: ONE},
    ),
    Scenario(
        "stopped on purpose",
        "QwenCachedServeUnavailable",
        [condition("Available", "False"), condition("Ready", "True")],
        {30: None},
    ),
    Scenario(
        "a short gap",
        "QwenCachedServeUnavailable",
        [condition("Available", "False", "1x3 _x60"), condition("Available", "True", "_x3 1x60")],
        {4: None, 10: None},
    ),
    Scenario(
        "the other one is down",
        "QwenCachedServeUnavailable",
        [condition("Available", "False", name="other"), condition("Available", "True")],
        {6: {"namespace": "llm", "name": "other"}},
    ),
    Scenario(
        "another N",
        "QwenCachedServeBlockSizeMismatch",
        [condition("BlockSizeVerified", "False")],
        {0: None, 2: ONE},
    ),
    Scenario(
        "not verified yet",
        "QwenCachedServeBlockSizeMismatch",
        [condition("BlockSizeVerified", "Unknown")],
        {30: None},
    ),
    Scenario(
        "a held roll while the former revision serves",
        "QwenCachedServeRollHeld",
        [*stalled("ImageTooOld"), condition("Available", "True"), condition("SpecAccepted", "True")],
        {0: None, 2: ONE},
    ),
    Scenario("rolled back", "QwenCachedServeRollHeld", stalled("RolledBack"), {2: ONE}),
    Scenario(
        "a child that the pods need is refused",
        "QwenCachedServeRollHeld",
        [*stalled("NameTaken"), refused("Service", "NameTaken")],
        {2: ONE},
    ),
    Scenario(
        "a refused edit is no held roll",
        "QwenCachedServeRollHeld",
        [*stalled("InvalidSpec"), condition("SpecAccepted", "False")],
        {30: None},
    ),
    Scenario(
        "a refused child beside the pods is no held roll",
        "QwenCachedServeRollHeld",
        [*stalled("OptionalChildRefused"), refused("PodMonitor", "ApplyRefused")],
        {30: None},
    ),
    Scenario(
        "a refused child beside a roll that is held",
        "QwenCachedServeRollHeld",
        [*stalled("ImageTooOld"), refused("PodMonitor", "ApplyRefused")],
        {2: ONE},
    ),
    Scenario(
        "a refused edit is a ticket",
        "QwenCachedServeSpecRefused",
        [*stalled("InvalidSpec"), condition("SpecAccepted", "False")],
        {14: None, 16: ONE},
    ),
    Scenario(
        "a refused child beside the pods is a ticket",
        "QwenCachedServeChildRefused",
        [*stalled("OptionalChildRefused"), refused("PodMonitor", "ApplyRefused")],
        {14: None, 16: ONE | {"kind": "PodMonitor"}},
    ),
    Scenario(
        "nobody is needed for a permission that is missing, and the ticket comes all the same",
        "QwenCachedServeChildRefused",
        [condition("Stalled", "False"), refused("NetworkPolicy", "ApplyForbidden")],
        {16: ONE | {"kind": "NetworkPolicy"}},
    ),
    Scenario(
        "the reason changes, the child is still not there",
        "QwenCachedServeChildRefused",
        [refused("NetworkPolicy", "ApplyForbidden", "1x10"), refused("NetworkPolicy", "ApplyFailed", "_x10 1x50")],
        {16: ONE | {"kind": "NetworkPolicy"}},
    ),
    Scenario(
        "refused for a while",
        "QwenCachedServeChildRefused",
        [refused("NetworkPolicy", "ApplyFailed", "1x10 _x50")],
        {16: None, 30: None},
    ),
    Scenario(
        "paged already: a child that the pods need",
        "QwenCachedServeChildRefused",
        [*stalled("NameTaken"), refused("Service", "NameTaken")],
        {30: None},
    ),
    Scenario(
        "refused beside a roll that is held for another reason",
        "QwenCachedServeChildRefused",
        [*stalled("ImageTooOld"), refused("PodMonitor", "NameTaken")],
        {16: ONE | {"kind": "PodMonitor"}},
    ),
    Scenario(
        "an older definition",
        "QwenCachedServeDefinitionOutdated",
        [("qwen_cached_serve_definition_unknown_fields", "2x60")],
        {14: None, 16: {}},
    ),
    Scenario(
        "the definition of this release",
        "QwenCachedServeDefinitionOutdated",
        [("qwen_cached_serve_definition_unknown_fields", "0x60")],
        {16: None},
    ),
    Scenario(
        "detached",
        "QwenCachedServeCacheDetached",
        [condition("CacheEffective", "False"), condition("BlockSizeVerified", "True")],
        {14: None, 16: ONE},
    ),
    Scenario(
        "back after ten minutes",
        "QwenCachedServeCacheDetached",
        [
            condition("CacheEffective", "False", "1x10 _x50"),
            condition("CacheEffective", "True", "_x10 1x50"),
            condition("BlockSizeVerified", "True"),
        ],
        {16: None, 30: None},
    ),
    Scenario(
        "switched off on purpose",
        "QwenCachedServeCacheDetached",
        [condition("CacheEffective", "False"), condition("BlockSizeVerified", "Unknown")],
        {30: None},
    ),
    Scenario(
        "no GPU",
        "QwenCachedServeWaitingForCapacity",
        [condition("CapacityAvailable", "False")],
        {29: None, 31: ONE},
    ),
    Scenario(
        "one leads, one waits",
        "QwenCachedServeOperatorAbsent",
        [*leader(1, "1x120"), *leader(2, "0x120")],
        {60: None},
    ),
    Scenario(
        "nobody leads",
        "QwenCachedServeOperatorAbsent",
        [*leader(1, "1x20 0x100"), *leader(2, "0x120")],
        {20: None, 32: {}},
    ),
    Scenario("no operator at all", "QwenCachedServeOperatorAbsent", [("up", "1x60")], {9: None, 11: {}}),
    Scenario(
        "leaders of other controllers do not count",
        "QwenCachedServeOperatorAbsent",
        [*leader(1, "0x120"), ('leader_election_master_status{job="other",instance="x",name="y"}', "1x120")],
        {11: {}},
    ),
    Scenario(
        "reconciles fail",
        "QwenCachedServeReconcileErrors",
        [('controller_runtime_reconcile_errors_total{controller="qwencachedserve",job="qcs"}', "0+1x60")],
        {20: None, 45: {"job": "qcs"}},
    ),
    Scenario(
        "no reconcile fails",
        "QwenCachedServeReconcileErrors",
        [('controller_runtime_reconcile_errors_total{controller="qwencachedserve",job="qcs"}', "3x60")],
        {45: None},
    ),
    Scenario(
        "a watch is dead",
        "QwenCachedServeWatchBehind",
        [
            ('qwen_cached_serve_watch_behind_seconds{job="qcs",kind="QwenCachedServe"}', "0x10 30+60x20 0x10"),
            ('qwen_cached_serve_watch_behind_seconds{job="qcs",kind="Pod"}', "0x60"),
        ],
        {10: None, 20: {"job": "qcs", "kind": "QwenCachedServe"}, 40: None},
    ),
    Scenario(
        "hits halved after a roll",
        "QwenCachedServeHitRateHalved",
        counters(80, 10, restarted_at=480),
        {479: None, 480 + 30: None, 480 + 100: CACHED, 480 + 370: None},
        value="10%",
    ),
    Scenario(
        "as many hits after a roll",
        "QwenCachedServeHitRateHalved",
        counters(80, 70, restarted_at=480),
        {480 + 100: None},
    ),
    Scenario(
        "few hits, but no roll",
        "QwenCachedServeHitRateHalved",
        [
            *counters(80, 10)[:1],
            (f"vllm:external_prefix_cache_hits_total{{{SERVED}}}", "0+80x480 38400+10x420"),
            *counters(80, 10)[2:],
        ],
        {480 + 100: None},
    ),
    Scenario(
        "hardly any hits before",
        "QwenCachedServeHitRateHalved",
        counters(5, 1, restarted_at=480),
        {480 + 100: None},
    ),
    Scenario("thrashing", "QwenCachedServeCacheThrashing", reuse(soon=3, late=1), {20: None, 45: CACHED}, value="75%"),
    Scenario(
        "evicts what nobody asks for", "QwenCachedServeCacheThrashing", reuse(soon=1, late=9), {45: None, 200: None}
    ),
    Scenario("nothing is evicted", "QwenCachedServeCacheThrashing", reuse(soon=0, late=0), {200: None}),
]


def expected(scenario, labels):
    rule = ALERTS[scenario.alert]
    text = {}
    for name, said in rule["annotations"].items():
        put = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], said)
        text[name] = put.replace("{{ $value | humanizePercentage }}", scenario.value)
    return {"exp_labels": rule["labels"] | labels, "exp_annotations": text}


def as_test(scenario):
    return {
        "name": scenario.name,
        "interval": f"{RULE_MINUTES}m",
        "input_series": [{"series": series, "values": values} for series, values in scenario.series],
        "alert_rule_test": [
            {
                "eval_time": f"{minutes}m",
                "alertname": scenario.alert,
                "exp_alerts": [] if labels is None else [expected(scenario, labels)],
            }
            for minutes, labels in scenario.firing_at.items()
        ],
    }


def judged(promtool, folder, tests):
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    return subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_fires_when_it_should_and_only_then(promtool, tmp_path, scenario):
    done = judged(promtool, tmp_path, [as_test(scenario)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_would_notice(promtool, tmp_path):
    """The scenarios can fail: the same series with the wrong expectation."""
    scenario = Scenario("wrong", SCENARIOS[0].alert, SCENARIOS[0].series, {6: None})
    done = judged(promtool, tmp_path, [as_test(scenario)])
    assert done.returncode == 1
    assert "exp:[]" in (done.stdout + done.stderr).replace(" ", "").replace("\n", "")


def test_every_alert_has_a_scenario_in_which_it_fires_and_one_in_which_not():
    fires = {s.alert for s in SCENARIOS if any(labels is not None for labels in s.firing_at.values())}
    silent = {s.alert for s in SCENARIOS if any(labels is None for labels in s.firing_at.values())}
    assert fires == silent == set(ALERTS)


def test_alerts_have_a_known_severity_and_texts():
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert set(rule["annotations"]) == {"summary", "description"}, name


def test_promtool_checks_the_rule_file(promtool):
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", dashboards.ALL)
def test_promtool_parses_every_query_of_the_dashboards(promtool, tmp_path, name):
    document = json.loads(dashboards.rendered(dashboards.ALL[name]))
    rules = []
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", "5m")
            rules.append({"record": f"panel:{panel['id']}:{target['refId']}", "expr": re.sub(r"\$\w+", ".*", expr)})
    assert len(rules) > 20
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
