"""The work queue's promises, in the event loop's own time (no wall clock waits beyond a few milliseconds)."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen_cached_serve.control.queue import JITTER, ShutDown, WorkQueue


async def take(queue):
    return await asyncio.wait_for(queue.get(), 1)


async def is_empty(queue):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.01)
    return True


async def test_burst_for_one_key_is_one_piece_of_work():
    queue = WorkQueue()
    for _ in range(50):
        queue.add("a")
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue)


async def test_key_is_never_with_two_workers_and_an_add_meanwhile_is_kept():
    queue = WorkQueue()
    queue.add("a")
    await take(queue)
    queue.add("a")
    queue.add("a")
    assert await is_empty(queue)
    queue.done("a")
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue)


async def test_keys_come_in_the_order_they_were_added():
    queue = WorkQueue()
    for key in "cab":
        queue.add(key)
    assert [await take(queue) for _ in range(3)] == ["c", "a", "b"]


async def test_add_after_keeps_the_earliest_wish():
    queue = WorkQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.02)
    queue.add_after("a", 30)
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue)


async def test_an_add_now_answers_a_later_wish():
    queue = WorkQueue()
    queue.add_after("a", 0.01)
    queue.add("a")
    await take(queue)
    queue.done("a")
    await asyncio.sleep(0.03)
    assert await is_empty(queue)


@pytest.mark.case("B55")
async def test_a_key_on_hold_waits_whatever_happens():
    queue = WorkQueue()
    queue.add("a")
    queue.add_after("a", 0.001)
    assert await take(queue) == "a"
    queue.add("a")  # while it is worked on
    began = asyncio.get_running_loop().time()
    queue.hold("a", 0.05)
    queue.done("a")
    queue.add("a")
    queue.add_after("a", 0.001)
    queue.add("b")
    assert await take(queue) == "b"
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    assert asyncio.get_running_loop().time() - began >= 0.05
    queue.done("a")
    assert await is_empty(queue)
    queue.add("a")  # and no longer than that
    assert await take(queue) == "a"


async def test_failures_wait_longer_each_time_until_forgotten():
    queue = WorkQueue(rng=random.Random(1), base_delay_seconds=1, max_delay_seconds=100)
    delays = [queue.add_failed("a") for _ in range(10)]
    for number, delay in enumerate(delays):
        ideal = min(100, 2**number)
        assert ideal * (1 - JITTER) <= delay <= ideal
    assert queue.failures("a") == 10
    queue.forget("a")
    assert queue.add_failed("a") <= 1
    queue.shut_down()


async def test_failures_without_end_do_not_overflow():
    queue = WorkQueue()
    for _ in range(2000):
        queue.add_failed("a")
    assert queue.add_failed("a") <= 300
    queue.shut_down()


async def test_shut_down_ends_waiting_workers_and_drops_what_waits():
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    queue.add("a")
    for task in waiting:
        with pytest.raises(ShutDown):
            await task
    with pytest.raises(ShutDown):
        await queue.get()


class Recorder:
    def __init__(self):
        self.lines = []

    def added(self, depth):
        self.lines.append(("added", depth))

    def started(self, depth, waited_seconds):
        assert waited_seconds >= 0
        self.lines.append(("started", depth))

    def finished(self, worked_seconds):
        assert worked_seconds >= 0
        self.lines.append(("finished",))

    def retried(self):
        self.lines.append(("retried",))


async def test_observer_is_told_depth_and_retries():
    seen = Recorder()
    queue = WorkQueue(observer=seen, base_delay_seconds=0.001)
    queue.add("a")
    queue.add("b")
    await take(queue)
    queue.done("a")
    queue.add_failed("a")
    assert seen.lines == [("added", 1), ("added", 2), ("started", 1), ("finished",), ("retried",)]
    assert await take(queue) == "b"
    assert await take(queue) == "a"


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_every_add_is_followed_by_a_look_and_no_key_is_worked_on_twice_at_once(script, workers):
    async def play():
        queue = WorkQueue()
        running = set()
        last_look = {}
        clock = 0

        async def work():
            nonlocal clock
            while True:
                try:
                    key = await queue.get()
                except ShutDown:
                    return
                assert key not in running
                running.add(key)
                clock += 1
                last_look[key] = clock
                await asyncio.sleep(0)
                running.discard(key)
                queue.done(key)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        added = {}
        for key, breathe in script:
            clock += 1
            added[key] = clock
            queue.add(key)
            if breathe:
                await asyncio.sleep(0)
        async with asyncio.timeout(2):
            while not queue.idle:  # noqa: ASYNC110 - the queue has no event for it
                await asyncio.sleep(0)
        queue.shut_down()
        await asyncio.gather(*tasks)
        for key, when in added.items():
            assert last_look[key] > when

    asyncio.run(play())
