"""
Lanes of a chat drawn as rows, as git graphs are: one message a row in log order, one line of messages a lane.

The layout works on segments (runs of first children), not on messages. At each fork the line goes on to the child on the path that
is read, else to the child below which was written last; each other child begins a line of its own. So the path that is read is one
line from its root on, and has lane 0 for itself.

A line that nobody adds to for long would only run on beside others: sixty forks at the end of a log are sixty lines from where they
fork down to the end. So a line is cut where it has more than `LONGEST_GAP` rows without a message. It is drawn for `STUB` rows
after the last one, and again from `STUB` rows before the next. What remains are spans, each in the leftmost lane from 1 that is
free over its rows. A span that would need a lane beyond the last one is drawn in `BUNDLE`, where cut lines are counted too.
All of it depends on rows alone, and not on the window that shows them: nothing jumps while somebody scrolls.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Final, Literal, NamedTuple

Place = tuple[int, int]
"""Where a message is: the number of its segment, and its offset there."""

LONGEST_GAP: Final = 18
"""So many rows of a line may be without a message; about two thirds of the rows that a window shows."""

STUB: Final = 3
"""The rows that a line is drawn for at each side of a cut."""

BUNDLE: Final = 8
"""The lane of what has no room in those before it: a ninth lane would leave too little for the words of a row."""


class SegmentShape(NamedTuple):
    """A run of first children: the place that it hangs on, None for a root, and the number of its messages."""

    parent: Place | None
    length: int


class LaneSpan(NamedTuple):
    """The rows, from first to last, over which a line is drawn in a lane."""

    first: int
    last: int
    lane: int


class Line(NamedTuple):
    """
    Messages that are drawn below each other.

    Args:
        parent: The message that it forks off; None for a root.
        parts: Its messages as (segment, first offset, last offset), in the order of rows.
        start: The first row in which it has its lane: that after its fork.
        first: The row of its first message, which tells it from others.
        last: The row of its last message when it was laid out.
        end: The number after that of the last line that forks off it, directly or not: these have the numbers between.
        spans: Where it is drawn, in the order of rows.
    """

    parent: Place | None
    parts: tuple[tuple[int, int, int], ...]
    start: int
    first: int
    last: int
    end: int
    spans: tuple[LaneSpan, ...]

    def span(self, row: int) -> LaneSpan:
        """Return the span that has a row, or the one after it where the line is cut there."""
        return self.spans[bisect_left(self.spans, row, key=_last_row)]


class LaneLayout(NamedTuple):
    """
    The lanes of a chat.

    Args:
        lines: All lines: each before those that fork off it, the latest fork first. Line 0 has the path that is read.
        lanes: The number of lanes, among them `BUNDLE` where it is used.
        forks: For each segment, the offsets of its messages that have more than one child, and go on in it.
        line_of: For each segment, the numbers of the lines that its parts between those offsets are in.
        hanging: The segments that hang on a message, in the order of their creation.
        read: The part in which the path that is read ends: its segment and number; None for an empty path.
        bundle: Where lines are cut: (first row, last row, how many), in the order of rows.
    """

    lines: list[Line]
    lanes: int
    forks: list[list[int]]
    line_of: list[list[int]]
    hanging: dict[Place | None, list[int]]
    read: Place | None
    bundle: list[tuple[int, int, int]]

    def line(self, place: Place) -> int:
        """Return the number of the line of the message at a place."""
        segment, offset = place
        return self.line_of[segment][bisect_left(self.forks[segment], offset)]

    def lane(self, place: Place, row: int) -> int:
        return self.lines[self.line(place)].span(row).lane

    def part(self, place: Place) -> Place:
        """Return the part that a message is in, as its segment and its number there."""
        return place[0], bisect_left(self.forks[place[0]], place[1])


class EdgePiece(NamedTuple):
    """A drawn part of an edge: from a row and lane to another, and whether it ends (`down`) or begins (`up`) at a cut."""

    row: int
    lane: int
    to_row: int
    to_lane: int
    cut: Literal["down", "up"] | None


def pieces_of(line: Line, parent: tuple[int, int], row: int) -> list[EdgePiece]:
    """
    Return what is drawn of the edge to a message: one piece, or two where it is cut between.

    `parent`: the row and the lane of the message that it answers.
    """
    stub, span = line.span(parent[0] + 1), line.span(row)
    if stub == span:
        return [EdgePiece(*parent, row, span.lane, None)]
    return [EdgePiece(*parent, stub.last, stub.lane, "down"), EdgePiece(span.first, span.lane, row, span.lane, "up")]


def lay_out(
    segments: Sequence[SegmentShape],
    row_of: Callable[[Place], int],
    runs_of: Callable[[int, int, int], Iterable[tuple[int, int]]],
    *,
    head: Place | None,
) -> LaneLayout:
    """
    Lay a chat out in lanes.

    Args:
        segments: Its segments by number; one that hangs on another has the higher number.
        row_of: Gives the row of the message at a place. Rows are numbered from 0, parents before their children.
        runs_of: Gives the rows of the messages of a segment between two offsets, as (first row, last row) of rows that follow
            each other.
        head: The place of the last message of the path that is read; None where it is empty.

    Returns:
        The layout. Costs O(segments log segments) calls of `row_of`, and O(runs log runs), whatever the number of messages.
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
    lines, line_of = parts.lines_along(head)
    lanes, bundle = _put_in_lanes(lines, runs_of)
    read = None if head is None else (head[0], bisect_left(forks[head[0]], head[1]))
    return LaneLayout(lines, lanes, forks, line_of, hanging, read, bundle)


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
        newest: list[list[int]] = [[0] * len(numbers) for numbers in self._line_of]
        for segment in range(len(newest) - 1, -1, -1):
            for number in range(len(newest[segment]) - 1, -1, -1):
                part = segment, number
                below = (newest[child][at] for child, at in self._children(part))
                newest[segment][number] = max(below, default=-1)
                if newest[segment][number] < 0:
                    newest[segment][number] = self._row_of(self._last(part))
        self._newest = newest

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

    def _read_parts(self, head: Place | None) -> set[Place]:
        read: set[Place] = set()
        at = head
        while at is not None:
            segment, last = at[0], bisect_left(self._forks[at[0]], at[1])
            read.update((segment, number) for number in range(last + 1))
            at = self._segments[segment].parent
        return read

    def lines_along(self, head: Place | None) -> tuple[list[Line], list[list[int]]]:
        """Return the lines, which have no lanes yet, and for each segment the lines of its parts."""
        read = self._read_parts(head)

        def rank(part: Place) -> tuple[bool, int]:
            return part in read, self._newest[part[0]][part[1]]

        lines: list[Line] = []
        open_lines: list[int] = []
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
            lines.append(Line(parent, parts, start, first, last, 0, ()))
            pending.append(None)
            pending.extend(others)
        return lines, self._line_of

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


