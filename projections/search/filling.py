"""Fills the search index with messages that it lacks, of which there may be many."""

from collections.abc import Callable, Sequence
from typing import Final

from chatledger.domain.values import Progress

from ..chat.lists import listed
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from ..versioned.lists import searched_values
from .indexer import begin_anew, is_current, message_count, note_complete

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
    counts = _message_counts(env, tables)
    streams, total = sorted(counts), sum(counts.values())
    done = 0
    progress(done, total)
    if streams:
        # NumPy takes a tenth of a second to import: only for those who build.
        from .building import Builder

        for taken in Builder(env, tables, chunk_messages).take_in(streams):
            done += taken
            progress(min(done, total), total)
    env.update(lambda txn: note_complete(txn, tables) if is_current(txn, tables) else None)
    progress(total, total)


def fill(env: Environment, tables: Tables, is_over: Callable[[], bool]) -> None:
    """
    Take in what writers leave out while the search index is deferred, until it is over, which waits a little, and what is left then.

    That nothing is missing says only `build`, when nobody defers any more.
    """
    from .building import Builder

    builder = Builder(env, tables, CHUNK_MESSAGES)
    looked_at: dict[int, int] = {}
    is_last = False
    while not is_last:
        is_last = is_over()
        counts = _message_counts(env, tables)
        grown = sorted(stream_no for stream_no, count in counts.items() if count != looked_at.get(stream_no))
        looked_at = counts
        for _ in builder.take_in(grown):
            pass


def _message_counts(env: Environment, tables: Tables) -> dict[int, int]:
    """The numbers of messages of all streams, by the numbers of these."""
    with env.reading() as txn:
        of_values = [messages_no for messages_no, _, _ in searched_values(txn, tables)]
        streams = [*listed(txn, tables, user_id=None), *of_values]
        return {stream_no: message_count(txn, tables, stream_no) or 0 for stream_no in streams}


def take_in(env: Environment, tables: Tables, chat_nos: Sequence[int]) -> None:
    from .building import Builder

    for _ in Builder(env, tables, CHUNK_MESSAGES).take_in(chat_nos):
        pass
