"""Lists over all chats: the catalogue, newest first; those that are due to end; and those that have large data."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from chatledger.domain.chat.state import ChatProfile, ChatRecord
from chatledger.domain.values import Chat

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import (
    Entry,
    Tag,
    chat_key,
    creation_scope,
    member_scope,
    number,
    order_suffix,
    scope,
    to_number,
)
from ..lmdb.tables import Tables
from .reader import IndexedChat, read_chats


class ChatCursor(NamedTuple):
    """A place in a list of chats: just after the chat of that id, which stood there with that time."""

    time: int
    chat_id: str
    chat_no: int | None = None  # looked up when None


class ChatList(NamedTuple):
    """
    A list of chats, newest first, ties by id.

    Args:
        user_id: Only chats of this owner; of all when None.
        entries: Those whose metadata have all of these; none for a list by creation.
        is_by_creation: By `created_at`, not by `updated_at`.
        is_ascending: From its other end.
        reader: Only those that this user owns or is a member of.
    """

    user_id: str | None = None
    entries: tuple[Entry, ...] = ()
    is_by_creation: bool = False
    is_ascending: bool = False
    reader: str | None = None

    def time_of(self, chat: ChatRecord | Chat) -> int:
        return chat.created_at if self.is_by_creation else chat.updated_at


ALL_CHATS: Final = ChatList()
_LAST: Final = b"\xff" * 16  # no id begins like this
_MOST: Final = 2**62


class _Listing:
    """A cursor over the rows of one list, in one direction."""

    def __init__(self, txn: Transaction, tables: Tables, listing: bytes, *, is_ascending: bool) -> None:
        self._cursor, self._listing, self._is_ascending = txn.cursor(tables.order), listing, is_ascending

    def seek(self, place: bytes) -> bytes | None:
        """Go to a place, or the next one there is, and return it; None at the end."""
        cursor, wanted = self._cursor, self._listing + place
        is_row = cursor.set_range(wanted)
        if self._is_ascending and not (is_row and cursor.key() == wanted):
            is_row = cursor.prev() if is_row else cursor.last()
        return self._place(is_row=is_row)

    def step(self) -> bytes | None:
        """Go to the next place, and return it; None at the end."""
        return self._place(is_row=self._cursor.prev() if self._is_ascending else self._cursor.next())

    def chat_no(self) -> int:
        return to_number(self._cursor.value())

    def _place(self, *, is_row: bool) -> bytes | None:
        key = bytes(self._cursor.key()) if is_row else b""
        return key[len(self._listing) :] if key.startswith(self._listing) and key else None


def _chat_nos(txn: Transaction, tables: Tables, chats: ChatList, after: bytes | None = None) -> Iterator[int]:
    """The numbers of the chats of a list, after a place: what a reader owns is merged with what that user is a member of."""
    reader, owner = chats.reader, chats.user_id
    merged: list[Iterator[tuple[bytes, int]]] = []
    if reader is None or owner in {None, reader}:
        own = reader if owner is None else owner
        if chats.is_by_creation:
            keys = [creation_scope(user_id=own)]
        else:
            keys = [scope(user_id=own, entry=entry) for entry in chats.entries or (None,)]
        merged.append(_places(txn, tables, keys, after, is_ascending=chats.is_ascending))
    if reader is not None and owner != reader:
        keys = [creation_scope(member=reader) if chats.is_by_creation else member_scope(reader)]
        places = _places(txn, tables, keys, after, is_ascending=chats.is_ascending)

        # A member has one row for a shared chat, whatever its owner and metadata: many members of a chat with many entries were half
        # a million rows an append. So these are looked at in the profile, of those chats that are shared with this reader.
        def fits(chat_no: int) -> bool:
            profile = IndexedChat(tables, txn, "", chat_no).profile
            assert profile is not None, "a listed chat has a profile"
            has_all = all(has_entry(profile.metadata, entry) for entry in chats.entries)
            return has_all and chats.user_id in {None, profile.user_id}

        merged.append((place, chat_no) for place, chat_no in places if fits(chat_no))
    return (chat_no for _, chat_no in merge(*merged, reverse=chats.is_ascending))


def has_entry(metadata: dict[str, Any] | None, entry: Entry) -> bool:
    """Whether metadata have an entry, equal by type as in the lists."""
    value = None if metadata is None else metadata.get(entry[0])
    return isinstance(value, str | int | float) and scope(entry=(entry[0], value)) == scope(entry=entry)


def _places(
    txn: Transaction, tables: Tables, keys: list[bytes], after: bytes | None, *, is_ascending: bool
) -> Iterator[tuple[bytes, int]]:
    """The places and numbers of the chats that all these lists have, after a place."""
    lists = [_Listing(txn, tables, key, is_ascending=is_ascending) for key in keys]
    place = lists[0].seek((_LAST if is_ascending else b"") if after is None else after)
    if after is not None and place == after:
        place = lists[0].step()
    while place is not None:
        for other in lists[1:]:
            theirs = other.seek(place)
            if theirs != place:
                place = None if theirs is None else lists[0].seek(theirs)
                break
        else:
            yield place, lists[0].chat_no()
            place = lists[0].step()


def count_chats(txn: Transaction, tables: Tables, chats: ChatList) -> int:
    """The number of chats of a list. Costs a row of it for each; no chat is read."""
    return sum(1 for _ in _chat_nos(txn, tables, chats))


def list_chats(
    txn: Transaction, tables: Tables, chats: ChatList, *, limit: int | None, offset: int, after: ChatCursor | None
) -> list[Chat]:
    """A page of a list of chats. Costs the page and the offset; with several entries, what the shortest of their lists has."""
    start = None
    if after is not None:
        chat_no = after.chat_no if after.chat_no is not None else tables.chat_no(txn, after.chat_id) or 0
        start = order_suffix(after.time, after.chat_id, chat_no)
    end = None if limit is None else min(offset + limit, _MOST)
    return read_chats(txn, tables, list(islice(_chat_nos(txn, tables, chats, start), min(offset, _MOST), end)))


def listed(txn: Transaction, tables: Tables, *, user_id: str | None, reader: str | None = None) -> list[int]:
    """The numbers of all chats, or of an owner's, newest first; with a reader, only the chats that this user owns or is a member of."""
    if reader is None or user_id == reader:
        return _all_of(txn, tables, scope(user_id=user_id))
    if joined_chats(txn, tables, reader):
        return list(_chat_nos(txn, tables, ChatList(user_id, reader=reader)))
    return _all_of(txn, tables, scope(user_id=reader)) if user_id is None else []


