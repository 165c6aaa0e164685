"""An API server with bad days: it throttles, loses answers, contradicts, and goes silent about one kind."""

import time

import pytest

from qwen_cached_serve.control.handlers import WATCHED
from qwen_cached_serve.kube.port import DEPLOYMENTS, SERVES, NotFound
from tests.cluster.faulty_api import AnswerLost, Conflicting, FaultyApi, Throttled
from tests.cluster.operator_resources import children, condition, report, serve, serving, with_message
from tests.cluster.operator_support import eventually

PATIENCE = 60.0
"""Seconds; each refusal costs two, and a busy machine its own time."""


@pytest.fixture
async def faulty(cluster):
    async with FaultyApi(cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def through(faulty, operator_kubeconfig, tmp_path):
    """Kubeconfig of an operator whose every request goes through `faulty`."""
    return faulty.kubeconfig_through(operator_kubeconfig, tmp_path / "kubeconfig")


def with_chunks(number):
    """An edit that rolls the pods."""
    return {"spec": {"cache": {"chunkBlocks": number}}}


async def carried_out(api, namespace, generation, name="q"):
    """The resource and its children once it serves with that generation of its spec, and the status has no fault."""
    resource, found = await serving(api, namespace, name)
    assert resource["metadata"]["generation"] == resource["status"]["observedGeneration"] == generation
    assert condition(resource, "Stalled")["status"] == "False"
    assert condition(resource, "Reconciling")["status"] == "False"
    return resource, found


async def gone(api, namespace, uid, name="q"):
    try:
        await api.get(SERVES, namespace, name)
    except NotFound:
        return not await children(api, namespace, uid)
    return False


@pytest.mark.case("B55")
async def test_every_second_request_throttled_loses_no_change(cluster, api, namespace, start_operator, faulty, through):
    """Every second list, watch and patch is answered 429, after all watches were cut: what is made, edited and deleted
    meanwhile is carried out, and nothing is asked for again before the time that the server named."""
    operator = await start_operator(kubeconfig=through)
    await eventually(lambda: faulty.watched() >= {kind.plural for kind in WATCHED})
    faulty.fault = lambda asked: Throttled() if asked.verb in ("get", "watch", "patch") and asked.count % 2 else None
    faulty.requests.clear()
    faulty.cut()
    cluster.apply(*(with_message(serve(namespace, name=name), report(784)) for name in ("q", "other")))
    resource, _ = await eventually(lambda: carried_out(api, namespace, 1), PATIENCE)
    faulty.cut()
    cluster.patch(namespace, "qcs", "q", with_chunks(2))
    await eventually(lambda: carried_out(api, namespace, 2), PATIENCE)
    faulty.cut()
    cluster.kubectl("delete", "-n", namespace, "qcs/q", "--wait=false")
    await eventually(lambda: gone(api, namespace, resource["metadata"]["uid"]), PATIENCE)
    await eventually(lambda: 'name="q"' not in operator.fetch(operator.metrics_port, "/metrics")[1], PATIENCE)
    await eventually(lambda: carried_out(api, namespace, 1, "other"), PATIENCE)
    assert [len(faulty.faults(Throttled, verb)) > 0 for verb in ("get", "watch", "patch")] == [True] * 3
    assert faulty.early() == []
    assert operator.fetch(operator.health, "/healthz")[0] == 200
    assert operator.alive()


@pytest.mark.case("B55")
async def test_a_dead_watch_is_noticed_told_and_survived(cluster, api, namespace, start_operator, faulty, through):
    """Watch and list of QwenCachedServe are refused for long after they had worked. An edit is found by comparing and
    carried out once and for all; /readyz, metric and log name the kind, later /healthz asks for a restart; once the
    server answers again everything is as before, and what was created meanwhile is carried out, too."""
    operator = await start_operator("--resync-seconds", "10", "--watch-behind-seconds", "50", kubeconfig=through)
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: carried_out(api, namespace, 1), PATIENCE)
    assert health(operator) == (200, 200)
    resources = SERVES.path(namespace)
    faulty.fault = lambda asked: Throttled(1) if asked.path == resources and not asked.comparing else None
    assert faulty.cut(lambda asked: asked.path == resources) == 1
    cluster.patch(namespace, "qcs", "q", with_chunks(2))
    cluster.apply(with_message(serve(namespace, name="late"), report(784)))

    await eventually(lambda: health(operator) == (200, 503), PATIENCE)
    assert "QwenCachedServe" in operator.fetch(operator.health, "/readyz")[1]
    assert operator.metric("qwen_cached_serve_watch_behind_seconds", kind="QwenCachedServe") > 0
    assert operator.metric("qwen_cached_serve_watch_behind_seconds", kind="Deployment") == 0
    assert [line["kind"] for line in operator.events("a watch is behind")] == ["QwenCachedServe"]
    await eventually(lambda: carried_out(api, namespace, 2), PATIENCE)
    rolled = await api.get(DEPLOYMENTS, namespace, "q")

    def dead():
        # Whatever happens meanwhile, the former spec, which is all that the watch ever told, is not taken up again.
        # (A label does not count as a generation of the Deployment; an annotation would.)
        cluster.patch(namespace, "deployment", "q", {"metadata": {"labels": {"touched": str(time.monotonic_ns())}}})
        return health(operator) == (503, 503)

    await eventually(dead, 2 * PATIENCE, interval=1.0)
    assert "QwenCachedServe" in operator.fetch(operator.health, "/healthz")[1]
    assert (await api.get(DEPLOYMENTS, namespace, "q"))["metadata"]["generation"] == rolled["metadata"]["generation"]

    faulty.fault = lambda _asked: None
    await eventually(lambda: health(operator) == (200, 200), 2 * PATIENCE)
    await eventually(lambda: carried_out(api, namespace, 1, "late"), PATIENCE)
    await carried_out(api, namespace, 2)
    assert operator.metric("qwen_cached_serve_watch_behind_seconds") == 0
    assert [line["kind"] for line in operator.events("a watch has caught up")] == ["QwenCachedServe"]
    assert faulty.early() == []


