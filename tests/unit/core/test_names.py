import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.core import names

LABEL = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")

part = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
resource_names = st.lists(part, min_size=1, max_size=9).map(".".join).filter(lambda name: len(name) <= 253)


def children(name):
    return names.base_name(name), names.config_map_name(name, names.digest("x"))


@pytest.mark.case("B47")
@given(resource_names)
def test_children_are_valid_for_every_resource_name(name):
    base, config_map = children(name)
    assert LABEL.match(base)
    assert len(base) <= names.MAX_BASE_LENGTH
    assert SUBDOMAIN.match(config_map)
    assert len(config_map) <= 253
    # The Deployment's pods: base-<10>-<5> must still be a host name.
    assert len(f"{base}-0123456789-abcde") <= 63
    for key, value in names.labels(name, "8b8b2d3e-7f4c-4d36-8a08-0a3c9e6ff001").items():
        assert LABEL_VALUE.match(value), (key, value)
        assert len(value) <= 63


@pytest.mark.case("B46")
@pytest.mark.case("B47")
@given(resource_names, resource_names)
def test_two_resources_never_share_a_name_or_selector(one, other):
    if one != other:
        assert names.base_name(one) != names.base_name(other)
        assert names.selector_labels(one) != names.selector_labels(other)


@pytest.mark.case("B46")
def test_dots_and_digits():
    assert names.base_name("qwen3-6-27b") == "qwen3-6-27b"
    dotted = names.base_name("qwen3.6-27b")
    assert dotted.startswith("qwen3-6-27b-x")
    assert dotted != names.base_name("qwen3-6-27b")
    assert names.base_name("3qwen").startswith("q-3qwen-x")


@pytest.mark.case("B47")
@pytest.mark.parametrize("length", [40, 46, 47, 52, 58, 63, 64, 253])
def test_lengths(length):
    name = "a" * length
    base = names.base_name(name)
    assert (base == name) is (length <= 46)
    assert LABEL.match(base)
    assert (names.instance_label(name) == name) is (length <= 63)


@pytest.mark.case("B47")
def test_long_names_that_differ_in_the_last_letter_stay_apart():
    assert names.base_name("a" * 99 + "b") != names.base_name("a" * 99 + "c")


def test_a_resource_called_like_a_shortened_one_is_renamed_itself():
    taken = names.base_name("qwen3.6-27b")
    assert names.base_name(taken) != taken
    assert names.instance_label(taken) != names.instance_label("qwen3.6-27b")


def test_selector_text_is_what_kubectl_takes():
    assert names.selector_text("q") == (
        "app.kubernetes.io/component=serving,app.kubernetes.io/instance=q,app.kubernetes.io/name=qwen-cached-serve"
    )
