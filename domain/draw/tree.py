"""
The DAG of a chat as a tree of lines.

    [chat: trip]

    a1f0c2d3 (user): "Plan a weekend in Riga"
    ├── b7e1aa90 (assistant): "Old Town first?"
    │   └── c9d2 (user): "Yes" <- [main] {draft}
    └── d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

    Legend: * = active branch, {...} = checkpoint

A line has the strokes of at most 16 levels, and what is deeper the number of those left out, so that the size of a drawing is
in proportion to the number of its lines.

The order and shape in which a DAG is drawn, whatever the drawing looks like.

Long runs without forks and markers are collapsed, and nothing here recurses: the number of parts follows the number of
forks, branches and checkpoints, not the length of the chains.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, Literal, get_args

import msgspec

from ..errors import InvalidValueError
from ..values import Graph, GraphNode
from .escaping import escaped, marker, short_id


def messages_left_out(count: int) -> str:
    return f"... {count} {'message' if count == 1 else 'messages'} ..."


COLLAPSE_AFTER: Final = 8
PARENT_MISSING, CYCLE = "parent missing", "cycle"
_ENDS: Final = 2
"""The number of messages that stay at either end of a collapsed run."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """
    One place of a drawing: a message, or the middle of a run.

    Args:
        number: 0, 1, 2 ... in the order of drawing: parents first, one subtree after another.
        parent: The number of the part above; None for a root.
        depth: How many parts are above it.
        is_last: Whether it is the last child of its parent.
        node: The message; None for the middle of a run.
        skipped: How many messages the middle of a run stands for; 0 for a message.
        branches: Name and whether it is the active one, of the branches whose head this is.
        checkpoints: The names of those on this message.
        is_active: Whether it lies on the chain of the active branch.
        note: Why a message with a parent is drawn as a root: its parent is not in the data, or is one of its own
            descendants. Else empty.
    """

    number: int
    parent: int | None
    depth: int
    is_last: bool
    node: GraphNode | None
    skipped: int = 0
    branches: tuple[tuple[str, bool], ...] = ()
    checkpoints: tuple[str, ...] = ()
    is_active: bool = False
    note: str = ""


def outline(graph: Graph, *, collapse_after: int | None) -> Iterator[Part]:
    """
    The parts of a drawing, one by one.

    Args:
        graph: Also of foreign data: parents may be missing, and a cycle is cut above its first message.
        collapse_after: Longer runs of messages that are only children with one child each, without branch or checkpoint,
            are represented by their first and last two. None leaves nothing out. Merges and what they merge are shown.

    Raises:
        InvalidValueError: `collapse_after` is no number of messages, or two messages have the same id.
    """
    is_number = isinstance(collapse_after, int) and not isinstance(collapse_after, bool) and collapse_after >= 0
    if collapse_after is not None and not is_number:
        msg = f"collapse_after must be a whole number of at least 0, or None, not {collapse_after!r}"
        raise InvalidValueError(msg)
    return _Outline(graph, collapse_after).parts()


class _Outline:
    def __init__(self, graph: Graph, collapse_after: int | None) -> None:
        self._collapse_after = collapse_after
        nodes = sorted(graph.nodes, key=lambda node: node.created_at)
        self._nodes = {node.id: node for node in nodes}
        if len(self._nodes) < len(nodes):
            twice = next(node.id for node in nodes if self._nodes[node.id] is not node)
            msg = (
                f"message {twice!r} is more than once in the graph of chat {graph.chat_id!r}; each id names one message"
            )
            raise InvalidValueError(msg)
        # The first message of each cycle, in the order of `nodes`: every walk to the parents ends at a root or in a cycle.
        order = {message_id: number for number, message_id in enumerate(self._nodes)}
        firsts: set[str] = set()
        walk_of: dict[str, str] = {}
        for start in self._nodes:
            at: str | None = start
            while at is not None and at in self._nodes and at not in walk_of:
                walk_of[at] = start
                at = self._nodes[at].parent_id
            if at is not None and walk_of.get(at) == start:
                firsts.add(min(_cycle_through(at, self._nodes), key=order.__getitem__))
        self._notes: dict[str, str] = {}
        self._children: dict[str, list[GraphNode]] = {}
        self._roots: dict[str, GraphNode] = {}
        for node in nodes:
            if node.parent_id is not None and node.parent_id in self._nodes and node.id not in firsts:
                self._children.setdefault(node.parent_id, []).append(node)
                continue
            self._roots[node.id] = node
            if node.parent_id is not None:
                self._notes[node.id] = CYCLE if node.id in firsts else PARENT_MISSING
        self._merges = {node.id for node in nodes if node.merged_from}
        self._merges.update(parent for node in nodes for parent in node.merged_from)
        self._checkpoints: dict[str, list[str]] = {}
        for checkpoint in graph.checkpoints:
            self._checkpoints.setdefault(checkpoint.message_id, []).append(checkpoint.name)
        self._branches: dict[str, list[tuple[str, bool]]] = {}
        self._active: set[str] = set()
        for branch in graph.branches:
            if branch.head_message_id is not None:
                self._branches.setdefault(branch.head_message_id, []).append((branch.name, branch.is_active))
                if branch.is_active:
                    self._mark_active(branch.head_message_id)

    def _mark_active(self, head: str) -> None:
        at: str | None = head
        while at is not None and at in self._nodes and at not in self._active:
            self._active.add(at)
            at = None if at in self._roots else self._nodes[at].parent_id

    def parts(self) -> Iterator[Part]:
        """Depth first. The stack holds messages, and where they stand."""
        numbers = count()
        stack: list[tuple[GraphNode, int | None, int, bool]]
        stack = [(root, None, 0, True) for root in reversed(self._roots.values())]
        while stack:
            node, above, depth, is_last = stack.pop()
            run = self._run_from(node) or [node]
            for step in self._shorten(run):
                number = next(numbers)
                yield self._part(step, number, above, depth, is_last=is_last, is_active=node.id in self._active)
                # Each message of a run is an only child, so the next one stands one step deeper.
                above, depth, is_last = number, depth + 1, True
            children = self._children.get(run[-1].id, [])
            stack.extend((child, above, depth, child is children[-1]) for child in reversed(children))

    def _part(
        self, step: GraphNode | int, number: int, parent: int | None, depth: int, *, is_last: bool, is_active: bool
    ) -> Part:
        """`is_active` holds for the whole run: who leaves the active chain is no only child, or has the head above."""
        node, skipped = (None, step) if isinstance(step, int) else (step, 0)
        message_id = "" if node is None else node.id
        return Part(
            number=number,
            parent=parent,
            depth=depth,
            is_last=is_last,
            is_active=is_active,
            node=node,
            skipped=skipped,
            branches=tuple(self._branches.get(message_id, ())),
            checkpoints=tuple(self._checkpoints.get(message_id, ())),
            note=self._notes.get(message_id, ""),
        )

    def _run_from(self, node: GraphNode) -> list[GraphNode]:
        """The run that begins at a message; none when it has a fork or marker, or is a root."""
        run: list[GraphNode] = []
        while self._is_plain(node):
            run.append(node)
            (node,) = self._children[node.id]
        return run

    def _is_plain(self, node: GraphNode) -> bool:
        if any(node.id in marked for marked in (self._roots, self._branches, self._checkpoints, self._merges)):
            return False
        assert node.parent_id is not None, "what has no parent is a root"
        return len(self._children[node.parent_id]) == 1 == len(self._children.get(node.id, ()))

    def _shorten(self, run: list[GraphNode]) -> list[GraphNode | int]:
        """Return the run; of a long one its ends, and between them the number of the others."""
        if self._collapse_after is None or len(run) <= max(self._collapse_after, 2 * _ENDS):
            return [*run]
        return [*run[:_ENDS], len(run) - 2 * _ENDS, *run[-_ENDS:]]


def _cycle_through(message_id: str, nodes: dict[str, GraphNode]) -> Iterator[str]:
    at: str | None = message_id
    while at is not None:
        yield at
        at = nodes[at].parent_id
        if at == message_id:
            return


Style = Literal["ascii", "unicode"]

LEGEND: Final = "Legend: * = active branch, {...} = checkpoint"
STROKES_IN_A_ROW: Final = 16
"""Levels further down begin at the left margin again, with the number of those that are left out: `(+16) `."""
FLAT_LEGENDS: Final[dict[Style, str]] = {
    "unicode": "Legend: ● = on the active branch, * = active branch, {...} = checkpoint",
    "ascii": "Legend: @ = on the active branch, * = active branch, {...} = checkpoint",
}


class _Strokes(msgspec.Struct, frozen=True):
    fork: str
    last: str
    bar: str
    gap: str = "    "


_STROKES: Final[dict[Style, _Strokes]] = {
    "unicode": _Strokes(fork="├── ", last="└── ", bar="│   "),
    "ascii": _Strokes(fork="|-- ", last="+-- ", bar="|   "),
}


class _FlatStrokes(msgspec.Struct, frozen=True, kw_only=True):
    fork: str
    bar: str
    gap: str = "  "
    active: str
    other: str
    skipped: str


_FLAT_STROKES: Final[dict[Style, _FlatStrokes]] = {
    "unicode": _FlatStrokes(fork="├─", bar="│ ", active="● ", other="○ ", skipped="┊ "),
    "ascii": _FlatStrokes(fork="|-", bar="| ", active="@ ", other="o ", skipped=": "),
}


class DrawnLine(msgspec.Struct, frozen=True, kw_only=True):
    """
    One line of the tree in its parts, so that they can be coloured. `str()` puts them together.

    Args:
        prefix: The strokes before it.
        below, is_root: The strokes before what is written under it and belongs to it, and whether a tree begins with it; only
            in a flat drawing.
        id, role, content: Of the message as they are shown; empty for collapsed messages.
        branches: Name and whether it is the active one, of the branches whose head this is.
        checkpoints: The names of those on this message.
        is_active: Whether it lies on the chain of the active branch.
        note: Why a message with a parent is drawn as a root, else empty.
        merged_from: The ids of its further parents, as they are shown.
        skipped: How many messages this line stands for, 0 for one that is shown.
    """

    prefix: str
    below: str = ""
    is_root: bool = False
    id: str = ""
    role: str = ""
    content: str = ""
    branches: tuple[tuple[str, bool], ...] = ()
    checkpoints: tuple[str, ...] = ()
    is_active: bool = False
    note: str = ""
    merged_from: tuple[str, ...] = ()
    skipped: int = 0

    @property
    def markers(self) -> str:
        """The branches, checkpoints, merged messages and the note behind a message."""
        names = ", ".join(f"{name} *" if is_active else name for name, is_active in self.branches)
        parts = (
            f" <- [{names}]" if names else "",
            f" {{{', '.join(self.checkpoints)}}}" if self.checkpoints else "",
            f" (merges {', '.join(self.merged_from)})" if self.merged_from else "",
            f" ({self.note})" if self.note else "",
        )
        return "".join(parts)

    def __str__(self) -> str:
        if self.skipped:
            return self.prefix + messages_left_out(self.skipped)
        return f'{self.prefix}{self.id} ({self.role}): "{self.content}"{self.markers}'


def visualize_graph(graph: Graph, style: Style = "unicode", collapse_after: int | None = COLLAPSE_AFTER) -> str:
    """
    Draw the DAG of a chat as a tree of lines.

    Args:
        graph: As `Ledger.graph` returns it. Children are drawn in the order of creation. Data from elsewhere may lack
            parents, or have cycles: such messages are drawn as roots with a note.
        style: How the edges look: `unicode` or `ascii`.
        collapse_after: Longer runs of messages that are only children with one child each, without branch or checkpoint,
            are shown by their first and last two. None shows all of them.

    Returns:
        Lines without a line break at the end. Their number follows the forks, branches and checkpoints, not the length of
        the chains.

    Raises:
        InvalidValueError: There is no such style, `collapse_after` is no number of messages, or two messages have the
            same id.
    """
    lines = [str(line) for line in draw_lines(graph, style=style, collapse_after=collapse_after)]
    head = f"[chat: {escaped(graph.chat_id)}]"
    return "\n".join([head, "", *lines, "", LEGEND] if lines else [head, "", "(empty)"])


def draw_lines(
    graph: Graph, *, style: Style = "unicode", collapse_after: int | None = COLLAPSE_AFTER
) -> Iterator[DrawnLine]:
    """The lines of the trees alone, one by one. See `visualize_graph`."""
    if style not in get_args(Style):
        msg = f"style must be 'ascii' or 'unicode', not {style!r}"
        raise InvalidValueError(msg)
    return _lines(outline(graph, collapse_after=collapse_after), _STROKES[style])


def draw_flat_lines(
    graph: Graph, *, style: Style = "unicode", collapse_after: int | None = COLLAPSE_AFTER
) -> Iterator[DrawnLine]:
    """
    The lines of a drawing like that of `git log --graph`: a chain stays in its column, however long it is.

    The last child of a message goes on in the column of the message, and each of the others begins a column beside it, two
    characters further to the right. So the width follows the forks within forks.

        ● a1f0c2d3 (user): "Plan a weekend in Riga"
        ├─○ b7e1aa90 (assistant): "Old Town first?"
        │ ○ c9d2 (user): "Yes" <- [main] {draft}
        ● d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]
    """
    strokes = _FLAT_STROKES[style]
    columns = [("", 0)]
    """The strokes before the column of the children and the number of bars to the left of it, by depth."""
    for part in outline(graph, collapse_after=collapse_after):
        column, bars = columns[part.depth]
        del columns[part.depth + 1 :]
        connector, below = (column, column) if part.is_last else (column + strokes.fork, column + strokes.bar)
        columns.append((column, bars) if part.is_last else (_begun_again(below, bars + 1), bars + 1))
        dot = strokes.skipped if part.skipped else strokes.active if part.is_active else strokes.other
        yield _line(part, connector + dot, below=below + strokes.gap, is_root=part.depth == 0)


def _begun_again(strokes: str, levels: int) -> str:
    """The strokes of so many levels; none of them where a row is full, so that lines do not grow with the depth."""
    return f"(+{levels}) " if levels and levels % STROKES_IN_A_ROW == 0 else strokes


def _lines(parts: Iterator[Part], strokes: _Strokes) -> Iterator[DrawnLine]:
    indents = [""]
    """The strokes before the connectors, by depth."""
    for part in parts:
        indent = indents[part.depth]
        del indents[part.depth + 1 :]
        if part.depth == 0:
            prefix = below = ""
        elif part.is_last:
            prefix, below = indent + strokes.last, indent + strokes.gap
            indents[part.depth] = ""  # nobody else stands there, and in long chains these take room
        else:
            prefix, below = indent + strokes.fork, indent + strokes.bar
        indents.append(_begun_again(below, part.depth))
        yield _line(part, prefix)


def _line(part: Part, prefix: str, *, below: str = "", is_root: bool = False) -> DrawnLine:
    if part.node is None:
        return DrawnLine(prefix=prefix, below=below, is_active=part.is_active, skipped=part.skipped)
    return DrawnLine(
        prefix=prefix,
        below=below,
        is_root=is_root,
        id=escaped(short_id(part.node.id)),
        role=escaped(part.node.role),
        content=escaped(part.node.content),
        branches=tuple((marker(name), is_active) for name, is_active in part.branches),
        checkpoints=tuple(map(marker, part.checkpoints)),
        is_active=part.is_active,
        note=part.note,
        merged_from=tuple(escaped(short_id(parent)) for parent in part.node.merged_from),
    )
