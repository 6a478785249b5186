"""The head of the search index: what segments it has, what is merged, how much is in it; and the messages that wait for a segment. It needs no NumPy."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.errors import CorruptStateError

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction, prefixed
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

# Each merge writes a message anew, and each search reads all segments: with eight a message is written once a level, and there are few levels.
FANOUT: Final = 8
"""So many segments of a level make one of the next."""
OVERDUE: Final = 2 * FANOUT
IDLE_RATIO: Final = 2
"""Ratio of a segment to all smaller ones together, up to which whoever is idle merges them."""
# Apart from the manifest and of fixed length: each append writes the counts, and the manifest only where segments come or go.
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


HEAD: Final = Struct("<QqIIIIIIII")
"""Of a message: chat, `created_at`, number in the log order of the chat, segment, offset, length of each field, bytes of name and terms."""
_ROW_BYTES: Final = 1_900
"""A longer row would have pages of its own."""
_MAX_IN_ROW: Final = 255


class WaitingMessage(NamedTuple):
    """
    A message that waits.

    Args:
        chat_no: The number of its chat.
        number: Its number in the order of the log of the chat.
        created_at: In ms.
        place: Where it is in the chains of the chat.
        name: The role.
        lengths: How many terms its text, its tools and its reasoning have.
        terms: All of them, each between two NULs; those of tools and reasoning begin with the sign of the field.
    """

    chat_no: int
    number: int
    created_at: int
    place: tuple[int, int]
    name: str
    lengths: tuple[int, int, int]
    terms: bytes


def packed(message: WaitingMessage) -> tuple[bytes, bytes]:
    name = message.name.encode()
    sizes = len(name), len(message.terms)
    head = HEAD.pack(
        *(message.chat_no, message.created_at, message.number, *message.place, *message.lengths),
        *sizes,
    )
    return head, name + message.terms


class WaitingRow(NamedTuple):
    """A row: the heads of some messages, and the names and terms of one after the other."""

    message_count: int
    heads: bytes
    bodies: bytes


def parse_row(row: bytes) -> WaitingRow:
    end = 1 + row[0] * HEAD.size
    return WaitingRow(row[0], row[1:end], row[end:])


def _joined(count: int, heads: bytes, bodies: bytes) -> bytes:
    return bytes((count,)) + heads + bodies


def add_rows(txn: Transaction, tables: Tables, messages: Sequence[tuple[bytes, bytes]], next_row: int) -> int:
    """Add packed messages behind those in the rows before one; returns the number of the next row."""
    row = WaitingRow(0, b"", b"")
    if next_row:
        last = txn.get(PENDING + u32(next_row - 1), db=tables.search)
        if last is not None and len(last) < _ROW_BYTES:
            row = parse_row(last)
            next_row -= 1
    for head, body in messages:
        size = 1 + len(row.heads) + len(row.bodies) + len(head) + len(body)
        if row.message_count and (size > _ROW_BYTES or row.message_count == _MAX_IN_ROW):
            txn.put(PENDING + u32(next_row), _joined(*row), db=tables.search)
            next_row += 1
            row = WaitingRow(0, b"", b"")
        row = WaitingRow(row.message_count + 1, row.heads + head, row.bodies + body)
    txn.put(PENDING + u32(next_row), _joined(*row), db=tables.search)
    return next_row + 1


def rows_of(txn: Transaction, tables: Tables) -> Iterator[WaitingRow]:
    """Yield the rows, in the order in which they came."""
    for _, row in prefixed(txn, tables.search, PENDING):
        yield parse_row(row)


def check_rows(txn: Transaction, tables: Tables) -> None:
    """Raise `CorruptStateError` unless the rows are as they are written."""
    for _, raw in prefixed(txn, tables.search, PENDING):
        row = parse_row(raw)
        parts = list(map(packed, messages_in([row])))
        if not parts or _joined(len(parts), *map(b"".join, zip(*parts, strict=True))) != raw:
            msg = "messages that wait in the search index are damaged"
            raise CorruptStateError(msg)


def messages_in(rows: Iterable[WaitingRow]) -> Iterator[WaitingMessage]:
    for row in rows:
        at = 0
        for head in HEAD.iter_unpack(row.heads):
            chat_no, created_at, number, segment, offset, text, tools, reasoning, name_bytes, term_bytes = head
            end = at + name_bytes + term_bytes
            name, terms = row.bodies[at : at + name_bytes].decode(), row.bodies[at + name_bytes : end]
            at = end
            yield WaitingMessage(chat_no, number, created_at, (segment, offset), name, (text, tools, reasoning), terms)
