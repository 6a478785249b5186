"""
Cutting the values of a state into pieces, so that versions share what they have in common, and putting them together again.

What is small stays whole. A large object is cut into its values. A large list is cut into its elements, and small elements
that follow each other lie together in runs. Where a run ends follows from the elements themselves, so that inserting or
removing some leaves the other runs as they are.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec

from ..content import (
    Content,
    DictNode,
    Leaf,
    ListNode,
    Parts,
    Piece,
    dict_piece,
    grown_from,
    leaf_pieces,
    list_piece,
    piece_digest,
    split_digests,
)

VALUE: Final = "msgpack"
"""The form of a value by itself."""
RUN: Final = "msgpack-items"
"""The form of elements of a list that follow each other."""
_WHOLE_BYTES: Final = 1024
_SMALL_BYTES: Final = 256
_LEAST_RUN_BYTES: Final = 256
_MOST_RUN_BYTES: Final = 4096

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
ContentOf = Callable[[bytes], Content | None]


class Cut(msgspec.Struct, frozen=True):
    """A value in pieces: the digest of its own, how much the value takes encoded, and all that it is made of."""

    digest: bytes
    size_bytes: int
    pieces: dict[bytes, Content]


def cut(value: Any) -> Cut:
    """Cut a JSON value, which was checked."""
    pieces: dict[bytes, Content] = {}
    encoded = _encode(value)
    return Cut(_cut(value, encoded, pieces), len(encoded), pieces)


def _cut(value: Any, encoded: bytes, pieces: dict[bytes, Content]) -> bytes:
    if len(encoded) > _WHOLE_BYTES and isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        made = [dict_piece({key: _cut(item, _encode(item), pieces) for key, item in items})]
    elif len(encoded) > _WHOLE_BYTES and isinstance(value, list):
        made = [list_piece(_cut_list(cast("list[Any]", value), pieces))]
    else:
        made = leaf_pieces(VALUE, encoded)
    pieces.update((piece.digest, piece.content) for piece in made)
    return made[-1].digest


def _cut_list(items: list[Any], pieces: dict[bytes, Content]) -> list[bytes]:
    children: list[bytes] = []
    run: list[msgspec.Raw] = []
    run_bytes = 0

    def end_run() -> None:
        nonlocal run_bytes
        if run:
            leaf = Leaf(RUN, _encode(run))
            digest = piece_digest(leaf)
            pieces[digest] = leaf
            children.append(digest)
            run.clear()
            run_bytes = 0

    for item in items:
        encoded = _encode(item)
        if len(encoded) >= _SMALL_BYTES:
            end_run()
            children.append(_cut(item, encoded, pieces))
            continue
        run.append(msgspec.Raw(encoded))
        run_bytes += len(encoded)
        if run_bytes >= _MOST_RUN_BYTES or (run_bytes >= _LEAST_RUN_BYTES and _ends_runs(encoded)):
            end_run()
    end_run()
    return children


def _ends_runs(encoded: bytes) -> bool:
    """Whether a run may end after this element; so for one element of four, whatever stands around it."""
    return not blake2b(encoded, digest_size=1).digest()[0] & 3


def join(digest: bytes, content_of: Callable[[bytes], Content]) -> Any:
    """The value of a piece, made anew."""
    content = content_of(digest)
    if isinstance(content, DictNode):
        children = split_digests(content.children)
        return {key: join(child, content_of) for key, child in zip(content.keys, children, strict=True)}
    if isinstance(content, ListNode):
        items: list[Any] = []
        for child in split_digests(content.children):
            element = content_of(child)
            if isinstance(element, Leaf) and element.type == RUN:
                items += _decode(element.data)
            else:
                items.append(join(child, content_of))
        return items
    if isinstance(content, Parts):
        parts = map(content_of, split_digests(content.children))
        return _decode(b"".join(part.data for part in parts if isinstance(part, Leaf)))
    assert isinstance(content, Leaf), "values of states have no other form"
    return _decode(content.data)


class Missing:
    """
    The pieces of values that are not stored yet, each before those that are made of it.

    Args:
        stored: The pieces that are stored; of a list all elements.
    """

    def __init__(self, stored: ContentOf) -> None:
        self._stored = stored
        self._seen: set[bytes] = set()
        self.found: list[Piece] = []

    def add(self, value: Cut, before: bytes | None) -> None:
        """Add what is missing of a value; `before` is what stood in its place a version earlier."""
        self._add(value.digest, value.pieces, before)

    def _add(self, digest: bytes, pieces: dict[bytes, Content], before: bytes | None) -> None:
        if digest in self._seen or self._stored(digest) is not None:
            return
        self._seen.add(digest)
        content = pieces[digest]
        earlier = None if before is None else self._stored(before)
        if isinstance(content, ListNode):
            if before is not None and isinstance(earlier, ListNode):
                content = grown_from(content.children, before, earlier.children)
            for child in split_digests(content.children):
                self._add(child, pieces, None)
        elif isinstance(content, DictNode):
            known = _children_by_key(earlier) if isinstance(earlier, DictNode) else {}
            for key, child in _children_by_key(content).items():
                self._add(child, pieces, known.get(key))
        elif isinstance(content, Parts):
            for child in split_digests(content.children):
                self._add(child, pieces, None)
        self.found.append(Piece(digest, content))


def _children_by_key(node: DictNode) -> dict[str, bytes]:
    return dict(zip(node.keys, split_digests(node.children), strict=True))
