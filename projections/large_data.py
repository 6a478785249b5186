"""
Which chats have which large data: what is asked before these are erased.

    table `blobs`      SHA-256, chat number      a chat has messages with these data
    rows of a chat     SHA-256                   the same, to be found by the chat
    table `meta`       SHA-256                   a deleted chat had them, and they may still be stored
"""

from collections.abc import Iterator
from typing import Final

from .environment import Transaction, prefixed
from .keys import Tag, chat_key, number
from .tables import Tables

DIGEST_BYTES: Final = 32
_DROPPED: Final = b"dropped:"


def note_large(txn: Transaction, tables: Tables, chat_no: int, digest: bytes) -> None:
    """Note that a chat has a message with these data."""
    txn.put(digest + number(chat_no), b"", db=tables.blobs)
    txn.put(chat_key(chat_no, Tag.LARGE, digest), b"", db=tables.rows)


def forget_large(txn: Transaction, tables: Tables, chat_no: int) -> None:
    """A chat is deleted: its data are to be dropped, unless others have them too. Before its rows are."""
    prefix = chat_key(chat_no, Tag.LARGE)
    for digest in [bytes(key[len(prefix) :]) for key, _ in prefixed(txn, tables.rows, prefix)]:
        txn.delete(digest + number(chat_no), db=tables.blobs)
        txn.put(_DROPPED + digest, b"", db=tables.meta)


def is_large_used(txn: Transaction, tables: Tables, digest: bytes) -> bool:
    """Whether a chat has a message with these data."""
    cursor = txn.cursor(tables.blobs)
    return cursor.set_range(digest) and cursor.key().startswith(digest)


def dropped_large(txn: Transaction, tables: Tables) -> list[bytes]:
    """The data of deleted chats that may still be stored."""
    return [bytes(key[len(_DROPPED) :]) for key, _ in prefixed(txn, tables.meta, _DROPPED)]


def finish_drop(txn: Transaction, tables: Tables, digest: bytes) -> None:
    """Note that data are not stored any more, or that others have them."""
    txn.delete(_DROPPED + digest, db=tables.meta)


def large_digests(txn: Transaction, tables: Tables) -> Iterator[bytes]:
    """All that chats have, in order."""
    cursor = txn.cursor(tables.blobs)
    found = cursor.first()
    while found:
        digest = bytes(cursor.key()[:DIGEST_BYTES])
        yield digest
        following = (int.from_bytes(digest, "big") + 1).to_bytes(DIGEST_BYTES + 1, "big")
        found = not following[0] and cursor.set_range(following[1:])
