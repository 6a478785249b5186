"""
Large data of messages: what an event names by its digest instead of holding it.

A text of more than `LARGE_BYTES` in a message's data lies beside the log, so that a file which several messages carry is stored
once. In the event an extension of msgpack stands for it; where what is left is still larger, one for the packed data as a whole:

    C7 28 04   size, 8 bytes   SHA-256 of the text in UTF-8
    C7 28 05   size, 8 bytes   SHA-256 of the data as `domain.packing` packs them

They stand in the salted bytes of a slot, so nobody can tell afterwards what was in a slot whose content was taken away. Hashes
are over these bytes: who checks them does not need the data.

An event that travels with its large data, as in a backup, is

    C1 'L'   msgpack: [the event, [what stands for the first extension, for the second, ...]]
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..errors import DECODE_ERRORS, CorruptStateError
from ..packing import SURROGATES, from_extension, is_whole, pack, unpack

LARGE_BYTES: Final = 256 * 1024
"""Texts and data that take more are stored beside the log. A constant: what is written and what is erased must agree on it."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

_TEXT, _DATA = 4, 5
_MARK: Final = b"\xc1L"
_SIZE_BYTES: Final = 8
_REFERENCE_BYTES: Final = 40
_SIGNS: Final = tuple(bytes((0xC7, _REFERENCE_BYTES, code)) for code in (_TEXT, _DATA))
_MAX_CHARACTER_BYTES: Final = 4

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_carried: Final = msgspec.msgpack.Decoder(tuple[bytes, list[bytes]]).decode


class LargeData(NamedTuple):
    """Data that are stored beside the log, and their SHA-256."""

    digest: bytes
    data: bytes


class Reference(NamedTuple):
    """The extension in place of large data: whether these are a text, how many bytes they have, and their SHA-256."""

    is_text: bool
    size: int
    digest: bytes

    def stand_in(self, text: str) -> bytes:
        """Return the bytes that are read as a text here."""
        return text.encode() if self.is_text else pack(text)


Contents = Mapping[bytes, bytes | bytearray]
"""Large data by their digest."""


class UnknownContentError(Exception):
    """An event refers to large data, which its reader was not given."""


class TakenOut(NamedTuple):
    """The data of a message with extensions in place of what is large, and what that is, in its order."""

    data: Any
    large: tuple[LargeData, ...]


def take_out(data: Any) -> TakenOut:
    """Return what is left of a message's data without what is large, and that."""
    # Single texts first: a file that several messages carry is then stored once, whatever is said beside it.
    large: list[LargeData] = []
    left = _without_texts(data, large)
    if large and len(pack(left)) <= LARGE_BYTES:
        return TakenOut(left, tuple(large))
    whole = pack(data)
    if len(whole) <= LARGE_BYTES:
        return TakenOut(data, ())
    packed = LargeData(data_digest(whole), whole)
    return TakenOut(_extension(_DATA, packed), (packed,))


def _without_texts(data: Any, large: list[LargeData]) -> Any:
    """A JSON value with extensions in place of its long texts, which are added to `large`."""
    if isinstance(data, str):
        if len(data) * _MAX_CHARACTER_BYTES <= LARGE_BYTES:  # told without encoding it
            return data
        text = data.encode(errors=SURROGATES)
        if len(text) <= LARGE_BYTES:
            return data
        large.append(LargeData(data_digest(text), text))
        return _extension(_TEXT, large[-1])
    if isinstance(data, list):
        return [_without_texts(item, large) for item in cast("list[Any]", data)]
    if isinstance(data, dict):
        entries = cast("dict[str, Any]", data)
        # An object with half an emoji as a key is packed by itself, and stays in one piece.
        if all(map(is_whole, entries)):
            return {key: _without_texts(item, large) for key, item in entries.items()}
    return cast("Any", data)


def _extension(code: int, part: LargeData) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, len(part.data).to_bytes(_SIZE_BYTES) + part.digest)


def data_digest(data: bytes | bytearray | memoryview) -> bytes:
    return sha256(data).digest()


def reference_in(code: int, data: memoryview) -> Reference | None:
    """
    Return the reference that an extension is; None when it is another one.

    Raises:
        msgspec.DecodeError: It is damaged.
    """
    if code not in {_TEXT, _DATA}:
        return None
    if len(data) != _REFERENCE_BYTES:
        msg = f"a value of the extension {code} is damaged"
        raise msgspec.DecodeError(msg)
    return Reference(code == _TEXT, int.from_bytes(data[:_SIZE_BYTES]), bytes(data[_SIZE_BYTES:]))


def from_slot_extension(code: int, data: memoryview, contents: Contents | None = None) -> Any:
    """
    Return the value that an extension in a slot stands for.

    Raises:
        UnknownContentError: It stands for large data that are not among these.
        msgspec.DecodeError: There is no such extension, or it is damaged.
    """
    reference = reference_in(code, data)
    if reference is None:
        return from_extension(code, data)
    content = (contents or {}).get(reference.digest)
    if content is None:
        raise UnknownContentError
    if not reference.is_text:
        return unpack(content)
    try:
        return content.decode(errors=SURROGATES)
    except ValueError as error:
        msg = f"what a value of the extension {code} stands for is no text"
        raise msgspec.DecodeError(msg) from error


def may_refer(state: bytes) -> bool:
    """Whether an event may refer to large data: it has bytes that such an extension begins with."""
    return any(sign in state for sign in _SIGNS)


def carrying(state: bytes, contents: Sequence[bytes | bytearray]) -> bytes:
    return _MARK + _encode((state, contents))


def is_carrying(record: bytes) -> bool:
    """Whether these are an event together with its large data."""
    return record.startswith(_MARK)


def carried(record: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """
    Return the event in a record, and the large data that came with it.

    Raises:
        CorruptStateError: It is damaged.
    """
    try:
        state, contents = _decode_carried(memoryview(record)[len(_MARK) :])
    except DECODE_ERRORS as error:
        msg = "the large data that came with it are damaged"
        raise CorruptStateError(msg) from error
    return state, {data_digest(content): content for content in contents}
