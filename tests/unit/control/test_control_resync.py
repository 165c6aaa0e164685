"""The comparison with the cluster after a broken watch, and the periodic look at everything."""

import asyncio

import pytest

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.control.handlers import CHILD_SELECTOR, Watcher
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.control.resync import Resync
from qwen_cached_serve.control.watch_lag import WatchLag
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import DEPLOYMENTS, SERVES, Transient
from qwen_cached_serve.observe.metrics import Metrics


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


UID = "uid-q"
KEY = ("ns", "q")
VERSIONS = {UID: "5", "uid-d": "6"}


def serve():
    return {
        "apiVersion": SERVES.api_version,
        "kind": SERVES.kind,
        "metadata": {"namespace": "ns", "name": "q", "uid": UID, "resourceVersion": "5"},
    }


def deployment():
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "namespace": "ns",
            "name": "q",
            "uid": "uid-d",
            "resourceVersion": "6",
            "labels": {OWNER_UID_LABEL: UID},
        },
    }


class FakeLists:
    """Answers lists of identities from a table of uids; everything not in it is empty. `newer`: versions that are not
    those of the first lists, and `objects` what `get` gives."""

    def __init__(self, **uids):
        self.uids = uids
        self.newer = {}
        self.objects = {}
        self.asked = []
        self.broken = False

    async def get(self, resource, namespace, name):
        return self.objects[resource.kind, namespace, name]

    async def list_identities(self, resource, namespace, *, selector=""):
        self.asked.append((resource.plural, namespace, selector))
        if self.broken:
            raise Transient("gone")
        return {uid: self.newer.get(uid, VERSIONS[uid]) for uid in self.uids.get(resource.plural, ())}, "100"


def made(port, period=600.0, namespaces=(), lag=None):
    cache, queue = Cache(), WorkQueue()
    cache.complete = True
    resource = Packed(serve())
    cache.attach({SERVES: {KEY: [resource], UID: [resource]}, DEPLOYMENTS: {UID: [Packed(deployment())]}})
    resync = Resync(
        port=port,
        cache=cache,
        queue=queue,
        lag=lag or WatchLag(Metrics(), dead_seconds=300.0),
        namespaces=namespaces,
        period_seconds=period,
        settle_seconds=0.01,
    )
    return cache, queue, resync


async def test_a_missed_deletion_is_found_and_its_owner_looked_at():
    port = FakeLists(qwencachedserves=[UID])
    cache, queue, resync = made(port)
    assert await resync.compare([DEPLOYMENTS]) == 1
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    assert not cache.snapshot(KEY).children
    assert port.asked == [("deployments", None, CHILD_SELECTOR)]


async def test_a_missed_deletion_of_a_resource_is_found():
    cache, queue, resync = made(FakeLists())
    assert await resync.compare([SERVES]) == 1
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    assert cache.snapshot(KEY) is None


async def test_nothing_is_concluded_from_a_failed_list():
    port = FakeLists()
    port.broken = True
    cache, queue, resync = made(port)
    assert await resync.compare([DEPLOYMENTS, SERVES]) == 0
    assert cache.snapshot(KEY).children
    assert len(queue) == 0


async def test_each_served_namespace_is_listed():
    port = FakeLists(deployments=["uid-d"])
    _, _, resync = made(port, namespaces=["a", "b"])
    await resync.compare([DEPLOYMENTS])
    assert [namespace for _, namespace, _ in port.asked] == ["a", "b"]


async def test_a_broken_watch_is_compared_soon_and_only_that_kind():
    port = FakeLists(qwencachedserves=[UID])
    _, queue, resync = made(port)
    running = asyncio.create_task(resync.run())
    for _ in range(100):
        resync.suspect(DEPLOYMENTS)
    assert await asyncio.wait_for(queue.get(), 2) == KEY
    assert [plural for plural, _, _ in port.asked] == ["deployments"]
    running.cancel()


