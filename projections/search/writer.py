"""Adding messages to the search index of a chat."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of, terms_of
from chatledger.domain.values import Message

from ..chains import Place
from ..environment import Transaction
from ..tables import Tables
from .currency import is_current, note_behind
from .rows import DOCUMENT, SearchRows, SearchState

if TYPE_CHECKING:
    from .batch import Batch

PENDING_DOCUMENTS: Final = 64
"""So many documents are inverted together: one alone would touch as many pages of the index as it has terms."""


PENDING_TERMS: Final = 1 << 16
"""More terms at a time do not wait: those that wait are all read again together."""


class SearchWriter:
    """
    The search index of one chat in a write transaction. What was added is in the tables after `flush`.

    A chat whose index lags behind, because it is being built, is left alone: whoever builds it will come to the new messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_no: int) -> None:
        self._txn, self._tables = txn, tables
        self._rows = SearchRows(txn, tables.search, chat_no)
        self._is_current = is_current(txn, tables)
        self._is_behind = False
        self._before = self._rows.state
        self._next = self._before.indexed
        self._texts: list[list[str]] = []
        self._records: list[bytes] = []
        self._roles: dict[str, int] = {}
        self._role_count = self._before.roles

    @property
    def state(self) -> SearchState:
        """How far the index was before."""
        return self._before

    def add(self, message: Message, ordinal: int, place: Place) -> None:
        """Take the next message in, which is at that place of the chains."""
        if ordinal != self._next or not self._is_current:
            if not self._is_behind:
                note_behind(self._txn, self._tables)
                self._is_behind = True
            return
        self._next += 1
        terms = terms_of(message.text)
        if len(terms) > LANDMARK_TERMS:
            self._rows.put_landmarks(ordinal, landmarks_of(message.text))
        self._texts.append(terms)
        self._records.append(DOCUMENT.pack(len(terms), self._role(message.name), message.created_at, *place))

    def flush(self) -> None:
        """Write what was added since the last flush."""
        if not self._texts:
            return
        before = self._before
        self._rows.add_documents(before.indexed, b"".join(self._records))
        terms = before.terms + sum(map(len, self._texts))
        after = SearchState(self._next, before.inverted, terms, self._role_count)
        if after.indexed - after.inverted < PENDING_DOCUMENTS and terms - before.terms < PENDING_TERMS:
            self._put_pending(self._texts)
        else:
            self._invert_pending(self._texts)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self._before = after
        self._texts, self._records = [], []

    def take(self, batch: "Batch") -> None:
        """Write the next documents, which are inverted already."""
        from .inversion import add_postings

        before = self._before
        assert not self._texts, "what was added is flushed before"
        assert batch.first_document == before.indexed, "documents follow those that were taken before"
        self._rows.add_documents(before.indexed, batch.records([self._role(name) for name in batch.names]))
        for document, landmarks in batch.landmarks:
            self._rows.put_landmarks(document, landmarks)
        end = before.indexed + batch.document_count
        after = SearchState(end, before.inverted, before.terms + batch.term_count, self._role_count)
        if after.indexed - after.inverted < PENDING_DOCUMENTS and batch.term_count < PENDING_TERMS:
            self._put_pending(batch.texts)
        else:
            if before.inverted < before.indexed:
                self._invert_pending([])
            add_postings(self._rows, batch.inverted, is_first=not batch.first_document)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self._before, self._next = after, end

    def _put_pending(self, texts: Sequence[Sequence[str]]) -> None:
        for document, terms in enumerate(texts, self._before.indexed):
            self._rows.put_pending(document, text_of(terms))

    def _invert_pending(self, texts: Sequence[Sequence[str]]) -> None:
        """Invert the documents that wait, and those that follow."""
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .inversion import add_postings, invert_terms

        waiting = [*map(terms_in, self._rows.pending()), *texts]
        self._rows.drop_pending(self._before.inverted, self._before.indexed)
        first = self._before.inverted
        add_postings(self._rows, invert_terms(waiting, first_document=first), is_first=not first)

    def _role(self, name: str) -> int:
        known = self._roles.get(name)
        if known is None:
            known = self._rows.role(name)
            if known is None:
                known = self._role_count
                self._role_count += 1
                self._rows.put_role(name, known)
            self._roles[name] = known
        return known


def text_of(terms: Sequence[str]) -> bytes:
    """The terms of a document as one text, in which each stands between two NULs, so that a term can be looked for."""
    return "\0".join(["", *terms, ""]).encode() if terms else b""


def terms_in(text: bytes) -> list[str]:
    """The terms of such a text."""
    return text.decode().split("\0")[1:-1] if text else []
