"""
Content: the values of threads and of the states of graphs, cut into pieces that are named by their digest, so that equal ones are
kept once.

A value is a leaf (what the serializer made of it), or a list, dict or other composite of pieces. A long leaf is cut into parts. A list that
grew out of another one says only what is new: as many as `keep` elements of `base`, and then its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

DIGEST_BYTES: Final = 20
MAX_PART_BYTES: Final = 256 * 1024
_LEAST_KEPT: Final = 4

_encode: Final = msgspec.msgpack.Encoder().encode


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=0):
    """A value as the serializer gave it: the name of its form, and the bytes."""

    type: str
    data: bytes


class Parts(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """A leaf whose bytes are those of other leaves, one after the other."""

    type: str
    children: bytes


class ListNode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """A list: the first `keep` elements of the list `base`, then those in `children`."""

    children: bytes
    base: bytes = b""
    keep: int = 0


class DictNode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """A dict with text keys, in their order."""

    keys: tuple[str, ...]
    children: bytes


class Compound(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """A value that whoever wrote it takes apart and puts together again: the name of its form, and what it is made of."""

    type: str
    children: bytes


Content = Leaf | Parts | ListNode | DictNode | Compound
"""Children are digests, one after the other."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of content with its digest. Of a list the digest is that of all of its elements, whatever it says of them."""

    digest: bytes
    content: Content


class Tree(NamedTuple):
    """A value in pieces: its own, and the values that it is made of."""

    digest: bytes
    content: Content
    children: "Sequence[Tree]" = ()


def leaf_tree(type_name: str, data: bytes) -> Tree:
    """Return one serialized value in pieces."""
    if len(data) <= MAX_PART_BYTES:
        leaf = Leaf(type_name, data)
        return Tree(piece_digest(leaf), leaf)
    *parts, whole = leaf_pieces(type_name, data)
    return Tree(whole.digest, whole.content, [Tree(part.digest, part.content) for part in parts])


def list_tree(children: Sequence[Tree]) -> Tree:
    """Return a list of values in pieces."""
    piece = list_piece([child.digest for child in children])
    return Tree(piece.digest, piece.content, children)


def dict_tree(items: Mapping[str, Tree]) -> Tree:
    """Return a dict of values in pieces."""
    piece = dict_piece({key: child.digest for key, child in items.items()})
    return Tree(piece.digest, piece.content, list(items.values()))


def leaf_pieces(type_name: str, data: bytes) -> list[Piece]:
    """The pieces of one serialized value; the last of them is the value."""
    if len(data) <= MAX_PART_BYTES:
        leaf = Leaf(type_name, data)
        return [Piece(piece_digest(leaf), leaf)]
    leaves = [Leaf("part", data[at : at + MAX_PART_BYTES]) for at in range(0, len(data), MAX_PART_BYTES)]
    parts = [Piece(piece_digest(leaf), leaf) for leaf in leaves]
    whole = Parts(type_name, b"".join(part.digest for part in parts))
    return [*parts, Piece(piece_digest(whole), whole)]


def list_piece(children: Sequence[bytes]) -> Piece:
    """The list of pieces with these digests."""
    node = ListNode(b"".join(children))
    return Piece(piece_digest(node), node)


def dict_piece(items: dict[str, bytes]) -> Piece:
    """The dict of pieces with these digests."""
    node = DictNode(tuple(items), b"".join(items.values()))
    return Piece(piece_digest(node), node)


def composite_piece(type_name: str, children: Sequence[bytes]) -> Piece:
    """The value of that form that is made of pieces with these digests."""
    node = Compound(type_name, b"".join(children))
    return Piece(piece_digest(node), node)


