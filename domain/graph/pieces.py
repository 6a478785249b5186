"""
Pieces of the values of a state, so that versions share what they have in common: cutting values, and joining them again.

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
    Tree,
    dict_tree,
    leaf_tree,
    list_tree,
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


class Cut(msgspec.Struct, frozen=True):
    """A value in pieces, and how much it takes encoded."""

    tree: Tree
    size_bytes: int


def cut(value: Any) -> Cut:
    """Cut a JSON value, which was checked."""
    encoded = _encode(value)
    return Cut(_cut(value, encoded), len(encoded))


def _cut(value: Any, encoded: bytes) -> Tree:
    if len(encoded) > _WHOLE_BYTES and isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return dict_tree({key: _cut(item, _encode(item)) for key, item in items})
    if len(encoded) > _WHOLE_BYTES and isinstance(value, list):
        return list_tree(_cut_list(cast("list[Any]", value)))
    return leaf_tree(VALUE, encoded)


def _cut_list(items: list[Any]) -> list[Tree]:
    children: list[Tree] = []
    run: list[msgspec.Raw] = []
    run_bytes = 0

    def end_run() -> None:
        nonlocal run_bytes
        if run:
            leaf = Leaf(RUN, _encode(run))
            children.append(Tree(piece_digest(leaf), leaf))
            run.clear()
            run_bytes = 0

    for item in items:
        encoded = _encode(item)
        if len(encoded) >= _SMALL_BYTES:
            end_run()
            children.append(_cut(item, encoded))
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
