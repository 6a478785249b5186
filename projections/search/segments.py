"""Segments: writing them, and finding the postings of terms in them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import lmdb
import msgspec
import numpy as np

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .blocks import Cut, PostingsBlock, cut
from .documents import BLOCKS, Documents, rows_of_documents
from .manifest import FANOUT, SearchManifest, SearchSegment, segment_key, u32
from .postings import Postings, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]

LEVEL_DOCUMENTS: Final = 128
"""A segment of the lowest level has about as many documents."""
_PREFIX_BYTES: Final = len(segment_key(0, BLOCKS))
_KEY_END: Final = 5
"""Bytes before and behind the term in the key of a block."""


def level_of(documents: int) -> int:
    """Return the level of a segment of so many documents."""
    level, size = 0, LEVEL_DOCUMENTS * 3
    while documents >= size:
        level, size = level + 1, size * FANOUT
    return level


class PackedSegment(msgspec.Struct, array_like=True):
    """A segment before it is written. `rows`: what follows the id of the segment in their keys, ascending, and the rows."""

    documents: int
    postings: int
    rows: list[tuple[bytes, bytes]]


def pack_segment(documents: Documents, postings: Postings) -> PackedSegment:
    """Pack a segment, whose documents are numbered from 0 without a gap."""
    rows = list(rows_of_documents(documents))
    if postings.length:
        rows += [(BLOCKS + block.term + b"\0" + u32(block.document), block.row) for block in cut(postings)]
    return PackedSegment(documents.directory.size, postings.length, rows)


def write_segment(txn: Transaction, tables: Tables, manifest: SearchManifest, packed: PackedSegment) -> None:
    """Write a segment and list it in the manifest, which is left to be put."""
    segment = SearchSegment(manifest.next_id, 0, level_of(packed.documents), packed.documents, packed.postings)
    manifest.next_id += 1
    prefix = segment_key(segment.id, b"")
    txn.cursor(tables.search).putmulti([(prefix + rest, row) for rest, row in packed.rows])
    manifest.segments.append(segment)


def put_blocks(txn: Transaction, tables: Tables, segment_id: int, blocks: Iterable[Cut]) -> None:
    prefix = segment_key(segment_id, BLOCKS)
    rows = [(prefix + block.term + b"\0" + u32(block.document), block.row) for block in blocks]
    txn.cursor(tables.search).putmulti(rows)


def drop_rows(txn: Transaction, tables: Tables, segment_id: int, count: int) -> int:
    """Drop rows of a segment, at most so many; returns how many there were."""
    cursor, prefix = txn.cursor(tables.search), segment_key(segment_id, b"")
    is_there, dropped = cursor.set_range(prefix), 0
    while is_there and dropped < count and cursor.key().startswith(prefix):
        cursor.delete()  # moves to the next row
        is_there = bool(cursor.key())
        dropped += 1
    return dropped


class BlockCursor:
    """Walks over the blocks of one segment with a cursor of the table, which others may have moved meanwhile but for `next`."""

    def __init__(self, cursor: "lmdb.Cursor[bytes]", segment_id: int) -> None:
        self._prefix = segment_key(segment_id, BLOCKS)
        self._cursor = cursor

    def seek(self, term: bytes, document: int) -> bytes | None:
        """Go to the block that has a term from a document on, if any has; returns its key, None at the end."""
        return self._key(self._cursor.set_range(self._prefix + term + b"\0" + u32(document)))

    def first(self, start: bytes = b"") -> bytes | None:
        """Go to the first block whose last term is not before `start`."""
        return self._key(self._cursor.set_range(self._prefix + start))

    def next(self) -> bytes | None:
        return self._key(self._cursor.next())

    def _key(self, is_found: bool) -> bytes | None:  # noqa: FBT001  # what LMDB answers
        if not is_found:
            return None
        key = self._cursor.key()
        return key if key.startswith(self._prefix) else None

    @property
    def block(self) -> PostingsBlock:
        return PostingsBlock(self._cursor.value())


def term_of(key: bytes) -> bytes:
    """The last term of a block, by its key."""
    return key[_PREFIX_BYTES:-_KEY_END]


def document_of(key: bytes) -> int:
    """The last document of a block, by its key."""
    return int.from_bytes(key[-4:], "big")


class PostingsPiece(NamedTuple):
    """
    Postings of a block.

    Args:
        block: The block.
        documents: Of each (`uint32`); ascending, except where they are of several terms.
        places: Which postings of the block they are, ascending (`int64`); None: consecutive ones.
        start: The first of consecutive ones.
    """

    block: PostingsBlock
    documents: "NDArray[np.uint32]"
    places: "NDArray[np.int64] | None"
    start: int

    def frequencies(self) -> "NDArray[np.uint32]":
        """Return how often the term occurs in each document."""
        if self.places is None:
            return self.block.frequencies(self.start, self.start + len(self.documents))
        return self.block.frequencies(0, self.block.count)[self.places]

    def filtered(self, is_wanted: "NDArray[np.bool_]") -> "PostingsPiece":
        """Return only some of its postings."""
        among = np.flatnonzero(is_wanted)
        return PostingsPiece(
            self.block, self.documents[among], among + self.start if self.places is None else self.places[among], 0
        )

    def taken(self, among: "NDArray[np.int64]") -> "tuple[NDArray[np.uint32], NDArray[np.uint32]]":
        """Return the frequencies and positions of some of its postings, by their places in `documents`."""
        return self.block.positions_of(among + self.start if self.places is None else self.places[among])


def find(cursor: BlockCursor, term: bytes, ranges: "Ranges | None" = None) -> Iterator[PostingsPiece]:
    """
    Find the postings of a term in a segment.

    `ranges`: where ranges of documents begin and end, ascending: only these; blocks between them are passed over. None:
    all.
    """
    at = 0
    while True:
        if ranges is not None:
            place = bisect_right(ranges[1], at)
            if place == len(ranges[1]):
                return
            at = max(at, int(ranges[0][place]))
        key = cursor.seek(term, at)
        if key is None:
            return
        is_last_term = term_of(key) == term
        block = cursor.block
        place = block.place(term)
        if place < 0:
            return
        documents, start = block.documents_at(place)
        piece = (
            PostingsPiece(block, documents, None, start) if ranges is None else _within(block, documents, start, ranges)
        )
        if len(piece.documents):
            yield piece
        if not is_last_term:
            return
        at = int(documents[-1]) + 1  # the term goes on in the next block


def find_all(cursor: BlockCursor, term: bytes) -> Iterator[PostingsPiece]:
    """Find all postings of a term in a segment, block after block."""
    key = cursor.seek(term, 0)
    while key is not None:
        block = cursor.block
        place = block.place(term)
        if place < 0:
            return
        documents, start = block.documents_at(place)
        yield PostingsPiece(block, documents, None, start)
        if term_of(key) != term:  # a later term is the last of the block, so it has all of this one
            return
        key = cursor.next()


def find_prefixed(cursor: BlockCursor, start: bytes, ranges: "Ranges | None" = None) -> Iterator[PostingsPiece]:
    """Find the postings of all terms that begin with `start`; the documents of a piece are in no order."""
    key = cursor.first(start)
    while key is not None:
        block = cursor.block
        terms = block.terms
        first = bisect_left(terms, start)
        last = bisect_left(terms, start + b"\xff", first)  # no UTF-8 has this byte
        if last > first:
            sizes = block.sizes.cumsum()
            begin, end = int(sizes[first - 1]) if first else 0, int(sizes[last - 1])
            documents = block.documents()[begin:end]
            piece = PostingsPiece(block, documents, None, begin)
            if ranges is not None:
                piece = piece.filtered(is_within(documents, ranges))
            if len(piece.documents):
                yield piece
        if last < len(terms):
            return
        key = cursor.next()


def _within(block: PostingsBlock, documents: "NDArray[np.uint32]", start: int, ranges: "Ranges") -> PostingsPiece:
    """Keep the ascending documents that are in ranges."""
    least, greatest = int(documents[0]), int(documents[-1])
    # For one number it takes a third of the time of NumPy's.
    first, last = bisect_right(ranges[1], least), bisect_right(ranges[0], greatest)
    if last - first == 1:
        begin, end = int(ranges[0][first]), int(ranges[1][first])
        if begin <= least and end > greatest:
            return PostingsPiece(block, documents, None, start)
        begin, end = bisect_left(documents, begin), bisect_left(documents, end)
        return PostingsPiece(block, documents[begin:end], None, start + begin)
    if last - first < len(documents):
        begins, ends = (
            np.searchsorted(documents, ranges[0][first:last]),
            np.searchsorted(documents, ranges[1][first:last]),
        )
        among = spread(begins, ends - begins)
    else:
        among = np.flatnonzero(is_within(documents, ranges))
    return PostingsPiece(block, documents[among], among + start, 0)


def is_within(documents: "NDArray[np.uint32]", ranges: "Ranges") -> "NDArray[np.bool_]":
    """Return which documents, in whatever order, are in ranges; there is one at least."""
    places = np.searchsorted(ranges[0], documents, "right") - 1
    return np.asarray((places >= 0) & (documents < ranges[1][places]), np.bool_)
