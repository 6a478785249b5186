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
            return any(is_at(terms, index, query) for index in range(len(terms)))
        case All(parts):
            return all(is_found(part, terms) for part in parts)
        case Either(parts):
            return any(is_found(part, terms) for part in parts)
        case Without(kept, dropped):
            return is_found(kept, terms) and not is_found(dropped, terms)
        case _:
            assert_never(query)


def is_at(terms: Sequence[str], index: int, phrase: Phrase) -> bool:
    """Whether a phrase stands at an index of these terms."""
    found = terms[index : index + len(phrase.terms)]
    if len(found) < len(phrase.terms) or tuple(found[:-1]) != phrase.terms[:-1]:
        return False
    return found[-1].startswith(phrase.terms[-1]) if phrase.is_prefix else found[-1] == phrase.terms[-1]
