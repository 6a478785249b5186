"""Matching of one text against a query, without an index."""

from collections.abc import Sequence
from typing import assert_never

from .query import All, Either, Phrase, Query, Without, Word


def is_found(query: Query, terms: Sequence[str]) -> bool:
    """Whether a text with these terms, in their order, is one that a query finds."""
    match query:
        case Word(term, is_prefix):
            return any(found.startswith(term) for found in terms) if is_prefix else term in terms
        case Phrase():
            return any(_is_at(query, terms, index) for index in range(len(terms) - len(query.terms) + 1))
        case All(parts):
            return all(is_found(part, terms) for part in parts)
        case Either(parts):
            return any(is_found(part, terms) for part in parts)
        case Without(kept, dropped):
            return is_found(kept, terms) and not is_found(dropped, terms)
        case _:
            assert_never(query)


def _is_at(phrase: Phrase, terms: Sequence[str], index: int) -> bool:
    *before, last = terms[index : index + len(phrase.terms)]
    fits = last.startswith(phrase.terms[-1]) if phrase.is_prefix else last == phrase.terms[-1]
    return fits and tuple(before) == phrase.terms[:-1]
