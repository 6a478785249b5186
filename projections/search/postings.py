"""
Postings: where a term occurs, packed.

An occurrence is a number: the document (the number of a message in the log order of its chat) in the upper 32 bits and the
position in its text in the lower. A row holds chunks one after the other, so that adding to it decodes nothing:

    single:  flags, document u4, position
    many:    flags, documents u2, occurrences u4, first document u4, deltas, counts, positions

Numbers are little-endian, and each column as wide (1, 2 or 4 bytes) as its largest value needs, which the flags say.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
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
    documents: list[int] = []
    counts: list[int] = []
    last = -1
    for occurrence in occurrences:
        document = occurrence >> DOC_SHIFT
        if document == last:
            counts[-1] += 1
        else:
            documents.append(document)
            counts.append(1)
            last = document
    deltas = [later - earlier for earlier, later in pairwise(documents)]
    positions = [occurrence & POSITION_MASK for occurrence in occurrences]
    is_once = len(documents) == len(positions)
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
    """The postings in rows whose documents ascend."""
    import numpy as np

    documents: list[Any] = []
    counts: list[Any] = []
    positions: list[Any] = []
    for row in rows:
        at = 0
        while at < len(row):
            flags = row[at]
            if flags & _SINGLE:
                one = _ONE[flags & 3]
                _, document, position = one.unpack_from(row, at)
                at += one.size
                documents.append(np.array((document,), dtype=np.uint64))
                counts.append(_once(1))
                positions.append(np.array((position,), dtype=np.uint32))
                continue
            _, document_count, occurrence_count, first = _MANY.unpack_from(row, at)
            at += _MANY.size
            chunk = np.empty(document_count, dtype=np.uint64)
            chunk[0] = first
            width = flags >> 2 & 3
            np.cumsum(np.frombuffer(row, _DTYPES[width], document_count - 1, at), out=chunk[1:])
            chunk[1:] += np.uint64(first)
            documents.append(chunk)
            at += (document_count - 1) * _WIDTHS[width]
            if flags & _ALL_ONCE:
                counts.append(_once(document_count))
            else:
                width = flags >> 4 & 3
                counts.append(np.frombuffer(row, _DTYPES[width], document_count, at))
                at += document_count * _WIDTHS[width]
            width = flags & 3
            positions.append(np.frombuffer(row, _DTYPES[width], occurrence_count, at))
            at += occurrence_count * _WIDTHS[width]
    if not documents:
        return Postings(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32))
    return Postings(
        np.concatenate(documents),
        np.concatenate(counts, dtype=np.uint32),
        np.concatenate(positions, dtype=np.uint32),
    )


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


def _once(count: int) -> "NDArray[np.uint32]":
    import numpy as np

    return np.ones(count, dtype=np.uint32)


def _width(largest: int) -> int:
    return 0 if largest < 0x100 else 1 if largest < 0x10000 else 2


def _flags(positions: int, deltas: int, counts: int, *, is_once: bool) -> int:
    return positions | deltas << 2 | counts << 4 | (_ALL_ONCE if is_once else 0)


def _column(values: list[int], width: int) -> bytes:
    return bytes(values) if width == 0 else array(_CODES[width], values).tobytes()
