"""Quantities, exactly."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.quantity import QuantityError, format_bytes, format_bytes_up, parse, to_bytes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100Gi", 100 * 2**30),
        ("1.5Ti", 3 * 2**39),
        ("500M", 500 * 10**6),
        ("1k", 1000),
        ("0", 0),
        (42, 42),
        ("500m", Fraction(1, 2)),
        ("1n", Fraction(1, 10**9)),
        ("7u", Fraction(7, 10**6)),
        (".5", Fraction(1, 2)),
        ("2.", 2),
        ("1e3", 1000),
        ("1.5E-1", Fraction(15, 100)),
        ("1E", 10**18),
        ("1Ei", 2**60),
    ],
)
def test_values(text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "100GB", "1 Gi", "-1", "+1", "1gi", "1e", "1e999", "1.2.3", "0x10", "1\n", "१", True]
)
def test_what_is_no_quantity(text):
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)


def test_bytes_are_rounded_up_as_kubernetes_does():
    assert to_bytes("1.1") == 2
    assert to_bytes("0.3Gi") == 322122548


@given(st.integers(0, 2**70))
def test_a_formatted_size_reads_back(size):
    assert to_bytes(format_bytes(size)) == size


@given(st.integers(1, 2**50))
def test_a_size_for_people_is_never_below_and_hardly_above(size):
    shown = to_bytes(format_bytes_up(size))
    assert size <= shown < size + (2**20 if size < 10 * 2**30 else 2**30) + 2**20
    assert format_bytes_up(size).endswith("i")


@given(st.from_regex(quantity.QUANTITY_PATTERN, fullmatch=True))
def test_whatever_the_pattern_takes_has_a_value(text):
    text = text.rstrip("\n")
    assert re.fullmatch(quantity.QUANTITY_PATTERN.strip("^$"), text) is None or parse(text) >= 0


@given(st.from_regex(quantity.SIZE_PATTERN, fullmatch=True))
def test_sizes_are_quantities(text):
    assert re.match(quantity.QUANTITY_PATTERN, text)
