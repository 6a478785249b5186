"""
Drawing the DAG of a chat as a tree of lines.

    [chat: trip]

    a1f0c2d3 (user): "Plan a weekend in Riga"
    ├── b7e1aa90 (assistant): "Old Town first?"
    │   └── c9d2 (user): "Yes" <- [main] {draft}
    └── d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

    Legend: * = active branch, {...} = checkpoint

Long runs without forks and markers are collapsed, and nothing here recurses: the number of lines follows the number of
forks, branches and checkpoints, not the length of the chains.
"""

from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Graph, GraphNode

Style = Literal["ascii", "unicode"]

COLLAPSE_AFTER: Final = 8
LEGEND: Final = "Legend: * = active branch, {...} = checkpoint"
_ID_CHARACTERS: Final = 8
_ENDS: Final = 2
"""How many messages stay on either end of a collapsed run."""
# Control characters would break lines, or drive the terminal.
_BLANKS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


class _Strokes(msgspec.Struct, frozen=True):
    fork: str
    last: str
    bar: str
    gap: str = "    "


_STROKES: Final[dict[Style, _Strokes]] = {
    "unicode": _Strokes(fork="├── ", last="└── ", bar="│   "),
    "ascii": _Strokes(fork="|-- ", last="+-- ", bar="|   "),
}


class DrawnLine(msgspec.Struct, frozen=True, kw_only=True):
    """
    One line of the tree in its parts, so that they can be coloured. `str()` puts them together.

    Args:
        prefix: The strokes before it.
        id, role, content: Of the message as they are shown; empty for collapsed messages.
        branches: Name and whether it is the active one, of the branches whose head this is.
        checkpoints: The names of those on this message.
        is_active: Whether it lies on the chain of the active branch.
        is_orphan: Whether its parent is not in the data.
        skipped: How many messages this line stands for, 0 for one that is shown.
    """

    prefix: str
    id: str = ""
    role: str = ""
    content: str = ""
    branches: tuple[tuple[str, bool], ...] = ()
    checkpoints: tuple[str, ...] = ()
    is_active: bool = False
    is_orphan: bool = False
    skipped: int = 0

    @property
    def markers(self) -> str:
        """The branches, checkpoints and the note behind a message."""
        names = ", ".join(f"{name} *" if is_active else name for name, is_active in self.branches)
        parts = (
            f" <- [{names}]" if names else "",
            f" {{{', '.join(self.checkpoints)}}}" if self.checkpoints else "",
            " (parent missing)" if self.is_orphan else "",
        )
        return "".join(parts)

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.prefix}... {self.skipped} {'message' if self.skipped == 1 else 'messages'} ..."
        return f'{self.prefix}{self.id} ({self.role}): "{self.content}"{self.markers}'


def draw_graph(graph: Graph, *, style: Style = "unicode", collapse_after: int | None = COLLAPSE_AFTER) -> str:
    """
    The DAG of a chat as text.

    Args:
        graph: As `Ledger.graph` returns it; children are drawn in the order of `nodes`.
        style: How the edges look: `unicode` or `ascii`.
        collapse_after: Longer runs of messages that are only children with one child each, without branch or checkpoint,
            are shown by their first and last two. None shows all of them.

    Raises:
        InvalidValueError: There is no such style, or `collapse_after` is negative.
    """
    lines = [str(line) for line in draw_lines(graph, style=style, collapse_after=collapse_after)]
    head = f"[chat: {flat(graph.chat_id)}]"
    return "\n".join([head, "", *lines, "", LEGEND] if lines else [head, "", "(empty)"])


def draw_lines(
    graph: Graph, *, style: Style = "unicode", collapse_after: int | None = COLLAPSE_AFTER
) -> Iterator[DrawnLine]:
    """The lines of the trees alone, one by one. See `draw_graph`."""
    if style not in get_args(Style):
        msg = f"style must be 'ascii' or 'unicode', not {style!r}"
        raise InvalidValueError(msg)
    if collapse_after is not None and collapse_after < 0:
        msg = f"collapse_after must be 0 or more, or None, not {collapse_after!r}"
        raise InvalidValueError(msg)
    return _Drawing(graph, _STROKES[style], collapse_after).lines()


