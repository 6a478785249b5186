"""Pieces of content, as many together as fit into events."""

from collections.abc import Iterator, Sequence

from ..codec import MAX_EVENT_BYTES
from .content import Piece, size_of


def portions_of(pieces: Sequence[Piece], most_bytes: int = MAX_EVENT_BYTES // 2) -> Iterator[tuple[Piece, ...]]:
    """The pieces, as many together as one event holds; at least one portion."""
    portion: list[Piece] = []
    used = 0
    for piece in pieces:
        size = size_of([piece])
        if portion and used + size > most_bytes:
            yield tuple(portion)
            portion, used = [], 0
        portion.append(piece)
        used += size
    yield tuple(portion)
