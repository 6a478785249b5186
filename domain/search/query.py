"""
The query language: `parse` reads any text and never raises; `is_found` matches a text without an index.

Words are joined by a blank or `AND` (all of them), `OR` (one of them) and `NOT` (the left one without the right one);
`NOT` binds tighter than `AND`, and `AND` tighter than `OR`. There are `"phrases"`, `prefix*` and parentheses. Everything
else is plain words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from .tokens import PART, is_unspaced, prefix_term, terms_of, tokens_of

MAX_QUERY_TERMS: Final = 1000
"""The maximum number of terms in a query; the rest is left out."""

MAX_QUERY_DEPTH: Final = 32
"""Parentheses inside of so many others are read as blanks, so that a query may be walked by recursion."""


class Word(msgspec.Struct, frozen=True, tag=True):
    """Messages with this term, or with a term that begins with it."""

    term: str
    is_prefix: bool = False


class Phrase(msgspec.Struct, frozen=True, tag=True):
    """Messages with these terms, two or more, side by side. `is_prefix` concerns the last one."""

    terms: tuple[str, ...]
    is_prefix: bool = False


class All(msgspec.Struct, frozen=True, tag=True):
    """Messages that every one of the parts finds. There are two or more, and none is an `All`."""

    parts: "tuple[Query, ...]"


class Either(msgspec.Struct, frozen=True, tag=True):
    """Messages that at least one of the parts finds. There are two or more, and none is an `Either`."""

    parts: "tuple[Query, ...]"


class Without(msgspec.Struct, frozen=True, tag=True):
    """Messages that `kept` finds and `dropped` does not. `kept` is no `Without`."""

    kept: "Query"
    dropped: "Query"


Query = Word | Phrase | All | Either | Without


def parse(text: str) -> Query | None:
    """
    Parse a query; None if it asks for nothing: there is no letter or digit in it, or only behind a `NOT`.

    At most `MAX_QUERY_TERMS` terms are read, and the answer is at most `3 * MAX_QUERY_DEPTH + 4` levels deep.
    """
    plain = _PLAIN_WORDS.fullmatch(text)
    if plain is None or text.count(" ") >= MAX_QUERY_TERMS:
        return _parsed(text)
    # Words in ASCII, maybe quoted: the same as by the rules, in a fifth of the time.
    if plain["quote"] is not None:
        return _side_by_side(terms_of(text.lower()), is_prefix=False)
    words = text.split(" ")
    if len(words) > 1 and not _OPERATORS.keys().isdisjoint(words):
        return _parsed(text)
    return _joined(All, map(Word, terms_of(text.lower())))


def _parsed(text: str) -> Query | None:
    items = list(_items(text))
    groups = [_Alternatives()]
    budget = MAX_QUERY_TERMS
    for item, following in zip_longest(items, items[1:]):
        group = groups[-1]
        if item.kind == "(":
            groups.append(_Alternatives())
        elif item.kind == ")":
            groups.pop()
            groups[-1].add(group.query())
        elif item.kind != "operand" and group.ends_in_operand and following and following.kind in {"operand", "("}:
            group.join(item.kind)
        elif budget:
            query, term_count = _operand(item, budget)
            budget -= term_count
            group.add(query)
        else:
            break
    while len(groups) > 1:
        inner = groups.pop()
        groups[-1].add(inner.query())
    return groups[-1].query()


_Kind = Literal["operand", "(", ")", "AND", "OR", "NOT"]
_PLAIN_WORDS: Final = re.compile(r"""(?P<quote>")?+[A-Za-z0-9]++(?: [A-Za-z0-9]++)*+(?(quote)")""")
_OPERATORS: Final[dict[str, _Kind]] = {"AND": "AND", "OR": "OR", "NOT": "NOT"}


class _QueryPart(NamedTuple):
    """
    A part of the query text. `is_starred` says of a quoted one that a star follows it.

    Operators are candidates: those without operands are words.
    """

    kind: _Kind
    text: str
    is_quoted: bool = False
    is_starred: bool = False


_LEXEME: Final = re.compile(r'(?P<quoted>(?:"[^"]*")+)(?P<star>\*?)|(?P<parenthesis>[()])|(?P<blank>\s+)|[^\s"()]+|"')


def _items(text: str) -> Iterator[_QueryPart]:
    lexemes = list(_LEXEME.finditer(text))
    roles = _parentheses(lexemes)
    plain_start: int | None = None
    for index, lexeme in enumerate(lexemes):
        role = roles.get(index) if lexeme["parenthesis"] else lexeme.lastgroup
        if role is None:
            plain_start = lexeme.start() if plain_start is None else plain_start
            continue
        if plain_start is not None:
            yield _plain(text[plain_start : lexeme.start()])
            plain_start = None
        if lexeme["quoted"]:
            yield _QueryPart("operand", lexeme["quoted"], is_quoted=True, is_starred=bool(lexeme["star"]))
        elif lexeme["parenthesis"] and role != "blank":
            yield _QueryPart("(" if role == "(" else ")", role)
    if plain_start is not None:
        yield _plain(text[plain_start:])


def _plain(text: str) -> _QueryPart:
    """A word between blanks, phrases and parentheses that have a partner."""
    return _QueryPart(_OPERATORS.get(text, "operand"), text)


def _parentheses(lexemes: list[re.Match[str]]) -> dict[int, Literal["(", ")", "blank"]]:
    """Return the roles of the parentheses that have a partner, by their index."""
    roles: dict[int, Literal["(", ")", "blank"]] = {}
    opened: list[int] = []
    for index, lexeme in enumerate(lexemes):
        if lexeme["parenthesis"] == "(":
            opened.append(index)
        elif lexeme["parenthesis"] == ")" and opened:
            roles[opened.pop()], roles[index] = "(", ")"
    depth = 0
    for index in sorted(roles):
        is_opening = roles[index] == "("
        depth += is_opening
        if depth > MAX_QUERY_DEPTH:
            roles[index] = "blank"
        depth -= not is_opening
    return roles


def _operand(item: _QueryPart, budget: int) -> tuple[Query | None, int]:
    """Return the query for a word or a quoted phrase, None without a letter or digit, and its number of terms."""
    text = item.text.lower()  # whoever asks for an identifier asks for it as a whole, not for its parts
    tokens = tokens_of(text)
    if not tokens:
        return None, 0
    if len(tokens) > budget:
        return _side_by_side([token.term for token in tokens[:budget]], is_prefix=False), budget
    *_, last = tokens
    terms = [token.term for token in tokens]
    is_prefix = item.is_starred if item.is_quoted else text[last.end : last.end + 1] == "*"
    if len(tokens) > 1 and tokens[-2].end > last.start:
        terms.pop()  # the pair before it has the character already
    elif is_prefix or is_unspaced(text[last.start]):
        is_prefix = True
        terms[-1] = prefix_term(text[last.start : last.end])
    return _side_by_side(terms, is_prefix=is_prefix), len(terms)


def _side_by_side(terms: list[str], *, is_prefix: bool) -> Query:
    return Word(terms[0], is_prefix) if len(terms) == 1 else Phrase(tuple(terms), is_prefix)


class _Alternatives:
    """The content of two parentheses: alternatives, each a list of conditions that must hold."""

    def __init__(self) -> None:
        self.ends_in_operand = False
        self._is_negated = False
        self._alternatives: list[list[tuple[Query | None, list[Query | None]]]] = [[]]

    def add(self, operand: Query | None) -> None:
        if self._is_negated:
            _, dropped = self._alternatives[-1][-1]
            dropped.append(operand)
        else:
            self._alternatives[-1].append((operand, []))
        self._is_negated = False
        self.ends_in_operand = True

    def join(self, operator: _Kind) -> None:
        self._is_negated = operator == "NOT"
        if operator == "OR":
            self._alternatives.append([])
        self.ends_in_operand = False

    def query(self) -> Query | None:
        return _joined(Either, (_joined(All, (_without(*part) for part in parts)) for parts in self._alternatives))


def _without(wanted: Query | None, dropped: list[Query | None]) -> Query | None:
    if isinstance(wanted, Without):
        dropped = [wanted.dropped, *dropped]
        wanted = wanted.kept
    unwanted = _joined(Either, dropped)
    return wanted if wanted is None or unwanted is None else Without(wanted, unwanted)


def _joined(kind: type[All | Either], parts: Iterable[Query | None]) -> Query | None:
    flat: list[Query] = []
    for part in parts:
        if isinstance(part, kind):
            flat.extend(part.parts)
        elif part is not None:
            flat.append(part)
    return kind(tuple(flat)) if len(flat) > 1 else flat[0] if flat else None


def is_found(query: Query, terms: Sequence[str]) -> bool:
    """Whether a text with these terms, in their order, is one that a query finds."""
    match query:
        case Word(term, is_prefix):
            return any(_is_among(of_text, term, is_prefix=is_prefix) for of_text in terms)
        case Phrase():
            return any(is_at(terms, index, query) for index in range(len(terms)))
        case All(parts):
            return all(is_found(part, terms) for part in parts)
        case Either(parts):
            return any(is_found(part, terms) for part in parts)
        case Without(wanted, dropped):
            return is_found(wanted, terms) and not is_found(dropped, terms)
        case _:
            assert_never(query)


def is_at(terms: Sequence[str], index: int, phrase: Phrase) -> bool:
    there = terms[index : index + len(phrase.terms)]
    *before, last = phrase.terms
    return (
        len(there) == len(phrase.terms)
        and _is_among(there[-1], last, is_prefix=phrase.is_prefix)
        and all(_is_among(of_text, term, is_prefix=False) for of_text, term in zip(there[:-1], before, strict=True))
    )


def _is_among(of_text: str, term: str, *, is_prefix: bool) -> bool:
    """Whether a term of a text is this one, or an identifier with such a part."""
    return f"{PART}{term}{'' if is_prefix else PART}" in f"{PART}{of_text}{PART}"
