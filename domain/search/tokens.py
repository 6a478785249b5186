"""
Tokenization: the terms of a text.

Words are runs of letters and digits. Case and diacritics are folded and English endings are cut (Porter's stemmer), as
FTS5's `porter unicode61` does. Scripts that put no blanks between words are indexed by overlapping pairs instead, and so is
Korean, where particles and endings are attached to nouns. Identifiers such as `getUserName` are also found by their parts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import Stemmer

if TYPE_CHECKING:
    import regex

MIN_STEMMED_BYTES: Final = 3
MAX_STEMMED_BYTES: Final = 64
"""Shorter and longer words are their own stems, as in FTS5."""

_PORTER: Final[Any] = Stemmer  # PyStemmer has no types: this module is its typed edge

# The algorithm as published has `abli` -> `able`. Its author later made that `bli` -> `ble` and added `logi` -> `log`, which
# FTS5 follows and Snowball's "porter" does not: `possibly` would not find `possible`.
_LATER_RULE: Final = re.compile(r"(?P<before>.*)(?P<kept>bl|log)(?:y|i(?:s|es|ed|ing)?)", re.DOTALL)
_MEASURE_ABOVE_0: Final = re.compile(r"[aeiou][^aeiou]|(?:[^aeiouy]|^y)y[^aeiou]")


def stem(word: str) -> str:
    """The stem of a folded word. `running` is `run`, `foxes` is `fox`; endings of other languages than English stay."""
    size = len(word) if word.isascii() else len(word.encode())
    if not MIN_STEMMED_BYTES <= size <= MAX_STEMMED_BYTES:
        return word
    later = _LATER_RULE.fullmatch(word)
    if later and _MEASURE_ABOVE_0.search(later["before"]):
        word = later["before"] + later["kept"] + ("e" if later["kept"] == "bl" else "")
        if later["kept"] == "log":
            return word
    # An object of its own for each word, which takes less than a microsecond: PyStemmer's are not safe under threads.
    stemmed: str = _PORTER.Stemmer("porter", 0).stemWord(word)
    return stemmed or word


TOKENIZER: Final = b"2"
"""The version of the rules in this module. An index that was built with another one must be rebuilt."""

MAX_TERM_BYTES: Final = 200
"""Longer terms are shortened: LMDB's keys have at most 511 bytes."""

LANDMARK_TERMS: Final = 1024
"""So many terms are passed, at most, to find one of a text whose landmarks are known."""

_DIGEST_BYTES: Final = 8
_KEPT_BYTES: Final = MAX_TERM_BYTES - 2 * _DIGEST_BYTES
_MAX_KNOWN_WORDS: Final = 1 << 16
_MAX_KNOWN_LENGTH: Final = 64  # with the line above: at most some 20 MB, whatever users write

_ASCII_WORDS: Final = bytes(code if code < 128 and chr(code).isalnum() else 32 for code in range(256))
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_MAX_PASSED: Final = 63

PART: Final = "\x03"
"""Stands in a term of an identifier before each of its parts; no term has it otherwise."""
# Where a part of an identifier begins; of letters beyond ASCII there is the same in `beyond_ascii`.
_PART_BEGINS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_MAX_IDENTIFIER: Final = 64  # longer ones are encoded bytes, mostly


class Token(NamedTuple):
    """A term and the code points of the text that it stands for: `text[start:end]`."""

    term: str
    start: int
    end: int


def terms_of(text: str) -> list[str]:
    """
    The terms of a text in order. A term's index is its position.

    That of an identifier stands for several: `HTTPSConnection` as a whole, and, each behind `PART`, `https` and `connect`.
    """
    if has_ascii_words(text):
        return terms_of_words(ascii_words([text]).decode().split())
    from . import beyond_ascii as beyond

    words = beyond.WORD.findall(text)
    if beyond.has_unspaced(text):
        return list(chain.from_iterable(map(_terms_of_word, words)))
    return terms_of_words(words)


def tokens_of(text: str) -> list[Token]:
    """Return the terms in order, each with its place in the text."""
    if has_ascii_words(text):
        return [Token(_TERMS[word[0]], *word.span()) for word in _ASCII_WORD.finditer(text)]
    return list(_tokens(text))


