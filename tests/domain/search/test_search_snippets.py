"""Snippets (PS-47)."""

import re
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.search_scan import is_found, marked, snippet
from tests.support.soak import examples

from chatledger.domain.search.query import parse
from chatledger.domain.search.snippets import (
    MAX_LITERAL_LENGTH,
    MAX_SNIPPET_LENGTH,
    MAX_SNIPPET_TOKENS,
    literal_snippet,
)
from chatledger.domain.search.tokens import terms_of, tokens_of


def shown(text: str, query: str) -> str:
    parsed = parse(query)
    assert parsed is not None
    return marked(*snippet(text, parsed))


def words(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last))


@pytest.mark.parametrize(
    ("text", "query", "passage"),
    [
        ("Old Town", "town", "Old <mark>Town</mark>"),
        ("Old Town!", "old town", "<mark>Old Town</mark>!"),
        ("Town, old", "old town", "<mark>Town, old</mark>"),
        ("the old and the town", "old town", "the <mark>old</mark> and the <mark>town</mark>"),
        ("an old, old town", '"old town"', "an old, <mark>old town</mark>"),
        ("a b a b c", '"a b" "b a"', "<mark>a b a b</mark> c"),
        ("Foxes were running", "fox run", "<mark>Foxes</mark> were <mark>running</mark>"),
        ("generation of gentle gnomes", "gen*", "<mark>generation</mark> of <mark>gentle</mark> gnomes"),
        ("an old township", '"old town"*', "an <mark>old township</mark>"),
        ("état ETAT e\u0301tat.", "etat", "<mark>état ETAT e\u0301tat</mark>."),
        ("mail user@example.com now", "user@example.com", "mail <mark>user@example.com</mark> now"),
        ("a b c", "a NOT b", "<mark>a</mark> b c"),
        ("a b c", "(a NOT b) OR c", "<mark>a</mark> b <mark>c</mark>"),
        ("a b c", "a NOT (b NOT c)", "<mark>a</mark> b c"),
        ("<b>bold</b> & more", "bold", "<b><mark>bold</mark></b> & more"),
        ("nothing here", "else", "nothing here"),
        ("👍👍", "else", "👍👍"),
        ("", "else", ""),
    ],
)
def test_short_texts_are_shown_whole(text: str, query: str, passage: str) -> None:
    """Matches side by side share a mark; what stands behind `NOT` has none; nothing is escaped."""
    assert passage == shown(text, query)


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ("東", "私は<mark>東</mark>京の天気が好き"),
        ("東京", "私は<mark>東京</mark>の天気が好き"),
        ("京の天", "私は東<mark>京の天</mark>気が好き"),
        ("天* き", "私は東京の<mark>天</mark>気が好<mark>き</mark>"),
        ("天気*", "私は東京の<mark>天気</mark>が好き"),
    ],
)
def test_scripts_without_blanks(query: str, passage: str) -> None:
    """Only what was asked for is marked, not the pair that it was found by."""
    assert passage == shown("私は東京の天気が好き", query)


@pytest.mark.parametrize(
    ("text", "query", "passage"),
    [
        (f"¡{words(0, 32)}!", "w5", f"¡{words(0, 5)} <mark>w5</mark> {words(6, 32)}!"),
        (words(0, 33), "w5", f"{words(0, 5)} <mark>w5</mark> {words(6, 32)}..."),
        (words(0, 33), "w32", f"...{words(1, 32)} <mark>w32</mark>"),
        (f"({words(0, 40)})", "w39", f"...{words(8, 39)} <mark>w39</mark>)"),
        (words(0, 99), "w50", f"...{words(35, 50)} <mark>w50</mark> {words(51, 67)}..."),
        (words(0, 99), "w50 w60", f"...{words(40, 50)} <mark>w50</mark> {words(51, 60)} <mark>w60</mark> {words(61, 72)}..."),
        (words(0, 99), "w2 OR w50 OR w60", f"...{words(40, 50)} <mark>w50</mark> {words(51, 60)} <mark>w60</mark> {words(61, 72)}..."),
        (words(0, 99), "w2 w80", f"w0 w1 <mark>w2</mark> {words(3, 32)}..."),
        (words(0, 99), "none", f"{words(0, 32)}..."),
        (f"a a a {words(0, 50)} a b {words(50, 99)}", "a b", f"...{words(35, 50)} <mark>a b</mark> {words(50, 65)}..."),
        (f"a {words(0, 50)} a x a {words(50, 99)}", "a", f"...{words(36, 50)} <mark>a</mark> x <mark>a</mark> {words(50, 65)}..."),
        ("x " * 50, "x", "<mark>" + " ".join("x" * 32) + "</mark>..."),
    ],
)  # fmt: skip
def test_the_best_passage(text: str, query: str, passage: str) -> None:
    """That with the most different matches, then with the most, then the first; cut sides are marked by `...`."""
    assert passage == shown(text, query)


