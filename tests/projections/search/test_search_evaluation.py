"""The evaluation of queries: what reading every message finds, however terms are compared, with the snippets of the texts alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.search_actions import WORDS, Action, Append, World, actions, queries
from tests.support.search_scan import snippet
from tests.support.search_world import small_blocks
from tests.support.soak import examples

import chatledger
from chatledger.domain.search.fields import field_text
from chatledger.domain.search.query import parse
from chatledger.domain.values import SearchHits
from chatledger.projections.search import evaluation, reader


def check_snippets(hits: SearchHits, query: str) -> None:
    """Each snippet is the one that the text of its field has by itself."""
    parsed = parse(query)
    assert parsed is not None
    for hit in hits:
        assert snippet(field_text(hit.message, hit.within), parsed) == (hit.snippet, hit.matches)


@settings(max_examples=examples(40))
@given(
    actions,
    st.lists(queries, min_size=1, max_size=4),
    st.integers(0, 9),
    st.sampled_from([0, 4]),
    st.sampled_from([1, 64]),
)
def test_queries_find_what_reading_finds(
    actions: list[Action], queries: list[str], seed: int, many_times: int, group: int
) -> None:
    """In every scope, with and without filters; wherever terms of phrases are looked at, and however many documents are compared."""
    with small_blocks(), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr(evaluation, "_GROUP", group)
        patch.setattr(reader, "_MANY_TIMES", many_times)
        world = World(ledger, seed)
        for action in actions:
            world.carry_out(action)
        for query in queries:
            world.check(query)
            world.check_filters(query)
            for hits, _ in world.answers(query):
                check_snippets(hits, query)


@settings(max_examples=examples(50))
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=90).map(" ".join), min_size=1, max_size=8),
    st.lists(queries, min_size=1, max_size=5),
)
def test_snippets_of_long_texts_are_those_of_the_texts_alone(texts: list[str], queries: list[str]) -> None:
    """The index knows where a query's words and phrases are, so the text is not taken apart again."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        World(ledger).carry_out(Append("c0", texts))
        for query in queries:
            check_snippets(ledger.search(query, limit=None), query)
