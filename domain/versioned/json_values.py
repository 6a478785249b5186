"""Values of states: encoded as a whole, and joined again from their parts."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..errors import CorruptStateError
from .content import Content, Leaf, Parts, Serial, split_digests
from .serials import bare, with_header

VALUE: Final = "msgpack"
"""The form of a value by itself; that of a list or map also says how long it is."""

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
    """Return the value of a leaf. Raises `CorruptStateError` for other forms, and what msgspec says of bytes that are none."""
    form, data = with_header(leaf.type, leaf.data)
    if form != VALUE:
        msg = f"a value has the form {form!r}, which no state has"
        raise CorruptStateError(msg)
    return _decode(data)


def join(digest: bytes, content_of: Callable[[bytes], Content]) -> Any:
    """The value of a piece, made anew. Raises as `decoded` does."""
    content = content_of(digest)
    if isinstance(content, Parts):
        parts = map(content_of, split_digests(content.children))
        content = Leaf(content.type, b"".join(part.data for part in parts if isinstance(part, Leaf)))
    if not isinstance(content, Leaf):
        msg = "a value is made of others, which none of a state is"
        raise CorruptStateError(msg)
    return decoded(content)
