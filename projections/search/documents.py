"""Documents of a segment: which messages they are, and what is known of each besides its terms."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
import numpy as np

from chatledger.domain.search.fields import REASONING, TEXT, TOOLS, SearchField

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.tables import Tables
from .blocks import damaged
from .manifest import SearchSegment, segment_key
from .postings import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIRECTORY, COLUMNS, NAMES, BLOCKS = b"\x01", b"\x02", b"\x03", b"\x04"
"""The kinds of rows of a segment."""
TIME, ROLE, PLACE_SEGMENT, PLACE_OFFSET = 3, 4, 5, 6
LENGTHS: Final[dict[SearchField, int]] = {TEXT: 0, TOOLS: 1, REASONING: 2}
"""The columns, by their numbers: how many terms each field has, `created_at`, the role, and the place in the chains."""
COLUMN_COUNT: Final = 7
_FEW_CHUNKS: Final = 4
_SMALL: Final = 1 << 15
"""The columns of a segment of so many documents are read and remembered as a whole."""
CHUNK: Final = 4096
"""Documents of which a column has one row."""
EARLIEST: Final = 1 << 63
"""Added to `created_at`, so that there is none below 0."""
_HEAD: Final = Struct("<BQ")
_U8, _U4 = np.dtype("<u8"), np.dtype("<u4")
_encode_names: Final = msgspec.msgpack.Encoder().encode
_decode_names: Final = msgspec.msgpack.Decoder(list[str]).decode


class DocumentDirectory:
    """
    The runs of documents of a segment: consecutive messages of one chat. Ordered by chat and message.

    Args:
        chats: The chat of each run (`uint64`).
        firsts: The number of its first message, in the order of the log (`uint32`).
        starts: The document that this message is (`uint32`), ascending; between runs there may be numbers that are not used.
        counts: How many messages it has (`uint32`).
    """

    __slots__ = ("_views", "chats", "counts", "firsts", "starts")

    def __init__(
        self,
        chats: "NDArray[np.uint64]",
        firsts: "NDArray[np.uint32]",
        starts: "NDArray[np.uint32]",
        counts: "NDArray[np.uint32]",
    ) -> None:
        self.chats, self.firsts, self.starts, self.counts = chats, firsts, starts, counts
        self._views: tuple[memoryview[int], memoryview[int], memoryview[int]] | None = None

    @classmethod
    def of_messages(cls, chats: "NDArray[np.uint64]", numbers: "NDArray[np.uint32]") -> "DocumentDirectory":
        """Return that of ascending messages, which are numbered from 0."""
        is_start = np.ones(len(chats), np.bool_)
        np.logical_or(chats[1:] != chats[:-1], numbers[1:] != numbers[:-1] + np.uint32(1), out=is_start[1:])
        starts = np.flatnonzero(is_start)
        counts = np.diff(starts, append=len(chats))
        return cls(chats[starts], numbers[starts], starts.astype(np.uint32), counts.astype(np.uint32))

    @classmethod
    def from_row(cls, row: bytes) -> "DocumentDirectory":
        """Unpack it. Raises `CorruptStateError` when it is damaged."""
        count, rest = divmod(len(row), 20)
        if rest:
            raise damaged()
        chats = np.frombuffer(row, _U8, count)
        return cls(chats, *np.frombuffer(row, _U4, 3 * count, 8 * count).reshape(3, count))

    @property
    def row(self) -> bytes:
        return self.chats.astype(_U8).tobytes() + np.array([self.firsts, self.starts, self.counts], _U4).tobytes()

    def bounds(self, chat_no: int) -> tuple[int, int]:
        """The documents of a chat: from the first to before the last; equal when there are none. Costs the logarithm of the chats."""
        if self._views is None:
            self._views = self.chats.data, self.starts.data, self.counts.data
        chats, starts, counts = self._views  # a search in one of these takes a tenth of the time of NumPy's
        first = bisect_left(chats, chat_no)
        if first == len(chats) or chats[first] != chat_no:
            return 0, 0
        last = bisect_right(chats, chat_no, first) - 1
        return starts[first], starts[last] + counts[last]

    def ranges(self, chat_nos: Sequence[int]) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """The documents of chats, given ascending: where those of each begin and end; chats that have none are left out."""
        if len(chat_nos) < _FEW_CHATS:
            bounds_of = [bounds for chat_no in chat_nos if (bounds := self.bounds(chat_no))[1]]
            starts, ends = np.array(bounds_of, np.int64).reshape(-1, 2).T
            return starts, ends
        wanted = np.array(chat_nos, dtype=np.uint64)
        firsts, lasts = np.searchsorted(self.chats, wanted), np.searchsorted(self.chats, wanted, "right")
        has_any = lasts > firsts
        firsts, lasts = firsts[has_any], lasts[has_any] - 1
        return self.starts[firsts].astype(np.int64), self.starts[lasts].astype(np.int64) + self.counts[lasts]

    def documents_of(self, chat_no: int, numbers: Sequence[int]) -> "NDArray[np.int64]":
        """Return the documents of messages of a chat, given by ascending numbers in the order of its log; those that are here."""
        wanted = np.array(numbers, np.int64)
        documents = [np.empty(0, np.int64)]
        for run in range(*np.searchsorted(self.chats, [chat_no, chat_no + 1]).tolist()):
            first = int(self.firsts[run])
            within = wanted[slice(*np.searchsorted(wanted, [first, first + int(self.counts[run])]).tolist())]
            documents.append(within - first + int(self.starts[run]))
        return np.sort(np.concatenate(documents))

    def without(self, chat_nos: Iterable[int]) -> "DocumentDirectory":
        gone = np.isin(self.chats, np.fromiter(chat_nos, np.uint64))
        return DocumentDirectory(self.chats[~gone], self.firsts[~gone], self.starts[~gone], self.counts[~gone])

    def messages(self, documents: "NDArray[Any]") -> "tuple[NDArray[np.uint64], NDArray[np.int64]]":
        """Return which messages documents are: the chat and the number in the order of its log."""
        runs = np.searchsorted(self.starts, documents, "right") - 1
        numbers = documents.astype(np.int64) - self.starts[runs] + self.firsts[runs]
        return self.chats[runs], numbers

    @property
    def documents(self) -> "NDArray[np.int64]":
        """All documents, ascending."""
        return spread(self.starts.astype(np.int64), self.counts)

    @property
    def size(self) -> int:
        return int(self.counts.sum(dtype=np.int64))


_FEW_CHATS: Final = 64


class Documents(NamedTuple):
    """
    The properties of documents.

    `columns`: what is known of each, by the number of the column (`uint64`); nothing else but 0 where it is left out.
    `names`: the roles, by the numbers in their column.
    """

    directory: DocumentDirectory
    columns: "dict[int, NDArray[np.uint64]]"
    names: list[str]


def pack_chunk(values: "NDArray[np.uint64]") -> bytes:
    """Pack the numbers of one row of a column: what they are above the least, in as few bytes as the largest needs."""
    least = values.min() if len(values) else np.uint64(0)
    above = values - least
    width = (int(above.max()).bit_length() + 7) // 8 if len(values) else 0
    planes = np.ascontiguousarray(above, _U8).view(np.uint8).reshape(-1, 8)
    return _HEAD.pack(width, int(least)) + planes[:, :width].tobytes()


def unpack_chunk(row: bytes, count: int) -> "NDArray[np.uint64]":
    """Unpack it. Raises `CorruptStateError` when it is damaged."""
    if len(row) < _HEAD.size:
        raise damaged()
    width, least = _HEAD.unpack_from(row)
    if width > 8 or len(row) != _HEAD.size + width * count:  # bytes
        raise damaged()
    if width in (1, 2, 4):
        values = np.frombuffer(row, f"<u{width}", count, _HEAD.size).astype(np.uint64)
    else:
        planes = np.zeros((count, 8), np.uint8)
        planes[:, :width] = np.frombuffer(row, np.uint8, width * count, _HEAD.size).reshape(count, width)
        values = planes.view(_U8).reshape(count)
    values += np.uint64(least)
    return values


def _column_key(segment_id: int, column: int, chunk: int) -> bytes:
    return segment_key(segment_id, _column_rest(column, chunk))


def _column_rest(column: int, chunk: int) -> bytes:
    return COLUMNS + bytes([column]) + chunk.to_bytes(4, "big")


def rows_of_documents(documents: Documents) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of the documents of a segment, in order, by what follows its id in their keys."""
    yield DIRECTORY, documents.directory.row
    yield from _column_rows(documents.columns, 0)
    yield NAMES, _encode_names(documents.names)


