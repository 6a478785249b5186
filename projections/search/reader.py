"""Reading the search index in one transaction: the documents of some chats, and which of them have words and phrases."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField
from chatledger.domain.search.query import Phrase, Word

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .documents import LENGTHS
from .indexer import SIGNS, landmarks_of_text
from .manifest import totals_of
from .parts import Part, SeveralParts, parts_of
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
    """The documents that have a term, or any that begins with it. `term`: the term with the sign of its field."""

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
    """The documents that have the terms of a phrase side by side; the position is that of the first."""

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
        of_having = Occurrences(documents[places], *_read(of_term, places))
        occurrences.append((at, of_having.sorted() if is_prefix else of_having))
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


class Matches(NamedTuple):
    """
    The documents that have a word or a phrase, in whatever field.

    Args:
        documents: Ascending (`uint32`).
        counts: How often each has it, in all fields (`uint32`).
        of_fields: Those of each field.
    """

    documents: "NDArray[np.uint32]"
    counts: "NDArray[np.uint32]"
    of_fields: Sequence[Occurring]


class SearchReader:
    """
    The search index of some chats in one transaction. Documents are numbered through.

    `chat_nos`: the chats that are searched; None: all.
    """

    def __init__(
        self, txn: Transaction, tables: Tables, chat_nos: Sequence[int] | None, fields: Sequence[SearchField] = (TEXT,)
    ) -> None:
        self._txn, self._tables, self.fields = txn, tables, fields
        self._totals = totals_of(txn, tables)
        self._parts = parts_of(txn, tables, self._totals, chat_nos)
        # Most chats lie in one part, whose documents are numbered as they are: nothing is split and joined there.
        self.facts = self._parts[0] if len(self._parts) == 1 else SeveralParts(self._parts)
        self.columns = [LENGTHS[field] for field in fields]
        """Those that have the lengths of the fields."""
        self._terms: dict[tuple[str, bool, SearchField], TermMatches] = {}
        self._is_narrow = chat_nos is not None

    def has(self, term: str, *, is_prefix: bool) -> bool:
        """Whether a term, or one that begins with it, may occur in a searched document; when it cannot, that is known soon."""
        for field in self.fields:
            if self._is_narrow:
                # Others may have the term, so the documents of these chats are looked at, which `matches` needs anyway.
                if len(self._term(term, field, is_prefix=is_prefix).documents):
                    return True
                continue
            signed = (SIGNS[field] + term).encode()
            # What waits is behind the segments, and looked at first: that takes no unpacking.
            if any(part.has(signed, is_prefix=is_prefix) for part in reversed(self._parts)):
                return True
        return False

    def first_place(self, term: str) -> tuple[int, int, int] | None:
        """Return where a message is that has a term in its text: number of the stream, segment and offset."""
        documents = self._term(term, TEXT, is_prefix=False).documents[:1]
        if not len(documents):
            return None
        (numbers, _), (segments, offsets) = self.facts.messages(documents), self.facts.places(documents)
        return int(numbers[0]), int(segments[0]), int(offsets[0])

    def size(self) -> tuple[int, float]:
        """Return the number of documents, at least one, and the average number of their terms in the fields."""
        if not self._is_narrow:
            totals = self._totals
            lengths = totals.text, totals.tools, totals.reasoning
            return totals.documents, sum(lengths[column] for column in self.columns) / totals.documents
        sizes = [part.size(self.columns) for part in self._parts]
        count = sum(documents for documents, _ in sizes)
        return count, sum(terms for _, terms in sizes) / count

    def _term(self, term: str, field: SearchField, *, is_prefix: bool) -> TermMatches:
        key = term, is_prefix, field
        matches = self._terms.get(key)
        if matches is None:
            signed = (SIGNS[field] + term).encode()
            matches = self._terms[key] = TermMatches(self._parts, signed, is_prefix=is_prefix)
        return matches

    def matches(self, leaf: Word | Phrase) -> Matches:
        """Return the documents that have a word or a phrase. The position of a phrase is that of its first term."""
        of_fields: list[Occurring] = []
        for field in self.fields:
            if isinstance(leaf, Phrase):
                of_fields.append(self._phrase(leaf, field))
            else:
                of_fields.append(self._term(leaf.term, field, is_prefix=leaf.is_prefix))
        if len(of_fields) == 1:
            return Matches(of_fields[0].documents, of_fields[0].counts, of_fields)
        every = np.concatenate([occurring.documents for occurring in of_fields])
        documents, places = np.unique(every, return_inverse=True)
        counts = np.bincount(places, np.concatenate([occurring.counts for occurring in of_fields]), len(documents))
        return Matches(documents, counts.astype(np.uint32), of_fields)

    def _phrase(self, phrase: Phrase, field: SearchField) -> PhraseMatches:
        if not self._is_narrow:
            return phrase_in_parts(self._parts, phrase, field)
        *before, last = phrase.terms
        terms = [self._term(term, field, is_prefix=False) for term in before]
        return phrase_of_terms([*terms, self._term(last, field, is_prefix=phrase.is_prefix)])

    def landmarks(self, chat_no: int, number: int, field: SearchField) -> Sequence[int]:
        """Return the landmarks of a long message: offsets of terms in its text."""
        return landmarks_of_text(self._txn, self._tables, chat_no, number, field)
