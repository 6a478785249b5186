"""The quick way to the snippet of a short text in ASCII leads to the same snippet as the way for all texts."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.search_scan import snippet
from tests.support.soak import examples

from chatledger.domain.search.query import parse

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
def test_the_quick_way_leads_to_the_same_snippet(text: str, asked: str) -> None:
    """With one match and many, side by side and cut off."""
    query = parse(asked)
    assert query is not None
    careful = snippet(text + " —", query)

    assert snippet(text + " -", query) == (careful.text.replace("—", "-"), careful.matches)
