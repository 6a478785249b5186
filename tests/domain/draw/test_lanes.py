"""The lanes of a chat drawn as rows, for trees of any shape."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.draw.lanes import (
    BUNDLE,
    LONGEST_GAP,
    STUB,
    LaneLayout,
    Place,
    SegmentShape,
    extend,
    lay_out,
    pieces_of,
)

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

        def runs_of(segment: int, first: int, last: int) -> list[tuple[int, int]]:
            """Each message by itself: a run of one row."""
            return [(rows[segment, offset],) * 2 for offset in range(first, last + 1)]

        self.layout: LaneLayout = lay_out(shapes, rows.__getitem__, runs_of, head=at_head)
        self.lanes = [self.layout.lane(place, rows[place]) for place in self.places]
        self.lines = [self.layout.line(place) for place in self.places]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees that mostly go on where they were written to last, with some forks near the end and some far from it."""
    tree: Tree = []
    for row in range(draw(st.integers(1, 90))):
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
    """Only the bundle holds several. The first line has its lane for itself, and each other the leftmost that is free."""
    taken: set[tuple[int, int]] = set()
    spans = [(span, number) for number, line in enumerate(drawn.layout.lines) for span in line.spans]
    for span, number in sorted(spans, key=lambda entry: (entry[1] > 0, entry[0].first, entry[0].last, entry[1])):
        rows = range(span.first, span.last + 1)
        assert (span.lane == 0) == (number == 0)
        if number:
            free = (lane for lane in range(1, BUNDLE) if taken.isdisjoint((row, lane) for row in rows))
            assert span.lane == next(free, BUNDLE)
        taken |= {(row, span.lane) for row in rows}
    assert drawn.layout.lanes == 1 + max(lane for _, lane in taken)


@given(drawings())
@settings(max_examples=examples(150), deadline=None)
def test_long_empty_stretches_are_cut(drawn: Drawn) -> None:
    """Between two messages of a line lie at most so many rows, or a stub at each end of a cut, which the bundle counts."""
    rows = {place: row for row, place in enumerate(drawn.places)}
    cut: list[int] = []
    for number, line in enumerate(drawn.layout.lines):
        own = [rows[segment, offset] for segment, first, last in line.parts for offset in range(first, last + 1)]
        drawn_rows = {row for span in line.spans for row in range(span.first, span.last + 1)}
        expected = set(own)
        ends = [own[0] if line.parent is None else rows[line.parent], *own]
        for above, below in pairwise(ends):
            between = set(range(above + 1, below))
            if number and len(between) > LONGEST_GAP:
                hidden = set(range(above + 1 + STUB, below - STUB))
                cut += hidden
                between -= hidden
            expected |= between
        assert drawn_rows == expected
    counted = [
        row for first, last, count in drawn.layout.bundle for row in range(first, last + 1) for _ in range(count)
    ]
    assert sorted(cut) == counted


@given(drawings())
@settings(max_examples=examples(150), deadline=None)
def test_edges_lead_from_parent_to_child(drawn: Drawn) -> None:
    """In one piece, or in two that end and begin at the cut, in the lanes that the line has there."""
    for row, parent in enumerate(drawn.tree):
        if parent is None:
            continue
        line = drawn.layout.lines[drawn.lines[row]]
        pieces = pieces_of(line, (parent, drawn.lanes[parent]), row)
        assert pieces[0][:2] == (parent, drawn.lanes[parent])
        assert pieces[-1][2:4] == (row, drawn.lanes[row])
        is_cut = drawn.lines[row] != 0 and row - parent - 1 > LONGEST_GAP
        assert [piece.cut for piece in pieces] == (["down", "up"] if is_cut else [None])
        if is_cut:
            assert (pieces[0].to_row, pieces[1].row) == (parent + STUB, row - STUB)


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
def test_the_path_that_is_read_is_on_the_left(tree: Tree, data: st.DataObject) -> None:
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
    is_active = before.layout.read is not None and data.draw(st.booleans())
    head = None if before.layout.read is None else _head_in(before, before.layout.read)
    count = data.draw(st.integers(1, 5))
    longer = [*tree, *range(last, last + count)]
    if is_active and head == last:
        head = len(longer) - 1
    anew = Drawn(longer, head)
    extended = extend(before.layout, anew.places[-1], len(longer) - 1)
    if before.layout.read == anew.layout.read:
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


def test_forks_at_the_end_of_a_long_chat_are_cut() -> None:
    """Sixty branches off early messages, written last, would run down all of it beside each other."""
    tree: Tree = [None, *range(2000)]
    for fork in range(60):
        tree += [fork * 10, len(tree), len(tree) + 1]
    drawn = Drawn(tree, 2000)

    assert drawn.layout.lanes <= 4
    assert max(count for _, _, count in drawn.layout.bundle) > 50
    assert set(drawn.lanes[:2001]) == {0}