def piece_digest(content: Content) -> bytes:
    """Return the digest that names a piece: BLAKE2b over its kind and content. A list must be whole, without a base."""
    if isinstance(content, Leaf):
        head, data = b"leaf" + _encode(content.type), content.data
    elif isinstance(content, Parts):
        head, data = b"part" + _encode(content.type), content.children
    elif isinstance(content, ListNode):
        assert not content.base, "a list is named by all of its elements"
        head, data = b"list", content.children
    elif isinstance(content, Compound):
        head, data = b"comp" + _encode(content.type), content.children
    else:
        head, data = b"dict" + _encode(content.keys), content.children
    hashed = blake2b(head, digest_size=DIGEST_BYTES)
    hashed.update(data)
    return hashed.digest()


def split_digests(children: bytes) -> list[bytes]:
    """Digests one after the other, as a list."""
    return [children[at : at + DIGEST_BYTES] for at in range(0, len(children), DIGEST_BYTES)]


def references_of(content: Content) -> list[bytes]:
    """The pieces that a piece as it is stored is made of."""
    if isinstance(content, Leaf):
        return []
    references = split_digests(content.children)
    return [content.base, *references] if isinstance(content, ListNode) and content.base else references


def grown_from(children: bytes, base: bytes, base_children: bytes) -> ListNode:
    """The list with these elements, as what it adds to another one where that is shorter."""
    keep = _common(children, base_children)
    if keep < _LEAST_KEPT:
        return ListNode(children)
    return ListNode(children[keep * DIGEST_BYTES :], base, keep)


def _common(one: bytes, other: bytes) -> int:
    """Count the digests that both begin with."""
    if one.startswith(other):  # nearly always, as lists grow at their ends
        return len(other) // DIGEST_BYTES
    low, high = 0, min(len(one), len(other)) // DIGEST_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        size = middle * DIGEST_BYTES
        if one[:size] == other[:size]:
            low = middle
        else:
            high = middle - 1
    return low


def children_by_key(node: DictNode) -> dict[str, bytes]:
    """Return the digests of the values of a dict."""
    return dict(zip(node.keys, split_digests(node.children), strict=True))


class Missing:
    """
    The pieces of values that are not stored yet, each before those that are made of it.

    Args:
        is_stored: Whether a piece is stored.
        content_of: A stored piece by its digest, of a list all elements; None when there is none.
        is_deep: Whether a list in a dict may grow out of the one that stood there before, and not only a value that is a list.
    """

    def __init__(
        self,
        is_stored: Callable[[bytes], bool],
        content_of: Callable[[bytes], Content | None],
        *,
        is_deep: bool = False,
    ) -> None:
        self._is_stored, self._content_of, self._is_deep = is_stored, content_of, is_deep
        self._seen: set[bytes] = set()
        self.found: list[Piece] = []

    def add(self, value: Tree, before: bytes | None) -> None:
        """Add what is missing of a value; `before` is what stood in its place earlier."""
        if value.digest in self._seen or self._is_stored(value.digest):
            return
        self._seen.add(value.digest)
        content, children = value.content, value.children
        if isinstance(content, ListNode) and before is not None:
            base = self._content_of(before)
            if isinstance(base, ListNode):
                content = grown_from(content.children, before, base.children)
                children = children[content.keep :]
        if self._is_deep and isinstance(content, DictNode) and before is not None:
            base = self._content_of(before)
            known = children_by_key(base) if isinstance(base, DictNode) else {}
            for key, child in zip(content.keys, children, strict=True):
                self.add(child, known.get(key))
        else:
            for child in children:
                self.add(child, None)
        self.found.append(Piece(value.digest, content))


def size_of(pieces: Iterable[Piece]) -> int:
    """Return the approximate size of pieces on the log, in bytes."""
    return sum(map(_size_of_piece, pieces))


def _size_of_piece(piece: Piece) -> int:
    content = piece.content
    if isinstance(content, Leaf):
        return DIGEST_BYTES + 16 + len(content.data)
    base = content.base if isinstance(content, ListNode) else b""
    return DIGEST_BYTES + 16 + len(base) + len(content.children)
