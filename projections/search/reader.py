"""Reading the search index in one transaction: the documents of some chats, and which of them have words and phrases."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField
from chatledger.domain.search.query import Phrase, Word

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .documents import LENGTHS
from .indexer import SIGNS, landmarks_of_text
from .manifest import totals_of
from .parts import SeveralParts, parts_of
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
