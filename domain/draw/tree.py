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
"""

from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

from ..errors import InvalidValueError
from ..values import Graph
from .outline import COLLAPSE_AFTER, Part, escaped, marker, messages_left_out, outline, short_id

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
    skipped: int = 0

    @property
    def markers(self) -> str:
        """The branches, checkpoints and the note behind a message."""
        names = ", ".join(f"{name} *" if is_active else name for name, is_active in self.branches)
        parts = (
            f" <- [{names}]" if names else "",
            f" {{{', '.join(self.checkpoints)}}}" if self.checkpoints else "",
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
    )