def test_a_phrase_longer_than_the_passage_is_marked_as_far_as_it_is_shown() -> None:
    assert f"...<mark>{words(30, 62)}</mark>..." == shown(words(0, 99), f'"{words(30, 70)}"')


@pytest.mark.parametrize(
    ("text", "query", "passage"),
    [
        ("x\u200d " * 40, "none", "x\u200d " * 31 + "x\u200d..."),
        ("\u06001 " * 40 + "fox", "fox", "..." + "\u06001 " * 31 + "<mark>fox</mark>"),
        ("क्\u200dष " * 40, "none", "क्\u200dष " * 15 + "क्\u200dष..."),
        ("fox\u200d. " + words(0, 40), "fox", f"<mark>fox\u200d</mark>. {words(0, 31)}..."),
    ],
    ids=["a joiner behind", "a sign that holds on to the digit behind it", "a joiner between", "a mark"],
)
def test_no_cluster_is_cut(text: str, query: str, passage: str) -> None:
    """Not even one of which only a part belongs to a word."""
    assert passage == shown(text, query)


LETTERS = st.lists(st.sampled_from("abcdefghij"), max_size=90).map(" ".join)


@settings(max_examples=examples(200))
@given(LETTERS, st.lists(st.sampled_from(["a", "b", "c", '"d e"']), min_size=1, max_size=3, unique=True))
def test_no_other_passage_is_better(text: str, sought: list[str]) -> None:
    terms = text.split()
    passages = [
        terms[start : start + MAX_SNIPPET_TOKENS] for start in range(max(1, len(terms) - MAX_SNIPPET_TOKENS + 1))
    ]
    marked = shown(text, " ".join(sought))

    assert _score(re.sub(r"</?mark>|\.\.\.", "", marked).split(), sought) == max(
        _score(one, sought) for one in passages
    )


def _score(terms: list[str], sought: list[str]) -> tuple[int, int]:
    phrases = [one.strip('"').split() for one in sought]
    counts = [sum(terms[index : index + len(phrase)] == phrase for index in range(len(terms))) for phrase in phrases]
    return sum(count > 0 for count in counts), sum(counts)


TEXTS = st.lists(
    st.sampled_from(
        ["run", "Running", "fox", "fox", "état", "e\u0301", "東京", "の", "กำลัง", "क्ष", "👩\u200d👩\u200d👧", "🇩🇪", "x\u200d", "\u0600", "1\ufe0f\u20e3",
         " ", ". ", " ", "\r\n", "\u0301", "\u200d", "!", "<mark>"]
    ),
    max_size=120,
).map("".join)  # fmt: skip
QUERIES = st.sampled_from(["run", "fox NOT state", "e*", "東", "京の", "กำ", "क", '"fox run" OR 1', "x", "mark"])