def _put_in_lanes(
    lines: list[Line], runs_of: Callable[[int, int, int], Iterable[tuple[int, int]]]
) -> tuple[int, list[tuple[int, int, int]]]:
    """Put the spans of all lines into lanes; return the number of lanes, and where lines are cut."""
    if not lines:
        return 0, []
    lines[0] = lines[0]._replace(spans=(LaneSpan(lines[0].start, lines[0].last, 0),))
    spans: list[tuple[int, int, int]] = []  # first row, last row, number of the line
    cuts: list[tuple[int, int]] = []
    for number in range(1, len(lines)):
        line = lines[number]
        first, end = line.start, line.start - 1
        runs = (run for part in line.parts for run in runs_of(*part))
        for run_first, run_last in runs:
            if run_first - end - 1 > LONGEST_GAP:
                spans.append((first, end + STUB, number))
                cuts.append((end + STUB + 1, run_first - STUB - 1))
                first = run_first - STUB
            end = run_last
        spans.append((first, end, number))
    spans.sort()
    laned: dict[int, list[LaneSpan]] = {}
    taken: list[tuple[int, int]] = []  # the last row of the span in a lane, and the lane
    free = list(range(1, BUNDLE))
    most = 0
    for first, last, number in spans:
        while taken and taken[0][0] < first:
            heappush(free, heappop(taken)[1])
        lane = heappop(free) if free else BUNDLE
        if lane < BUNDLE:
            heappush(taken, (last, lane))
        most = max(most, lane)
        laned.setdefault(number, []).append(LaneSpan(first, last, lane))
    for number, own in laned.items():
        lines[number] = lines[number]._replace(spans=tuple(own))
    return most + 1, list(_counted(cuts))


def _counted(cuts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the rows of cuts with how many of them each row has."""
    steps: dict[int, int] = {}
    for first, last in cuts:
        steps[first] = steps.get(first, 0) + 1
        steps[last + 1] = steps.get(last + 1, 0) - 1
    rows = sorted(row for row, step in steps.items() if step)
    counts = accumulate(steps[row] for row in rows)
    for row, following, count in zip(rows, rows[1:], counts, strict=False):
        if count:
            yield row, following - 1, count


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
    lines[number] = line._replace(
        parts=(*line.parts[:-1], (segment, first, place[1])),
        last=row,
        spans=(*line.spans[:-1], line.spans[-1]._replace(last=row)),
    )
    return layout._replace(lines=lines)


_last_row: Final = itemgetter(1)
