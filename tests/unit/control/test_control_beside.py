"""Optional children in the reconciler: applied before the pods, in nobody's way, removed when no longer asked for."""

import copy

import pytest

from qwen_cached_serve.control.apply import FAILED_AGAIN_SECONDS, REFUSED_AGAIN_SECONDS
from qwen_cached_serve.control.optional import Unusable
from qwen_cached_serve.kube.port import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    NETWORK_POLICIES,
    OPTIONAL,
    POD_MONITORS,
    SERVES,
    Conflict,
    Forbidden,
    Invalid,
    Transient,
)
from tests.unit.control.bench import KEY, Bench

ALL = {
    "networkPolicy": {"mode": "Enabled"},
    "disruptionBudget": {"maxUnavailable": 1},
    "monitoring": {"podMonitor": "Enabled"},
}


def applied(bench):
    return [kind for verb, kind, _ in bench.api.writes() if verb == "apply"]


async def test_they_come_before_the_pods_and_the_second_look_asks_nothing():
    bench = Bench(**ALL)
    await bench.look()
    assert applied(bench)[-1] == "Deployment"
    assert {kind.kind for kind in OPTIONAL} < set(applied(bench))
    assert bench.wanted == {KEY: set(OPTIONAL)}
    await bench.look()
    await bench.look()
    assert bench.api.requests == []


async def test_switched_on_and_off_the_pods_stay_and_no_revision_is_made():
    bench = Bench()
    await bench.look()
    template, revisions = copy.deepcopy(bench.template()), bench.revisions()
    bench.edit(**ALL)
    await bench.look()
    assert set(applied(bench)) == {kind.kind for kind in OPTIONAL}
    bench.edit()
    await bench.look()
    assert {kind for verb, kind, _ in bench.api.writes() if verb == "delete"} == {kind.kind for kind in OPTIONAL}
    assert not any(bench.api.of(kind) for kind in OPTIONAL)
    assert bench.wanted == {KEY: set()}
    assert (bench.template(), bench.revisions()) == (template, revisions)


async def test_what_somebody_added_to_a_selector_is_put_back():
    bench = Bench(**ALL)
    await bench.look()
    policy = copy.deepcopy(bench.api.of(NETWORK_POLICIES)["q"])
    policy["spec"]["podSelector"]["matchLabels"]["only"] = "some"
    bench.api.store(policy)
    outcome = await bench.look()
    assert outcome.summary["applied"] == ["NetworkPolicy/q (spec.podSelector.matchLabels.only)"]


@pytest.mark.parametrize("lifecycle", ["Paused", "Stopped"])
async def test_stopped_keeps_them_and_paused_touches_nothing(lifecycle):
    bench = Bench(**ALL)
    await bench.look()
    bench.edit(lifecycle=lifecycle, **ALL)
    await bench.look()
    bench.edit(lifecycle=lifecycle)
    await bench.look()
    left = [kind for kind in OPTIONAL if bench.api.of(kind)]
    assert left == (list(OPTIONAL) if lifecycle == "Paused" else [])


