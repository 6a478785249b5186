"""Snippets of texts about which the index knows where words and phrases are: the same as without."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.search.query import Word, is_at, parse
from chatledger.domain.search.snippets import KnownWords, Snippets, sought
from chatledger.domain.search.tokens import terms_of

words = st.sampled_from(["alpha", "Beta", "run", "running", "foo", "bar", "x1"])
gaps = st.sampled_from([" ", ", ", "\r\n", "-", " " * 60, " \u2013 "])


def joined(before: str, pairs: list[tuple[str, str]], times: int) -> str:
    return (before + "".join(map("".join, pairs))) * times


texts = st.builds(
    joined,
    st.sampled_from(["", "\n", "  ("]),
    st.lists(st.tuples(words, gaps), min_size=1, max_size=50),
    st.integers(1, 3),
)
QUERIES = (
    *("alpha", "alpha beta", "run*", '"foo bar" run', '"alpha foo bar" OR b*', '"foo bar foo" bar', "NOT alpha run"),
    '"' + "foo " * 34 + '" OR alpha',
)


@settings(max_examples=examples(400), deadline=None)
@given(texts, st.sampled_from(QUERIES))
def test_the_snippet_is_that_of_the_text_alone(text: str, asked: str) -> None:
    """For short and long texts, one hit and many, with marks side by side and cut off."""
    query, terms = parse(asked), terms_of(text)
    assert query is not None
    starts = [
        (at, leaf)
        for at, term in enumerate(terms)
        for leaf in sought(query)
        if (
            (term.startswith(leaf.term) if leaf.is_prefix else term == leaf.term)
            if isinstance(leaf, Word)
            else is_at(terms, at, leaf)
        )
    ]
    snippets = Snippets(query)
    assert snippets.of(text, KnownWords(len(terms), starts)) == snippets.of(text)
