"""The rows of the search index of one chat: their keys, and what is in them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

import lmdb

from chatledger.domain.search.fields import REASONING, TEXT, TOOLS, SearchField

from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import id_key, number

_STATE, _ROLE, _DOCUMENTS, _PENDING, _TERM, _LANDMARKS = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"
_LENGTHS: Final = b"\x07"
_FIELDS: Final[dict[SearchField, bytes]] = {TEXT: b"", TOOLS: b"\x11", REASONING: b"\x12"}
"""Precedes these tags in the keys of a field: each has rows of its own, and those of the text are where they always were."""
_END: Final = b"\x00"
"""Ends a term in the key of a full block; no term contains it."""

BLOCK_DOCUMENTS: Final = 64
DOCUMENT: Final = Struct("<IIqII")
"""Of a document: its length in terms, the number of its role, `created_at`, its segment and its offset there."""

LENGTH: Final = Struct("<II")
"""Of a document that has tools or reasoning: its number, and how many terms they have."""

_u32: Final = Struct(">I")
_state: Final = Struct(">QQQI")


class SearchState(NamedTuple):
    """
    The state of one field in a chat's search index.

    `indexed` documents have the field. The first `inverted` of them are in postings, the others still lie as texts. `terms`
    is how many terms all of them have. Every document has a text; `roles` is noted with it: how many names there are.
    """

    indexed: int = 0
    inverted: int = 0
    terms: int = 0
    roles: int = 0


def prefix_of(chat_no: int, field: SearchField) -> bytes:
    """The beginning of the keys of a field of a chat."""
    return number(chat_no) + _FIELDS[field]


def states(txn: Transaction, table: "lmdb._Database", prefixes: Sequence[bytes]) -> list[SearchState]:
    """Return the states of fields of chats, given by the beginnings of their keys."""
    keys = [prefix + _STATE for prefix in prefixes]
    return [SearchState() if raw is None else SearchState._make(_state.unpack(raw)) for raw in _many(txn, table, keys)]


def postings_of(
    txn: Transaction, table: "lmdb._Database", prefixes: Sequence[bytes], term: bytes
) -> dict[int, list[bytes]]:
    """The rows of a term, in the order of their documents, by the index of the prefix; of chats that have it."""
    keys = [prefix + _TERM + term for prefix in prefixes]
    found: dict[int, list[bytes]] = {}
    cursor = None
    for at, end in enumerate(_many(txn, table, keys)):
        if end is not None:
            cursor = cursor or txn.cursor(table)
            found[at] = [*_values(cursor, keys[at] + _END), end]
    return found


def document_blocks(txn: Transaction, table: "lmdb._Database", blocks: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Blocks of records, given by prefix and block number, each once."""
    return [
        row or b"" for row in _many(txn, table, [prefix + _DOCUMENTS + _u32.pack(block) for prefix, block in blocks])
    ]


