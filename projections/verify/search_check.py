"""Whether the search index says what messages say: of many chats at a time, and in constant memory."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from chatledger.domain.log.parts import list_header
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.search.tokens import LANDMARK_TERMS, PART, landmarks_of

from ..chat.chains import Chains, Segment
from ..chat.forked import SEGMENT
from ..chat.pages import MessagePage, unpack_page
from ..lmdb.checksums import CHECKSUM_BYTES, is_sound, without_checksum
from ..lmdb.environment import Transaction
from ..lmdb.keys import Tag, number, to_number
from ..lmdb.tables import Tables
from ..search.building import Vocabulary
from ..search.indexer import landmarks_of_text, signed
from ..search.log_order import Written, decode_written, texts_of
from ..search.postings import spelled_out
from ..versioned.messages import OF_AGENTS, HeldMessages
from .search_sums import ChatSum, SearchSums, document_hashes, hash_of, occurrence_hashes, sums_of_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .search_sums import Hashes


_split_page: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

KINDS: Final = {
    Tag.RECORD: "its record: counts, times, the active branch or the last event",
    Tag.PROFILE: "its owner, title or metadata",
    Tag.COUNTERS: "its counters",
    Tag.LAST_TEXT: "the line of its last message",
    Tag.BRANCH: "a branch",
    Tag.BRANCH_NAME: "the name of a branch",
    Tag.NAME_COUNT: "how many branches are named alike",
    Tag.CHECKPOINT: "a checkpoint",
    Tag.COMMAND: "the commands that were carried out",
    Tag.SEGMENT: "the order of its messages",
    Tag.FORK: "where its branches fork",
    Tag.PAGE: "a message",
    Tag.ANNOTATION: "an annotation",
    Tag.RUN: "a run",
    Tag.RUN_NUMBER: "the number of a run",
    Tag.RUN_LIST: "a list of runs",
    Tag.REGENERATION: "a regeneration",
    Tag.LARGE: "what large data it has",
    Tag.TURN: "the count of its turns",
    Tag.MEMBER: "a member",
    Tag.PSEUDONYM: "what stands in the place of names",
    Tag.ONCE: "where an id of `once` has fired",
}


Row = tuple[bytes, bytes]
Take = Callable[[int, MessagePage], None]
"""Is told a page of messages, and the number of the segment that it lies in."""

_TAG: Final = slice(8, 9)
_OF_SEGMENT: Final = slice(0, 13)


def next_chat(tables: Tables, txn: Transaction, after: int) -> int | None:
    """The chat with the lowest number above `after` that has rows."""
    cursor = txn.cursor(tables.rows)
    return to_number(bytes(cursor.key()[:8])) if cursor.set_range(number(after + 1)) else None


class _Rows:
    """The rows of a chat in one index, one after the other; `row` is the present one, None at the end."""

    def __init__(self, tables: Tables, txn: Transaction, chat_no: int) -> None:
        self._rest = _rows(tables, txn, number(chat_no))
        self.row: Row | None = next(self._rest, None)

    def advance(self) -> None:
        self.row = next(self._rest, None)


def _rows(tables: Tables, txn: Transaction, prefix: bytes) -> Iterator[Row]:
    cursor = txn.cursor(tables.rows)
    if cursor.set_range(prefix):
        for row in cursor.iternext():
            if row[0][:8] != prefix:
                return
            yield row


def find_difference(
    live: tuple[Tables, Transaction], replayed: tuple[Tables, Transaction], chat_no: int, *, take: Take
) -> str | None:
    """
    Compare the rows of a chat, whatever pages its messages lie on. Takes memory for a page of each.

    `take`: is told each page of the live index once it was compared.

    Returns:
        The kind of the first row that differs, in words; None when none does.
    """
    ours, theirs = _Rows(*live, chat_no), _Rows(*replayed, chat_no)
    while ours.row is not None and theirs.row is not None:
        (key, value), (other_key, other) = ours.row, theirs.row
        tag = key[_TAG]
        if tag == Tag.PAGE and key[_OF_SEGMENT] == other_key[_OF_SEGMENT]:
            if not _is_same_page(ours, theirs, take):
                return KINDS[Tag.PAGE]
            continue
        if key != other_key or (value != other and not (tag == Tag.SEGMENT and _lasting(value) == _lasting(other))):
            break
        ours.advance()
        theirs.advance()
    keys = [rows.row[0] for rows in (ours, theirs) if rows.row is not None]
    return KINDS.get(min(keys)[_TAG], "a row") if keys else None


def _lasting(value: bytes) -> Segment:
    """A segment without what depends on how messages came together in transactions."""
    return Segment._make(SEGMENT.unpack(without_checksum(value)))._replace(tail_start=0, tail_bytes=0)


def _is_same_page(ours: _Rows, theirs: _Rows, take: Take) -> bool:
    """Compare pages up to where a page ends in both; goes on to the row behind them, where their messages are the same."""
    assert ours.row is not None
    segment_key = ours.row[0][_OF_SEGMENT]
    segment = int.from_bytes(segment_key[9:], "big")
    if ours.row == theirs.row:
        take(segment, unpack_page(ours.row[0], ours.row[1][:-CHECKSUM_BYTES]))
        ours.advance()
        theirs.advance()
        return True
    mine, others = _Messages(ours, segment_key), _Messages(theirs, segment_key)
    while True:
        mine.fill()
        others.fill()
        count = min(len(mine.left), len(others.left))
        if not count or mine.left[:count] != others.left[:count]:
            return not mine.left and not others.left
        del mine.left[:count]
        del others.left[:count]
        if not mine.left:
            assert mine.page is not None
            take(segment, mine.page)
            if not others.left:
                return True


class _Item(NamedTuple):
    """A message of a page: its offset, its number in log order, whether the page is sound, and its row."""

    offset: int
    ordinal: int
    is_whole: bool
    body: bytes


class _Messages:
    """The messages of a segment in one index that are still to be compared, of one page."""

    def __init__(self, rows: _Rows, segment_key: bytes) -> None:
        self._rows, self._segment_key = rows, segment_key
        self.page: MessagePage | None = None
        self.left: list[_Item] = []

    def fill(self) -> None:
        """Take the next page when none is left of the one before."""
        row = self._rows.row
        if self.left or row is None or row[0][_OF_SEGMENT] != self._segment_key:
            return
        key, value = row
        self.page = unpack_page(key, value[:-CHECKSUM_BYTES])
        is_whole = is_sound(value)
        bodies = map(bytes, _split_page(self.page.array))
        numbered = zip(self.page.ordinals, bodies, strict=True)
        self.left = [
            _Item(at, ordinal, is_whole, body) for at, (ordinal, body) in enumerate(numbered, self.page.first_offset)
        ]
        self._rows.advance()


BATCH_MESSAGES: Final = 2_048
BATCH_BYTES: Final = 1 << 20
"""So many messages, or bytes of them, are looked at together."""


class TermHashes:
    """The hashes of the terms of texts, of many texts at a time."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._vocabulary = Vocabulary()
        self._sizes = np.empty(0, np.int64)
        self._hashes: dict[SearchField, tuple[int, Hashes]] = {}

    def of(self, texts: "Sequence[str]", field: SearchField) -> "tuple[Hashes, NDArray[np.int64], NDArray[np.int64]]":
        """
        Return the hashes of the terms of texts in a field, one text's after the other.

        And how many each term has, as an identifier has parts, and how many terms each text has.
        """
        if self._vocabulary.is_full:
            self._begin()
        coded = self._vocabulary.code(texts)
        terms, (count, hashes) = self._vocabulary.terms, self._hashes.get(field, (0, _NONE))
        if count < len(terms):
            new = [
                hash_of(part) for term in terms[count:] for part in signed(field, term).encode().split(PART.encode())
            ]
            hashes = np.concatenate((hashes, np.array(new, dtype=np.uint64)))
            self._hashes[field] = len(terms), hashes
        if len(self._sizes) < len(terms):
            sizes = [1 + term.count(PART) for term in terms[len(self._sizes) :]]
            self._sizes = np.concatenate((self._sizes, np.array(sizes, dtype=np.int64)))
        return *spelled_out(coded.codes, self._sizes, hashes), coded.lengths


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

    `sums`: of all chats, read from the search index before; messages that were written since are passed over. `terms`:
    hashes of terms, kept from one check to the next.
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

    def take_held(self, number: int, held: HeldMessages) -> None:
        """Take the messages of a thread, a state or an item, which lie in no pages. Raises `CorruptStateError`."""
        expected = self._sums.of(number).messages
        for (segment, ordinal), body in held.bodies(0, 0 if number in self._problems else expected):
            self._runs.append(_Run(number, segment, 1))
            self._ordinals.append(ordinal)
            self._offsets.append(ordinal)
            self._written += decode_written(list_header(1) + body)
            self._bytes += len(body)
            if len(self._written) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES:
                self._add()

    def drop(self, chat_no: int) -> None:
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
            hashes, counts_of_terms, sizes = self._terms.of(texts, field)
            places = np.array(having, dtype=np.int64)
            starts = (np.cumsum(sizes) - sizes).astype(np.uint64)
            terms = np.arange(len(counts_of_terms), dtype=np.uint64)
            within = (terms + np.repeat((numbers[places] << _SHIFT) - starts, sizes)).repeat(counts_of_terms)
            of_terms = sums_of_runs(occurrence_hashes(hashes, within), np.cumsum(counts_of_terms))
            occurrences[places] += sums_of_runs(of_terms, np.cumsum(sizes))
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
            self._problems[run.chat_no] = f"message {self._name(run, at)} is another one in the search index"

    def _name(self, run: _Run, at: int) -> str:
        place = run.segment, self._offsets[at]
        if run.segment >= OF_AGENTS:
            return f"number {self._ordinals[at]}"
        return repr(Chains(self._txn, self._tables.rows, run.chat_no, "").id_at(place))


def _difference(indexed: ChatSum, actual: ChatSum) -> str | None:
    if indexed.messages != actual.messages:
        return f"the search index has {indexed.messages:,} messages of it, the chat {actual.messages:,}"
    if indexed.documents != actual.documents:
        return "a message of it is another one in the search index"
    return None if indexed.occurrences == actual.occurrences else "the search index has other words than its messages"


_SHIFT: Final = np.uint64(32)
