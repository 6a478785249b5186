"""Sums of hashes of what the search index says of each chat, and whether its rows hang together."""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import lmdb
import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.search.tokens import PART

from ..chat.lists import listed
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.tables import Tables
from ..search.blocks import PostingsBlock, encode
from ..search.documents import (
    BLOCKS,
    COLUMN_COUNT,
    EARLIEST,
    LENGTHS,
    PLACE_OFFSET,
    PLACE_SEGMENT,
    ROLE,
    TIME,
    SegmentDocuments,
    check_documents,
)
from ..search.indexer import is_behind, is_current, message_count
from ..search.manifest import SearchSegment, check_rows, manifest_of, rows_of, segment_key, totals_of
from ..search.pending import WaitingMessages
from ..search.postings import Postings
from ..search.segments import document_of, term_of
from ..versioned.lists import searched_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_MASK: Final = 2**64 - 1
_STEPS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
DAMAGE: Final = (
    lmdb.Error,
    msgspec.MsgspecError,
    struct.error,
    ValueError,
    LookupError,
    OverflowError,
    CorruptStateError,
)
"""Errors that reading damaged rows raises."""


hash_of: Final = xxh3_64_intdigest
"""Returns a hash of a term or name, of 64 bits."""


def occurrence_hashes(terms: "Hashes", places: "Hashes") -> "Hashes":
    """Return a hash of each occurrence: of a term at a place, which is the number of the message and the position."""
    return _mixed(terms ^ _mixed(places))


def document_hashes(columns: "Sequence[Hashes]") -> "Hashes":
    """Return a hash of each document: number, lengths of the fields, `created_at`, hash of the role, segment and offset."""
    hashes = _mixed(columns[0])
    for column in columns[1:]:
        hashes = _mixed(hashes ^ column)
    return hashes


def _mixed(values: "Hashes") -> "Hashes":
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), which has every bit depend on every other."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _STEPS:
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> np.uint64(31))


def sums_of_runs(values: "Hashes", ends: "NDArray[np.int64]") -> "Hashes":
    """Return the sum of each run of values, modulo 2**64, given by where the runs end."""
    summed = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=summed[1:])
    bounds = np.zeros(len(ends) + 1, np.int64)
    bounds[1:] = ends
    return np.diff(summed[bounds])


class ChatSum(NamedTuple):
    """Number of messages of a chat, and the sums of the hashes of occurrences and documents, modulo 2**64."""

    messages: int = 0
    occurrences: int = 0
    documents: int = 0

    def plus(self, count: int, occurrences: int, documents: int) -> "ChatSum":
        return ChatSum(
            self.messages + count, (self.occurrences + occurrences) & _MASK, (self.documents + documents) & _MASK
        )


