"""Whether the search index of a chat says what its messages say, in constant memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, other_texts
from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of, terms_of
from chatledger.domain.values import Message

from ..chat.chains import Chains
from ..chat.pages import unpack_page
from ..lmdb.checksums import CHECKSUM_BYTES, is_sound
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import Tag, number, page_key, to_number
from ..lmdb.tables import Tables
from ..search.indexer import SIGNS, landmarks_of_text
from .search_sums import ChatSum, SearchSums, document_hashes, hash_of, occurrence_hashes

_split_page = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

KINDS: Final = {
    Tag.RECORD: "its record: counts, times, the active branch or the last event",
    Tag.PROFILE: "its owner, title or metadata",
    Tag.COUNTERS: "its counters",
    Tag.BRANCH: "a branch",
    Tag.NAME_COUNT: "how many branches are named alike",
    Tag.CHECKPOINT: "a checkpoint",
    Tag.COMMAND: "the commands that were carried out",
    Tag.SEGMENT: "the order of its messages",
    Tag.FORK: "where its branches fork",
    Tag.PAGE: "a message",
    Tag.ANNOTATION: "an annotation",
    Tag.RUN: "a run",
    Tag.RUN_NUMBER: "the number of a run",
    Tag.RUN_LIST: "a list of runs",
    Tag.REGENERATION: "a regeneration",
    Tag.LARGE: "what large data it has",
    Tag.TURN: "the count of its turns",
    Tag.ONCE: "where an id of `once` has fired",
}


class Row(NamedTuple):
    """One row: its key without the chat, and its value. A message has a row of its own, whatever page it lies on."""

    key: bytes
    value: bytes


class PlacedMessage(NamedTuple):
    """A message where it lies: its number in log order, segment and offset, and its stored form."""

    ordinal: int
    segment: int
    offset: int
    body: bytes


Take = Callable[[PlacedMessage], None]


def rows_of(tables: Tables, txn: Transaction, chat_no: int, *, take: Take | None = None) -> Iterator[Row]:
    """The rows of a chat in the order of their keys; `take` is told each message."""
    for key, value in prefixed(txn, tables.rows, number(chat_no)):
        tag = bytes(key[8:9])
        if tag == Tag.SEGMENT:
            yield Row(bytes(key[8:]), _lasting(tables, txn, chat_no, int.from_bytes(key[9:13], "big")))
        elif tag == Tag.PAGE:
            segment = int.from_bytes(key[9:13], "big")
            page = unpack_page(key, value[:-CHECKSUM_BYTES])
            bodies = _split_page(page.array)
            flaw = b"" if is_sound(value) else b"?"
            for offset, (ordinal, body) in enumerate(zip(page.ordinals, bodies, strict=True), page.first_offset):
                message = PlacedMessage(ordinal, segment, offset, bytes(body))
                if take is not None:
                    take(message)
                yield Row(page_key(chat_no, segment, offset)[8:], ordinal.to_bytes(8, "big") + message.body + flaw)
        else:
            yield Row(bytes(key[8:]), bytes(value))


def _lasting(tables: Tables, txn: Transaction, chat_no: int, segment: int) -> bytes:
    """A segment without what depends on how messages came together in transactions."""
    found = Chains(txn, tables.rows, chat_no, "").segment(segment)
    return repr(found._replace(tail_start=0, tail_bytes=0)).encode()


def kind_of(row: Row) -> str:
    """Return the kind of a row, in words."""
    return KINDS.get(row.key[:1], "a row")


def next_chat(tables: Tables, txn: Transaction, after: int) -> int | None:
    """The chat with the lowest number above `after` that has rows."""
    cursor = txn.cursor(tables.rows)
    return to_number(bytes(cursor.key()[:8])) if cursor.set_range(number(after + 1)) else None


_decode_message = msgspec.msgpack.Decoder(Message).decode
_BATCH: Final = 50_000


class SearchCheck:
    """
    The search index of one chat, compared with the messages of the chat.

    What both have is a set of occurrences: a term, a message, a place in it; and what is known of each message. They are compared by
    the sum of a hash over each, which does not depend on their order, so neither side is held in memory.

    Args:
        sums: Of all chats, read from the search index before; messages that were written since are passed over.
    """

    def __init__(self, tables: Tables, txn: Transaction, chat_no: int, sums: SearchSums) -> None:
        self._tables, self._txn, self._chat_no = tables, txn, chat_no
        self._expected = sums.of(chat_no)
        self._found = ChatSum()
        self._terms: list[int] = []
        self._places: list[int] = []
        self._documents: list[tuple[int, ...]] = []
        self.problem = sums.problems.get(chat_no)

    def take(self, stored: PlacedMessage) -> None:
        """Take a message of the chat, in any order."""
        if self.problem is not None or stored.ordinal >= self._expected.messages:
            return
        message = _decode_message(stored.body)
        lengths = [0, 0, 0]
        texts: dict[SearchField, str] = {TEXT: message.text, **other_texts(message.data)}
        for field, text in texts.items():
            terms = terms_of(text)
            lengths[FIELDS.index(field)] = len(terms)
            first = stored.ordinal << 32
            self._terms += [hash_of(SIGNS[field] + term) for term in terms]
            self._places += range(first, first + len(terms))
            kept: Sequence[int] = ()
            if len(terms) > LANDMARK_TERMS:
                kept = landmarks_of_text(self._txn, self._tables, self._chat_no, stored.ordinal, field)
            if kept and list(kept) != landmarks_of(text):
                self.problem = f"message {message.id!r} is another one in the search index"
        facts = lengths[0], lengths[1], lengths[2], message.created_at, hash_of(message.name)
        self._documents.append((stored.ordinal, *facts, stored.segment, stored.offset))
        if len(self._terms) > _BATCH:
            self._add()

    def _add(self) -> None:
        terms, places = np.array(self._terms, dtype=np.uint64), np.array(self._places, dtype=np.uint64)
        columns = list(zip(*self._documents, strict=True)) or [()] * 8
        facts = [np.array([value & _MASK for value in column], dtype=np.uint64) for column in columns]
        self._found = self._found.plus(
            len(self._documents), int(occurrence_hashes(terms, places).sum()), int(document_hashes(facts).sum())
        )
        self._terms, self._places, self._documents = [], [], []

    def finish(self) -> str | None:
        """Return the problem that was found, when all messages were taken; None when there is none."""
        if self.problem is not None:
            return self.problem
        self._add()
        expected, found = self._expected, self._found
        if expected.messages != found.messages:
            return f"the search index has {expected.messages:,} messages of it, the chat {found.messages:,}"
        if expected.documents != found.documents:
            return "a message of it is another one in the search index"
        return (
            None if expected.occurrences == found.occurrences else "the search index has other words than its messages"
        )


_MASK: Final = 2**64 - 1
