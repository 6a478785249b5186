"""
Postings: where a term occurs, packed.

An occurrence is a number: the document (the number of a message in the log order of its chat) in the upper 32 bits and the
position in its text in the lower. A row holds chunks one after the other, so that adding to it decodes nothing:

    single:  flags, document u4, position
    many:    flags, documents u2, occurrences u4, first document u4, deltas, counts, positions

Numbers are little-endian, and each column as wide (1, 2 or 4 bytes) as its largest value needs, which the flags say.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain, repeat
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from chatledger.domain.errors import CorruptStateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOC_SHIFT: Final = 32
POSITION_MASK: Final = 0xFFFFFFFF

_DAMAGE: Final = (ValueError, IndexError, OverflowError, error)
_SINGLE: Final = 0x80
_ALL_ONCE: Final = 0x40
_ONE: Final = tuple(Struct(f"<BI{code}") for code in "BHI")
_MANY: Final = Struct("<BHII")
_WIDTHS: Final = (1, 2, 4)
_DTYPES: Final = ("u1", "<u2", "<u4")
_SINGLE_DTYPES: Final = tuple(
    np.dtype([("flags", "u1"), ("document", "<u4"), ("position", position)]) for position in _DTYPES
)
_MANY_DTYPE: Final = np.dtype([("flags", "u1"), ("documents", "<u2"), ("occurrences", "<u4"), ("first", "<u4")])


class Postings(NamedTuple):
    """
    Ascending documents, how often the term occurs in each, and all the positions, one document's after the other.

    Arrays of `uint64`, `uint32` and `uint32`.
    """

    documents: "NDArray[np.uint64]"
    counts: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"


def pack(documents: "NDArray[np.uint32]", positions: "NDArray[np.uint32]", starts: "NDArray[np.int64]") -> list[bytes]:
    """
    Chunks of the occurrences of several terms, or blocks of one.

    Args:
        documents: Of each occurrence, one chunk's after the other, ascending in each; at most 65,535 different in each.
        positions: In the document, ascending in each document.
        starts: Where the chunks begin; the first is 0, and none is empty.
    """
    is_first = np.empty(len(documents), dtype=np.bool_)
    np.not_equal(documents[1:], documents[:-1], out=is_first[1:])
    is_first[starts] = True
    firsts = np.flatnonzero(is_first)
    distinct = documents[firsts]
    counts = np.diff(firsts, append=len(documents))
    begins = np.searchsorted(firsts, starts)
    deltas = np.diff(distinct, prepend=distinct[:1])  # wraps where a chunk begins
    deltas[begins] = 0
    occurrence_counts = np.diff(starts, append=len(documents))
    document_counts = np.diff(begins, append=len(distinct))

    is_once = occurrence_counts == document_counts
    position_widths = _widths(np.maximum.reduceat(positions, starts))
    delta_widths = _widths(np.maximum.reduceat(deltas, begins))
    count_widths = np.where(is_once, 0, _widths(np.maximum.reduceat(counts, begins)))
    packed = _pack_singles(documents[starts], positions[starts], position_widths)
    many = np.flatnonzero(occurrence_counts > 1)
    if not len(many):
        return packed
    headers = np.empty(len(many), _MANY_DTYPE)
    flags = position_widths | delta_widths << 2 | count_widths << 4 | np.where(is_once, _ALL_ONCE, 0)
    headers["flags"], headers["documents"] = flags[many], document_counts[many]
    headers["occurrences"], headers["first"] = occurrence_counts[many], documents[starts[many]]
    ends, stops = starts + occurrence_counts, begins + document_counts
    columns = (
        _column(deltas, begins[many] + 1, stops[many], delta_widths[many]),
        _column(counts, begins[many], np.where(is_once, begins, stops)[many], count_widths[many]),
        _column(positions, starts[many], ends[many], position_widths[many]),
    )
    heads, size = headers.tobytes(), _MANY.size
    at = 0
    for chunk, deltas_of, counts_of, positions_of in zip(many.tolist(), *columns, strict=True):
        packed[chunk] = heads[at : at + size] + deltas_of + counts_of + positions_of
        at += size
    return packed


def _pack_singles(
    documents: "NDArray[np.uint32]", positions: "NDArray[np.uint32]", widths: "NDArray[np.int64]"
) -> list[bytes]:
    records = np.empty(len(documents), _SINGLE_DTYPES[-1])
    records["flags"], records["document"], records["position"] = widths | _SINGLE, documents, positions
    raw, size = records.tobytes(), records.itemsize
    # Of the position, whose last bytes are the upper ones, only as many bytes as it needs.
    sizes = (size - 4 + (1 << widths)).tolist()
    return [raw[at : at + needed] for at, needed in zip(range(0, len(raw), size), sizes, strict=True)]


def _column(
    values: "NDArray[Any]", starts: "NDArray[np.int64]", ends: "NDArray[np.int64]", widths: "NDArray[np.int64]"
) -> list[bytes]:
    """The values from each start to each end, as numbers of these widths."""
    packed = [values.astype(_DTYPES[width]).tobytes() if np.any(widths == width) else b"" for width in range(3)]
    bounds = zip(widths.tolist(), (starts << widths).tolist(), (ends << widths).tolist(), strict=True)
    return [packed[width][start:end] for width, start, end in bounds]


def _widths(largest: "NDArray[Any]") -> "NDArray[np.int64]":
    return (largest > 0xFF).astype(np.int64) + (largest > 0xFFFF)


class Part(NamedTuple):
    """
    Where a term occurs in one of several chats whose documents are numbered through.

    Args:
        base: How many documents the chats before it have; the rest does not count them.
        rows: The rows of the term.
        late: Occurrences after those in the rows.
    """

    base: int
    rows: Sequence[bytes]
    late: Sequence[int] = ()


def unpack(rows: Sequence[bytes]) -> Postings:
    """The postings in rows, one row's after the other."""
    return unpack_parts([Part(0, rows)])


