"""The list of chats, newest first."""

from typing import NamedTuple

import msgspec

from chatledger.domain.state import ChatProfile
from chatledger.domain.values import Chat

from .environment import Transaction
from .indexed_chat import IndexedChat
from .keys import Tag, chat_key, order_key, scope, to_number
from .sealed import unseal
from .tables import Tables

_decode_profile = msgspec.msgpack.Decoder(ChatProfile).decode


class Cursor(NamedTuple):
    """A place in the list: just after the chat of that id, which stood there with that `updated_at`."""

    updated_at: int
    chat_id: str
    chat_no: int | None = None  # looked up when None


def list_chats(
    txn: Transaction,
    tables: Tables,
    *,
    user_id: str | None,
    entry: tuple[str, str | float] | None,
    limit: int | None,
    offset: int,
    after: Cursor | None,
) -> list[Chat]:
    """Chats by `updated_at`, newest first, ties by id; those of an owner, with a metadata entry, or both."""
    listing = scope(user_id=user_id, entry=entry)
    cursor = txn.cursor(tables.order)
    start = listing
    if after is not None:
        chat_no = after.chat_no if after.chat_no is not None else tables.chat_no(txn, after.chat_id) or 0
        start = order_key(listing, after.updated_at, after.chat_id, chat_no)
    found = cursor.set_range(start)
    if after is not None and found and cursor.key() == start:
        found = cursor.next()
    chats: list[Chat] = []
    while found and (limit is None or len(chats) < limit) and cursor.key().startswith(listing):
        if offset:
            offset -= 1
        else:
            chats.append(_chat(txn, tables, to_number(cursor.value())))
        found = cursor.next()
    return chats


def listed(txn: Transaction, tables: Tables, *, user_id: str | None) -> list[int]:
    """The numbers of all chats, or of an owner's, newest first."""
    listing = scope(user_id=user_id)
    cursor = txn.cursor(tables.order)
    found: list[int] = []
    if cursor.set_range(listing):
        for key, value in cursor.iternext():
            if not key.startswith(listing):
                break
            found.append(to_number(value))
    return found


def _profile(txn: Transaction, tables: Tables, chat_no: int) -> ChatProfile:
    raw = txn.get(chat_key(chat_no, Tag.PROFILE), db=tables.rows)
    assert raw is not None, "a listed chat has a profile"
    return _decode_profile(unseal(raw))


def _chat(txn: Transaction, tables: Tables, chat_no: int) -> Chat:
    chat = IndexedChat(tables, txn, _profile(txn, tables, chat_no).id, chat_no).chat
    assert chat is not None, "a listed chat has a record"
    return chat
