"""The query language (PS-43 to PS-45)."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.search_scan import depth, fts5, is_found, leaves
from tests.support.soak import examples

from chatledger.domain.search import query as query_module
from chatledger.domain.search.query import (
    MAX_QUERY_DEPTH,
    MAX_QUERY_TERMS,
    All,
    Either,
    Phrase,
    Query,
    Without,
    Word,
    parse,
)
from chatledger.domain.search.tokens import terms_of

INSIDE: Any = query_module
"""For what is only there to be quicker."""

REFERENCE = Path(__file__).parents[3] / "docs/reference/search.md"

A, B, C, D = (Word(letter) for letter in "abcd")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a", A),
        ("a b", All((A, B))),
        ("a AND b", All((A, B))),
        ("a AND b c", All((A, B, C))),
        ("a OR b", Either((A, B))),
        ("a NOT b", Without(A, B)),
        ("a b OR c d", Either((All((A, B)), All((C, D))))),
        ("a OR b AND c", Either((A, All((B, C))))),
        ("a b NOT c", All((A, Without(B, C)))),
        ("a NOT b c", All((Without(A, B), C))),
        ("a NOT b OR c", Either((Without(A, B), C))),
        ("a NOT b NOT c", Without(A, Either((B, C)))),
        ("(a OR b) c", All((Either((A, B)), C))),
        ("a NOT (b c)", Without(A, All((B, C)))),
        ("a NOT (b NOT c)", Without(A, Without(B, C))),
        ("(a NOT b) NOT (c OR d)", Without(A, Either((B, C, D)))),
        ("(a (b (c d)))", All((A, B, C, D))),
        ("a OR (b OR (c OR d))", Either((A, B, C, D))),
        ("((a))", A),
        ("a(b)", All((A, B))),
        ("a\tAND\n\u3000b", All((A, B))),
        ('"a b"', Phrase(("a", "b"))),
        ('"a"', A),
        ('"a b" "c"', All((Phrase(("a", "b")), C))),
        ('"AND" "a OR b"', All((Word("and"), Phrase(("a", "or", "b"))))),
        ('"a ""b"" c"', Phrase(("a", "b", "c"))),
        ('a"b c"d', All((A, Phrase(("b", "c")), D))),
        ("a*", Word("a", is_prefix=True)),
        ('"a b"*', Phrase(("a", "b"), is_prefix=True)),
        ('"a"*', Word("a", is_prefix=True)),
        ("a-b*", Phrase(("a", "b"), is_prefix=True)),
        ("(a* OR b)", Either((Word("a", is_prefix=True), B))),
        ("Running FOXES", All((Word("run"), Word("fox")))),
        ("running*", Word("run", is_prefix=True)),
        ("État*", Word("etat", is_prefix=True)),
    ],
)
def test_the_language(text: str, query: Query) -> None:
    """`NOT` binds tighter than `AND`, which binds like a blank and tighter than `OR` (PS-43)."""
    assert query == parse(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("foo-bar", Phrase(("foo", "bar"))),
        ("it's", Phrase(("it", "s"))),
        ("it\u2019s", Phrase(("it", "s"))),
        ("user@example.com", Phrase(("user", "exampl", "com"))),
        ("snake_case", Phrase(("snake", "case"))),
        ("C++", Word("c")),
        ("C++*", Word("c")),
        ("-a", A),
        ("^a", A),
        ("name:user", Phrase(("name", "user"))),
        ("name : user", All((Word("name"), Word("user")))),
        ("NEAR(a b)", All((Word("near"), A, B))),
        ("NEAR/3", Phrase(("near", "3"))),
        ("a + b", All((A, B))),
        ("a *", A),
        ("a*b", Phrase(("a", "b"))),
        ("*a", A),
        ("a- *", A),
        ('"a*"', A),
        ("and or not", All((Word("and"), Word("or"), Word("not")))),
        ("And", Word("and")),
        ("AND", Word("and")),
        ("AND OR NOT", All((Word("and"), Word("or"), Word("not")))),
        ("a AND", All((A, Word("and")))),
        ("OR a", All((Word("or"), A))),
        ("NOT a", All((Word("not"), A))),
        ("(NOT a)", All((Word("not"), A))),
        ("(a OR) b", All((A, Word("or"), B))),
        ("a AND AND b", All((A, Word("and"), B))),
        ("a NOT NOT b", All((A, Without(Word("not"), B)))),
        ("a AND OR b", Either((All((A, Word("and"))), B))),
        ("AND-a", Phrase(("and", "a"))),
        ("AND*", Word("and", is_prefix=True)),
        ('"', None),
        ('"a b', All((A, B))),
        ('a" b', All((A, B))),
        ('a"b', Phrase(("a", "b"))),
        ('"a" b"', All((A, B))),
        ("(", None),
        ("(a b", All((A, B))),
        ("a) b", All((A, B))),
        ("a(b", Phrase(("a", "b"))),
        (")a(", A),
        (")(", None),
        ("(a OR b", Either((A, B))),
        ("(a OR b)) c", All((Either((A, B)), C))),
        ('("a)"', A),
        ("a\0b", Phrase(("a", "b"))),
        ("a\ud800", A),
    ],
)
def test_everything_else_is_plain_words(text: str, query: Query | None) -> None:
    """Other languages' operators, operators without operands, and whatever has no partner (PS-44)."""
    assert query == parse(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a AND 👍", A),
        ("👍 OR a", A),
        ("a OR (!)", A),
        ('a NOT ""', A),
        ("a NOT ()", A),
        ("a NOT (b NOT b)", Without(A, Without(B, B))),
        ("👍 NOT a", None),
        ("(👍 NOT a) b", B),
        ("a 👍 b", All((A, B))),
        ('""* a', A),
    ],
)
def test_what_has_no_letter_asks_for_nothing(text: str, query: Query | None) -> None:
    """It is an operand, and left out with its operator. Without something to keep, `NOT` asks for nothing either."""
    assert query == parse(text)


