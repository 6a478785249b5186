"""The packed form of postings: whatever is packed comes out again, in as few bytes as its numbers need."""

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.projections.search.postings import (
    DOC_SHIFT,
    POSITION_MASK,
    Part,
    Postings,
    occurrences_in,
    occurrences_of,
    occurrences_of_each,
    pack,
    unpack,
    unpack_each,
    unpack_parts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX = 0xFFFFFFFF
BORDERS = [0, 1, 0xFF, 0x100, 0xFFFF, 0x10000, MAX]
"""Where columns get wider, and both ends."""


def numbers(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([value for value in BORDERS if value <= most]) | st.integers(0, most)


@st.composite
def occurrence_lists(draw: st.DrawFn, max_size: int = 150, most: int = MAX) -> list[int]:
    """Ascending occurrences, dense or spread, of few documents or many."""
    documents = draw(numbers(most))
    positions = draw(numbers(MAX))
    pairs = st.tuples(numbers(documents), numbers(positions))
    return sorted(draw(st.sets(pairs.map(lambda pair: occurrence(*pair)), min_size=1, max_size=max_size)))


def occurrence(document: int, position: int) -> int:
    return document << DOC_SHIFT | position


def columns(occurrences: list[int]) -> "tuple[NDArray[np.uint32], NDArray[np.uint32]]":
    keys = np.array(occurrences, dtype=np.uint64)
    return (keys >> np.uint64(DOC_SHIFT)).astype(np.uint32), keys.astype(np.uint32)


def packed(occurrences: list[int]) -> bytes:
    """One chunk."""
    (chunk,) = pack(*columns(occurrences), np.zeros(1, np.int64))
    return chunk


def plain(occurrences: list[int]) -> list[tuple[int, int, list[int]]]:
    """Document, count and positions, worked out the plain way."""
    groups = [(document, list(found)) for document, found in groupby(occurrences, lambda one: one >> DOC_SHIFT)]
    return [(document, len(found), [one & POSITION_MASK for one in found]) for document, found in groups]


def as_plain(postings: Postings) -> list[tuple[int, int, list[int]]]:
    ends = np.cumsum(postings.counts).tolist()
    parts = np.split(postings.positions, ends[:-1]) if ends else []
    return [
        (document, count, part.tolist())
        for document, count, part in zip(postings.documents.tolist(), postings.counts.tolist(), parts, strict=True)
    ]


def check(rows: list[bytes], occurrences: list[int]) -> None:
    """The rows hold just these, with the types that NumPy's operations rely on."""
    postings = unpack(rows)
    assert [np.uint64, np.uint32, np.uint32] == [column.dtype for column in postings]
    assert plain(occurrences) == as_plain(postings)
    assert occurrences == occurrences_of(postings).tolist()


@given(occurrence_lists(), st.data())
def test_chunks_one_after_the_other_are_one_list(occurrences: list[int], data: st.DataObject) -> None:
    """Cut between documents at any places, into chunks of one row or of several."""
    borders = [0]
    borders += [i for i in range(1, len(occurrences)) if occurrences[i] >> DOC_SHIFT != occurrences[i - 1] >> DOC_SHIFT]
    cuts = sorted({0, *data.draw(st.sets(st.sampled_from(borders)))})
    chunks = [packed(occurrences[start:end]) for start, end in zip(cuts, [*cuts[1:], len(occurrences)], strict=True)]
    split = data.draw(st.integers(0, len(chunks)))
    check([b"".join(chunks[:split]), b"".join(chunks[split:])], occurrences)


@pytest.mark.parametrize("position", BORDERS)
@pytest.mark.parametrize("delta", BORDERS[1:])
def test_every_width(position: int, delta: int) -> None:
    documents = range(0, MAX + 1, delta) if delta > 0x10000 else range(0, delta * 100, delta)
    occurrences = [occurrence(document, position) for document in documents[:100]]
    chunk = packed(occurrences)
    widths = [1 if largest < 0x100 else 2 if largest < 0x10000 else 4 for largest in (delta, position)]
    check([chunk], occurrences)
    if len(occurrences) > 2:
        assert 11 + (len(occurrences) - 1) * widths[0] + len(occurrences) * widths[1] == len(chunk)


@pytest.mark.parametrize("count", [2, 64, 65, 0xFF, 0x100, 0xFFFF, 0x10000])
def test_a_term_that_fills_a_document(count: int) -> None:
    """Counts of each width; the document of the widest has 65,536 times the same word."""
    occurrences = [occurrence(7, position) for position in range(count)] + [occurrence(9, 0)]
    check([packed(occurrences)], occurrences)


@pytest.mark.parametrize(("position", "size"), [(0, 6), (0xFF, 6), (0x100, 7), (0xFFFF, 7), (0x10000, 9), (MAX, 9)])
def test_a_single_occurrence_is_short(position: int, size: int) -> None:
    """As most are: in documents that add to a term one by one."""
    occurrences = [occurrence(MAX, position)]
    assert size == len(packed(occurrences))
    check([packed(occurrences)], occurrences)


@pytest.mark.soak
def test_65_535_documents_fit_into_a_chunk() -> None:
    """The most that its count has room for."""
    occurrences = [occurrence(document, document % 11) for document in range(0xFFFF)]
    check([packed(occurrences)], occurrences)


def test_nothing_is_unpacked_from_nothing() -> None:
    """A term without rows, or whose end is empty because all its occurrences are in full blocks."""
    check([], [])
    check([b""], [])
    check([packed([5]), b""], [5])


@pytest.mark.soak
@given(st.lists(occurrence_lists(max_size=90), min_size=1, max_size=5))
def test_chunks_that_are_packed_together_are_as_if_packed_alone(chunks: list[list[int]]) -> None:
    """Whatever the widths of their neighbours are."""
    starts = np.cumsum([0, *map(len, chunks[:-1])])
    occurrences = [one for chunk in chunks for one in chunk]
    assert [packed(chunk) for chunk in chunks] == pack(*columns(occurrences), starts)


some_documents = st.integers(0, 3) | st.integers(0, 70_000) | st.integers(0, 2**31)
some_positions = st.integers(0, 3) | st.integers(0, 300) | st.integers(0, MAX)
some_occurrences = st.builds(occurrence, some_documents, some_positions)
some_chunks = st.lists(st.sets(some_occurrences, min_size=1, max_size=12).map(sorted), max_size=5)


@pytest.mark.soak
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), some_chunks, st.sets(some_occurrences, max_size=5).map(sorted))))
def test_the_postings_of_several_chats_follow_each_other(chats: list[tuple[int, list[list[int]], list[int]]]) -> None:
    """With chunks of all widths, and occurrences that are not in rows yet; of one term, and of several at once."""
    parts = [
        Part(base, [b"".join(map(packed, chunks[:2])), *map(packed, chunks[2:])], late) for base, chunks, late in chats
    ]
    each_part = [
        [one + occurrence(base, 0) for chunk in [*chunks, late] for one in chunk] for base, chunks, late in chats
    ]
    expected = [one for part in each_part for one in part]

    assert expected == occurrences_of(unpack_parts(parts)).tolist()
    assert [expected, []] == [occurrences_of(found).tolist() for found in unpack_each([parts, []])]
    each = occurrences_of_each([parts, [], parts[:1], parts])
    first = each_part[0] if each_part else []
    assert [expected, [], first, expected] == [found.tolist() for found in each]


@given(st.sets(st.builds(occurrence, st.integers(0, 20), some_positions), min_size=1), st.sets(st.integers(0, 22)))
def test_occurrences_in_some_documents(occurrences: set[int], wanted: set[int]) -> None:
    postings = unpack([packed(sorted(occurrences))])
    found = occurrences_in(postings, np.array(sorted(wanted), dtype=np.uint64))

    assert [one for one in occurrences_of(postings).tolist() if one >> DOC_SHIFT in wanted] == found.tolist()