def health(operator):
    return operator.fetch(operator.health, "/healthz")[0], operator.fetch(operator.health, "/readyz")[0]


@pytest.mark.case("B58")
async def test_a_lost_answer_makes_nothing_twice(cluster, api, namespace, start_operator, faulty, through):
    """The answer to the first write of the Deployment is lost: one Deployment with one ReplicaSet, no fault in the
    status at any time."""
    deployment = DEPLOYMENTS.path(namespace, "q")
    faulty.fault = lambda asked: AnswerLost() if asked.place[:2] == ("patch", deployment) and asked.count == 1 else None
    await start_operator(kubeconfig=through)
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: carried_out(api, namespace, 1), PATIENCE)
    assert len(faulty.faults(AnswerLost, "patch")) == 1
    await only_one(cluster, api, namespace)


@pytest.mark.case("B58")
async def test_two_conflicts_are_no_fault(cluster, api, namespace, start_operator, faulty, through):
    """The first write of the Deployment and the second of the status are answered 409: both are made again, no fault in
    the status at any time."""
    # Not the first status: it would tell that the Deployment was refused.
    disturbed = {DEPLOYMENTS.path(namespace, "q"): 1, SERVES.path(namespace, "q", "status"): 2}
    faulty.fault = lambda asked: (
        Conflicting() if asked.verb == "patch" and disturbed.get(asked.path) == asked.count else None
    )
    await start_operator(kubeconfig=through)
    cluster.apply(with_message(serve(namespace), report(784)))
    await eventually(lambda: carried_out(api, namespace, 1), PATIENCE)
    assert {asked.path for asked in faulty.faults(Conflicting, "patch")} == set(disturbed)
    await only_one(cluster, api, namespace)


async def only_one(cluster, api, namespace):
    """One Deployment, one ReplicaSet, one ConfigMap of ours, and no event that speaks of trouble."""
    resource = await api.get(SERVES, namespace, "q")
    found = await children(api, namespace, resource["metadata"]["uid"])
    assert sorted(kind for kind, _ in found) == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
    assert len(cluster.get("replicaset", "-n", namespace)["items"]) == 1
    events = cluster.get("events", "-n", namespace)["items"]
    ours = [event for event in events if event["involvedObject"]["kind"] == SERVES.kind]
    assert [event["reason"] for event in ours if event["type"] == "Warning"] == []
