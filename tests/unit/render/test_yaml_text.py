import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.render import yaml_text

TEMPLATES = Path(yaml_text.__file__).parent / "templates"
NASTY = [
    "",
    "y",
    "no",
    "on",
    "1e3",
    "1_000",
    "0x1f",
    "012",
    "2026-11-29",
    "null",
    "~",
    "a: b",
    "a #b",
    "- x",
    "{",
    "\x85",
    "\u2028",
    "\U0001f600",
    "\\",
    '"',
    "'",
    "\t",
    "line\nline\n",
    "%",
    "@",
    "`",
    "$$(X)",
    "1e-05",
    "=",
    "<<",
    "x" * 5000,
]

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=("Cs",))) | st.sampled_from(NASTY)
values = st.recursive(
    scalars | texts,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_is_quoted_comes_back(value):
    document = f"outer:\n  - key: {yaml_text.quote(value)}\n    other: 1\n"
    assert yaml_text.load_one(document) == {"outer": [{"key": value, "other": 1}]}
    assert "\n" not in yaml_text.quote(value)


@pytest.mark.parametrize("text", NASTY)
def test_nasty_strings_stay_strings(text):
    assert yaml_text.load_one(yaml_text.quote(text)) == text
    assert yaml_text.load_one(yaml_text.quote({text: text})) == {text: text}


@given(st.lists(st.dictionaries(texts, values, max_size=4), min_size=1, max_size=3))
def test_documents_for_people_come_back_too(documents):
    assert yaml_text.load_all(yaml_text.dump_all(documents)) == documents


def test_dates_are_strings_and_keys_are_unique():
    assert yaml_text.load_one("a: 2026-11-29") == {"a": "2026-11-29"}
    with pytest.raises(yaml.YAMLError, match=r"line 2, column 1: key 'a' is there twice"):
        yaml_text.load_one("a: 1\na: 2\n")
    with pytest.raises(yaml.YAMLError, match="key 'x' is there twice"):
        yaml_text.load_one("outer: {x: 1, y: 2, x: 3}")


def test_every_value_in_a_template_is_quoted():
    places = {path.name: re.findall(r"\{\{(.*?)\}\}", path.read_text(), re.DOTALL) for path in TEMPLATES.glob("*.j2")}
    assert sum(map(len, places.values())) > 40
    macros = re.compile(r"^ (metadata|common)\(.*\)( \| indent\(10\))? $")
    for name, expressions in places.items():
        for expression in expressions:
            assert expression.endswith("| q ") or macros.match(expression), f"{name}: {expression}"