def _column_rows(columns: "dict[int, NDArray[np.uint64]]", first: int) -> Iterator[tuple[bytes, bytes]]:
    for column, values in sorted(columns.items()):
        for at in range(0, len(values), CHUNK):
            part = values[at : at + CHUNK]
            if part.any():
                yield _column_rest(column, (first + at) // CHUNK), pack_chunk(part)


def put_columns(
    txn: Transaction, tables: Tables, segment_id: int, columns: "dict[int, NDArray[np.uint64]]", first: int = 0
) -> None:
    """Write the columns of documents from one on, with which a row begins."""
    rows = [(segment_key(segment_id, rest), row) for rest, row in _column_rows(columns, first)]
    txn.cursor(tables.search).putmulti(rows)


def clear_columns(
    txn: Transaction,
    tables: Tables,
    stored: "SegmentDocuments",
    documents: "NDArray[np.int64]",
    columns: Iterable[int] = range(COLUMN_COUNT),
) -> None:
    """Forget what is known of some ascending documents of a segment, or some of it."""
    columns = list(columns)
    segment_id = stored.segment.id
    for chunk in np.unique(documents // CHUNK).tolist():
        places = documents[documents // CHUNK == chunk] - chunk * CHUNK
        for column in columns:
            values = stored.chunk(column, chunk)
            if values[places].any():
                values[places] = 0
                # A row of nothing but 0 is not written, and `putmulti` would not take the old one away.
                txn.delete(_column_key(segment_id, column, chunk), db=tables.search)
                put_columns(txn, tables, segment_id, {column: values}, chunk * CHUNK)


def put_directory(
    txn: Transaction, tables: Tables, segment_id: int, directory: DocumentDirectory, names: list[str]
) -> None:
    """Write which messages documents are, and the names of roles."""
    txn.put(segment_key(segment_id, DIRECTORY), directory.row, db=tables.search)
    txn.put(segment_key(segment_id, NAMES), _encode_names(names), db=tables.search)


def check_documents(txn: Transaction, tables: Tables, segment: SearchSegment) -> None:
    """Raise `CorruptStateError` unless the rows about the documents of a segment are as they are written."""
    stored = SegmentDocuments(txn, tables, segment, may_remember=False)
    directory = stored.directory
    keys = list(zip(directory.chats.tolist(), directory.firsts.tolist(), strict=True))
    starts, ends = directory.starts.astype(np.int64), directory.starts.astype(np.int64) + directory.counts
    is_right = keys == sorted(set(keys)) and bool(directory.counts.all()) and bool((starts[1:] >= ends[:-1]).all())
    is_right = is_right and (not len(ends) or int(ends[-1]) <= segment.documents)
    is_used = np.zeros(segment.documents, np.bool_)
    if is_right:
        is_used[directory.documents] = True
    is_right = is_right and _encode_names(stored.names) == txn.get(segment_key(segment.id, NAMES), db=tables.search)
    if not is_right or int(stored.column(ROLE).max(initial=0)) >= max(len(stored.names), 1):
        raise damaged()
    for key, row in prefixed(txn, tables.search, segment_key(segment.id, COLUMNS)):
        first = int.from_bytes(key[-4:], "big") * CHUNK
        values = unpack_chunk(row, min(CHUNK, segment.documents - first))
        if pack_chunk(values) != row or values[~is_used[first : first + CHUNK]].any():
            raise damaged()


class SegmentDocuments:
    """
    The documents of one segment in a transaction.

    Args:
        may_remember: Whether what is read may be kept for other transactions: not in one that may have changed it.
    """

    def __init__(self, txn: Transaction, tables: Tables, segment: SearchSegment, *, may_remember: bool) -> None:
        self._txn, self._tables, self.segment = txn, tables, segment
        self._may_remember = may_remember
        self._directory: DocumentDirectory | None = None

    @property
    def directory(self) -> DocumentDirectory:
        if self._directory is None:
            key = (self.segment.id, self.segment.version, -1)
            directory = self._tables.caches.searched.get(key)
            if not isinstance(directory, DocumentDirectory):
                row = self._txn.get(segment_key(self.segment.id, DIRECTORY), db=self._tables.search)
                if row is None:
                    raise damaged()
                directory = DocumentDirectory.from_row(row)
                if self._may_remember:
                    self._tables.caches.searched.put(key, directory, len(row))
            self._directory = directory
        return self._directory

    @property
    def names(self) -> list[str]:
        row = self._txn.get(segment_key(self.segment.id, NAMES), db=self._tables.search)
        if row is None:
            raise damaged()
        return _decode_names(row)

    def column(self, column: int) -> "NDArray[Any]":
        """Return a column of all documents; of numbers as wide as it needs."""
        key = self.segment.id, self.segment.version, column
        remembered = self._tables.caches.searched.get(key)
        if isinstance(remembered, np.ndarray):
            return cast("NDArray[Any]", remembered)
        count = self.segment.documents
        values: NDArray[Any] = np.concatenate([self.chunk(column, chunk) for chunk in range(-(-count // CHUNK))])
        if not int(values.max()) >> 32:
            values = values.astype(np.uint32)  # what is remembered takes half as much
        if self._may_remember:
            self._tables.caches.searched.put(key, values, values.nbytes)
        return values

    def chunk(self, column: int, chunk: int) -> "NDArray[np.uint64]":
        """Return a column of the documents of one row, which may be changed."""
        count = min(CHUNK, self.segment.documents - chunk * CHUNK)
        row = self._txn.get(_column_key(self.segment.id, column, chunk), db=self._tables.search)
        return np.zeros(count, np.uint64) if row is None else unpack_chunk(row, count)

    def between(self, column: int, start: int, end: int) -> "NDArray[np.uint64] | None":
        """Return a column of the documents from one to before another; None where it is 0 for all of them, and for many more."""
        first, last = start // CHUNK, (end - 1) // CHUNK
        if first == last:
            row = self._txn.get(_column_key(self.segment.id, column, first), db=self._tables.search)
            if row is None:
                return None
            values = unpack_chunk(row, min(CHUNK, self.segment.documents - first * CHUNK))
        else:
            values = np.concatenate([self.chunk(column, chunk) for chunk in range(first, last + 1)])
        return values[start - first * CHUNK : end - first * CHUNK]

    def column_of(self, column: int, documents: "NDArray[Any]") -> "NDArray[Any]":
        """Return a column of ascending documents."""
        if not len(documents):
            return np.empty(0, np.uint64)
        values: NDArray[Any]
        if self.segment.documents > _SMALL:
            first, last = int(documents[0]) // CHUNK, int(documents[-1]) // CHUNK
            key = self.segment.id, self.segment.version, column
            # A chat of few messages in a large segment is to cost its own rows, not a column of all.
            if last - first < _FEW_CHUNKS and self._tables.caches.searched.get(key) is None:
                chunks = [self.chunk(column, chunk) for chunk in range(first, last + 1)]
                values = (chunks[0] if first == last else np.concatenate(chunks))[documents - first * CHUNK]
                return values
        values = self.column(column)[documents]
        return values

    def range_sum(self, column: int, starts: "NDArray[np.int64]", ends: "NDArray[np.int64]") -> int:
        """Return the sum of a column over ranges of documents."""
        if len(starts) == 1 and self.segment.documents <= _SMALL:
            return int(self.column(column)[int(starts[0]) : int(ends[0])].sum(dtype=np.uint64))
        return int(self.column_of(column, spread(starts, ends - starts)).sum(dtype=np.uint64))

    def is_of_any(self, documents: "NDArray[Any]", chat_nos: Sequence[int]) -> "NDArray[np.bool_]":
        """Return which documents, in whatever order, belong to some chats, given ascending."""
        starts, ends = self.directory.ranges(chat_nos)
        if not len(starts):
            return np.zeros(len(documents), np.bool_)
        places = np.searchsorted(starts, documents, "right") - 1
        return np.asarray((places >= 0) & (documents < ends[places]), np.bool_)
