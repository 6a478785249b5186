"""Parts of the search index, whose documents are numbered through: the segments, and behind them the messages that wait."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import lmdb
import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .documents import EARLIEST, PLACE_OFFSET, PLACE_SEGMENT, ROLE, TIME, SegmentDocuments
from .indexer import SIGNS
from .manifest import Totals, manifest_of
from .pending import Occurrences, WaitingMessages, pending_of
from .segments import BlockCursor, PostingsPiece, document_of, find, find_all, find_prefixed, is_within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .segments import Ranges

    Numbers = NDArray[np.uint32]
    Mask = NDArray[np.bool_]

_FIELDS: Final[dict[bytes, SearchField]] = {sign.encode(): field for field, sign in SIGNS.items()}


class DocumentFacts:
    """Facts about documents besides their terms. All methods take ascending documents."""

    def column(self, column: int, documents: "Numbers") -> "NDArray[Any]":
        raise NotImplementedError

    def messages(self, documents: "Numbers") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        """Return which messages they are: the chat, and the number in the order of its log."""
        raise NotImplementedError

    def have_role(self, documents: "Numbers", roles: frozenset[str]) -> "Mask":
        raise NotImplementedError

    def roles(self, documents: "Numbers") -> list[str]:
        raise NotImplementedError

    def times(self, documents: "Numbers") -> "NDArray[np.int64]":
        return (self.column(TIME, documents) ^ np.uint64(EARLIEST)).view(np.int64)

    def places(self, documents: "Numbers") -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return where they are in the chains of their chats: segment and offset."""
        segments, offsets = self.column(PLACE_SEGMENT, documents), self.column(PLACE_OFFSET, documents)
        return segments.astype(np.int64), offsets.astype(np.int64)


