"""Reading the search indexes of chats: what the documents are, and which of them have words and phrases."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import lmdb
import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField
from chatledger.domain.search.query import Phrase, Word

from ..lmdb.environment import Transaction
from .field_reader import Chats, FieldReader
from .postings import Postings
from .rows import BLOCK_DOCUMENTS, DOCUMENT, SearchRows, document_blocks, prefix_of, states

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD: Final = np.dtype(
    [("length", "<u4"), ("role", "<u4"), ("created_at", "<i8"), ("segment", "<u4"), ("offset", "<u4")]
)
"""Of a document, as `DOCUMENT` packs it."""
_SHARE: Final = 150
"""Reading one document takes as long as reading so many in a row."""
_FEW: Final = 32
"""Reading so many documents one by one takes as long as reading them together."""


class Matches(NamedTuple):
    """
    The documents that have a word or a phrase, in whatever field.

    Args:
        documents: Ascending (`uint64`).
        counts: How often each has it, in all fields (`uint32`).
        of_fields: The occurrences in each field.
    """

    documents: "NDArray[np.uint64]"
    counts: "NDArray[np.uint32]"
    of_fields: Sequence[Postings]


class SearchReader:
    """
    The search indexes of several chats in one transaction, read as one.

    Documents are numbered through, those of the last chat first: of two that match alike the one with the higher number
    is better, which is the later one of a chat, or that of the chat that was named first.
    """

    def __init__(
        self,
        txn: Transaction,
        table: "lmdb._Database",
        chat_nos: Sequence[int],
        fields: Sequence[SearchField] = (TEXT,),
    ) -> None:
        self._txn, self._table = txn, table
        self._chat_nos = chat_nos[::-1]
        self._prefixes = [prefix_of(chat_no, TEXT) for chat_no in self._chat_nos]
        self._rows: dict[int, SearchRows] = {}
        self.states = states(txn, table, self._prefixes)
        """The states of the texts: every document has one."""
        self._bases = list(accumulate([state.indexed for state in self.states[:-1]], initial=0))
        self._chats = Chats(txn, table, self._chat_nos, self._bases)
        self.fields = list(map(self._field, fields))
        """Those that are searched."""

    def _field(self, field: SearchField) -> FieldReader:
        if field == TEXT:
            return FieldReader(self._chats, field, self._prefixes, self.states)
        prefixes = [prefix_of(chat_no, field) for chat_no in self._chat_nos]
        return FieldReader(self._chats, field, prefixes, states(self._txn, self._table, prefixes))

    def size(self) -> tuple[int, float]:
        """Return the number of documents, at least one, and the average number of their terms in all fields."""
        total = sum([state.indexed for state in self.states])
        return total, sum([field.term_count for field in self.fields]) / total

    def chat_no(self, at: int) -> int:
        """The number of a chat."""
        return self._chat_nos[at]

    def role(self, at: int, name: str) -> int | None:
        """The number of a role; None when no message of the chat has it."""
        return self._of(at).role(name)

    def owners(self, documents: "NDArray[np.uint64]") -> "NDArray[np.int64]":
        """The chats that documents are of, as places in the list of all."""
        return self._chats.owners(documents)

    def _of(self, at: int) -> SearchRows:
        rows = self._rows.get(at)
        if rows is None:
            rows = self._rows[at] = SearchRows(self._txn, self._table, self._chat_nos[at])
        return rows

    def has(self, term: str, *, is_prefix: bool) -> bool:
        """Whether a term, or one that begins with it, occurs anywhere."""
        for field in self.fields:  # noqa: SIM110  # sooner than `any`
            if field.source(term, is_prefix=is_prefix):
                return True
        return False

    def matches(self, leaf: Word | Phrase) -> Matches:
        """Return the documents that have a word or a phrase. The position of a phrase is that of its first term."""
        return _merged([field.matches(leaf) for field in self.fields])

    def matches_of_words(self, words: Sequence[Word]) -> list[Matches]:
        """Return those that have words, none of them a prefix; sooner than one by one."""
        found = [field.matches_of_words(words) for field in self.fields]
        return [_merged(of_fields) for of_fields in zip(*found, strict=True)]

    def lengths(self, documents: "NDArray[np.uint64]", records: "NDArray[np.void]") -> "list[NDArray[np.uint32]]":
        """Return how many terms ascending documents, whose records these are, have in each field."""
        return [records["length"] if field.field == TEXT else field.lengths(documents) for field in self.fields]

    def records(self, documents: "NDArray[np.uint64]") -> "NDArray[np.void]":
        """The records of ascending documents: length, role, created_at, segment, offset."""
        if len(self._chat_nos) == 1 and len(documents) * _SHARE > self.states[0].indexed:
            everything = np.frombuffer(self._of(0).all_documents(), RECORD)
            # A tenth of the time of `everything[documents]`.
            return everything if len(everything) == len(documents) else everything.take(documents.view(np.int64))
        if len(documents) <= _FEW:
            return np.frombuffer(b"".join(map(self._record, documents.tolist())), RECORD)
        owners = self.owners(documents)
        blocks, places = np.divmod(documents.view(np.int64) - np.array(self._bases)[owners], BLOCK_DOCUMENTS)
        is_first = np.append(True, (blocks[1:] != blocks[:-1]) | (owners[1:] != owners[:-1]))
        firsts = np.flatnonzero(is_first)
        names = zip(map(self._prefixes.__getitem__, owners[firsts].tolist()), blocks[firsts].tolist(), strict=True)
        rows = document_blocks(self._txn, self._table, names)
        starts = np.cumsum([0, *map(len, rows[:-1])]) // DOCUMENT.size
        found: NDArray[np.void] = np.frombuffer(b"".join(rows), RECORD).take(starts[np.cumsum(is_first) - 1] + places)
        return found

    def _record(self, document: int) -> bytes:
        at, number = self._chats.place(document)
        block, place = divmod(number, BLOCK_DOCUMENTS)
        start, end = place * DOCUMENT.size, (place + 1) * DOCUMENT.size
        record = self._of(at).documents(block)[start:end]
        if len(record) != DOCUMENT.size:
            msg = f"there is no document {document}"
            raise LookupError(msg)
        return record


def _merged(of_fields: Sequence[Postings]) -> Matches:
    if len(of_fields) == 1:
        return Matches(of_fields[0].documents, of_fields[0].counts, of_fields)
    documents, places = np.unique(np.concatenate([one.documents for one in of_fields]), return_inverse=True)
    counts = np.bincount(places, np.concatenate([one.counts for one in of_fields]), len(documents))
    return Matches(documents, counts.astype(np.uint32), of_fields)