@settings(max_examples=examples(300))
@given(TEXTS, QUERIES)
def test_snippets_of_any_text(text: str, query: str) -> None:
    """It is a part of the text, of up to 32 tokens, from one border of grapheme clusters to another one, and so are matches."""
    text = text.replace("...", "")
    parsed = parse(query)
    assert parsed is not None
    shown, matches = snippet(text, parsed)
    is_cut_left, is_cut_right = shown.startswith("..."), shown.endswith("...")
    passage = shown.removeprefix("...").removesuffix("...")
    borders = {0, *(cluster.end() for cluster in regex.finditer(r"\X", text))}

    assert passage in text
    starts = [found.start() for found in re.finditer(f"(?={re.escape(passage)})", text)]
    starts = [start for start in starts if start in borders and start + len(passage) in borders]
    assert any((start > 0) == is_cut_left and (start + len(passage) < len(text)) == is_cut_right for start in starts)
    # The last pair of a cut run brings its second character along.
    assert len(terms_of(passage)) <= MAX_SNIPPET_TOKENS + 1
    ends = [end - 3 * is_cut_left for match in matches for end in match]
    assert ends == sorted(ends)
    assert any(all(start + end in borders for end in ends) for start in starts)


@settings(max_examples=examples(100))
@given(TEXTS.filter(lambda text: "<" not in text), QUERIES)
def test_what_is_found_is_marked(text: str, query: str) -> None:
    parsed = parse(query)
    assert parsed is not None
    if is_found(parsed, terms_of(text)):
        assert snippet(text, parsed).matches
    passage, matches = snippet(text, parsed)
    assert all(tokens_of(passage[start:end]) for start, end in matches)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("x" * 1_000_000, "x*"),
        ("═" * 500_000 + " fox " + "═" * 500_000, "fox"),
        (f"fox {'═' * 5_000} fox", "fox"),
        ("q" * 5_000 + " fox", "fox"),
        ("fox " + "q" + "\u0301" * 1_000_000, "fox"),
    ],
    ids=["one word", "signs around", "signs between", "behind", "before"],
)
def test_snippets_are_short_whatever_the_text(text: str, query: str) -> None:
    marked = shown(text, query)

    assert len(marked) < MAX_SNIPPET_LENGTH + 300
    assert "<mark>" in marked
    assert "..." in marked


HUGE = {
    "one word again and again": ("a " * 300_000, '"' + "a " * 900 + 'b"'),
    "many phrases": ("a " * 300_000, " ".join('"' + "a " * (size % 5 + 2) + 'b"' for size in range(200))),
    "many prefixes": ("abcdef " * 100_000, " ".join(f"abcdef{number}*" for number in range(300))),
    "no blanks": ("東京" * 150_000, "東京東"),
}


@pytest.mark.soak
@pytest.mark.parametrize(("text", "query"), HUGE.values(), ids=HUGE.keys())
def test_huge_texts_and_queries_take_no_quadratic_time(text: str, query: str) -> None:
    """The suite's time limit would tell."""
    assert len(shown(text, query)) < MAX_SNIPPET_LENGTH + 100


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        ("", ""),
        ("short <b>", "short <b>"),
        ("x" * 300, "x" * 200),
        ("x" * 199 + "e\u0301tat", "x" * 199),
        ("x" * 198 + "e\u0301tat", "x" * 198 + "e\u0301"),
        ("x" * 198 + "👩\u200d👩\u200d👧", "x" * 198),
        ("x" * 199 + "🇩🇪", "x" * 199),
        ("x" * 199 + "\r\n", "x" * 199),
        ("क्‍ष" * 100, "क्‍ष" * 50),
    ],
)
def test_literal_snippets(text: str, passage: str) -> None:
    """The first 200 characters, and no broken cluster (PS-48)."""
    assert passage == literal_snippet(text)


@given(st.text(st.sampled_from("a é\u0301\u200d👩🇩🇪न्क\r\n\u0600한ᄀ각ำ"), min_size=190, max_size=260))
def test_literal_snippets_end_at_a_border(text: str) -> None:
    borders = [0, *(cluster.end() for cluster in regex.finditer(r"\X", text))]
    cut = literal_snippet(text)

    if all(after - before <= 128 for before, after in pairwise(borders)):
        assert len(cut) == max(border for border in borders if border <= MAX_LITERAL_LENGTH)
        assert text.startswith(cut)
