"""The checkpoints of a thread as a drawing: one a row, the newest first, one line of them a lane."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from chatledger.domain.wire import Value

ROW: Final = 32
"""The height of a row, in units of the drawing; 16 are one `rem`."""

_LANE, _EDGE = 16, 12


class CheckpointPlace(NamedTuple):
    """A checkpoint of a thread: two namespaces may have the same id."""

    namespace: str
    checkpoint_id: str


class Stroke(Value, frozen=True):
    """A line of the drawing: the data of an SVG path, and its colour, from 1 to 8."""

    d: str
    colour: int


class Dot(Value, frozen=True):
    """A checkpoint of the drawing."""

    x: int
    y: int
    colour: int


class Drawing(Value, frozen=True, kw_only=True):
    """A drawing, in units of which 16 are one `rem`."""

    width: int
    height: int
    strokes: list[Stroke]
    dots: list[Dot]


def draw_lanes(rows: Sequence[tuple[CheckpointPlace, CheckpointPlace | None]]) -> Drawing:
    """
    Draw checkpoints, given with their parents, the newest first.

    A lane leads from a checkpoint down to its parent; of several that have the same parent, all lanes end in its row. Where
    the parent is not among the rows, the lane goes on to the end.
    """
    lanes: list[CheckpointPlace | None] = []
    strokes: list[Stroke] = []
    dots: list[Dot] = []
    most = 1
    for number, (place, parent) in enumerate(rows):
        top = number * ROW
        middle, bottom = top + ROW // 2, top + ROW
        waiting = [at for at, awaited in enumerate(lanes) if awaited == place]
        free = next((at for at, awaited in enumerate(lanes) if awaited is None), len(lanes))
        lane = waiting[0] if waiting else free
        for at, awaited in enumerate(lanes):
            if awaited is not None:
                strokes.append(_stroke(at, lane, top, middle) if at in waiting else _stroke(at, at, top, bottom))
        for at in waiting:
            lanes[at] = None
        if lane == len(lanes):
            lanes.append(None)
        lanes[lane] = parent
        if parent is not None:
            strokes.append(_stroke(lane, lane, middle, bottom))
        dots.append(Dot(_x(lane), middle, _colour(lane)))
        most = max(most, len(lanes))
    return Drawing(width=2 * _EDGE + (most - 1) * _LANE, height=len(rows) * ROW, strokes=strokes, dots=dots)


def _stroke(from_lane: int, to_lane: int, top: int, bottom: int) -> Stroke:
    start, end = _x(from_lane), _x(to_lane)
    if start == end:
        return Stroke(f"M{start} {top}V{bottom}", _colour(from_lane))
    return Stroke(f"M{start} {top}C{start} {bottom} {end} {top} {end} {bottom}", _colour(from_lane))


def _x(lane: int) -> int:
    return _EDGE + lane * _LANE


def _colour(lane: int) -> int:
    return lane % 8 + 1
