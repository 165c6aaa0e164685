"""What holds of evictions whatever happens to pods, reports and registrations, and that they come to an end."""

import datetime as dt
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from qwen_cached_serve.core.eviction_memory import COMPATIBILITY, KEPT, MISMATCH
from qwen_cached_serve.core.observed import Verification
from qwen_cached_serve.core.records import moment
from tests.unit.core.test_evictions import RECYCLE, REGISTERED, ROLL, UNREGISTERED, World, text

OTHER_BLOCKS = Verification(784, 800, (800,), registered=True)
ANSWERS = (REGISTERED, UNREGISTERED, OTHER_BLOCKS, None)
BUILDS = ("A", "B", "C", "")
POLICIES = (ROLL, RECYCLE, ROLL | RECYCLE, {"rollout": {"onCompatibilityChange": "Isolate"}})
COMMON = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
# A resource is resolved anew for each of them, since only its settings are fixed.

numbers = st.integers(0, 7)
usually = st.sampled_from((True, True, True, False))
ill = st.sampled_from((UNREGISTERED, OTHER_BLOCKS))
# Mostly what leads to evictions and lets them go through: a fault, patience, a replacement that serves. Disturbances
# are mostly over by the next look but one, since nothing happens while they last.
steps = st.one_of(
    *[st.tuples(st.just("settle"))] * 4,
    *[st.tuples(st.just("carry out"), st.sampled_from("BBBC"), usually)] * 6,
    *[st.tuples(st.just("wait"), st.just(20))] * 4,
    *[st.tuples(st.just("answers"), numbers, ill)] * 4,
    st.tuples(st.just("carry out"), st.sampled_from(BUILDS), usually),
    st.tuples(st.just("wait"), st.sampled_from((1, 3, 11, 61, 400))),
    st.tuples(st.just("answers"), numbers, st.sampled_from(ANSWERS)),
    st.tuples(st.just("unready"), numbers),
    st.tuples(st.just("delete"), numbers),
    st.tuples(st.just("gone"), st.sampled_from(BUILDS), usually),
    st.tuples(st.just("refuse")),
)
beginnings = st.one_of(
    st.lists(st.sampled_from(BUILDS), min_size=6, max_size=6),
    st.integers(1, 6).map(lambda older: ["A"] * older + ["B"] * 6),
)


class History:
    """A world that is driven; every look checks what must always hold."""

    def __init__(self, resolved, replicas, policy, builds):
        self.world = World(resolved, replicas, **policy)
        self.recycles = "cache" in policy
        self.alone = replicas == 1 and self.recycles
        self.rolls = policy.get("rollout") == ROLL["rollout"]
        self.decided: dict[str, dt.datetime] = {}
        self.next = None
        for number, build in enumerate(builds[:replicas]):
            self.world.verify(self.world.pod(build, -60 + number), REGISTERED)

    @property
    def live(self):
        return [name for name, pod in self.world.pods.items() if "deletionTimestamp" not in pod["metadata"]]

    def serves(self, name):
        return self.world.pods[name]["status"]["conditions"][0]["status"] == "True"

    def chosen(self, number):
        return self.live[number % len(self.live)] if self.live else None

    def look(self):
        world = self.world
        result = world.look()
        entries = world.status.get("evictions", [])
        assert len(entries) <= KEPT
        assert sum(entry["pod"] in self.live for entry in entries) <= 1, "two at a time"
        self.next = result.evict
        if result.evict is None:
            return
        name, reason = result.evict.pod, result.evict.reason
        assert name in self.live
        assert len(self.live) == len(world.pods) == world.replicas, "while other pods come or go"
        assert entries[-1]["uid"] == result.evict.uid, "told before it is done"
        others = [one for one in self.live if one != name and self.serves(one)]
        assert others or not self.serves(name) or (self.alone and reason != COMPATIBILITY), "the last one that answers"
        if reason == COMPATIBILITY:
            assert self.rolls
            assert result.evict.target != result.evict.identity
        else:
            assert reason == MISMATCH or self.recycles, reason
        if result.evict.uid not in self.decided:
            self.decided[result.evict.uid] = world.now
            recent = [one for one in self.decided.values() if world.now - one < dt.timedelta(hours=1)]
            assert len(recent) <= 3, "in an hour"
        again = world.look().evict
        assert (again.uid, again.reason) == (result.evict.uid, reason), "an operator that starts now does the same"

    def vanish(self, name, build, ready):
        """The pod is gone, and its ReplicaSet has made another, which takes three minutes to serve, or longer."""
        del self.world.pods[name]
        self.world.verified.pop(name, None)
        self.world.now += dt.timedelta(minutes=3)
        new = self.world.pod(build)
        self.world.verify(new, REGISTERED)
        self._set_ready(new, ready)

    def step(self, kind, *what):
        getattr(self, f"_{kind.replace(' ', '_')}")(*what)

    def _wait(self, minutes):
        self.world.now += dt.timedelta(minutes=minutes)

    def _carry_out(self, build, ready):
        if self.next and self.next.pod in self.world.pods:
            self.vanish(self.next.pod, build, ready)

    def _refuse(self):
        self.world.subject = {"refused": {self.next.uid: "A budget says no."}} if self.next else {}

    def _gone(self, build, ready):
        for name in [one for one in self.world.pods if one not in self.live][:1]:
            self.vanish(name, build, ready)

    def _settle(self):
        for name in self.world.pods.keys() - set(self.live):
            self.vanish(name, "B", ready=True)
        for name in self.live:
            self._set_ready(name, True)

    def _answers(self, number, answer):
        if name := self.chosen(number):
            self.world.verify(name, answer)

    def _delete(self, number):
        if name := self.chosen(number):
            self.world.pods[name]["metadata"]["deletionTimestamp"] = text(self.world.now)

    def _unready(self, number):
        if name := self.chosen(number):
            self._set_ready(name, False)

    def _set_ready(self, name, ready):
        self.world.pods[name]["status"]["conditions"][0]["status"] = "True" if ready else "False"


@pytest.mark.case("B32")
@COMMON
@given(
    replicas=st.integers(1, 6),
    policy=st.sampled_from(POLICIES),
    builds=beginnings,
    history=st.lists(steps, max_size=40),
)
@example(6, ROLL, ["A"] * 5 + ["B"], [("carry out", "B", True)] * 5)
def test_the_bounds_hold_in_any_history(resolved, replicas, policy, builds, history):
    made = History(resolved, replicas, policy, builds)
    made.look()
    for step in history:
        made.step(*step)
        made.look()


@pytest.mark.case("B11")
@COMMON
@given(
    replicas=st.integers(2, 4),
    builds=st.lists(st.sampled_from("AB"), min_size=4, max_size=4),
    arrivals=st.lists(st.sampled_from("ABC"), min_size=8, max_size=8),
)
def test_unasked_changes_come_to_an_end(resolved, replicas, builds, arrivals):
    """Whatever each replacement turns out to be, and however patiently one waits."""
    made = History(resolved, replicas, ROLL, builds)
    quiet = 0
    for arrival in [*arrivals, *["C"] * 40]:
        made.look()
        if made.next is None:
            quiet += 1
        else:
            quiet = 0
            made.vanish(made.next.pod, arrival, ready=True)
        made.world.now += dt.timedelta(minutes=61)
    assert quiet > 5
    identities = {json.loads(said)["identity"] for said in messages(made.world)}
    assert len(identities) == 1 or made.world.words("CacheCompatible")
    assert all(moment(entry["time"]) for entry in made.world.status.get("evictions", []))


def messages(world):
    for pod in world.pods.values():
        yield pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["message"]
