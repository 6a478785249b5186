"""Messages that wait for a segment: searching them, and making a segment of them."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.tokens import PART

from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.tables import Tables
from .documents import (
    EARLIEST,
    LENGTHS,
    PLACE_OFFSET,
    PLACE_SEGMENT,
    ROLE,
    TIME,
    DocumentDirectory,
    Documents,
)
from .manifest import PENDING, Totals, WaitingRow, manifest_of, put_manifest, rows_of
from .merging import plan
from .postings import DOCUMENT_SHIFT, Postings, invert, is_first, spread
from .segments import pack_segment, write_segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PART: Final = PART.encode()
_HEAD: Final = np.dtype(
    [
        *(("chat", "<u8"), ("created_at", "<i8"), ("number", "<u4"), ("segment", "<u4"), ("offset", "<u4")),
        *(("lengths", "<u4", (3,)), ("name_bytes", "<u4"), ("term_bytes", "<u4")),
    ]
)
"""As `waiting.HEAD` packs it."""


class Occurrences(NamedTuple):
    """Ascending documents that have a term, how often it occurs in each, and all its positions, ascending in each."""

    documents: "NDArray[np.uint32]"
    counts: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"

    def frequencies(self) -> "NDArray[np.uint32]":
        """Return the counts, as a `PostingsPiece` does."""
        return self.counts

    def taken(self, places: "NDArray[np.int64]") -> "tuple[NDArray[np.uint32], NDArray[np.uint32]]":
        """Return the counts and positions of some of the documents, by their ascending places."""
        ends = np.cumsum(self.counts, dtype=np.int64)[places]
        counts = self.counts[places]
        return counts, self.positions[spread(ends - counts, counts)]

    def filtered(self, is_wanted: "NDArray[np.bool_]") -> "Occurrences":
        """Return only some of the documents."""
        places = np.flatnonzero(is_wanted)
        return Occurrences(self.documents[places], *self.taken(places))

    def sorted(self) -> "Occurrences":
        """
        Return those that are in no order, and of some documents more than once, in order and of each document once.

        Of several at one position, as an identifier and its part have that begin alike, one is left.
        """
        keys = np.repeat(self.documents.astype(np.uint64) << DOCUMENT_SHIFT, self.counts) | self.positions
        keys.sort()
        keys = keys[is_first(keys)]
        documents = (keys >> DOCUMENT_SHIFT).astype(np.uint32)
        firsts = np.flatnonzero(is_first(documents))
        counts = np.diff(firsts, append=len(documents)).astype(np.uint32)
        return Occurrences(documents[firsts], counts, keys.astype(np.uint32))


class _Terms:
    """The terms of messages that wait, and where they begin."""

    def __init__(self, texts: Sequence[bytes], heads: "NDArray[np.void]") -> None:
        text = b"".join(texts)
        self.text = text.replace(_PART, b"\0")
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        self.starts = sizes.cumsum() - sizes
        """Where in the text those of each message begin."""
        self.separators = np.flatnonzero(np.frombuffer(text, np.uint8) == 0)
        firsts = np.searchsorted(self.separators, self.starts)
        lengths = heads["lengths"].astype(np.int64)
        self.befores = [lengths[:, :at].sum(axis=1) + firsts for at in range(len(LENGTHS))]
        """Of each field and message: how many separators come before the first term."""


class WaitingMessages:
    """The messages that wait, in the order in which they came: a part of the index in which documents have no order."""

    def __init__(self, rows: Iterable[WaitingRow]) -> None:
        stored = list(rows)
        self._bodies = b"".join([row.bodies for row in stored])
        self._spelled_out = self._bodies.replace(_PART, b"\0")  # the parts of identifiers stand as words do
        self.heads = np.frombuffer(b"".join([row.heads for row in stored]), _HEAD)

    def __len__(self) -> int:
        return len(self.heads)

    def has(self, term: bytes, *, is_prefix: bool) -> bool:
        return (b"\0" + term if is_prefix else b"\0" + term + b"\0") in self._spelled_out

    def estimate(self, term: bytes) -> int:
        """About how many messages have a term; 0 only if none has."""
        # Neighbours share the NUL between them, so of a term that repeats at once only every other one is counted.
        return self._spelled_out.count(b"\0" + term + b"\0")

    @cached_property
    def names_and_texts(self) -> tuple[list[str], list[bytes]]:
        """The roles of the messages, and the terms of each between NULs."""
        names: list[str] = []
        texts: list[bytes] = []
        at = 0
        sizes = zip(self.heads["name_bytes"].tolist(), self.heads["term_bytes"].tolist(), strict=True)
        for name_bytes, term_bytes in sizes:
            middle, end = at + name_bytes, at + name_bytes + term_bytes
            names.append(self._bodies[at:middle].decode())
            texts.append(self._bodies[middle:end])
            at = end
        return names, texts

    @cached_property
    def _terms(self) -> _Terms:
        return _Terms(self.names_and_texts[1], self.heads)

    def find(self, term: bytes, field: SearchField, *, is_prefix: bool) -> Occurrences:
        terms = self._terms
        needle = re.escape(b"\0" + term) + (b"" if is_prefix else b"(?=\0)")
        places = np.array([match.start() for match in re.finditer(needle, terms.text)], dtype=np.int64)
        documents = np.searchsorted(terms.starts, places, "right") - 1
        positions = np.searchsorted(terms.separators, places, "right") - 1 - terms.befores[LENGTHS[field]][documents]
        firsts = np.flatnonzero(is_first(documents))
        counts = np.diff(firsts, append=len(documents))
        return Occurrences(documents[firsts].astype(np.uint32), counts.astype(np.uint32), positions.astype(np.uint32))

    def segment(self) -> tuple[Documents, Postings]:
        heads, (names, texts) = self.heads, self.names_and_texts
        order: NDArray[np.int64] = np.lexsort((heads["number"], heads["chat"]))
        ordered = heads[order]
        directory = DocumentDirectory.of_messages(ordered["chat"], ordered["number"])
        roles = {name: role for role, name in enumerate(dict.fromkeys(names))}
        columns: dict[int, NDArray[np.uint64]] = {
            TIME: ordered["created_at"].view(np.uint64) ^ np.uint64(EARLIEST),
            ROLE: np.array([roles[names[at]] for at in order.tolist()], dtype=np.uint64),
            PLACE_SEGMENT: ordered["segment"].astype(np.uint64),
            PLACE_OFFSET: ordered["offset"].astype(np.uint64),
        }
        columns |= {at: ordered["lengths"][:, at].astype(np.uint64) for at in LENGTHS.values()}
        places: list[int] = order.tolist()
        every = b"".join([texts[at][:-1] for at in places]).split(b"\0")[1:]
        terms = list(set(every))
        numbers = dict(zip(terms, range(len(terms)), strict=True))
        codes = np.fromiter(map(numbers.__getitem__, every), np.int32, len(every))
        lengths = ordered["lengths"].astype(np.int64)
        documents = np.repeat(np.arange(len(order), dtype=np.uint32), 3)
        return Documents(directory, columns, list(roles)), invert(codes, lengths.reshape(-1), documents, terms)

    def are_of(self, chat_nos: Sequence[int]) -> "NDArray[np.bool_]":
        if len(chat_nos) == 1:  # as nearly all searches of a chat, in a twentieth of the time
            return np.asarray(self.heads["chat"] == np.uint64(chat_nos[0]), np.bool_)
        return np.isin(self.heads["chat"], np.array(chat_nos, dtype=np.uint64))


def pending_of(txn: Transaction, tables: Tables, totals: Totals) -> WaitingMessages:
    """Return the messages that wait, in a transaction that reads only."""
    # No segment has a number below 0, by which documents and merges are remembered.
    key = (-1, totals.version, 0)
    waiting = tables.caches.searched.get(key)
    if not isinstance(waiting, WaitingMessages):
        waiting = WaitingMessages(rows_of(txn, tables))
        tables.caches.searched.put(key, waiting, 2 * totals.pending_bytes + 1)
    return waiting


def flush(txn: Transaction, tables: Tables, totals: Totals) -> Totals:
    """Make a segment of the messages that wait; returns the counts after it, which are left to be put."""
    manifest = manifest_of(txn, tables)
    documents, postings = WaitingMessages(rows_of(txn, tables)).segment()
    drop_prefixed(txn, tables.search, PENDING)
    write_segment(txn, tables, manifest, pack_segment(documents, postings))
    plan(manifest)
    tables.caches.flushed += 1
    put_manifest(txn, tables, manifest)
    return totals._replace(pending=0, pending_bytes=0, next_row=0)
