"""Pieces of content in the index, as threads and the states of graphs have them."""

from collections.abc import Callable
from typing import Final

import msgspec

from chatledger.domain.content import DIGEST_BYTES, Content, ListNode
from chatledger.domain.errors import CorruptStateError

from .lmdb.cache import Remembered


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece, and how many lists it grew out of."""

    content: Content
    depth: int = 0


Lookup = Callable[[bytes], StoredPiece | None]
"""Finds a stored piece by its digest."""

encode_piece: Final = msgspec.msgpack.Encoder().encode
decode_piece: Final = msgspec.msgpack.Decoder(StoredPiece).decode


def piece_to_store(
    content: Content, stored: Lookup, elements: Callable[[ListNode], bytes], *, max_depth: int
) -> StoredPiece:
    """
    Return what is stored of a new piece: a list that would grow out of as many as `max_depth` others is stored whole.

    Args:
        content: As an event has it.
        stored: The pieces that are stored.
        elements: Puts a list together; see `elements_of`.
        max_depth: So many lists may grow out of one another.
    """
    if not isinstance(content, ListNode) or not content.base:
        return StoredPiece(content)
    base = stored(content.base)
    depth = 1 if base is None else base.depth + 1
    return StoredPiece(content, depth) if depth < max_depth else StoredPiece(ListNode(elements(content)))


def elements_of(
    node: ListNode, stored: Lookup, *, max_depth: int, where: str, remembered: Remembered[bytes, bytes] | None = None
) -> bytes:
    """
    Return the digests of all elements of a list, one after the other.

    Args:
        node: The list as it is stored.
        stored: The pieces that are stored.
        max_depth: So many lists may have grown out of one another.
        where: Names its owner in errors, e.g. "thread 'trip'".
        remembered: Lists that were put together before, by their digests.

    Raises:
        CorruptStateError: A list that it grew out of is missing, or there are too many.
    """
    parts, kept = [node.children], node.keep
    for _ in range(max_depth + 1):
        if not node.base:
            return b"".join(reversed(parts))
        known = None if remembered is None else remembered.get(node.base)
        if known is not None:
            return b"".join((known[: kept * DIGEST_BYTES], *reversed(parts)))
        base = stored(node.base)
        if base is None or not isinstance(base.content, ListNode):
            raise incomplete_list(where)
        node = base.content
        inherited = node.keep if node.base else 0
        parts.append(node.children[: max(kept - inherited, 0) * DIGEST_BYTES])
        kept = min(kept, inherited)
    raise endless_list(where)


def incomplete_list(where: str) -> CorruptStateError:
    """Return the error of a list that grew out of none."""
    return CorruptStateError(f"a list in {where} is incomplete in the index; rebuild it")


def endless_list(where: str) -> CorruptStateError:
    """Return the error of a list that grew out of too many others, or of itself."""
    return CorruptStateError(f"a list in {where} does not end in the index; rebuild it")
