"""
Postings: where a term occurs, packed.

An occurrence is a number: the document (the number of a message in the log order of its chat) in the upper 32 bits and the
position in its text in the lower. A row holds chunks one after the other, so that adding to it decodes nothing:

    single:  flags, document u4, position
    many:    flags, documents u2, occurrences u4, first document u4, deltas, counts, positions

Numbers are little-endian, and each column as wide (1, 2 or 4 bytes) as its largest value needs, which the flags say.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cache
from operator import sub
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DOC_SHIFT: Final = 32
POSITION_MASK: Final = 0xFFFFFFFF
BLOCK_OCCURRENCES: Final = 512
"""So many make a block that nothing is added to any more. It fits into half a page of LMDB, with few exceptions."""

_SINGLE: Final = 0x80
_ALL_ONCE: Final = 0x40
_ONE: Final = tuple(Struct(f"<BI{code}") for code in "BHI")
_MANY: Final = Struct("<BHII")
_WIDTHS: Final = (1, 2, 4)
_CODES: Final = "BHI"
_DTYPES: Final = ("u1", "<u2", "<u4")
_FEW: Final = 64


class Postings(NamedTuple):
    """
    Ascending documents, how often the term occurs in each, and all the positions, one document's after the other.

    Arrays of `uint64`, `uint32` and `uint32`.
    """

    documents: "NDArray[np.uint64]"
    counts: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"


def pack(occurrences: Sequence[int]) -> bytes:
    """A chunk of ascending occurrences, at least one; of at most 65,535 documents."""
    if len(occurrences) == 1:
        document, position = occurrences[0] >> DOC_SHIFT, occurrences[0] & POSITION_MASK
        width = _width(position)
        packed: bytes = _ONE[width].pack(_SINGLE | width, document, position)
        return packed
    if len(occurrences) > _FEW:
        return _pack_many(occurrences)
    documents = [occurrence >> DOC_SHIFT for occurrence in occurrences]
    positions = [occurrence & POSITION_MASK for occurrence in occurrences]
    counts: list[int] = []
    is_once = len(set(documents)) == len(documents)
    if not is_once:
        counted = Counter(documents)
        documents, counts = list(counted), list(counted.values())
    deltas = list(map(sub, documents[1:], documents))
    widths = _width(max(positions)), _width(max(deltas, default=0)), 0 if is_once else _width(max(counts))
    return b"".join(
        (
            _MANY.pack(_flags(*widths, is_once=is_once), len(documents), len(positions), documents[0]),
            _column(deltas, widths[1]),
            b"" if is_once else _column(counts, widths[2]),
            _column(positions, widths[0]),
        )
    )


def _pack_many(occurrences: Sequence[int]) -> bytes:
    import numpy as np

    keys = np.array(occurrences, dtype=np.uint64)
    documents, counts = np.unique(keys >> np.uint64(DOC_SHIFT), return_counts=True)
    positions = keys & np.uint64(POSITION_MASK)
    deltas = np.diff(documents)
    is_once = len(documents) == len(keys)
    widest = int(deltas.max()) if len(deltas) else 0
    widths = _width(int(positions.max())), _width(widest), 0 if is_once else _width(int(counts.max()))
    return b"".join(
        (
            _MANY.pack(_flags(*widths, is_once=is_once), len(documents), len(keys), int(documents[0])),
            deltas.astype(_DTYPES[widths[1]]).tobytes(),
            b"" if is_once else counts.astype(_DTYPES[widths[2]]).tobytes(),
            positions.astype(_DTYPES[widths[0]]).tobytes(),
        )
    )


def unpack(rows: Sequence[bytes]) -> Postings:
    """The postings in rows, one row's after the other."""
    if not any(rows):
        return _nothing()
    chunks = _Chunks()
    for row in rows:
        at = 0
        while at < len(row):
            at = chunks.add_singles(row, at) if row[at] & _SINGLE else chunks.add(row, at)
    return chunks.joined()


