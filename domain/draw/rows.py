"""Rows of a chat, as they are answered to who draws it as a git graph: windows, branch points, and a strip of the whole."""

from typing import Annotated, Literal

import msgspec

from ..wire import Value


class RowPoint(Value, frozen=True, gc=False):
    """A place in the drawing: a row, counted from 0, and a lane, counted from 0 from the left."""

    row: int
    lane: int


class RowEdge(Value, frozen=True, gc=False):
    """
    An edge of the drawing, from a message (`row`, `lane`) to one that answers it (`to_row`, `to_lane`).

    A long edge that passes rows without messages of its line is cut in two: the first ends after three rows (`cut` is "down"), the
    second begins three rows before the answer ("up"). `line` is that of the answer, as `GraphRow.line` has it. `is_merge`: the message
    merges the other one.
    """

    row: int
    lane: int
    to_row: int
    to_lane: int
    cut: Literal["down", "up"] | None
    line: int
    is_merge: bool = False


class RowBundle(Value, frozen=True, gc=False):
    """Rows, from `row` to `to_row`, over which so many lines are cut: they are drawn as one."""

    row: int
    to_row: int
    count: int


class GraphRow(Value, frozen=True, kw_only=True, gc=False):
    """
    A message as a row of the drawing shows it.

    Args:
        row: Its row, which is its number in log order; where only the path is read its depth.
        id: The id of the message.
        lane: Its lane. The path that is read has lane 0; lane 8 is the bundle of cut lines, for what has no room elsewhere.
        on_path: Whether it is on the path that is read.
        line: The row of the first message of its line: of those that are drawn in one lane below each other. It tells lines apart.
        branch: The name of a branch that goes through it: of one with its head at the end of the line, else of the oldest that has
            it. None where no branch has it any more.
        parents: Where the message is that it answers, and where those are that it merges; empty for a root.
        role: The name of the message.
        preview: At most 50 characters of its text; empty for a hidden message.
        created_at: Milliseconds since the Unix epoch.
        branches: The names of the branches with their head here, by `created_at`.
        checkpoints: The names of the checkpoints here, by `created_at`.
        stale, hidden, replaced_by: Its annotation.
        children: The number of messages that answer it.
    """

    row: int
    id: str
    lane: int
    on_path: bool
    line: int
    branch: str | None
    parents: list[RowPoint]
    role: str
    preview: str
    created_at: int
    branches: list[str]
    checkpoints: list[str]
    stale: bool
    hidden: bool
    replaced_by: str | None
    children: int


class RowWindow(Value, frozen=True, kw_only=True):
    """
    Some rows of a chat, one after another.

    Args:
        chat_id: The chat.
        version: The number of events of the chat: windows of one version belong to one drawing.
        total: The number of rows of the chat.
        lanes: The number of lanes of the chat.
        active: The name of the active branch.
        head: Where the path that is read ends; None where it is empty.
        first: The row of the first message of `rows`.
        rows: The rows.
        edges: The edges that are seen in these rows, also those that only pass.
        bundle: Where lines are cut in these rows, and how many.
        is_cut: Whether lines are cut anywhere in the chat: a drawing keeps room for the bundle then, wherever it is looked at.
    """

    chat_id: str
    version: int
    total: int
    lanes: int
    active: str
    head: RowPoint | None
    first: int
    rows: list[GraphRow]
    edges: list[RowEdge]
    bundle: list[RowBundle]
    is_cut: bool


class BranchPointChild(Value, frozen=True, kw_only=True):
    """A message that answers the one at a branch point, and the branches whose chain has it, the first 20 by `created_at`."""

    row: int
    lane: int
    id: str
    role: str
    preview: str
    branches: list[str]


class BranchPoint(Value, frozen=True, kw_only=True):
    """A message with several children, the oldest first; without a message (`row` and `id` None) the roots, if there are several."""

    row: int | None
    id: str | None
    role: str | None
    preview: str
    children: list[BranchPointChild]


class BranchPointPage(Value, frozen=True, kw_only=True):
    """Branch points by row, those of the whole chat in `total`; `next` is given as `after` for those that follow, None at the end."""

    points: list[BranchPoint]
    total: int
    next: int | None


class RowStrip(Value, frozen=True, kw_only=True):
    """
    A chat drawn in few pixels.

    Args:
        version: The number of events of the chat.
        total: The number of rows of the chat.
        lanes: The number of lanes of the chat.
        height: The number of pixels.
        pixels: For each pixel, from the top, the lanes that have a message in its rows. Pixel p has the rows r with
            r * height // total == p; where there are fewer rows than pixels, some have none.
        forks: The pixels with a branch point.
    """

    version: int
    total: int
    lanes: int
    height: int
    pixels: list[list[int]]
    forks: list[int]


class RowLine(Value, frozen=True, kw_only=True):
    """
    A line of messages in one lane, with all lines that fork off it, directly or not: what is folded away together.

    Args:
        line: The row of the first message of the line.
        lane: Its lane.
        count: The number of messages of all these lines.
        spans: Their rows, as [first, last] of each run of rows that follow each other, in order.
    """

    line: int
    lane: int
    count: int
    spans: list[Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]]
