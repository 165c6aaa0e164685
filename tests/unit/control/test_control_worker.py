"""What a worker does with a reconcile's end: forget, look again, back off, or stop."""

import asyncio
from dataclasses import dataclass, field

import pytest
import structlog

from qwen_cached_serve.control.queue import MAX_DELAY_SECONDS, WorkQueue
from qwen_cached_serve.control.worker import work
from qwen_cached_serve.kube.port import Conflict, Forbidden, Transient, WriteDenied
from qwen_cached_serve.observe.metrics import CONTROLLER, Metrics

KEY = ("ns", "q")


@dataclass
class Done:
    again_after_seconds: float | None = None
    summary: dict = field(default_factory=dict)


async def play(*ends):
    """Reconcile KEY once for each end (result or exception), then shut down; what was seen of it."""
    queue, metrics = WorkQueue(base_delay_seconds=0.001), Metrics()
    left = list(ends)
    calls = []
    wishes = []
    queue_add_after = queue.add_after
    queue_hold = queue.hold
    queue.add_after = lambda key, delay: (wishes.append(delay), queue_add_after(key, min(delay, 0.001)))[1]
    queue.hold = lambda key, delay: (wishes.append(("hold", delay)), queue_hold(key, 0.0))[1]

    async def reconcile(key):
        calls.append(key)
        end = left.pop(0)
        if not left:
            queue.shut_down()
        if isinstance(end, Exception):
            raise end
        return end

    queue.add(KEY)
    with structlog.testing.capture_logs() as lines:
        await asyncio.wait_for(work(queue, reconcile, metrics), 5)
    return calls, metrics, lines, wishes


def count(metrics, result):
    return metrics.registry.get_sample_value(
        "controller_runtime_reconcile_total", {"controller": CONTROLLER, "result": result}
    )


async def test_success_is_one_line_with_result_and_duration():
    calls, metrics, lines, _ = await play(Done(summary={"applied": 2}))
    assert calls == [KEY]
    assert count(metrics, "success") == 1
    [line] = lines
    assert line["event"] == "reconciled"
    assert (line["result"], line["applied"]) == ("success", 2)
    assert line["duration"] >= 0


async def test_wish_to_look_again_is_granted():
    calls, metrics, _, wishes = await play(Done(again_after_seconds=30.0), Done())
    assert calls == [KEY, KEY]
    assert wishes == [30.0]
    assert count(metrics, "requeue_after") == 1


@pytest.mark.parametrize("error", [Transient("gone"), Conflict("moved"), ValueError("a bug")])
async def test_failures_are_tried_again_later(error):
    calls, metrics, lines, wishes = await play(error, error, Done())
    assert len(calls) == 3
    assert len(wishes) == 2
    assert count(metrics, "error") == 2
    assert lines[0]["event"] == "reconcile failed"


async def test_failures_are_forgotten_after_a_success():
    queue = WorkQueue(base_delay_seconds=0.001)
    seen = []

    async def reconcile(key):
        seen.append(queue.failures(key))
        if len(seen) < 3:
            raise Transient("again")
        queue.shut_down()
        return Done()

    queue.add(KEY)
    await asyncio.wait_for(work(queue, reconcile, Metrics()), 5)
    assert seen == [0, 1, 2]
    assert queue.failures(KEY) == 0


@pytest.mark.case("B55")
async def test_retry_after_of_the_server_is_obeyed():
    *_, wishes = await play(Transient("slow down", status=429, retry_after_seconds=2.0), Done())
    assert wishes[0] == ("hold", 2.0)


async def test_a_proxy_that_asks_for_days_is_not_believed():
    *_, wishes = await play(Transient("slow down", status=429, retry_after_seconds=86400.0), Done())
    assert wishes[0] == ("hold", MAX_DELAY_SECONDS)


async def test_a_wait_of_our_own_ends_with_the_next_event():
    *_, wishes = await play(Conflict("the old one has to go first", status=409, retry_after_seconds=1.0), Done())
    assert wishes == [1.0]


@pytest.mark.case("B61")
async def test_terminating_namespace_is_no_hot_loop():
    words = "configmaps is forbidden: unable to create new content in namespace ns because it is being terminated"
    *_, wishes = await play(Forbidden(words, status=403), Done())
    assert wishes == [60.0]


async def test_without_leadership_a_worker_ends():
    queue = WorkQueue()
    queue.add(KEY)

    async def reconcile(_key):
        raise WriteDenied("no leadership")

    await asyncio.wait_for(work(queue, reconcile, Metrics()), 1)