class SearchSums:
    """
    The sums of all chats in the search index of one transaction.

    Raises:
        CorruptStateError: Rows cannot be read, or do not hang together.
    """

    def __init__(self, txn: Transaction, tables: Tables) -> None:
        self._txn, self._tables = txn, tables
        self._sums: dict[int, ChatSum] = {}
        self.problems: dict[int, str] = {}
        """Faults of single chats."""
        self._lengths = [0, 0, 0]
        self.problem: str | None = None
        if not is_current(txn, tables):
            return
        self._manifest = manifest_of(txn, tables)
        for segment in self._manifest.segments:
            check_documents(self._txn, self._tables, segment)
            stored = SegmentDocuments(self._txn, self._tables, segment, may_remember=False)
            directory = stored.directory.without(self._manifest.deleted)
            occurrences = np.zeros(len(stored.directory.chats), np.uint64)
            for hashes, runs in self._occurrences(segment, stored):
                np.add.at(occurrences, runs, hashes)
            of_chats = dict.fromkeys(stored.directory.chats.tolist(), 0)
            for chat_no, summed in zip(stored.directory.chats.tolist(), occurrences.tolist(), strict=True):
                of_chats[chat_no] += summed
            documents = directory.documents
            chats, numbers = directory.messages(documents)
            columns = [stored.column_of(column, documents).astype(np.uint64) for column in range(COLUMN_COUNT)]
            for column in LENGTHS.values():
                self._lengths[column] += int(columns[column].sum())
            names = np.array([hash_of(name.encode()) for name in stored.names], dtype=np.uint64)
            self._add_documents(chats, numbers, columns, names[columns[ROLE]], of_chats)
        self._add_waiting()
        totals = totals_of(txn, tables)
        counted = (sum(of_chat.messages for of_chat in self._sums.values()), *self._lengths)
        if counted != totals[1:5]:
            words = f"{sum(counted[1:]):,} words, and counted {totals.documents:,} with {sum(totals[2:5]):,}"
            self.problem = f"the search index has {counted[0]:,} messages with {words}"
        is_complete = not is_behind(self._txn, self._tables)
        counts = {chat_no: of_chat.messages for chat_no, of_chat in self._sums.items()}
        of_values = [messages_no for messages_no, _, _ in searched_values(self._txn, self._tables)]
        for chat_no in [*listed(self._txn, self._tables, user_id=None), *of_values]:
            count, there = counts.pop(chat_no, 0), message_count(self._txn, self._tables, chat_no) or 0
            if count > there or (is_complete and count < there):
                self.problems[chat_no] = f"the search index has {count:,} messages of it, which has {there:,}"
        for chat_no, count in counts.items():
            msg = f"the search index has {count:,} messages of chat number {chat_no}, which is not there"
            raise CorruptStateError(msg)

    def of(self, chat_no: int) -> ChatSum:
        """Return the sums of a chat; nothing of one that the index did not have."""
        return self._sums.get(chat_no, ChatSum())

    def _add(self, chat_no: int, *sums: int) -> None:
        self._sums[chat_no] = self._sums.get(chat_no, ChatSum()).plus(*sums)

    def _add_documents(
        self,
        chats: "Hashes",
        numbers: "NDArray[np.int64]",
        columns: "Sequence[Hashes]",
        names: "Hashes",
        occurrences: dict[int, int],
    ) -> None:
        lengths = [columns[column] for column in LENGTHS.values()]
        times = columns[TIME] ^ np.uint64(EARLIEST)
        places = columns[PLACE_SEGMENT], columns[PLACE_OFFSET]
        hashes = document_hashes([numbers.astype(np.uint64), *lengths, times, names, *places])
        order = np.argsort(chats, kind="stable")
        different, starts = np.unique(chats[order], return_index=True)
        sums = np.add.reduceat(hashes[order], starts) if len(starts) else hashes
        counts = np.diff(starts, append=len(chats))
        for chat_no, count, documents in zip(different.tolist(), counts.tolist(), sums.tolist(), strict=True):
            self._add(chat_no, count, occurrences.get(chat_no, 0), documents)

    def _occurrences(
        self, segment: SearchSegment, stored: SegmentDocuments
    ) -> "Iterator[tuple[Hashes, NDArray[np.int64]]]":
        """Yield of some blocks at a time the sums of their postings, and the runs of documents that these are in."""
        before: tuple[bytes, int] = (b"", -1)
        blocks: list[Postings] = []
        count = 0
        for key, row in prefixed(self._txn, self._tables.search, segment_key(segment.id, BLOCKS)):
            postings = PostingsBlock(row).postings()
            first = postings.terms[0], int(postings.documents[0])
            last = postings.terms[-1], int(postings.documents[-1])
            # Packed again it is the same row: whatever bit is off, somewhere it shows.
            is_right = encode(postings) == row and before < first and last == (term_of(key), document_of(key))
            if not is_right or postings.terms != sorted(set(postings.terms)):
                raise _disordered(segment)
            before = last
            blocks.append(postings)
            count += len(postings.positions)
            if count >= _BATCH:
                yield _hashed(blocks, segment, stored)
                blocks, count = [], 0
        if blocks:
            yield _hashed(blocks, segment, stored)

    def _add_waiting(self) -> None:
        check_rows(self._txn, self._tables)
        waiting = WaitingMessages(rows_of(self._txn, self._tables))
        heads, (roles, texts) = waiting.heads, waiting.names_and_texts
        totals = totals_of(self._txn, self._tables)
        if len(waiting) != totals.pending:
            msg = f"{totals.pending:,} messages wait in the search index, which has {len(waiting):,}"
            raise CorruptStateError(msg)
        for at, (head, terms) in enumerate(zip(heads.tolist(), texts, strict=True)):
            chat_no, number, lengths = head[0], head[2], heads["lengths"][at].tolist()
            every = terms.split(b"\0")[1:-1] if terms else []
            if len(every) != sum(lengths):
                msg = (
                    f"message {number} of chat number {chat_no} waits in the search index with other terms than it has"
                )
                raise CorruptStateError(msg)
            places = [(number << 32) + position for length in lengths for position in range(length)]
            spelled = [term.split(PART.encode()) for term in every]
            hashes = occurrence_hashes(
                np.array([hash_of(term) for of_term in spelled for term in of_term], dtype=np.uint64),
                np.repeat(np.array(places, dtype=np.uint64), np.array(list(map(len, spelled)), dtype=np.int64)),
            )
            self._add(chat_no, 0, int(hashes.sum(dtype=np.uint64)), 0)
        columns = [np.empty(0, np.uint64)] * COLUMN_COUNT
        for column in LENGTHS.values():
            columns[column] = heads["lengths"][:, column].astype(np.uint64)
            self._lengths[column] += int(columns[column].sum())
        columns[TIME] = heads["created_at"].astype(np.int64).view(np.uint64) ^ np.uint64(EARLIEST)
        columns[PLACE_SEGMENT] = heads["segment"].astype(np.uint64)
        columns[PLACE_OFFSET] = heads["offset"].astype(np.uint64)
        names = np.array([hash_of(name.encode()) for name in roles], dtype=np.uint64)
        self._add_documents(heads["chat"].astype(np.uint64), heads["number"].astype(np.int64), columns, names, {})

    def check_whole(self) -> None:
        """Raise `CorruptStateError` unless the index has counted what it has."""
        if self.problem is not None:
            raise CorruptStateError(self.problem)


def _hashed(
    blocks: Sequence[Postings], segment: SearchSegment, stored: SegmentDocuments
) -> "tuple[Hashes, NDArray[np.int64]]":
    directory = stored.directory
    terms = np.array([hash_of(term) for block in blocks for term in block.terms], dtype=np.uint64)
    sizes, documents, frequencies, positions = (
        np.concatenate([block[column] for block in blocks]) for column in range(1, len(Postings._fields))
    )
    runs = np.searchsorted(directory.starts, documents, "right") - 1
    if runs.min() < 0 or (documents >= directory.starts[runs] + directory.counts[runs]).any():
        raise _disordered(segment)
    numbers = (documents - directory.starts[runs] + directory.firsts[runs]).astype(np.uint64)
    hashes = occurrence_hashes(
        np.repeat(np.repeat(terms, sizes), frequencies),
        np.repeat(numbers << np.uint64(32), frequencies) | positions,
    )
    return sums_of_runs(hashes, np.cumsum(frequencies, dtype=np.int64)), runs


_BATCH: Final = 1 << 16
"""So many occurrences are hashed together: what NumPy makes of them stays in the processor's cache."""


def _disordered(segment: SearchSegment) -> CorruptStateError:
    return CorruptStateError(f"a row of segment {segment.id} of the search index is damaged")
