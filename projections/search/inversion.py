"""Inverting documents, from the terms of each to the postings of each term, and taking in the messages of chats like that."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import TEXT, SearchField
from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of

from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .indexer import PENDING_DOCUMENTS, SearchWriter, is_current
from .log_order import LogOrder, Pages, Places
from .postings import is_first, pack, unpack
from .reader import RECORD
from .rows import SearchRows
from .term_numbers import Coded, Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray


BLOCK_OCCURRENCES: Final = 512
"""So many make a block that nothing is added to any more. It fits into half a page of LMDB, with few exceptions."""
_END_BYTES: Final = 1_800


class Inverted(NamedTuple):
    """
    The postings of some documents, term by term.

    Args:
        terms: Each once, in no particular order.
        starts: Where the occurrences of each begin (`int64`).
        documents: Of each occurrence: the number of its document (`uint32`), ascending in each term.
        positions: And where in the document it is (`uint32`).
    """

    terms: list[str]
    starts: "NDArray[np.int64]"
    documents: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"


def invert(
    codes: "NDArray[np.int32]", lengths: "NDArray[np.int64]", terms: Sequence[str], numbers: "NDArray[np.uint32]"
) -> Inverted:
    """
    Put the terms of documents in the order of terms.

    Args:
        codes: The places of the terms of all documents in `terms`, one document's after the other.
        lengths: How many terms each document has.
        terms: The terms that `codes` stand for, and maybe others.
        numbers: Those of the documents, ascending.
    """
    order = _stable_order(codes)
    starts_of = (np.cumsum(lengths) - lengths).astype(np.uint32)
    documents = np.repeat(numbers, lengths)
    positions = np.arange(len(codes), dtype=np.uint32) - np.repeat(starts_of, lengths)
    ordered = codes[order]
    starts = np.flatnonzero(is_first(ordered))
    present: list[int] = ordered[starts].tolist()
    return Inverted([terms[code] for code in present], starts, documents[order], positions[order])


def invert_terms(texts: Sequence[Sequence[str]], documents: Sequence[int]) -> Inverted:
    """Invert documents that are lists of terms, with these numbers."""
    every = list(chain.from_iterable(texts))
    codes_of = {term: code for code, term in enumerate(dict.fromkeys(every))}
    codes = np.fromiter(map(codes_of.__getitem__, every), np.int32, len(every))
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return invert(codes, lengths, list(codes_of), np.array(documents, dtype=np.uint32))


def add_postings(rows: SearchRows, inverted: Inverted, *, is_first: bool) -> None:
    """
    Add documents to the postings of their terms.

    Args:
        rows: Of the chat.
        inverted: The documents; they come after all that were added before.
        is_first: Whether there were none.
    """
    if not inverted.terms:
        return
    # In the order of keys, neighbours are on the same page of the table.
    keys = rows.term_keys(inverted.terms)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ends = [b""] * len(keys)
    if not is_first:
        for at, end in zip(order, rows.ends([keys[at] for at in order]), strict=True):
            ends[at] = end
    counts = np.diff(inverted.starts, append=len(inverted.documents))
    is_full = (counts > BLOCK_OCCURRENCES) | (np.fromiter(map(len, ends), np.int64, len(ends)) >= _END_BYTES)
    if is_full.any():
        rows.put_blocks(_add_blocks(inverted, keys, ends, is_full, counts))
    else:
        ends = list(map(add, ends, pack(inverted.documents, inverted.positions, inverted.starts)))
    rows.put_ends(list(zip(map(keys.__getitem__, order), map(ends.__getitem__, order), strict=True)))


def _add_blocks(
    inverted: Inverted, keys: list[bytes], ends: list[bytes], is_full: "NDArray[np.bool_]", counts: "NDArray[np.int64]"
) -> list[tuple[bytes, int, bytes]]:
    """Replace the ends of terms by longer or new ones; returns the full blocks: key of the term, first document and row."""
    cut = _cut(inverted, counts, ends, is_full)
    chunks = pack(cut.documents, cut.positions, cut.starts)
    fitting = np.flatnonzero(~is_full).tolist()
    for at, chunk in zip(fitting, chunks, strict=False):
        ends[at] += chunk
    firsts = cut.documents[cut.starts].tolist()
    blocks: list[tuple[bytes, int, bytes]] = []
    start = len(fitting)
    for at, count in zip(np.flatnonzero(is_full).tolist(), cut.chunk_counts, strict=True):
        end = start + count - 1
        blocks += zip(repeat(keys[at]), firsts[start:end], chunks[start:end])
        ends[at] = chunks[end]
        start = end + 1
    return blocks


def _stable_order(codes: "NDArray[np.int32]") -> "NDArray[np.int64]":
    """Return the indexes that sort an array stably. NumPy sorts numbers of 16 bits in linear time."""
    order = codes.astype(np.uint16).argsort(kind="stable")
    if len(codes) and codes.max() >> 16:
        order = order[(codes[order] >> 16).astype(np.uint16).argsort(kind="stable")]
    return order


class _Cut(NamedTuple):
    """
    Chunks, as `pack` takes them: first those of the terms to whose ends they are added, then the blocks of each full term.

    `chunk_counts` tells of each full term how many it has. The last is its new end.
    """

    documents: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"
    starts: "NDArray[np.int64]"
    chunk_counts: list[int]


def _cut(inverted: Inverted, counts: "NDArray[np.int64]", ends: Sequence[bytes], is_full: "NDArray[np.bool_]") -> _Cut:
    is_added = np.repeat(~is_full, counts)
    documents, positions = [inverted.documents[is_added]], [inverted.positions[is_added]]
    added = counts[~is_full]
    starts: list[int] = (np.cumsum(added) - added).tolist()
    chunk_counts: list[int] = []
    total = len(documents[0])
    for term in np.flatnonzero(is_full).tolist():
        start = int(inverted.starts[term])
        end = start + int(counts[term])
        before = unpack([ends[term]])
        of_term = np.concatenate(
            (np.repeat(before.documents, before.counts).astype(np.uint32), inverted.documents[start:end])
        )
        cuts = block_starts(of_term)
        starts.extend(total + cut for cut in cuts)
        chunk_counts.append(len(cuts))
        documents.append(of_term)
        positions += before.positions, inverted.positions[start:end]
        total += len(of_term)
    return _Cut(np.concatenate(documents), np.concatenate(positions), np.array(starts, dtype=np.int64), chunk_counts)


def block_starts(documents: "NDArray[np.uint32]") -> list[int]:
    """
    Return where to cut the occurrences of a term: into full blocks, each of whole documents, and the end that is added to.

    The end has one occurrence at least: where the last document is part of a full block, it is the end.
    """
    starts = [0]
    while len(documents) - starts[-1] > BLOCK_OCCURRENCES:
        last = documents[starts[-1] + BLOCK_OCCURRENCES - 1]
        end = int(np.searchsorted(documents, [last], side="right")[0])
        if end == len(documents):
            break
        starts.append(end)
    return starts


_STEP_MESSAGES: Final = 2_048
_STEP_BYTES: Final = 1 << 20


class Words:
    """
    The terms of one field of documents, numbered.

    Args:
        documents: The numbers of those that have the field, ascending (`uint32`).
        lengths: How many terms each has (`int64`).
        landmarks: Of long documents: the number and the landmarks.
    """

    def __init__(self, coded: Sequence["_CodedTexts"], terms: Sequence[str]) -> None:
        self.documents = np.concatenate([one.documents for one in coded])
        self.lengths = np.concatenate([one.coded.lengths for one in coded])
        self.landmarks = [landmarks for one in coded for landmarks in one.landmarks]
        self._codes, self._terms = np.concatenate([one.coded.codes for one in coded]), terms

    @property
    def term_count(self) -> int:
        """The number of terms in all of them."""
        return len(self._codes)

    @property
    def texts(self) -> list[list[str]]:
        """The terms of each document."""
        codes: list[int] = self._codes.tolist()
        terms = iter([self._terms[code] for code in codes])
        lengths: list[int] = self.lengths.tolist()
        return [list(islice(terms, length)) for length in lengths]

    @property
    def inverted(self) -> Inverted:
        """The postings of the documents."""
        return invert(self._codes, self.lengths, self._terms, self.documents)


class _CodedTexts(NamedTuple):
    documents: "NDArray[np.uint32]"
    coded: Coded
    landmarks: list[tuple[int, list[int]]]


def _coded(texts: Sequence[str], documents: "NDArray[np.uint32]", vocabulary: Vocabulary) -> _CodedTexts:
    coded = vocabulary.code(texts)
    landmarks = [
        (int(documents[one]), landmarks_of(texts[one]))
        for one in np.flatnonzero(coded.lengths > LANDMARK_TERMS).tolist()
    ]
    return _CodedTexts(documents, coded, landmarks)


class Batch:
    """
    Messages of a chat that follow each other in the order of the log: what the search index keeps of them.

    Args:
        first_document: The number of the first.
        names: The roles that occur.
        words: The terms of the text, and of each other field that one of them has.
    """

    def __init__(self, order: LogOrder, places: Places, start: int, end: int, vocabulary: Vocabulary) -> None:
        """Read the messages from one of these places to before another; fewer, but one at least, if the vocabulary is full."""
        self.first_document = places.first + start
        roles: dict[str, int] = {}
        numbers: list[int] = []
        times: list[int] = []
        coded: dict[SearchField, list[_CodedTexts]] = {}
        at = start
        while at < end and (at == start or not vocabulary.is_full):
            stop = min(places.fitting(at, _STEP_MESSAGES, _STEP_BYTES), end)
            said = order.said(places, at, stop)
            documents = np.arange(places.first + at, places.first + stop, dtype=np.uint32)
            coded.setdefault(TEXT, []).append(_coded(said.texts, documents, vocabulary))
            for field, (having, texts) in said.others.items():
                coded.setdefault(field, []).append(_coded(texts, documents[having], vocabulary))
            numbers += [roles.setdefault(name, len(roles)) for name in said.names]
            times += said.times
            at = stop
        self.names = list(roles)
        self.words: dict[SearchField, Words] = {field: Words(parts, vocabulary.terms) for field, parts in coded.items()}
        self._roles = np.array(numbers)
        self._records = np.empty(at - start, RECORD)
        self._records["length"], self._records["created_at"] = self.words[TEXT].lengths, times
        self._records["segment"], self._records["offset"] = places.segments[start:at], places.offsets[start:at]

    @property
    def document_count(self) -> int:
        """The number of messages."""
        return len(self._records)

    def records(self, roles: Sequence[int]) -> bytes:
        """The records of the documents, with these numbers for `names`."""
        self._records["role"] = np.array(roles)[self._roles]
        return self._records.tobytes()


CHUNK_BYTES: Final = 16 << 20
"""Of messages as they are stored; these and what is worked out from them are in memory together."""
_LONG_CHAT: Final = 131_072
_PART_OF_CHUNK: Final = 4
"""In a long chat most terms have pages of their own, and a transaction holds all that it touches: so it takes in fewer messages."""


class Builder:
    """
    Takes in messages, some of a chat at a time.

    They are read and inverted outside of write transactions, as messages and their places never change.

    Args:
        env: What the search index is in.
        tables: Its tables.
        chunk_messages: At most so many at a time; fewer where they are long, or have many different words.
    """

    def __init__(self, env: Environment, tables: Tables, chunk_messages: int) -> None:
        self._env, self._tables, self._chunk_messages = env, tables, chunk_messages
        self._vocabulary = Vocabulary()

    def take_in(self, chat_no: int) -> Iterator[int]:
        """Take in the messages of a chat, also those that are written meanwhile; yields how many after each transaction."""
        pages: Pages | None = None
        places: Places | None = None
        while True:
            with self._env.reading() as txn:
                record = IndexedChat(self._tables, txn, "", chat_no).record
                first = SearchRows(txn, self._tables.search, chat_no).state.indexed
                if record is None or first >= record.message_count:  # deleted, or complete
                    return
                batch = None  # a few messages are written one by one: NumPy takes its time whatever their number
                if record.message_count - first >= PENDING_DOCUMENTS:
                    order = LogOrder(txn, self._tables.rows, chat_no, "")
                    if pages is None or first >= pages.end:
                        pages = order.pages()
                    if places is None or not places.first <= first < places.end:
                        places = order.places(pages, first, self._chunk_messages)
                    batch = self._read(order, places, first - places.first)
            taken = self._env.update(partial(self._write, chat_no, batch))
            if not taken:
                return
            yield taken

    def _read(self, order: LogOrder, places: Places, start: int) -> Batch:
        if self._vocabulary.is_full:
            self._vocabulary = Vocabulary()
        is_long = places.first + start >= _LONG_CHAT
        count = max(self._chunk_messages // _PART_OF_CHUNK, 1) if is_long else self._chunk_messages
        end = places.fitting(start, count, CHUNK_BYTES)
        return Batch(order, places, start, end, self._vocabulary)

    def _write(self, chat_no: int, batch: Batch | None, txn: Transaction) -> int:
        """
        Write the messages of a batch, or else the few that are missing; returns how many.

        It is none if the chat was deleted meanwhile, or the search index begun anew.
        """
        chat = IndexedChat(self._tables, txn, "", chat_no)
        writer = SearchWriter(txn, self._tables, chat_no)
        if chat.record is None or not is_current(txn, self._tables):
            return 0
        if batch is None:
            numbered = chat.chains.numbered(writer.state.indexed)[: self._chunk_messages]
            messages = chat.chains.bare_messages([place for _, place in numbered])
            for (ordinal, place), message in zip(numbered, messages, strict=True):
                writer.add(message, ordinal, place)
            writer.flush()
            return len(numbered)
        if writer.state.indexed != batch.first_document:
            return 0
        writer.take(batch)
        return batch.document_count