def flat(text: str) -> str:
    """A text on one line: line breaks and other control characters become blanks."""
    return text.replace("\r\n", " ").translate(_BLANKS)


class _Drawing:
    """One graph, made ready for walking it from the roots."""

    def __init__(self, graph: Graph, strokes: _Strokes, collapse_after: int | None) -> None:
        self._strokes, self._collapse_after = strokes, collapse_after
        self._nodes = {node.id: node for node in graph.nodes}
        self._children: dict[str, list[GraphNode]] = {}
        self._roots: list[GraphNode] = []
        for node in graph.nodes:
            if node.parent_id is None or node.parent_id not in self._nodes:
                self._roots.append(node)
            else:
                self._children.setdefault(node.parent_id, []).append(node)
        self._branches: dict[str, list[tuple[str, bool]]] = {}
        self._active: set[str] = set()
        for branch in graph.branches:
            if branch.head_message_id is not None:
                self._branches.setdefault(branch.head_message_id, []).append((flat(branch.name), branch.is_active))
                if branch.is_active:
                    self._mark_active(branch.head_message_id)
        self._checkpoints: dict[str, list[str]] = {}
        for checkpoint in graph.checkpoints:
            self._checkpoints.setdefault(checkpoint.message_id, []).append(flat(checkpoint.name))

    def _mark_active(self, head: str) -> None:
        at: str | None = head
        while at is not None and at in self._nodes and at not in self._active:
            self._active.add(at)
            at = self._nodes[at].parent_id

    def lines(self) -> Iterator[DrawnLine]:
        """Depth first. The stack holds nodes with the strokes before their connector, and their connector."""
        strokes = self._strokes
        stack = [(root, "", "") for root in reversed(self._roots)]
        while stack:
            node, indent, connector = stack.pop()
            run = self._run_from(node) or [node]
            prefix, below = indent + connector, self._below(indent, connector)
            for part in self._shorten(run):
                if isinstance(part, int):
                    yield DrawnLine(prefix=prefix, skipped=part)
                else:
                    yield self._line(part, prefix)
                # Each message of a run is an only child, so the next one stands one step deeper.
                prefix, indent, below = below + strokes.last, below, below + strokes.gap
            children = self._children.get(run[-1].id, [])
            stack.extend(
                (child, indent, strokes.last if child is children[-1] else strokes.fork) for child in reversed(children)
            )

    def _below(self, indent: str, connector: str) -> str:
        """The strokes that continue below a node with that connector."""
        if not connector:
            return indent
        return indent + (self._strokes.bar if connector == self._strokes.fork else self._strokes.gap)

    def _run_from(self, node: GraphNode) -> list[GraphNode]:
        """The run that begins at a node; none when it has a fork or marker, or is a root."""
        run: list[GraphNode] = []
        while self._is_plain(node):
            run.append(node)
            (node,) = self._children[node.id]
        return run

    def _is_plain(self, node: GraphNode) -> bool:
        if node.parent_id is None or len(self._children.get(node.parent_id, ())) != 1:
            return False
        has_one_child = len(self._children.get(node.id, ())) == 1
        return has_one_child and node.id not in self._branches and node.id not in self._checkpoints

    def _shorten(self, run: list[GraphNode]) -> list[GraphNode | int]:
        """The run, or its ends and between them the number of the others."""
        if self._collapse_after is None or len(run) <= max(self._collapse_after, 2 * _ENDS):
            return [*run]
        return [*run[:_ENDS], len(run) - 2 * _ENDS, *run[-_ENDS:]]

    def _line(self, node: GraphNode, prefix: str) -> DrawnLine:
        return DrawnLine(
            prefix=prefix,
            id=flat(node.id[:_ID_CHARACTERS]),
            role=flat(node.role),
            content=flat(node.content),
            branches=tuple(self._branches.get(node.id, ())),
            checkpoints=tuple(self._checkpoints.get(node.id, ())),
            is_active=node.id in self._active,
            is_orphan=node.parent_id is not None and node.parent_id not in self._nodes,
        )
