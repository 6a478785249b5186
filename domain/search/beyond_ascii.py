"""
Letters and digits beyond ASCII: how words of them are told apart, and folded.

Imported when the first such text comes: to compile these patterns takes as long as all that opens a ledger otherwise imports of search.
"""

import re
import unicodedata
from functools import cache
from typing import Final

import regex

# Most texts beyond ASCII have only typographic signs and emoji there, which separate words as blanks do. A variation
# selector (U+FE0F) does so unless it follows a letter or digit, to which it then belongs.
_BEYOND_SIGNS: Final = re.compile(
    r"[^\x00-\xA9\xAB-\xB1\xB4\xB6-\xB8\xBB\xBF\xD7\xF7\u2000-\u206F\u20A0-\u20CF\u2190-\u245F\u2500-\u2775\u2794-\u2BFF"
    r"\u3000-\u3004\u3008-\u3020\uFE0F\U0001F110-\U0001FAFF]"
)
_SELECTED: Final = re.compile(r"[A-Za-z0-9]\uFE0F")

WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*+", regex.V1)

# Letters (and the number zero, U+3007) of scripts that put no blanks between words, or attach particles to them. The prolonged
# sound mark and the marks of half-width kana belong to no single script.
_UNSPACED: Final = r"[[\p{L}\p{Nl}]&&[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30FC\uFF70\uFF9E\uFF9F]]"
# What stays with the character before it: marks, and what only looks like a letter (Thai and Lao AM, the voicing marks of
# half-width kana, the vowels and final consonants of syllables that are written as single jamo, as in names of files on a Mac).
UNIT: Final = regex.compile(rf"{_UNSPACED}[\p{{M}}\u0E33\u0EB3\u1160-\u11FF\uD7B0-\uD7FB\uFF9E\uFF9F]*+", regex.V1)
RUN_OR_WORD: Final = regex.compile(
    rf"(?P<run>(?:{UNIT.pattern})++)|(?:(?!{_UNSPACED})[\p{{L}}\p{{N}}]\p{{M}}*+)++", regex.V1
)
# Two quick looks: where there may be such scripts, and words in the most common letters of them, which fold to themselves.
NEAR_UNSPACED: Final = re.compile(
    r"[\u0E00-\u109F\u1100-\u11FF\u1780-\u17FF\u3005-\u31FF\u3400-\u9FFF\uA960-\uAA7F\uAC00-\uD7FB\uF900-\uFAFF\uFF66-\uFFDC"
    r"\U00016FE0-\U00016FFF\U0001AFF0-\U0001B16F\U00020000-\U0003FFFF]"
)
HAN_KANA_HANGUL: Final = re.compile(r"[\u3041-\u3096\u30A1-\u30FA\u30FC\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7A3]+")


_WIDTH_FORMS: Final = re.compile(r"[\uFF00-\uFFEF]+")
# Letters that differ by a stroke, a bar or a missing dot, which Unicode does not take apart into letter and mark.
_BARE_LETTERS: Final = str.maketrans("øłƚđħŧⱦƀǥɨɟɉƶɍɏɇʉȼꝁⱥı", "olldhttbgijjzryeuckai")
# Where a part of an identifier begins: a capital behind a small letter, and one before a small letter, of which a plural is none (`URLs`).
PART_BEGINS: Final = regex.compile(
    r"(?<=\p{Ll})(?=\p{Lu})|(?<=[\p{Lu}\p{Nd}])(?=\p{Lu}\p{Ll})(?!\p{Lu}s(?!\p{Ll}))", regex.V1
)
_IGNORABLE: Final = regex.compile(r"[\p{Me}\u034F\u180B-\u180D\u180F\uFE00-\uFE0F\U000E0100-\U000E01EF]+")


def are_ascii(text: str) -> bool:
    """Whether all letters and digits of a text are ASCII, though not all of it is."""
    return not (_BEYOND_SIGNS.search(text) or _SELECTED.search(text))


def has_unspaced(text: str) -> bool:
    """Whether there may be letters of scripts that put no blanks between words."""
    return NEAR_UNSPACED.search(text) is not None


def is_unspaced(character: str) -> bool:
    """Whether a letter belongs to a script that puts no blanks between words."""
    return UNIT.match(character) is not None


def folded(text: str) -> str:
    """The text without differences of case, diacritics, strokes and width."""
    text = _WIDTH_FORMS.sub(lambda forms: unicodedata.normalize("NFKC", forms[0]), text)
    decomposed = unicodedata.normalize("NFD", _IGNORABLE.sub("", text))
    bare = "".join(character for character in decomposed if not _is_diacritic(character))
    return unicodedata.normalize("NFC", bare.casefold().translate(_BARE_LETTERS))


def _is_diacritic(character: str) -> bool:
    """
    Whether a mark may be left out without making another word of it.

    Vowel signs have combining class 0. Of the others 7 to 9 are nuktas, kana voicing and viramas, and 84 to 199 are vowels
    and tones of Indic and South-East Asian scripts.
    """
    combining = unicodedata.combining(character)
    return combining >= 200 or 10 <= combining < 84 or combining == 1


@cache
def words_of_number(count: int) -> "regex.Pattern[str]":
    """The pattern of so many words, each with what is behind it."""
    return regex.compile(rf"(?:[\p{{L}}\p{{N}}][\p{{L}}\p{{N}}\p{{M}}]*+[^\p{{L}}\p{{N}}]++){{{count}}}", regex.V1)
