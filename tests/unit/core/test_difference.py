"""What differs between two trees, in words."""

import pytest

from qwen_cached_serve.core.difference import differences

LONG = "x" * 200


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 → 2"]),
        ({"a": True}, {"a": False}, ["a: true → false"]),
        ({"a": ""}, {"a": "x"}, ['a: "" → x']),
        ({"a": LONG}, {"a": "x"}, ["a (changed)"]),
        ({}, {"a": {"b": 1}}, ["a (added)"]),
        ({"a": {"b": 1}}, {}, ["a (removed)"]),
        ({"a": {"b": 1}}, {"a": "x"}, ['a: {"b": 1} → x']),
        ({"c": [{"name": "x", "v": 1}]}, {"c": [{"name": "x", "v": 2}]}, ["c[x].v: 1 → 2"]),
        ({"c": [{"name": "x"}]}, {"c": [{"name": "x"}, {"name": "y"}]}, ["c[y] (added)"]),
        ({"c": [{"name": "x"}, {"name": "y"}]}, {"c": [{"name": "y"}, {"name": "x"}]}, ["c (order)"]),
        ({"l": ["a", "b", "c"]}, {"l": ["a", "c"]}, ["l[1]: b (removed)"]),
        ({"l": ["a"]}, {"l": ["z", "a"]}, ["l[0]: z (added)"]),
        ({"l": ["a", "b"]}, {"l": ["a", "z"]}, ["l[1]: b → z"]),
        ({"l": [{"k": 1}, {"k": 2}]}, {"l": [{"k": 1}, {"k": 3}]}, ["l[1].k: 2 → 3"]),
        ({"l": [{"name": "x"}, {"name": "x"}]}, {"l": [{"name": "x"}]}, ['l[1]: {"name": "x"} (removed)']),
    ],
)
def test_each_place_is_named(old, new, told):
    assert list(differences(old, new)) == told


def test_an_absent_value_has_a_word_where_its_absence_means_something():
    words = list(differences({}, {"a": {"b": 1}, "l": ["x"], "e": {}}, "spec", absent="default"))
    assert words == ["spec.a.b: default → 1", "spec.e: default → {}", "spec.l[0]: x (added)"]
    assert list(differences({"a": 1}, {}, absent="default")) == ["a: 1 → default"]


def test_an_argument_that_may_be_secret_is_masked_and_still_told():
    found = list(differences({"l": ["--api-key", "one"]}, {"l": ["--api-key", "two"]}))
    assert found == ["l[1] (changed)"]
    assert list(differences({"l": []}, {"l": ["--api-key", "two"]}))[1] == "l[1]: *** (added)"