def joined_chats(txn: Transaction, tables: Tables, user_id: str) -> list[int]:
    """The numbers of the chats that a user is a member of, newest first."""
    return _all_of(txn, tables, member_scope(user_id))


def _all_of(txn: Transaction, tables: Tables, listing: bytes) -> list[int]:
    cursor = txn.cursor(tables.order)
    chat_nos: list[int] = []
    if cursor.set_range(listing):
        for key, value in cursor.iternext():
            if not key.startswith(listing):
                break
            chat_nos.append(to_number(value))
    return chat_nos


_TIME_OFFSET: Final = 2**63


def note_expiry(
    txn: Transaction, tables: Tables, chat_no: int, before: ChatProfile | None, after: ChatProfile | None
) -> None:
    """Update the row of a chat whose profile was `before`, and is `after` or gone."""
    old = None if before is None else before.ends_at
    new = None if after is None else after.ends_at
    if old == new:
        return
    if old is not None:
        txn.delete(_key(old, chat_no), db=tables.expiry)
    if new is not None:
        txn.put(_key(new, chat_no), b"", db=tables.expiry)


def due_chats(
    txn: Transaction, tables: Tables, *, until: int, limit: int | None = None, user_id: str | None = None
) -> list[str]:
    """The ids of the chats (of a user) that end at `until`, in ms, or before, the longest due first. Costs a row for each."""
    cursor = txn.cursor(tables.expiry)
    end = number(until + _TIME_OFFSET)
    is_row, due = cursor.first(), list[str]()
    while is_row and (key := bytes(cursor.key()))[:8] <= end and (limit is None or len(due) < limit):
        profile = IndexedChat(tables, txn, "", to_number(key[8:])).profile
        assert profile is not None, "a chat that ends has a profile"
        if user_id in {None, profile.user_id}:
            due.append(profile.id)
        is_row = cursor.next()
    return due


def _key(expires_at: int, chat_no: int) -> bytes:
    return number(expires_at + _TIME_OFFSET) + number(chat_no)


DIGEST_BYTES: Final = 32
_DROPPED: Final = b"dropped:"


def note_large(txn: Transaction, tables: Tables, chat_no: int, digest: bytes) -> None:
    """Note that a chat has a message, or one more, with these data."""
    key = chat_key(chat_no, Tag.LARGE, digest)
    before = txn.get(key, db=tables.rows)
    txn.put(digest + number(chat_no), b"", db=tables.blobs)
    txn.put(key, number(1 if before is None else to_number(before) + 1), db=tables.rows)


def note_less_large(txn: Transaction, tables: Tables, chat_no: int, digest: bytes) -> None:
    """Note that a message of a chat has these data no more; they may be dropped when no other one has them."""
    key = chat_key(chat_no, Tag.LARGE, digest)
    count = to_number(txn.get(key, number(1), db=tables.rows)) - 1
    if count:
        txn.put(key, number(count), db=tables.rows)
        return
    txn.delete(key, db=tables.rows)
    txn.delete(digest + number(chat_no), db=tables.blobs)
    txn.put(_DROPPED + digest, b"", db=tables.meta)


def forget_large(txn: Transaction, tables: Tables, chat_no: int) -> None:
    """Note that the large data of a deleted chat may be dropped. Call it before its rows go, which name the data."""
    prefix = chat_key(chat_no, Tag.LARGE)
    for digest in [bytes(key[len(prefix) :]) for key, _ in prefixed(txn, tables.rows, prefix)]:
        txn.delete(digest + number(chat_no), db=tables.blobs)
        # Kept in the index until the log has dropped them, as a kill in between must forget nothing. Whether another chat has them is
        # asked when they are dropped: one may get them until then.
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
    """Yield the digests of all large data that chats have, in order."""
    cursor = txn.cursor(tables.blobs)
    is_row = cursor.first()
    while is_row:
        digest = bytes(cursor.key()[:DIGEST_BYTES])
        yield digest
        following = (int.from_bytes(digest, "big") + 1).to_bytes(DIGEST_BYTES + 1, "big")
        is_row = not following[0] and cursor.set_range(following[1:])