def length_blocks(txn: Transaction, table: "lmdb._Database", blocks: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Blocks of lengths, as `LENGTH` packs them, given by prefix and block number, each once."""
    return [row or b"" for row in _many(txn, table, [prefix + _LENGTHS + _u32.pack(block) for prefix, block in blocks])]


def _many(txn: Transaction, table: "lmdb._Database", keys: Sequence[bytes]) -> list[bytes | None]:
    if len(keys) == 1:
        return [txn.get(keys[0], db=table)]
    found = dict(txn.cursor(table).getmulti(keys))
    return list(map(found.get, keys))


class SearchRows:
    """The rows of one field of a chat in one transaction."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int, field: SearchField = TEXT) -> None:
        self.txn, self.table = txn, table
        self.field: SearchField = field
        self.prefix = prefix_of(chat_no, field)

    @property
    def state(self) -> SearchState:
        """Return the state of the index."""
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

    def add_documents(self, first: int, records: bytes) -> None:
        """Put the records of documents, one after the other, behind those that there are."""
        block, before = divmod(first, BLOCK_DOCUMENTS)
        kept = self.documents(block)[: before * DOCUMENT.size] if before else b""
        start, end = 0, (BLOCK_DOCUMENTS - before) * DOCUMENT.size
        while start < len(records):
            key = self.prefix + _DOCUMENTS + _u32.pack(block)
            self.txn.put(key, kept + records[start:end], db=self.table)
            block, kept, start, end = block + 1, b"", end, end + BLOCK_DOCUMENTS * DOCUMENT.size

    def all_documents(self) -> bytes:
        """The records of all documents, one after the other."""
        return b"".join(self._values(self.prefix + _DOCUMENTS))

    def add_lengths(self, lengths: Iterable[tuple[int, int]]) -> None:
        """Note how many terms documents have, given by ascending numbers, all of them behind those that there are."""
        for block, added in groupby(lengths, key=lambda one: one[0] // BLOCK_DOCUMENTS):
            key = self.prefix + _LENGTHS + _u32.pack(block)
            kept = self.txn.get(key, b"", db=self.table)
            self.txn.put(key, kept + b"".join([LENGTH.pack(*one) for one in added]), db=self.table)

    def lengths(self, block: int) -> dict[int, int]:
        """How many terms the documents of a block have that have the field."""
        stored = self.txn.get(self.prefix + _LENGTHS + _u32.pack(block), b"", db=self.table)
        return dict(LENGTH.iter_unpack(stored))

    def put_landmarks(self, document: int, landmarks: Sequence[int]) -> None:
        """Keep where the terms of a long document are in its text; see `landmarks_of`."""
        self.txn.put(self.prefix + _LANDMARKS + _u32.pack(document), array("I", landmarks).tobytes(), db=self.table)

    def landmarks(self, document: int) -> Sequence[int]:
        """The landmarks of a document; none of a short one, or one that was taken in before they were kept."""
        return array("I", self.txn.get(self.prefix + _LANDMARKS + _u32.pack(document), b"", db=self.table))

    def put_pending(self, document: int, text: bytes) -> None:
        """Keep the terms of a document until there are enough to invert."""
        self.txn.put(self.prefix + _PENDING + _u32.pack(document), text, db=self.table)

    def pending(self) -> list[bytes]:
        """The terms of the documents that are not inverted yet, as texts, in order."""
        return self._values(self.prefix + _PENDING)

    def pending_documents(self, state: SearchState) -> Sequence[int]:
        """Return the numbers of these documents."""
        if self.field == TEXT:
            return range(state.inverted, state.indexed)  # every document has one
        keys = (key for key, _ in prefixed(self.txn, self.table, self.prefix + _PENDING))
        return [_u32.unpack(key[-_u32.size :])[0] for key in keys]

    def drop_pending(self, documents: Iterable[int]) -> None:
        """Forget pending documents."""
        for document in documents:
            self.txn.delete(self.prefix + _PENDING + _u32.pack(document), db=self.table)

    def postings(self, term: bytes) -> list[bytes]:
        """The rows of a term, in the order of their documents."""
        return postings_of(self.txn, self.table, [self.prefix], term).get(0, [])

    def prefixed_postings(self, start: bytes) -> list[bytes]:
        """The rows of all terms that begin with `start`."""
        return self._values(self.prefix + _TERM + start)

    def term_keys(self, terms: Iterable[str]) -> list[bytes]:
        """The keys of the rows of terms that are added to."""
        start = self.prefix + _TERM
        return [start + term.encode() for term in terms]

    def ends(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the rows with the ends of terms; empty when there is none."""
        found = dict(self.txn.cursor(self.table).getmulti(keys))
        return [found.get(key, b"") for key in keys]

    def put_ends(self, rows: list[tuple[bytes, bytes]]) -> None:
        """Replace those with these keys."""
        self.txn.cursor(self.table).putmulti(rows)

    def put_blocks(self, blocks: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Add full blocks: the key of the term, the document that the block begins with, and the row."""
        self.txn.cursor(self.table).putmulti([(key + _END + _u32.pack(document), row) for key, document, row in blocks])

    def all_postings(self) -> Iterator[tuple[bytes, bytes]]:
        """Every row of every term: the term and the row; of one term not in the order of documents."""
        prefix = self.prefix + _TERM
        for key, row in prefixed(self.txn, self.table, prefix):
            yield key[len(prefix) :].partition(_END)[0], row

    def _values(self, prefix: bytes) -> list[bytes]:
        return _values(self.txn.cursor(self.table), prefix)


def _values(cursor: "lmdb.Cursor[bytes]", prefix: bytes) -> list[bytes]:
    values: list[bytes] = []
    if cursor.set_range(prefix) and cursor.key().startswith(prefix):
        for key, value in cursor.iternext():
            if not key.startswith(prefix):
                break
            values.append(value)
    return values