@pytest.mark.parametrize(
    "text", ["", " ", "\t\n", "()", '""', "!?", "👍", "\0", "\ud800", "*", '"*"*', "( ( ) )", "\u0301"]
)
def test_a_query_without_letter_or_digit(text: str) -> None:
    """It asks for nothing, and is answered by an empty list (PS-45)."""
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "query", "found", "not_found"),
    [
        ("東", Word("東", is_prefix=True), ["東京", "極東", "東"], ["京都"]),
        ("東京", Word("東京"), ["東京都", "大東京"], ["京東", "東 京"]),
        ("東京都", Phrase(("東京", "京都")), ["東京都", "大東京都庁"], ["東京 京都", "東京"]),
        ("東*", Word("東", is_prefix=True), ["東京", "極東"], ["京都"]),
        ("東京*", Word("東京", is_prefix=True), ["東京", "東京都"], ["東"]),
        ("iPhone手机", Phrase(("iphon", "手机")), ["我的iPhone手机壳"], ["手机 iPhone"]),
        ('"京 tower"', Phrase(("京", "tower")), ["東京 tower"], ["京都 tower"]),
        ('"東京 tower"', Phrase(("東京", "京", "tower")), ["大東京 tower"], ["東京都 tower"]),
        ('"tower 東"', Phrase(("tower", "東"), is_prefix=True), ["tower 東京", "tower 東"], ["tower 京"]),
        ("你好\uff0c世界", Phrase(("你好", "好", "世界")), ["你好。世界"], ["你好世界"]),
    ],
)
def test_scripts_without_blanks(text: str, query: Query, found: list[str], not_found: list[str]) -> None:
    """A run finds the texts that contain it, wherever it stands in theirs; one character is a run as well."""
    parsed = parse(text)

    assert parsed == query
    assert [is_found(query, terms_of(one)) for one in found] == [True] * len(found)
    assert [is_found(query, terms_of(one)) for one in not_found] == [False] * len(not_found)


@pytest.mark.parametrize("length", [1, 64, 183, 184, 185, 200, 201, 300])
def test_prefixes_of_very_long_words(length: int) -> None:
    query = parse("q" * length + "*")

    assert query is not None
    assert is_found(query, terms_of("q" * 300))
    assert not is_found(query, terms_of("p" + "q" * 300))


HAN = st.text("東京都大", min_size=1, max_size=6)


