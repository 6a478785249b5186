"""Names as English words: their singular, their plural, and as a title. A name is any text and never refused."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from pluralizer import Pluralizer

_LONGEST_WORD: Final = 64
_LAST_WORD: Final = re.compile("[A-Z]*[a-z]*$")

# Where the library is wrong, or knows nothing of the names that programs use.
_IRREGULAR: Final = (
    ("axis", "axes"),
    ("basis", "bases"),
    ("bias", "biases"),
    ("cache", "caches"),
    ("corpus", "corpora"),
    ("lens", "lenses"),
)
_UNCOUNTABLE: Final = (
    "always",
    "aws",
    "besides",
    "chaos",
    "css",
    "dns",
    "gps",
    "https",
    "ios",
    "kubernetes",
    "metadata",
    "mixed",
    "news",
    "perhaps",
    "series",
    "sms",
    "species",
    "towards",
    "upwards",
)

_SEPARATORS: Final = frozenset({"Cc", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_ASCII_SYMBOLS: Final = frozenset("$+<=>^`|~")


def singular(name: str) -> str:
    """
    The singular of the last word of a name: `cities` gives `city`, `user_ids` `user_id`, `styleGuides` `styleGuide`.

    A name that does not end in an English word stays as it is, and so does a word without a plural, e.g. `series`.
    """
    stem, word = _last_word(name)
    return stem + _singular_word(word)


def plural(name: str) -> str:
    """
    The plural of the last word of a name: `policy` gives `policies`. What is plural already stays as it is.

    A name that ends in a digit gets an `s`: `step1` gives `step1s`.
    """
    if name[-1:].isdecimal():
        return f"{name}s"
    stem, word = _last_word(name)
    return stem + _plural_word(word)


def title(name: str) -> str:
    """
    A name as a title: its words capitalised, with blanks between them.

    Words end at `_`, `-`, blanks, other punctuation, and where small letters change to capitals; several capitals are
    one word: `style_guide` and `styleGuide` give `Style Guide`, `userAPIKey` gives `User Api Key`. A name of nothing but
    punctuation stays as it is, on one line.
    """
    chunks = "".join(" " if _separates(character) else character for character in name).split(" ")
    words = [word.capitalize() for chunk in chunks for word in _words(chunk)]
    return " ".join(words or name.split())


def _last_word(name: str) -> tuple[str, str]:
    """The English word that a name ends in, empty if it does not, and what comes before it."""
    # Without `rstrip`, the regular expression would be tried at each of 10,000 letters.
    letters = len(name) - len(name.rstrip(ascii_letters))
    tail = name[len(name) - min(letters, _LONGEST_WORD) :]
    last = _LAST_WORD.search(tail)
    size = len(last[0]) if last else 0
    before = name[: len(name) - size]
    if size == _LONGEST_WORD or (before[-1:].isalpha() and not before[-1:].isascii()):
        return name, ""  # longer than any word, or the rest of one with letters that English does not have
    return before, name[len(name) - size :]


@lru_cache(maxsize=1024)
def _singular_word(word: str) -> str:
    # Words of two letters on `s` are no plurals: `os`, `js`, `is`.
    return word if len(word) <= 2 else _library().singular(word)


@lru_cache(maxsize=1024)
def _plural_word(word: str) -> str:
    return word if len(word) <= 2 and word[-1:] in {"", "s", "S"} else _library().plural(word)


@cache
def _library() -> "Pluralizer":
    # Imported at the first list that is rendered: compiling its rules takes longer than most prompts.
    from pluralizer import Pluralizer

    library = cast("Callable[[], Pluralizer]", Pluralizer)()  # its `__init__` has no annotations
    for word_for_one, word_for_many in _IRREGULAR:
        library.add_irregular_rule(word_for_one, word_for_many)
    for word in _UNCOUNTABLE:
        library.add_uncountable_rule(word)
    return library


def _separates(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "P" or category in _SEPARATORS or character in _ASCII_SYMBOLS


def _words(chunk: str) -> list[str]:
    starts = [0]
    for place in range(1, len(chunk)):
        before, here, after = chunk[place - 1], chunk[place], chunk[place + 1 : place + 3]
        is_plural_sign = after[:1] == "s" and not after[1:].islower()  # as in `userIDs`
        if here.isupper() and (not before.isupper() or (after[:1].islower() and not is_plural_sign)):
            starts.append(place)
    return [chunk[start:end] for start, end in zip(starts, [*starts[1:], len(chunk)], strict=True) if start < end]
