"""The DAG of a chat as boxes and arrows: in DOT, the language of Graphviz, and as a Mermaid flowchart."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

import msgspec

from ..errors import InvalidValueError
from ..values import Graph
from .escaping import marker, printable, short_id
from .tree import COLLAPSE_AFTER, Part, messages_left_out, outline

Kind = Literal["user", "assistant", "system", "tool", "other", "collapsed", "branch", "active", "checkpoint"]

_ROLES: Final[dict[str, Kind]] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


class Paint(msgspec.Struct, frozen=True):
    """Colours as `#rrggbb`. Each box brings all of them, so that it can be read on light and on dark pages."""

    fill: str
    line: str
    text: str


PAINTS: Final[dict[Kind, Paint]] = {
    "user": Paint(fill="#dbeafe", line="#3b82f6", text="#172554"),
    "assistant": Paint(fill="#dcfce7", line="#16a34a", text="#052e16"),
    "system": Paint(fill="#f3e8ff", line="#a855f7", text="#3b0764"),
    "tool": Paint(fill="#fef3c7", line="#d97706", text="#451a03"),
    "other": Paint(fill="#e5e7eb", line="#6b7280", text="#111827"),
    "collapsed": Paint(fill="#f9fafb", line="#6b7280", text="#374151"),
    "branch": Paint(fill="#f9fafb", line="#6b7280", text="#111827"),
    "active": Paint(fill="#15803d", line="#16a34a", text="#ffffff"),
    "checkpoint": Paint(fill="#fae8ff", line="#c026d3", text="#4a044e"),
}
"""`active` is the active branch; messages are painted by their role."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A box: its key, what it stands for, its text, and whether it lies on the active chain. Messages have their id."""

    key: str
    kind: Kind
    lines: tuple[str, ...]
    is_active: bool = False
    message_id: str = ""


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow from a message to its child or to the message that merges it, or from a branch or checkpoint to its message."""

    tail: str
    head: str
    is_pointer: bool
    is_active: bool
    is_merge: bool = False


def draw_boxes(graph: Graph, *, collapse_after: int | None = COLLAPSE_AFTER) -> Iterator[Box | Arrow]:
    """The boxes and arrows, each arrow after the boxes that it connects. See `outline`."""
    parts = outline(graph, collapse_after=collapse_after)
    return _boxes(parts) if graph.nodes else iter([Box(key="empty", kind="collapsed", lines=("(empty)",))])


def _boxes(parts: Iterator[Part]) -> Iterator[Box | Arrow]:
    branches = checkpoints = 0
    keys: dict[str, str] = {}
    merges: list[tuple[str, str]] = []
    for part in parts:
        key = _key(part.number)
        yield _box(part, key)
        if part.node is not None:
            keys[part.node.id] = key
            merges.extend((parent, key) for parent in part.node.merged_from)
        if part.parent is not None:
            yield Arrow(tail=_key(part.parent), head=key, is_pointer=False, is_active=part.is_active)
        for name, is_active in part.branches:
            branches += 1
            yield from _pointer(f"b{branches}", key, "active" if is_active else "branch", name, is_active=is_active)
        for name in part.checkpoints:
            checkpoints += 1
            yield from _pointer(f"c{checkpoints}", key, "checkpoint", name)
    for parent, key in merges:
        if parent in keys:
            yield Arrow(tail=keys[parent], head=key, is_pointer=False, is_active=False, is_merge=True)


def _key(number: int) -> str:
    return f"n{number + 1}"


def _box(part: Part, key: str) -> Box:
    if part.node is None:
        return Box(key=key, kind="collapsed", lines=(messages_left_out(part.skipped),), is_active=part.is_active)
    note = f" ({part.note})" if part.note else ""
    title = f"{printable(short_id(part.node.id))} ({printable(part.node.role)}){note}"
    content = printable(part.node.content)
    return Box(
        key=key,
        kind=_ROLES.get(part.node.role, "other"),
        lines=(title, content) if content.strip() else (title,),
        is_active=part.is_active,
        message_id=printable(part.node.id),
    )


def _pointer(key: str, target: str, kind: Kind, name: str, *, is_active: bool = False) -> Iterator[Box | Arrow]:
    shown = printable(marker(name))
    label = f"{shown} *" if is_active else shown
    yield Box(key=key, kind=kind, lines=(label,), is_active=is_active)
    yield Arrow(tail=key, head=target, is_pointer=True, is_active=is_active)


_GREY: Final = "#808080"
"""It can be seen on light and on dark pages."""
_HEAD: Final = f"""\
    graph [bgcolor="transparent", fontcolor="{_GREY}", fontname="Helvetica,Arial,sans-serif", labelloc="t", ordering="out"]
    node [fontname="Helvetica,Arial,sans-serif", shape="box", style="filled"]
    edge [color="{_GREY}"]"""
_DOT_SHAPES: Final[dict[Kind, str]] = {
    "collapsed": 'style="filled,dashed"',
    "branch": 'style="filled,rounded"',
    "active": 'style="filled,rounded"',
    "checkpoint": 'shape="hexagon"',
}


def draw_dot(graph: Graph, *, collapse_after: int | None = COLLAPSE_AFTER) -> str:
    """
    Draw the DAG of a chat as the text of a Graphviz digraph: `dot -Tsvg` makes a picture of it.

    It shows what `draw_mermaid` shows. The tooltip of a message is its whole id.

    Args:
        graph: As `visualize_graph` takes it.
        collapse_after: As `visualize_graph` takes it; a dashed box stands for the messages that are not shown.

    Returns:
        Lines without a line break at the end. Whatever the messages contain, it is one graph without links.

    Raises:
        InvalidValueError: `collapse_after` is no number of messages, or two messages have the same id.
    """
    drawn = draw_boxes(graph, collapse_after=collapse_after)
    return "\n".join(
        [
            "digraph chat {",
            _HEAD,
            f"    label={_quoted(f'chat: {printable(graph.chat_id)}')}",
            *(f"    {_dot_node(part) if isinstance(part, Box) else _edge(part)}" for part in drawn),
            "}",
        ]
    )


def _dot_node(box: Box) -> str:
    paint = PAINTS[box.kind]
    attributes = [
        f"label={_quoted(*box.lines)}",
        f'fillcolor="{paint.fill}", color="{paint.line}", fontcolor="{paint.text}"',
    ]
    if box.kind in _DOT_SHAPES:
        attributes.append(_DOT_SHAPES[box.kind])
    if box.is_active:
        attributes.append('penwidth="3"')
    if box.message_id:
        # Graphviz reads the escapes of a tooltip twice.
        tooltip = _dot_escaped(box.message_id, backslash=4 * "\\")
        attributes.append(f'tooltip="{tooltip}"')
    return f"{box.key} [{', '.join(attributes)}]"


def _edge(arrow: Arrow) -> str:
    if arrow.is_merge:
        # The shape of the tree stays that of the chains.
        return f'{arrow.tail} -> {arrow.head} [style="dashed", label="merge", fontcolor="{_GREY}", constraint="false"]'
    if arrow.is_pointer:
        return f'{arrow.tail} -> {arrow.head} [style="dashed"]'
    thick = ' [penwidth="3"]' if arrow.is_active else ""
    return f"{arrow.tail} -> {arrow.head}{thick}"


def _quoted(*lines: str) -> str:
    """Quote the lines of a label, without escapes or entities in effect."""
    text = r"\n".join(_dot_escaped(line, backslash=r"\\") for line in lines)
    return f'"{text}"'


def _dot_escaped(text: str, *, backslash: str) -> str:
    return text.replace("&", "&amp;").replace("\\", backslash).replace('"', r"\"")


Direction = Literal["BT", "LR", "RL", "TB", "TD"]

_MERMAID_SHAPES: Final[dict[Kind, tuple[str, str]]] = {
    "branch": ("([", "])"),
    "active": ("([", "])"),
    "checkpoint": ("{{", "}}"),
}
_ACTIVE_CLASS: Final = "onActive"
_RISKY: Final = re.compile(r"[^\w .,!?()'/\x80-\U0010ffff-]", re.ASCII)
_NOT_PLAIN: Final = re.compile(r"[^\w .:-]")
_WIDE: Final = str.maketrans("&<>", "\uff06\uff1c\uff1e")
"""Mermaid takes a title for HTML to be cleaned, and then shows the source of what is left; these are wide forms."""
# What Mermaid gives a meaning of its own even after it decoded the entities: formulas, icons, line breaks, and its marks
# for entities. Nothing is seen of a <wbr> between them.
_PAIRS: Final = re.compile(r"(?<=\$)(?=\$)|(?<=:)(?=fa-)|(?<=\\)(?=n)|(?<=ﬂ)(?=°)|(?<=¶)(?=ß)")


def draw_mermaid(graph: Graph, *, collapse_after: int | None = COLLAPSE_AFTER, direction: Direction = "TD") -> str:
    """
    Draw the DAG of a chat as the text of a Mermaid flowchart.

    Messages are boxes, coloured by role; branches have round ends and point to their head, the active one is filled and
    marked `*`; checkpoints are hexagons. The chain of the active branch has thick lines, a merge a dashed one from what it merges.

    Args:
        graph: As `visualize_graph` takes it.
        collapse_after: As `visualize_graph` takes it; a dashed box stands for the messages that are not shown.
        direction: Where children are drawn: `TD` or `TB` below, `BT` above, `LR` to the right, `RL` to the left.

    Returns:
        Lines without a line break at the end, for a code block of the language `mermaid`. Whatever the messages contain, it
        is one flowchart without links or scripts.

    Raises:
        InvalidValueError: There is no such direction, `collapse_after` is no number of messages, or two messages have the
            same id.
    """
    if direction not in get_args(Direction):
        msg = f"direction must be one of {', '.join(get_args(Direction))}, not {direction!r}"
        raise InvalidValueError(msg)
    drawn = list(draw_boxes(graph, collapse_after=collapse_after))
    chat = f"chat: {printable(graph.chat_id)}".translate(_WIDE)
    title = _NOT_PLAIN.sub(lambda character: f"\\U{ord(character[0]):08x}", chat)
    return "\n".join(
        [
            "---",
            f'title: "{title}"',
            "---",
            f"flowchart {direction}",
            *(f"    {_mermaid_node(part) if isinstance(part, Box) else _link(part)}" for part in drawn),
            *(f"    {line}" for line in _styles([part for part in drawn if isinstance(part, Box)])),
        ]
    )


def _mermaid_node(box: Box) -> str:
    before, after = _MERMAID_SHAPES.get(box.kind, ("[", "]"))
    label = "<br/>".join(
        "<wbr/>".join(_RISKY.sub(lambda risky: f"#{ord(risky[0])};", piece) for piece in _PAIRS.split(line))
        for line in box.lines
    )
    return f'{box.key}{before}"<div>{label}</div>"{after}:::{box.kind}'


def _link(arrow: Arrow) -> str:
    if arrow.is_merge:
        return f"{arrow.tail} -. merge .-> {arrow.head}"
    if arrow.is_pointer:
        return f"{arrow.tail} -.-> {arrow.head}"
    return f"{arrow.tail} {'==>' if arrow.is_active else '-->'} {arrow.head}"


def _styles(boxes: Iterable[Box]) -> Iterator[str]:
    used = {box.kind for box in boxes}
    for kind, paint in PAINTS.items():
        if kind in used:
            dashes = ",stroke-dasharray:5 5" if kind == "collapsed" else ""
            yield f"classDef {kind} fill:{paint.fill},stroke:{paint.line},color:{paint.text}{dashes}"
    active = [box.key for box in boxes if box.is_active]
    if active:
        yield f"classDef {_ACTIVE_CLASS} stroke-width:3px"
        yield f"class {','.join(active)} {_ACTIVE_CLASS}"
