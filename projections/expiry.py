"""Which chats are due to end: a row for each chat that has a time to, in the order of that time."""

from typing import Final

from chatledger.domain.state import ChatProfile

from .environment import Transaction
from .indexed_chat import IndexedChat
from .keys import number, to_number
from .tables import Tables

_TIME_OFFSET: Final = 2**63


def note_expiry(
    txn: Transaction, tables: Tables, chat_no: int, before: ChatProfile | None, after: ChatProfile | None
) -> None:
    """Keep the row of a chat whose profile was `before`, and is `after` or gone."""
    old = None if before is None else before.expires_at
    new = None if after is None else after.expires_at
    if old == new:
        return
    if old is not None:
        txn.delete(_key(old, chat_no), db=tables.expiry)
    if new is not None:
        txn.put(_key(new, chat_no), b"", db=tables.expiry)


def due_chats(
    txn: Transaction, tables: Tables, *, until: int, limit: int | None = None, user_id: str | None = None
) -> list[str]:
    """The ids of the chats (of a user) that end at `until`, in ms, or before: the longest due first. Costs what is due."""
    cursor = txn.cursor(tables.expiry)
    end = number(until + _TIME_OFFSET)
    found, due = cursor.first(), list[str]()
    while found and (key := bytes(cursor.key()))[:8] <= end and (limit is None or len(due) < limit):
        profile = IndexedChat(tables, txn, "", to_number(key[8:])).profile
        assert profile is not None, "a chat that ends has a profile"
        if user_id in {None, profile.user_id}:
            due.append(profile.id)
        found = cursor.next()
    return due


def _key(expires_at: int, chat_no: int) -> bytes:
    return number(expires_at + _TIME_OFFSET) + number(chat_no)
