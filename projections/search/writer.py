"""Adding messages to the search index of a chat."""

from collections import defaultdict
from typing import Final

from chatledger.domain.search.tokens import terms_of
from chatledger.domain.values import Message

from ..chains import Place
from ..environment import Transaction
from ..tables import Tables
from .currency import is_current, note_behind
from .postings import BLOCK_OCCURRENCES, DOC_SHIFT, blocks_of, occurrences_of, pack, unpack
from .rows import BLOCK_DOCUMENTS, DOCUMENT, SearchRows, SearchState

PENDING_DOCUMENTS: Final = 64
"""So many documents are inverted together: one alone would touch as many pages of the index as it has terms."""
_END_BYTES: Final = 1_800


class SearchWriter:
    """
    The search index of one chat in a write transaction. What was added is in the tables after `flush`.

    A chat whose index lags behind, because it is being built, is left alone: whoever builds it will come to the new messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_no: int) -> None:
        self._txn, self._tables = txn, tables
        self._rows = SearchRows(txn, tables.search, chat_no)
        self._is_current = is_current(txn, tables)
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
            note_behind(self._txn, self._tables)
            return
        self._next += 1
        terms = terms_of(message.text)
        self._texts.append(terms)
        self._records.append(DOCUMENT.pack(len(terms), self._role(message.name), message.created_at, *place))

    def flush(self) -> None:
        """Write what was added since the last flush."""
        if not self._texts:
            return
        before = self._before
        self._put_documents(before.indexed)
        terms = before.terms + sum(map(len, self._texts))
        after = SearchState(self._next, before.inverted, terms, self._role_count)
        if after.indexed - after.inverted < PENDING_DOCUMENTS:
            for document, text in enumerate(self._texts, before.indexed):
                self._rows.put_pending(document, text_of(text))
        else:
            texts = [*map(terms_in, self._rows.pending()), *self._texts]
            self._rows.drop_pending(before.inverted, before.indexed)
            self._invert(texts, before.inverted)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self._before = after
        self._texts, self._records = [], []

    def _put_documents(self, first: int) -> None:
        records = self._records
        block, offset = divmod(first, BLOCK_DOCUMENTS)
        kept = self._rows.documents(block)[: offset * DOCUMENT.size] if offset else b""
        at = 0
        while at < len(records):
            end = at + BLOCK_DOCUMENTS - offset
            self._rows.put_documents(block, kept + b"".join(records[at:end]))
            block, offset, kept, at = block + 1, 0, b"", end

    def _invert(self, texts: list[list[str]], first: int) -> None:
        """Add documents to the postings of their terms."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for document, terms in enumerate(texts, first):
            for occurrence, term in enumerate(terms, document << DOC_SHIFT):
                found[term].append(occurrence)
        for term in sorted(found):
            self._add_postings(term.encode(), found[term])

    def _add_postings(self, term: bytes, occurrences: list[int]) -> None:
        rows = self._rows
        end = rows.end(term)
        if len(end) < _END_BYTES and len(occurrences) <= BLOCK_OCCURRENCES:
            rows.put_end(term, end + pack(occurrences))
            return
        if end:
            occurrences = [*occurrences_of(unpack([end])).tolist(), *occurrences]
        blocks, rest = blocks_of(occurrences)
        for block in blocks:
            rows.put_block(term, block[0] >> DOC_SHIFT, pack(block))
        rows.put_end(term, pack(rest) if rest else b"")

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


def text_of(terms: list[str]) -> bytes:
    """The terms of a document as one text, in which each stands between two NULs, so that a term can be looked for."""
    return "\0".join(["", *terms, ""]).encode() if terms else b""


def terms_in(text: bytes) -> list[str]:
    """The terms of such a text."""
    return text.decode().split("\0")[1:-1] if text else []
