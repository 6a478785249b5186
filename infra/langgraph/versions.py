"""Versions of channels, which must grow, and be different in forks that go on side by side."""

import random
from typing import Any

from chatledger.domain.errors import InvalidValueError


def next_version(current: Any) -> Any:
    """
    The version after another one, in the form of that one: threads of other savers go on as they began.

    A new thread has text: a number of 32 digits, a dot, and 16 random digits.

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


def _text(number: int) -> str:
    return f"{number:032}.{random.randrange(10**16):016}"  # noqa: S311 - tells forks apart, hides nothing
