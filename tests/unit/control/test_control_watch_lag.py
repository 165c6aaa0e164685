"""What makes a watch dead, and what does not."""

import pytest
import structlog

from qwen_cached_serve.control.watch_lag import CHECK_SECONDS, COUNTED_CHECKS, WatchLag
from qwen_cached_serve.kube.port import PODS, SERVES
from qwen_cached_serve.observe.metrics import Metrics

PLACE = (SERVES, None)
pytestmark = pytest.mark.case("B55")


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Watched:
    """Comparisons CHECK_SECONDS apart, unless told otherwise."""

    def __init__(self, dead_seconds=300.0):
        self.clock, self.metrics = Clock(), Metrics()
        self.lag = WatchLag(self.metrics, dead_seconds=dead_seconds, monotonic=self.clock)

    def compare(self, listed, held, place=PLACE, after=CHECK_SECONDS):
        self.clock.now += after
        return self.lag.compared(place, listed, held)

    def metric(self, kind="QwenCachedServe"):
        return self.metrics.registry.get_sample_value("qwen_cached_serve_watch_behind_seconds", {"kind": kind})


def test_an_object_that_is_late_once_says_nothing():
    watched = Watched()
    assert watched.compare({"a": "9"}, {"a": "5"}) == set()
    assert watched.lag.doubtful() == (SERVES,)
    assert watched.lag.behind() == watched.lag.dead() == ""
    assert watched.metric() == 0
    assert watched.compare({"a": "9"}, {"a": "9"}) == set()
    assert watched.lag.doubtful() == ()


@pytest.mark.parametrize("held", [{"a": "5"}, {}], ids=["older", "missing"])
def test_still_late_at_the_next_comparison_is_behind_and_at_last_dead(held):
    watched = Watched()
    watched.compare({"a": "9"}, held)
    assert watched.compare({"a": "9"}, held) == {"a"}
    assert watched.lag.behind() == ("the API server has newer objects than the watch told: QwenCachedServe (for 30 s)")
    assert watched.metric() == 30
    for _ in range(8):
        watched.compare({"a": "9"}, held)
    assert (watched.metric(), watched.lag.dead()) == (270, "")
    watched.compare({"a": "9"}, held)
    assert "QwenCachedServe (for 300 s)" in watched.lag.dead()


def test_compared_again_too_soon_it_is_not_sure_yet():
    watched = Watched()
    watched.compare({"a": "9"}, {"a": "5"})
    assert watched.compare({"a": "9"}, {"a": "5"}, after=CHECK_SECONDS - 1) == set()
    assert watched.compare({"a": "9"}, {"a": "5"}, after=1) == {"a"}


def test_a_watch_that_is_only_slow_is_not_dead():
    watched = Watched()
    for version in range(10, 100):  # each comparison finds it one version late, another one each time
        watched.compare({"a": str(version)}, {"a": str(version - 1)})
    assert watched.lag.behind() == ""


def test_changes_meanwhile_do_not_excuse_a_dead_one():
    watched = Watched()
    for version in range(10, 21):
        watched.compare({"a": str(version)}, {"a": "5"})
    assert watched.lag.dead()


def test_numbers_are_compared_not_text():
    watched = Watched()
    watched.compare({"a": "100"}, {"a": "99"})
    assert watched.lag.doubtful() == (SERVES,)
    watched.compare({"a": "99"}, {"a": "100"})
    assert watched.lag.doubtful() == ()
    watched.compare({"a": "opaque"}, {"a": "1"})
    assert watched.lag.doubtful() == ()


def test_a_deleted_object_is_not_waited_for():
    watched = Watched()
    for _ in range(3):
        watched.compare({"a": "9"}, {})
    watched.compare({}, {})
    assert (watched.lag.behind(), watched.lag.doubtful(), watched.metric()) == ("", (), 0)


def test_the_time_of_an_outage_does_not_count():
    watched = Watched()
    watched.compare({"a": "9"}, {"a": "5"})
    watched.compare({"a": "9"}, {"a": "5"}, after=3600)  # nothing could be compared in between
    assert watched.metric() == COUNTED_CHECKS * CHECK_SECONDS
    assert watched.lag.dead() == ""


def test_recovery_clears_and_both_ends_are_told_once():
    watched = Watched()
    with structlog.testing.capture_logs() as lines:
        for _ in range(12):
            watched.compare({"a": "9"}, {"a": "5"})
        assert watched.lag.dead()
        watched.compare({"a": "9"}, {"a": "9"})
    assert watched.lag.behind() == watched.lag.dead() == ""
    assert watched.metric() == 0
    assert [line["event"] for line in lines] == ["a watch is behind", "a watch has caught up"]
    assert lines[0]["kind"] == "QwenCachedServe"


def test_kinds_and_namespaces_are_judged_apart():
    watched = Watched()
    for _ in range(2):
        watched.compare({"a": "9"}, {}, place=(PODS, "one"))
        watched.compare({"b": "9"}, {"b": "9"}, place=(PODS, "two"), after=0)
        watched.compare({"c": "9"}, {"c": "9"}, after=0)
    assert watched.lag.doubtful() == (PODS,)
    assert "Pod (for 30 s)" in watched.lag.behind()
    assert "QwenCachedServe" not in watched.lag.behind()
    assert watched.metric("Pod") == 30


def test_a_restart_can_be_ruled_out():
    watched = Watched(dead_seconds=0)
    for _ in range(100):
        watched.compare({"a": "9"}, {"a": "5"})
    assert watched.lag.behind()
    assert watched.lag.dead() == ""
