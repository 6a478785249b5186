"""Reading the search indexes of chats: where words and phrases occur, and what the documents are."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final, cast

import lmdb
import numpy as np

from chatledger.domain.search.query import Phrase, Word

from ..environment import Transaction
from ..recent_messages import RecentMessages, Record
from .postings import DOC_SHIFT, Part, Postings, occurrences_of_each, unpack_each, unpack_parts
from .rows import (
    BLOCK_DOCUMENTS,
    DOCUMENT,
    SearchRows,
    document_blocks,
    document_records,
    postings_of,
    states,
)
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
_JOINED_BYTES: Final = 2048


class SearchReader:
    """
    The search indexes of several chats in one transaction, read as one.

    Documents are numbered through, those of the last chat first: of two that match alike the one with the higher number
    is better, which is the later one of a chat, or that of the chat that was named first.
    """

    def __init__(
        self, txn: Transaction, table: "lmdb._Database", chat_nos: Sequence[int], recent: RecentMessages | None = None
    ) -> None:
        self._recent = RecentMessages() if recent is None else recent
        self._txn, self._table = txn, table
        self._chat_nos = chat_nos[::-1]
        self._rows: dict[int, SearchRows] = {}
        self._pending: dict[int, list[bytes]] = {}
        self._sources: dict[tuple[str, bool], list[Part]] = {}
        self._phrases: dict[Phrase, NDArray[np.uint64]] = {}
        self.states = states(txn, table, self._chat_nos)
        """How far the indexes are."""
        self._bases = list(accumulate([state.indexed for state in self.states[:-1]], initial=0))
        # The chats with texts that are not inverted yet.
        self._waiting = [at for at, state in enumerate(self.states) if state.indexed > state.inverted]

    def size(self) -> tuple[int, float]:
        """How many documents there are, one at least, and how many terms they have on average."""
        total = sum([state.indexed for state in self.states])
        return total, sum([state.terms for state in self.states]) / total

    def chat_no(self, at: int) -> int:
        """The number of a chat."""
        return self._chat_nos[at]

    def role(self, at: int, name: str) -> int | None:
        """The number of a role; None when no message of the chat has it."""
        return self._of(at).role(name)

    def _of(self, at: int) -> SearchRows:
        rows = self._rows.get(at)
        if rows is None:
            rows = self._rows[at] = SearchRows(self._txn, self._table, self._chat_nos[at])
        return rows

    def source(self, term: str, *, is_prefix: bool) -> list[Part]:
        """Where a term occurs, or all that begin with it, still packed; in the order of chats."""
        key = term, is_prefix
        if key not in self._sources:
            self._sources[key] = self._prefixed(term) if is_prefix else self._exact(term)
        return self._sources[key]

    def _exact(self, term: str) -> list[Part]:
        raw = term.encode()
        rows = postings_of(self._txn, self._table, self._chat_nos, raw)
        late = self._late(b"\0" + raw + b"\0", term, is_prefix=False)
        return [
            Part(self._bases[at], rows.get(at, ()), late.get(at, ()))
            for at in (sorted({*rows, *late}) if late else rows)
        ]

    def _prefixed(self, term: str) -> list[Part]:
        raw = term.encode()
        rows = {at: self._of(at).prefixed_postings(raw) for at in range(len(self._chat_nos))}
        late = self._late(b"\0" + raw, term, is_prefix=True)
        return [Part(self._bases[at], found, late.get(at, ())) for at, found in rows.items() if found or at in late]

    def _late(self, needle: bytes, term: str, *, is_prefix: bool) -> dict[int, list[int]]:
        """The occurrences in documents that are not inverted yet, by chat."""
        found: dict[int, list[int]] = {}
        for at in self._waiting:
            for document, text in enumerate(self._texts(at), self.states[at].inverted):
                if needle in text:
                    found.setdefault(at, []).extend(
                        (document << DOC_SHIFT) + position
                        for position, known in enumerate(terms_in(text))
                        if (known.startswith(term) if is_prefix else known == term)
                    )
        return found

    def _texts(self, at: int) -> list[bytes]:
        if at not in self._pending:
            self._pending[at] = self._of(at).pending()
        return self._pending[at]

    def matches(self, leaf: Word | Phrase) -> Postings:
        """Where a word or a phrase occurs; the position of a phrase is that of its first term."""
        if isinstance(leaf, Phrase):
            return _postings(self.starts(leaf))
        if leaf.is_prefix:
            [occurrences] = occurrences_of_each([_in_long_rows(self.source(leaf.term, is_prefix=True))])
            return _postings(np.sort(occurrences))
        return unpack_parts(self.source(leaf.term, is_prefix=False))

    def matches_of_words(self, words: Sequence[Word]) -> list[Postings]:
        """Where words occur, none of them a prefix; sooner than one by one."""
        return unpack_each([self.source(word.term, is_prefix=False) for word in words])

    def starts(self, phrase: Phrase) -> "NDArray[np.uint64]":
        """Where a phrase begins: the occurrences of its first term, ascending."""
        if phrase not in self._phrases:
            self._phrases[phrase] = self._side_by_side(phrase)
        return self._phrases[phrase]

    def _side_by_side(self, phrase: Phrase) -> "NDArray[np.uint64]":
        last = len(phrase.terms) - 1
        names = [(term, phrase.is_prefix and at == last) for at, term in enumerate(phrase.terms)]
        sources = [self.source(term, is_prefix=is_prefix) for term, is_prefix in names]
        # Prefixes are packed in many rows, which take longest.
        order = sorted(range(len(names)), key=lambda at: sum(len(row) for part in sources[at] for row in part.rows))
        starts = None
        # Two are always needed. The others are read when there is still something to find.
        for some in (order[:2], *([at] for at in order[2:])):
            together = [_in_long_rows(sources[at]) if names[at][1] else sources[at] for at in some]
            for at, found in zip(some, occurrences_of_each(together), strict=True):
                occurrences = _moved_back(found, at)
                if names[at][1]:
                    occurrences.sort()
                starts = occurrences if starts is None else starts[is_in(starts, occurrences)]
            if starts is not None and not len(starts):
                break
        assert starts is not None, "a phrase has terms"
        return starts

    def few_records(self, documents: Sequence[int]) -> tuple[list[int], list[Record]]:
        """The chats that documents are of, as places in the list of all, and their records."""
        bases, chat_nos = self._bases, self._chat_nos
        if len(bases) == 1:
            owners = [0] * len(documents)
            places = list(zip(repeat(chat_nos[0]), documents))
        else:
            owners = [bisect_right(bases, document) - 1 for document in documents]
            places = [(chat_nos[at], document - bases[at]) for at, document in zip(owners, documents, strict=True)]
        records = list(map(self._recent.record, places))
        if None in records:
            missing = [place for place, record in zip(places, records, strict=True) if record is None]
            found = dict(zip(missing, document_records(self._txn, self._table, missing), strict=True))
            self._recent.keep_records(found)
            records = [record or found[place] for place, record in zip(places, records, strict=True)]
        return owners, cast("list[Record]", records)

    def records(self, documents: "NDArray[np.uint64]") -> "NDArray[np.void]":
        """The records of ascending documents: length, role, created_at, segment, offset."""
        if len(self._chat_nos) == 1 and len(documents) * _SHARE > self.states[0].indexed:
            everything = np.frombuffer(self._of(0).all_documents(), _RECORD)
            # A tenth of the time of `everything[documents]`.
            return everything if len(everything) == len(documents) else everything.take(documents.view(np.int64))
        owners = self.owners(documents)
        blocks, places = np.divmod(documents.view(np.int64) - np.array(self._bases)[owners], BLOCK_DOCUMENTS)
        is_first = np.append(True, (blocks[1:] != blocks[:-1]) | (owners[1:] != owners[:-1]))
        firsts = np.flatnonzero(is_first)
        names = zip(map(self.chat_no, owners[firsts].tolist()), blocks[firsts].tolist(), strict=True)
        rows = document_blocks(self._txn, self._table, names)
        starts = np.cumsum([0, *map(len, rows[:-1])]) // DOCUMENT.size
        found: NDArray[np.void] = np.frombuffer(b"".join(rows), _RECORD).take(starts[np.cumsum(is_first) - 1] + places)
        return found

    def owners(self, documents: "NDArray[np.uint64]") -> "NDArray[np.int64]":
        """The chats that documents are of, as places in the list of all."""
        return np.searchsorted(np.array(self._bases, dtype=np.uint64), documents, side="right") - 1


def is_in(values: "NDArray[np.uint64]", among: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Which of these are among those. Both ascend."""
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.searchsorted(among, values)
    places[places == len(among)] = 0
    found: NDArray[np.bool_] = among[places] == values
    return found


def _moved_back(occurrences: "NDArray[np.uint64]", count: int) -> "NDArray[np.uint64]":
    """Where a phrase begins that has an occurrence as its term number `count`."""
    if count:
        # Those too near the beginning would end up in the document before, and the first of all become the largest.
        occurrences = occurrences[occurrences.astype(np.uint32) >= count]
    return occurrences - np.uint64(count)


def _in_long_rows(source: Sequence[Part]) -> list[Part]:
    return [part._replace(rows=_joined(part.rows)) for part in source]


def _joined(rows: Sequence[bytes]) -> list[bytes]:
    """The same in less and longer rows: chunks that are alike and follow each other are unpacked together."""
    found: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row)
        if size > _JOINED_BYTES:
            found.append(b"".join(waiting))
            waiting, size = [], 0
    return [*found, b"".join(waiting)]


def _postings(occurrences: "NDArray[np.uint64]") -> Postings:
    documents = occurrences >> _SHIFT
    is_first = np.empty(len(documents), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(documents[1:], documents[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    counts = np.diff(np.append(firsts, len(documents)))
    return Postings(documents[firsts], counts.astype(np.uint32), occurrences.astype(np.uint32))
