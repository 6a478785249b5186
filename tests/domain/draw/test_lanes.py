"""The lanes of a chat drawn as rows, for trees of any shape."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.draw.lanes import LaneLayout, Place, SegmentShape, extend, lay_out

Tree = list[int | None]
"""The parent of the message in each row."""


class Drawn:
    """A tree in segments, as the index has it, and its layout."""

    def __init__(self, tree: Tree, head: int | None) -> None:
        self.tree = tree
        self.places: list[Place] = []
        shapes: list[SegmentShape] = []
        for parent in tree:
            at = None if parent is None else self.places[parent]
            if at is not None and shapes[at[0]].length == at[1] + 1:
                shapes[at[0]] = SegmentShape(shapes[at[0]].parent, at[1] + 2)
                self.places.append((at[0], at[1] + 1))
            else:
                shapes.append(SegmentShape(at, 1))
                self.places.append((len(shapes) - 1, 0))
        rows = {place: row for row, place in enumerate(self.places)}
        at_head = None if head is None else self.places[head]
        self.layout: LaneLayout = lay_out(shapes, rows.__getitem__, head=at_head)
        self.lanes = [self.layout.lane(place) for place in self.places]
        self.lines = [self.layout.line(place) for place in self.places]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees that mostly go on where they were written to last, with some forks near the end and some far from it."""
    tree: Tree = []
    for row in range(draw(st.integers(1, 40))):
        how = draw(st.sampled_from("eeeennfr"))
        if not row or how == "r":
            tree.append(None)
        elif how == "e":
            tree.append(row - 1)
        else:
            tree.append(draw(st.integers(max(row - 4, 0) if how == "n" else 0, row - 1)))
    return tree


@st.composite
def drawings(draw: st.DrawFn) -> Drawn:
    tree = draw(trees())
    return Drawn(tree, draw(st.none() | st.integers(0, len(tree) - 1)))


@given(drawings())
@settings(max_examples=examples(150), deadline=None)
def test_each_message_is_in_one_line(drawn: Drawn) -> None:
    """The parts of the lines have each message once, in the order of rows, and a line knows where it begins and ends."""
    rows = {place: row for row, place in enumerate(drawn.places)}
    found: list[Place] = []
    for number, line in enumerate(drawn.layout.lines):
        here = [(segment, offset) for segment, first, last in line.parts for offset in range(first, last + 1)]
        assert [rows[place] for place in here] == sorted(rows[place] for place in here)
        assert (line.first, line.last) == (rows[here[0]], rows[here[-1]])
        assert {drawn.lines[rows[place]] for place in here} == {number}
        assert all(drawn.tree[rows[child]] == rows[parent] for parent, child in pairwise(here))
        found += here
    assert sorted(found) == sorted(drawn.places)


@given(drawings())
@settings(max_examples=examples(150), deadline=None)
def test_a_lane_has_one_line_at_a_time(drawn: Drawn) -> None:
    taken: set[tuple[int, int]] = set()
    for line in drawn.layout.lines:
        cells = {(row, line.lane) for row in range(line.start, line.last + 1)}
        assert taken.isdisjoint(cells)
        taken |= cells
    assert drawn.layout.lanes == 1 + max(lane for _, lane in taken)


@given(drawings())
@settings(max_examples=examples(150), deadline=None)
def test_edges_do_not_cross(drawn: Drawn) -> None:
    """An edge goes to its lane between the row of the parent and the next one: nothing that goes on there is between."""
    for line in drawn.layout.lines:
        if line.parent is None:
            continue
        row = drawn.places.index(line.parent)
        assert line.start == row + 1
        assert line.lane > drawn.lanes[row]
        between = [
            other
            for other in drawn.layout.lines
            if drawn.lanes[row] < other.lane < line.lane and other.start <= row < other.last
        ]
        assert not between


@given(drawings())
@settings(max_examples=examples(100), deadline=None)
def test_lines_that_fork_off_follow_theirs(drawn: Drawn) -> None:
    lines = drawn.layout.lines
    above = [None if line.parent is None else drawn.layout.line(line.parent) for line in lines]
    for number, line in enumerate(lines):
        below = [one for one in range(len(lines)) if number in _up(one, above)]
        assert below == list(range(number, line.end))


def _up(line: int | None, above: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    while line is not None:
        found.append(line)
        line = above[line]
    return found


@given(trees(), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_active_branch_is_on_the_left(tree: Tree, data: st.DataObject) -> None:
    head = data.draw(st.integers(0, len(tree) - 1))
    drawn = Drawn(tree, head)
    at: int | None = head
    while at is not None:
        assert drawn.lanes[at] == 0
        assert drawn.lines[at] == 0
        at = tree[at]


@given(trees(), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_what_continues_the_last_row_only_makes_its_line_longer(tree: Tree, data: st.DataObject) -> None:
    before = Drawn(tree, data.draw(st.none() | st.integers(0, len(tree) - 1)))
    last = len(tree) - 1
    is_active = before.layout.active is not None and data.draw(st.booleans())
    head = None if before.layout.active is None else _head_in(before, before.layout.active)
    count = data.draw(st.integers(1, 5))
    longer = [*tree, *range(last, last + count)]
    if is_active and head == last:
        head = len(longer) - 1
    anew = Drawn(longer, head)
    extended = extend(before.layout, anew.places[-1], len(longer) - 1)
    if before.layout.active == anew.layout.active:
        assert extended == anew.layout


def _head_in(drawn: Drawn, part: Place) -> int:
    return max(row for row, place in enumerate(drawn.places) if drawn.layout.part(place) == part)


def test_edits_take_two_lanes() -> None:
    """A chat whose every second question was edited is as narrow as one with a single edit."""
    tree: Tree = [None]
    head = 0
    for _ in range(50):
        tree += [head, len(tree), head, len(tree) + 2]
        head = len(tree) - 1
    drawn = Drawn(tree, None)

    assert drawn.layout.lanes == 2
    assert drawn.lanes[-1] == 0
