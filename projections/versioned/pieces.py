"""Pieces of content in the index, and which of them the versions of a value still reach."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import (
    DIGEST_BYTES,
    Content,
    Edited,
    Leaf,
    ListNode,
    size_of_edits,
    split_digests,
)

from ..lmdb.cache import Remembered


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece, and out of how many others it came one after the other."""

    content: Content
    depth: int = 0


LEAF: Final = StoredPiece(Leaf("", b""))
"""Any leaf, where its content does not matter."""
Lookup = Callable[[bytes], StoredPiece | None]
"""Finds a stored piece by its digest."""

MOST_EDITS: Final = 16
"""So many edits may follow each other before a leaf is stored whole."""
MAX_DEPTH: Final = 64
"""So many lists may grow out of one another before one is stored whole: reading a long one is joining them."""


def piece_to_store(content: Content, stored: Lookup, whole: Callable[[Content], Content]) -> StoredPiece:
    """
    Return a new piece as it is stored: whole, where it would come out of too many others.

    `whole`: puts a list together, or a leaf; see `elements_of` and `leaf_of`.
    """
    if not isinstance(content, Edited | ListNode) or not content.base:
        return StoredPiece(content)
    base, most = stored(content.base), MOST_EDITS if isinstance(content, Edited) else MAX_DEPTH
    depth = 1 if base is None else base.depth + 1
    # A copy whose source is erased has edits of what is gone, until the events come that write all of it anew, and whole.
    with suppress(CorruptStateError):
        is_long = False
        if isinstance(content, Edited) and base is not None:
            leaf = whole(base.content)
            # What many edits change is read as fast whole, and takes little more.
            is_long = isinstance(leaf, Leaf) and 4 * size_of_edits(content.edits) > len(leaf.data)
        if is_long or depth >= most:
            return StoredPiece(whole(content))
    return StoredPiece(content, depth)


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
    node: ListNode, stored: Lookup, *, where: str, remembered: Remembered[bytes, bytes] | None = None
) -> bytes:
    """
    Return the digests of all elements of a list, one after the other.

    `where`: names its owner in errors, e.g. "thread 'trip'". `remembered`: lists that were put together before, by their
    digests.

    Raises:
        CorruptStateError: A list that it grew out of is missing, or there are too many.
    """
    parts, kept = [node.children], node.keep
    for _ in range(MAX_DEPTH + 1):
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


_SHORT: Final = 16 * DIGEST_BYTES
"""The children of a shorter list are looked at one by one."""


def reached_pieces(roots: Iterable[bytes], stored: Lookup) -> dict[bytes, StoredPiece]:
    """
    Return the pieces that values are made of, as they are stored, and not those that these only came out of.

    Of the lists that one grew out of, the elements count that it kept. Costs O(pieces), however long the lists are.
    """
    reached: dict[bytes, StoredPiece] = {}
    kept: dict[bytes, int] = {}  # of lists that others grew out of, how many of their elements these kept
    pending: list[tuple[bytes, int | None]] = [(digest, None) for digest in roots]
    walked = b""  # the children of the last long list or cut leaf
    while pending:
        digest, keep = pending.pop()
        if digest in reached or (keep is not None and kept.get(digest, 0) >= keep):
            continue
        piece = stored(digest)
        if piece is None:  # it is still to come, to a copy whose source is erased
            continue
        content = piece.content
        if keep is None:
            reached[digest] = piece
        else:
            kept[digest] = keep
        if isinstance(content, Leaf | Edited):
            continue
        children = content.children
        if isinstance(content, ListNode):
            inherited = min(keep if keep is not None else content.keep, content.keep) if content.base else 0
            if keep is not None:
                children = children[: (keep - inherited) * DIGEST_BYTES]
            if content.base:
                pending.append((content.base, inherited))
        if len(children) > _SHORT:
            children, walked = _not_in(children, walked), children
        pending += [(child, None) for child in split_digests(children) if child not in reached]
    return reached


def _not_in(children: bytes, walked: bytes) -> bytes:
    """
    Return the digests of a list without those at its beginning that stand in another list one after the other, up to the end of either.

    Versions of a list that grows, or of the newest so many elements, are the same but for a few: without this, removing one of
    2,000 versions of 200 elements each looked at 360,000 of them.
    """
    at = walked.find(children[:DIGEST_BYTES])
    if at < 0 or at % DIGEST_BYTES:
        return children
    rest = walked[at:]
    if children.startswith(rest):
        return children[len(rest) :]
    return b"" if rest.startswith(children) else children


def base_of(content: Content) -> bytes:
    """Return the piece that one came out of; b"" when it is stored whole."""
    return content.base if isinstance(content, Edited | ListNode) else b""
