"""The rows of one chat in two indexes, compared."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from ..chat.chains import Segment
from ..chat.forked import SEGMENT
from ..chat.packed import plain_body
from ..chat.pages import MessagePage, unpack_page
from ..lmdb.checksums import CHECKSUM_BYTES, is_sound, without_checksum
from ..lmdb.environment import Transaction
from ..lmdb.keys import Tag, number, to_number
from ..lmdb.tables import Tables

_split_page: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

KINDS: Final = {
    Tag.RECORD: "its record: counts, times, the active branch or the last event",
    Tag.PROFILE: "its owner, title or metadata",
    Tag.COUNTERS: "its counters",
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
        """Go on to the next row."""
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

    Args:
        live: The index that serves.
        replayed: The replay of the log.
        chat_no: The number of the chat.
        take: Is told each page of the live index once it was compared.

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
        if not count or not all(map(_is_same_message, mine.left[:count], others.left[:count])):
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


def _is_same_message(ours: _Item, theirs: _Item) -> bool:
    """Compare messages as they are packed, also where their compressed data are not the same bytes."""
    return ours == theirs or (ours[:3] == theirs[:3] and plain_body(ours.body) == plain_body(theirs.body))


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
