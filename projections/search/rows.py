"""The rows of the search index of one chat: their keys, and what is in them."""

from struct import Struct
from typing import Final, NamedTuple

import lmdb

from ..environment import Transaction
from ..keys import id_key, number

_STATE, _ROLE, _DOCUMENTS, _PENDING, _TERM = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_END: Final = b"\x00"
"""Ends a term in the key of a full block; no term contains it."""

BLOCK_DOCUMENTS: Final = 64
DOCUMENT: Final = Struct("<IIqII")
"""Length in terms, number of the role, `created_at`, segment and offset."""

_u32: Final = Struct(">I")
_state: Final = Struct(">QQQI")


class SearchState(NamedTuple):
    """
    How far the search index of a chat is.

    The documents before `inverted` are in postings, those from there to before `indexed` still lie as texts. `terms` is how
    many terms all of them have, and `roles` how many names.
    """

    indexed: int = 0
    inverted: int = 0
    terms: int = 0
    roles: int = 0


class SearchRows:
    """The rows of one chat in one transaction."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int) -> None:
        self.txn, self.table, self.chat_no = txn, table, chat_no
        self.prefix = number(chat_no)

    @property
    def state(self) -> SearchState:
        """How far the index is."""
        raw = self.txn.get(self.prefix + _STATE, db=self.table)
        return SearchState() if raw is None else SearchState(*_state.unpack(raw))

    def put_state(self, state: SearchState) -> None:
        """Note how far the index is."""
        self.txn.put(self.prefix + _STATE, _state.pack(*state), db=self.table)

    def role(self, name: str) -> int | None:
        """The number of a role; None when no message of the chat has it."""
        raw = self.txn.get(self.prefix + _ROLE + id_key(name), db=self.table)
        return None if raw is None else _u32.unpack(raw)[0]

    def put_role(self, name: str, role: int) -> None:
        """Give a role its number."""
        self.txn.put(self.prefix + _ROLE + id_key(name), _u32.pack(role), db=self.table)

    def documents(self, block: int) -> bytes:
        """The records of a block of documents, one after the other."""
        return self.txn.get(self.prefix + _DOCUMENTS + _u32.pack(block), b"", db=self.table)

    def put_documents(self, block: int, records: bytes) -> None:
        """Replace a block."""
        self.txn.put(self.prefix + _DOCUMENTS + _u32.pack(block), records, db=self.table)

    def all_documents(self) -> bytes:
        """The records of all documents, one after the other."""
        return b"".join(self._values(self.prefix + _DOCUMENTS))

    def put_pending(self, document: int, text: bytes) -> None:
        """Keep the terms of a document until there are enough to invert."""
        self.txn.put(self.prefix + _PENDING + _u32.pack(document), text, db=self.table)

    def pending(self) -> list[bytes]:
        """The documents that are not inverted yet, in order."""
        return self._values(self.prefix + _PENDING)

    def drop_pending(self, first: int, end: int) -> None:
        """Forget pending documents."""
        for document in range(first, end):
            self.txn.delete(self.prefix + _PENDING + _u32.pack(document), db=self.table)

    def postings(self, term: bytes) -> list[bytes]:
        """The rows of a term, in the order of their documents."""
        key = self.prefix + _TERM + term
        end = self.txn.get(key, db=self.table)
        if end is None:
            return []
        return [*self._values(key + _END), end]

    def prefixed_postings(self, start: bytes) -> list[bytes]:
        """The rows of all terms that begin with `start`."""
        return self._values(self.prefix + _TERM + start)

    def end(self, term: bytes) -> bytes:
        """The row of a term that is added to; empty when there is none."""
        return self.txn.get(self.prefix + _TERM + term, b"", db=self.table)

    def put_end(self, term: bytes, row: bytes) -> None:
        """Replace it. It stays, be it empty, where there are full blocks."""
        self.txn.put(self.prefix + _TERM + term, row, db=self.table)

    def put_block(self, term: bytes, first_document: int, row: bytes) -> None:
        """Add a full block."""
        self.txn.put(self.prefix + _TERM + term + _END + _u32.pack(first_document), row, db=self.table)

    def _values(self, prefix: bytes) -> list[bytes]:
        cursor = self.txn.cursor(self.table)
        values: list[bytes] = []
        if cursor.set_range(prefix):
            for key, value in cursor.iternext():
                if not key.startswith(prefix):
                    break
                values.append(value)
        return values
