"""Taking the messages of a chat in the search index that are not in it yet."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from ..environment import Environment, Transaction
from ..indexed_chat import IndexedChat
from ..tables import Tables
from .batch import Batch
from .currency import is_current
from .log_order import LogOrder, Pages, Places
from .rows import SearchRows
from .vocabulary import Vocabulary
from .writer import PENDING_DOCUMENTS, SearchWriter

CHUNK_BYTES: Final = 16 << 20
"""Of messages as they are stored; these and what is worked out from them are in memory together."""
_LONG_CHAT: Final = 131_072
_PART_OF_CHUNK: Final = 4
"""In a long chat most terms have pages of their own, and a transaction holds all that it touches: so it takes in fewer messages."""


class Builder:
    """
    Takes in messages, some of a chat at a time.

    They are read and inverted outside of write transactions, as messages and their places never change.

    Args:
        env: What the search index is in.
        tables: Its tables.
        chunk_messages: At most so many at a time; fewer where they are long, or have many different words.
    """

    def __init__(self, env: Environment, tables: Tables, chunk_messages: int) -> None:
        self._env, self._tables, self._chunk_messages = env, tables, chunk_messages
        self._vocabulary = Vocabulary()

    def take_in(self, chat_no: int) -> Iterator[int]:
        """Take in the messages of a chat, also those that are written meanwhile; yields how many after each transaction."""
        pages: Pages | None = None
        places: Places | None = None
        while True:
            with self._env.reading() as txn:
                record = IndexedChat(self._tables, txn, "", chat_no).record
                first = SearchRows(txn, self._tables.search, chat_no).state.indexed
                if record is None or first >= record.message_count:  # deleted, or complete
                    return
                batch = None  # a few messages are written one by one: NumPy takes its time whatever their number
                if record.message_count - first >= PENDING_DOCUMENTS:
                    order = LogOrder(txn, self._tables.rows, chat_no, "")
                    if pages is None or first >= pages.end:
                        pages = order.pages()
                    if places is None or not places.first <= first < places.end:
                        places = order.places(pages, first, self._chunk_messages)
                    batch = self._read(order, places, first - places.first)
            taken = self._env.update(partial(self._write, chat_no, batch))
            if not taken:
                return
            yield taken

    def _read(self, order: LogOrder, places: Places, start: int) -> Batch:
        if self._vocabulary.is_full:
            self._vocabulary = Vocabulary()
        is_long = places.first + start >= _LONG_CHAT
        count = max(self._chunk_messages // _PART_OF_CHUNK, 1) if is_long else self._chunk_messages
        end = places.fitting(start, count, CHUNK_BYTES)
        return Batch(order, places, start, end, self._vocabulary)

    def _write(self, chat_no: int, batch: Batch | None, txn: Transaction) -> int:
        """
        Write the messages of a batch, or else the few that are missing; returns how many.

        It is none if the chat was deleted meanwhile, or the search index begun anew.
        """
        chat = IndexedChat(self._tables, txn, "", chat_no)
        writer = SearchWriter(txn, self._tables, chat_no)
        if chat.record is None or not is_current(txn, self._tables):
            return 0
        if batch is None:
            numbered = chat.chains.numbered(writer.state.indexed)[: self._chunk_messages]
            messages = chat.chains.bare_messages([place for _, place in numbered])
            for (ordinal, place), message in zip(numbered, messages, strict=True):
                writer.add(message, ordinal, place)
            writer.flush()
            return len(numbered)
        if writer.state.indexed != batch.first_document:
            return 0
        writer.take(batch)
        return batch.document_count
