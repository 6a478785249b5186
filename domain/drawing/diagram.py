"""
The DAG of a chat as boxes and arrows, for every language of diagrams.

Branches and checkpoints are boxes of their own which point to their message. Boxes have generated keys, so nothing that a
conversation contains can be taken for one.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from ..values import Graph
from .labels import messages_left_out, printable, short_id
from .outline import COLLAPSE_AFTER, Part, outline

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
    """An arrow from a message to its child, or from a branch or checkpoint to its message."""

    tail: str
    head: str
    is_pointer: bool
    is_active: bool


def draw_boxes(graph: Graph, *, collapse_after: int | None = COLLAPSE_AFTER) -> Iterator[Box | Arrow]:
    """The boxes and arrows, each arrow after the boxes that it connects. See `outline`."""
    parts = outline(graph, collapse_after=collapse_after)
    return _boxes(parts) if graph.nodes else iter([Box(key="empty", kind="collapsed", lines=("(empty)",))])


def _boxes(parts: Iterator[Part]) -> Iterator[Box | Arrow]:
    branches = checkpoints = 0
    for part in parts:
        key = _key(part.number)
        yield _box(part, key)
        if part.parent is not None:
            yield Arrow(tail=_key(part.parent), head=key, is_pointer=False, is_active=part.is_active)
        for name, is_active in part.branches:
            branches += 1
            yield from _pointer(f"b{branches}", key, "active" if is_active else "branch", name, is_active=is_active)
        for name in part.checkpoints:
            checkpoints += 1
            yield from _pointer(f"c{checkpoints}", key, "checkpoint", name)


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
    label = f"{printable(name)} *" if is_active else printable(name)
    yield Box(key=key, kind=kind, lines=(label,), is_active=is_active)
    yield Arrow(tail=key, head=target, is_pointer=True, is_active=is_active)
