"""Numbers for the terms of many texts at once."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.tokens import ascii_words, has_ascii_words, terms_of, terms_of_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SLOT_BITS: Final = 17
_MAX_TERMS: Final = 1 << 16
"""Some 10 MB of them."""
_WINDOW_BYTES: Final = 100_000
"""So many bytes of text at a time: what NumPy makes of them stays in the processor's cache."""
_FIRST_WINDOW_BYTES: Final = 2_000
"""The first windows are smaller: most of their words are new, and each of these is looked up as often as it occurs in one."""

_BLANK: Final = 32
_HALF: Final = 8
_MAX_BYTES: Final = 2 * _HALF
_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(_HALF + 1)], dtype=np.uint64)
_FIRST_HALF: Final = np.concatenate((_BYTES, _BYTES[-1:].repeat(_HALF)))
_SECOND_HALF: Final = np.concatenate((_BYTES[:1].repeat(_HALF), _BYTES))
"""By the length of a word: which bits of its first and second eight bytes belong to it."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(64 - _SLOT_BITS)


class Coded(NamedTuple):
    """The terms of texts as their numbers (`int32`), one text's after the other, and how many each text has (`int64`)."""

    codes: "NDArray[np.int32]"
    lengths: "NDArray[np.int64]"


class Vocabulary:
    """
    Terms, numbered in the order in which they were met.

    NumPy looks up most words of a text in one go, in a table of words of up to 16 bytes in which each has one slot, by its
    bytes. The others are looked up one by one: those that are new or longer, or whose slot another word has.
    """

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self._window = _FIRST_WINDOW_BYTES
        slots = 1 << _SLOT_BITS
        self._first_halves, self._second_halves = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64)
        self._codes = np.zeros(slots, np.int32)

    @property
    def terms(self) -> list[str]:
        """The terms by their numbers, also those that are still to come."""
        return self._numbers.terms

    @property
    def is_full(self) -> bool:
        """Whether it should be replaced by a new one: words come from users, and there may be any number of them."""
        return len(self._numbers) > _MAX_TERMS

    def code(self, texts: Sequence[str]) -> Coded:
        """The terms of texts."""
        if all(map(str.isascii, texts)):
            return self._code_ascii(texts)
        others = [at for at, text in enumerate(texts) if not has_ascii_words(text)]
        plain = list(texts)
        for at in others:
            plain[at] = ""
        coded = self._code_ascii(plain)
        terms = [terms_of(texts[at]) for at in others]
        counts = np.fromiter(map(len, terms), np.int64, len(terms))
        codes = np.array(self._numbers.of(chain.from_iterable(terms)), dtype=np.int32)
        places = np.cumsum(coded.lengths)[others]
        coded.lengths[others] = counts
        return Coded(np.insert(coded.codes, places.repeat(counts), codes), coded.lengths)

    def _code_ascii(self, texts: Sequence[str]) -> Coded:
        words = ascii_words(texts)
        raw = b" " + words + b" " * _MAX_BYTES
        codes: list[NDArray[np.int32]] = []
        starts: list[NDArray[np.int64]] = []
        start, last = 0, len(words) + 1
        while start < last:
            self._window = min(2 * self._window, _WINDOW_BYTES)
            end = last if last - start < self._window else raw.index(b" ", start + self._window)
            starts_of_window, codes_of_window = self._code_window(raw, start, end)
            starts.append(starts_of_window)
            codes.append(codes_of_window)
            start = end
        sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        return Coded(np.concatenate(codes), np.diff(np.searchsorted(np.concatenate(starts), bounds)))

    def _code_window(self, raw: bytes, start: int, end: int) -> "tuple[NDArray[np.int64], NDArray[np.int32]]":
        """The words between two blanks: where they are, and the numbers of their terms."""
        is_word = np.frombuffer(raw, np.uint8, end + 1 - start, start) != _BLANK
        edges = np.flatnonzero(is_word[1:] != is_word[:-1]) + (start + 1)
        starts, ends = edges[::2], edges[1::2]
        sizes = ends - starts
        halves = np.ndarray((len(raw) - _HALF + 1,), "<u8", raw, 0, (1,))  # the eight bytes from every place on
        known_sizes = np.minimum(sizes, _MAX_BYTES)
        first = halves[starts] & _FIRST_HALF[known_sizes]
        second = halves[starts + _HALF] & _SECOND_HALF[known_sizes]
        slots = (((first * _MIX[0]) ^ (second * _MIX[1])) * _MIX[0] >> _SHIFT).view(np.int64)
        is_known = (self._first_halves[slots] == first) & (self._second_halves[slots] == second) & (sizes <= _MAX_BYTES)
        codes = self._codes[slots]
        others = np.flatnonzero(~is_known)
        if len(others):
            text = raw[start:end].decode()
            spans = zip((starts[others] - start).tolist(), (ends[others] - start).tolist(), strict=True)
            codes[others] = self._numbers.of(terms_of_words([text[begin:stop] for begin, stop in spans]))
            others = others[sizes[others] <= _MAX_BYTES]
            others = others[self._first_halves[slots[others]] == 0]  # slots that no word has yet
            # Of several words for one slot the last gets it, as it does in each of these.
            free = slots[others]
            self._first_halves[free], self._second_halves[free] = first[others], second[others]
            self._codes[free] = codes[others]
        return starts, codes


class _Numbers(dict[str, int]):
    """Terms with their numbers; who looks for a new one gives it the next."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: list[str] = []

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self.terms)
        self.terms.append(term)
        return number

    def of(self, terms: Iterable[str]) -> list[int]:
        return list(map(self.__getitem__, terms))