class SegmentPart(DocumentFacts):
    """
    A segment, as far as it is searched.

    Args:
        base: How many documents the parts before it have.
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
        self.base, self._stored, self._ranges = base, stored, ranges
        self._cursor, self._gone = BlockCursor(cursor, stored.segment.id), gone

    def has(self, term: bytes, *, is_prefix: bool) -> bool:
        """Whether the segment has a term, or one that begins with it, in whatever document."""
        if is_prefix:
            return next(find_prefixed(self._cursor, term), None) is not None
        return self._cursor.seek(term, 0) is not None and self._cursor.block.place(term) >= 0

    def estimate(self, term: bytes) -> int:
        """About how many documents of the whole segment have a term; 0 only if none has."""
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
        # The term goes on in the blocks that follow: it is taken to be as frequent there as up to the end of this one.
        return count * self._stored.segment.documents // (document_of(key) + 1)

    def pieces(self, term: bytes, *, is_prefix: bool, near: "Numbers | None" = None) -> list[PostingsPiece]:
        """Return the postings of a term, or of all that begin with it; those in the documents `near`, if given, at least."""
        if is_prefix:
            pieces = find_prefixed(self._cursor, term, self._ranges)
        elif near is not None:
            pieces = find(self._cursor, term, (near.astype(np.int64), near.astype(np.int64) + 1))
        elif self._ranges is not None:
            pieces = find(self._cursor, term, self._ranges)
        else:
            pieces = find_all(self._cursor, term)
        if self._gone is None:
            return list(pieces)
        living = (piece.filtered(~is_within(piece.documents, self._gone)) for piece in pieces)
        return [piece for piece in living if len(piece.documents)]

    def size(self, columns: Sequence[int]) -> tuple[int, int]:
        """Return the number of documents that are searched, of some chats, and the sum of some columns."""
        assert self._ranges is not None, "of all chats the totals tell it"
        starts, ends = self._ranges
        return int((ends - starts).sum()), sum(self._stored.range_sum(column, starts, ends) for column in columns)

    def column(self, column: int, documents: "Numbers") -> "NDArray[Any]":
        return self._stored.column_of(column, documents)

    def messages(self, documents: "Numbers") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        return self._stored.directory.messages(documents)

    def have_role(self, documents: "Numbers", roles: frozenset[str]) -> "Mask":
        wanted = [role for role, name in enumerate(self._stored.names) if name in roles]
        return np.isin(self._stored.column_of(ROLE, documents), np.array(wanted, dtype=np.uint64))

    def roles(self, documents: "Numbers") -> list[str]:
        names = self._stored.names
        return [names[role] for role in self._stored.column_of(ROLE, documents).tolist()]


class WaitingPart(DocumentFacts):
    """The messages that wait, as far as they are searched. `is_searched`: which of them are searched; None: all."""

    def __init__(self, base: int, waiting: WaitingMessages, is_searched: "Mask | None") -> None:
        self.base, self._waiting, self._is_searched = base, waiting, is_searched

    def has(self, term: bytes, *, is_prefix: bool) -> bool:
        """Whether any message that waits has a term, or one that begins with it."""
        return self._waiting.has(term, is_prefix=is_prefix)

    def estimate(self, term: bytes) -> int:
        """About how many messages have a term; 0 only if none has."""
        return self._waiting.estimate(term)

    def pieces(self, term: bytes, *, is_prefix: bool, near: "Numbers | None" = None) -> list[Occurrences]:
        """Return the occurrences of a term, or of all that begin with it; `near` would spare nothing."""
        del near
        if not self._waiting.has(term, is_prefix=is_prefix):
            return []
        occurrences = self._waiting.find(term, _FIELDS.get(term[:1], TEXT), is_prefix=is_prefix)
        if self._is_searched is not None:
            occurrences = occurrences.filtered(self._is_searched[occurrences.documents])
        return [occurrences]

    def size(self, columns: Sequence[int]) -> tuple[int, int]:
        """Return the number of messages that are searched, and the sum of some columns of lengths."""
        heads = self._waiting.heads if self._is_searched is None else self._waiting.heads[self._is_searched]
        return len(heads), int(heads["lengths"][:, columns].sum(dtype=np.int64))

    def column(self, column: int, documents: "Numbers") -> "NDArray[Any]":
        heads = self._waiting.heads
        if column == TIME:
            return heads["created_at"][documents].astype(np.int64).view(np.uint64) ^ np.uint64(EARLIEST)
        if column in (PLACE_SEGMENT, PLACE_OFFSET):
            return heads["segment" if column == PLACE_SEGMENT else "offset"][documents]
        lengths: NDArray[Any] = heads["lengths"][documents, column]
        return lengths

    def messages(self, documents: "Numbers") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        heads = self._waiting.heads[documents]
        return heads["chat"].astype(np.uint64), heads["number"].astype(np.int64)

    def have_role(self, documents: "Numbers", roles: frozenset[str]) -> "Mask":
        names = self._waiting.names_and_texts[0]
        return np.array([names[at] in roles for at in documents.tolist()], dtype=np.bool_)

    def roles(self, documents: "Numbers") -> list[str]:
        names = self._waiting.names_and_texts[0]
        return [names[at] for at in documents.tolist()]


Part = SegmentPart | WaitingPart


class SeveralParts(DocumentFacts):
    """The documents of several parts, or of none. `parts`: in the order of their documents."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self._bases = parts, np.array([part.base for part in parts], dtype=np.uint32)

    def _split(self, documents: "Numbers") -> "list[tuple[Part, slice, Numbers]]":
        # Costs more than most questions: a search of one segment asks it without this class.
        bounds = [*documents.searchsorted(self._bases).tolist(), len(documents)]
        return [
            (part, slice(first, last), documents[first:last] - np.uint32(part.base))
            for part, first, last in zip(self._parts, bounds[:-1], bounds[1:], strict=True)
            if last > first
        ]

    def column(self, column: int, documents: "Numbers") -> "NDArray[Any]":
        values = np.empty(len(documents), np.uint64)
        for part, within, local in self._split(documents):
            values[within] = part.column(column, local)
        return values

    def messages(self, documents: "Numbers") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        chats, numbers = np.empty(len(documents), np.uint64), np.empty(len(documents), np.int64)
        for part, within, local in self._split(documents):
            chats[within], numbers[within] = part.messages(local)
        return chats, numbers

    def have_role(self, documents: "Numbers", roles: frozenset[str]) -> "Mask":
        is_wanted = np.zeros(len(documents), np.bool_)
        for part, within, local in self._split(documents):
            is_wanted[within] = part.have_role(local, roles)
        return is_wanted

    def roles(self, documents: "Numbers") -> list[str]:
        return [role for part, _, local in self._split(documents) for role in part.roles(local)]


def parts_of(txn: Transaction, tables: Tables, totals: Totals, chat_nos: Sequence[int] | None) -> list[Part]:
    """Return the parts of the index that have documents of some chats; None: all. The first one's documents begin at 0."""
    manifest, cursor = manifest_of(txn, tables), txn.cursor(tables.search)
    ordered = None if chat_nos is None else sorted(chat_nos)
    deleted = sorted(manifest.deleted)
    parts: list[Part] = []
    base = 0
    for segment in manifest.segments:
        stored = SegmentDocuments(txn, tables, segment, may_remember=True)
        ranges = gone = None
        if ordered is not None:
            ranges = stored.directory.ranges(ordered)
            if not len(ranges[0]):
                continue
        elif deleted:
            gone = stored.directory.ranges(deleted)
            gone = gone if len(gone[0]) else None
        parts.append(SegmentPart(base, stored, cursor, ranges, gone))
        base += segment.documents
    if totals.pending:
        waiting, is_searched = pending_of(txn, tables, totals), None
        if ordered is not None:
            is_searched = waiting.are_of(ordered)
        if is_searched is None or is_searched.any():
            parts.append(WaitingPart(base, waiting, is_searched))
    return parts
