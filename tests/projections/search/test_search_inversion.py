"""Documents added batch by batch, against writing down where each term is."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.projections.search import inversion
from chatledger.projections.search.inversion import add_postings, block_starts, invert, invert_terms
from chatledger.projections.search.postings import DOC_SHIFT, occurrences_of, unpack
from chatledger.projections.search.rows import SearchRows

TERMS = ("a", "ab", "b", "é", "中文", "z" * 200)

documents = st.lists(st.sampled_from(TERMS), max_size=12)
batches = st.lists(st.lists(documents, max_size=9), max_size=6)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    folder: Path = tmp_path_factory.mktemp("rows")
    with lmdb.open(str(folder), max_dbs=1, map_size=1 << 24, sync=False) as opened:
        opened.open_db(b"search")
        yield opened


@contextmanager
def empty_rows(env: Any) -> Generator[SearchRows]:
    """Rows that are forgotten afterwards."""
    with env.begin(write=True) as txn:
        yield SearchRows(txn, env.open_db(b"search", txn=txn), 7)
        txn.abort()


def found(rows: SearchRows, term: str) -> list[int]:
    occurrences: list[int] = occurrences_of(unpack(rows.postings(term.encode()))).tolist()
    return occurrences


@given(batches, st.integers(1, 8), st.integers(1, 60))
def test_postings_are_where_terms_are(env: Any, batches: list[list[list[str]]], block: int, end_bytes: int) -> None:
    """However they were cut into batches, and however soon blocks and ends are full."""
    expected: defaultdict[str, list[int]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch, empty_rows(env) as rows:
        patch.setattr(inversion, "BLOCK_OCCURRENCES", block)
        patch.setattr(inversion, "_END_BYTES", end_bytes)
        first = 0
        for batch in batches:
            for document, terms in enumerate(batch, first):
                for position, term in enumerate(terms):
                    expected[term].append(document << DOC_SHIFT | position)
            add_postings(rows, invert_terms(batch, range(first, first + len(batch))), is_first=not first)
            first += len(batch)

        assert {term: expected[term] for term in TERMS} == {term: found(rows, term) for term in TERMS}


@pytest.mark.parametrize("count", [3, 0xFFFF, 0x10001, 0x2FFFF])
def test_terms_are_sorted_whatever_their_number(count: int) -> None:
    """Numbers of more than 16 bits are sorted in two steps."""
    codes = np.concatenate([np.arange(count)[::-1], np.arange(count)]).astype(np.int32)
    terms = [str(number) for number in range(count)]
    inverted = invert(codes, np.array([count, count]), terms, np.array([5, 6], np.uint32))
    assert terms == inverted.terms
    assert list(range(0, 2 * count, 2)) == inverted.starts.tolist()
    assert [5, 6] * count == inverted.documents.tolist()
    assert np.array_equal(np.arange(count)[::-1], inverted.positions[::2])
    assert np.array_equal(np.arange(count), inverted.positions[1::2])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60).map(sorted), st.integers(1, 10))
def test_blocks_are_of_whole_documents(documents: list[int], size: int) -> None:
    """Nothing is lost, blocks are just full, and no document is in two of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inversion, "BLOCK_OCCURRENCES", size)
        starts = block_starts(np.array(documents, dtype=np.uint32))

    assert 0 == starts[0]
    parts = [documents[start:end] for start, end in zip(starts, [*starts[1:], len(documents)], strict=True)]
    assert documents == [one for part in parts for one in part]
    assert all(parts)
    assert sum(len(set(part)) for part in parts) == len(set(documents))
    *blocks, end = parts
    for block in blocks:
        assert len(block) >= size
        assert sum(one < block[-1] for one in block) < size, "a block ends with the document that fills it"
    assert sum(one < end[-1] for one in end) < max(size, 1) or len(end) <= size


def test_a_document_larger_than_a_block_is_one_block() -> None:
    """A row of LMDB takes it, however long it is; it is the end until another document follows."""
    huge = np.full(inversion.BLOCK_OCCURRENCES * 4, 3, np.uint32)
    assert [0] == block_starts(huge)
    assert [0, len(huge)] == block_starts(np.append(huge, np.uint32(4)))
