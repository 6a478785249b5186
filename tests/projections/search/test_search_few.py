"""The ways to answer with few documents are only quicker: the answers are those of the ways for many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.search_actions import WORDS, Action, Append, World, actions, queries
from tests.support.search_world import small_blocks
from tests.support.soak import examples

import chatledger
from chatledger.domain.search.query import parse
from chatledger.domain.search.snippets import snippet
from chatledger.projections.search import evaluation, few, reader
from chatledger.projections.search.postings import (
    DOC_SHIFT,
    Part,
    occurrences_in,
    occurrences_of,
    occurrences_of_each,
    pack,
    unpack_each,
    unpack_few,
    unpack_parts,
)


@settings(max_examples=examples(40))
@given(
    actions,
    st.lists(queries, min_size=1, max_size=5),
    st.integers(0, 9),
    st.sampled_from([-1, 64]),
    st.sampled_from([-1, 128]),
    st.sampled_from([(8, 2048), (0, 0)]),
)
def test_few_and_many_are_answered_alike(
    actions: list[Action],
    queries: list[str],
    seed: int,
    max_few: int,
    max_occurrences: int,
    alike: tuple[int, int],
) -> None:
    """To the last bit of a rank; also where many were looked at to find few. Snippets are those of the texts alone."""
    with small_blocks(), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        world = World(ledger, seed)
        for action in actions:
            world.carry_out(action)
        expected = [world.answers(query) for query in queries]

        patch.setattr(few, "_MAX_BYTES", -1)
        patch.setattr(few, "_MAX_OCCURRENCES", max_occurrences)
        patch.setattr(reader, "_MANY_TIMES", alike[0])
        patch.setattr(reader, "_JOINED_BYTES", alike[1])
        patch.setattr(evaluation, "MAX_FEW", max_few)
        assert expected == [world.answers(query) for query in queries]
        for query, answers in zip(queries, expected, strict=True):
            parsed = parse(query)
            assert parsed is not None
            for hit in [hit for hits, _ in answers for hit in hits]:
                assert snippet(hit.message.text, parsed) == hit.snippet


@settings(max_examples=examples(40))
@given(actions, st.lists(queries, min_size=1, max_size=3), st.integers(0, 9))
def test_filters_of_many(actions: list[Action], queries: list[str], seed: int) -> None:
    with small_blocks(), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr(few, "_MAX_BYTES", -1)
        patch.setattr(few, "_MAX_OCCURRENCES", -1)
        patch.setattr(evaluation, "MAX_FEW", -1)
        world = World(ledger, seed)
        for action in actions:
            world.carry_out(action)
        for query in queries:
            world.check_filters(query)


@settings(max_examples=examples(50))
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=90).map(" ".join), min_size=1, max_size=8),
    st.lists(queries, min_size=1, max_size=5),
    st.sampled_from([(-1, -1, -1), (-1, 128, -1), (256, 128, 64)]),
)
def test_snippets_of_long_texts_are_those_of_the_texts_alone(
    texts: list[str], queries: list[str], limits: tuple[int, int, int]
) -> None:
    """The index knows where a query's words and phrases are, so the text is not taken apart again."""
    with small_blocks(), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr(few, "_MAX_BYTES", limits[0])
        patch.setattr(few, "_MAX_OCCURRENCES", limits[1])
        patch.setattr(evaluation, "MAX_FEW", limits[2])
        world = World(ledger)
        world.carry_out(Append("c0", texts))
        for query in queries:
            parsed = parse(query)
            assert parsed is not None
            for hit in ledger.search(query, limit=None):
                assert snippet(hit.message.text, parsed) == hit.snippet


documents = st.integers(0, 3) | st.integers(0, 70_000) | st.integers(0, 2**31)
positions = st.integers(0, 3) | st.integers(0, 300) | st.integers(0, 2**32 - 1)
chunks = st.lists(st.sets(st.tuples(documents, positions), min_size=1, max_size=12), max_size=5)


def packed(occurrences: list[tuple[int, int]]) -> bytes:
    columns = np.array(occurrences, dtype=np.uint32).T
    (row,) = pack(columns[0], columns[1], np.zeros(1, np.int64))
    return row


@pytest.mark.soak
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), chunks, st.sets(st.tuples(documents, positions), max_size=5))))
def test_few_postings_are_unpacked_alike(
    chats: list[tuple[int, list[set[tuple[int, int]]], set[tuple[int, int]]]],
) -> None:
    """Rows of several chats, of chunks of all widths, and what is not in rows yet."""
    parts = [
        Part(
            base,
            [b"".join(packed(sorted(chunk)) for chunk in chunks[:2]), *(packed(sorted(chunk)) for chunk in chunks[2:])],
            [document << DOC_SHIFT | position for document, position in sorted(late)],
        )
        for base, chunks, late in chats
    ]
    expected = [
        base + document << DOC_SHIFT | position
        for base, chunks, late in chats
        for chunk in [*chunks, late]
        for document, position in sorted(chunk)
    ]

    assert expected == unpack_few(parts)
    assert expected == occurrences_of(unpack_parts(parts)).tolist()
    assert [expected, []] == [occurrences_of(found).tolist() for found in unpack_each([parts, []])]
    each = occurrences_of_each([parts, [], parts[:1], parts])
    assert [expected, [], unpack_few(parts[:1]), expected] == [found.tolist() for found in each]


@given(st.sets(st.tuples(st.integers(0, 20), positions), min_size=1), st.sets(st.integers(0, 22)))
def test_occurrences_in_some_documents(occurrences: set[tuple[int, int]], wanted: set[int]) -> None:
    postings = unpack_parts([Part(0, [packed(sorted(occurrences))])])
    found = occurrences_in(postings, np.array(sorted(wanted), dtype=np.uint64))

    assert [one for one in occurrences_of(postings).tolist() if one >> DOC_SHIFT in wanted] == found.tolist()
