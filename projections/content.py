"""Pieces of content in the index, as threads and the states of graphs have them."""

from collections.abc import Callable
from typing import Final

import msgspec

from chatledger.domain.content import DIGEST_BYTES, Content, Edited, Leaf, ListNode
from chatledger.domain.cutting import size_of_edits
from chatledger.domain.errors import CorruptStateError

from .lmdb.cache import Remembered


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece, and out of how many others it came one after the other."""

    content: Content
    depth: int = 0


Lookup = Callable[[bytes], StoredPiece | None]
"""Finds a stored piece by its digest."""

encode_piece: Final = msgspec.msgpack.Encoder().encode
decode_piece: Final = msgspec.msgpack.Decoder(StoredPiece).decode
MOST_EDITS: Final = 16
"""So many edits may follow each other before a leaf is stored whole."""


def piece_to_store(
    content: Content, stored: Lookup, whole: Callable[[Content], Content], *, max_depth: int
) -> StoredPiece:
    """
    Return a new piece as it is stored: whole, where it would come out of too many others.

    Args:
        content: As an event has it.
        stored: The pieces that are stored.
        whole: Puts a list together, or a leaf; see `elements_of` and `leaf_of`.
        max_depth: So many lists may grow out of one another.
    """
    if isinstance(content, Edited):
        base, most = stored(content.base), MOST_EDITS
        # What many edits change is read as fast whole, and takes little more.
        is_long = base is not None and 4 * size_of_edits(content.edits) > len(_data_of(whole(base.content)))
    elif isinstance(content, ListNode) and content.base:
        base, most, is_long = stored(content.base), max_depth, False
    else:
        return StoredPiece(content)
    depth = 1 if base is None else base.depth + 1
    return StoredPiece(whole(content)) if is_long or depth >= most else StoredPiece(content, depth)


def _data_of(content: Content) -> bytes:
    return content.data if isinstance(content, Leaf) else b""


def leaf_of(content: Edited, stored: Lookup, where: str) -> Leaf:
    """
    Return a leaf with the edits of those that it came out of.

    Raises:
        CorruptStateError: One of them is missing or is none, or the edits are not of it; `where` names the owner.
    """
    chain = [content]
    for _ in range(MOST_EDITS):
        base = stored(chain[-1].base)
        if base is not None and isinstance(base.content, Edited):
            chain.append(base.content)
            continue
        if base is None or not isinstance(base.content, Leaf):
            break
        leaf = base.content
        try:
            for edits in reversed(chain):
                leaf = edits.of(leaf.data)
        except ValueError:
            break
        return leaf
    msg = f"a value of {where} is incomplete in the index; rebuild it"
    raise CorruptStateError(msg)


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
