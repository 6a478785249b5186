"""The documents that have a term or a phrase in one field, and where they have it."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import Phrase

from .indexer import SIGNS
from .parts import Parts, SegmentPart
from .pending import Occurrences
from .postings import DOCUMENT_SHIFT, is_first, is_in, places_in
from .segments import PostingsPiece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint32]
    Starts = NDArray[np.uint64]

_MANY_TIMES: Final = 4
"""Of a term with so many times as many documents only those are looked at that have the rest of a phrase."""


class Occurring:
    """Documents that have something, ascending and numbered through, and how often."""

    documents: "Numbers"
    counts: "Numbers"

    def occurrences(self, documents: "Numbers") -> Occurrences:
        """Return the occurrences in some ascending documents; not all of them need to have it."""
        raise NotImplementedError


class TermMatches(Occurring):
    """
    The documents that have a term, or any that begins with it.

    Args:
        parts: What is searched.
        term: The term with the sign of its field.
    """

    def __init__(self, parts: Parts, term: bytes, field: SearchField, *, is_prefix: bool) -> None:
        self._is_prefix = is_prefix
        self._pieces = [
            (part.base, piece) for part in parts.segments for piece in part.pieces(term, is_prefix=is_prefix)
        ]
        self._waiting: Occurrences | None = None
        if parts.may_wait(term, is_prefix=is_prefix) and parts.has_waiting:
            self._waiting = parts.occurrences(term, field, is_prefix=is_prefix)
        found = [piece.documents + np.uint32(base) if base else piece.documents for base, piece in self._pieces]
        counts = [piece.frequencies() for _, piece in self._pieces]
        if self._waiting is not None:
            found.append(self._waiting.documents)
            counts.append(self._waiting.counts)
        self._all = _joined(found)
        if is_prefix and len(found) > 1:
            self.documents, places = np.unique(self._all, return_inverse=True)
            self.counts = np.bincount(places, _joined(counts), len(self.documents)).astype(np.uint32)
        else:
            self.documents, self.counts = self._all, _joined(counts)
        if is_prefix and len(found) == 1:
            self.documents, self.counts = _summed(self.documents, self.counts)

    def occurrences(self, documents: "Numbers") -> Occurrences:
        """Return the occurrences in some ascending documents."""
        is_prefix = self._is_prefix
        places = is_in(self._all, documents).nonzero()[0] if is_prefix else places_in(self._all, documents)
        return self._at(places)

    def _at(self, places: "NDArray[np.int64]") -> Occurrences:
        """Return the occurrences of postings, by their ascending places among all."""
        if len(self._pieces) == 1 and self._waiting is None and len(places):
            found = Occurrences(self._all[places], *self._pieces[0][1].positions(places))
            return found.sorted() if self._is_prefix else found
        counts, positions, rest, start = _read([piece for _, piece in self._pieces], places)
        if len(rest):
            assert self._waiting is not None, "what is in no piece waits"
            of_waiting = self._waiting.taken(rest - start)
            counts.append(of_waiting[0])
            positions.append(of_waiting[1])
        found = Occurrences(self._all[places], _joined(counts), _joined(positions))
        return found.sorted() if self._is_prefix else found


def _read(
    pieces: Sequence[PostingsPiece], places: "NDArray[np.int64]"
) -> "tuple[list[Numbers], list[Numbers], NDArray[np.int64], int]":
    """
    Read postings of pieces, given by their ascending places among those of all.

    Returns:
        How often each occurs and at which positions, for each piece that has some; the places that are behind all pieces, and
        how many postings these have.
    """
    sizes = [len(piece.documents) for piece in pieces]
    ends = np.array(list(accumulate(sizes)), np.int64)
    counts: list[Numbers] = []
    positions: list[Numbers] = []
    start = last = 0
    for piece, size, stop in zip(pieces, sizes, places.searchsorted(ends).tolist(), strict=True):
        if last < stop:
            of_piece = piece.positions(places[last:stop] - start)
            counts.append(of_piece[0])
            positions.append(of_piece[1])
        start, last = start + size, stop
    return counts, positions, places[last:], start


def _summed(documents: "Numbers", counts: "Numbers") -> "tuple[Numbers, Numbers]":
    found, places = np.unique(documents, return_inverse=True)
    return found, np.bincount(places, counts, len(found)).astype(np.uint32)


def _joined(parts: "Sequence[Numbers]") -> "Numbers":
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


class PhraseMatches(Occurring):
    """
    The documents that have the terms of a phrase side by side; the position is that of the first.

    Args:
        starts: Where it occurs: documents and positions, ascending.
    """

    def __init__(self, starts: "Starts") -> None:
        documents = (starts >> DOCUMENT_SHIFT).astype(np.uint32)
        firsts = np.flatnonzero(is_first(documents))
        counts = np.diff(firsts, append=len(documents)).astype(np.uint32)
        self.documents, self.counts = documents[firsts], counts
        self._found = Occurrences(self.documents, self.counts, starts.astype(np.uint32))

    def occurrences(self, documents: "Numbers") -> Occurrences:
        """Return the occurrences in some ascending documents."""
        return self._found.kept(is_in(self._found.documents, documents))


def phrase_of_terms(terms: Sequence[TermMatches]) -> PhraseMatches:
    """Return the matches of a phrase by those of its terms: sooner where these are needed anyway, and are few."""
    having: Numbers | None = None
    for term in sorted(terms, key=lambda term: len(term.documents)):
        having = term.documents if having is None else having[is_in(having, term.documents)]
    assert having is not None, "a phrase has a term"
    return PhraseMatches(_side_by_side([(at, term.occurrences(having)) for at, term in enumerate(terms)]))


def phrase_in_parts(parts: Parts, phrase: Phrase, field: SearchField) -> PhraseMatches:
    """Return the matches of a phrase; of its frequent terms only those postings are read that are near the rare ones."""
    terms = [(SIGNS[field] + term).encode() for term in phrase.terms]
    names = [(term, phrase.is_prefix and at == len(terms) - 1) for at, term in enumerate(terms)]
    found = [_in_segment(part, names) + (np.uint64(part.base) << DOCUMENT_SHIFT) for part in parts.segments]
    if parts.has_waiting and all(parts.waiting.has(term, is_prefix=is_prefix) for term, is_prefix in names):
        waiting = [parts.occurrences(term, field, is_prefix=is_prefix) for term, is_prefix in names]
        found.append(_side_by_side(list(enumerate(waiting))))
    return PhraseMatches(np.concatenate(found) if found else np.empty(0, np.uint64))


def _in_segment(part: SegmentPart, names: Sequence[tuple[bytes, bool]]) -> "Starts":
    """Return where phrases begin in a segment: document and position. The rare terms are looked up first, and prefixes last."""
    nothing = np.empty(0, np.uint64)
    sizes = [-1 if is_prefix else part.estimate(term) for term, is_prefix in names]
    if not all(sizes):
        return nothing
    having: Numbers | None = None
    read: dict[int, tuple[list[PostingsPiece], Numbers]] = {}
    for at in sorted(range(len(names)), key=lambda at: (sizes[at] < 0, sizes[at])):
        term, is_prefix = names[at]
        near = having if having is not None and sizes[at] > _MANY_TIMES * len(having) else None
        pieces = part.pieces(term, is_prefix=is_prefix, near=near)
        documents = _joined([piece.documents for piece in pieces])
        read[at] = pieces, documents
        documents = np.unique(documents) if is_prefix else documents
        having = documents if having is None else having[is_in(having, documents)]
        if not len(having):
            return nothing
    assert having is not None, "a phrase has a term"
    found: list[tuple[int, Occurrences]] = []
    for at, (pieces, documents) in read.items():
        _, is_prefix = names[at]
        places = is_in(documents, having).nonzero()[0] if is_prefix else places_in(documents, having)
        counts, positions, _, _ = _read(pieces, places)
        found.append((at, Occurrences(documents[places], _joined(counts), _joined(positions))))
    return _side_by_side(found)


def _side_by_side(terms: "Sequence[tuple[int, Occurrences]]") -> "Starts":
    """Return where phrases begin that have these terms at these places."""
    starts: Starts | None = None
    for at, found in sorted(terms, key=lambda term: len(term[1].positions)):
        keys = found.documents.astype(np.uint64) << DOCUMENT_SHIFT
        if len(found.positions) > len(keys):
            keys = keys.repeat(found.counts)
        keys |= found.positions
        # Those too near the beginning would end up in the document before.
        keys = np.sort(keys[found.positions >= at] - np.uint64(at))
        starts = keys if starts is None else starts[is_in(starts, keys)]
        if not len(starts):
            break
    return np.empty(0, np.uint64) if starts is None else starts
