"""The comparison with the cluster after a broken watch, and the periodic look at everything."""

import asyncio

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.control.handlers import CHILD_SELECTOR, Watcher
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.control.resync import Resync
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import DEPLOYMENTS, SERVES, Transient

UID = "uid-q"
KEY = ("ns", "q")


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
    """Answers lists of identities from a table; everything not in it is empty."""

    def __init__(self, **uids):
        self.uids = uids
        self.asked = []
        self.broken = False

    async def list_identities(self, resource, namespace, *, selector=""):
        self.asked.append((resource.plural, namespace, selector))
        if self.broken:
            raise Transient("gone")
        return set(self.uids.get(resource.plural, ())), "100"


def made(port, period=600.0, namespaces=()):
    cache, queue = Cache(), WorkQueue()
    cache.complete = True
    resource = Packed(serve())
    cache.attach({SERVES: {KEY: [resource], UID: [resource]}, DEPLOYMENTS: {UID: [Packed(deployment())]}})
    resync = Resync(
        port=port, cache=cache, queue=queue, namespaces=namespaces, period_seconds=period, settle_seconds=0.01
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


async def test_no_round_before_the_first_lists_are_in():
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
    for _ in range(3):  # the start, and two rounds that were left out
        await asyncio.wait_for(waits.acquire(), 2)
    assert port.asked == []
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
