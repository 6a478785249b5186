"""
The DAG of a chat as a Mermaid flowchart, which GitHub, GitLab and others draw inside Markdown.

Labels hold what strangers wrote, so everything but letters, digits and harmless punctuation is written as a numeric entity
of Mermaid. A label is one HTML block: Mermaid 11 reads other labels as Markdown, and refuses those with links, lists or code.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from ..errors import InvalidValueError
from ..values import Graph
from .diagram import PAINTS, Arrow, Box, Kind, draw_boxes
from .labels import printable
from .outline import COLLAPSE_AFTER

Direction = Literal["BT", "LR", "RL", "TB", "TD"]

_SHAPES: Final[dict[Kind, tuple[str, str]]] = {
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
    marked `*`; checkpoints are hexagons. The chain of the active branch has thick lines.

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
    return "\n".join(
        [
            "---",
            f"title: {_yaml_text(f'chat: {printable(graph.chat_id)}')}",
            "---",
            f"flowchart {direction}",
            *(f"    {_node(part) if isinstance(part, Box) else _link(part)}" for part in drawn),
            *(f"    {line}" for line in _styles([part for part in drawn if isinstance(part, Box)])),
        ]
    )


def _node(box: Box) -> str:
    before, after = _SHAPES.get(box.kind, ("[", "]"))
    label = "<br/>".join(_escape(line) for line in box.lines)
    return f'{box.key}{before}"<div>{label}</div>"{after}:::{box.kind}'


def _link(arrow: Arrow) -> str:
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


def _escape(line: str) -> str:
    return "<wbr/>".join(_RISKY.sub(_entity, piece) for piece in _PAIRS.split(line))


def _entity(character: re.Match[str]) -> str:
    return f"#{ord(character[0])};"


def _yaml_text(text: str) -> str:
    """As a YAML string in double quotes."""
    escaped = _NOT_PLAIN.sub(lambda character: f"\\U{ord(character[0]):08x}", text.translate(_WIDE))
    return f'"{escaped}"'
