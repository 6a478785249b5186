"""English word stems by Porter's algorithm, as SQLite's FTS5 has them."""

import re
from typing import Any, Final

import Stemmer

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
