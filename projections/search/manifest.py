"""The head of the search index: what segments it has, what is merged, and how much is in it."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables

_TOTALS, _MANIFEST = b"S", b"M"
PENDING: Final = b"P"
"""Begins the keys of messages that are in no segment yet."""
SEGMENT: Final = b"T"
"""Begins the keys of a segment."""
LANDMARKS: Final = b"L"
"""Begins the keys of the landmarks of long texts."""
DELETED: Final = b"D"
"""Begins the keys of the terms of deleted chats that segments still have."""

FANOUT: Final = 8
"""So many segments of a level make one of the next."""
OVERDUE: Final = 2 * FANOUT
IDLE_RATIO: Final = 2
"""Ratio of a segment to all smaller ones together, up to which whoever is idle merges them."""
_totals: Final = Struct(">QQQQQIII")
u32: Final = Struct(">I").pack


class Totals(NamedTuple):
    """
    Counts of the search index, which each write changes.

    Args:
        version: Another one after each write.
        documents: Messages of all chats, those that wait included.
        text, tools, reasoning: How many terms these fields of them have.
        pending, pending_bytes: Messages that wait for a segment.
        next_row: How many rows they are in: the number of the next.
    """

    version: int = 0
    documents: int = 0
    text: int = 0
    tools: int = 0
    reasoning: int = 0
    pending: int = 0
    pending_bytes: int = 0
    next_row: int = 0

    def with_more(self, documents: int, lengths: Sequence[int]) -> "Totals":
        """Return the counts with so many messages more, or fewer, whose fields have so many terms."""
        text, tools, reasoning = lengths
        return self._replace(
            documents=self.documents + documents,
            text=self.text + text,
            tools=self.tools + tools,
            reasoning=self.reasoning + reasoning,
        )


class SearchSegment(msgspec.Struct, array_like=True):
    """
    A sorted part of the index, which is not added to.

    Args:
        id: No other one ever has it.
        version: Changes with what is in it: when messages of deleted chats are removed.
        level: Segments of a level are merged with each other.
        documents: Its documents are numbered from 0 to below this.
        postings: How many it has.
    """

    id: int
    version: int
    level: int
    documents: int
    postings: int


class SegmentMerge(msgspec.Struct, array_like=True):
    """
    A merge that has begun.

    Args:
        inputs: The ids of the segments that are merged; they are read until it is done.
        output: The id of the segment that is written.
        left_out: Chats that were deleted before: nothing of them is taken over.
        columns: How many documents have their columns.
        postings: How many were written.
        term, document: The last posting that was written; none at first.
    """

    inputs: list[int]
    output: int
    left_out: list[int]
    columns: int = 0
    postings: int = 0
    term: bytes = b""
    document: int = -1


class SearchManifest(msgspec.Struct, array_like=True):
    """
    The parts of the index. A segment that is listed is complete.

    Args:
        next_id: For the next segment.
        segments: Those that are read.
        merges: Those that go on, each with inputs of its own.
        trash: The ids of segments whose rows are to be dropped.
        deleted: Chats that are not found any more, but are still in segments.
        purged: The segment that chats are being removed from, and the term that is next; none when it is b"".
    """

    next_id: int = 1
    segments: list[SearchSegment] = []
    merges: list[SegmentMerge] = []
    trash: list[int] = []
    deleted: list[int] = []
    purged: tuple[int, bytes] = (0, b"")

    @property
    def is_merging(self) -> bool:
        """Whether there is something to merge, or to drop."""
        return bool(self.merges or self.trash)

    @property
    def small_segments(self) -> list[SearchSegment]:
        """The small segments that are worth merging when nobody has anything else to do: at least two, or none."""
        if self.merges:
            return []
        by_size = sorted(self.segments, key=lambda segment: segment.documents)
        total, count = 0, 0
        for at, segment in enumerate(by_size):
            if total and segment.documents <= IDLE_RATIO * total:
                count = at + 1
            total += segment.documents
        return by_size[:count]

    @property
    def is_overdue(self) -> bool:
        """Whether there are so many segments that searches become slow: then writers merge too."""
        levels = [segment.level for segment in self.segments]
        return self.is_merging and any(levels.count(level) >= OVERDUE for level in set(levels))


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(SearchManifest).decode


def totals_of(txn: Transaction, tables: Tables) -> Totals:
    raw = txn.get(_TOTALS, db=tables.search)
    return Totals() if raw is None else Totals._make(_totals.unpack(without_checksum(raw)))


def put_totals(txn: Transaction, tables: Tables, totals: Totals) -> None:
    """Replace the counts; the version becomes another one."""
    row = _totals.pack((totals.version + 1) & 0xFFFFFFFFFFFFFFFF, *totals[1:])
    txn.put(_TOTALS, with_checksum(row), db=tables.search)


def manifest_of(txn: Transaction, tables: Tables) -> SearchManifest:
    raw = txn.get(_MANIFEST, db=tables.search)
    return SearchManifest() if raw is None else _decode(without_checksum(raw))


def put_manifest(txn: Transaction, tables: Tables, manifest: SearchManifest) -> None:
    txn.put(_MANIFEST, with_checksum(_encode(manifest)), db=tables.search)


def segment_key(segment_id: int, kind: bytes) -> bytes:
    """The beginning of the keys of one kind of rows of a segment."""
    return SEGMENT + u32(segment_id) + kind
