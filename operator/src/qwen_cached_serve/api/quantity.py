"""Kubernetes quantities, exactly: `100Gi`, `500m`, `1.5e3`, a plain number.

The grammar is that of apimachinery's `resource.Quantity` without a sign, since nothing in the resource may be negative.
Arithmetic is on fractions, so that no figure is off by a rounding.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SMALL = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3)}

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$"
"""Sizes in bytes: no exponent and no `m`, which is a thousandth of a byte and always a slip."""
QUANTITY_PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
"""What the API server accepts as a quantity, without a sign."""

_PARTS = re.compile(r"([0-9]*\.?[0-9]*)(?:([eE][+-]?[0-9]{1,2})|([A-Za-z]*))")


class QuantityError(ValueError):
    """Text that is not a quantity; the message shows it and an example of what is."""


def parse(quantity: int | str) -> Fraction:
    """Return the value of a quantity in its base unit (bytes, cores, pieces).

    Raises:
        QuantityError: it is not a quantity, or it is negative.

    """
    text = str(quantity)
    if isinstance(quantity, bool) or not re.match(QUANTITY_PATTERN, text) or text.endswith("\n"):
        raise QuantityError(f"{text!r} is not a quantity; write a number with an optional unit, such as 100Gi or 500m")
    match = _PARTS.fullmatch(text)
    if match is None:  # unreachable while QUANTITY_PATTERN and _PARTS agree, which a property test holds
        raise QuantityError(f"{text!r} is not a quantity")
    number, exponent, suffix = match.groups()
    value = Fraction(number.rstrip("."))
    if exponent:
        return value * Fraction(10) ** int(exponent[1:])
    return value * Fraction(BINARY.get(suffix) or DECIMAL.get(suffix) or SMALL[suffix])


def to_bytes(quantity: int | str) -> int:
    """Return a size in bytes, rounded up as Kubernetes does.

    Raises:
        QuantityError: it is not a quantity, or it is negative.

    """
    return math.ceil(parse(quantity))


def format_bytes(size: int) -> str:
    """Return `size` (bytes) as the shortest exact quantity: a binary unit where one divides it, otherwise a number."""
    for suffix, unit in reversed(BINARY.items()):
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def format_bytes_up(size: int) -> str:
    """Return `size` (bytes) rounded up to whole Mi or Gi, for a figure that a person should write into the resource."""
    mebibytes = -(-size // 2**20)
    return format_bytes((mebibytes if mebibytes < 10 * 1024 else -(-mebibytes // 1024) * 1024) * 2**20)
