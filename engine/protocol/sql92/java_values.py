"""Compares numeric text, 32-bit and 64-bit integers, and doubles as Java does.

Place in the walk: under every comparison of a selector. A property is always a text; what it is
compared with decides as what it is read, so that '5.5' compared with 5 is an error and compared
with 5.0 a number.

Invariant: the answers are those of RocketMQ 5.5, errors included. An error is `NotComparable`,
which ends the evaluation of the whole selector: the message does not match.
"""

from __future__ import annotations

import re
import unicodedata
from math import copysign, inf, isnan
from typing import Final

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
_LONG_DIGITS_MAX: Final = 19
_INT_DIGITS: Final = 10
"""Any whole number with fewer digits fits 32 bits."""

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's trim takes away: blanks and control characters."""


class NotComparable(Exception):
    """The two values cannot be compared, or a text is no number: the message does not match."""


class Long(int):
    """A whole number of 64 bits, where a plain int has 32."""

    __slots__ = ()


Value = str | bool | int | Long | float | None
"""What part of a selector is worth for one message; None is unknown."""


def equals(left: str | bool | float, right: str | bool | float) -> bool:
    """Are two known values equal? Raises NotComparable."""
    return _compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Below 0, 0 or above 0 as `left` is less, equal or greater; None when one is unknown.

    Two texts are compared as doubles. Raises NotComparable.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return _compare_numbers(java_double(left), java_double(right))
    return _compare(left, right)


def _compare(left: str | bool | float, right: str | bool | float) -> int:
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_truths(left, right)
    if isinstance(left, str):
        if isinstance(right, str):
            return 0 if left == right else 1
        return _compare_numbers(read_as(right, left), right)
    if isinstance(right, str):
        return _compare_numbers(left, read_as(left, right))
    return _compare_numbers(left, right)


def _compare_truths(left: str | bool | float, right: str | bool | float) -> int:
    """Where one of them is a truth value: a text is one on the left of it only."""
    if isinstance(left, bool):
        if isinstance(right, str):
            raise NotComparable(f"{left} on the left of {right!r}: RocketMQ casts the wrong one")
        return left - right if isinstance(right, bool) else -1
    return (left.lower() == "true") - int(right) if isinstance(left, str) else -1


def _compare_numbers(left: float, right: float) -> int:
    """As Java's compareTo: -0.0 is less than 0.0, and NaN greater than all."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if isnan(left) or isnan(right):
            return isnan(left) - isnan(right)
        if left == right == 0.0:
            left, right = copysign(1.0, left), copysign(1.0, right)
    return (left > right) - (left < right)


def read_as(number: float, text: str) -> float:
    """A text as a number of the kind of `number`. Raises NotComparable."""
    if isinstance(number, float):
        return java_double(text)
    if isinstance(number, Long):
        return Long(_whole(text, LONG_MIN, LONG_MAX))
    return _whole(text, INT_MIN, INT_MAX)


def _whole(text: str, lowest: int, highest: int) -> int:
    """A text as Integer.valueOf and Long.valueOf take it: a sign, then digits of any script."""
    if len(text) < _INT_DIGITS and text.isascii() and text.isdigit():
        return int(text)  # Nearly all are such.
    if _WHOLE.fullmatch(text) and max(text) <= "\uffff":
        negative = text[0] == "-"
        digits = text.lstrip("+-")
        if not digits.isascii():
            digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
        digits = digits.lstrip("0") or "0"
        if len(digits) <= _LONG_DIGITS_MAX:
            value = -int(digits) if negative else int(digits)
            if lowest <= value <= highest:
                return value
    raise NotComparable(f"{text[:80]!r} is no whole number from {lowest} to {highest}")


def java_double(text: str) -> float:
    """A text as Double.valueOf takes it. Raises NotComparable."""
    trimmed = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed if trimmed[-1] in "Ny" else trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        digits, _, exponent = trimmed.lower().partition("p")
        try:
            return float.fromhex(f"{digits}p{exponent.rstrip('fd')}")
        except OverflowError:
            return -inf if trimmed[0] == "-" else inf
    raise NotComparable(f"{text[:80]!r} is no number")
