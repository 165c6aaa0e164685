"""Followers of optional kinds against a source that is played by hand; a real API server does it in tests/cluster."""

import asyncio
import contextlib

import pytest

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.control.optional import OptionalChildren
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.kube.port import POD_MONITORS, SERVES, Change, Forbidden, NotFound, Transient

KEY, OWNER = ("ns", "q"), "uid-of-q"


def monitor(name="q", version=1, owner=OWNER):
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {OWNER_UID_LABEL: owner},
        },
        "spec": {},
    }


class PlayedSource:
    """Each call of `changes` plays what `say` gives it, in order; a `None` ends the watch."""

    def __init__(self):
        self.lists = 0
        self._said = asyncio.Queue()

    def say(self, *told):
        for one in told:
            self._said.put_nowait(one)

    async def changes(self, resource, namespace, *, selector=""):
        self.lists += 1
        while (told := await self._said.get()) is not None:
            if isinstance(told, Exception):
                raise told
            yield told


class Stage:
    def __init__(self, namespaces=()):
        self.source = PlayedSource()
        self.cache = Cache()
        serve = {
            "apiVersion": SERVES.api_version,
            "kind": SERVES.kind,
            "metadata": {"namespace": "ns", "name": "q", "uid": OWNER, "resourceVersion": "1"},
        }
        self.cache.attach({SERVES: {KEY: [Packed(serve)], OWNER: [Packed(serve)]}})
        self.queue = WorkQueue()
        self.optional = OptionalChildren(
            source=self.source,
            cache=self.cache,
            queue=self.queue,
            namespaces=namespaces,
            kinds=(POD_MONITORS,),
            retry_seconds=0.0,
            pause_seconds=0.0,
        )

    def known(self):
        return {name: child for (kind, name), child in self.cache.snapshot(KEY).children.items()}

    def problem(self):
        found = self.optional.problem(POD_MONITORS, "ns")
        return found.reason if found else ""

    async def queued(self):
        """The next key; the queue holds it no longer."""
        key = await asyncio.wait_for(self.queue.get(), 5)
        self.queue.done(key)
        return key

    async def until(self, check):
        async with asyncio.timeout(5):
            while not check():  # noqa: ASYNC110 - what is checked has no event of its own
                await asyncio.sleep(0)


@pytest.fixture
async def stage():
    made = Stage()
    tasks = [asyncio.create_task(follow) for _, follow in made.optional.followers()]
    yield made
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_is_listed_and_told_is_in_the_cache_and_wakes_the_owner(stage):
    assert stage.problem() == "ApplyFailed"  # not read yet
    stage.source.say(Change("LISTED", (monitor(version=5),)))
    await stage.optional.tried()
    assert stage.problem() == ""
    assert stage.known()["q"]["kind"] == "PodMonitor"  # items of a list carry no kind
    assert await stage.queued() == KEY
    stage.source.say(Change("MODIFIED", (monitor(version=6),)))
    assert await stage.queued() == KEY
    assert stage.known()["q"]["metadata"]["resourceVersion"] == "6"
    stage.source.say(Change("DELETED", (monitor(version=7),)))
    assert await stage.queued() == KEY
    assert stage.known() == {}


async def test_a_list_after_a_watch_tells_what_was_missed(stage):
    stage.source.say(Change("LISTED", (monitor("a"), monitor("b"))), None)
    await stage.until(lambda: stage.source.lists == 2)
    await stage.queued()
    stage.source.say(Change("LISTED", (monitor("b"), monitor("c"))))
    assert await stage.queued() == KEY
    assert set(stage.known()) == {"b", "c"}


async def test_a_list_that_tells_nothing_new_wakes_nobody(stage):
    stage.source.say(Change("LISTED", (monitor(),)), None)
    await stage.queued()
    stage.source.say(Change("LISTED", (monitor(),)), Change("ADDED", (monitor("other", owner="somebody"),)))
    await stage.until(lambda: len(stage.optional._index[POD_MONITORS]) == 2)
    assert stage.queue.idle
    assert not stage.queue._due


async def test_an_object_that_changes_hands_is_the_others(stage):
    stage.source.say(Change("LISTED", (monitor(),)), Change("MODIFIED", (monitor(version=2, owner="somebody"),)))
    await stage.until(lambda: "somebody" in stage.optional._index[POD_MONITORS])
    assert stage.known() == {}


async def test_a_kind_that_is_not_served_is_looked_for_while_somebody_asks(stage):
    stage.source.say(NotFound("the server could not find the requested resource"))
    await stage.optional.tried()
    assert stage.problem() == "NotServed"
    assert stage.source.lists == 1  # nobody asks
    stage.optional.wants(KEY, {POD_MONITORS})
    stage.source.say(NotFound("still not"), NotFound("still not"), Change("LISTED", ()))
    assert await stage.queued() == KEY
    assert stage.problem() == ""
    assert stage.source.lists == 4


async def test_nobody_looks_for_it_once_nobody_asks_any_more(stage):
    stage.optional.wants(KEY, {POD_MONITORS})
    stage.optional.wants(KEY, ())
    stage.source.say(NotFound("not served"), NotFound("not served"))
    await stage.optional.tried()
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.source.lists == 1


async def test_a_definition_that_goes_takes_its_objects_along(stage):
    stage.optional.wants(KEY, {POD_MONITORS})
    stage.source.say(Change("LISTED", (monitor(),)), None, NotFound("the definition was removed"))
    await stage.until(lambda: stage.problem() == "NotServed")
    assert stage.known() == {}


async def test_a_missing_permission_names_itself(stage):
    stage.source.say(Forbidden('User "x" cannot list resource "podmonitors"', status=403))
    await stage.optional.tried()
    assert stage.problem() == "ApplyForbidden"
    assert 'cannot list resource "podmonitors"' in stage.optional.problem(POD_MONITORS, "ns").message


async def test_a_broken_watch_is_no_reason_to_stop_using_what_is_known(stage):
    stage.source.say(Change("LISTED", (monitor(),)), Transient("connection lost"))
    await stage.until(lambda: stage.source.lists == 2)
    assert stage.problem() == ""
    assert set(stage.known()) == {"q"}


@pytest.mark.case("B55")
async def test_the_time_that_the_server_asks_for_is_given(stage):
    began = asyncio.get_running_loop().time()
    stage.source.say(Transient("slow down", status=429, retry_after_seconds=0.05))
    await stage.until(lambda: stage.source.lists == 2)
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_trouble_at_the_first_list_keeps_nobody_waiting(stage):
    stage.source.say(Transient("no answer"))
    await stage.optional.tried()
    assert stage.problem() == "ApplyFailed"


def test_namespaces_are_followed_one_by_one():
    async def names():
        made = Stage(namespaces=("ns", "other"))
        followers = made.optional.followers()
        for _, follow in followers:
            follow.close()
        return [name for name, _ in followers], made.optional.problem(POD_MONITORS, "third").reason

    assert asyncio.run(names()) == (["watch-podmonitors-ns", "watch-podmonitors-other"], "ApplyForbidden")
