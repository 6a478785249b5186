"""
Values of states: encoded as a whole, and joined again from their pieces.

Before there were parts that are found again, large lists and objects were pieces of pieces. Exports of that time have such values, and
they are read for as long as those are.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .content import Content, DictNode, Leaf, ListNode, Parts, Serial, split_digests
from .serials import bare, with_header

VALUE: Final = "msgpack"
"""The form of a value by itself; that of a list or map also says how long it is."""
RUN: Final = "msgpack-items"
"""The form of elements of a list that follow each other."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class Encoded(msgspec.Struct, frozen=True):
    """A value as it is stored, and how much it takes encoded."""

    serial: Serial
    size_bytes: int


def encoded(value: Any) -> Encoded:
    """Encode a JSON value, which was checked."""
    data = _encode(value)
    return Encoded(Serial(*bare(VALUE, data)), len(data))


def decoded(leaf: Leaf) -> Any:
    """Return the value of a leaf. Raises what msgspec says of bytes that are none."""
    return _decode(with_header(leaf.type, leaf.data)[1])


def join(digest: bytes, content_of: Callable[[bytes], Content]) -> Any:
    """The value of a piece, made anew."""
    content = content_of(digest)
    if isinstance(content, Parts):
        parts = map(content_of, split_digests(content.children))
        content = Leaf(content.type, b"".join(part.data for part in parts if isinstance(part, Leaf)))
    if isinstance(content, Leaf):
        return decoded(content)
    if isinstance(content, DictNode):
        children = split_digests(content.children)
        return {key: join(child, content_of) for key, child in zip(content.keys, children, strict=True)}
    assert isinstance(content, ListNode), "values of states have no other form"
    items: list[Any] = []
    for child in split_digests(content.children):
        element = content_of(child)
        if isinstance(element, Leaf) and element.type == RUN:
            items += _decode(element.data)
        else:
            items.append(join(child, content_of))
    return items
