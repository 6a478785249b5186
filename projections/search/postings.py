"""
Postings: where a term occurs, packed.

An occurrence is a number: the document (the number of a message in the log order of its chat) in the upper 32 bits and the
position in its text in the lower. A row holds chunks one after the other, so that adding to it decodes nothing:

    single:  flags, document u4, position
    many:    flags, documents u2, occurrences u4, first document u4, deltas, counts, positions

Numbers are little-endian, and each column as wide (1, 2 or 4 bytes) as its largest value needs, which the flags say.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from chatledger.domain.errors import CorruptStateError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_first(values: "NDArray[Any]") -> "NDArray[np.bool_]":
    """Return which of the values do not repeat the one before."""
    found = np.empty(len(values), dtype=np.bool_)
    found[:1] = True
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


def is_in(values: "NDArray[np.uint64]", among: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Return which of these values are among those. Both ascend."""
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.searchsorted(among, values)
    places[places == len(among)] = 0
    found: NDArray[np.bool_] = among[places] == values
    return found


DOC_SHIFT: Final = 32
POSITION_MASK: Final = 0xFFFFFFFF

_DAMAGE: Final = (ValueError, IndexError, OverflowError, error)
_SINGLE: Final = 0x80
_ALL_ONCE: Final = 0x40
_ONE: Final = tuple(Struct(f"<BI{code}") for code in "BHI")
_MANY: Final = Struct("<BHII")
_MANY_SIZE: Final = _MANY.size
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
    is_new = is_first(documents)
    is_new[starts] = True
    firsts = np.flatnonzero(is_new)
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
    The occurrences of a term in one of several chats whose documents are numbered through.

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
    return unpack_each([parts])[0]


def unpack_each(sources: Sequence[Sequence[Part]]) -> list[Postings]:
    """
    The postings of several terms, which together cost NumPy hardly more than those of one, if they are not frequent.

    Raises:
        CorruptStateError: A row is damaged.
    """
    (documents, counts, positions), bounds = _unpack(sources)
    counts, positions = counts.astype(np.uint32), positions.astype(np.uint32)
    return [
        Postings(documents[first:last], counts[first:last], positions[start:end])
        for (first, start), (last, end) in pairwise(bounds)
    ]


def occurrences_of_each(sources: Sequence[Sequence[Part]]) -> "list[NDArray[np.uint64]]":
    """Unpack the occurrences of each term."""
    found, bounds = _unpack(sources)
    occurrences = occurrences_of(found)
    return [occurrences[start:end] for (_, start), (_, end) in pairwise(bounds)]


def _unpack(sources: Sequence[Sequence[Part]]) -> tuple[Postings, list[tuple[int, int]]]:
    """
    The postings of one source after the other, in numbers as wide as they need.

    And how many documents and occurrences there are before the first source, and up to the end of each.
    """
    chunks = _Chunks()
    bounds = [(0, 0)]
    try:
        for parts in sources:
            for base, rows, late in parts:
                chunks.add_rows(base, rows)
                if late:
                    chunks.add_late(base, late)
            bounds.append((chunks.count, chunks.occurrence_count))
        found = chunks.joined() if chunks.count else _nothing()
    except _DAMAGE as reason:
        raise _damaged() from reason
    # Counts are numbers of four bytes: what they claim is compared before memory is taken for it.
    sizes = len(found.documents), len(found.positions)
    if found.counts.sum(dtype=np.uint64) != sizes[1] or len(found.counts) != sizes[0] or bounds[-1] != sizes:
        raise _damaged()
    return found, bounds


def _damaged() -> CorruptStateError:
    return CorruptStateError("a row of the search index is damaged; rebuild it: 'chatledger rebuild --only search'")


class _Column(NamedTuple):
    """Numbers of many chunks, which are joined as bytes and read in one go: most chunks are small."""

    pieces: list[bytes]
    widths: list[int]

    def joined(self) -> "NDArray[Any]":
        """All of them, as wide as the widest."""
        widths = set(self.widths)
        if len(widths) == 1:
            return np.frombuffer(b"".join(self.pieces), _DTYPES[widths.pop()])
        return np.concatenate(
            [np.frombuffer(*one) for one in zip(self.pieces, map(_DTYPES.__getitem__, self.widths), strict=True)]
        )


