"""Snippets: the passage of a text that shows best why a query found it."""

import unicodedata
from collections import Counter
from typing import Final, NamedTuple

import regex

from .query import All, Either, Phrase, Query, Without, Word
from .tokens import folded, is_unspaced, places_of, terms_of

MAX_SNIPPET_TOKENS: Final = 32
MAX_SNIPPET_LENGTH: Final = 2000
"""Code points: there are texts with very long words, or with thousands of signs between words."""
MAX_LITERAL_LENGTH: Final = 200

_OPEN, _CLOSE, _CUT = "<mark>", "</mark>", "..."
_MAX_SOUGHT: Final = 100  # words and phrases of a query that are marked
_MAX_COMPARISONS: Final = 1_000_000  # of terms of phrases; then the rest of the text is left unmarked
_CLUSTER: Final = regex.compile(r"\X")
_MAX_CLUSTER_LENGTH: Final = 128
_ZERO_WIDTH_JOINER: Final = "\u200d"


class _Hit(NamedTuple):
    """What matches the terms `start` to `end`, without `end`."""

    start: int
    end: int
    leaf: Word | Phrase


def snippet(text: str, query: Query) -> str:
    """
    The best passage of at most 32 tokens, with its matches between `<mark>` and `</mark>` and `...` where it was cut.

    Best is the passage with the most different words and phrases of the query, then the one with the most matches, then the
    first. What stands behind `NOT` is not marked. Nothing is escaped: escape the text for HTML before you show it there,
    and only then put in marks. Nothing is cut inside of a grapheme cluster (of up to 128 code points).
    """
    terms = terms_of(text)
    if not terms:
        return literal_snippet(text)
    hits = _hits(terms, _sought(query))
    first, last = _best_passage(hits, len(terms))
    places = places_of(text, last + 1)
    start = 0 if first == 0 else _border_before(text, places[first][0])
    end = len(text) if last == len(terms) else _border_after(text, places[last - 1][1])
    marks = _marks(text, [hit for hit in hits if hit.start < last and hit.end > first], places)
    if end - start > MAX_SNIPPET_LENGTH:
        start, end = _shorter(text, start, end, marks)
    return _marked(text, start, end, marks)


def literal_snippet(text: str) -> str:
    """The first 200 characters of a text, or a few less where that would cut a grapheme cluster."""
    return text[: _border_before(text, MAX_LITERAL_LENGTH)]


def _marked(text: str, start: int, end: int, marks: list[tuple[int, int]]) -> str:
    shown: list[str] = [_CUT] if start else []
    for mark_start, mark_end in marks:
        opens, closes = max(mark_start, start), min(mark_end, end)
        if opens < closes:
            shown += [text[start:opens], _OPEN, text[opens:closes], _CLOSE]
            start = closes
    shown += [text[start:end], _CUT if end < len(text) else ""]
    return "".join(shown)


