"""
Blocks: rows of packed postings, each of which fits into a page of LMDB.

A block has many rare terms, or a part of the documents of a frequent one:

    head | NUL term NUL ... NUL | documents of each term | first document of each | differences of the others
         | bits: where a new document begins | positions

The bits are left out where every term occurs once in each document. Positions are absolute where all are small, else they are
differences within each document.
"""

from collections.abc import Iterable, Iterator
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from chatledger.domain.errors import CorruptStateError

from .postings import Postings, Slices, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray


_U2, _U4 = np.dtype("<u2"), np.dtype("<u4")
_EXCEPTION_BYTES: Final = 6
_MAX_PLACES: Final = 1 << 16
_LARGEST: Final = (0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF)
"""By the width in bytes."""


def width_of(largest: int) -> int:
    """Return how many bytes a number needs: 1 to 4."""
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 3 if largest < 1 << 24 else 4


def pack(values: "NDArray[Any]", width: int) -> bytes:
    """Return the lower bytes of each number, so many of each."""
    if width == 1:
        return values.astype(np.uint8).tobytes()
    if width == 2:  # bytes
        return values.astype(_U2).tobytes()
    packed = np.ascontiguousarray(values, _U4)
    return packed.tobytes() if width == 4 else packed.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def unpack(raw: bytes, width: int, count: int, at: int) -> "NDArray[Any]":
    """Return so many unsigned numbers from a place on; read-only, and of whatever type has that width."""
    if width == 1:
        return np.frombuffer(raw, np.uint8, count, at)
    if width == 2:  # bytes
        return np.frombuffer(raw, _U2, count, at)
    if width == 4:
        return np.frombuffer(raw, _U4, count, at)
    wide = np.zeros((count, 4), np.uint8)  # three bytes, which NumPy has no number of
    wide[:, :3] = np.frombuffer(raw, np.uint8, 3 * count, at).reshape(count, 3)
    return wide.view(_U4).reshape(count)


class Column(NamedTuple):
    """
    Packed numbers, and those that do not fit.

    Args:
        width: Of each number, in bytes.
        values: The numbers; of an exception its lower bytes.
        exceptions: Their places as numbers of two bytes, then the exceptions, as numbers of four.
        exception_count: How many exceptions there are.
    """

    width: int
    values: bytes
    exceptions: bytes
    exception_count: int


def packed(values: "NDArray[Any]") -> Column:
    """Pack numbers below 2**32, with exceptions where that takes fewer bytes."""
    largest = int(values.max()) if len(values) else 0
    width = width_of(largest)
    if width == 1 or len(values) >= _MAX_PLACES:  # the places of exceptions have two bytes
        return Column(width, pack(values, width), b"", 0)
    sizes = {width: width * len(values)}
    for narrower in (1, 2):
        if narrower < width:
            beyond = int(np.count_nonzero(values > _LARGEST[narrower]))
            sizes[narrower] = narrower * len(values) + _EXCEPTION_BYTES * beyond
    best = min(sizes, key=sizes.__getitem__)
    if best == width:
        return Column(width, pack(values, width), b"", 0)
    places = np.flatnonzero(values > _LARGEST[best])
    exceptions = places.astype(_U2).tobytes() + values[places].astype(_U4).tobytes()
    return Column(best, pack(values, best), exceptions, len(places))


class StoredColumn(NamedTuple):
    """A column where it lies in a row. `width`, `length` and `at`: of its numbers: how wide, how many, and where they begin."""

    raw: bytes
    width: int
    length: int
    at: int
    exception_count: int

    @property
    def end(self) -> int:
        return self.at + self.width * self.length + _EXCEPTION_BYTES * self.exception_count

    def values(self) -> "NDArray[Any]":
        """All numbers; of a type that has room for the largest."""
        numbers = unpack(self.raw, self.width, self.length, self.at)
        if self.exception_count:
            numbers = numbers.astype(np.uint32)
            places, exceptions = self._exceptions()
            numbers[places] = exceptions
        return numbers

    def taken(self, indexes: "NDArray[np.int64]") -> "NDArray[np.uint32]":
        """Return the numbers at ascending places."""
        numbers: NDArray[np.uint32] = unpack(self.raw, self.width, self.length, self.at)[indexes].astype(np.uint32)
        if self.exception_count and len(indexes):
            places, exceptions = self._exceptions()
            among = np.searchsorted(places, indexes)
            among[among == len(places)] = 0
            is_exception = places[among] == indexes
            numbers[is_exception] = exceptions[among[is_exception]]
        return numbers

    def copy_to(self, target: "NDArray[np.uint32]", start: int) -> None:
        """Put as many numbers, from a place on, as there is room for."""
        target[:] = unpack(self.raw, self.width, len(target), self.at + self.width * start)
        if self.exception_count:
            places, exceptions = self._exceptions()
            if len(target) < self.length:
                first, last = places.searchsorted(start), places.searchsorted(start + len(target))
                places, exceptions = places[first:last] - start, exceptions[first:last]
            target[places] = exceptions

    def _exceptions(self) -> "tuple[NDArray[np.int64], NDArray[Any]]":
        at, count = self.at + self.width * self.length, self.exception_count
        places = np.frombuffer(self.raw, _U2, count, at).astype(np.int64)
        return places, np.frombuffer(self.raw, _U4, count, at + 2 * count)


