"""Reading one field of the search indexes of chats: where words and phrases occur in it."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import lmdb
import numpy as np

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import Phrase, Word
from chatledger.domain.search.tokens import LANDMARK_TERMS

from ..lmdb.environment import Transaction
from .indexer import terms_in
from .postings import (
    DOC_SHIFT,
    Part,
    Postings,
    is_first,
    is_in,
    occurrences_in,
    occurrences_of,
    occurrences_of_each,
    unpack_each,
    unpack_parts,
)
from .rows import BLOCK_DOCUMENTS, LENGTH, SearchRows, SearchState, length_blocks, postings_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT: Final = np.uint64(DOC_SHIFT)
_LENGTH: Final = np.dtype([("document", "<u4"), ("length", "<u4")])
"""As `LENGTH` packs it."""
_JOINED_BYTES: Final = 2048
_MANY_TIMES: Final = 8
"""When a term occurs so many times as often, few of its occurrences are looked at."""


class Chats(NamedTuple):
    """
    The chats that are read in a transaction, whose documents are numbered through.

    Args:
        numbers: Of the chats.
        bases: How many documents the chats before each of them have.
    """

    txn: Transaction
    table: "lmdb._Database"
    numbers: Sequence[int]
    bases: Sequence[int]

    def place(self, document: int) -> tuple[int, int]:
        """The chat that a document is of, as a place in the list of all, and its number there."""
        at = bisect_right(self.bases, document) - 1
        return at, document - self.bases[at]

    def owners(self, documents: "NDArray[np.uint64]") -> "NDArray[np.int64]":
        """The chats that documents are of, as places in the list of all."""
        if len(self.bases) == 1:
            return np.zeros(len(documents), np.int64)
        return np.searchsorted(np.array(self.bases, dtype=np.uint64), documents, side="right") - 1


class FieldReader:
    """One field of several chats, read as one."""

    def __init__(self, chats: Chats, field: SearchField, prefixes: Sequence[bytes], found: list[SearchState]) -> None:
        self.field: SearchField = field
        self._chats, self._states = chats, found
        self._txn, self._table, self._bases = chats.txn, chats.table, chats.bases
        self._prefixes = prefixes
        self._rows: dict[int, SearchRows] = {}
        self._pending: dict[int, list[bytes]] = {}
        self._sources: dict[tuple[str, bool], list[Part]] = {}
        self._phrases: dict[Phrase, NDArray[np.uint64]] = {}
        # The chats with texts that are not inverted yet.
        self._waiting = [at for at, state in enumerate(found) if state.indexed > state.inverted]

    @property
    def term_count(self) -> int:
        """How many terms all documents have."""
        return sum([state.terms for state in self._states])

    def _of(self, at: int) -> SearchRows:
        rows = self._rows.get(at)
        if rows is None:
            rows = self._rows[at] = SearchRows(self._txn, self._table, self._chats.numbers[at], self.field)
        return rows

    def source(self, term: str, *, is_prefix: bool) -> list[Part]:
        """Return the packed occurrences of a term, or of all that begin with it, in the order of chats."""
        key = term, is_prefix
        if key not in self._sources:
            self._sources[key] = self._prefixed(term) if is_prefix else self._exact(term)
        return self._sources[key]

    def _exact(self, term: str) -> list[Part]:
        raw = term.encode()
        rows = postings_of(self._txn, self._table, self._prefixes, raw)
        late = self._late(b"\0" + raw + b"\0", term, is_prefix=False)
        return [
            Part(self._bases[at], rows.get(at, ()), late.get(at, ()))
            for at in (sorted({*rows, *late}) if late else rows)
        ]

    def _prefixed(self, term: str) -> list[Part]:
        raw = term.encode()
        rows = {at: self._of(at).prefixed_postings(raw) for at, state in enumerate(self._states) if state.indexed}
        late = self._late(b"\0" + raw, term, is_prefix=True)
        return [Part(self._bases[at], found, late.get(at, ())) for at, found in rows.items() if found or at in late]

    def _late(self, needle: bytes, term: str, *, is_prefix: bool) -> dict[int, list[int]]:
        """The occurrences in documents that are not inverted yet, by chat."""
        found: dict[int, list[int]] = {}
        for at in self._waiting:
            texts = self._texts(at)
            having = [place for place, text in enumerate(texts) if needle in text]
            if having:
                documents = self._of(at).pending_documents(self._states[at])
                found[at] = [
                    (documents[place] << DOC_SHIFT) + position
                    for place in having
                    for position, known in enumerate(terms_in(texts[place]))
                    if (known.startswith(term) if is_prefix else known == term)
                ]
        return found

    def _texts(self, at: int) -> list[bytes]:
        if at not in self._pending:
            self._pending[at] = self._of(at).pending()
        return self._pending[at]

    def matches(self, leaf: Word | Phrase) -> Postings:
        """Return the occurrences of a word or a phrase; the position of a phrase is that of its first term."""
        if isinstance(leaf, Phrase):
            return _postings(self.starts(leaf))
        if leaf.is_prefix:
            return _postings(np.sort(occurrences_of(unpack_parts(self._in_long_rows(leaf.term, is_prefix=True)))))
        return unpack_parts(self.source(leaf.term, is_prefix=False))

    def matches_of_words(self, words: Sequence[Word]) -> list[Postings]:
        """Return the occurrences of words, none of them a prefix; sooner than one by one."""
        return unpack_each([self.source(word.term, is_prefix=False) for word in words])

    def starts(self, phrase: Phrase) -> "NDArray[np.uint64]":
        """Return the occurrences at which a phrase begins, ascending."""
        if phrase not in self._phrases:
            self._phrases[phrase] = self._side_by_side(phrase)
        return self._phrases[phrase]

    def _side_by_side(self, phrase: Phrase) -> "NDArray[np.uint64]":
        last = len(phrase.terms) - 1
        names = [(term, phrase.is_prefix and at == last) for at, term in enumerate(phrase.terms)]
        terms = [_PhraseTerm(at, self._in_long_rows(*name), is_prefix=name[1]) for at, name in enumerate(names)]
        # The rare ones first; and prefixes, which are packed in many rows, mostly last.
        first, second, *others = sorted(terms, key=lambda term: term.size)
        if second.size < _MANY_TIMES * first.size + _JOINED_BYTES:
            both = occurrences_of_each([first.parts, second.parts])  # sooner than one by one
            starts, among = first.starts(both[0]), second.starts(both[1])
            starts = starts[is_in(starts, among)]
        else:
            starts = first.starts(occurrences_of(unpack_parts(first.parts)))
            others.insert(0, second)
        for term in others:
            if len(starts):
                starts = starts[is_in(starts, term.starts(term.occurrences_near(starts)))]
        return starts

    def _in_long_rows(self, term: str, is_prefix: bool) -> list[Part]:  # noqa: FBT001  # as in a leaf
        """Return the occurrences of a term, or of all that begin with it, in rows that are not short."""
        source = self.source(term, is_prefix=is_prefix)
        return [part._replace(rows=_joined(part.rows)) for part in source] if is_prefix else source

    def landmarks(self, document: int, term_count: int) -> Sequence[int]:
        """Return the landmarks of a document: offsets of terms in its text; none of a short one."""
        if term_count <= LANDMARK_TERMS:
            return ()
        at, number = self._chats.place(document)
        return self._of(at).landmarks(number)

    def lengths(self, documents: "NDArray[np.uint64]") -> "NDArray[np.uint32]":
        """How many terms the field of each of ascending documents has, where that is kept: 0 of a document without it."""
        owners = self._chats.owners(documents)
        bases = np.array(self._bases, dtype=np.int64)
        blocks = (documents.view(np.int64) - bases[owners]) // BLOCK_DOCUMENTS
        firsts = np.flatnonzero(is_first(owners << DOC_SHIFT | blocks))
        owners = owners[firsts]
        names = zip(map(self._prefixes.__getitem__, owners.tolist()), blocks[firsts].tolist(), strict=True)
        rows = length_blocks(self._txn, self._table, names)
        kept = np.frombuffer(b"".join(rows), _LENGTH)
        counts = np.fromiter(map(len, rows), np.int64, len(rows)) // LENGTH.size
        having = np.repeat(bases[owners], counts) + kept["document"]
        found = np.zeros(len(documents), np.uint32)
        places = np.searchsorted(documents, having.astype(np.uint64))
        places[places == len(documents)] = 0
        is_wanted = documents[places] == having.astype(np.uint64)
        found[places[is_wanted]] = kept["length"][is_wanted]
        return found


class _PhraseTerm(NamedTuple):
    """A term of a phrase: which one it is, and where it occurs, still packed; of a prefix in the order of terms."""

    at: int
    parts: Sequence[Part]
    is_prefix: bool

    @property
    def size(self) -> int:
        """About how often it occurs: the bytes of its rows."""
        return sum(len(row) for part in self.parts for row in part.rows)

    def occurrences_near(self, starts: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
        """Return its occurrences, at least those in the documents of the starts."""
        postings = unpack_parts(self.parts)
        if self.is_prefix or len(postings.documents) <= _MANY_TIMES * len(starts):
            return occurrences_of(postings)
        documents = starts >> _SHIFT
        return occurrences_in(postings, documents[is_first(documents)])

    def starts(self, occurrences: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
        """Return the starts of a phrase that has these occurrences of the term, ascending."""
        if self.at:
            # Those too near the beginning would end up in the document before, and the first of all become the largest.
            occurrences = occurrences[occurrences.astype(np.uint32) >= self.at] - np.uint64(self.at)
        return np.sort(occurrences) if self.is_prefix else occurrences


def _joined(rows: Sequence[bytes]) -> list[bytes]:
    """Join rows into fewer and longer ones: chunks that are alike and follow each other are unpacked together."""
    found: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row)
        if size > _JOINED_BYTES:
            found.append(b"".join(waiting))
            waiting, size = [], 0
    return [*found, b"".join(waiting)]


def _postings(occurrences: "NDArray[np.uint64]") -> Postings:
    documents = occurrences >> _SHIFT
    firsts = np.flatnonzero(is_first(documents))
    ends = np.empty_like(firsts)
    ends[:-1], ends[-1:] = firsts[1:], len(documents)
    counts = ends - firsts
    return Postings(documents[firsts], counts.astype(np.uint32), occurrences.astype(np.uint32))
