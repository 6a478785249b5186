"""Snippets: the passage of a text that shows best why a query found it."""

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..packing import readable_text
from .query import All, Either, Phrase, Query, Without, Word
from .tokens import ascii_places, is_unspaced, normalized, places_of

if TYPE_CHECKING:
    import regex

MAX_SNIPPET_TOKENS: Final = 32
MAX_SNIPPET_LENGTH: Final = 2000
"""Code points: there are texts with very long words, or with thousands of signs between words."""
MAX_LITERAL_LENGTH: Final = 200

_CUT: Final = "..."
_MAX_SOUGHT: Final = 100  # words and phrases of a query that are marked
_MAX_CLUSTER_LENGTH: Final = 128
_ZERO_WIDTH_JOINER: Final = "\u200d"


@cache
def _cluster() -> "regex.Pattern[str]":
    """The pattern of what is seen as one character."""
    import regex

    return regex.compile(r"\X")


class _Hit(msgspec.Struct, frozen=True):
    """A match of the terms `start` to `end`, without `end`."""

    start: int
    end: int
    leaf: Word | Phrase


class Snippet(NamedTuple):
    """A passage of a text, and its matches: where each begins and ends in the passage, in code points, ascending."""

    text: str
    matches: list[list[int]]


class KnownWords(msgspec.Struct, frozen=True):
    """
    The facts that the index has about a text, so that its terms need not be found again.

    `starts`: where the words and phrases of `sought` begin in it, as indexes of terms, in ascending order. Of a text with
    very many of them some: those around the first of the rarest. `landmarks`: see `landmarks_of`; not of short texts.
    """

    term_count: int
    starts: Sequence[tuple[int, Word | Phrase]]
    landmarks: Sequence[int] = ()


def snippet_of(text: str, known: KnownWords) -> Snippet:
    """
    Return the best passage of a text that a query found: of at most 32 tokens, with `...` where it was cut.

    Best is the passage with the most different words and phrases of the query, then the one with the most matches, then the
    first. What stands behind `NOT` is no match. Nothing is cut inside of a grapheme cluster (of up to 128 code points).

    The passage is what somebody wrote and has no marks of ours: those could be written by anybody.
    """
    count = known.term_count
    hits = [_Hit(at, at + (1 if isinstance(leaf, Word) else len(leaf.terms)), leaf) for at, leaf in known.starts]
    if not count:
        return Snippet(literal_snippet(text), [])
    if len(text) <= MAX_SNIPPET_LENGTH and text.isascii():
        return _of_ascii(text, count, hits)
    return _of_many(text, count, hits, known.landmarks)


def _of_ascii(text: str, count: int, hits: list[_Hit]) -> Snippet:
    """The snippet of `_of_many` of a text in ASCII that is not long, where words end with clusters; in half of its time."""
    first, last = (0, count) if count <= MAX_SNIPPET_TOKENS else _passage(*_densest(hits), count)
    marks: list[int] = []  # the first and last term of each, one mark after the other
    end = 0
    for hit in hits:
        if hit.end <= first or hit.start >= last:
            continue
        if marks and hit.start <= end:
            marks[-1] = max(marks[-1], min(hit.end, last) - 1)
        else:
            marks += (max(hit.start, first), min(hit.end, last) - 1)
        end = max(end, hit.end)
    places = ascii_places(text, [first, *marks, last - 1])
    start = places[0][0] if first else 0
    end = places[-1][1] if last < count else len(text)
    return _cut(text, start, end, [(places[at][0], places[at + 1][1]) for at in range(1, len(marks), 2)])


