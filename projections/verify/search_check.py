"""Whether the search index of a chat says what its messages say, in constant memory."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from chatledger.domain.search.fields import FIELDS, TEXT, other_texts
from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of, terms_of
from chatledger.domain.values import Message

from ..chat.chains import Chains
from ..chat.pages import unpack_page
from ..lmdb.checksums import CHECKSUM_BYTES, is_sound
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import Tag, number, page_key, to_number
from ..lmdb.tables import Tables
from ..search.indexer import is_behind, is_current, terms_in
from ..search.postings import DOC_SHIFT, occurrences_of, unpack
from ..search.rows import BLOCK_DOCUMENTS, DOCUMENT, SearchRows

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
_MASK: Final = 2**64 - 1
_STEPS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


class SearchCheck:
    """
    The search index of one chat, compared with the messages of the chat.

    What both have is a set of occurrences: a term, a message, a place in it. They are compared by the sum of a hash over
    each, which does not depend on their order, so neither side is held in memory.
    """

    def __init__(self, tables: Tables, txn: Transaction, chat_no: int) -> None:
        self._fields = {field: _FieldCheck(SearchRows(txn, tables.search, chat_no, field)) for field in FIELDS}
        self._rows = self._fields[TEXT].rows
        self.is_behind = not is_current(txn, tables) or is_behind(txn, tables)
        self._block: tuple[int, bytes] = -1, b""
        self.problem: str | None = None

    def take(self, stored: PlacedMessage) -> None:
        """Take a message of the chat, in any order."""
        is_pending = self.is_behind and stored.ordinal >= self._rows.state.indexed  # the index is being built
        if self.problem is not None or is_pending:
            return
        message = _decode_message(stored.body)
        terms = terms_of(message.text)
        expected = DOCUMENT.pack(
            len(terms), self._rows.role(message.name) or 0, message.created_at, stored.segment, stored.offset
        )
        is_right = self._document(stored.ordinal) == expected
        is_right &= self._fields[TEXT].take(stored.ordinal, message.text, terms)
        for field, text in other_texts(message.data).items():
            terms = terms_of(text)
            is_right &= self._fields[field].take(stored.ordinal, text, terms)
            is_right &= self._fields[field].has_length(stored.ordinal, len(terms))
        if not is_right:
            self.problem = f"message {message.id!r} is another one in the search index"

    def _document(self, ordinal: int) -> bytes:
        number, place = divmod(ordinal, BLOCK_DOCUMENTS)
        if self._block[0] != number:
            self._block = number, self._rows.documents(number)
        return self._block[1][place * DOCUMENT.size : (place + 1) * DOCUMENT.size]

    def finish(self) -> str | None:
        """Return the problem that was found, when all messages were taken; None when there is none."""
        if self.problem is not None:
            return self.problem
        return next((problem for field in self._fields.values() if (problem := field.finish())), None)


class _FieldCheck:
    def __init__(self, rows: SearchRows) -> None:
        self.rows = rows
        self._sum = self._terms = self._count = 0
        self._lengths: tuple[int, dict[int, int]] = -1, {}

    def take(self, ordinal: int, text: str, terms: Sequence[str]) -> bool:
        """Take the text of a message; returns whether its landmarks are right, as far as there are any."""
        self._count += 1
        self._terms += len(terms)
        self._sum += _sum_of_document(terms, ordinal)
        kept = self.rows.landmarks(ordinal) if len(terms) > LANDMARK_TERMS else ()
        return not kept or list(kept) == landmarks_of(text)

    def has_length(self, ordinal: int, length: int) -> bool:
        """Whether this is noted of a message."""
        number = ordinal // BLOCK_DOCUMENTS
        if self._lengths[0] != number:
            self._lengths = number, self.rows.lengths(number)
        return self._lengths[1].get(ordinal) == length

    def finish(self) -> str | None:
        """Return the problem that was found, when all texts were taken; None when there is none."""
        state, what = self.rows.state, "" if self.rows.field == TEXT else f" of {self.rows.field}"
        if (state.indexed, state.terms) != (self._count, self._terms):
            return (
                f"the search index{what} has {state.indexed:,} messages with {state.terms:,} words, the chat {self._count:,} "
                f"with {self._terms:,}"
            )
        found = 0
        for term, row in self.rows.all_postings():
            if row:
                occurrences = occurrences_of(unpack([row]))
                found += _sum(np.full(len(occurrences), _hash(term.decode()), dtype=np.uint64), occurrences)
        pending = self.rows.pending() if state.indexed > state.inverted else []
        if len(pending) != state.indexed - state.inverted:
            return (
                f"{state.indexed - state.inverted:,} messages wait to be inverted in the search index{what}, "
                f"which has {len(pending):,}"
            )
        for document, text in zip(self.rows.pending_documents(state), pending, strict=True):
            found += _sum_of_document(terms_in(text), document)
        if found & _MASK != self._sum & _MASK:
            return f"the search index{what} has other words than the messages of the chat"
        return None


@lru_cache(maxsize=65_536)
def _hash(term: str) -> int:
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "big")


def _sum_of_document(terms: Sequence[str], document: int) -> int:
    places = np.arange(len(terms), dtype=np.uint64) + np.uint64(document << DOC_SHIFT)
    return _sum(np.array([_hash(term) for term in terms], dtype=np.uint64), places)


def _sum(terms: "NDArray[np.uint64]", occurrences: "NDArray[np.uint64]") -> int:
    """The sum, modulo 2**64, of a hash of each pair."""
    mixed = _mixed(terms ^ _mixed(occurrences))
    return int(mixed.sum(dtype=np.uint64))


def _mixed(values: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), which has every bit depend on every other."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _STEPS:
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> np.uint64(31))
