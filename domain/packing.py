"""
Messages' data as bytes: msgpack, in which what it has no form for is an extension.

    1    an integer beyond 64 bits               its decimal digits
    2    text with half an emoji                 UTF-8 that has lone surrogates
    3    an object that has such a text as key   a msgpack array: key, value, key, value, ...

So a message keeps whatever Python's `json` reads. NaN and infinities have a form in msgpack. Values that need no extension are packed
by the encoder alone: only when it refuses them they are walked.
"""

import json
from typing import Any, Final, TypeVar, cast

import msgspec

_INTEGER, _TEXT, _OBJECT = 1, 2, 3
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
MAX_DIGITS: Final = 4300
"""Python reads and writes no integer of more digits as text."""
SURROGATES: Final = "surrogatepass"
"""How UTF-8 with half an emoji is encoded and decoded."""
_HALF: Final = ("\ud800", "\udbff")

S = TypeVar("S", bound=msgspec.Struct)
_encode: Final = msgspec.msgpack.Encoder().encode
_encode_ordered: Final = msgspec.json.Encoder(order="deterministic").encode
_Ext: Final = msgspec.msgpack.Ext


def pack(value: Any) -> bytes:
    """The bytes of a JSON value. Raises `TypeError` and the like for what `data_copy` refuses."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _encode(packable(value))


def pack_message(message: msgspec.Struct) -> bytes:
    """The bytes of a message; its data alone may have extensions."""
    try:
        return _encode(message)
    except (UnicodeEncodeError, OverflowError):
        return _encode(with_packable_data(message))


def with_packable_data(message: S) -> S:
    """Return a message, or a draft of one, whose data msgspec encodes."""
    return msgspec.structs.replace(message, data=packable(cast("Any", message).data))


def packable(value: Any) -> Any:
    """Return a JSON value that msgspec encodes, with extensions in place of what it refuses."""
    if isinstance(value, str):
        return value if is_whole(value) else _Ext(_TEXT, value.encode(errors=SURROGATES))
    if isinstance(value, int):
        return value if _MIN_INT <= value <= _MAX_INT else _Ext(_INTEGER, b"%d" % value)
    if isinstance(value, list):
        return [packable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if all(map(is_whole, entries)):
            return {key: packable(item) for key, item in entries.items()}
        return _Ext(_OBJECT, _encode([packable(one) for entry in entries.items() for one in entry]))
    return value


def from_extension(code: int, data: memoryview) -> Any:
    """
    Return the value that an extension stands for: the `ext_hook` of whoever decodes what `pack` gave.

    Raises:
        msgspec.DecodeError: There is no such extension, or it is damaged.
    """
    try:
        if code == _INTEGER:
            return int(bytes(data))
        if code == _TEXT:
            return bytes(data).decode(errors=SURROGATES)
        if code == _OBJECT:
            both = iter(cast("list[Any]", unpack(data)))
            return dict(zip(both, both, strict=True))
    except (ValueError, TypeError) as error:
        msg = f"a value of the extension {code} is damaged"
        raise msgspec.DecodeError(msg) from error
    msg = f"there is a value of the extension {code}: a newer chatledger wrote it"
    raise msgspec.DecodeError(msg)


unpack: Final = msgspec.msgpack.Decoder(ext_hook=from_extension).decode
"""Return the value of the bytes that `pack` gave. Raises `msgspec.DecodeError` and the like when they are damaged."""


def ordered_json(value: Any) -> bytes:
    """A JSON value as JSON with its keys in order, for digests: that of what others are told of it, see `readable`."""
    try:
        return _encode_ordered(value)
    except UnicodeEncodeError:
        return _encode_ordered(readable(value))


def parse_json(text: bytes) -> Any:
    r"""
    Read JSON in UTF-8 that escapes half an emoji as it stands (`"\ud83d"`), as JavaScript writes it and msgspec reads it not.

    Raises:
        ValueError, RecursionError: It is no JSON for another reason: NaN and infinities are none.
    """
    if b"\\u" not in text:
        msg = "it escapes nothing"
        raise ValueError(msg)
    return json.loads(text.decode(), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


def is_whole(text: str) -> bool:
    """Whether a text is without lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def joined(text: str) -> str:
    """A text in which each two halves of an emoji that follow each other are one: JSON writes both alike."""
    if is_whole(text):
        return str.__str__(text)
    return text.encode("utf-16-le", SURROGATES).decode("utf-16-le", SURROGATES)


def text_size(text: str) -> int:
    """The size of a text in bytes, packed."""
    return len(text) if text.isascii() else len(text.encode(errors=SURROGATES))


def without_half(text: str) -> tuple[str, str]:
    """Return a text without the first half of an emoji at its end, and that half, or an empty text."""
    return (text[:-1], text[-1:]) if text and _HALF[0] <= text[-1] <= _HALF[1] else (text, "")


def readable(value: Any) -> Any:
    """A JSON value with U+FFFD in place of lone surrogates: what can be encoded as UTF-8, for those who show it."""
    if isinstance(value, str):
        return readable_text(value)
    if isinstance(value, list | tuple):
        return [readable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {readable(key): readable(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def readable_text(text: str) -> str:
    """A text with U+FFFD in place of lone surrogates."""
    return text if is_whole(text) else text.encode("utf-16-le", SURROGATES).decode("utf-16-le", "replace")
