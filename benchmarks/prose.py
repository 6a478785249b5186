"""Messages to store: words as often as in English, many of them inflected, and some planted in a known share of messages."""

import random
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, product
from pathlib import Path

import msgspec

from chatledger import NewMessage

from .data import START_MS

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


class Prose:
    """
    Makes messages of about 200 characters, UIMessages with one text part; equal seeds make equal messages.

    Word frequencies follow the law of Zipf and Mandelbrot over 60,000 words, as in English.

    Args:
        length: Of the chat in whose messages words are planted, to be searched for; 0 for none.
    """

    def __init__(self, seed: int, *, length: int = 0) -> None:
        self._random = random.Random(seed)
        self._count = 0
        self._rare_every = max(1, length // 10) if length else 0
        self._words, self._weights = _vocabulary()

    def message(self) -> NewMessage:
        """The next message."""
        return next(self.messages(1))

    def messages(self, count: int) -> Iterator[NewMessage]:
        """The next so many messages."""
        for _ in range(count):
            number = self._count
            self._count += 1
            message_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
            role = "assistant" if number % 2 else "user"
            text = self.text(number)
            data = {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}
            yield NewMessage(role, data, id=message_id, created_at=START_MS + number)

    def text(self, number: int) -> str:
        """The text of a message, given how many there are before it."""
        words = self._random.choices(self._words, cum_weights=self._weights, k=_WORDS_PER_MESSAGE)
        if self._rare_every:
            for every, planted in ((100, MID if number % 200 else f"{MID}s"), (200, PHRASE), (self._rare_every, RARE)):
                if number % every == every // 2:
                    words[self._random.randrange(len(words))] = planted
        return " ".join(words)


class RealTexts(Prose):
    """Messages with these texts, one after the other, from the place that the seed says, and over again."""

    def __init__(self, seed: int, texts: Sequence[str]) -> None:
        super().__init__(seed)
        self._texts, self._first = texts, seed

    def text(self, number: int) -> str:
        """Implement `Prose.text`."""
        return self._texts[(self._first + number) % len(self._texts)]


def read_texts(file: Path) -> list[str]:
    """The texts of a file of OpenAssistant's messages, one JSON object a line."""
    with file.open("rb") as lines:
        return [msgspec.json.decode(line)["text"] for line in lines]


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
