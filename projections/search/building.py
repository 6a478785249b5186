"""Building the search index from the messages in the chains, chat by chat, while it is in use."""

from collections.abc import Callable
from typing import Final

from ..catalogue import listed
from ..environment import Environment, Transaction
from ..indexed_chat import IndexedChat
from ..tables import Tables
from .currency import begin_anew, is_behind, is_current, note_complete

CHUNK_MESSAGES: Final = 32_768
"""Taken in by one transaction, at most; other writers wait for it, for about a tenth of a second."""


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
        chats = listed(txn, tables, user_id=None)
        total = sum(_message_count(txn, tables, chat_no) for chat_no in chats)
    done = 0
    progress(done, total)
    # NumPy takes a tenth of a second to import: only for those who build.
    from .builder import Builder

    builder = Builder(env, tables, chunk_messages)
    for chat_no in chats:
        for taken in builder.take_in(chat_no):
            done += taken
            progress(min(done, total), total)
    env.update(lambda txn: note_complete(txn, tables) if is_current(txn, tables) else None)
    progress(total, total)


def _message_count(txn: Transaction, tables: Tables, chat_no: int) -> int:
    record = IndexedChat(tables, txn, "", chat_no).record
    return 0 if record is None else record.message_count
