"""How often a status is written: news at once, repetitions twice a minute, in the long run never more often."""

import datetime as dt
import itertools

import pytest

from qwen_cached_serve.control.pace import BURST, Pace
from qwen_cached_serve.kube.port import PODS
from tests.unit.control.test_control_evictor import moved_tag, pod, verbs

KEY = ("ns", "q")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def status(reason="Serving", generation=1, ready="True", **figures):
    ready = {"type": "Ready", "status": ready, "reason": reason, "message": "words"}
    return {"conditions": [ready], "observedGeneration": generation, **figures}


def write(pace, *statuses):
    for one in statuses:
        assert pace.wait_seconds(KEY, one) == 0
        pace.wrote(KEY, one)


def test_news_goes_at_once():
    pace = Pace(Clock())
    write(pace, *(status(f"Reason{number}") for number in range(BURST)))
    assert pace.wait_seconds(KEY, status("OneMore")) == 30
    write(pace, status("OneMore", generation=2))  # somebody has edited the spec
    write(pace, *(status(f"Other{number}") | {"observedGeneration": 2} for number in range(BURST - 1)))


def test_an_eviction_and_what_holds_it_back_are_news():
    pace = Pace(Clock())
    going = {"uid": "u", "pod": "p"}
    write(pace, *(status(replicas=number) for number in range(2)))
    write(pace, status(evictions=[going]), status(evictions=[going | {"heldBack": "a budget"}]))


def busy(clock):
    """A pace whose stock is half used up, by what was written over a minute ago."""
    pace = Pace(clock)
    write(pace, *(status(f"Reason{number}") for number in range(BURST // 2 + 3)))
    clock.now += 61
    return pace


def test_figures_and_words_go_twice_a_minute_once_there_were_many():
    clock = Clock()
    pace = busy(clock)
    write(pace, status(replicas=1))
    clock.now += 10
    write(pace, status(replicas=2))
    clock.now += 10
    assert pace.wait_seconds(KEY, status(replicas=3)) == 40
    clock.now += 40
    write(pace, status(replicas=4))


def test_what_was_said_lately_is_no_news():
    clock = Clock()
    pace = busy(clock)
    write(pace, status("A"), status("B"))
    clock.now += 1
    assert pace.wait_seconds(KEY, status("A")) > 0
    assert pace.wait_seconds(KEY, status("C")) == 0


def test_whether_it_serves_is_told_at_once_although_it_was_said_lately():
    pace = busy(Clock())
    write(pace, status(replicas=1), status(replicas=2))
    assert pace.wait_seconds(KEY, status(replicas=3)) > 0
    write(pace, status("Settling", ready="False"), status())
    assert pace.wait_seconds(KEY, status(replicas=3)) > 0
    write(pace, status("Settling", ready="False"))


def test_flapping_between_two_answers_leaves_something_for_news():
    clock = Clock()
    pace, written = busy(clock), 0
    states = itertools.cycle([status("Settling", ready="False"), status()])
    for number in range(600):
        one = next(states)
        if pace.wait_seconds(KEY, one) == 0:
            pace.wrote(KEY, one)
            written += 1
        else:
            assert pace.wait_seconds(KEY, status(f"News{number}")) == 0
        clock.now += 1
    assert written <= BURST / 2 + 2 * 10


def test_resources_do_not_wait_for_each_other():
    pace = busy(Clock())
    write(pace, status(replicas=1), status(replicas=2))
    assert pace.wait_seconds(KEY, status(replicas=3)) > 0
    assert pace.wait_seconds(("ns", "other"), status(replicas=3)) == 0
    pace.forget(KEY)
    assert pace.wait_seconds(KEY, status(replicas=3)) == 0


def test_a_clock_that_is_set_back_costs_a_minute_at_most():
    clock = Clock()
    pace = busy(clock)
    write(pace, status(replicas=1), status(replicas=2))
    clock.now -= 500
    assert pace.wait_seconds(KEY, status(replicas=3)) <= 60
    clock.now += 60
    assert pace.wait_seconds(KEY, status("News")) == 0


@pytest.mark.case("B09")
async def test_fifty_pods_flapping_between_two_gpu_types_cost_two_writes_a_minute():
    """Every five seconds one pod goes and one comes up, on the other kind of node, some of them not ready."""
    bench = await moved_tag()
    bench.edit(replicas=50, rollout={"onCompatibilityChange": "Roll"})
    await bench.look()
    bench.settled()
    for name in ("old", "new"):
        del bench.api.objects["Pod", "ns", name]
    names = itertools.count()

    def store(kind):
        made = pod(f"p{next(names):05}", kind * 16, 1, gpu=f"NVIDIA {kind}")
        made["status"]["conditions"][0]["status"] = "False" if next(names) % 3 else "True"
        bench.api.store(made)

    for number in range(50):
        store("AB"[number % 2])
    times, seconds = [], 0
    begun = bench.now
    while seconds < 5 * 60:
        outcome = await bench.look()
        times += [seconds] * verbs(bench).count(("apply_status", "QwenCachedServe"))
        assert ("evict", "Pod") not in verbs(bench)
        if outcome.summary["status"] == "delayed":
            assert 0 < outcome.again_after_seconds <= 60
        seconds += 5
        bench.now = begun + dt.timedelta(seconds=seconds)
        del bench.api.objects["Pod", "ns", min(bench.api.of(PODS))]
        store("AB"[seconds // 6 % 2])
    first = [at for at in times if at < 60]
    assert len(first) <= BURST + 2
    for begin in range(120, 4 * 60, 30):
        within = [at for at in times if begin <= at < begin + 60]
        assert 1 <= len(within) <= 2, (begin, within)
