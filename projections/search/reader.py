"""Reading the search index of a chat: where words and phrases occur, and what the documents are."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import lmdb
import numpy as np

from chatledger.domain.search.query import Phrase, Word

from ..environment import Transaction
from .postings import DOC_SHIFT, Postings, occurrences_of, unpack
from .rows import BLOCK_DOCUMENTS, DOCUMENT, SearchRows, SearchState
from .writer import terms_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT: Final = np.uint64(DOC_SHIFT)
_RECORD: Final = np.dtype(
    [
        ("length", "<u4"),
        ("role", "<u4"),
        ("created_at", "<i8"),
        ("segment", "<u4"),
        ("offset", "<u4"),
    ]
)
_SHARE: Final = 150
"""Reading one document takes as long as reading so many in a row."""


class Matches(NamedTuple):
    """Ascending documents (`uint64`), and how often a word or phrase occurs in each (`uint32`)."""

    documents: "NDArray[np.uint64]"
    counts: "NDArray[np.uint32]"


class SearchReader:
    """The search index of one chat in one transaction."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int) -> None:
        self.chat_no = chat_no
        self._rows = SearchRows(txn, table, chat_no)

    @cached_property
    def state(self) -> SearchState:
        """How far the index is."""
        return self._rows.state

    def role(self, name: str) -> int | None:
        """The number of a role; None when no message of the chat has it."""
        return self._rows.role(name)

    def matches(self, leaf: Word | Phrase) -> Matches:
        """Where a word or a phrase occurs."""
        if isinstance(leaf, Word):
            postings = self._word(leaf.term, is_prefix=leaf.is_prefix)
            return Matches(postings.documents, postings.counts)
        return self._phrase(leaf)

    def records(self, documents: "NDArray[np.uint64]") -> "NDArray[np.void]":
        """The records of ascending documents: length, role, created_at, segment, offset."""
        if len(documents) * _SHARE > self.state.indexed:
            everything = np.frombuffer(self._rows.all_documents(), _RECORD)
            # A tenth of the time of `everything[documents]`.
            return everything if len(everything) == len(documents) else everything.take(documents.view(np.int64))
        raw = b"".join(
            self._rows.documents(int(document) // BLOCK_DOCUMENTS)[at : at + DOCUMENT.size]
            for document in documents.tolist()
            for at in (int(document) % BLOCK_DOCUMENTS * DOCUMENT.size,)
        )
        return np.frombuffer(raw, _RECORD)

    @cached_property
    def _pending(self) -> list[bytes]:
        return self._rows.pending() if self.state.indexed > self.state.inverted else []

    def _word(self, term: str, *, is_prefix: bool) -> Postings:
        raw = term.encode()
        if not is_prefix:
            rows = self._rows.postings(raw)
            late = self._late(b"\0" + raw + b"\0", term, is_prefix=False)
            return _extended(unpack(rows), late) if late else unpack(rows)
        found = occurrences_of(unpack(self._rows.prefixed_postings(raw)))
        late = self._late(b"\0" + raw, term, is_prefix=True)
        return _postings(np.sort(np.concatenate((found, np.array(late, dtype=np.uint64)))))

    def _late(self, needle: bytes, term: str, *, is_prefix: bool) -> list[int]:
        """The occurrences in documents that are not inverted yet."""
        found: list[int] = []
        for document, text in enumerate(self._pending, self.state.inverted):
            if needle in text:
                base = document << DOC_SHIFT
                terms = terms_in(text)
                found.extend(
                    base + at
                    for at, known in enumerate(terms)
                    if (known.startswith(term) if is_prefix else known == term)
                )
        return found

    def _phrase(self, phrase: Phrase) -> Matches:
        last = len(phrase.terms) - 1
        parts = [self._word(term, is_prefix=phrase.is_prefix and at == last) for at, term in enumerate(phrase.terms)]
        order = sorted(range(len(parts)), key=lambda at: len(parts[at].positions))
        starts = _moved_back(parts[order[0]], order[0])
        for at in order[1:]:
            if not len(starts):
                break
            starts = _common(starts, _moved_back(parts[at], at))
        postings = _postings(starts)
        return Matches(postings.documents, postings.counts)


def is_in(values: "NDArray[np.uint64]", among: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Which of these are among those. Both ascend."""
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.searchsorted(among, values)
    places[places == len(among)] = 0
    found: NDArray[np.bool_] = among[places] == values
    return found


def _moved_back(postings: Postings, count: int) -> "NDArray[np.uint64]":
    """Where a phrase begins that has an occurrence as its term number `count`."""
    occurrences = occurrences_of(postings)
    if count:
        # Those too near the beginning would end up in the document before, and the first of all become the largest.
        occurrences = occurrences[postings.positions >= count]
    return occurrences - np.uint64(count)


def _common(few: "NDArray[np.uint64]", many: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    return few[is_in(few, many)]


def _postings(occurrences: "NDArray[np.uint64]") -> Postings:
    documents = occurrences >> _SHIFT
    is_first = np.empty(len(documents), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(documents[1:], documents[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    counts = np.diff(np.append(firsts, len(documents)))
    return Postings(documents[firsts], counts.astype(np.uint32), occurrences.astype(np.uint32))


def _extended(postings: Postings, late: Sequence[int]) -> Postings:
    more = _postings(np.array(late, dtype=np.uint64))
    return Postings(
        np.concatenate((postings.documents, more.documents)),
        np.concatenate((postings.counts, more.counts)),
        np.concatenate((postings.positions, more.positions)),
    )
