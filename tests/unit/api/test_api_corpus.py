"""The corpus of resources, judged without a cluster; the API server does it in tests/cluster/test_crd_corpus.py."""

import copy
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen_cached_serve.api.documents import load
from qwen_cached_serve.api.rules import RULES, select
from qwen_cached_serve.api.validate import InvalidResource, find_problems, normalise, parse

CORPUS = Path(__file__).parents[2] / "corpus"
ACCEPT = sorted(CORPUS.glob("accept/*.yaml"))
REJECT = sorted(CORPUS.glob("reject/*.yaml"))


def header(text, name):
    found = re.search(rf"^# {name}: (.*)$", text, re.MULTILINE)
    return found.group(1) if found else None


def judge(text):
    try:
        (document,) = load(text)
        return find_problems(document)
    except InvalidResource as error:
        return error.problems


def merged(base, change):
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return copy.deepcopy(change)
    return {key: merged(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}


def test_the_corpus_is_large_enough():
    assert len(ACCEPT) >= 25
    assert len(REJECT) >= 60


@pytest.mark.parametrize("path", ACCEPT, ids=lambda path: path.stem)
def test_accepted(path):
    (document,) = load(path.read_text())
    resource = parse(document)
    assert parse(resource.to_dict()) == resource


@pytest.mark.parametrize("path", REJECT, ids=lambda path: path.stem)
def test_refused_where_and_why(path):
    text = path.read_text()
    field, message = header(text, "field"), header(text, "message")
    problems = judge(text)
    assert [p for p in problems if p.field == field and message in f"{p.message}; {p.remedy}"], problems


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ACCEPT), st.sampled_from([rule for rule in RULES if rule.rejects]), st.data())
def test_a_rule_that_an_example_breaks_is_broken_in_any_resource(path, rule, data):
    (document,) = load(path.read_text())
    example = data.draw(st.sampled_from(rule.rejects))
    changed = {**document, "spec": merged(document["spec"], example)}
    problems = find_problems(changed)
    broken = {
        place.path + rule.field
        for scope in rule.scopes
        for place in select(normalise(changed), scope)
        if not rule.holds(place.node)
    }
    assert broken <= {problem.field for problem in problems}
