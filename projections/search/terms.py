"""The documents that have a term or a phrase in one field, and where they have it."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import Phrase

from .indexer import SIGNS
from .parts import Part
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

    def __init__(self, parts: Sequence[Part], term: bytes, *, is_prefix: bool) -> None:
        self._is_prefix = is_prefix
        based = [(part.base, piece) for part in parts for piece in part.pieces(term, is_prefix=is_prefix)]
        self._pieces = [piece for _, piece in based]
        self._every = _joined([piece.documents + np.uint32(base) if base else piece.documents for base, piece in based])
        self.documents, self.counts = self._every, _joined([piece.frequencies() for piece in self._pieces])
        if is_prefix:  # a document is there once for each of its terms
            self.documents, places = np.unique(self._every, return_inverse=True)
            self.counts = np.bincount(places, self.counts, len(self.documents)).astype(np.uint32)

    def occurrences(self, documents: "Numbers") -> Occurrences:
        """Return the occurrences in some ascending documents."""
        is_prefix = self._is_prefix
        places = is_in(self._every, documents).nonzero()[0] if is_prefix else places_in(self._every, documents)
        occurrences = Occurrences(self._every[places], *_read(self._pieces, places))
        return occurrences.sorted() if is_prefix else occurrences


def _read(pieces: "Sequence[PostingsPiece | Occurrences]", places: "NDArray[np.int64]") -> "tuple[Numbers, Numbers]":
    """Return how often postings of pieces occur and where, given by their ascending places among those of all."""
    if len(pieces) == 1 and len(places):
        return pieces[0].taken(places)
    sizes = [len(piece.documents) for piece in pieces]
    ends = np.array(list(accumulate(sizes)), np.int64)
    counts: list[Numbers] = []
    positions: list[Numbers] = []
    start = last = 0
    for piece, size, stop in zip(pieces, sizes, places.searchsorted(ends).tolist(), strict=True):
        if last < stop:  # others are not unpacked
            of_piece = piece.taken(places[last:stop] - start)
            counts.append(of_piece[0])
            positions.append(of_piece[1])
        start, last = start + size, stop
    return _joined(counts), _joined(positions)


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
        self._occurrences = Occurrences(self.documents, self.counts, starts.astype(np.uint32))

    def occurrences(self, documents: "Numbers") -> Occurrences:
        """Return the occurrences in some ascending documents."""
        return self._occurrences.filtered(is_in(self.documents, documents))


def phrase_of_terms(terms: Sequence[TermMatches]) -> PhraseMatches:
    """Return the matches of a phrase by those of its terms: sooner where these are needed anyway, and are few."""
    having: Numbers | None = None
    for term in sorted(terms, key=lambda term: len(term.documents)):
        having = term.documents if having is None else having[is_in(having, term.documents)]
    assert having is not None, "a phrase has a term"
    return PhraseMatches(_side_by_side([(at, term.occurrences(having)) for at, term in enumerate(terms)]))


def phrase_in_parts(parts: Sequence[Part], phrase: Phrase, field: SearchField) -> PhraseMatches:
    """Return the matches of a phrase; of its frequent terms only those postings are read that are near the rare ones."""
    terms = [(SIGNS[field] + term).encode() for term in phrase.terms]
    names = [(term, phrase.is_prefix and at == len(terms) - 1) for at, term in enumerate(terms)]
    starts = [_in_part(part, names) + (np.uint64(part.base) << DOCUMENT_SHIFT) for part in parts]
    return PhraseMatches(np.concatenate(starts) if starts else np.empty(0, np.uint64))


def _in_part(part: Part, names: Sequence[tuple[bytes, bool]]) -> "Starts":
    """Return where phrases begin in a part: document and position."""
    nothing = np.empty(0, np.uint64)
    sizes = [-1 if is_prefix else part.estimate(term) for term, is_prefix in names]
    if not all(sizes):
        return nothing
    having: Numbers | None = None
    read: dict[int, tuple[Sequence[PostingsPiece | Occurrences], Numbers]] = {}
    # Rare terms first: they narrow what is read of the others. Prefixes last: nobody counts their postings beforehand.
    for at in sorted(range(len(names)), key=lambda at: (sizes[at] < 0, sizes[at])):
        term, is_prefix = names[at]
        near = having if having is not None and sizes[at] > _MANY_TIMES * len(having) else None
        pieces: Sequence[PostingsPiece | Occurrences] = part.pieces(term, is_prefix=is_prefix, near=near)
        documents = _joined([piece.documents for piece in pieces])
        read[at] = pieces, documents
        documents = np.unique(documents) if is_prefix else documents
        having = documents if having is None else having[is_in(having, documents)]
        if not len(having):
            return nothing
    assert having is not None, "a phrase has a term"
    occurrences: list[tuple[int, Occurrences]] = []
    for at, (of_term, documents) in read.items():
        _, is_prefix = names[at]
        places = is_in(documents, having).nonzero()[0] if is_prefix else places_in(documents, having)
        occurrences.append((at, Occurrences(documents[places], *_read(of_term, places))))
    return _side_by_side(occurrences)


def _side_by_side(terms: "Sequence[tuple[int, Occurrences]]") -> "Starts":
    """Return where phrases begin that have these terms at these places."""
    starts: Starts | None = None
    for at, occurrences in sorted(terms, key=lambda term: len(term[1].positions)):
        keys = occurrences.documents.astype(np.uint64) << DOCUMENT_SHIFT
        if len(occurrences.positions) > len(keys):
            keys = keys.repeat(occurrences.counts)
        keys |= occurrences.positions
        # Those too near the beginning would end up in the document before.
        keys = np.sort(keys[occurrences.positions >= at] - np.uint64(at))
        starts = keys if starts is None else starts[is_in(starts, keys)]
        if not len(starts):
            break
    return np.empty(0, np.uint64) if starts is None else starts
