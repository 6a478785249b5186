"""Predicates about what was said."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict, cast

import msgspec

from ..errors import InvalidValueError
from ..forms.reading import text_of
from ..limits import check_count
from ..values import UI
from .predicates import Predicate, ReminderContext, condition

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
        shared = {word for word in words(text) if word in self._weights}
        return max(sum(self._score(word, count) for word in shared) for count in self._counts)

    def _score(self, word: str, count: Counter[str]) -> float:
        length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * count.total() / self._mean_length
        return self._weights[word] * count[word] * (_SATURATION + 1) / (count[word] + _SATURATION * length)


def words(text: str) -> list[str]:
    """
    The words of a text: runs of letters, digits and the marks that belong to them, in any script, without case.

    Scripts that put no blanks between words, such as Chinese, give one word per run.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(
        character if character.isalnum() or unicodedata.category(character).startswith("M") else " "
        for character in folded
    ).split()


class Count(TypedDict, total=False):
    """A condition on a number: at least `gte`, at most `lte`, or exactly `eq`, which stands alone."""

    gte: int
    lte: int
    eq: int


class _Bounds(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    gte: int | None = None
    lte: int | None = None
    eq: int | None = None

    def admits(self, number: int) -> bool:
        if self.eq is not None:
            return number == self.eq
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    def __repr__(self) -> str:
        return repr({name: value for name, value in msgspec.structs.asdict(self).items() if value is not None})


def content_includes(words: Iterable[str]) -> Predicate:
    """
    Return a predicate that holds if the message contains any of these texts, in whatever case.

    They may stand inside of other words: `["cat"]` is found in "Category". See `content_matches` for whole words.

    Raises:
        InvalidValueError: There are none, or one is empty.
    """
    texts = _texts(words, "words of content_includes")
    folded = [word.casefold() for word in texts]

    def test(context: ReminderContext) -> bool:
        content = context.content.casefold()
        return any(word in content for word in folded)

    return condition("content_includes", texts, test)


def content_pattern(pattern: str | re.Pattern[str]) -> Predicate:
    """
    Return a predicate that holds if the message contains what a regular expression describes.

    Args:
        pattern: As `re.compile` takes or returns it. Case counts, unless the pattern says otherwise: `(?i)`.

    Raises:
        InvalidValueError: It is no regular expression of text.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        msg = f"pattern of content_pattern is no regular expression: {error}"
        raise InvalidValueError(msg) from error
    if not isinstance(compiled.pattern, str):
        msg = "pattern of content_pattern is one of bytes; give it as text"
        raise InvalidValueError(msg)
    return condition("content_pattern", (compiled,), lambda context: compiled.search(context.content) is not None)


def content_matches(topics: Iterable[str], threshold: float = 0.0) -> Predicate:
    """
    Return a predicate that holds if the message has to do with any of these topics.

    Args:
        topics: Each described in a few words: `["refund, money back", "delivery, shipping, parcel"]`.
        threshold: The BM25 score that a topic must exceed (>= 0). By default one word in common is enough, whatever the
            word: leave words such as "the" out of the topics. A word of one topic among few scores about 1.

    Raises:
        InvalidValueError: There are no topics, one has no words, or the threshold is no number of at least 0.
    """
    texts = _texts(topics, "topics of content_matches")
    if not all(map(words, texts)):
        msg = "topics of content_matches must have words"
        raise InvalidValueError(msg)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold < math.inf:
        msg = f"threshold of content_matches must be a number of at least 0, not {threshold!r}"
        raise InvalidValueError(msg)
    compared = Topics(texts)
    arguments = (texts, threshold) if threshold else (texts,)
    return condition("content_matches", arguments, lambda context: compared.best_score(context.content) > threshold)


def last_assistant_length(count: Count) -> Predicate:
    """
    Return a predicate that holds if the text of the last assistant message has so many characters (code points).

    It does not hold before the assistant has said something.

    Args:
        count: `{"gte": 500}`, `{"lte": 20}`, both, or `{"eq": 0}`.

    Raises:
        InvalidValueError: The count has none of them, or others, or `eq` beside another.
    """
    limits: Mapping[str, Any] = cast("Mapping[str, Any]", count) if isinstance(count, Mapping) else {}
    if not limits or not limits.keys() <= {"gte", "lte", "eq"}:
        msg = "count must be an object with `gte` or `lte` or both, or with `eq`"
        raise InvalidValueError(msg)
    if "eq" in limits and len(limits) > 1:
        msg = "eq of a count stands alone, without gte and lte"
        raise InvalidValueError(msg)
    bounds = _Bounds(**{name: check_count(value, f"{name} of a count") for name, value in limits.items()})

    def test(context: ReminderContext) -> bool:
        message = context.last_assistant_message
        return message is not None and bounds.admits(len(text_of(UI, message)))

    return condition("last_assistant_length", (bounds,), test)


def _texts(values: Any, what: str) -> tuple[str, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        msg = f"{what} must be a list of texts, not {type(values).__name__}"
        raise InvalidValueError(msg)
    texts = tuple(cast("Iterable[Any]", values))
    if not texts or not all(isinstance(text, str) and text for text in texts):
        msg = f"{what} must be a list of at least one text, none of them empty"
        raise InvalidValueError(msg)
    return texts
