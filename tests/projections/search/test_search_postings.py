"""Arrays of documents: what is looked up one by one, or in a table, is the same as in sets; and blocks that are full."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.projections.search.blocks import cut
from chatledger.projections.search.postings import Postings, is_in, places_in, values_at

sizes = st.sampled_from([0, 1, 2, 255, 256, 257, 1_000])
spreads = st.sampled_from([1_000, 20_000, 2**31])


@settings(max_examples=examples(200), deadline=None)
@given(sizes, sizes, spreads, st.integers(0, 2**31))
def test_lookups_are_those_of_sets(count: int, many: int, end: int, seed: int) -> None:
    """For few and many documents, close together and far apart."""
    random = np.random.default_rng(seed)
    values, among = (np.unique(random.integers(0, end, size).astype(np.uint32)) for size in (count, many))
    numbers = {document: place for place, document in enumerate(among.tolist())}
    places = [numbers[document] for document in values.tolist() if document in numbers]
    assert is_in(values, among).tolist() == [document in numbers for document in values.tolist()]
    assert places_in(among, values).tolist() == places
    mixed = random.permutation(np.concatenate((values, values)))
    assert is_in(mixed, among).tolist() == [document in numbers for document in mixed.tolist()]
    if len(among):
        counts = np.arange(1, len(among) + 1, dtype=np.uint32)
        assert values_at(values, among, counts).tolist() == [
            numbers.get(document, -1) + 1 for document in values.tolist()
        ]


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 9_000), st.integers(1, 40))
def test_full_blocks_are_the_first_of_all(count: int, term_count: int) -> None:
    """What is left out at the end is less than a block has room for; a block at least is cut."""
    term_count = min(term_count, count)
    terms = sorted(b"%d" % number for number in range(term_count))
    sizes = np.full(term_count, count // term_count)
    sizes[-1] += count - int(sizes.sum())
    documents = np.concatenate([np.arange(size, dtype=np.uint32) * 3 for size in sizes.tolist()])
    ones = np.ones(count, np.uint32)
    postings = Postings(terms, sizes, documents, ones, ones)
    blocks, full = list(cut(postings)), list(cut(postings, are_full=True))
    assert full == blocks[: len(full)]
    assert len(full) >= max(len(blocks) - 2, 1)
