"""Search without the index: the parts of a query, and SQLite's FTS5, with which ours is compared."""

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager

from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word, is_at, is_found
from chatledger.domain.search.snippets import KnownWords, Snippet, snippet_of, sought
from chatledger.domain.search.tokens import terms_of

__all__ = ["Fts5", "depth", "fts5", "is_found", "leaves", "marked", "snippet", "terms_in_fts5"]


def depth(query: Query) -> int:
    """Number of levels of a query."""
    match query:
        case All(parts) | Either(parts):
            return 1 + max(map(depth, parts))
        case Without(kept, dropped):
            return 1 + max(depth(kept), depth(dropped))
        case _:
            return 1


def leaves(query: Query) -> Iterator[Word | Phrase]:
    """The words and phrases in a query, from left to right."""
    match query:
        case All(parts) | Either(parts):
            for part in parts:
                yield from leaves(part)
        case Without(kept, dropped):
            yield from leaves(kept)
            yield from leaves(dropped)
        case _:
            yield query


def snippet(text: str, query: Query) -> Snippet:
    """The snippet of a text whose words are found by reading it."""
    terms = terms_of(text)
    starts = [(at, leaf) for at in range(len(terms)) for leaf in sought(query) if _is_at(terms, at, leaf)]
    return snippet_of(text, KnownWords(len(terms), starts))


def _is_at(terms: list[str], at: int, leaf: Word | Phrase) -> bool:
    if isinstance(leaf, Phrase):
        return is_at(terms, at, leaf)
    return is_found(leaf, terms[at : at + 1])


def marked(passage: str, matches: Iterable[list[int]]) -> str:
    """A passage with its matches between `<mark>` and `</mark>`, as one reads it best in a test."""
    text, end = "", 0
    for start, stop in matches:
        assert end <= start < stop <= len(passage)
        text += f"{passage[end:start]}<mark>{passage[start:stop]}</mark>"
        end = stop
    return text + passage[end:]


class Fts5:
    """Texts in an FTS5 table with the tokenizer `porter unicode61`; their ids count from 0."""

    def __init__(self, connection: sqlite3.Connection, texts: Iterable[str]) -> None:
        self._connection = connection
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5(body, tokenize = 'porter unicode61')")
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(texts, instance)")
        connection.executemany("INSERT INTO texts(rowid, body) VALUES (?, ?)", enumerate(texts))

    def terms(self) -> dict[int, list[str]]:
        """The terms of each text that has any, by position."""
        found: dict[int, list[str]] = {}
        for term, text_id in self._connection.execute('SELECT term, doc FROM terms ORDER BY doc, "offset"'):
            found.setdefault(text_id, []).append(term)
        return found

    def search(self, query: str) -> set[int]:
        """The texts that match."""
        return {row for (row,) in self._connection.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (query,))}


@contextmanager
def fts5(texts: Iterable[str]) -> Generator[Fts5]:
    """A table in memory."""
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Fts5(connection, texts)


def terms_in_fts5(text: str) -> list[str]:
    """The terms that FTS5 makes of one text."""
    with fts5([text]) as table:
        return table.terms().get(0, [])