class _Chunks:
    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []
        self._columns = _Column([], []), _Column([], []), _Column([], [])
        self.count = 0
        self.occurrence_count = 0

    def add_rows(self, base: int, rows: Sequence[bytes]) -> None:
        """Add the chunks of rows, before which are so many documents."""
        (deltas, delta_widths), (counts, count_widths), (positions, position_widths) = self._columns
        starts, firsts = self._starts, self._firsts
        for row in rows:
            at, size = 0, len(row)
            while at < size:
                if row[at] & _SINGLE:
                    at = self._add_singles(base, row, at)
                    continue
                header: tuple[int, int, int, int] = _MANY.unpack_from(row, at)
                flags, document_count, occurrence_count, first = header
                starts.append(self.count)
                firsts.append(base + first)
                self.count += document_count
                self.occurrence_count += occurrence_count
                width = flags >> 2 & 3
                at += _MANY_SIZE
                end = at + (document_count - 1) * _WIDTHS[width]
                delta_widths.append(width)
                # With some bytes from before them in place of that of the first document.
                deltas.append(row[at - _WIDTHS[width] : end])
                if flags & _ALL_ONCE:
                    count_widths.append(0)
                    counts.append(b"\1" * document_count)
                else:
                    width = flags >> 4 & 3
                    at, end = end, end + document_count * _WIDTHS[width]
                    count_widths.append(width)
                    counts.append(row[at:end])
                width = flags & 3
                at, end = end, end + occurrence_count * _WIDTHS[width]
                position_widths.append(width)
                positions.append(row[at:end])
                at = end

    def _add_singles(self, base: int, row: bytes, at: int) -> int:
        """Add those of equal width that follow each other from a place on; returns where they end."""
        width = row[at] & 3
        size = _ONE[width].size
        headers = row[at::size]
        count = len(headers) - len(headers.lstrip(headers[:1]))
        end = at + count * size
        if count == 1:
            documents = [_ONE[width].unpack_from(row, at)[1]]
            positions = row[end - _WIDTHS[width] : end]
        else:
            singles = np.frombuffer(row, _SINGLE_DTYPES[width], count, at)
            documents, positions = singles["document"].tolist(), singles["position"].tobytes()
        self._add(base, documents, (0, b"\1" * count), (width, positions), count)
        return end

    def add_late(self, base: int, occurrences: Sequence[int]) -> None:
        """Add ascending occurrences."""
        counts = Counter(occurrence >> DOC_SHIFT for occurrence in occurrences)
        positions = [occurrence & POSITION_MASK for occurrence in occurrences]
        packed = (
            (2, Struct(f"<{len(counts)}I").pack(*counts.values())),
            (2, Struct(f"<{len(positions)}I").pack(*positions)),
        )
        self._add(base, list(counts), *packed, len(positions))

    def _add(
        self,
        base: int,
        documents: list[int],
        counts: tuple[int, bytes],
        positions: tuple[int, bytes],
        occurrence_count: int,
    ) -> None:
        """Add documents, each of them as a chunk."""
        self._starts.extend(range(self.count, self.count + len(documents)))
        self._firsts.extend([base + document for document in documents] if base else documents)
        self.count += len(documents)
        self.occurrence_count += occurrence_count
        for column, (width, piece) in zip(self._columns, ((0, bytes(len(documents))), counts, positions), strict=True):
            column.widths.append(width)
            column.pieces.append(piece)

    def joined(self) -> Postings:
        """All of them."""
        deltas, counts, positions = self._columns
        if len(self._starts) == self.count:  # each chunk is one document, as those of rare terms are
            documents = np.array(self._firsts, dtype=np.uint64)
        else:
            documents = _summed(deltas.joined().astype(np.int64), self._starts, self._firsts)
        return Postings(documents, counts.joined(), positions.joined())


@cache
def _nothing() -> Postings:
    return Postings(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32))


def _summed(deltas: "NDArray[np.int64]", starts: list[int], firsts: list[int]) -> "NDArray[np.uint64]":
    """The documents of chunks, which begin at these places with these documents; the deltas there mean nothing."""
    deltas[starts] = 0
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
    occurrences = np.repeat(postings.documents << np.uint64(DOC_SHIFT), postings.counts)
    occurrences |= postings.positions
    return occurrences


def occurrences_in(postings: Postings, documents: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """The occurrences in some documents, which ascend: sooner than all of many."""
    places = np.searchsorted(postings.documents, documents)
    places[places == len(postings.documents)] = 0
    places = places[postings.documents[places] == documents]
    counts = postings.counts[places]
    ends = np.cumsum(postings.counts, dtype=np.int64)[places]
    # From the places among those that are wanted to the places among all.
    shifts = np.repeat(ends - np.cumsum(counts, dtype=np.int64), counts)
    occurrences = np.repeat(postings.documents[places] << np.uint64(DOC_SHIFT), counts)
    occurrences |= postings.positions[np.arange(len(shifts)) + shifts]
    return occurrences
