"""
Lanes of a chat drawn as rows, as git graphs are: one message a row in log order, one line of messages a lane.

The layout works on segments (runs of first children), not on messages. At each fork the line goes on to the child on the active
branch, else to the child below which was written last; each other child begins a line of its own, right of its parent's.
A line takes its lane from the row after its fork to its last message. Lines are put, in the order in which a drawing without
crossings has them from left to right (a line, then those that fork off it, the latest first), each into the leftmost lane
right of all that are beside it. So an edge, drawn from the fork into the next row and from there straight down, crosses none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

Place = tuple[int, int]
"""Where a message is: the number of its segment, and its offset there."""


class SegmentShape(NamedTuple):
    """A run of first children: the place that it hangs on, None for a root, and the number of its messages."""

    parent: Place | None
    length: int


class Line(NamedTuple):
    """
    Messages that are drawn in one lane.

    Args:
        parent: The message that it forks off; None for a root.
        parts: Its messages as (segment, first offset, last offset), in the order of rows.
        start: The first row in which it has its lane: that after its fork.
        first: The row of its first message, which tells it from others.
        last: The row of its last message when it was laid out.
        lane: Its lane, counted from 0.
        end: The number after that of the last line that forks off it, directly or not: these have the numbers between.
    """

    parent: Place | None
    parts: tuple[tuple[int, int, int], ...]
    start: int
    first: int
    last: int
    lane: int
    end: int


class LaneLayout(NamedTuple):
    """
    The lanes of a chat.

    Args:
        lines: All lines, in the order from left to right of a drawing without crossings.
        lanes: The number of lanes.
        forks: For each segment, the offsets of its messages that have more than one child, and go on in it.
        line_of: For each segment, the numbers of the lines that its parts between those offsets are in.
        hanging: The segments that hang on a message, in the order of their creation.
        active: The part of which the head of the active branch is: its segment and number; None for an empty branch.
    """

    lines: list[Line]
    lanes: int
    forks: list[list[int]]
    line_of: list[list[int]]
    hanging: dict[Place | None, list[int]]
    active: Place | None

    def line(self, place: Place) -> int:
        """Return the number of the line of the message at a place."""
        segment, offset = place
        return self.line_of[segment][bisect_left(self.forks[segment], offset)]

    def lane(self, place: Place) -> int:
        """Return the lane of the message at a place."""
        return self.lines[self.line(place)].lane

    def part(self, place: Place) -> Place:
        """Return the part that a message is in, as its segment and its number there."""
        return place[0], bisect_left(self.forks[place[0]], place[1])


def lay_out(segments: Sequence[SegmentShape], row_of: Callable[[Place], int], *, head: Place | None) -> LaneLayout:
    """
    Lay a chat out in lanes.

    Args:
        segments: Its segments by number; one that hangs on another has the higher number.
        row_of: Gives the row of the message at a place. Rows are numbered from 0, parents before their children.
        head: The place of the head of the active branch; None where it is empty.

    Returns:
        The layout. Costs O(segments log segments) calls of `row_of`, whatever the number of messages.
    """
    hanging: dict[Place | None, list[int]] = {}
    for number, shape in enumerate(segments):
        hanging.setdefault(shape.parent, []).append(number)
    forks: list[list[int]] = [[] for _ in segments]
    for place in hanging:
        if place is not None and place[1] + 1 < segments[place[0]].length:
            forks[place[0]].append(place[1])
    for offsets in forks:
        offsets.sort()
    parts = _Parts(segments, row_of, forks, hanging)
    return parts.laid_out(head)


class _Parts:
    """The parts of segments between forks, as a tree of lines is made of them."""

    def __init__(
        self,
        segments: Sequence[SegmentShape],
        row_of: Callable[[Place], int],
        forks: list[list[int]],
        hanging: dict[Place | None, list[int]],
    ) -> None:
        self._segments, self._row_of, self._forks, self._hanging = segments, row_of, forks, hanging
        self._line_of = [[0] * (len(offsets) + 1) for offsets in forks]
        self._newest = self._newest_rows()

    def _last(self, part: Place) -> Place:
        """Return the place of the last message of a part."""
        segment, number = part
        offsets = self._forks[segment]
        return segment, offsets[number] if number < len(offsets) else self._segments[segment].length - 1

    def _first(self, part: Place) -> Place:
        segment, number = part
        return segment, self._forks[segment][number - 1] + 1 if number else 0

    def _children(self, part: Place) -> list[Place]:
        """Return the parts that follow a part, in the order of their creation."""
        segment, number = part
        below = [(hanging, 0) for hanging in self._hanging.get(self._last(part), ())]
        return [(segment, number + 1), *below] if number < len(self._forks[segment]) else below

    def _newest_rows(self) -> list[list[int]]:
        """Return for each part the row of the newest message in or below it. Segments hang on those with lower numbers."""
        newest: list[list[int]] = [[0] * len(numbers) for numbers in self._line_of]
        for segment in range(len(newest) - 1, -1, -1):
            for number in range(len(newest[segment]) - 1, -1, -1):
                part = segment, number
                below = (newest[child][at] for child, at in self._children(part))
                newest[segment][number] = max(below, default=-1)
                if newest[segment][number] < 0:
                    newest[segment][number] = self._row_of(self._last(part))
        return newest

    def _active_parts(self, head: Place | None) -> set[Place]:
        active: set[Place] = set()
        at = head
        while at is not None:
            segment, last = at[0], bisect_left(self._forks[at[0]], at[1])
            active.update((segment, number) for number in range(last + 1))
            at = self._segments[segment].parent
        return active

    def laid_out(self, head: Place | None) -> LaneLayout:
        active = self._active_parts(head)

        def rank(part: Place) -> tuple[bool, int]:
            return part in active, self._newest[part[0]][part[1]]

        lines: list[Line] = []
        open_lines: list[int] = []
        skyline = _Skyline()
        # Lines to begin, as the message that each forks off and its first part; None ends the line that was begun last.
        pending: list[tuple[Place | None, Place] | None] = []
        pending.extend((None, root) for root in sorted(((root, 0) for root in self._hanging.get(None, ())), key=rank))
        while pending:
            entry = pending.pop()
            if entry is None:
                number = open_lines.pop()
                lines[number] = lines[number]._replace(end=len(lines))
                continue
            parent, part = entry
            line, others = self._followed(part, rank)
            for of_segment, at in line:
                self._line_of[of_segment][at] = len(lines)
            first, last = self._row_of(self._first(part)), self._row_of(self._last(line[-1]))
            start = first if parent is None else self._row_of(parent) + 1
            parts = tuple((piece[0], self._first(piece)[1], self._last(piece)[1]) for piece in line)
            open_lines.append(len(lines))
            lines.append(Line(parent, parts, start, first, last, skyline.put(start, last), 0))
            pending.append(None)
            pending.extend(others)
        heads = None if head is None else (head[0], bisect_left(self._forks[head[0]], head[1]))
        return LaneLayout(lines, skyline.lanes, self._forks, self._line_of, self._hanging, heads)

    def _followed(
        self, part: Place, rank: Callable[[Place], tuple[bool, int]]
    ) -> tuple[list[Place], list[tuple[Place, Place]]]:
        """Return the parts of the line that begins with one, and those that fork off it, each after its parent: earliest first."""
        line: list[Place] = []
        others: list[tuple[Place, Place]] = []
        at: Place | None = part
        while at is not None:
            line.append(at)
            children = self._children(at)
            going_on = max(children, key=rank, default=None)
            # Reversed, for they are taken from the end: of one fork the oldest comes next to the line.
            others.extend((self._last(at), child) for child in reversed(children) if child != going_on)
            at = going_on
        return line, others


class _Skyline:
    """The lanes taken so far, row by row: the last one of each row. Rows between two steps have the same."""

    def __init__(self) -> None:
        self._rows, self._lanes = [0], [-1]
        self.lanes = 0

    def put(self, first: int, last: int) -> int:
        """Take the leftmost lane that is right of all in these rows, and return it."""
        low, high = bisect_right(self._rows, first) - 1, bisect_right(self._rows, last)
        lane = max(self._lanes[low:high]) + 1
        rows, lanes = [first], [lane]
        if self._rows[low] < first:
            rows.insert(0, self._rows[low])
            lanes.insert(0, self._lanes[low])
        if high == len(self._rows) or self._rows[high] > last + 1:
            rows.append(last + 1)
            lanes.append(self._lanes[high - 1])
        self._rows[low:high], self._lanes[low:high] = rows, lanes
        self.lanes = max(self.lanes, lane + 1)
        return lane


def extend(layout: LaneLayout, place: Place, row: int) -> LaneLayout:
    """
    Return the layout after messages were added at the end of the line that had the last row.

    Args:
        layout: The layout before. What was added is in the segment of the last message, as its continuation.
        place: The place of the message in the last row now.
        row: The last row.
    """
    number = layout.line(place)
    line = layout.lines[number]
    segment, first, _ = line.parts[-1]
    lines = layout.lines.copy()
    lines[number] = line._replace(parts=(*line.parts[:-1], (segment, first, place[1])), last=row)
    return layout._replace(lines=lines)