@given(HAN, st.lists(st.sampled_from(["東京都大", "京", "都東大京都", " ", "\uff0c", "x"]), max_size=5).map("".join))
def test_a_run_is_found_where_it_is_contained(run: str, text: str) -> None:
    query = parse(run)

    assert query is not None
    assert is_found(query, terms_of(text)) == (run in text)


HOSTILE = [
    ("(" * 100_000, None),
    (")" * 100_000, None),
    (")(" * 50_000, None),
    ("(" * 50_000 + ")" * 50_000, None),
    ("(" * 50_000 + "a" + ")" * 50_000, A),
    ("a OR (b (" * 10_000, None),
    ("a OR (b (" * 5_000 + "c" + "))" * 5_000, None),
    ("a NOT (b NOT (" * 5_000 + "c" + "))" * 5_000, None),
    ('"' * 100_001, None),
    ('"a""' * 25_000, None),
    ("AND " * 25_000, None),
    ("a NOT " * 20_000, None),
    ("a OR " * 20_000, None),
    ("a*" * 50_000, None),
    ("* " * 50_000, None),
    ("a" * 100_000, None),
    ("東" * 100_000, None),
    ("a" + "\u0301" * 100_000, A),
    ("\ud800" * 100_000, None),
    ("\0" * 100_000, None),
    (" " * 100_000, None),
]


@pytest.mark.soak
@pytest.mark.parametrize(("text", "query"), HOSTILE, ids=[repr(text[:12]) for text, _ in HOSTILE])
def test_hostile_queries(text: str, query: Query | None) -> None:
    """They are read in time that grows with their length, and into something that is safe to walk by recursion."""
    parsed = parse(text)

    assert query is None or query == parsed
    if parsed is not None:
        assert depth(parsed) <= 3 * MAX_QUERY_DEPTH + 4
        assert sum(len(leaf.terms) if isinstance(leaf, Phrase) else 1 for leaf in leaves(parsed)) <= MAX_QUERY_TERMS


def test_only_the_first_thousand_terms_count() -> None:
    """Operators without operands are words, and count."""
    words = " ".join(f"(w{number} OR NOT)" for number in range(600))
    parsed = parse(words)

    assert parsed is not None
    assert [leaf for leaf in leaves(parsed) if leaf == Word("w333")]
    assert not [leaf for leaf in leaves(parsed) if leaf == Word("w334")]


def test_a_cut_group_keeps_its_meaning() -> None:
    """`a (b OR ... OR` does not become `a b OR ...` because its end is cut off."""
    parsed = parse("a (" + " OR ".join(f"w{number}" for number in range(2000)) + ")")

    assert isinstance(parsed, All)
    first, rest = parsed.parts
    assert first == A
    assert isinstance(rest, Either)
    assert len(rest.parts) == MAX_QUERY_TERMS - 1


@pytest.mark.parametrize("levels", [MAX_QUERY_DEPTH, MAX_QUERY_DEPTH + 1])
def test_deep_parentheses_are_blanks(levels: int) -> None:
    text = "a NOT (" * (levels - 1) + "a (b OR c)" + ")" * (levels - 1)
    innermost = All((A, Either((B, C)))) if levels == MAX_QUERY_DEPTH else Either((All((A, B)), C))
    parsed = parse(text)
    for _ in range(levels - 1):
        assert isinstance(parsed, Without)
        parsed = parsed.dropped

    assert parsed == innermost


PIECES = st.sampled_from(
    ["AND", "OR", "NOT", "(", ")", '"', '""', "*", "a", "b*", "c-d", "it's", "東京", "👍", "\0", "\ud800", "^", "+", ":", " ", "  ", "NEAR("]
)  # fmt: skip


@settings(max_examples=examples(500))
@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join), st.lists(PIECES, max_size=20).map(" ".join)))
def test_any_text_is_a_query(text: str) -> None:
    """Nothing is raised, and what is returned is in normal form."""
    parsed = parse(text)

    if parsed is None:
        assert not any(character.isalnum() for character in re.sub("AND|OR|NOT.*", "", text, flags=re.DOTALL))
    else:
        _check_normal_form(parsed)


