"""Which revision is chosen, and what is stored of one."""

import base64
import dataclasses
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.core import changes, records, revision, stored
from qwen_cached_serve.core.records import FORMAT, RESTART_ANNOTATION, Content, Record, record_of
from qwen_cached_serve.core.revision import (
    HISTORY_LIMIT,
    HOLD_ANNOTATION,
    Blocked,
    Hold,
    Inputs,
    Make,
    Use,
    decide,
    held_off,
    hold_of,
    new_record,
)

ASKED = Inputs("spec-a", "", "vllm:1", "Operator")
RESOURCE = ("q", "uid-1")


def record(number=1, name="", **values):
    base = {
        "format": FORMAT,
        "spec_hash": "spec-a",
        "tuning_hash": "",
        "content_hash": f"content-{number}",
        "image": "vllm:1",
        "image_from": "Operator",
    }
    return Record(name=name or f"q-{number}", number=number, **(base | values))


def test_nothing_stored_makes_one():
    assert decide(ASKED, [], {}) == Make()


def test_the_same_key_gives_the_same_revision():
    assert decide(ASKED, [record(1), record(2, spec_hash="spec-b")], {}) == Use(record(1), latest=False)
    assert decide(ASKED, [record(1), record(2)], {}) == Use(record(2))


def test_another_spec_or_tuning_makes_one():
    assert decide(dataclasses.replace(ASKED, spec_hash="spec-c"), [record(1)], {}) == Make()
    assert decide(dataclasses.replace(ASKED, tuning_hash="t"), [record(1)], {}) == Make()


@pytest.mark.case("B35")
def test_the_operators_image_is_frozen():
    assert decide(dataclasses.replace(ASKED, image="vllm:2"), [record(1)], {}) == Use(record(1))


def test_an_image_that_the_spec_names_is_matched_by_name():
    given_image = dataclasses.replace(ASKED, image_from="Spec")
    assert decide(given_image, [record(1)], {}) == Use(record(1))  # the same as the operator had chosen
    assert decide(dataclasses.replace(given_image, image="vllm:2"), [record(1)], {}) == Make()


def test_no_image_is_not_the_one_that_the_spec_named_before():
    assert decide(ASKED, [record(1, image="mine:1", image_from="Spec")], {}) == Make()


LATER, EARLIER = "2026-11-29T12:00:00Z", "2026-11-29T11:00:00Z"


def test_a_restart_is_asked_for_once():
    asked = {RESTART_ANNOTATION: LATER}
    assert decide(ASKED, [record(1)], asked) == Make(LATER, requested=True)
    made = record(2, restarted_at=LATER, restart_seen=LATER)
    assert decide(ASKED, [record(1), made], asked) == Use(made)


@pytest.mark.parametrize("annotations", [{}, {RESTART_ANNOTATION: EARLIER}, {RESTART_ANNOTATION: "soon"}])
def test_taking_the_request_away_or_back_does_nothing(annotations):
    made = record(2, restarted_at=LATER, restart_seen=LATER)
    assert decide(ASKED, [record(1), made], annotations) == Use(made)


def test_times_are_compared_as_times():
    made = record(1, restart_seen="2026-11-29T12:00:00+00:00")
    assert isinstance(decide(ASKED, [made], {RESTART_ANNOTATION: "2026-11-29T13:00:00+01:00"}), Use)
    assert isinstance(decide(ASKED, [made], {RESTART_ANNOTATION: "2026-11-29T13:00:01+01:00"}), Make)


def test_going_back_to_a_spec_does_not_repeat_a_restart_made_meanwhile():
    old, restarted = record(1), record(2, spec_hash="spec-b", restarted_at=LATER, restart_seen=LATER)
    back = decide(ASKED, [old, restarted], {RESTART_ANNOTATION: LATER})
    assert back == Use(old, latest=False)
    again = revision.renumbered(old, [old, restarted])
    assert (again.number, again.restart_seen, again.restarted_at) == (3, LATER, "")
    # Even when the revision that it was made for is gone.
    assert decide(ASKED, [again], {RESTART_ANNOTATION: LATER}) == Use(again)


