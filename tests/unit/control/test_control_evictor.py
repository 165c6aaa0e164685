"""Evictions in order: written down, then sent, then told; at whatever moment the process ends."""

import datetime as dt
import json

import pytest

from qwen_cached_serve.api.v1alpha1.status import Status
from qwen_cached_serve.control.cache import OWNER_UID_LABEL
from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, Gpu, ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import termination_message
from qwen_cached_serve.kube.port import DEPLOYMENTS, EVENTS, PODS, Budget, Forbidden, Invalid, Transient
from tests.unit.control.bench import Bench
from tests.unit.control.fake_api import UID, replica_set

HASH = "abc"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget. b needs 2 healthy pods and has 2 currently"


def report(build, gpu=""):
    made = ProbeReport(
        block_size=784,
        kernel_block_size=16,
        attention_backends=("FLASH_ATTN",),
        versions=Versions("0.32.0", "0.5.6"),
        method="Construct",
        gpus=(Gpu(gpu, "GPU-1", "9.0", "580.1", 141 << 30),) if gpu else (),
    )
    settings = ServeSettings("m", EngineSettings("GPU"), CacheSettings(enabled=True))
    return termination_message(with_identity(settings, made, {}, "commit 0123456", {"vllm": build}), "0123456789abcdef")


def pod(name, build, minute, gpu=""):
    time = f"2026-11-28T23:{minute:02}:00Z"
    ended = {"exitCode": 0, "message": report(build, gpu), "finishedAt": time}
    running = {"running": {"startedAt": time}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": time,
            "labels": {OWNER_UID_LABEL: UID, "pod-template-hash": HASH},
        },
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [
                {"name": "probe", "state": {"terminated": ended}},
                {"name": "cache-server", "state": running, "started": True, "ready": True},
            ],
            "containerStatuses": [{"name": "engine", "state": running, "started": True, "ready": True}],
        },
    }


async def moved_tag():
    """Two pods of one template, the second made from another build under the same tag."""
    bench = Bench(replicas=2, rollout={"onCompatibilityChange": "Roll"})
    await bench.look()
    bench.settled()
    live = bench.api.of(DEPLOYMENTS)["q"]
    live["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = "1"
    made = replica_set(live, HASH)
    made["metadata"]["labels"] |= {OWNER_UID_LABEL: UID}
    bench.api.store(made)
    bench.api.store(live)
    for name, build, minute in (("old", "A" * 16, 1), ("new", "B" * 16, 30)):
        bench.api.store(pod(name, build, minute))
    return bench


def verbs(bench):
    return [request[:2] for request in bench.api.writes()]


def events(bench):
    return [one["reason"] for one in bench.api.of(EVENTS).values()]


async def test_it_is_written_down_before_it_is_sent_and_told_after():
    bench = await moved_tag()
    await bench.look()
    order = [request for request in bench.api.writes() if request[1] in ("QwenCachedServe", "Pod")]
    assert order == [("apply_status", "QwenCachedServe", "q"), ("evict", "Pod", "old")]
    assert [one["pod"] for one in bench.status()["evictions"]] == ["old"]
    assert events(bench).count("PodRecycled") == 1
    assert bench.metrics.registry.get_sample_value(
        "qwen_cached_serve_evictions_total", {"reason": "CompatibilityChanged", "result": "evicted"}
    )


async def test_nothing_more_is_sent_while_it_goes_or_is_replaced():
    bench = await moved_tag()
    await bench.look()
    await bench.look()
    assert ("evict", "Pod") not in verbs(bench)
    del bench.api.objects["Pod", "ns", "old"]
    bench.api.store(pod("newer", "B" * 16, 40))
    await bench.look()
    await bench.look()
    assert bench.api.writes() == []
    assert bench.condition("CacheCompatible")["status"] == "True"


@pytest.mark.parametrize("sent", [False, True], ids=["before the request", "after it"])
async def test_a_process_that_ends_in_between_is_continued(sent):
    bench = await moved_tag()
    evict = bench.api.evict

    async def ends(*place, **uid):
        if sent:
            await evict(*place, **uid)
        raise Transient("no answer")

    bench.api.evict = ends
    with pytest.raises(Transient):
        await bench.look()
    bench.api.evict = evict
    first = bench.status()["evictions"]
    bench.reconciler = bench.restarted()
    await bench.look()
    assert bench.api.of(PODS)["old"]["metadata"].get("deletionTimestamp")
    assert "deletionTimestamp" not in bench.api.of(PODS)["new"]["metadata"]
    assert bench.status()["evictions"] == first
    bench.reconciler = bench.restarted()
    await bench.look()
    assert ("evict", "Pod") not in verbs(bench)


@pytest.mark.parametrize("error", [Budget(BUDGET, status=429), Forbidden("pods/eviction is forbidden", status=403)])
async def test_a_refusal_is_no_error_is_told_once_and_tried_again(error):
    bench = await moved_tag()
    bench.api.refuse["evict", "Pod"] = error
    outcome = await bench.look()
    assert outcome.again_after_seconds == 60
    assert bench.status()["evictions"][0]["heldBack"] == error.message
    assert error.message in bench.condition("CacheCompatible")["message"]
    assert "PodRecycled" not in events(bench)
    bench.reconciler = bench.restarted()
    bench.now += dt.timedelta(minutes=1)
    bench.api.refuse["evict", "Pod"] = error
    await bench.look()
    assert verbs(bench) == [("evict", "Pod")]  # the same answer: nothing new to write
    bench.now += dt.timedelta(minutes=1)
    await bench.look()
    assert events(bench).count("PodRecycled") == 1
    await bench.look()
    assert "heldBack" not in bench.status()["evictions"][0]


async def test_a_long_denial_fits_into_the_status():
    denial = Forbidden("admission webhook denied the request: " + "policy x. " * 400, status=403)
    bench = await moved_tag()
    bench.api.refuse["evict", "Pod"] = denial
    await bench.look()
    assert bench.status()["evictions"][0]["heldBack"].startswith("admission webhook denied")
    Status.model_validate_json(json.dumps(bench.status()))
    bench.now += dt.timedelta(minutes=1)
    bench.api.refuse["evict", "Pod"] = denial
    await bench.look()
    assert verbs(bench) == [("evict", "Pod")]  # nothing new to write


@pytest.mark.case("B52")
async def test_without_a_place_to_write_it_down_nobody_is_evicted():
    bench = await moved_tag()
    bench.api.refuse["apply_status", "QwenCachedServe"] = Invalid(
        ".status.evictions: field not declared in schema", status=500
    )
    await bench.look()
    assert "evictions" not in bench.status()
    assert ("evict", "Pod") not in verbs(bench)


async def test_a_pod_that_took_the_name_meanwhile_is_left_alone():
    bench = await moved_tag()
    evict = bench.api.evict

    async def too_late(*place, **uid):
        other = pod("old", "B" * 16, 50)
        bench.api.store({**other, "metadata": {**other["metadata"], "uid": "another"}})
        return await evict(*place, **uid)

    bench.api.evict = too_late
    await bench.look()
    assert "deletionTimestamp" not in bench.api.of(PODS)["old"]["metadata"]
    assert "PodRecycled" not in events(bench)