class _Chunks:
    """Columns of chunks, which are joined and summed up in one go: most chunks are small."""

    def __init__(self) -> None:
        import numpy as np

        self._zero, self._one, self._column = np.zeros(1, np.uint8), np.ones(1, np.uint8), np.frombuffer
        self._starts: list[int] = []
        self._firsts: list[int] = []
        self._deltas: list[NDArray[Any]] = []
        self._counts: list[NDArray[Any]] = []
        self._positions: list[NDArray[Any]] = []
        self._total = 0

    def add_singles(self, row: bytes, at: int) -> int:
        """Add those of equal width that follow each other from a place on; returns where they end."""
        width = row[at] & 3
        size = _ONE[width].size
        headers = row[at::size]
        count = len(headers) - len(headers.lstrip(headers[:1]))
        self._starts.extend(range(self._total, self._total + count))
        self._total += count
        if count == 1:
            self._firsts.append(_ONE[width].unpack_from(row, at)[1])
            self._deltas.append(self._zero)
            self._counts.append(self._one)
            self._positions.append(self._column(row, _DTYPES[width], 1, at + size - _WIDTHS[width]))
        else:
            singles = self._column(row, _single_dtype(width), count, at)
            self._firsts.extend(singles["document"].tolist())
            self._deltas.append(self._zero.repeat(count))
            self._counts.append(self._one.repeat(count))
            self._positions.append(singles["position"])
        return at + count * size

    def add(self, row: bytes, at: int) -> int:
        """Add the one of many occurrences that begins at a place; returns where it ends."""
        header: tuple[int, int, int, int] = _MANY.unpack_from(row, at)
        flags, document_count, occurrence_count, first = header
        at += _MANY.size
        self._starts.append(self._total)
        self._firsts.append(first)
        self._total += document_count
        width = flags >> 2 & 3
        self._deltas += self._zero, self._column(row, _DTYPES[width], document_count - 1, at)
        at += (document_count - 1) * _WIDTHS[width]
        if flags & _ALL_ONCE:
            self._counts.append(self._one.repeat(document_count))
        else:
            width = flags >> 4 & 3
            self._counts.append(self._column(row, _DTYPES[width], document_count, at))
            at += document_count * _WIDTHS[width]
        width = flags & 3
        self._positions.append(self._column(row, _DTYPES[width], occurrence_count, at))
        return at + occurrence_count * _WIDTHS[width]

    def joined(self) -> Postings:
        """All of them."""
        import numpy as np

        return Postings(
            _summed(np.concatenate(self._deltas, dtype=np.int64), self._starts, self._firsts),
            np.concatenate(self._counts, dtype=np.uint32),
            np.concatenate(self._positions, dtype=np.uint32),
        )


@cache
def _single_dtype(width: int) -> "np.dtype[np.void]":
    import numpy as np

    return np.dtype([("flags", "u1"), ("document", "<u4"), ("position", _DTYPES[width])])


@cache
def _nothing() -> Postings:
    import numpy as np

    return Postings(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32))


def _summed(deltas: "NDArray[np.int64]", starts: list[int], firsts: list[int]) -> "NDArray[np.uint64]":
    """The documents of chunks, which begin at these places with these documents; the deltas there are 0."""
    import numpy as np

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
    import numpy as np

    return np.repeat(postings.documents << np.uint64(DOC_SHIFT), postings.counts) | postings.positions


def blocks_of(occurrences: Sequence[int]) -> tuple[list[Sequence[int]], Sequence[int]]:
    """Full blocks, each of whole documents, and what is left for the end that is added to."""
    blocks: list[Sequence[int]] = []
    start = 0
    while len(occurrences) - start > BLOCK_OCCURRENCES:
        end = start + BLOCK_OCCURRENCES
        document = occurrences[end - 1] >> DOC_SHIFT
        while end < len(occurrences) and occurrences[end] >> DOC_SHIFT == document:
            end += 1
        blocks.append(occurrences[start:end])
        start = end
    return blocks, occurrences[start:]


def _width(largest: int) -> int:
    return 0 if largest < 0x100 else 1 if largest < 0x10000 else 2


def _flags(positions: int, deltas: int, counts: int, *, is_once: bool) -> int:
    return positions | deltas << 2 | counts << 4 | (_ALL_ONCE if is_once else 0)


def _column(values: list[int], width: int) -> bytes:
    return bytes(values) if width == 0 else array(_CODES[width], values).tobytes()
