"""Whether the search index of chats says what their messages say: of many chats at a time, and in constant memory."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of

from ..chat.chains import Chains
from ..chat.pages import MessagePage
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..search.indexer import SIGNS, landmarks_of_text
from ..search.log_order import Written, decode_written, texts_of
from ..search.term_numbers import Vocabulary
from .search_sums import ChatSum, SearchSums, document_hashes, hash_of, occurrence_hashes, sums_of_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .search_sums import Hashes

BATCH_MESSAGES: Final = 2_048
BATCH_BYTES: Final = 1 << 20
"""So many messages, or bytes of them, are looked at together."""


class TermHashes:
    """The hashes of the terms of texts, of many texts at a time."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._vocabulary = Vocabulary()
        self._hashes: dict[SearchField, Hashes] = {}

    def of(self, texts: "Sequence[str]", field: SearchField) -> "tuple[Hashes, NDArray[np.int64]]":
        """Return the hashes of the terms of texts in a field, one text's after the other, and how many each has."""
        if self._vocabulary.is_full:
            self._begin()
        coded = self._vocabulary.code(texts)
        hashes, terms, sign = self._hashes.get(field, _NONE), self._vocabulary.terms, SIGNS[field]
        if len(hashes) < len(terms):
            new = [hash_of((sign + term).encode()) for term in terms[len(hashes) :]]
            hashes = self._hashes[field] = np.concatenate((hashes, np.array(new, dtype=np.uint64)))
        return hashes[coded.codes], coded.lengths


_NONE: Final = np.empty(0, np.uint64)


class _Run(NamedTuple):
    """Messages of one chat that follow each other on a page."""

    chat_no: int
    segment: int
    length: int


class SearchCheck:
    """
    The search index of some chats, compared with their messages.

    What both have is a set of occurrences: a term, a message, a place in it; and what is known of each message. They are compared by
    the sum of a hash over each, which does not depend on their order, so neither side is held in memory.

    Args:
        tables, txn: Where the messages are.
        sums: Of all chats, read from the search index before; messages that were written since are passed over.
        terms: Hashes of terms, kept from one check to the next.
    """

    def __init__(self, tables: Tables, txn: Transaction, sums: SearchSums, terms: TermHashes) -> None:
        self._tables, self._txn, self._sums, self._terms = tables, txn, sums, terms
        self._taken: dict[int, ChatSum] = {}
        self._problems: dict[int, str] = {}
        self._clear()

    def _clear(self) -> None:
        self._runs: list[_Run] = []
        self._ordinals: list[int] = []
        self._offsets: list[int] = []
        self._written: list[Written] = []
        self._bytes = 0

    def begin(self, chat_no: int) -> None:
        """Begin with the next chat; chats come in the order of their numbers."""
        self._taken[chat_no] = ChatSum()
        problem = self._sums.problems.get(chat_no)
        if problem is not None:
            self._problems[chat_no] = problem

    def take(self, chat_no: int, segment: int, page: MessagePage) -> None:
        """Take a page of the chat, which lies in that segment of it; pages come in any order."""
        expected = self._sums.of(chat_no).messages
        if chat_no in self._problems or not expected:
            return
        ordinals: Sequence[int] = page.ordinals
        offsets: Sequence[int] = range(page.first_offset, page.first_offset + len(ordinals))
        written: Sequence[Written] = decode_written(page.array)
        if max(ordinals) >= expected:
            indexed = [at for at, ordinal in enumerate(ordinals) if ordinal < expected]
            ordinals, offsets = [ordinals[at] for at in indexed], [offsets[at] for at in indexed]
            written = [written[at] for at in indexed]
        self._runs.append(_Run(chat_no, segment, len(written)))
        self._ordinals += ordinals
        self._offsets += offsets
        self._written += written
        self._bytes += len(page.array)
        if len(self._written) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES:
            self._add()

    def drop(self, chat_no: int) -> None:
        """Forget a chat, of which not all was taken."""
        self._taken.pop(chat_no, None)

    def finish(self) -> tuple[int, str] | None:
        """Return the first of the chats that were taken which has a problem, and the problem; None when there is none."""
        self._add()
        for chat_no, of_chat in self._taken.items():
            problem = self._problems.get(chat_no) or _difference(self._sums.of(chat_no), of_chat)
            if problem is not None:
                return chat_no, problem
        return None

    def _add(self) -> None:
        """Add what was taken to the sums of its chats."""
        batch, runs = texts_of(self._written), self._runs
        numbers = np.array(self._ordinals, dtype=np.uint64)
        counts = np.array([run.length for run in runs], dtype=np.int64)
        ends = np.cumsum(counts)
        occurrences = np.zeros(len(numbers), np.uint64)
        lengths = [np.zeros(len(numbers), np.uint64) for _ in FIELDS]
        fields: dict[SearchField, tuple[Sequence[int], list[str]]] = {TEXT: (range(len(numbers)), batch.texts)}
        for field, (having, texts) in (fields | batch.others).items():
            hashes, sizes = self._terms.of(texts, field)
            places = np.array(having, dtype=np.int64)
            starts = (np.cumsum(sizes) - sizes).astype(np.uint64)
            within = np.arange(len(hashes), dtype=np.uint64) + np.repeat((numbers[places] << _SHIFT) - starts, sizes)
            occurrences[places] += sums_of_runs(occurrence_hashes(hashes, within), np.cumsum(sizes))
            lengths[FIELDS.index(field)][places] = sizes
            for at in np.flatnonzero(sizes > LANDMARK_TERMS).tolist():
                run = runs[int(np.searchsorted(ends, having[at], "right"))]
                self._check_landmarks(run, having[at], field, texts[at])
        columns = [
            *(numbers, *lengths),
            np.array(batch.times, dtype=np.int64).view(np.uint64),
            np.array([hash_of(name.encode()) for name in batch.names], dtype=np.uint64),
            np.repeat(np.array([run.segment for run in runs], dtype=np.uint64), counts),
            np.array(self._offsets, dtype=np.uint64),
        ]
        sums = sums_of_runs(occurrences, ends).tolist(), sums_of_runs(document_hashes(columns), ends).tolist()
        for run, *of_run in zip(runs, *sums, strict=True):
            if run.chat_no in self._taken:  # not dropped meanwhile
                self._taken[run.chat_no] = self._taken[run.chat_no].plus(run.length, *of_run)
        self._clear()

    def _check_landmarks(self, run: _Run, at: int, field: SearchField, text: str) -> None:
        """Compare what the search index knows of a long text with the text."""
        try:
            landmarks = list(landmarks_of_text(self._txn, self._tables, run.chat_no, self._ordinals[at], field))
        except ValueError:  # the row does not consist of whole numbers
            is_right = False
        else:
            is_right = not landmarks or landmarks == landmarks_of(text)
        if not is_right:
            place = run.segment, self._offsets[at]
            message_id = Chains(self._txn, self._tables.rows, run.chat_no, "").id_at(place)
            self._problems[run.chat_no] = f"message {message_id!r} is another one in the search index"


def _difference(indexed: ChatSum, actual: ChatSum) -> str | None:
    if indexed.messages != actual.messages:
        return f"the search index has {indexed.messages:,} messages of it, the chat {actual.messages:,}"
    if indexed.documents != actual.documents:
        return "a message of it is another one in the search index"
    return None if indexed.occurrences == actual.occurrences else "the search index has other words than its messages"


_SHIFT: Final = np.uint64(32)