async def test_a_kind_that_the_cluster_lacks_is_a_note_and_no_fault():
    bench = Bench(**ALL)
    bench.unusable[POD_MONITORS] = Unusable(
        "NotServed", "this cluster does not serve monitoring.coreos.com/v1 PodMonitor"
    )
    outcome = await bench.look()
    assert "refused" not in outcome.summary
    assert "PodMonitor" not in applied(bench)
    accepted = bench.condition("SpecAccepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "AcceptedWithNotes")
    assert "No PodMonitor is made: this cluster does not serve" in accepted["message"]
    assert POD_MONITORS in bench.wanted[KEY]
    bench.settled()
    await bench.look()
    assert bench.condition("Ready")["status"] == "True"
    del bench.unusable[POD_MONITORS]
    await bench.look()
    assert applied(bench) == ["PodMonitor"]
    assert bench.condition("SpecAccepted")["reason"] == "Accepted"


async def test_a_paused_resource_does_not_wait_for_a_kind_that_the_cluster_lacks():
    bench = Bench(**ALL)
    bench.unusable[POD_MONITORS] = Unusable("NotServed", "not served")
    await bench.look()
    bench.settled()
    bench.edit(lifecycle="Paused", **ALL)
    await bench.look()
    assert bench.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("error", "reason", "stalled", "again"),
    [
        (Forbidden("may not", status=403), "ApplyForbidden", "False", REFUSED_AGAIN_SECONDS),
        (Invalid("spec.x: wrong", status=422), "ApplyRefused", "True", REFUSED_AGAIN_SECONDS),
        (Transient("webhook down", status=500), "ApplyFailed", "False", FAILED_AGAIN_SECONDS),
        (Conflict("modified", status=409, retry_after_seconds=2.0), "ApplyFailed", "False", 2.0),
    ],
)
async def test_what_the_server_says_of_one_is_told_and_the_pods_roll(error, reason, stalled, again):
    bench = Bench(**ALL)
    for _ in range(2):
        bench.api.refuse["apply", "NetworkPolicy"] = error
        outcome = await bench.look()
        assert outcome.summary["refused"] == [f"NetworkPolicy/q: {reason}"]
        assert outcome.again_after_seconds == again
        assert bench.condition("Ready")["reason"] == "RollInProgress"  # the pods matter more
        assert bench.condition("Stalled")["status"] == "False"
    for kind in (DEPLOYMENTS, DISRUPTION_BUDGETS, POD_MONITORS):
        assert bench.api.of(kind)
    bench.settled()
    bench.api.refuse["apply", "NetworkPolicy"] = error
    await bench.look()
    ready = bench.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert error.message in ready["message"]
    assert bench.condition("Stalled")["status"] == stalled
    assert (bench.condition("Stalled")["reason"] == "OptionalChildRefused") == (stalled == "True")
    told = [line for line in bench.metrics.expose().decode().splitlines() if line.startswith("qwen_cached_serve_")]
    refused = f'qwen_cached_serve_child_refused{{kind="NetworkPolicy",name="q",namespace="ns",reason="{reason}"}} 1.0'
    stuck = 'qwen_cached_serve_stalled{name="q",namespace="ns",reason="OptionalChildRefused"} 1.0'
    assert refused in told
    assert (stuck in told) == (stalled == "True")
    said = [event["reason"] for event in bench.api.of(EVENTS).values()]
    assert said.count("ChildRefused") == (stalled == "True")
    assert "StartFailed" not in said
    assert bench.condition("Available")["status"] == "True"
    assert bench.status()["revision"]["current"] == bench.status()["revision"]["updated"]
    await bench.look()
    assert bench.condition("Ready")["status"] == "True"
    assert bench.condition("Stalled")["status"] == "False"
    text = bench.metrics.expose().decode()
    assert "_refused{" not in text
    assert "_stalled{" not in text


@pytest.mark.case("B58")
async def test_a_taken_name_holds_up_that_child_only():
    bench = Bench(**ALL)
    foreign = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "ns", "name": "q"}}
    bench.api.store(foreign)
    outcome = await bench.look()
    assert outcome.summary["refused"] == ["PodDisruptionBudget/q: NameTaken"]
    assert {"Deployment", "NetworkPolicy", "PodMonitor"} < set(applied(bench))
    assert "spec" not in bench.api.of(DISRUPTION_BUDGETS)["q"]


async def test_a_taken_name_of_a_needed_child_stops_these_too():
    bench = Bench(**ALL)
    bench.api.store({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": "q"}, "spec": {}})
    await bench.look()
    assert applied(bench) == []


async def test_a_permission_to_read_that_is_missing_is_told_at_every_look_and_costs_no_write():
    bench = Bench(**ALL)
    bench.unusable[NETWORK_POLICIES] = Unusable("ApplyForbidden", "The operator may not list networkpolicies: no")
    await bench.look()
    bench.settled()
    await bench.look()
    await bench.look()
    assert bench.api.writes() == []
    ready = bench.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ApplyForbidden")
    assert "may not list networkpolicies" in ready["message"]


async def test_one_that_may_not_be_removed_is_told_and_the_rest_goes_on():
    bench = Bench(**ALL)
    await bench.look()
    bench.edit()
    bench.api.refuse["delete", "NetworkPolicy"] = Forbidden("may not delete", status=403)
    outcome = await bench.look()
    assert outcome.summary["refused"] == ["NetworkPolicy/q: ApplyForbidden"]
    assert not bench.api.of(DISRUPTION_BUDGETS)
    assert not bench.api.of(POD_MONITORS)


async def test_a_child_that_is_asked_for_is_not_removed_while_its_kind_cannot_be_read():
    bench = Bench(**ALL)
    await bench.look()
    bench.unusable[NETWORK_POLICIES] = Unusable("ApplyForbidden", "not any more")
    await bench.look()
    assert bench.api.of(NETWORK_POLICIES)


async def test_what_is_gone_asks_for_nothing():
    bench = Bench(**ALL)
    await bench.look()
    del bench.api.objects[SERVES.kind, "ns", "q"]
    await bench.look()
    assert bench.wanted[KEY] == set()
