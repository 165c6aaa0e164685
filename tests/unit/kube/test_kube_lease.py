"""The elector against an in-memory Lease with the API server's optimistic locking; time is moved by hand."""

import asyncio
import copy
import datetime as dt

import pytest

from qwen_cached_serve.kube import lease as lease_module
from qwen_cached_serve.kube.lease import LeaseElector, LeaseTimes, micro_time
from qwen_cached_serve.kube.port import Conflict, NotFound, Transient


class FakeLeases:
    """One Lease, as the API server keeps it: create refuses what exists, replace wants the current resourceVersion."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.broken = False
        self.writes = 0

    async def get(self, _resource, _namespace, _name):
        self._check()
        if self.lease is None:
            raise NotFound("leases not found", status=404)
        return copy.deepcopy(self.lease)

    async def create(self, _resource, manifest):
        self._check()
        if self.lease is not None:
            raise Conflict("exists", status=409)
        return self._store(manifest)

    async def replace(self, _resource, manifest):
        self._check()
        if manifest["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("modified", status=409)
        return self._store(manifest)

    def _store(self, manifest):
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def _check(self):
        if self.broken:
            raise Transient("connection refused")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


TIMES = LeaseTimes(lease=15, renew_deadline=10, retry=2)


def elector(leases, clock, identity, times=TIMES):
    return LeaseElector(leases, namespace="ns", name="l", identity=identity, times=times, monotonic=clock)


async def take(candidate):
    return await candidate._try()


async def test_first_candidate_leads_and_second_waits():
    leases, clock = FakeLeases(), Clock()
    first, second = elector(leases, clock, "first"), elector(leases, clock, "second")
    assert await take(first)
    assert first.leading
    assert not await take(second)
    assert not second.leading
    assert leases.lease["spec"]["holderIdentity"] == "first"
    assert leases.lease["spec"]["leaseTransitions"] == 0


async def test_expiry_is_judged_by_our_own_clock_from_when_the_renewal_was_seen():
    leases, clock = FakeLeases(), Clock()
    first, second = elector(leases, clock, "first"), elector(leases, clock, "second")
    await take(first)
    assert not await take(second)
    clock.now += 14
    assert not await take(second)
    await take(first)  # renewed: the 15 s start anew for whoever sees it
    clock.now += 10
    assert not await take(second)
    clock.now += 14.9
    assert not await take(second)
    clock.now += 0.2
    assert await take(second)
    assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_holder_with_a_clock_far_off_is_not_robbed():
    leases, clock = FakeLeases(), Clock()
    second = elector(leases, clock, "second")
    past = micro_time(dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    leases._store(
        {
            "metadata": {"namespace": "ns", "name": "l"},
            "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15, "renewTime": past, "acquireTime": past},
        }
    )
    assert not await take(second)


async def test_writing_is_allowed_for_less_than_others_wait():
    leases, clock = FakeLeases(), Clock()
    first, second = elector(leases, clock, "first"), elector(leases, clock, "second")
    await take(first)
    await take(second)
    clock.now += 9.9
    assert first.leading
    clock.now += 0.2
    assert not first.leading  # 10.1 s without renewal: not a leader any more, though nobody may take it for 5 s
    assert not await take(second)


async def test_renewal_keeps_acquire_time_and_transitions():
    leases, clock = FakeLeases(), Clock()
    first = elector(leases, clock, "first")
    await take(first)
    acquired = leases.lease["spec"]["acquireTime"]
    clock.now += 2
    await take(first)
    assert leases.lease["spec"]["acquireTime"] == acquired
    assert leases.lease["spec"]["leaseTransitions"] == 0
    assert leases.lease["spec"]["renewTime"].endswith("Z")


async def test_release_lets_the_next_one_in_at_once():
    leases, clock = FakeLeases(), Clock()
    first, second = elector(leases, clock, "first"), elector(leases, clock, "second")
    await take(first)
    await take(second)
    await first.release()
    assert not first.leading
    assert await take(second)


async def test_release_without_leadership_writes_nothing():
    leases, clock = FakeLeases(), Clock()
    first = elector(leases, clock, "first")
    await take(first)
    clock.now += 11
    before = leases.writes
    await first.release()
    assert leases.writes == before


async def test_both_at_once_only_one_leads():
    leases, clock = FakeLeases(), Clock()
    first, second = elector(leases, clock, "first"), elector(leases, clock, "second")
    won = await asyncio.gather(take(first), take(second))
    assert sorted(won) == [False, True]


QUICK = LeaseTimes(lease=0.3, renew_deadline=0.1, retry=0.02)


async def test_lead_ends_when_the_api_stays_away():
    leases = FakeLeases()
    loop = asyncio.get_running_loop()
    first = elector(leases, loop.time, "first", QUICK)
    await first.acquire()
    leases.broken = True
    started = loop.time()
    await asyncio.wait_for(first.lead(), 2)
    assert not first.leading
    assert loop.time() - started < 0.3  # before anybody else may take it


async def test_lead_survives_a_short_outage():
    leases = FakeLeases()
    loop = asyncio.get_running_loop()
    times = LeaseTimes(lease=3, renew_deadline=2, retry=0.02)
    first = elector(leases, loop.time, "first", times)
    await first.acquire()
    leading = asyncio.create_task(first.lead())
    leases.broken = True
    await asyncio.sleep(0.1)
    leases.broken = False
    before = leases.writes
    async with asyncio.timeout(2):
        while leases.writes == before:  # noqa: ASYNC110 - a stand-in without events
            await asyncio.sleep(0.01)
    assert not leading.done()
    assert first.leading
    leading.cancel()


async def test_lead_ends_when_somebody_else_took_the_lease():
    leases = FakeLeases()
    loop = asyncio.get_running_loop()
    first = elector(leases, loop.time, "first", QUICK)
    await first.acquire()
    stolen = copy.deepcopy(leases.lease)
    stolen["spec"]["holderIdentity"] = "thief"
    leases._store(stolen)
    await asyncio.wait_for(first.lead(), 2)
    assert not first.leading


def test_times_must_be_ordered():
    with pytest.raises(ValueError, match="lease > renew deadline > retry"):
        LeaseTimes(lease=10, renew_deadline=10, retry=2)


def test_micro_time_is_utc():
    moment = dt.datetime(2026, 11, 29, 20, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert micro_time(moment) == "2026-11-29T18:00:00.000005Z"
    assert lease_module._utc_now().tzinfo is dt.UTC
