"""Parts of lists: so many things at most, read in their order, and where the next part begins."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeVar

from chatledger.domain.errors import InvalidValueError

Place = TypeVar("Place")
Listed = TypeVar("Listed")
Shown = TypeVar("Shown")

ListOrder = Literal["updated", "created"]
_PLACE_BYTES: Final = 16
LOOKED_AT: Final = 2_000
"""So many things are looked at for one part, however few of them are wanted."""


def take_part(
    listed: Iterable[tuple[Place, Listed]], wanted: Callable[[Listed], Shown | None], limit: int
) -> tuple[list[Shown], Place | None]:
    """
    Take what is wanted of a list, at most `limit` things, one at least.

    Args:
        listed: Each thing with its place in the order.
        wanted: Returns the thing as it is shown; None where it is left out.
        limit: At most so many.

    Returns:
        The things, and the place after which others follow; None where none do.
    """
    part: list[Shown] = []
    last: Place | None = None
    for looked_at, (place, candidate) in enumerate(listed):
        if len(part) >= limit or looked_at >= LOOKED_AT:
            return part, last
        last = place
        shown = wanted(candidate)
        if shown is not None:
            part.append(shown)
    return part, None


def place_of(cursor: str) -> bytes:
    """Return the place in an order that a part ended with. Raises `InvalidValueError` when it is none."""
    with contextlib.suppress(ValueError):
        place = bytes.fromhex(cursor)
        if len(place) <= _PLACE_BYTES:
            return place
    msg = f"{cursor!r} is where no list ended: `after` is the `next` of the part before"
    raise InvalidValueError(msg)