@cache
def _words_of_number(count: int) -> re.Pattern[str]:
    """The pattern of so many words, each with what is behind it."""
    return re.compile(rf"(?:[A-Za-z0-9]++[^A-Za-z0-9]++){{{count}}}")


def landmarks_of(text: str) -> list[int]:
    """Return where every term of a text begins whose index is a multiple of `LANDMARK_TERMS`, without the first."""
    first: re.Match[str] | regex.Match[str] | None
    words: re.Pattern[str] | regex.Pattern[str]
    if has_ascii_words(text):
        first, words = _ASCII_WORD.search(text), _words_of_number(LANDMARK_TERMS)
    else:
        from . import beyond_ascii as beyond

        if beyond.has_unspaced(text):
            starts = (token.start for token in _tokens(text))
            return list(islice(starts, LANDMARK_TERMS, None, LANDMARK_TERMS))
        first, words = beyond.WORD.search(text), beyond.words_of_number(LANDMARK_TERMS)
    place = len(text) if first is None else first.start()
    landmarks: list[int] = []
    # Words are passed so many at a time, which takes a fifth of the time of finding each.
    while (passed := words.match(text, place)) is not None and (place := passed.end()) < len(text):
        landmarks.append(place)
    return landmarks


def places_of(text: str, indexes: Sequence[int], landmarks: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
    """
    Return where some terms of a text are in it: start and end, by the index of the term.

    Args:
        text: It is read as far as the last of these terms, and what is between them only passed.
        indexes: Of terms that the text has, ascending.
        landmarks: Those of the text: then it is read from the last one before these terms only.

    Raises:
        IndexError: The text has no such terms.
    """
    before = indexes[0] // LANDMARK_TERMS if landmarks else 0
    if before:
        behind = indexes[-1] // LANDMARK_TERMS + 2
        start = landmarks[before - 1]
        # As far as the landmark after the next: where words are not separated, a term reaches into the one behind it.
        end = landmarks[behind - 1] if behind <= len(landmarks) else len(text)
        local = places_of(text[start:end], [index - before * LANDMARK_TERMS for index in indexes])
        return {index + before * LANDMARK_TERMS: (start + a, start + b) for index, (a, b) in local.items()}
    if has_ascii_words(text):
        return dict(zip(indexes, ascii_places(text, indexes), strict=True))
    tokens, passed = _tokens(text), 0
    places: dict[int, tuple[int, int]] = {}
    for index in indexes:
        if index not in places:
            token = next(islice(tokens, index - passed, None), None)
            if token is None:
                raise IndexError(index)
            places[index], passed = (token.start, token.end), index + 1
    return places


def ascii_places(text: str, indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Return where terms of a text with ASCII words are in it, given by their ascending indexes. Raises `IndexError` beyond them."""
    places: list[tuple[int, int]] = []
    last, start, end = -1, 0, 0
    for index in indexes:
        ahead = index - last - 1
        while ahead >= 0:
            passed = min(ahead, _MAX_PASSED)
            word = _after(passed)(text, end)
            if word is None:
                raise IndexError(index)
            start, end = word.span(1)
            ahead -= passed + 1
            last = index
        places.append((start, end))
    return places


@cache
def _after(count: int) -> Callable[[str, int], re.Match[str] | None]:
    """Finds the word after so many others, in a tenth of the time that looking at each takes."""
    others = rf"(?:[^A-Za-z0-9]*+[A-Za-z0-9]++){{{count}}}+" if count else ""
    return re.compile(rf"{others}[^A-Za-z0-9]*+([A-Za-z0-9]++)").match


def ascii_words(texts: Iterable[str]) -> bytes:
    """
    The words of texts of which `has_ascii_words` is true, with blanks for everything else.

    There is a blank between two texts, so each has the place that it has when the texts are joined by one character.
    """
    return b" ".join([text.encode("ascii", "replace") for text in texts]).translate(_ASCII_WORDS)


def has_ascii_words(text: str) -> bool:
    """Whether all letters and digits of a text are ASCII."""
    if text.isascii():
        return True
    from . import beyond_ascii as beyond

    return beyond.are_ascii(text)


def terms_of_words(words: Iterable[str]) -> list[str]:
    """The terms of words that have one each: those of scripts that put blanks between them."""
    return list(map(_TERMS.__getitem__, words))


def normalized(text: str) -> str:
    """The text without differences of case, diacritics, strokes and width: `État` is `etat`, and `Łódź` is `lodz`."""
    if text.isascii():
        return text.lower()
    from . import beyond_ascii as beyond

    return beyond.folded(text)


def prefix_term(text: str) -> str:
    """
    Return the prefix of the terms that `text*` asks for.

    It is stemmed like a word, as FTS5 does: `running*` is `run*`. Of very long ones it is the bytes that terms keep.
    """
    word = normalized(text)
    encoded = word.encode()
    return stem(word) if len(encoded) <= _KEPT_BYTES else encoded[:_KEPT_BYTES].decode(errors="ignore")


def is_unspaced(character: str) -> bool:
    """Whether a letter belongs to a script that puts no blanks between words."""
    if character.isascii():
        return False
    from . import beyond_ascii as beyond

    return beyond.is_unspaced(character)


def _terms_of_word(word: str) -> list[str]:
    from . import beyond_ascii as beyond

    if beyond.HAN_KANA_HANGUL.fullmatch(word):
        return [word[index : index + 2] for index in range(len(word))]
    if beyond.NEAR_UNSPACED.search(word):
        return [token.term for token in _tokens_of_mixed(word, 0, len(word))]
    return [_TERMS[word]]


def _tokens(text: str) -> Iterator[Token]:
    from . import beyond_ascii as beyond

    for word in beyond.WORD.finditer(text):
        start, end = word.span()
        if beyond.NEAR_UNSPACED.search(text, start, end):
            yield from _tokens_of_mixed(text, start, end)
        else:
            yield Token(_TERMS[word[0]], start, end)


def _tokens_of_mixed(text: str, start: int, end: int) -> Iterator[Token]:
    from . import beyond_ascii as beyond

    for part in beyond.RUN_OR_WORD.finditer(text, start, end):
        if part["run"] is None:
            yield Token(_TERMS[part[0]], part.start(), part.end())
        else:
            yield from _pairs(text, part.start(), part.end())


def _pairs(text: str, start: int, end: int) -> Iterator[Token]:
    """`abc` as `ab`, `bc` and `c`: a run is the phrase of its pairs, and one character the prefix of a pair."""
    from . import beyond_ascii as beyond

    previous, previous_start = "", start
    for unit in beyond.UNIT.finditer(text, start, end):
        current = _UNITS[unit[0]]
        if previous:
            yield Token(_shortened(previous + current), previous_start, unit.end())
        previous, previous_start = current, unit.start()
    yield Token(_shortened(previous), previous_start, end)


class _WordCache(dict[str, str]):
    """
    Facts found out about words, kept.

    Words come from users, so this is emptied when it is full, and keeps no long ones. Threads share it: each step is atomic.
    """

    def __init__(self, find_out: Callable[[str], str]) -> None:
        super().__init__()
        self._find_out = find_out

    def __missing__(self, word: str) -> str:
        value = self._find_out(word)
        if len(word) <= _MAX_KNOWN_LENGTH:
            if len(self) >= _MAX_KNOWN_WORDS:
                self.clear()
            self[word] = value
        return value


def _term(word: str) -> str:
    whole = _shortened(stem(normalized(word)))
    if len(word) > _MAX_IDENTIFIER or word.islower() or word.isupper():
        return whole
    begins = [0, *(begin.start() for begin in _part_begins(word)), len(word)]
    # A single letter, as in `iPhone`, is no word that anybody looks for.
    parts = [word[begin:end] for begin, end in pairwise(begins) if end - begin > 1] if len(begins) > 2 else []
    return PART.join(dict.fromkeys([whole, *(stem(normalized(part)) for part in parts)]))


def _part_begins(word: str) -> "Iterator[re.Match[str] | regex.Match[str]]":
    if word.isascii():
        return _PART_BEGINS.finditer(word)
    from . import beyond_ascii as beyond

    return beyond.PART_BEGINS.finditer(word)


def _shortened(term: str) -> str:
    """The term, or the first bytes of a very long one and a digest, which keeps terms with the same beginning apart."""
    if len(term) <= MAX_TERM_BYTES // 4:
        return term
    encoded = term.encode()
    if len(encoded) <= MAX_TERM_BYTES:
        return term
    return encoded[:_KEPT_BYTES].decode(errors="ignore") + blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


_TERMS: Final = _WordCache(_term)
_UNITS: Final = _WordCache(normalized)