def unpack_parts(parts: Sequence[Part]) -> Postings:
    """The postings of one chat after the other. Raises `CorruptStateError` when a row is damaged."""
    chunks = _Chunks()
    try:
        for base, rows, late in parts:
            chunks.base = base
            for row in rows:
                at = 0
                while at < len(row):
                    at = chunks.add_singles(row, at) if row[at] & _SINGLE else chunks.add(row, at)
            if late:
                chunks.add_late(late)
        found = chunks.joined() if chunks.count else _nothing()
    except _DAMAGE as reason:
        raise _damaged() from reason
    # Counts are numbers of four bytes: what they claim is compared before memory is taken for it.
    if found.counts.sum(dtype=np.uint64) != len(found.positions) or len(found.counts) != len(found.documents):
        raise _damaged()
    return found


def unpack_few(parts: Sequence[Part]) -> list[int]:
    """The same as occurrences, for few of them. Raises `CorruptStateError` when a row is damaged."""
    found: list[int] = []
    try:
        for base, rows, late in parts:
            for row in rows:
                at = 0
                while at < len(row):
                    at = _add_few(row, at, base, found)
            found += [occurrence + (base << DOC_SHIFT) for occurrence in late]
    except _DAMAGE as reason:
        raise _damaged() from reason
    return found


def _damaged() -> CorruptStateError:
    return CorruptStateError("a row of the search index is damaged; rebuild it: 'chatledger rebuild --only search'")


def _add_few(row: bytes, at: int, base: int, found: list[int]) -> int:
    flags = row[at]
    if flags & _SINGLE:
        one = _ONE[flags & 3]
        _, document, position = one.unpack_from(row, at)
        found.append(base + document << DOC_SHIFT | position)
        return at + one.size
    _, document_count, occurrence_count, document = _MANY.unpack_from(row, at)
    at += _MANY.size
    deltas, at = _few(row, at, flags >> 2 & 3, document_count - 1)
    counts: Sequence[int] = ()
    if not flags & _ALL_ONCE:
        counts, at = _few(row, at, flags >> 4 & 3, document_count)
    positions, at = _few(row, at, flags & 3, occurrence_count)
    documents: Iterable[int] = accumulate(deltas, initial=base + document)
    if counts:
        documents = chain.from_iterable(map(repeat, documents, counts))
    found += [document << DOC_SHIFT | position for document, position in zip(documents, positions, strict=True)]
    return at


def _few(row: bytes, at: int, width: int, count: int) -> tuple[Sequence[int], int]:
    """So many numbers of that width, and where they end."""
    end = at + count * _WIDTHS[width]
    return row[at:end] if width == 0 else Struct(f"<{count}{'BHI'[width]}").unpack_from(row, at), end