def test_a_request_that_cannot_be_read_is_told():
    assert "restarted-at is no time" in revision.restart_note({RESTART_ANNOTATION: "soon"})
    assert revision.restart_note({RESTART_ANNOTATION: LATER}) == revision.restart_note({}) == ""


def test_a_rollback_holds_until_the_spec_changes():
    good, bad = record(1, spec_hash="spec-b"), record(2)
    held = {HOLD_ANNOTATION: Hold("q-1", "spec-a").text()}
    assert decide(ASKED, [good, bad], held) == Use(good, held=True)
    assert decide(ASKED, [good, bad], held | {RESTART_ANNOTATION: LATER}) == Use(good, held=True)
    changed = dataclasses.replace(ASKED, spec_hash="spec-c")
    assert decide(changed, [good, bad], held) == Make()
    assert "Change the spec, or remove the annotation" in revision.held_words(good)


def test_a_rejected_revision_is_not_tried_again_until_it_is_asked_for():
    good, bad = record(1, spec_hash="spec-b"), record(2, rejected_for="q-1")
    assert decide(ASKED, [good, bad], {}) == Use(good, held=True, rejected=bad)
    assert "roll to revision 2" in revision.held_words(good, bad)
    assert decide(ASKED, [good, bad], {RESTART_ANNOTATION: LATER}) == Make(LATER, requested=True)
    assert decide(dataclasses.replace(ASKED, spec_hash="spec-c"), [good, bad], {}) == Make()
    assert decide(ASKED, [bad], {}) == Use(bad)  # what was to be used in its place is gone


def test_a_rollback_to_nothing_changes_nothing_and_says_so():
    decision = decide(ASKED, [record(1)], {HOLD_ANNOTATION: "q-9@spec-a"})
    assert isinstance(decision, Blocked)
    assert "q-9, which is not there" in decision.message


def test_a_rollback_ends_with_another_image_too():
    """The edit that mostly follows: the release after the one that failed."""
    records = [record(2, image="vllm:2", image_from="Spec"), record(1)]
    hold = {HOLD_ANNOTATION: Hold("q-1", held_off("spec-a", "vllm:2")).text()}
    asked = dataclasses.replace(ASKED, image="vllm:2", image_from="Spec")
    assert decide(asked, records, hold) == Use(record(1), held=True)
    assert decide(dataclasses.replace(asked, image="vllm:3"), records, hold) == Make()
    assert decide(ASKED, records, hold) == Use(record(1), latest=False)


@pytest.mark.parametrize("text", ["", "q-1", "@spec-a", "q-1@"])
def test_other_texts_hold_nothing(text):
    assert hold_of(text) is None
    assert decide(ASKED, [record(1)], {HOLD_ANNOTATION: text}) == Use(record(1))


def test_a_later_format_stops_everything():
    decision = decide(ASKED, [record(1), record(2, format=FORMAT + 1)], {HOLD_ANNOTATION: "q-1@spec-a"})
    assert isinstance(decision, Blocked)
    assert (decision.reason, "q-2" in decision.message) == ("NewerFormat", True)


def test_a_record_survives_the_cluster():
    one = record(
        3, restarted_at=EARLIER, restart_seen=LATER, rejected_for="q-2", config_map="q-pod-1", image_from="Spec"
    )
    manifest = {
        "metadata": {
            "name": one.name,
            "labels": records.labels_of(one),
            "annotations": records.annotations_of(one),
        },
        "revision": 3,
    }
    assert record_of(manifest) == one


def test_a_revision_without_its_format_is_not_read():
    assert record_of({"metadata": {"name": "q-1"}, "revision": 1}).format > FORMAT


