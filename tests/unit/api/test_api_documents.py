"""YAML is read as the API server reads it."""

import pytest

from qwen_cached_serve.api.documents import load
from qwen_cached_serve.api.validate import InvalidResource


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("N", False),
        ("on", True),
        ("Off", False),
        ("yes", True),
        ("true", True),
        ("tRue", "tRue"),
        ("'y'", "y"),
        ("yo", "yo"),
        ("2026-11-29", "2026-11-29"),
        ("2026-11-29T10:00:00Z", "2026-11-29T10:00:00Z"),
        ("1.0", 1),
        ("1.5", 1.5),
        ("1e+3", 1000),
        ("1e3", 1000),
        ("-1.5e-1", -0.15),
        (".5", 0.5),
        ("17", 17),
        ("-17", -17),
        ("1_000", 1000),
        ("0x1F", 31),
        ("010", 8),
        ("0o17", 15),
        ("08", 8),
        ("12:30", "12:30"),
        ("1.2.3", "1.2.3"),
        (".inf", float("inf")),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
        ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
    ],
)
def test_scalars(text, value):
    assert load(f"x: {text}\n") == [{"x": value}]


def test_several_documents_and_empty_ones():
    assert load("---\na: 1\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4, column 3", "the key c is there twice"),
        ("a: [1\n", "line 2, column 1", "expected"),
        ("{[a]: 1}", "line 1, column 2", "a key has to be text"),
        ("a: !!python/name:os.system x\n", "line 1, column 4", "could not determine a constructor"),
    ],
)
def test_what_cannot_be_read_says_where(text, place, message):
    with pytest.raises(InvalidResource) as error:
        load(text)
    (problem,) = error.value.problems
    assert problem.field == place
    assert message in problem.message


def test_bytes_that_are_no_text():
    with pytest.raises(InvalidResource, match="write the file as UTF-8 text"):
        load("a: \x00")