def _shorter(text: str, start: int, end: int, marks: list[tuple[int, int]]) -> tuple[int, int]:
    """A part of the passage that begins a little before its first mark."""
    first_mark = marks[0][0] if marks else start
    start = max(start, min(first_mark - MAX_SNIPPET_LENGTH // 4, end - MAX_SNIPPET_LENGTH))
    return _border_before(text, start), _border_after(text, start + MAX_SNIPPET_LENGTH)


def _sought(query: Query) -> list[Word | Phrase]:
    """The words and phrases that a message is found by, each once."""
    found: dict[Word | Phrase, None] = {}
    pending = [query]
    while pending:
        part = pending.pop()
        if isinstance(part, Without):
            pending.append(part.kept)
        elif isinstance(part, All | Either):
            pending.extend(reversed(part.parts))
        else:
            found[part] = None
    return list(found)[:_MAX_SOUGHT]


def _hits(terms: list[str], sought: list[Word | Phrase]) -> list[_Hit]:
    words = {leaf.term: leaf for leaf in sought if isinstance(leaf, Word) and not leaf.is_prefix}
    prefixes = {leaf.term: leaf for leaf in sought if isinstance(leaf, Word) and leaf.is_prefix}
    beginnings = tuple(prefixes)
    phrases: dict[str, list[Phrase]] = {}
    for leaf in sought:
        if isinstance(leaf, Phrase):
            phrases.setdefault(leaf.terms[0], []).append(leaf)
    hits: list[_Hit] = []
    comparisons = 0
    for index, term in enumerate(terms):
        if term in words:
            hits.append(_Hit(index, index + 1, words[term]))
        if beginnings and term.startswith(beginnings):
            hits += [_Hit(index, index + 1, leaf) for prefix, leaf in prefixes.items() if term.startswith(prefix)]
        for phrase in phrases.get(term, ()):
            comparisons += len(phrase.terms)
            if comparisons > _MAX_COMPARISONS:
                return hits
            if _is_at(terms, index, phrase):
                hits.append(_Hit(index, index + len(phrase.terms), phrase))
    return hits


def _is_at(terms: list[str], index: int, phrase: Phrase) -> bool:
    found = terms[index : index + len(phrase.terms)]
    if len(found) < len(phrase.terms) or tuple(found[:-1]) != phrase.terms[:-1]:
        return False
    return found[-1].startswith(phrase.terms[-1]) if phrase.is_prefix else found[-1] == phrase.terms[-1]


def _best_passage(hits: list[_Hit], term_count: int) -> tuple[int, int]:
    """The first and the last term of the passage, without the last: 32 terms, or all if there are less."""
    if term_count <= MAX_SNIPPET_TOKENS:
        return 0, term_count
    first, last = _densest(hits)
    # With the same matches the beginning of the text is the better passage; else they stand in the middle.
    start = 0 if last <= MAX_SNIPPET_TOKENS else first - (MAX_SNIPPET_TOKENS - (last - first)) // 2
    start = min(start, term_count - MAX_SNIPPET_TOKENS)
    return start, start + MAX_SNIPPET_TOKENS


def _densest(hits: list[_Hit]) -> tuple[int, int]:
    """Where the matches of the best passage begin and end."""
    ends = [(min(hit.end, hit.start + MAX_SNIPPET_TOKENS), hit.leaf) for hit in hits]
    by_end = sorted(range(len(hits)), key=lambda index: ends[index][0])
    inside: Counter[Word | Phrase] = Counter()
    best, where, added = (0, 0), (0, 0), 0
    for index, hit in enumerate(hits):
        while added < len(hits) and ends[by_end[added]][0] <= hit.start + MAX_SNIPPET_TOKENS:
            inside[ends[by_end[added]][1]] += 1
            added += 1
        score = len(inside), added - index
        if score > best:
            best, where = score, (hit.start, ends[by_end[added - 1]][0])
        inside[hit.leaf] -= 1
        if not inside[hit.leaf]:
            del inside[hit.leaf]
    return where


def _marks(text: str, hits: list[_Hit], places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of the text between marks. Hits side by side share one."""
    marks: list[tuple[int, int]] = []
    last_term = -1
    for hit in hits:
        start = _border_before(text, places[hit.start][0])
        end = _border_after(text, _end(text, hit, places))
        if marks and (hit.start <= last_term or start <= marks[-1][1]):
            marks[-1] = marks[-1][0], max(marks[-1][1], end)
        else:
            marks.append((start, end))
        last_term = max(last_term, hit.end)
    return marks


def _end(text: str, hit: _Hit, places: list[tuple[int, int]]) -> int:
    """
    Where a hit ends in the text.

    A prefix is marked with its whole word. In a script without blanks it may be the first half of a pair, and that is all
    to mark then.
    """
    last = min(hit.end, len(places)) - 1
    start, end = places[last]
    if hit.leaf.is_prefix and last + 1 < len(places) and places[last + 1][0] < end:
        prefix = hit.leaf.term if isinstance(hit.leaf, Word) else hit.leaf.terms[-1]
        half = places[last + 1][0]
        if is_unspaced(prefix[0]) and folded(text[start:half]).startswith(prefix):
            return half
    return end


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
    if _CLUSTER.fullmatch(before + behind):
        return False
    is_held = before == _ZERO_WIDTH_JOINER or unicodedata.category(before).startswith("M")
    return not is_held or behind < "\x80"


def _around(text: str, position: int) -> tuple[int, int]:
    """The cluster that holds the position, or twice the position where it is a border."""
    for cluster in _CLUSTER.finditer(text, max(0, position - _MAX_CLUSTER_LENGTH), position + _MAX_CLUSTER_LENGTH):
        if cluster.end() == position:
            return position, position
        if cluster.end() > position:
            return cluster.span()
    return position, position
