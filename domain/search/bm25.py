"""Ranking of texts that have no search index, by the words of a query: BM25 over the texts that are given."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, assert_never

from .query import All, Either, Phrase, Query, Without, Word, is_found, parse
from .tokens import PART, terms_of

K1: Final = 1.2
B: Final = 0.75
_OPERATORS: Final = re.compile(r'["()]|\b(?:AND|OR|NOT)\b')


def rank_texts(query: str, texts: Mapping[int, str]) -> dict[int, float]:
    """
    Return how well each text that a query finds matches it, by the number of the text: above 0, more is better.

    Words match in any form, as in a search of messages. Of several words one is enough, as queries here are sentences;
    a query with quotes, parentheses or operators must hold as a whole. Costs the length of the texts.
    """
    wanted = parse(query)
    if wanted is None:
        return {}
    if isinstance(wanted, All) and not _OPERATORS.search(query):
        wanted = Either(wanted.parts)
    terms = {number: terms_of(text) for number, text in texts.items()}
    words = list(dict.fromkeys(_words(wanted)))
    counts = {number: _counts(words, of_text) for number, of_text in terms.items()}
    having = [sum(1 for of_text in counts.values() if of_text[index]) for index in range(len(words))]
    # `log1p`: above 0 also for a term that most texts have, as scores promise to be.
    rarities = [math.log1p((len(terms) - count + 0.5) / (count + 0.5)) for count in having]
    average = sum(map(len, terms.values())) / max(1, len(terms)) or 1.0
    scores: dict[int, float] = {}
    for number, of_text in terms.items():
        if is_found(wanted, of_text):
            penalty = K1 * (1 - B + B * len(of_text) / average)
            weighed = zip(rarities, counts[number], strict=True)
            scores[number] = sum(rarity * count * (K1 + 1) / (count + penalty) for rarity, count in weighed)
    return scores


def _words(query: Query) -> Iterator[Word]:
    """The words that speak for a text, of all that a query asks for."""
    match query:
        case Word():
            yield query
        case Phrase(terms, is_prefix):
            yield from map(Word, terms[:-1])
            yield Word(terms[-1], is_prefix)
        case All(parts) | Either(parts):
            for part in parts:
                yield from _words(part)
        case Without(wanted, _):
            yield from _words(wanted)
        case _:
            assert_never(query)


def _counts(words: list[Word], terms: list[str]) -> list[int]:
    """How often each of the words is in a text."""
    counts = Counter(chain.from_iterable(term.split(PART) for term in terms))
    return [
        sum(count for term, count in counts.items() if term.startswith(word.term))
        if word.is_prefix
        else counts[word.term]
        for word in words
    ]
