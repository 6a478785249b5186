"""Building the search index from the messages in the chains, chat by chat, while it is in use."""

from collections.abc import Callable
from typing import Final

from ..catalogue import listed
from ..environment import Environment, Transaction
from ..indexed_chat import IndexedChat
from ..tables import Tables
from .currency import begin_anew, is_behind, is_current, note_complete
from .writer import SearchWriter

CHUNK_MESSAGES: Final = 20_000
"""Taken in by one transaction; other writers wait for it, for about half a second."""


def is_complete(env: Environment, tables: Tables) -> bool:
    """Whether the search index is of this version, and of all messages."""
    with env.reading() as txn:
        return is_current(txn, tables) and not is_behind(txn, tables)


def build(
    env: Environment,
    tables: Tables,
    *,
    anew: bool,
    progress: Callable[[int, int], None],
    chunk_messages: int = CHUNK_MESSAGES,
) -> None:
    """
    Take in the messages that are missing; with `anew`, or when the version changed, all of them.

    It can be interrupted at any point, and goes on where it was when it is called again.
    """

    def begin(txn: Transaction) -> None:
        if anew or not is_current(txn, tables):
            begin_anew(txn, tables)

    env.update(begin)
    with env.reading() as txn:
        chats = [chat_no for chat_no, _ in listed(txn, tables, user_id=None)]
        total = sum(_message_count(txn, tables, chat_no) for chat_no in chats)
    done = 0
    progress(done, total)
    for chat_no in chats:
        while taken := env.update(lambda txn, chat_no=chat_no: _take(txn, tables, chat_no, chunk_messages)):  # type: ignore[misc]  # a default of a lambda
            done += taken
            progress(min(done, total), total)
    env.update(lambda txn: note_complete(txn, tables))
    progress(total, total)


def _take(txn: Transaction, tables: Tables, chat_no: int, limit: int) -> int:
    """Take in the next messages of a chat; returns how many there were."""
    chat = IndexedChat(tables, txn, "", chat_no)
    if chat.record is None:  # deleted meanwhile
        return 0
    writer = SearchWriter(txn, tables, chat_no)
    first = writer.state.indexed
    if first >= chat.record.message_count:
        return 0
    numbered = chat.chains.numbered(first)[:limit]
    messages = chat.chains.bare_messages([place for _, place in numbered])
    for (ordinal, place), message in zip(numbered, messages, strict=True):
        writer.add(message, ordinal, place)
    writer.flush()
    return len(numbered)


def _message_count(txn: Transaction, tables: Tables, chat_no: int) -> int:
    record = IndexedChat(tables, txn, "", chat_no).record
    return 0 if record is None else record.message_count
