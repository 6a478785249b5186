"""Parts of the search index, whose documents are numbered through: the segments, and behind them the messages that wait."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

from chatledger.domain.search.fields import SearchField

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .documents import EARLIEST, LENGTHS, PLACE_OFFSET, PLACE_SEGMENT, ROLE, TIME, SegmentDocuments
from .manifest import SearchSegment, manifest_of, totals_of
from .pending import Occurrences, WaitingMessages, pending_of
from .segments import BlockCursor, PostingsPiece, document_of, find, find_all, find_prefixed, is_within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .segments import Ranges

    Numbers = NDArray[np.uint32]


class SegmentPart:
    """
    A segment, as far as it is searched.

    Args:
        base: How many documents the segments before it have.
        stored: Its documents.
        cursor: Of the table.
        ranges: The documents that are searched; None: all.
        gone: Documents of deleted chats, which are left out; None: none.
    """

    def __init__(
        self,
        base: int,
        stored: SegmentDocuments,
        cursor: "lmdb.Cursor[bytes]",
        ranges: "Ranges | None",
        gone: "Ranges | None",
    ) -> None:
        self.base, self.stored, self.ranges = base, stored, ranges
        self._cursor, self._gone = BlockCursor(cursor, stored.segment.id), gone

    def has(self, term: bytes, *, is_prefix: bool) -> bool:
        """Whether the segment has a term, or one that begins with it, in whatever document."""
        if is_prefix:
            return next(find_prefixed(self._cursor, term), None) is not None
        return self._cursor.seek(term, 0) is not None and self._cursor.block.place(term) >= 0

    def pieces(self, term: bytes, *, is_prefix: bool, near: "Numbers | None" = None) -> list[PostingsPiece]:
        """Return the postings of a term, or of all that begin with it; those in the documents `near`, if given, at least."""
        if is_prefix:
            found = find_prefixed(self._cursor, term, self.ranges)
        elif near is not None:
            found = find(self._cursor, term, (near.astype(np.int64), near.astype(np.int64) + 1))
        elif self.ranges is not None:
            found = find(self._cursor, term, self.ranges)
        else:
            found = find_all(self._cursor, term)
        if self._gone is None:
            return list(found)
        kept = (piece.kept(~is_within(piece.documents, self._gone)) for piece in found)
        return [piece for piece in kept if len(piece.documents)]

    def estimate(self, term: bytes) -> int:
        """About how many documents of the whole segment have a term."""
        key = self._cursor.seek(term, 0)
        if key is None:
            return 0
        block = self._cursor.block
        place = block.place(term)
        if place < 0:
            return 0
        count = block.count_at(place)
        if not block.has_one_term:
            return count
        return count * self.stored.segment.documents // (document_of(key) + 1)


class Parts:
    """
    The parts of the index that have documents of some chats.

    Args:
        txn, tables: What is read.
        chat_nos: The chats; None: all.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_nos: Sequence[int] | None) -> None:
        self._txn, self._tables = txn, tables
        manifest, self._totals = manifest_of(txn, tables), totals_of(txn, tables)
        self._chat_nos = None if chat_nos is None else sorted(chat_nos)
        self._deleted = sorted(manifest.deleted)
        self._cursor: lmdb.Cursor[bytes] = txn.cursor(tables.search)
        self.segments: list[SegmentPart] = []
        self.waiting_base = 0
        """The number of the first message that waits."""
        for segment in manifest.segments:
            self._add(segment)
        self._waiting: WaitingMessages | None = None
        self._searched: NDArray[np.bool_] | None = None
        self._has_waiting: bool | None = None

    def _add(self, segment: SearchSegment) -> None:
        stored = SegmentDocuments(self._txn, self._tables, segment, may_remember=True)
        ranges = gone = None
        if self._chat_nos is not None:
            ranges = stored.directory.ranges(self._chat_nos)
            if not len(ranges[0]):
                return
        elif self._deleted:
            gone = stored.directory.ranges(self._deleted)
            gone = gone if len(gone[0]) else None
        self.segments.append(SegmentPart(self.waiting_base, stored, self._cursor, ranges, gone))
        self.waiting_base += segment.documents

    @property
    def waiting(self) -> WaitingMessages:
        """All messages that wait, of whatever chat."""
        if self._waiting is None:
            self._waiting = pending_of(self._txn, self._tables, self._totals)
        return self._waiting

    def may_wait(self, term: bytes, *, is_prefix: bool) -> bool:
        """Whether a message that waits has a term, or one that begins with it, of whatever chat. Soon known."""
        return self._totals.pending > 0 and self.waiting.has(term, is_prefix=is_prefix)

    @property
    def has_waiting(self) -> bool:
        """Whether there are any of the chats."""
        if self._has_waiting is None:
            self._has_waiting = self._totals.pending > 0 and (self._chat_nos is None or bool(self._is_searched().any()))
        return self._has_waiting

    @property
    def _only(self) -> SegmentDocuments | None:
        """The segment that has all documents; None when there are several, or some wait."""
        return self.segments[0].stored if len(self.segments) == 1 and not self.has_waiting else None

    def _is_searched(self) -> "NDArray[np.bool_]":
        """Return which of the messages that wait are of the chats."""
        if self._searched is None:
            found = np.zeros(len(self.waiting), np.bool_)
            found[slice(None) if self._chat_nos is None else self.waiting.numbers_of(self._chat_nos)] = True
            self._searched = found
        return self._searched

    def occurrences(self, term: bytes, field: SearchField, *, is_prefix: bool) -> Occurrences:
        """Return the occurrences of a term in messages of the chats that wait, numbered through."""
        found = self.waiting.find(term, field, is_prefix=is_prefix)
        if self._chat_nos is not None and len(found.documents):
            found = found.kept(self._is_searched()[found.documents])
        return found._replace(documents=found.documents + np.uint32(self.waiting_base))

    def size(self, fields: Sequence[SearchField]) -> tuple[int, float]:
        """Return the number of documents, at least one, and the average number of their terms in some fields."""
        if self._chat_nos is None:
            totals = self._totals
            known = (totals.text, totals.tools, totals.reasoning)
            return totals.documents, sum(known[LENGTHS[field]] for field in fields) / totals.documents
        count = terms = 0
        columns = [LENGTHS[field] for field in fields]
        if self.has_waiting:
            waiting = self.waiting.heads[self._is_searched()]
            count, terms = len(waiting), int(waiting["lengths"][:, columns].sum(dtype=np.int64))
        for part in self.segments:
            assert part.ranges is not None, "some chats are searched"
            starts, ends = part.ranges
            count += sum(ends.tolist()) - sum(starts.tolist())
            terms += sum(part.stored.range_sum(column, starts, ends) for column in columns)
        return count, terms / count

    def _column(self, column: int, documents: "Numbers") -> "NDArray[Any]":
        """Return a column of ascending documents."""
        if self._only is not None:
            return self._only.column_of(column, documents.astype(np.int64))
        found = np.empty(len(documents), np.uint64)
        for part, first, last, local in self._split(documents):
            found[first:last] = part.stored.column_of(column, local)
        first, heads = self._heads(documents)
        if len(heads):
            found[first:] = _of_heads(heads, column)
        return found

    def _split(self, documents: "Numbers") -> "list[tuple[SegmentPart, int, int, NDArray[np.int64]]]":
        """Return which of ascending documents are in which segment, and their numbers there; segments without any are left out."""
        if self._only is not None:
            return [(self.segments[0], 0, len(documents), documents.astype(np.int64))] if len(documents) else []
        bases = np.array([part.base for part in self.segments] + [self.waiting_base], dtype=np.int64)
        bounds = documents.searchsorted(bases).tolist()
        return [
            (part, first, last, documents[first:last].astype(np.int64) - part.base)
            for part, first, last in zip(self.segments, bounds[:-1], bounds[1:], strict=True)
            if last > first
        ]

    @property
    def _nothing(self) -> "NDArray[np.void]":
        return np.empty(0, np.void)

    def _heads(self, documents: "Numbers") -> "tuple[int, NDArray[np.void]]":
        """Return the heads of those of ascending documents that wait, and where these begin."""
        first = int(documents.searchsorted(self.waiting_base)) if self.has_waiting else len(documents)
        if first == len(documents):
            return first, self._nothing
        return first, self.waiting.heads[documents[first:].astype(np.int64) - self.waiting_base]

    def lengths(self, documents: "Numbers", field: SearchField) -> "NDArray[Any]":
        """Return how many terms ascending documents have in a field."""
        return self._column(LENGTHS[field], documents)

    def times(self, documents: "Numbers") -> "NDArray[np.int64]":
        """Return when ascending messages were created."""
        return (self._column(TIME, documents) ^ np.uint64(EARLIEST)).view(np.int64)

    def places(self, documents: "Numbers") -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return where ascending messages are in the chains of their chats: segment and offset."""
        segments, offsets = self._column(PLACE_SEGMENT, documents), self._column(PLACE_OFFSET, documents)
        return segments.astype(np.int64), offsets.astype(np.int64)

    def messages(self, documents: "Numbers") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        """Return which messages ascending documents are: the chat, and the number in the order of its log."""
        if self._only is not None:
            return self._only.directory.messages(documents)
        chats, numbers = np.empty(len(documents), np.uint64), np.empty(len(documents), np.int64)
        for part, first, last, local in self._split(documents):
            chats[first:last], numbers[first:last] = part.stored.directory.messages(local)
        first, heads = self._heads(documents)
        if len(heads):
            chats[first:], numbers[first:] = heads["chat"], heads["number"]
        return chats, numbers

    def have_role(self, documents: "Numbers", roles: frozenset[str]) -> "NDArray[np.bool_]":
        """Return which ascending messages have one of these roles."""
        found = np.zeros(len(documents), np.bool_)
        for part, first, last, local in self._split(documents):
            wanted = [number for number, name in enumerate(part.stored.names) if name in roles]
            found[first:last] = np.isin(part.stored.column_of(ROLE, local), np.array(wanted, dtype=np.uint64))
        first, heads = self._heads(documents)
        if len(heads):
            names = self.waiting.parsed.names
            places = (documents[first:].astype(np.int64) - self.waiting_base).tolist()
            found[first:] = [names[at] in roles for at in places]
        return found


def _of_heads(heads: "NDArray[np.void]", column: int) -> "NDArray[Any]":
    if column == TIME:
        return heads["created_at"].astype(np.int64).view(np.uint64) ^ np.uint64(EARLIEST)
    if column in (PLACE_SEGMENT, PLACE_OFFSET):
        return heads["segment" if column == PLACE_SEGMENT else "offset"]
    found: NDArray[Any] = heads["lengths"][:, column]
    return found