def test_making_the_same_twice_meets_itself():
    first = new_record(ASKED, "content", "cm", [], RESOURCE, Make())
    assert new_record(ASKED, "content", "cm", [], RESOURCE, Make()) == first
    others = [
        new_record(dataclasses.replace(ASKED, spec_hash="b"), "content", "cm", [], RESOURCE, Make()),
        new_record(dataclasses.replace(ASKED, image="vllm:2"), "content", "cm", [], RESOURCE, Make()),
        new_record(dataclasses.replace(ASKED, image_from="Spec"), "content", "cm", [], RESOURCE, Make()),
        new_record(dataclasses.replace(ASKED, tuning_hash="t"), "content", "cm", [], RESOURCE, Make()),
        new_record(ASKED, "other", "cm", [], RESOURCE, Make()),
        new_record(ASKED, "content", "cm", [], ("q", "uid-2"), Make()),
        new_record(ASKED, "content", "cm", [], RESOURCE, Make(LATER)),
    ]
    assert len({first.name, *(one.name for one in others)}) == len(others) + 1
    assert first.number == 1
    assert new_record(ASKED, "content", "cm", [record(7)], RESOURCE, Make()).number == 8


def test_the_oldest_that_nothing_needs_go():
    records = [record(number) for number in range(1, 16)]
    gone = [one.name for one in revision.removable(records, {"q-15", "q-2"})]
    assert len(gone) == 15 - 2 - HISTORY_LIMIT
    assert gone == ["q-4", "q-3", "q-1"]
    assert revision.removable(records[:HISTORY_LIMIT], {"q-10"}) == []


@given(st.sets(st.integers(1, 40), min_size=1), st.sets(st.integers(1, 40)))
def test_what_is_needed_and_the_latest_always_stay(numbers, needed):
    records = [record(number) for number in sorted(numbers)]
    kept = {f"q-{number}" for number in needed}
    gone = {one.name for one in revision.removable(records, kept)}
    assert not gone & kept
    assert f"q-{max(numbers)}" not in gone
    assert len(records) - len(gone) <= HISTORY_LIMIT + len(kept & {one.name for one in records}) + 1


def test_history_is_newest_first_without_the_one_in_use():
    assert revision.history([record(1), record(3), record(2)], "q-3") == ("q-2", "q-1")


def content(**values):
    base = {
        "spec": {"model": {"name": "m"}},
        "config_map": {"metadata": {"name": "q-pod-1"}, "data": {"settings.json": "{}", "a.py": "x = 1\n" * 200}},
        "template": {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}},
    }
    return Content(**(base | values))


def test_what_is_stored_is_read_again():
    one = content()
    packed = stored.pack(one)
    assert packed == stored.pack(content())  # the same bytes, or a repeated creation would differ
    assert stored.unpack(packed, one.hash) == one
    assert len(packed["content"]) < len(one.config_map["data"]["a.py"])


def damaged():
    good = stored.pack(content())
    return [
        None,
        {},
        good | {"format": FORMAT + 1},
        good | {"encoding": "plain"},
        good | {"content": "not base64!"},
        good | {"content": base64.b64encode(b"no gzip").decode()},
        good | {"content": good["content"][:40]},
        good | {"content": base64.b64encode(gzip.compress(b"[]")).decode()},
        good | {"content": base64.b64encode(gzip.compress(b"{}")).decode()},
        stored.pack(content(template={})),
    ]


@pytest.mark.parametrize("data", damaged(), ids=range(len(damaged())))
def test_damaged_data_is_refused(data):
    with pytest.raises(stored.UnreadableRevision):
        stored.unpack(data, content().hash)


def test_changes_are_told_in_words():
    other = content(
        config_map={"metadata": {"name": "q-pod-2"}, "data": {"settings.json": "{ }", "a.py": "y"}},
        template={
            "metadata": {"labels": {}},
            "spec": {"containers": [{"name": "engine", "image": "vllm:2", "env": [{"name": "A", "value": "1"}]}]},
        },
    )
    assert changes.changes(content(), content()) == []
    found = changes.changes(content(), other)
    assert found == [
        "the pod's scripts (1 of 1 files)",
        "the pod's settings",
        "spec.containers[engine].env (added)",
        "spec.containers[engine].image: vllm:1 → vllm:2",
    ]
    assert changes.in_words([str(number) for number in range(10)]).endswith("7 and 2 more")
