"""Keys of the rows of stored states."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ..lmdb.keys import id_key, number

RECORD, VERSION, PIECE = (bytes((kind,)) for kind in range(1, 4))
"""The kinds of rows that a state has, after its number."""

ALL, BY_USER, BY_CONVERSATION, BY_UPDATE, BY_USER_AND_UPDATE, BY_EXPIRY = b"a", b"u", b"c", b"t", b"v", b"e"
"""The lists over all states of conversations, and over all states by time. Their keys end with the number of a state."""

ITEMS, ITEMS_OF_USER, KNOWN_ITEMS, LIVING_ITEMS, NAMESPACES = b"i", b"j", b"k", b"l", b"n"
"""
The lists over items: of all users, of a user, those with any version and those with a value under each beginning of their
namespace; and the namespaces of a user, each with the number of items that have a value.
"""

ORDERED_BYTES: Final = 400
"""The bytes of a namespace by which a list is in order: LMDB's keys have at most 511."""
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


def updates_of_user_prefix(user_id: str) -> bytes:
    """Return the prefix of the list of a user, the last changed last."""
    return BY_USER_AND_UPDATE + _digest(user_id)


def conversation_prefix(conversation_id: str) -> bytes:
    """Return the prefix of the list of a conversation."""
    return BY_CONVERSATION + _digest(conversation_id)


def items_of_user_prefix(user_id: str) -> bytes:
    """Return the prefix of the list of a user's items."""
    return ITEMS_OF_USER + _digest(user_id)


def known_items_prefix(user_id: str, labels: Sequence[str]) -> bytes:
    """Return the prefix of the list of all items under the beginning of a namespace, in the order in which they began."""
    return KNOWN_ITEMS + _labels_digest(user_id, labels)


def living_items_prefix(user_id: str, labels: Sequence[str]) -> bytes:
    """Return the prefix of the list of items with a value under the beginning of a namespace, the last changed last."""
    return LIVING_ITEMS + _labels_digest(user_id, labels)


def namespaces_prefix(user_id: str) -> bytes:
    """Return the prefix of the list of a user's namespaces."""
    return NAMESPACES + _digest(user_id)


def namespace_key(user_id: str, labels: Sequence[str]) -> bytes:
    """Return the key of a namespace in the list of its user, which is in the order of the labels up to `ORDERED_BYTES` of them."""
    ordered = ordered_labels(labels)
    rest = b"" if len(ordered) <= ORDERED_BYTES else _labels_digest(user_id, labels)
    return namespaces_prefix(user_id) + ordered[:ORDERED_BYTES] + rest


def ordered_labels(labels: Sequence[str]) -> bytes:
    """Return labels as bytes that sort as they do, and begin with those of each of their beginnings."""
    return "".join(f"{label}\0" for label in labels).encode()  # no label contains NUL


def moment(time_ms: int) -> bytes:
    """Return a time as it stands in keys."""
    return number(time_ms + _TIME_OFFSET)


def time_key(listing: bytes, moment_ms: int) -> bytes:
    """Return the prefix of the keys of one time in a list by time."""
    return listing + moment(moment_ms)


def _labels_digest(user_id: str, labels: Sequence[str]) -> bytes:
    # No part contains NUL, and the user comes first.
    return _digest("\0".join((user_id, *labels)))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=24).digest()
