"""When a pod is replaced without anybody having asked, and when it is not: rules and bounds, one by one."""

import dataclasses
import datetime as dt
import json

import pytest

from qwen_cached_serve.core.eviction_memory import KEPT, Eviction, not_before, shown
from qwen_cached_serve.core.evictions import HELD_BACK_SECONDS, RECOVERY
from qwen_cached_serve.core.observed import Verification, observe
from qwen_cached_serve.core.plan import plan_resource
from qwen_cached_serve.core.revision import Blocked, RevisionState
from qwen_cached_serve.core.status import judge
from qwen_cached_serve.core.view import Subject
from tests.unit.core.test_status import (
    HASH,
    NOON,
    condition,
    deployment,
    message,
    replica_set,
    serving_pod,
    short,
    status_of,
    terminated,
)

ROLL = {"rollout": {"onCompatibilityChange": "Roll"}}
RECYCLE = {"cache": {"onUnavailable": "RecyclePod"}}
UNREGISTERED = Verification(784, 784, (784,), registered=False)
REGISTERED = Verification(784, 784, (784,), registered=True)
GRACE = RECOVERY + dt.timedelta(seconds=40)  # l1.size of the fixture: 40Gi


def at(minutes=0.0, seconds=0.0):
    return NOON + dt.timedelta(minutes=minutes, seconds=seconds)


