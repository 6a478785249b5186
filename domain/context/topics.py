"""How much a text has to do with a topic: BM25 over words."""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

_SATURATION: Final = 1.2
_LENGTH_WEIGHT: Final = 0.75


class Topics:
    """
    Topics that texts are compared with.

    Robertson's BM25 with the topics as documents and the words of the text as query, each counted once. The weight of a
    word, ln(1 + (N - n + 0.5) / (n + 0.5)) for n of N topics that have it, is Lucene's: never negative, also where there
    is one topic only. Written out here, because rank-bm25 needs NumPy and gives common words of few documents negative
    weights.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._counts = [Counter(words(topic)) for topic in topics]
        having = Counter(word for count in self._counts for word in count)
        total = len(topics)
        self._weights = {word: math.log(1 + (total - n + 0.5) / (n + 0.5)) for word, n in having.items()}
        self._mean_length = sum(count.total() for count in self._counts) / total

    def best_score(self, text: str) -> float:
        """The score of the topic that the text has most to do with; 0 if it shares no word with any."""
        known = {word for word in words(text) if word in self._weights}
        return max(sum(self._score(word, count) for word in known) for count in self._counts)

    def _score(self, word: str, count: Counter[str]) -> float:
        length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * count.total() / self._mean_length
        return self._weights[word] * count[word] * (_SATURATION + 1) / (count[word] + _SATURATION * length)


def words(text: str) -> list[str]:
    """
    The words of a text: runs of letters, digits and the marks that belong to them, in any script, without case.

    Scripts that put no blanks between words, such as Chinese, give one word per run.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character if _is_word_character(character) else " " for character in folded).split()


def _is_word_character(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")
