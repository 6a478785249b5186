"""Adding messages to the chains of a chat. Rows at the end of a segment are merged into a page when there are enough."""

from collections.abc import Iterable
from typing import Final

import lmdb
import msgspec

from chatledger.domain.values import Message

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction
from ..lmdb.keys import NO_SEGMENT, fork_key, page_key, segment_key
from .chains import Chains, Place, Segment, pack_segment
from .pages import PAGE_BYTES, PAGE_MESSAGES, pack_page, split_page, unpack_page

_encode: Final = msgspec.msgpack.Encoder().encode

Item = tuple[int, bytes]  # the number of a message in log order, and the message


class ChainWriter(Chains):
    """The chains of one chat in a write transaction. What was added is in the tables after `flush`."""

    def __init__(
        self, txn: Transaction, table: "lmdb._Database", chat_no: int, chat_id: str, *, segment_count: int
    ) -> None:
        super().__init__(txn, table, chat_no, chat_id)
        self.segment_count = segment_count
        self._added: dict[int, list[Item]] = {}
        self.added_bytes = 0
        """The size of the message that was added last."""

    def add(self, message: Message, parent: Place | None, ordinal: int) -> Place:
        """Put a message below its parent, and say where it is."""
        bare = msgspec.structs.replace(message, chat_id="", parent_id=None)  # both follow from the place
        number = self._segment_for(parent)
        segment = self.segment(number)
        self._segments[number] = _longer(segment)
        body = _encode(bare)
        self.added_bytes = len(body)
        self._added.setdefault(number, []).append((ordinal, body))
        return number, segment.length

    def _segment_for(self, parent: Place | None) -> int:
        if parent is not None and parent[1] + 1 == self.segment(parent[0]).length:
            return parent[0]
        number = self.segment_count
        self.segment_count += 1
        at = (NO_SEGMENT, NO_SEGMENT) if parent is None else parent
        level, jump = (0, number) if parent is None else self._skip(parent[0])
        self._segments[number] = Segment(
            *at,
            first_depth=0 if parent is None else self.depth(parent) + 1,
            length=0,
            level=level,
            jump=jump,
            tail_start=0,
            tail_bytes=0,
        )
        self._txn.put(fork_key(self._chat_no, at, number), b"", db=self._table)
        return number

    def _skip(self, parent: int) -> tuple[int, int]:
        """Level and skip pointer of a segment below `parent`, by Myers' rule."""
        above = self.segment(parent)
        jumped = self.segment(above.jump)
        same_length = above.level - jumped.level == jumped.level - self.segment(jumped.jump).level
        return above.level + 1, jumped.jump if same_length else parent

    def flush(self) -> None:
        """Write what was added since the last flush."""
        for number, items in self._added.items():
            segment = self._write_tail(number, self.segment(number), items)
            self._segments[number] = segment
            self._txn.put(segment_key(self._chat_no, number), with_checksum(pack_segment(segment)), db=self._table)
        self._added.clear()

    def _write_tail(self, number: int, segment: Segment, items: list[Item]) -> Segment:
        size = segment.tail_bytes + sum(len(body) for _, body in items)
        if segment.length - segment.tail_start < PAGE_MESSAGES and size < PAGE_BYTES:
            self._put_page(number, segment.length - len(items), items)
            return segment._replace(tail_bytes=size)
        offset = segment.tail_start
        rest: list[Item] = []
        used = 0
        for item in [*self._take_tail(number, segment.tail_start), *items]:
            rest.append(item)
            used += len(item[1])
            if len(rest) == PAGE_MESSAGES or used >= PAGE_BYTES:
                self._put_page(number, offset, rest)
                offset += len(rest)
                rest, used = [], 0
        if rest:
            self._put_page(number, offset, rest)
        return segment._replace(tail_start=offset, tail_bytes=used)

    def _take_tail(self, number: int, start: int) -> Iterable[Item]:
        """Remove the rows that are not yet merged, and return what they hold."""
        taken: list[Item] = []
        cursor = self._txn.cursor(self._table)
        prefix = page_key(self._chat_no, number, start)[:-4]
        found = cursor.set_range(page_key(self._chat_no, number, start))
        while found and (key := cursor.key()).startswith(prefix):
            page = without_checksum(cursor.value())
            taken.extend(zip(unpack_page(key, page).ordinals, split_page(page), strict=True))
            cursor.delete()  # moves to the next row
            found = bool(cursor.key())
        return taken

    def _put_page(self, number: int, offset: int, items: list[Item]) -> None:
        value = pack_page([ordinal for ordinal, _ in items], [body for _, body in items])
        self._txn.put(page_key(self._chat_no, number, offset), with_checksum(value), db=self._table)


def _longer(segment: Segment) -> Segment:
    """The segment with one message more. `_replace` takes five times as long, for every message."""
    parent, offset, depth, length, level, jump, tail_start, tail_bytes = segment
    return Segment(parent, offset, depth, length + 1, level, jump, tail_start, tail_bytes)
