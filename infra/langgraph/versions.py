"""Versions of channels, which must grow, and be different in forks that go on side by side."""

import random
from typing import Any, Final, cast

from chatledger.domain.errors import InvalidValueError

_DIGITS: Final = 32
_RANDOM_DIGITS: Final = 8
_RANDOM: Final = 10**_RANDOM_DIGITS
_FORM: Final = f"%0{_DIGITS}d.%0{_RANDOM_DIGITS}d"
_MAX_PACKED: Final = 2**63


def next_version(current: Any) -> Any:
    """
    The version after another one, in the form of that one: threads of other savers go on as they began.

    A new thread has text: a number of 32 digits, a dot, and 8 random digits.

    Raises:
        InvalidValueError: It is no version that a saver of LangGraph makes.
    """
    if current is None:
        return _text(1)
    if isinstance(current, int | float) and not isinstance(current, bool):
        return current + 1
    if isinstance(current, str):
        number = current.partition(".")[0]
        if number.isdecimal():
            return _text(int(number) + 1)
    msg = f"a channel version must be a number or text that begins with one, not {current!r}"
    raise InvalidValueError(msg)


def packed_version(version: Any) -> Any:
    """A version in few bytes: one of ours as a number, other text as it is, and anything else as the only item of a list."""
    if not isinstance(version, str):
        return [version]
    if len(version) != _DIGITS + 1 + _RANDOM_DIGITS or not version.isascii():
        return version
    number, dot, tail = version.partition(".")
    if len(number) != _DIGITS or not (dot and number.isdecimal() and tail.isdecimal()):
        return version
    packed = int(number) * _RANDOM + int(tail)
    return packed if packed < _MAX_PACKED else version


def unpacked_version(packed: Any) -> Any:
    """The version again."""
    if isinstance(packed, int):
        return _of_parts(*divmod(packed, _RANDOM))
    return cast("list[Any]", packed)[0] if isinstance(packed, list) else packed


def _text(number: int) -> str:
    return _of_parts(number, random.randrange(_RANDOM))  # noqa: S311 - tells forks apart, hides nothing


def _of_parts(number: int, tail: int) -> str:
    return _FORM % (number, tail)
