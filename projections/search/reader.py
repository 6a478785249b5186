"""Reading the search index in one transaction: the documents of some chats, and which of them have words and phrases."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField
from chatledger.domain.search.query import Phrase, Word
from chatledger.domain.search.tokens import LANDMARK_TERMS

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .indexer import SIGNS, landmarks_of_text
from .parts import Parts
from .terms import Occurring, PhraseMatches, TermMatches, phrase_in_parts, phrase_of_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

    Args:
        txn, tables: What is read.
        chat_nos: The chats that are searched; None: all.
        fields: The fields that are searched.
    """

    def __init__(
        self, txn: Transaction, tables: Tables, chat_nos: Sequence[int] | None, fields: Sequence[SearchField] = (TEXT,)
    ) -> None:
        self._txn, self._tables, self.fields = txn, tables, fields
        self.parts = Parts(txn, tables, chat_nos)
        """Facts of documents besides their terms."""
        self._terms: dict[tuple[str, bool, SearchField], TermMatches] = {}
        self._is_narrow = chat_nos is not None

    def has(self, term: str, *, is_prefix: bool) -> bool:
        """Whether a term, or one that begins with it, may occur in a searched document; when it cannot, that is known soon."""
        for field in self.fields:
            signed = (SIGNS[field] + term).encode()
            is_there = self.parts.may_wait(signed, is_prefix=is_prefix) or any(
                part.has(signed, is_prefix=is_prefix) for part in self.parts.segments
            )
            if is_there and not (self._is_narrow and self._is_elsewhere(term, field, is_prefix=is_prefix)):
                return True
        return False

    def _is_elsewhere(self, term: str, field: SearchField, *, is_prefix: bool) -> bool:
        """Whether none of the searched chats has a term that the index has."""
        return not len(self._term(term, field, is_prefix=is_prefix).documents)

    def _term(self, term: str, field: SearchField, *, is_prefix: bool) -> TermMatches:
        key = term, is_prefix, field
        found = self._terms.get(key)
        if found is None:
            signed = (SIGNS[field] + term).encode()
            found = self._terms[key] = TermMatches(self.parts, signed, field, is_prefix=is_prefix)
        return found

    def matches(self, leaf: Word | Phrase) -> Matches:
        """Return the documents that have a word or a phrase. The position of a phrase is that of its first term."""
        found: list[Occurring] = []
        for field in self.fields:
            if isinstance(leaf, Phrase):
                found.append(self._phrase(leaf, field))
            else:
                found.append(self._term(leaf.term, field, is_prefix=leaf.is_prefix))
        if len(found) == 1:
            return Matches(found[0].documents, found[0].counts, found)
        documents, places = np.unique(np.concatenate([one.documents for one in found]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([one.counts for one in found]), len(documents))
        return Matches(documents, counts.astype(np.uint32), found)

    def _phrase(self, phrase: Phrase, field: SearchField) -> PhraseMatches:
        if not self._is_narrow:
            return phrase_in_parts(self.parts, phrase, field)
        *before, last = phrase.terms
        terms = [self._term(term, field, is_prefix=False) for term in before]
        return phrase_of_terms([*terms, self._term(last, field, is_prefix=phrase.is_prefix)])

    def landmarks(self, chat_no: int, number: int, field: SearchField, term_count: int) -> Sequence[int]:
        """Return the landmarks of a message: offsets of terms in its text; none of a short one."""
        if term_count <= LANDMARK_TERMS:
            return ()
        return landmarks_of_text(self._txn, self._tables, chat_no, number, field)