def _of_many(text: str, count: int, hits: list[_Hit], landmarks: Sequence[int]) -> Snippet:
    first, last = (0, count) if count <= MAX_SNIPPET_TOKENS else _passage(*_densest(hits), count)
    shown = [hit for hit in hits if hit.start < last and hit.end > first]
    reach = min(last + 1, count)
    places = places_of(text, _looked_up(first, last, shown, reach), landmarks)
    start = _border_before(text, places[first][0]) if first else 0
    marks = _marks(text, shown, places, reach)
    end = len(text) if last == count else _border_after(text, places[last - 1][1])
    if end - start > MAX_SNIPPET_LENGTH:  # a part of the passage that begins a little before its first mark
        first_mark = marks[0][0] if marks else start
        start = max(start, min(first_mark - MAX_SNIPPET_LENGTH // 4, end - MAX_SNIPPET_LENGTH))
        start, end = _border_before(text, start), _border_after(text, start + MAX_SNIPPET_LENGTH)
    return _cut(text, start, end, marks)


def literal_snippet(text: str) -> str:
    """The first 200 characters of a text, or a few less where that would cut a grapheme cluster."""
    return readable_text(text[: _border_before(text, MAX_LITERAL_LENGTH)])


def _cut(text: str, start: int, end: int, marks: list[tuple[int, int]]) -> Snippet:
    pieces = [_CUT] if start else []
    length = len(_CUT) if start else 0
    matches: list[list[int]] = []
    for mark_start, mark_end in marks:
        opens, closes = max(mark_start, start), min(mark_end, end)
        if opens < closes:
            # What replaces surrogates may be shorter than they are: matches are counted in what is shown.
            before, match = readable_text(text[start:opens]), readable_text(text[opens:closes])
            pieces += (before, match)
            matches.append([length + len(before), length + len(before) + len(match)])
            length, start = matches[-1][1], closes
    pieces += (readable_text(text[start:end]), _CUT if end < len(text) else "")
    return Snippet("".join(pieces), matches)


def sought(query: Query) -> list[Word | Phrase]:
    """The words and phrases that a message is found by and that are marked in it, each once."""
    leaves: dict[Word | Phrase, None] = {}
    pending = [query]
    while pending:
        part = pending.pop()
        if isinstance(part, Without):
            pending.append(part.kept)
        elif isinstance(part, All | Either):
            pending.extend(reversed(part.parts))
        else:
            leaves[part] = None
    return list(leaves)[:_MAX_SOUGHT]


def _passage(first: int, last: int, count: int) -> tuple[int, int]:
    """The passage for matches from `first` to before `last`: 32 terms, or all if there are less; without its last."""
    if count <= MAX_SNIPPET_TOKENS:
        return 0, count
    # With the same matches the beginning of the text is the better passage; else they stand in the middle.
    start = 0 if last <= MAX_SNIPPET_TOKENS else first - (MAX_SNIPPET_TOKENS - (last - first)) // 2
    start = min(start, count - MAX_SNIPPET_TOKENS)
    return start, start + MAX_SNIPPET_TOKENS


def _densest(hits: list[_Hit]) -> tuple[int, int]:
    """Return the begin and end of the matches of the best passage."""
    if len(hits) == 1:
        return hits[0].start, min(hits[0].end, hits[0].start + MAX_SNIPPET_TOKENS)
    numbers: dict[int, int] = {}  # of leaves, as hashing those takes longer than all the rest
    leaves = [numbers.setdefault(id(hit.leaf), len(numbers)) for hit in hits]
    ends = [min(hit.end, hit.start + MAX_SNIPPET_TOKENS) for hit in hits]
    by_end = sorted(range(len(hits)), key=ends.__getitem__)
    if hits and ends[by_end[-1]] <= hits[0].start + MAX_SNIPPET_TOKENS:  # one passage has them all
        return hits[0].start, ends[by_end[-1]]
    inside = [0] * len(numbers)
    most, best, where, added, different = 0, 0, (0, 0), 0, 0
    for index, (hit, leaf) in enumerate(zip(hits, leaves, strict=True)):
        reach = hit.start + MAX_SNIPPET_TOKENS
        while added < len(hits) and ends[by_end[added]] <= reach:
            added_leaf = leaves[by_end[added]]
            different += not inside[added_leaf]
            inside[added_leaf] += 1
            added += 1
        if different > most or (different == most and added - index > best):
            most, best, where = different, added - index, (hit.start, ends[by_end[added - 1]])
        inside[leaf] -= 1
        different -= not inside[leaf]
    return where


def _looked_up(first: int, last: int, hits: list[_Hit], count: int) -> list[int]:
    """The terms whose places matter, of the first `count`: the ends of the passage, and those of its hits."""
    indexes = {first, last - 1}
    for hit in hits:
        after = min(hit.end, count)
        indexes.update((hit.start, after - 1))
        if hit.leaf.is_prefix and after < count:
            indexes.add(after)  # see `_place`
    return sorted(indexes)


_Places = dict[int, tuple[int, int]]


def _marks(text: str, hits: list[_Hit], places: _Places, count: int) -> list[tuple[int, int]]:
    """The parts of the text between marks, of the first `count` terms. Hits side by side share one."""
    is_ascii = text.isascii()  # no word begins or ends inside of a cluster
    marks: list[tuple[int, int]] = []
    last_term = -1
    for hit in hits:
        start, end = _place(text, hit, places, count)
        if not is_ascii:
            start, end = _border_before(text, start), _border_after(text, end)
        if marks and (hit.start <= last_term or start <= marks[-1][1]):
            marks[-1] = marks[-1][0], max(marks[-1][1], end)
        else:
            marks.append((start, end))
        last_term = max(last_term, hit.end)
    return marks


def _place(text: str, hit: _Hit, places: _Places, count: int) -> tuple[int, int]:
    """
    Where a hit is in the text.

    A prefix is marked with its whole word. In a script without blanks it may be the first half of a pair, and that is all
    to mark then.
    """
    first, last = hit.start, min(hit.end, count) - 1
    start, end = places[first]
    if last > first:
        end = places[last][1]
    if hit.leaf.is_prefix and last + 1 < count:
        prefix = hit.leaf.term if isinstance(hit.leaf, Word) else hit.leaf.terms[-1]
        if is_unspaced(prefix[0]):
            half = places[last + 1][0]
            if half < end and normalized(text[places[last][0] : half]).startswith(prefix):
                return start, half
    return start, end


def _border_before(text: str, position: int) -> int:
    """The last border of grapheme clusters that is not behind the position."""
    return position if _is_border(text, position) else _around(text, position)[0]


def _border_after(text: str, position: int) -> int:
    """The first border of grapheme clusters that is not before the position."""
    return position if _is_border(text, position) else _around(text, position)[1]


def _is_border(text: str, position: int) -> bool:
    """
    Whether clusters surely meet here.

    Two characters that are two clusters on their own are so everywhere, with the exception of emoji and of Indic
    consonants which a joiner or mark before them holds.
    """
    if position <= 0 or position >= len(text):
        return True
    before, behind = text[position - 1], text[position]
    if before < "\x80" and behind < "\x80":
        return behind != "\n" or before != "\r"
    if _cluster().fullmatch(before + behind):
        return False
    is_held = before == _ZERO_WIDTH_JOINER or unicodedata.category(before).startswith("M")
    return not is_held or behind < "\x80"


def _around(text: str, position: int) -> tuple[int, int]:
    """The cluster that holds the position, or twice the position where it is a border."""
    for cluster in _cluster().finditer(text, max(0, position - _MAX_CLUSTER_LENGTH), position + _MAX_CLUSTER_LENGTH):
        if cluster.end() == position:
            return position, position
        if cluster.end() > position:
            return cluster.span()
    return position, position
