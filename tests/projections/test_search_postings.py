"""The packed form of postings: whatever is packed comes out again, in as few bytes as its numbers need."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.projections.search.postings import (
    BLOCK_OCCURRENCES,
    DOC_SHIFT,
    POSITION_MASK,
    Postings,
    blocks_of,
    occurrences_of,
    pack,
    unpack,
)

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


@given(occurrence_lists())
def test_a_chunk_comes_out_as_it_went_in(occurrences: list[int]) -> None:
    check([pack(occurrences)], occurrences)


@given(occurrence_lists(), st.data())
def test_chunks_one_after_the_other_are_one_list(occurrences: list[int], data: st.DataObject) -> None:
    """Cut between documents at any places, into chunks of one row or of several."""
    borders = [0]
    borders += [i for i in range(1, len(occurrences)) if occurrences[i] >> DOC_SHIFT != occurrences[i - 1] >> DOC_SHIFT]
    cuts = sorted({0, *data.draw(st.sets(st.sampled_from(borders)))})
    chunks = [pack(occurrences[start:end]) for start, end in zip(cuts, [*cuts[1:], len(occurrences)], strict=True)]
    split = data.draw(st.integers(0, len(chunks)))
    check([b"".join(chunks[:split]), b"".join(chunks[split:])], occurrences)


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("position", BORDERS)
@pytest.mark.parametrize("delta", BORDERS[1:])
def test_every_width(position: int, delta: int, *, is_long: bool) -> None:
    """Long chunks are packed by NumPy, and in the same form as short ones."""
    documents = range(0, MAX + 1, delta) if delta > 0x10000 else range(0, delta * 100, delta)
    occurrences = [occurrence(document, position) for document in documents[: 100 if is_long else 20]]
    packed = pack(occurrences)
    widths = [1 if largest < 0x100 else 2 if largest < 0x10000 else 4 for largest in (delta, position)]
    check([packed], occurrences)
    if len(occurrences) > 2:
        assert 11 + (len(occurrences) - 1) * widths[0] + len(occurrences) * widths[1] == len(packed)


@pytest.mark.parametrize("count", [2, 64, 65, 0xFF, 0x100, 0xFFFF, 0x10000])
def test_a_term_that_fills_a_document(count: int) -> None:
    """Counts of each width; the document of the widest has 65,536 times the same word."""
    occurrences = [occurrence(7, position) for position in range(count)] + [occurrence(9, 0)]
    check([pack(occurrences)], occurrences)


@pytest.mark.parametrize(("position", "size"), [(0, 6), (0xFF, 6), (0x100, 7), (0xFFFF, 7), (0x10000, 9), (MAX, 9)])
def test_a_single_occurrence_is_short(position: int, size: int) -> None:
    """As most are: in documents that add to a term one by one."""
    occurrences = [occurrence(MAX, position)]
    assert size == len(pack(occurrences))
    check([pack(occurrences)], occurrences)


def test_short_and_long_chunks_have_one_form() -> None:
    """64 occurrences are packed by Python and 65 by NumPy: the 65th adds a delta and a position, no more."""
    occurrences = [occurrence(document, document % 7) for document in range(0, 65 * 3, 3)]
    assert len(pack(occurrences[:64])) + 2 == len(pack(occurrences))


def test_65_535_documents_fit_into_a_chunk() -> None:
    """The most that its count has room for."""
    occurrences = [occurrence(document, document % 11) for document in range(0xFFFF)]
    check([pack(occurrences)], occurrences)


def test_nothing_is_unpacked_from_nothing() -> None:
    """A term without rows, or whose end is empty because all its occurrences are in full blocks."""
    check([], [])
    check([b""], [])
    check([pack([5]), b""], [5])


@given(occurrence_lists(max_size=60, most=12), st.integers(1, 10))
def test_blocks_are_of_whole_documents(occurrences: list[int], size: int) -> None:
    """Nothing is lost, blocks are just full, what is left is not, and no document is in two of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chatledger.projections.search.postings.BLOCK_OCCURRENCES", size)
        blocks, rest = blocks_of(occurrences)

    parts = [*blocks, rest]
    assert occurrences == [one for part in parts for one in part]
    assert len(rest) <= size
    assert all(len(block) >= size for block in blocks)
    documents = [{one >> DOC_SHIFT for one in part} for part in parts]
    assert sum(map(len, documents)) == len(set[int]().union(*documents))
    for block, found in zip(blocks, documents[:-1], strict=True):
        last = max(found)
        assert sum(one >> DOC_SHIFT < last for one in block) < size, "a block ends with the document that fills it"
        check([pack(block)], list(block))


def test_a_document_larger_than_a_block_is_one_block() -> None:
    """A row of LMDB takes it, however long it is."""
    huge = [occurrence(3, position) for position in range(BLOCK_OCCURRENCES * 4)]
    few = [occurrence(4, 0)]
    blocks, rest = blocks_of([*huge, *few])
    assert [huge] == blocks
    assert few == rest
