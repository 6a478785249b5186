"""Automatic branch names."""

import re
from collections.abc import Callable
from typing import Final

from .rules import MAX_ID_BYTES

_ROOM: Final = 24  # `-v` and the digits of any number
_GENERATED: Final = re.compile(r"(-v\d+)+$")


def bases_of(name: str) -> list[str]:
    """The names for which a branch `name` counts when the next automatic name is chosen: itself, and each part before `-v`."""
    bases = [name]
    at = name.find("-v", 1)
    while at != -1:
        bases.append(name[:at])
        at = name.find("-v", at + 1)
    return bases


def next_name(base: str, *, named_after: Callable[[str], int], is_taken: Callable[[str], bool]) -> str:
    """
    The name of the next branch made from branch `base`: `<base>-v<N+1>`, or the next free number.

    N counts the branches that are named `base` or start with `<base>-v`. Where forks of forks made a name too long to
    extend, counting starts over from the name without its generated endings, cut to what leaves room for a number.
    """
    number = named_after(base) + 1
    if len(base.encode()) + _ROOM > MAX_ID_BYTES:
        base = _GENERATED.sub("", base).encode()[: MAX_ID_BYTES - _ROOM].decode(errors="ignore")
        number = named_after(base) + 1
    while is_taken(name := f"{base}-v{number}"):
        number += 1
    return name