def _check_normal_form(query: Query) -> None:
    match query:
        case Word(term):
            assert term
        case Phrase(terms):
            assert len(terms) > 1
            assert all(terms)
        case All(parts) | Either(parts):
            assert len(parts) > 1
            assert not any(type(part) is type(query) for part in parts)
            for part in parts:
                _check_normal_form(part)
        case Without(kept, dropped):
            assert not isinstance(kept, Without)
            _check_normal_form(kept)
            _check_normal_form(dropped)


WORDS = st.sampled_from(["run", "Running", "fox", "FOXES", "tree", "and", "NEAR"])


def _both(operator: str, parts: list[str]) -> str:
    return operator.join(f"({part})" for part in parts)


QUERIES = st.recursive(
    st.one_of(
        WORDS.map(lambda word: f'"{word}"'),
        WORDS.filter(lambda word: word != "NEAR"),
        st.sampled_from(["ru*", "running*", "f*", '"fox tr"*', "tre*"]),
        st.lists(WORDS, min_size=1, max_size=3).map(lambda words: '"' + " ".join(words) + '"'),
        st.lists(WORDS.filter(str.islower), min_size=2, max_size=3).map(" ".join),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: _both(" AND ", parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: _both(" OR ", parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: _both(" NOT ", parts)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: f"({parts[0]}) OR ({parts[1]}) NOT ({parts[-1]}) AND ({parts[-2]})"),
    ),
    max_leaves=6,
)  # fmt: skip

TEXTS = [
    " ".join(words)
    for size in range(1, 4)
    for words in combinations(["tree", "foxes", "run", "and", "runs near", "fox"], size)
]


@pytest.mark.soak
@settings(max_examples=examples(150))
@given(st.lists(QUERIES, min_size=1, max_size=10))
def test_queries_mean_what_they_mean_in_fts5(queries: list[str]) -> None:
    """All that both accept, but for the differences below."""
    with fts5(TEXTS) as table:
        for text in queries:
            assert _found(text) == table.search(text), text


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        pytest.param("tree NOT fox run", "tree NOT (fox AND run)", id="FTS5 binds a blank tighter than NOT"),
        pytest.param("fo *", "fo*", id="FTS5 lets the star stand apart"),
        pytest.param("fox + run", '"fox run"', id="FTS5 joins phrases by a plus sign"),
        pytest.param('fox AND ""', "xyzzy", id="FTS5 finds nothing where an operand is empty"),
    ],
)
def test_known_differences_from_fts5(text: str, theirs: str) -> None:
    """FTS5 reads the first query as we read the second one."""
    with fts5(TEXTS) as table:
        assert table.search(text) == _found(theirs)
    assert _found(text) != _found(theirs)


def _found(text: str) -> set[int]:
    query = parse(text)
    assert query is not None
    return {number for number, one in enumerate(TEXTS) if is_found(query, terms_of(one))}


@given(
    st.lists(st.sampled_from(["a", "Foxes", "AND", "OR", "NOT", "and", "7", "", "x" * 300]), max_size=6).map(" ".join),
    st.sampled_from(["{}", '"{}"', '"{}', '{}"']),
)
def test_plain_words_are_read_by_the_same_rules(words: str, quoted: str) -> None:
    """That they are looked for first is only quicker."""
    by_the_rules = INSIDE._parsed
    text = quoted.format(words)

    assert by_the_rules(text) == parse(text)


@pytest.mark.parametrize("count", [MAX_QUERY_TERMS, MAX_QUERY_TERMS + 1])
@pytest.mark.parametrize("quoted", ["{}", '"{}"'])
def test_many_plain_words_are_read_by_the_same_rules(count: int, quoted: str) -> None:
    text = quoted.format(" ".join(f"w{number}" for number in range(count)))

    assert INSIDE._parsed(text) == parse(text)


def test_the_examples_of_the_reference_are_true() -> None:
    """Each row of its second table: a query, texts that it finds, and texts that it does not find."""
    _, _, rest = REFERENCE.read_text().partition("\n## Examples\n")
    rows = re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", rest.partition("\n## ")[0], re.MULTILINE)

    assert len(rows) == 30
    for text, *columns in rows:
        query = parse(text)
        assert query is not None
        for column, expected in zip(columns, [True, False], strict=True):
            examples = re.findall(r'"(.+?)"', column)
            assert examples
            assert [(text, one, is_found(query, terms_of(one))) for one in examples] == [
                (text, one, expected) for one in examples
            ]
