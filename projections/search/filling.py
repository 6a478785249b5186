"""Fills the search index with messages that it lacks, of which there may be many."""

from collections.abc import Sequence
from typing import Final

from chatledger.domain.values import Progress

from ..chat.lists import listed
from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .indexer import begin_anew, is_current, note_complete

CHUNK_MESSAGES: Final = 32_768
"""Taken in by one transaction, at most; other writers wait for it, for about a tenth of a second."""


def build(
    env: Environment,
    tables: Tables,
    *,
    anew: bool,
    progress: Progress,
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
        chats = sorted(listed(txn, tables, user_id=None))
        records = (IndexedChat(tables, txn, "", chat_no).record for chat_no in chats)
        total = sum(record.message_count for record in records if record is not None)
    done = 0
    progress(done, total)
    if chats:
        # NumPy takes a tenth of a second to import: only for those who build.
        from .building import Builder

        for taken in Builder(env, tables, chunk_messages).take_in(chats):
            done += taken
            progress(min(done, total), total)
    env.update(lambda txn: note_complete(txn, tables) if is_current(txn, tables) else None)
    progress(total, total)


def take_in(env: Environment, tables: Tables, chat_nos: Sequence[int]) -> None:
    """Take in what is missing of some chats."""
    from .building import Builder

    for _ in Builder(env, tables, CHUNK_MESSAGES).take_in(chat_nos):
        pass
