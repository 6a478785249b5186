"""Text, booleans and numbers as they are printed."""

import math
from decimal import Decimal


def scalar_text(value: str | float | bool) -> str:  # noqa: FBT001 - a value, not a switch
    """
    A scalar as ECMAScript's `String(value)` prints it.

    Text is as it is, booleans are `true` and `false`, and of floats -0 is `0`, 3.0 is `3`, 1e21 is `1e+21` and 1e-7 is
    `1e-7`. Integers differ in one way: they have all their digits, for an id of 22 digits must not be rounded.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _integer_text(value) if isinstance(value, int) else _float_text(value)


def _integer_text(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python's guard: above 4,300 digits `str` is quadratic; `Decimal` is not
        return f"{Decimal(value):f}"


def _float_text(value: float) -> str:
    """The steps of Number::toString (ECMA-262, 6.1.6.1.20): the shortest digits that give the number back."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    _, all_digits, exponent = Decimal(repr(value)).as_tuple()
    written = "".join(map(str, all_digits))
    digits = written.rstrip("0")
    if not digits:
        return "0"
    assert isinstance(exponent, int), "finite numbers have an exponent"
    return "-" * (value < 0) + _positioned(digits, len(written) + exponent)


def _positioned(digits: str, point: int) -> str:
    """The number 0.`digits` times ten to the power of `point`."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