def text(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def build(resolved, name, **changes):
    """A probe's message; `name` stands for another build of the same releases, which nothing else tells."""
    made = json.loads(message(resolved, **changes))
    return json.dumps(made | {"identity": f"{made['identity'][:-1]}{name}"})


class World:
    """A resource with pods, looked at again and again; its status is kept as the API server would."""

    def __init__(self, resolved, replicas=3, **spec):
        self.resolved = resolved({"replicas": replicas} | spec)
        self.now = NOON
        self.status = {}
        self.pods = {}
        self.verified = {}
        self.made = 0
        self.subject = {}
        self.figures = {}
        self.replicas = replicas

    def pod(self, name="A", minutes=None, gpu="NVIDIA H100 80GB HBM3", **parts):
        """One more pod, made now or that many minutes after noon, of the build `name`; '' has lost its report."""
        self.made += 1
        found = at(minutes) if minutes is not None else self.now
        end = terminated(text=build(self.resolved, name, gpu=gpu) if name else "")
        end["terminated"]["finishedAt"] = text(found)
        pod = serving_pod(self.resolved, f"q36-{HASH}-{self.made}", probe=status_of("probe", end), **parts)
        pod["metadata"]["creationTimestamp"] = text(found)
        self.pods[pod["metadata"]["name"]] = pod
        return pod["metadata"]["name"]

    def verify(self, name, answer):
        self.verified[name] = answer

    def look(self, **figures):
        serving = sum(1 for pod in self.pods.values() if pod["status"]["conditions"][0]["status"] == "True")
        dep = {"wanted": self.replicas, "updated": len(self.pods), "replicas": len(self.pods), "available": serving}
        seen = observe(
            deployment(**(dep | self.figures | figures)),
            [replica_set()],
            self.pods.values(),
            verifications=self.verified,
        )
        subject = {"revision": RevisionState(updated="q36-1")} | self.subject
        result = judge(
            Subject(1, self.resolved, plan_resource(self.resolved), previous=self.status, **subject), seen, self.now
        )
        self.status = result.status
        return result

    def evicts(self, **figures):
        """Look, and name the pod that is to go."""
        found = self.look(**figures).evict
        return found.pod if found else None

    def replace(self, name, build_name):
        """What the eviction leads to."""
        del self.pods[name]
        self.verified.pop(name, None)
        self.now += dt.timedelta(minutes=3)
        return self.pod(build_name)

    def words(self, kind):
        return condition(judge_result(self.status), kind)["message"]


class judge_result:  # noqa: N801 - the shape that `condition` reads
    def __init__(self, status):
        self.status = status


# Unasked changes (D9)


def moved_tag(resolved, replicas=3, **spec):
    """Old pods of build A, and the newest, made later, of build B."""
    world = World(resolved, replicas, **(ROLL | spec))
    for number in range(replicas - 1):
        world.pod("A", minutes=-60 + number)
    world.now = at(0)
    world.pod("B")
    return world


@pytest.mark.case("B11")
def test_the_older_ones_go_one_at_a_time_until_all_are_equal(resolved):
    world = moved_tag(resolved)
    first = world.evicts()
    assert first == f"q36-{HASH}-1"  # the oldest
    assert short(judge_result(world.status), "CacheCompatible") == ("False", "PodsDiffer")
    assert "one at a time" in world.words("CacheCompatible")
    world.pods[first]["metadata"]["deletionTimestamp"] = text(world.now)
    assert world.evicts() is None
    world.replace(first, "B")
    waiting = world.pods[f"q36-{HASH}-4"]
    waiting["status"]["conditions"][0]["status"] = "False"
    assert world.evicts() is None  # the replacement is not available yet
    waiting["status"]["conditions"][0]["status"] = "True"
    assert world.evicts(available=2) is None  # ready, but not for long enough
    second = world.evicts()
    assert second == f"q36-{HASH}-2"
    world.replace(second, "B")
    assert world.evicts() is None
    assert short(judge_result(world.status), "CacheCompatible") == ("True", "Identical")
    assert [entry["pod"] for entry in world.status["evictions"]] == [first, second]


def test_isolate_leaves_them_and_says_so(resolved):
    world = moved_tag(resolved, rollout={"onCompatibilityChange": "Isolate"})
    result = world.look()
    assert result.evict is None
    assert [event.reason for event in result.events if event.type == "Warning"] == ["CompatibilityChanged"]
    assert "Isolate" in world.words("CacheCompatible")
    assert "evictions" not in world.status


@pytest.mark.parametrize(("l2", "expected"), [(True, "Roll"), (False, "Isolate")])
def test_what_applies_where_nothing_is_said_depends_on_what_pods_share(resolved, l2, expected):
    shared = (
        {"cache": {"l2": [{"name": "disk", "type": "Filesystem", "filesystem": {"claimName": "kv"}}]}} if l2 else {}
    )
    assert resolved(shared).on_compatibility_change == expected


@pytest.mark.case("B09")
def test_mixed_gpus_are_isolated(resolved):
    world = World(resolved, 4, **ROLL)
    for minutes, gpu in ((-60, "NVIDIA L40S"), (-50, "NVIDIA B200"), (-40, "NVIDIA L40S"), (-5, "NVIDIA B200")):
        world.pod("A" if "L40S" in gpu else "B", minutes, gpu=gpu)
    assert world.evicts() is None
    assert "spec.pod.nodeSelector" in world.words("CacheCompatible")


@pytest.mark.case("B09")
def test_a_moved_tag_on_mixed_gpus_is_judged_for_each_model(resolved):
    world = World(resolved, 3, **ROLL)
    world.pod("A", -60, gpu="NVIDIA L40S")
    world.pod("B", -50, gpu="NVIDIA B200")
    world.pod("C", -5, gpu="NVIDIA L40S")
    assert world.evicts() == f"q36-{HASH}-1"


def test_a_replacement_with_the_old_identity_ends_it(resolved):
    world = moved_tag(resolved, replicas=2)
    gone = world.evicts()
    world.replace(gone, "A")
    for _ in range(3):
        world.now += dt.timedelta(hours=2)
        assert world.evicts() is None
    assert "has stopped" in world.words("CacheCompatible")
    assert len(world.status["evictions"]) == 1


def test_a_new_revision_begins_anew(resolved):
    world = moved_tag(resolved, replicas=2)
    identity = json.loads(build(world.resolved, "B"))["identity"]
    replaced = Eviction("u", "p", "CompatibilityChanged", "former", text(at(-300)), identity, "x")
    world.status = {"evictions": shown([replaced])}
    assert world.evicts() == f"q36-{HASH}-1"


def test_what_was_decided_and_not_done_has_replaced_nothing(resolved):
    """A budget keeps the older pod, and the newer one is replaced by another of the older kind."""
    world = moved_tag(resolved, replicas=2)
    assert world.evicts() == f"q36-{HASH}-1"
    world.replace(f"q36-{HASH}-2", "A")
    assert world.evicts() is None
    assert "evictions" not in world.status
    assert short(judge_result(world.status), "CacheCompatible") == ("True", "Identical")
    world.pods[world.replace(f"q36-{HASH}-3", "B")]["metadata"]["labels"]["note"] = "newest"
    first = world.look()
    assert world.look().evict == first.evict


def test_identities_that_do_not_follow_time_are_left_alone(resolved):
    world = World(resolved, 3, **ROLL)
    for minutes, name in ((-60, "A"), (-50, "B"), (-40, "A")):
        world.pod(name, minutes)
    assert world.evicts() is None
    assert "does not follow time" in world.words("CacheCompatible")


def test_pods_made_together_have_no_order(resolved):
    world = World(resolved, 2, **ROLL)
    world.pod("A", -60)
    world.pod("B", -60)
    assert world.evicts() is None


@pytest.mark.case("B59")
def test_a_lost_report_is_never_acted_on(resolved):
    world = moved_tag(resolved, replicas=2)
    world.pod("", minutes=-70)
    world.replicas = 3
    assert world.evicts() is None


@pytest.mark.case("B59")
def test_a_report_that_was_seen_counts_after_its_message_is_gone(resolved):
    world = World(resolved, 2, **ROLL)
    old = world.pod("A", -60)
    world.pod("A", -59)
    world.look()
    world.pods[old]["status"]["initContainerStatuses"][0]["state"]["terminated"]["message"] = ""
    world.replace(f"q36-{HASH}-2", "B")
    assert world.evicts() == old


def test_a_tag_that_moves_again_is_followed(resolved):
    world = moved_tag(resolved)
    world.replace(world.evicts(), "C")
    assert world.evicts() == f"q36-{HASH}-2"  # the last A
    world.replace(f"q36-{HASH}-2", "C")
    assert world.evicts() == f"q36-{HASH}-3"  # then the B
    world.replace(f"q36-{HASH}-3", "C")
    assert world.evicts() is None
    assert short(judge_result(world.status), "CacheCompatible")[0] == "True"


def changed(result):
    return [event.message for event in result.events if event.reason == "CompatibilityChanged"]


@pytest.mark.case("B11")
def test_a_single_pod_that_comes_back_as_another_is_told_once(resolved):
    world = World(resolved, 1, **ROLL)
    old = world.pod("A", -60)
    assert changed(world.look()) == []
    del world.pods[old]
    assert changed(world.look()) == []
    world.now += dt.timedelta(minutes=5)
    new = world.pod("B")
    [words] = changed(world.look())
    for name in ("A", "B"):
        assert json.loads(build(world.resolved, name))["identity"] in words
    assert changed(world.look()) == []
    world.subject = {"revision": RevisionState(updated="q36-2")}  # an edit: expected
    del world.pods[new]
    world.look()
    world.pod("C")
    assert changed(world.look()) == []


def test_what_was_told_when_pods_differed_is_not_told_again(resolved):
    world = moved_tag(resolved, replicas=2)
    world.look()
    gone = world.evicts()
    world.pods[gone]["metadata"]["deletionTimestamp"] = text(world.now)
    assert changed(world.look()) == []  # only those of build B are left
    world.replace(gone, "B")
    assert changed(world.look()) == []
    assert world.status["revision"]["identity"] == json.loads(build(world.resolved, "B"))["identity"]


# Recycling (D13)


def unregistered(resolved, replicas=2, **spec):
    world = World(resolved, replicas, **(RECYCLE | spec))
    for _ in range(replicas):
        world.verify(world.pod("A", -60), REGISTERED)
    world.look()
    world.verify(f"q36-{HASH}-1", UNREGISTERED)
    return world


@pytest.mark.case("B32")
def test_a_lost_registration_has_time_to_heal(resolved):
    world = unregistered(resolved)
    result = world.look()
    assert result.evict is None
    assert result.requeue_after_seconds == GRACE.total_seconds()
    assert text(NOON + GRACE) in world.words("CacheEffective")
    world.now += GRACE - dt.timedelta(seconds=1)
    assert world.evicts() is None
    world.now += dt.timedelta(seconds=1)
    assert world.evicts() == f"q36-{HASH}-1"


@pytest.mark.case("B32")
def test_what_heals_is_forgotten(resolved):
    world = unregistered(resolved)
    world.look()
    world.verify(f"q36-{HASH}-1", REGISTERED)
    world.now += GRACE
    assert world.evicts() is None
    world.verify(f"q36-{HASH}-1", UNREGISTERED)
    assert world.evicts() is None  # counts anew
    world.now += GRACE
    assert world.evicts() == f"q36-{HASH}-1"


def test_without_being_asked_for_it_serves_on(resolved):
    world = unregistered(resolved, cache={"onUnavailable": "ServeWithoutCache"})
    world.look()
    world.now += dt.timedelta(days=1)
    assert world.evicts() is None
    assert short(judge_result(world.status), "CacheEffective") == ("False", "NotRegistered")


def test_not_being_able_to_ask_neither_begins_nor_forgets(resolved):
    world = unregistered(resolved)
    world.look()
    del world.verified[f"q36-{HASH}-1"]  # a NetworkPolicy, or a restart of the operator
    before = world.status
    world.now += GRACE * 2
    assert world.evicts() is None
    assert world.status == before
    world.verify(f"q36-{HASH}-1", UNREGISTERED)
    assert world.evicts() == f"q36-{HASH}-1"
    del world.verified[f"q36-{HASH}-1"]
    before = world.status
    assert world.evicts() is None  # decided, and not carried out while it is not seen
    assert world.status == before


@pytest.mark.case("B31")
def test_another_life_of_the_engine_counts_anew(resolved):
    """An engine that was started again has passed the gate with a registration of its own; nothing is replaced."""
    world = unregistered(resolved)
    world.look()
    world.pods[f"q36-{HASH}-1"]["status"]["containerStatuses"][0]["restartCount"] = 1
    del world.verified[f"q36-{HASH}-1"]
    world.now += GRACE * 2
    assert world.evicts() is None
    world.verify(f"q36-{HASH}-1", REGISTERED)
    assert world.evicts() is None
    assert "evictions" not in world.status


def down(world, name, **end):
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = terminated(**({"code": 1, "text": "bye"} | end))
    world.pods[name]["status"]["initContainerStatuses"][1] = status_of("cache-server", state, restarts=5, last=last)


@pytest.mark.case("B32")
def test_a_cache_server_that_stays_away(resolved):
    """Its container's restarts do not start the time anew, and the pod may be out of the Service meanwhile."""
    world = World(resolved, 2, **RECYCLE)
    ill, _ = world.pod("A", -60), world.pod("A", -60)
    down(world, ill)
    assert world.evicts() is None
    world.now += GRACE
    world.pods[ill]["status"]["initContainerStatuses"][1]["restartCount"] = 9
    world.pods[ill]["status"]["conditions"][0]["status"] = "False"
    assert world.evicts() == ill


@pytest.mark.case("B32")
@pytest.mark.parametrize(
    "end", [{"code": 137, "reason": "OOMKilled"}, {"text": "ValueError: unknown L2 adapter type 'x'"}]
)
def test_what_would_meet_the_next_pod_as_well_is_no_reason(resolved, end):
    world = World(resolved, 2, **RECYCLE)
    ill, _ = world.pod("A", -60), world.pod("A", -60)
    down(world, ill, **end)
    world.look()
    world.now += GRACE
    assert world.evicts() is None
    assert short(judge_result(world.status), "CacheEffective")[0] == "False"


@pytest.mark.parametrize("mode", ["ServeWithoutCache", "RecyclePod"])
def test_another_block_size_is_replaced_in_either_mode_and_at_once(resolved, mode):
    world = World(resolved, 2, cache={"onUnavailable": mode})
    wrong, _ = world.pod("A", -60), world.pod("A", -60)
    world.verify(wrong, dataclasses.replace(REGISTERED, server_block_sizes=(800,)))
    assert world.evicts() == wrong
    assert world.status["evictions"][0]["reason"] == "BlockSizeMismatch"


def test_the_gravest_goes_first(resolved):
    world = moved_tag(resolved, **RECYCLE)
    wrong = f"q36-{HASH}-3"
    world.verify(wrong, dataclasses.replace(REGISTERED, engine_block_size=800))
    assert world.evicts() == wrong


# Bounds


@pytest.mark.parametrize(
    ("replicas", "mode", "expected"),
    [(1, "RecyclePod", True), (1, "ServeWithoutCache", False), (2, "RecyclePod", True)],
)
def test_the_last_one_that_answers_goes_only_where_that_is_asked_for(resolved, replicas, mode, expected):
    world = World(resolved, replicas, cache={"onUnavailable": mode})
    names = [world.pod("A", -60) for _ in range(replicas)]
    world.verify(names[0], dataclasses.replace(REGISTERED, engine_block_size=800))
    assert (world.evicts() == names[0]) is expected
    if not expected:
        assert "is the only one that answers" in world.words("BlockSizeVerified")


def test_two_ill_pods_are_not_both_taken(resolved):
    """With both without their cache one of them goes; the other stays until there is another that answers."""
    world = unregistered(resolved)
    world.verify(f"q36-{HASH}-2", UNREGISTERED)
    world.look()
    world.now += GRACE
    first = world.evicts()
    other = next(name for name in world.pods if name != first)
    del world.pods[first]
    assert world.evicts(replicas=1, updated=1) is None
    late = world.pod("A")
    world.pods[late]["status"]["conditions"][0]["status"] = "False"
    world.now += dt.timedelta(hours=2)
    assert world.evicts() is None
    world.pods[late]["status"]["conditions"][0]["status"] = "True"
    world.verify(late, REGISTERED)
    assert world.evicts() == other


HELD = RevisionState(updated="q36-1", held="The pods are held.")


@pytest.mark.parametrize(
    "change",
    [
        {"subject": {"edit_waits": True}},
        {"subject": {"apply_error": "no", "apply_reason": "ApplyForbidden"}},
        {"subject": {"revision": HELD}},
        {"subject": {"revision": RevisionState(updated="q36-1", blocked=Blocked("NewerFormat", "words"))}},
        {"subject": {"revision": None}},
        {"spec": {"lifecycle": "Paused"}},
        {"figures": {"generation": 2}},
        {"figures": {"updated": 1}},
        {"figures": {"wanted": 4}},
        {"figures": {"available": 2}},
    ],
    ids=str,
)
def test_nothing_while_something_else_is_in_progress_or_forbidden(resolved, change):
    world = moved_tag(resolved, **change.get("spec", {}))
    world.subject = change.get("subject", {})
    world.figures = change.get("figures", {})
    assert world.evicts() is None
    assert "evictions" not in world.status


def test_a_refused_child_beside_the_pods_keeps_none_of_them(resolved):
    """Stalled is True then, and not about pods."""
    world = moved_tag(resolved)
    world.subject = {"beside_error": "PodMonitor q36 is refused.", "beside_reason": "ApplyRefused"}
    found = world.look()
    assert short(found, "Stalled") == ("True", "OptionalChildRefused")
    assert found.evict is not None


def test_a_pod_of_another_template_is_a_roll(resolved):
    world = moved_tag(resolved)
    next(iter(world.pods.values()))["metadata"]["labels"]["pod-template-hash"] = "former"
    assert world.evicts() is None


def test_at_most_three_an_hour_whatever_for(resolved):
    world = moved_tag(resolved, replicas=6)
    times = []
    for _ in range(5):
        while (found := world.evicts()) is None:
            world.now += dt.timedelta(seconds=world.look().requeue_after_seconds)
        times.append(world.now)
        world.replace(found, "B")
    assert times[3] - times[0] == dt.timedelta(hours=1)
    assert all(later - first >= dt.timedelta(hours=1) for first, later in zip(times, times[3:], strict=False))
    assert world.evicts() is None
    assert short(judge_result(world.status), "CacheCompatible")[0] == "True"


def test_a_fault_that_comes_back_waits_longer_each_time():
    memory = [Eviction(f"u{n}", "p", "NotRegistered", HASH, text(at(minutes))) for n, minutes in enumerate((0, 10, 30))]
    assert not_before(memory[:1], "NotRegistered", HASH, at(1)) == at(10)
    assert not_before(memory[:2], "BlockSizeMismatch", HASH, at(11)) == at(30)
    assert not_before(memory, "NotRegistered", HASH, at(31)) == at(70)
    assert not_before(memory, "CompatibilityChanged", HASH, at(31)) == at(60)  # the hour only
    assert not_before(memory, "NotRegistered", "another", at(61)) is None
    assert not_before(memory, "NotRegistered", HASH, at(24 * 60 + 31)) is None


def test_a_steady_fault_costs_few_pods(resolved):
    world = unregistered(resolved)
    world.look()
    evicted = []
    end = at(24 * 60)
    while world.now < end:
        found = world.evicts()
        if found:
            evicted.append(world.now)
            world.verify(world.replace(found, "A"), UNREGISTERED)
        else:
            world.now += dt.timedelta(minutes=1)
    assert len(evicted) <= 10
    assert evicted[-1] - evicted[-2] > dt.timedelta(hours=5)
    assert all(later - first > dt.timedelta(hours=1) for first, later in zip(evicted, evicted[3:], strict=False))


# What is remembered


def test_what_was_decided_is_sent_again_after_a_restart(resolved):
    """The status names the pod before it goes, and nothing else is needed to go on."""
    world = moved_tag(resolved)
    first = world.look()
    stored = json.loads(json.dumps(world.status))
    world.status = stored
    again = world.look()
    assert again.evict == first.evict
    assert again.status == stored
    assert again.requeue_after_seconds == HELD_BACK_SECONDS


def test_what_is_no_longer_so_is_taken_back(resolved):
    world = unregistered(resolved)
    world.look()
    world.now += GRACE
    assert world.evicts()
    world.verify(f"q36-{HASH}-1", REGISTERED)
    assert world.evicts() is None
    assert "evictions" not in world.status


def test_a_replacement_that_is_seen_before_its_predecessor_goes_forgets_nothing(resolved):
    """The watch's events about two pods come in either order (Kubernetes 1.34, a busy machine: one was forgotten)."""
    world = moved_tag(resolved)
    first = world.evicts()
    world.pod("")  # no report yet; the evicted one still looks alive
    assert world.evicts() is None
    assert [entry["pod"] for entry in world.status["evictions"]] == [first]
    del world.pods[first]
    assert world.evicts() is None
    assert [entry["pod"] for entry in world.status["evictions"]] == [first]


def test_paused_keeps_what_was_decided_and_does_nothing(resolved):
    world = moved_tag(resolved)
    decided = world.evicts()
    world.resolved = dataclasses.replace(world.resolved, lifecycle="Paused")
    assert world.evicts() is None
    world.resolved = dataclasses.replace(world.resolved, lifecycle="Running")
    assert world.evicts() == decided
    assert len(world.status["evictions"]) == 1


def test_a_refusal_is_told_and_tried_again(resolved):
    world = moved_tag(resolved)
    uid = world.look().evict.uid
    world.subject = {"refused": {uid: "The disruption budget b needs 3 healthy pods and has 3 currently."}}
    refused = world.look()
    assert refused.status["evictions"][0]["heldBack"].startswith("The disruption budget b")
    assert "needs 3 healthy pods and has 3 currently. " not in world.words("CacheCompatible")
    assert "held back and tried again every minute: The disruption budget b" in world.words("CacheCompatible")
    world.subject = {}
    world.now += dt.timedelta(minutes=1)
    again = world.look()
    assert again.status == refused.status
    assert again.evict.uid == uid
    del world.pods[again.evict.pod]
    assert "heldBack" not in world.look().status["evictions"][0]


def test_the_memory_is_bounded(resolved):
    world = moved_tag(resolved, replicas=20)
    for _ in range(19):
        while (found := world.evicts()) is None:
            world.now += dt.timedelta(minutes=5)
        world.replace(found, "B")
    assert len(world.status["evictions"]) == KEPT


def test_an_ill_pod_is_shown_whatever_its_name(resolved):
    world = World(resolved, 30, **RECYCLE)
    names = [world.pod("A", -60) for _ in range(30)]
    hidden = sorted(names)[-1]
    world.verify(hidden, UNREGISTERED)
    world.look()
    world.now += GRACE
    assert world.evicts() == hidden


@pytest.mark.case("B09")
def test_fifty_pods_flapping_between_two_gpu_types(resolved):
    """Whatever node each new pod gets: nobody is evicted, and the message says what to do."""
    world = World(resolved, 50, **ROLL)
    gpus = ("NVIDIA L40S", "NVIDIA B200")
    for number in range(50):
        world.pod("AB"[number % 2], -60, gpu=gpus[number % 2])
    for number in range(200):
        world.now += dt.timedelta(seconds=7)
        gone = sorted(world.pods)[number % 50]
        del world.pods[gone]
        assert world.evicts() is None
        kind = (number // 3) % 2
        world.pod("AB"[kind], gpu=gpus[kind])
        assert world.evicts() is None
    assert "spec.pod.nodeSelector" in world.words("CacheCompatible")
