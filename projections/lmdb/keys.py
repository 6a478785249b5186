"""Keys of the index: ids of up to 2,048 bytes in LMDB's 511, order by time, and rows that lie together by chat."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b, sha256
from struct import Struct
from typing import Any, Final

import msgspec

_RAW_KEY_BYTES: Final = 400
_ORDER_ID_BYTES: Final = 400
_DIGEST_BYTES: Final = 24
_TIME_OFFSET: Final = 2**63
_MAX_TIME: Final = 2**64 - 1

number: Final[Callable[[int], bytes]] = Struct(">Q").pack
"""Packs a number of up to 64 bits so that it sorts by its value."""
to_number: Final[Callable[[bytes], int]] = int.from_bytes
"""Returns the number that `number` packed."""
_encode = msgspec.msgpack.Encoder().encode


NO_SEGMENT: Final = 0xFFFFFFFF
"""The parent of root segments."""


# An append asks for the keys of the same few ids a dozen times, to decide and to apply.
@lru_cache(maxsize=4096)
def id_key(text: str) -> bytes:
    """A key for an id: the 16 bytes of a UUID, the text itself, or the SHA-256 of a long text; no two ids share a key."""
    if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
        compact = text.replace("-", "")
        try:
            raw = bytes.fromhex(compact)
        except ValueError:
            raw = b""
        # Not with capitals, blanks or other dashes: the text must follow from the bytes, or two ids would share a key.
        if raw.hex() == compact and len(raw) == 16:
            return b"u" + raw
    encoded = text.encode()
    return b"t" + encoded if len(encoded) <= _RAW_KEY_BYTES else b"h" + sha256(encoded).digest()


_LONG_ID_CHARS: Final = 64


def message_key(message_id: str) -> bytes:
    """A key for the id of a message. Of a long one that begins with the id of its chat, as those of transcripts, a digest stands for that."""
    if len(message_id) > _LONG_ID_CHARS:
        chat_id, colon, rest = message_id.rpartition(":")
        if colon and len(chat_id) >= _LONG_ID_CHARS // 2:
            return _prefix(chat_id) + id_key(rest)
    return id_key(message_id)


@lru_cache(maxsize=1024)
def _prefix(chat_id: str) -> bytes:
    return b"p" + sha256(chat_id.encode()).digest()


def digest_of_key(key: bytes) -> bytes:
    """Return the SHA-256 of the id that has a key."""
    kind, rest = key[:1], key[1:]
    if kind == b"h":
        return rest
    if kind == b"u":
        digits = rest.hex()
        rest = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()
    return sha256(rest).digest()


class Tag:
    """The kinds of rows that a chat has; each chat's rows lie together, and go together when it is deleted."""

    RECORD: Final = b"\x01"
    PROFILE: Final = b"\x02"
    COUNTERS: Final = b"\x03"
    BRANCH: Final = b"\x04"
    NAME_COUNT: Final = b"\x05"
    CHECKPOINT: Final = b"\x06"
    COMMAND: Final = b"\x07"
    SEGMENT: Final = b"\x08"
    FORK: Final = b"\x09"
    PAGE: Final = b"\x0a"
    ANNOTATION: Final = b"\x0b"
    RUN: Final = b"\x0c"
    RUN_NUMBER: Final = b"\x0d"
    RUN_LIST: Final = b"\x0e"
    REGENERATION: Final = b"\x0f"
    LARGE: Final = b"\x10"
    TURN: Final = b"\x11"
    ONCE: Final = b"\x12"
    MEMBER: Final = b"\x13"
    BRANCH_NAME: Final = b"\x14"
    LAST_TEXT: Final = b"\x15"
    PSEUDONYM: Final = b"\x16"
    MERGE: Final = b"\x17"


def chat_key(chat_no: int, tag: bytes, rest: bytes = b"") -> bytes:
    return number(chat_no) + tag + rest


