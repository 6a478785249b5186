"""
Large data of messages: what an event refers to by its digest instead of holding it.

What of a message's data takes more than `LARGE_BYTES` is taken out of the event: each text in them that is so long, so that
a file which several messages carry is stored once, or else the data as a whole. The event is then stored as

    0xC1 'R'   4 bytes: how long the list is   the list of what was taken out, in msgpack   the rest of the event

The list says of each where in the event it stood, how long it is, and its SHA-256, so that the event can be put together
again byte for byte. Hashes are over the whole event, and everybody but the log sees whole events only.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..chat.events import Body, MessagesAppended
from ..errors import DECODE_ERRORS, CorruptStateError
from ..packing import pack
from ..values import Message

LARGE_BYTES: Final = 256 * 1024
"""Data that take more in msgpack are stored by reference. A constant: what is written and what is erased must agree on it."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

MARK: Final = b"\xc1R"
_LENGTH_BYTES: Final = 4
_MAX_CHARACTER_BYTES: Final = 4
REFERENCE_BYTES: Final = 56
"""The maximum size of a reference in an event."""

_encode: Final = msgspec.msgpack.Encoder().encode


class LargeData(NamedTuple):
    """A part taken out of an encoded event: `size` bytes from `start` on, and the SHA-256 of them."""

    start: int
    size: int
    digest: bytes


_decode_list: Final = msgspec.msgpack.Decoder(tuple[LargeData, ...]).decode


def large_data(message: Message) -> list[bytes]:
    """Return the parts of a message's data to store by reference, encoded, in their order."""
    whole = pack(message.data)
    if len(whole) <= LARGE_BYTES:
        return []
    texts = [encoded for text in _texts(message.data) if len(encoded := pack(text)) > LARGE_BYTES]
    return texts if texts and len(whole) - sum(map(len, texts)) <= LARGE_BYTES else [whole]


def _texts(data: Any) -> Iterator[str]:
    """The texts in a JSON value that may be large, in order."""
    if isinstance(data, str):
        if len(data) * _MAX_CHARACTER_BYTES >= LARGE_BYTES:
            yield data
    elif isinstance(data, list):
        for item in cast("list[Any]", data):
            yield from _texts(item)
    elif isinstance(data, dict):
        for key, value in cast("dict[str, Any]", data).items():
            yield from _texts(key)
            yield from _texts(value)


def data_digest(data: bytes | memoryview) -> bytes:
    """Return the digest by which data are found."""
    return sha256(data).digest()


def find_large(body: Body, state: bytes) -> tuple[LargeData, ...]:
    """Return the parts of an encoded event to store by reference."""
    if len(state) <= LARGE_BYTES or not isinstance(body, MessagesAppended):
        return ()
    found: list[LargeData] = []
    after = 0
    for data in (data for message in body.messages for data in large_data(message)):
        # Should the same bytes stand in the event before, then those are taken out: it is put together alike.
        start = state.index(data, after)
        found.append(LargeData(start, len(data), data_digest(data)))
        after = start + len(data)
    return tuple(found)


def largest_message(body: Body) -> int:
    """Return the size of the largest message's data, in bytes."""
    assert isinstance(body, MessagesAppended), "only messages have large data"
    return max(len(pack(message.data)) for message in body.messages)


def stored_size(state: bytes, large: Sequence[LargeData]) -> int:
    """Return the size of an event that counts against the limit, with references in place of large data."""
    return len(state) - sum(part.size for part in large) + REFERENCE_BYTES * len(large)


def with_references(state: bytes, large: Sequence[LargeData]) -> bytes:
    """The stored form of an event that has large data."""
    listed = _encode(large)
    view = memoryview(state)
    kept: list[bytes | memoryview] = [MARK, len(listed).to_bytes(_LENGTH_BYTES), listed]
    after = 0
    for part in large:
        kept.append(view[after : part.start])
        after = part.start + part.size
    return b"".join([*kept, view[after:]])


def has_references(stored: bytes) -> bool:
    """Whether the stored form of an event refers to large data."""
    return stored.startswith(MARK)


def references_in(stored: bytes) -> tuple[LargeData, ...]:
    """
    Return the references in the stored form of an event.

    Raises:
        CorruptStateError: It is damaged.
    """
    begin = len(MARK) + _LENGTH_BYTES
    end = begin + int.from_bytes(stored[len(MARK) : begin])
    try:
        found = _decode_list(stored[begin:end])
    except DECODE_ERRORS as error:
        msg = "the list of its large data is damaged"
        raise CorruptStateError(msg) from error
    after = 0
    for part in found:
        if part.start < after or part.size < 0:
            msg = "the list of its large data is damaged"
            raise CorruptStateError(msg)
        after = part.start + part.size
    return found


def put_together(stored: bytes, fetch: Callable[[LargeData], bytes | bytearray]) -> bytes:
    """
    The whole event behind a stored form, with what `fetch` gives for each reference.

    Raises:
        CorruptStateError: It is damaged.
    """
    large = references_in(stored)
    rest = memoryview(stored)[len(MARK) + _LENGTH_BYTES + len(_encode(large)) :]
    parts: list[bytes | bytearray | memoryview] = []
    after = taken = 0
    for part in large:
        room = part.start - after
        parts += [rest[taken : taken + room], fetch(part)]
        taken += room
        after = part.start + part.size
    return b"".join([*parts, rest[taken:]])
