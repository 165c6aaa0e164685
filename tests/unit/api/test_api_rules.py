"""The table of rules by itself: both examples for each, and twins that judge them as they should."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen_cached_serve.api.rules import RULES, reserved, select
from qwen_cached_serve.api.rules.rule import quote, split
from qwen_cached_serve.api.validate import normalise
from qwen_cached_serve.inpod.flags import RESERVED_CACHE_SERVER_FLAGS, RESERVED_ENGINE_FLAGS, reserved_pattern

BASE = {"model": {"name": "Qwen/Qwen3.5-0.8B"}, "cache": {"l1": {"size": "10Gi"}}}


def merged(base, change):
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return {key: merged(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}


PATTERNS = {
    table.program: [re.compile(reserved_pattern(part)) for part in (table, *reserved.parts(table))]
    for table in (RESERVED_ENGINE_FLAGS, RESERVED_CACHE_SERVER_FLAGS)
}


def verdicts(rule, fragment):
    document = normalise({"spec": merged(BASE, fragment)})
    return [rule.holds(place.node) for scope in rule.scopes for place in select(document, scope)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_holds_for_what_is_accepted_and_fails_for_what_is_refused(rule):
    assert [example for example in rule.accepts if not all(verdicts(rule, example))] == []
    assert [example for example in rule.rejects if all(verdicts(rule, example))] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_can_be_tested_both_ways_and_says_what_to_do(rule):
    assert rule.accepts
    assert rule.rejects
    assert rule.problem
    assert rule.remedy
    assert not rule.message.endswith(".")
    assert "\n" not in rule.message
    assert len(rule.message) < 400
    assert rule.field == "" or rule.field.startswith(".")
    # an accepted example has to reach the rule, or it says nothing about it
    assert any(verdicts(rule, example) for example in rule.accepts) or rule.name.endswith("-not-implemented")


def test_names_are_unique():
    names = [rule.name for rule in RULES]
    assert sorted(set(names)) == sorted(names)


def test_scopes_select_items_and_values():
    document = {"a": [{"b": {"x": 1, "y": 2}}, {}, {"b": {}}]}
    assert [(place.path, place.node) for place in select(document, "a[].b{}")] == [("a[0].b[x]", 1), ("a[0].b[y]", 2)]
    assert split("spec.a[].b{}") == ["spec", "a", "[]", "b", "{}"]


def test_text_in_expressions_is_quoted():
    assert quote(r"it's a \d") == r"'it\'s a \\d'"


@pytest.mark.parametrize("table", [RESERVED_ENGINE_FLAGS, RESERVED_CACHE_SERVER_FLAGS], ids=lambda table: table.program)
@settings(deadline=None)
@given(data=st.data())
def test_the_parts_of_a_table_refuse_what_the_whole_refuses(table, data):
    flag = data.draw(st.sampled_from([spelling for entry in table.flags for spelling in entry.spellings()]))
    argument = flag[: data.draw(st.integers(0, len(flag)))]
    argument = "".join(
        data.draw(st.sampled_from("-_")) if letter == "-" and i > 1 else letter for i, letter in enumerate(argument)
    )
    argument += data.draw(st.sampled_from(["", "=1", ".a=1", " 1", "\n", "x", "X"]))
    whole, *parts = PATTERNS[table.program]
    assert any(part.search(argument) for part in parts) == bool(whole.search(argument))


@pytest.mark.parametrize("table", [RESERVED_ENGINE_FLAGS, RESERVED_CACHE_SERVER_FLAGS], ids=lambda table: table.program)
def test_no_part_is_too_long_for_the_api_server(table):
    # 64 arguments x 1,024 characters x 4 bytes x 0.1 x (pattern x 0.25) <= 10 million
    assert all(64 * 1024 * 4 * 0.1 * len(part.pattern) * 0.25 <= 10_000_000 for part in PATTERNS[table.program][1:])
