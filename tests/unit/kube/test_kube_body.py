"""The body of an apply is JSON and YAML alike, whatever people put into their strings."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.kube.body import apply_body

TEXTS = ["plain", "ü€", "𐍈", "a\\ud800\\udf48", "\\𐍈", "\\\\𐍈\\", "\x00\x01\x7f\x85\u2028\ufeff\uffff", '"\n\t', "🙂🙂"]


@pytest.mark.parametrize("text", TEXTS)
def test_both_read_the_same(text):
    body = apply_body({"data": {"a": text}})
    assert json.loads(body) == yaml.safe_load(body) == {"data": {"a": text}}


@given(st.text(alphabet=st.one_of(st.sampled_from('\\u"d8f0'), st.characters(codec="utf-8"))))
def test_any_text_is_read_the_same(text):
    body = apply_body({text: [text]})
    assert json.loads(body) == yaml.safe_load(body) == {text: [text]}
