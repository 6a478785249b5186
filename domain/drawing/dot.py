"""The DAG of a chat in DOT, the language of Graphviz."""

from typing import Final

from ..values import Graph
from .diagram import PAINTS, Arrow, Box, Kind, draw_boxes
from .labels import printable
from .outline import COLLAPSE_AFTER

_GREY: Final = "#808080"
"""It can be seen on light and on dark pages."""
_HEAD: Final = f"""\
    graph [bgcolor="transparent", fontcolor="{_GREY}", fontname="Helvetica,Arial,sans-serif", labelloc="t", ordering="out"]
    node [fontname="Helvetica,Arial,sans-serif", shape="box", style="filled"]
    edge [color="{_GREY}"]"""
_SHAPES: Final[dict[Kind, str]] = {
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
            *(f"    {_node(part) if isinstance(part, Box) else _edge(part)}" for part in drawn),
            "}",
        ]
    )


def _node(box: Box) -> str:
    paint = PAINTS[box.kind]
    attributes = [
        f"label={_quoted(*box.lines)}",
        f'fillcolor="{paint.fill}", color="{paint.line}", fontcolor="{paint.text}"',
    ]
    if box.kind in _SHAPES:
        attributes.append(_SHAPES[box.kind])
    if box.is_active:
        attributes.append('penwidth="3"')
    if box.message_id:
        attributes.append(f"tooltip={_tooltip(box.message_id)}")
    return f"{box.key} [{', '.join(attributes)}]"


def _edge(arrow: Arrow) -> str:
    if arrow.is_pointer:
        return f'{arrow.tail} -> {arrow.head} [style="dashed"]'
    thick = ' [penwidth="3"]' if arrow.is_active else ""
    return f"{arrow.tail} -> {arrow.head}{thick}"


def _quoted(*lines: str) -> str:
    """Lines of a label in which neither escapes nor entities stand for something else."""
    text = r"\n".join(_escape(line, backslash=r"\\") for line in lines)
    return f'"{text}"'


def _tooltip(text: str) -> str:
    # Graphviz reads the escapes of a tooltip twice.
    escaped = _escape(text, backslash=4 * "\\")
    return f'"{escaped}"'


def _escape(text: str, *, backslash: str) -> str:
    return text.replace("&", "&amp;").replace("\\", backslash).replace('"', r"\"")
