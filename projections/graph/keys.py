"""Keys of the rows of stored states."""

from hashlib import blake2b
from typing import Final

from ..lmdb.keys import id_key, number

RECORD, VERSION, PIECE = (bytes((kind,)) for kind in range(1, 4))
"""The kinds of rows that a state has, after its number."""

ALL, BY_USER, BY_CONVERSATION, BY_UPDATE, BY_EXPIRY = b"a", b"u", b"c", b"t", b"e"
"""The lists over all states. Their keys end with the number of a state."""

_TIME_OFFSET: Final = 2**63


def stream_key(stream: str) -> bytes:
    """Return the key of the number of a state."""
    return b"s" + id_key(stream)


def record_key(state_no: int) -> bytes:
    """Return the key of the record, which changes with every version."""
    return number(state_no) + RECORD


def version_key(state_no: int, version: int) -> bytes:
    """A version; they lie in order."""
    return number(state_no) + VERSION + number(version)


def piece_key(state_no: int, digest: bytes) -> bytes:
    """A piece of content."""
    return number(state_no) + PIECE + digest


def user_prefix(user_id: str) -> bytes:
    """Return the prefix of the list of a user."""
    return BY_USER + _digest(user_id)


def conversation_prefix(conversation_id: str) -> bytes:
    """Return the prefix of the list of a conversation."""
    return BY_CONVERSATION + _digest(conversation_id)


def time_key(listing: bytes, moment_ms: int) -> bytes:
    """Return the prefix of the keys of one time in a list by time."""
    return listing + number(moment_ms + _TIME_OFFSET)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=24).digest()