class _Column:
    """Numbers of many chunks, which are joined as bytes and read in one go: most chunks are small."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._widths: list[int] = []

    def add(self, width: int, piece: bytes) -> None:
        """Add numbers of a width."""
        self._pieces.append(piece)
        self._widths.append(width)

    def joined(self, dtype: Any) -> "NDArray[Any]":
        """All of them."""
        widths = set(self._widths)
        if len(widths) == 1:
            return np.frombuffer(b"".join(self._pieces), _DTYPES[widths.pop()]).astype(dtype)
        parts = [np.frombuffer(*one) for one in zip(self._pieces, map(_DTYPES.__getitem__, self._widths), strict=True)]
        return np.concatenate(parts, dtype=dtype)


class _Chunks:
    """Columns of chunks."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []
        self._deltas, self._counts, self._positions = _Column(), _Column(), _Column()
        self.base = 0
        self.count = 0

    def add_singles(self, row: bytes, at: int) -> int:
        """Add those of equal width that follow each other from a place on; returns where they end."""
        width = row[at] & 3
        size = _ONE[width].size
        headers = row[at::size]
        count = len(headers) - len(headers.lstrip(headers[:1]))
        end = at + count * size
        self._starts.extend(range(self.count, self.count + count))
        self.count += count
        self._deltas.add(0, bytes(count))
        self._counts.add(0, b"\1" * count)
        if count == 1:
            self._firsts.append(self.base + _ONE[width].unpack_from(row, at)[1])
            self._positions.add(width, row[end - _WIDTHS[width] : end])
        else:
            singles = np.frombuffer(row, _SINGLE_DTYPES[width], count, at)
            documents = singles["document"].tolist()
            self._firsts.extend([self.base + document for document in documents] if self.base else documents)
            self._positions.add(width, singles["position"].tobytes())
        return end

    def add(self, row: bytes, at: int) -> int:
        """Add the one of many occurrences that begins at a place; returns where it ends."""
        header: tuple[int, int, int, int] = _MANY.unpack_from(row, at)
        flags, document_count, occurrence_count, first = header
        self._starts.append(self.count)
        self._firsts.append(self.base + first)
        self.count += document_count
        width = flags >> 2 & 3
        at += _MANY.size
        end = at + (document_count - 1) * _WIDTHS[width]
        self._deltas.add(width, bytes(_WIDTHS[width]) + row[at:end])
        if flags & _ALL_ONCE:
            self._counts.add(0, b"\1" * document_count)
        else:
            width = flags >> 4 & 3
            at, end = end, end + document_count * _WIDTHS[width]
            self._counts.add(width, row[at:end])
        width = flags & 3
        at, end = end, end + occurrence_count * _WIDTHS[width]
        self._positions.add(width, row[at:end])
        return end

    def add_late(self, occurrences: Sequence[int]) -> None:
        """Add ascending occurrences."""
        counts = Counter(occurrence >> DOC_SHIFT for occurrence in occurrences)
        self._starts.extend(range(self.count, self.count + len(counts)))
        self._firsts.extend(self.base + document for document in counts)
        self.count += len(counts)
        self._deltas.add(0, bytes(len(counts)))
        self._counts.add(2, Struct(f"<{len(counts)}I").pack(*counts.values()))
        positions = [occurrence & POSITION_MASK for occurrence in occurrences]
        self._positions.add(2, Struct(f"<{len(positions)}I").pack(*positions))

    def joined(self) -> Postings:
        """All of them."""
        return Postings(
            _summed(self._deltas.joined(np.int64), self._starts, self._firsts),
            self._counts.joined(np.uint32),
            self._positions.joined(np.uint32),
        )


@cache
def _nothing() -> Postings:
    return Postings(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32))


def _summed(deltas: "NDArray[np.int64]", starts: list[int], firsts: list[int]) -> "NDArray[np.uint64]":
    """The documents of chunks, which begin at these places with these documents; the deltas there are 0."""
    ends = np.array(firsts, dtype=np.int64)
    jumps = ends.copy()
    if len(starts) > 1:
        ends += np.add.reduceat(deltas, starts)
        jumps[1:] -= ends[:-1]
    deltas[starts] = jumps
    documents: NDArray[np.uint64] = np.cumsum(deltas, out=deltas).view(np.uint64)
    return documents


def occurrences_of(postings: Postings) -> "NDArray[np.uint64]":
    """The postings as occurrences."""
    return np.repeat(postings.documents << np.uint64(DOC_SHIFT), postings.counts) | postings.positions
