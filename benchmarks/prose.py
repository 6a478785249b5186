"""Texts to search in: words as often as in English, many of them inflected, and some planted in a known share of messages."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, product

from .data import Conversations

COMMON = "the"
"""In most messages."""
MID = "lantern"
"""In one message of a hundred, some of them as `lanterns`."""
RARE = "quasar"
"""In ten messages of a chat."""
PHRASE = "northern lights"
"""Side by side in one message of two hundred; both words also stand alone."""

_VOCABULARY = 60_000
_WORDS_PER_MESSAGE = 32
_FUNCTION_WORDS = """
the of and to a in is it you that he was for on are with as I his they be at one have this from or had by not but what some we can
out other were all there when up use your how said an each she which do their time if will way about many then them would like so
these her long make thing see him two has look more day could go come did no most my over know than call first who may down been now
"""
_FREQUENT = """
northern lights window morning station weather ticket question answer model memory branch rewind plan between because maybe later
number people write water oil sound place great where help through much before line right mean old any same tell boy follow want show
also around form small set put end does another well large must big even such turn here why ask went men read need land different home
move try kind hand picture again change off play spell air away animal house point page letter mother found study still learn should
"""
_ONSETS = [
    "b",
    "br",
    "c",
    "cl",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "w",
]
_NUCLEI = ["a", "e", "i", "o", "u", "ea", "ou"]
_CODAS = ["ck", "d", "g", "l", "m", "n", "nd", "nt", "p", "r", "rt", "s", "st", "t", "v", "x"]
_ENDINGS = ["", "s", "ed", "ing", "er", "ers", "ly", "ment", "ation", "able", "ness", "ful"]


class Prose(Conversations):
    """
    Messages of about 200 characters for a chat of `length`; equal seeds make equal messages.

    Word frequencies follow the law of Zipf and Mandelbrot over 60,000 words, as in English.
    """

    def __init__(self, seed: int, *, length: int) -> None:
        super().__init__(seed)
        self._rare_every = max(1, length // 10)
        self._words, self._weights = _vocabulary()

    def text(self, number: int) -> str:
        words = self._random.choices(self._words, cum_weights=self._weights, k=_WORDS_PER_MESSAGE)
        for every, planted in ((100, MID if number % 200 else f"{MID}s"), (200, PHRASE), (self._rare_every, RARE)):
            if number % every == every // 2:
                words[self._random.randrange(len(words))] = planted
        return " ".join(words)


@cache
def _vocabulary() -> tuple[Sequence[str], Sequence[float]]:
    """The words, the most frequent first, and their frequencies summed up."""
    beginnings = ["", "inter", "con", "pre", "over", "trans", *map("".join, product(_ONSETS, _NUCLEI))]
    syllables = ["".join(parts) for parts in product(_ONSETS, _NUCLEI, _CODAS)]
    draw = random.Random(0)
    words: dict[str, None] = dict.fromkeys((_FUNCTION_WORDS + _FREQUENT).split())
    while len(words) < _VOCABULARY:
        stem = draw.choice(beginnings) + draw.choice(syllables)
        words.update(dict.fromkeys(stem + ending for ending in draw.sample(_ENDINGS, 4)))
    return list(words), list(accumulate((rank + 2.7) ** -1.1 for rank in range(1, len(words) + 1)))