async def test_everything_is_looked_at_now_and_then():
    port = FakeLists(qwencachedserves=[UID], deployments=["uid-d"])
    _, queue, resync = made(port, period=0.05)
    running = asyncio.create_task(resync.run())
    assert await asyncio.wait_for(queue.get(), 2) == KEY
    assert "deployments" in {plural for plural, _, _ in port.asked}
    running.cancel()


async def test_nothing_is_looked_at_before_the_first_lists_are_in():
    port = FakeLists(qwencachedserves=[UID], deployments=["uid-d"])
    cache, queue, resync = made(port, period=0.02)
    cache.complete = False
    waits = asyncio.Semaphore(0)
    wait = resync._wait

    def counted():
        waits.release()
        return wait()

    resync._wait = counted
    running = asyncio.create_task(resync.run())
    for _ in range(3):  # the start, and two rounds that only compared
        await asyncio.wait_for(waits.acquire(), 2)
    assert port.asked
    assert len(queue) == 0
    cache.complete = True
    assert await asyncio.wait_for(queue.get(), 2) == KEY
    running.cancel()


async def test_the_first_event_says_that_the_first_lists_are_in():
    cache, queue = Cache(), WorkQueue()
    watcher = Watcher(cache=cache, queue=queue, origin=Origin(), on_relist=print, on_gone=print)
    assert not cache.complete
    watcher._seen(SERVES, None, serve())
    assert cache.complete


@pytest.mark.case("B55")
async def test_what_the_watch_does_not_tell_is_read_and_looked_at():
    clock = Clock()
    port = FakeLists(qwencachedserves=[UID], deployments=["uid-d"])
    lag = WatchLag(Metrics(), dead_seconds=300.0, monotonic=clock)
    cache, queue, resync = made(port, lag=lag)
    edited = serve()
    edited["metadata"]["resourceVersion"] = port.newer[UID] = "9"
    port.objects[SERVES.kind, "ns", "q"] = edited
    await resync.compare([SERVES, DEPLOYMENTS])
    assert len(queue) == 0  # its event may be on its way
    assert lag.doubtful() == (SERVES,)
    clock.now += lag.check_seconds
    await resync.compare([SERVES])
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    assert cache.snapshot(KEY).serve["metadata"]["resourceVersion"] == "9"
    assert "QwenCachedServe" in lag.behind()
    queue.done(KEY)
    port.objects.clear()
    clock.now += lag.check_seconds
    await resync.compare([SERVES])  # it is known by now: not read, not looked at again
    assert len(queue) == 0


async def test_an_event_that_is_on_its_way_is_waited_for():
    port = FakeLists(qwencachedserves=[UID])
    lag = WatchLag(Metrics(), dead_seconds=300.0)
    cache, _, resync = made(port, lag=lag)
    port.newer[UID] = "9"
    arrived = serve()
    arrived["metadata"]["resourceVersion"] = "9"
    comparing = asyncio.create_task(resync.compare([SERVES]))
    await asyncio.sleep(0)
    cache.attach({SERVES: {KEY: [Packed(arrived)], UID: [Packed(arrived)]}})
    await comparing
    assert lag.doubtful() == ()


@pytest.mark.case("B55")
async def test_a_kind_that_was_late_is_compared_again_soon_and_alone():
    port = FakeLists(qwencachedserves=[UID])
    port.newer[UID] = "9"
    port.objects[SERVES.kind, "ns", "q"] = serve()
    lag = WatchLag(Metrics(), dead_seconds=300.0, check_seconds=0.02)
    _, _, resync = made(port, lag=lag)
    resync.suspect(SERVES)
    running = asyncio.create_task(resync.run())
    async with asyncio.timeout(5):
        while not lag.behind():  # noqa: ASYNC110 - what is checked has no event of its own
            await asyncio.sleep(0.01)
    running.cancel()
    assert {plural for plural, _, _ in port.asked} == {"qwencachedserves"}