BLOCK_BYTES: Final = 4080
"""With its header of 16 bytes LMDB puts just so many on one page of their own."""
_MAX_POSTINGS: Final = 60_000
_HEAD: Final = Struct("<BBBBHHHHI")
_DIFFERENCES_WIDTH: Final = 0x07
_HAS_FREQUENCIES: Final = 0x10
_IS_RELATIVE: Final = 0x20
_SMALL_POSITION: Final = 0xFF
_WIDTHS: Final = frozenset({1, 2, 3, 4})


def damaged() -> CorruptStateError:
    """Return the error for a row that cannot be read."""
    return CorruptStateError("a row of the search index is damaged; rebuild it: 'chatledger rebuild --only search'")


def encode(postings: Postings) -> bytes:
    """Pack postings: at least one, at most `_MAX_POSTINGS`."""
    terms, sizes, documents, frequencies, positions = postings
    starts = sizes.cumsum() - sizes
    firsts = documents[starts]
    if len(terms) == 1:  # as in nearly all blocks of frequent terms
        rest = documents[1:] - documents[:-1]
    else:
        differences = np.empty(len(documents), np.uint32)
        np.subtract(documents[1:], documents[:-1], out=differences[1:])
        is_rest = np.ones(len(documents), np.bool_)
        is_rest[starts] = False
        rest = differences[is_rest]
    differences_of = packed(rest)
    flags = differences_of.width
    bits = b""
    if len(positions) != len(documents):
        flags |= _HAS_FREQUENCIES
        begins = frequencies.cumsum(dtype=np.int64) - frequencies
        marks = np.zeros(len(positions), np.uint8)
        marks[begins] = 1
        bits = np.packbits(marks).tobytes()
        if int(positions.max()) > _SMALL_POSITION:
            flags |= _IS_RELATIVE
            relative = np.empty(len(positions), np.uint32)
            np.subtract(positions[1:], positions[:-1], out=relative[1:])
            relative[begins] = positions[begins]
            positions = relative
    positions_of = packed(positions)
    # A NUL on both sides of each term, which none has in it: one search of bytes tells where it is, and that it is whole.
    dictionary = b"\0" + b"\0".join(terms) + b"\0"
    size_width = width_of(int(sizes.max())) if len(terms) > 1 else 0  # of one term it is the number of all postings
    first_width = width_of(int(firsts.max()))
    widths = size_width, first_width, flags, positions_of.width
    exceptions = differences_of.exception_count, positions_of.exception_count
    head = _HEAD.pack(*widths, len(terms), *exceptions, len(documents), len(positions))
    length = len(dictionary).to_bytes(2, "little")
    return b"".join(
        (
            *(head, length, dictionary, pack(sizes, size_width) if size_width else b"", pack(firsts, first_width)),
            *(differences_of.values, differences_of.exceptions, bits, positions_of.values, positions_of.exceptions),
        )
    )


