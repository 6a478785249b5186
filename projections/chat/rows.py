"""
Rows of a chat: its messages in log order, each in a lane, as windows of a drawing need them.

Which message is in which row is kept as runs: messages that follow each other both in a segment and in log order. It is read
from the index once, at the cost of the chat's pages, and kept in memory beside the index; what was added since costs what was
added, and a new layout of the lanes (see `domain/draw/lanes.py`) where it is not just the end of the last line.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from chatledger.domain.draw.lanes import LaneLayout, Line, Place, SegmentShape, extend, lay_out
from chatledger.domain.values import Checkpoint

if TYPE_CHECKING:
    from ..lmdb.cache import Remembered
    from .chains import Chains
    from .reader import IndexedChat

_RUN_BYTES: Final = 16
_SEGMENT_BYTES: Final = 800
_MOST_LAYOUTS: Final = 4
"""The layouts of a chat that are kept: of the active branch, and of the paths that were read last."""
_first_row = itemgetter(0)


class RowOrder:
    """
    The messages of a chat by row, and their rows by place.

    It is only added to, at the end, so a reader that knows of fewer rows may read it meanwhile.
    """

    def __init__(self) -> None:
        self.count = 0
        self._starts, self._segments, self._offsets = array("I"), array("I"), array("I")
        self._runs: list[array[int]] = []

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _RUN_BYTES * len(self._starts) + _SEGMENT_BYTES * len(self._runs)

    def add(self, segment: int, offset: int, count: int) -> None:
        """Put messages that follow each other in a segment into the next rows."""
        while segment >= len(self._runs):
            self._runs.append(array("I"))
        if not (self._starts and self._segments[-1] == segment and self.place(self.count - 1)[1] + 1 == offset):
            self._runs[segment].append(len(self._starts))
            self._segments.append(segment)
            self._offsets.append(offset)
            self._starts.append(self.count)
        self.count += count

    def place(self, row: int) -> Place:
        run = bisect_right(self._starts, row) - 1
        return self._segments[run], self._offsets[run] + row - self._starts[run]

    def row(self, place: Place) -> int:
        runs = self._runs[place[0]]
        run = runs[bisect_right(runs, place[1], key=self._offsets.__getitem__) - 1]
        return self._starts[run] + place[1] - self._offsets[run]

    def runs(self, first: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the runs in some rows as (row, segment, offset, number of messages)."""
        run = bisect_right(self._starts, first) - 1
        while first < end:
            following = self._starts[run + 1] if run + 1 < len(self._starts) else end
            count = min(following, end) - first
            yield first, self._segments[run], self._offsets[run] + first - self._starts[run], count
            first += count
            run += 1

    def spans(self, segment: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the rows of the messages of a segment between two offsets, as (first row, last row) of each run."""
        runs = self._runs[segment]
        at = bisect_right(runs, first, key=self._offsets.__getitem__) - 1
        while first <= last:
            run = runs[at]
            at += 1
            end = min(self._offsets[runs[at]] - 1, last) if at < len(runs) else last
            above = self._starts[run] - self._offsets[run]
            yield above + first, above + end
            first = end + 1

    def offset_from(self, segment: int, row: int) -> int:
        """Return the offset of the first message of a segment in this row or a later one; its length where there is none."""
        runs = self._runs[segment]
        at = bisect_right(runs, row, key=self._starts.__getitem__)
        if not at:
            return 0
        run = runs[at - 1]
        following = self._starts[run + 1] if run + 1 < len(self._starts) else self.count
        return self._offsets[run] + min(row, following) - self._starts[run]


class ChatRows(NamedTuple):
    """
    The rows of a chat as of one of its events.

    Args:
        head: The hash of the event. Its version would not do: a chat that is made anew under its id has the same versions.
        total: The number of rows.
        order: Which message is in which row; it may know of later ones.
        lengths: The number of messages of each segment.
        layout: The lanes where the active branch is read.
        layouts: The lanes by the part in which the path that is read ends, `layout` among them; `layout_along` adds to them.
        heads: The names of the branches with their head in a row.
        branches: The branches with a head, by `created_at`: the names with the rows of the heads.
        checkpoints: The names of the checkpoints of the message in a row.
        checkpoints_digest: The digest of the stored checkpoints, by which a change of them is noticed.
    """

    head: bytes
    total: int
    order: RowOrder
    lengths: list[int]
    layout: LaneLayout
    layouts: dict[Place | None, LaneLayout]
    heads: dict[int, list[str]]
    branches: list[tuple[str, int]]
    checkpoints: dict[int, list[str]]
    checkpoints_digest: bytes

    def children(self, place: Place | None) -> list[Place]:
        """Return the places of a message's children, in the order of their creation; the roots for None."""
        below = [(segment, 0) for segment in self.layout.hanging.get(place, ())]
        if place is None or place[1] + 1 >= self.lengths[place[0]]:
            return below
        return [(place[0], place[1] + 1), *below]

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        laid_out = _MOST_LAYOUTS * len(self.lengths)
        return self.order.size + _SEGMENT_BYTES * (laid_out + len(self.heads) + len(self.checkpoints))


def rows_of(chat: "IndexedChat") -> ChatRows:
    """Return the rows of a chat that exists. Costs its pages the first time, and what was added since after that."""
    record, chat_no, caches = chat.record, chat.chat_no, chat.caches
    kept: Remembered[int, ChatRows] = caches.rows
    assert record is not None, "only a living chat has rows"
    assert chat_no is not None, "only a living chat has rows"
    before = kept.get(chat_no)
    if before is not None and before.head == record.head.hash:
        return before
    with caches.rows_lock:  # the order is shared with what was kept before, and only one may add to it
        before = kept.get(chat_no)
        if before is not None and before.head == record.head.hash:
            return before
        if before is not None and before.total > record.message_count:
            return _rows_now(chat, None)  # an older snapshot asks: its rows must not replace newer ones
        rows = _rows_now(chat, before)
        kept.put(chat_no, rows, rows.size)
        return rows


def _rows_now(chat: "IndexedChat", before: ChatRows | None) -> ChatRows:
    record = chat.record
    assert record is not None, "only a living chat has rows"
    if before is not None and before.order.count != before.total:
        before = None  # an earlier call failed while it added to the order, which has more rows than it should
    order, lengths = (RowOrder(), []) if before is None else (before.order, before.lengths.copy())
    for row, segment, offset, count in _added(chat.chains, lengths, record.message_count - order.count):
        assert row == order.count, "each row has one message"
        order.add(segment, offset, count)
        lengths.extend([0] * (segment + 1 - len(lengths)))
        lengths[segment] = offset + count
    assert order.count == record.message_count, "each message has one row"
    by_creation = sorted(chat.branch_places(), key=itemgetter(0))
    branches = [(name, order.row(place)) for _, name, place in by_creation if place is not None]
    heads: dict[int, list[str]] = {}
    for name, row in branches:
        heads.setdefault(row, []).append(name)
    active = chat.branch_record(record.active_branch)
    layouts = {} if before is None else _longer(before, order, lengths)
    layout = _laid_out(chat.chains, order, lengths, layouts, None if active is None else active.place)
    return ChatRows(
        record.head.hash,
        order.count,
        order,
        lengths,
        layout,
        layouts,
        heads,
        branches,
        *_checkpoints(chat, before, order),
    )


def _longer(before: ChatRows, order: RowOrder, lengths: list[int]) -> dict[Place | None, LaneLayout]:
    """Return the layouts from before as they are now, where at most the last line became longer; else none."""
    if not before.total or len(lengths) != len(before.lengths):
        return {}
    segment, offset = order.place(before.total - 1)
    last = order.place(order.count - 1)
    if last != (segment, offset + order.count - before.total):
        return {}
    return {part: extend(layout, last, order.count - 1) for part, layout in before.layouts.items()}


def _laid_out(
    chains: "Chains",
    order: RowOrder,
    lengths: list[int],
    layouts: dict[Place | None, LaneLayout],
    head: Place | None,
) -> LaneLayout:
    """Return the lanes where the path to a message is read: out of these, else anew, and then among them."""
    # Where the path ends in its part changes no lane, so a path that goes on has the layout that it had. Which parts there are is
    # the same in all layouts.
    other = next(iter(layouts.values()), None)
    part = None if head is None or other is None else other.part(head)
    layout = layouts.pop(part, None) if other is not None else None
    if layout is None:
        shapes = [SegmentShape(chains.segment(number).parent, length) for number, length in enumerate(lengths)]
        layout = lay_out(shapes, order.row, order.spans, head=head)
    layouts[layout.read] = layout
    while len(layouts) > _MOST_LAYOUTS:
        del layouts[next(iter(layouts))]
    return layout


def layout_along(chat: "IndexedChat", rows: ChatRows, head: Place | None) -> LaneLayout:
    """Return the lanes of a chat where the path to a message is read. Costs a layout the first time, see `lay_out`."""
    with chat.caches.rows_lock:
        return _laid_out(chat.chains, rows.order, rows.lengths, rows.layouts, head)


def _added(chains: "Chains", lengths: list[int], wanted: int) -> list[tuple[int, int, int, int]]:
    """Return the `wanted` messages that the chains have beyond these lengths, as runs: (row, segment, offset, number of messages)."""
    runs: list[tuple[int, int, int, int]] = []
    last = len(lengths)
    while chains.has_segment(last):
        last += 1
    # Most messages are added to the newest segments, and the search ends when all that are new are there.
    for segment in range(last - 1, -1, -1):
        if wanted <= 0:
            break
        length_before = lengths[segment] if segment < len(lengths) else 0
        length = chains.segment(segment).length
        if length > length_before:
            runs.extend(chains.numbered_runs(segment, length_before, length - 1))
            wanted -= length - length_before
    runs.sort(key=_first_row)
    return runs


def _checkpoints(chat: "IndexedChat", before: ChatRows | None, order: RowOrder) -> tuple[dict[int, list[str]], bytes]:
    """Return the checkpoints, which are looked up anew only where one was set or removed, and their digest."""
    digest = chat.checkpoints_digest()
    if before is not None and before.checkpoints_digest == digest:
        return before.checkpoints, digest
    names_by_row: dict[int, list[str]] = {}
    for checkpoint in reversed(chat.checkpoints()):
        place = chat.place(checkpoint.message_id)
        assert place is not None, "checkpoints point at messages of their chat"
        names_by_row.setdefault(order.row(place), []).append(checkpoint.name)
    return names_by_row, digest


def checkpoints_at(chat: "IndexedChat", message_ids: list[str]) -> list[Checkpoint]:
    """Return the checkpoints at these messages, the newest first. Others are not read."""
    if chat.record is None:
        return []
    rows = rows_of(chat)
    chat.look_up(message_ids)
    places = {place for message_id in message_ids if (place := chat.place(message_id)) is not None}
    names = (name for place in places for name in rows.checkpoints.get(rows.order.row(place), ()))
    checkpoints = [checkpoint for name in names if (checkpoint := chat.checkpoint(name)) is not None]
    return sorted(checkpoints, key=lambda checkpoint: (-checkpoint.created_at, checkpoint.name))


def edges_through(layout: LaneLayout, order: RowOrder, row: int) -> Iterator[tuple[Line, Place, Place]]:
    """Yield the edges from a row above this one to this one or a later one: the line, and the places of parent and child."""
    for line in layout.lines:
        if line.start > row or line.last < row:
            continue
        # The parts follow each other in rows: find the part that has the first message from this row on.
        at = bisect_left(line.parts, row, key=lambda part: order.row((part[0], part[2])))
        segment, first, _ = line.parts[at]
        child = segment, max(order.offset_from(segment, row), first)
        if child[1] > first:
            parent: Place | None = segment, child[1] - 1
        else:
            parent = (line.parts[at - 1][0], line.parts[at - 1][2]) if at else line.parent
        if parent is not None:
            yield line, parent, child