segment_key: Final[Callable[[int, bytes, int], bytes]] = Struct(">QcI").pack
"""Packs the key of a segment's row: chat number, `Tag.SEGMENT`, number of the segment."""
place_key: Final[Callable[[int, bytes, int, int], bytes]] = Struct(">QcII").pack
"""
Packs the key of a row about a place: chat number, tag, segment, offset.

With `Tag.PAGE` and `Tag.TURN` it is the row of the messages from there on, with `Tag.FORK` the prefix of the fork keys of the message.
"""
fork_key: Final[Callable[[int, bytes, int, int, int], bytes]] = Struct(">QcIII").pack
"""Packs the key that says that a segment begins below a message: chat number, `Tag.FORK`, the place of the message, the segment."""
slot_key: Final[Callable[[int, int], bytes]] = Struct(">QI").pack
"""Packs the rest of the key of a slot in the head of an event: version, slot; or of the sender of a message: 0, its number in the chat."""


def branch_number(number: int) -> bytes:
    """The last part of the key under which the name of a branch is kept by its number."""
    return number.to_bytes(4)


def once_prefix(chat_no: int, once_id: str) -> bytes:
    """Return the prefix of the keys that say where an id of `once` has fired; a place follows it."""
    return chat_key(chat_no, Tag.ONCE, sha256(once_id.encode()).digest())


def scopes(user_id: str, metadata: dict[str, Any] | None, members: Iterable[str] = ()) -> list[bytes]:
    """
    The lists in which a chat appears: all, its owner's, those of each scalar metadata entry, with and without owner, and one for
    each member.
    """
    own = [owner_scope(None), owner_scope(user_id)]
    for entry in (metadata or {}).items():
        if isinstance(entry[1], str | int | float):
            own += [scope(entry=entry), scope(user_id=user_id, entry=entry)]
    # A member has one list, whatever the metadata: many members of a chat with many entries would be half a million rows an append.
    return own + [member_scope(member) for member in members]


Entry = tuple[str, str | float]
"""A top-level entry of the metadata of a chat."""


def scope(*, user_id: str | None = None, entry: Entry | None = None) -> bytes:
    """The list of the chats of an owner, of a metadata entry, or of both. Entries are equal by type: `True` is not `1`."""
    if entry is None:
        return owner_scope(user_id)
    key, value = entry
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**64:
        value = int(value)  # JSON has one kind of number, so 1.0 and 1 are the same entry
    return blake2b(_encode([user_id, key, value]), digest_size=_DIGEST_BYTES).digest()


@lru_cache(maxsize=1024)
def owner_scope(user_id: str | None) -> bytes:
    """The list of all chats, or of the chats of an owner."""
    return blake2b(_encode([user_id]), digest_size=_DIGEST_BYTES).digest()


def member_scope(member: str) -> bytes:
    """The list of the chats of other owners that a user is a member of."""
    return blake2b(_encode([["member", member]]), digest_size=_DIGEST_BYTES).digest()


def creation_scope(*, user_id: str | None = None, member: str | None = None) -> bytes:
    """The list of all chats, or of those of an owner or member, by the time of their creation."""
    return blake2b(_encode(["created", user_id, member, None]), digest_size=_DIGEST_BYTES).digest()


def creation_scopes(user_id: str, members: Iterable[str] = ()) -> list[bytes]:
    return [creation_scope(), creation_scope(user_id=user_id), *(creation_scope(member=member) for member in members)]


def order_suffix(time: int, chat_id: str, chat_no: int) -> bytes:
    """
    The place of a chat in each list that is ordered by that time: newest first, ties by id.

    Ids that share 400 bytes follow in order of creation.
    """
    encoded = chat_id.encode()
    if len(encoded) > _ORDER_ID_BYTES:
        encoded = encoded[:_ORDER_ID_BYTES] + number(chat_no)
    return number(_MAX_TIME - (time + _TIME_OFFSET)) + encoded