class PostingsBlock:
    """
    A packed block; each column is unpacked when it is asked for.

    Raises:
        CorruptStateError: The row is damaged.
    """

    __slots__ = (
        *("_bits_at", "_differences", "_dictionary_end", "_first_width", "_firsts_at", "_flags", "_positions"),
        *("_raw", "_size_width", "_sizes", "_starts", "_term_count", "count", "occurrence_count"),
    )

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        try:
            head = _HEAD.unpack_from(raw)
            dictionary = int.from_bytes(raw[_HEAD.size : _HEAD.size + 2], "little")
        except error as reason:
            raise damaged() from reason
        size_width, first_width, flags, position_width, term_count, rest_exceptions, exceptions, count, occurrences = (
            head
        )
        if not {first_width, position_width, flags & _DIFFERENCES_WIDTH} <= _WIDTHS or size_width not in {0, *_WIDTHS}:
            raise damaged()
        self.count, self.occurrence_count = count, occurrences
        self._size_width, self._first_width, self._flags, self._term_count = size_width, first_width, flags, term_count
        self._dictionary_end = _HEAD.size + 2 + dictionary
        self._firsts_at = self._dictionary_end + size_width * term_count
        at = self._firsts_at + first_width * term_count
        self._differences = StoredColumn(raw, flags & _DIFFERENCES_WIDTH, count - term_count, at, rest_exceptions)
        self._bits_at = self._differences.end
        at = self._bits_at + ((occurrences + 7) // 8 if flags & _HAS_FREQUENCIES else 0)
        self._positions = StoredColumn(raw, position_width, occurrences, at, exceptions)
        self._sizes: NDArray[np.int64] | None = None
        self._starts: NDArray[np.int64] | None = None
        if self._positions.end != len(raw) or count < term_count or (size_width == 0) != (term_count == 1):
            raise damaged()

    @property
    def has_one_term(self) -> bool:
        return bool(self._term_count == 1)

    @property
    def _dictionary(self) -> bytes:
        return self._raw[_HEAD.size + 2 : self._dictionary_end]

    @property
    def terms(self) -> list[bytes]:
        """The terms, ascending."""
        return self._dictionary[1:-1].split(b"\0")

    @property
    def sizes(self) -> "NDArray[np.int64]":
        """Number of documents of each term in the block."""
        if self._sizes is None:
            if self._term_count == 1:
                self._sizes = np.array([self.count])
            else:
                stored = unpack(self._raw, self._size_width, self._term_count, self._dictionary_end)
                self._sizes = stored.astype(np.int64)
        return self._sizes

    @property
    def _ends(self) -> "NDArray[np.int64]":
        ends = self.sizes.cumsum()
        if ends[-1] != self.count:
            raise damaged()
        return ends

    def place(self, term: bytes) -> int:
        """The place of a term among those of the block; -1 when it is not there."""
        if self._term_count == 1:
            return 0 if self._dictionary[1:-1] == term else -1
        dictionary = self._dictionary
        at = dictionary.find(b"\0" + term + b"\0")
        return -1 if at < 0 else dictionary.count(b"\0", 0, at)

    def count_at(self, place: int) -> int:
        """Number of documents of one term in the block."""
        return int(self.sizes[place])

    def documents_at(self, place: int) -> "tuple[NDArray[np.uint32], int]":
        """Return the documents of one term, and how many postings come before them."""
        if self._term_count == 1:
            return self.documents(), 0
        end, size = int(self._ends[place]), int(self.sizes[place])
        before = end - size
        return self._ascending(place, before - place, size), before

    def _ascending(self, place: int, start: int, size: int) -> "NDArray[np.uint32]":
        """Return so many documents of one term: its first one, and the sums of the differences from a place on."""
        documents = np.empty(size, np.uint32)
        at = self._firsts_at + place * self._first_width
        documents[0] = int.from_bytes(self._raw[at : at + self._first_width], "little")
        if size > 1:
            self._differences.copy_to(documents[1:], start)
            np.add.accumulate(documents, out=documents)
        return documents

    def documents(self) -> "NDArray[np.uint32]":
        if self._term_count == 1:
            return self._ascending(0, 0, self.count)
        firsts = unpack(self._raw, self._first_width, self._term_count, self._firsts_at)
        documents = np.empty(self.count, np.uint32)
        sizes = self.sizes
        starts = self._ends - sizes
        is_rest = np.ones(self.count, np.bool_)
        is_rest[starts] = False
        # One sum over all terms, and of each term's documents what came before it taken off again: the numbers turn round.
        documents[starts] = 0
        documents[is_rest] = self._differences.values()
        np.add.accumulate(documents, out=documents)
        documents += (firsts.astype(np.uint32) - documents[starts]).repeat(sizes)
        return documents

    @property
    def has_frequencies(self) -> bool:
        """Whether a term occurs more than once in a document."""
        return bool(self._flags & _HAS_FREQUENCIES)

    def _occurrence_starts(self) -> "NDArray[np.int64]":
        """Return where the occurrences of each posting begin, and where the last end."""
        if self._starts is None:
            if not self.has_frequencies:
                self._starts = np.arange(self.count + 1, dtype=np.int64)
            else:
                size = (self.occurrence_count + 7) // 8
                marks = np.frombuffer(self._raw, np.uint8, size, self._bits_at)
                begins = np.unpackbits(marks, count=self.occurrence_count).view(np.bool_).nonzero()[0]
                if len(begins) != self.count or begins[0]:
                    raise damaged()
                self._starts = np.append(begins, self.occurrence_count)
        return self._starts

    def frequencies(self, start: int, end: int) -> "NDArray[np.uint32]":
        """Return how often the terms of these postings occur."""
        if not self.has_frequencies:
            return np.ones(end - start, np.uint32)
        starts = self._occurrence_starts()
        return (starts[start + 1 : end + 1] - starts[start:end]).astype(np.uint32)

    def positions_of(self, places: "NDArray[np.int64]") -> "tuple[NDArray[np.uint32], NDArray[np.uint32]]":
        """Return how often the terms of some postings occur, ascending, and all their positions."""
        if not self.has_frequencies:
            return np.ones(len(places), np.uint32), self._positions.taken(places)
        starts = self._occurrence_starts()
        begins = starts[places]
        counts = starts[places + 1] - begins
        if counts.sum() == len(places):
            return counts.astype(np.uint32), self._positions.taken(begins)
        positions = self._positions.taken(spread(begins, counts))
        return counts.astype(np.uint32), self._absolute(positions, counts)

    def _absolute(self, positions: "NDArray[Any]", counts: "NDArray[np.int64]") -> "NDArray[np.uint32]":
        if not self._flags & _IS_RELATIVE or not len(positions):
            return positions.astype(np.uint32)
        sums = positions.cumsum(dtype=np.uint32)
        begins = counts.cumsum() - counts
        sums -= (sums[begins] - positions[begins].astype(np.uint32)).repeat(counts)
        return sums

    def postings(self) -> Postings:
        starts = self._occurrence_starts()
        counts = starts[1:] - starts[:-1]
        positions = self._absolute(self._positions.values(), counts)
        return Postings(self.terms, self.sizes, self.documents(), counts.astype(np.uint32), positions)


class Cut(NamedTuple):
    """A block that was cut off: its last term and document, the row, and where in the postings it ends."""

    term: bytes
    document: int
    row: bytes
    end: int


def cut(postings: Postings, *, are_full: bool = False) -> Iterator[Cut]:
    """
    Cut postings into blocks, each as large as fits; one posting that does not fit is a block of its own.

    Args:
        postings: One at least.
        are_full: Whether to leave out what would not fill a block at the end, unless it is all.
    """
    documents, slices = postings.documents, Slices(postings)
    costs = postings.frequencies.astype(np.float64) * 1.13 + 1  # about how many bytes each takes
    costs[1:] += documents[1:] - documents[:-1] > _SMALL_POSITION
    starts = np.cumsum(postings.sizes) - postings.sizes
    costs[starts] += np.fromiter(map(len, postings.terms), np.float64, len(postings.terms)) + 3
    costs = np.cumsum(costs, dtype=np.float64)
    start, ratio = 0, 1.0
    while start < postings.length:
        before = float(costs[start - 1]) if start else 0.0
        room = (BLOCK_BYTES - _HEAD.size - 4) / ratio
        end = int(costs.searchsorted(before + room, "right"))
        end = min(max(end, start + 1), postings.length, start + _MAX_POSTINGS)
        if are_full and start and end == postings.length:
            return
        while True:
            part = slices.of(start, end)
            row = encode(part)
            if len(row) <= BLOCK_BYTES or end - start == 1:
                break
            end = max(start + 1, start + int((end - start) * (BLOCK_BYTES / len(row)) * 0.985))
        # What the last block took of what was reckoned tells how much the next one has room for.
        ratio = max(0.5, len(row) / max(float(costs[end - 1]) - before, 1.0) * 1.02)
        yield Cut(part.terms[-1], int(postings.documents[end - 1]), row, end)
        start = end


def cut_again(postings: Postings) -> Iterable[Cut]:
    """Cut what is left of one block: mostly it is one again."""
    row = encode(postings)
    if len(row) > BLOCK_BYTES:
        return cut(postings)
    return [Cut(postings.terms[-1], int(postings.documents[-1]), row, postings.length)]
