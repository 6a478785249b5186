"""DOT text, read back by a parser of the language."""

import html
import re
from typing import NamedTuple

import pydot
import pytest
from hypothesis import given, settings
from tests.support.drawing_graphs import (
    MERGED,
    TRIP,
    active_chain,
    chain,
    graph,
    hostile_graphs,
    in_order,
    name_shown,
    node,
    one_line,
)
from tests.support.soak import examples

from chatledger.domain.draw.diagrams import draw_dot
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Graph

# pydot uses names that pyparsing 3.3 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated - use:DeprecationWarning")


class Box(NamedTuple):
    lines: list[str]
    attributes: dict[str, str]


class Digraph:
    """The graph that a parser finds in a text."""

    def __init__(self, text: str) -> None:
        graphs = pydot.graph_from_dot_data(text)
        assert graphs is not None, text
        (read,) = graphs
        assert read.get_type() == "digraph"
        assert not read.get_subgraphs()
        self.title = _lines(read.get_attributes()["label"])
        self.boxes: dict[str, Box] = {}
        for found in read.get_nodes():
            if found.get_name() not in {"node", "edge", "graph"}:
                assert found.get_name() not in self.boxes
                attributes = {name: str(value) for name, value in found.get_attributes().items()}
                self.boxes[found.get_name()] = Box(_lines(attributes.pop("label")), attributes)
        self.arrows = [(str(e.get_source()), str(e.get_destination()), _style(e)) for e in read.get_edges()]


def _style(edge: pydot.Edge) -> str:
    attributes = {name: str(value).strip('"') for name, value in edge.get_attributes().items()}
    assert len(attributes) <= 1
    return "".join(f"{name}={value}" for name, value in attributes.items())


def _text(quoted: str) -> str:
    """The text of a quoted string: only the quote is escaped."""
    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', quoted), quoted
    return re.sub(r"\\(.)", lambda found: '"' if found[1] == '"' else found[0], quoted[1:-1])


def _lines(quoted: str) -> list[str]:
    r"""A label as Graphviz draws it: `\n` begins a line, `\\` is a backslash, and entities are decoded."""
    pieces = re.findall(r"\\.|[^\\]", _text(quoted))
    assert {piece for piece in pieces if len(piece) == 2} <= {r"\n", r"\\"}
    text = "".join("\n" if piece == r"\n" else piece[-1] for piece in pieces)
    return [html.unescape(line) for line in text.split("\n")]


def test_example() -> None:
    expected = """\
digraph chat {
    graph [bgcolor="transparent", fontcolor="#808080", fontname="Helvetica,Arial,sans-serif", labelloc="t", ordering="out"]
    node [fontname="Helvetica,Arial,sans-serif", shape="box", style="filled"]
    edge [color="#808080"]
    label="chat: trip"
    n1 [label="a1f0c2d3 (user)\\nPlan a weekend in Riga", fillcolor="#dbeafe", color="#3b82f6", fontcolor="#172554", penwidth="3", tooltip="a1f0c2d3-0001"]
    n2 [label="b7e1aa90 (assistant)\\nOld Town first?", fillcolor="#dcfce7", color="#16a34a", fontcolor="#052e16", tooltip="b7e1aa90-0002"]
    n1 -> n2
    n3 [label="c9d2 (user)\\nYes", fillcolor="#dbeafe", color="#3b82f6", fontcolor="#172554", tooltip="c9d2"]
    n2 -> n3
    b1 [label="main", fillcolor="#f9fafb", color="#6b7280", fontcolor="#111827", style="filled,rounded"]
    b1 -> n3 [style="dashed"]
    c1 [label="draft", fillcolor="#fae8ff", color="#c026d3", fontcolor="#4a044e", shape="hexagon"]
    c1 -> n3 [style="dashed"]
    n4 [label="d4e5f6a7 (assistant)\\nTry the coast", fillcolor="#dcfce7", color="#16a34a", fontcolor="#052e16", penwidth="3", tooltip="d4e5f6a7-0004"]
    n1 -> n4 [penwidth="3"]
    b2 [label="main-v2 *", fillcolor="#15803d", color="#16a34a", fontcolor="#ffffff", style="filled,rounded", penwidth="3"]
    b2 -> n4 [style="dashed"]
}"""

    assert expected == draw_dot(TRIP)


def test_empty_graph() -> None:
    read = Digraph(draw_dot(graph(branches=(("main", None, True),))))

    assert [["(empty)"]] == [box.lines for box in read.boxes.values()]
    assert read.arrows == []


def test_long_run_is_one_dashed_box() -> None:
    read = Digraph(draw_dot(graph(*chain(12), branches=(("main", "m11", True),))))

    assert read.boxes["n4"].lines == ["... 6 messages ..."]
    assert read.boxes["n4"].attributes["style"] == '"filled,dashed"'
    assert ("n3", "n4", "penwidth=3") in read.arrows


def test_nothing_is_left_out_on_demand() -> None:
    read = Digraph(draw_dot(graph(*chain(12)), collapse_after=None))

    assert [box.lines[0] for box in read.boxes.values()] == [f"m{number} (user)" for number in range(12)]


def test_foreign_data() -> None:
    """A missing parent and a cycle are noted, as in the tree."""
    read = Digraph(draw_dot(graph(node("o", "gone"), node("a", "b"), node("b", "a"))))

    assert [box.lines[0] for box in read.boxes.values()] == [
        "o (user) (parent missing)",
        "a (user) (cycle)",
        "b (user)",
    ]
    assert read.arrows == [("n2", "n3", "")]


@pytest.mark.parametrize("collapse_after", [-1, True, 1.5])
def test_wrong_options(collapse_after: object) -> None:
    with pytest.raises(InvalidValueError):
        draw_dot(TRIP, collapse_after=collapse_after)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wrong on purpose


@pytest.mark.soak
@settings(max_examples=examples(60))
@given(hostile_graphs())
def test_reads_back(drawn: Graph) -> None:
    """Whatever the messages contain: exactly their boxes, arrows and texts, and no attribute that they brought."""
    read = Digraph(draw_dot(drawn, collapse_after=None))
    messages = in_order(drawn)
    active = active_chain(drawn)
    keys = {message.id: f"n{number + 1}" for number, (message, _) in enumerate(messages)}

    assert read.title == [f"chat: {one_line(drawn.chat_id)}"]
    for message, _ in messages:
        note = "" if message.parent_id != "gone" else " (parent missing)"
        title = f"{one_line(message.id[:8])} ({one_line(message.role)}){note}"
        content = one_line(message.content)
        box = read.boxes.pop(keys[message.id])
        assert box.lines == ([title, content] if content.strip() else [title])
        assert html.unescape(_text(box.attributes["tooltip"])).replace(4 * "\\", "\\") == one_line(message.id)
        assert box.attributes.keys() - {"penwidth"} == {"fillcolor", "color", "fontcolor", "tooltip"}
        assert ("penwidth" in box.attributes) == (message.id in active)

    parents = [
        (f"n{parent + 1}", keys[message.id], "penwidth=3" if message.id in active else "")
        for message, parent in messages
        if parent is not None
    ]
    pointers = [(name_shown(b.name) + " *" * b.is_active, keys[b.head_message_id or ""]) for b in drawn.branches]
    pointers += [(name_shown(mark.name), keys[mark.message_id]) for mark in drawn.checkpoints]
    assert sorted(parents) == sorted(arrow for arrow in read.arrows if arrow[0][0] == "n")
    assert sorted(pointers) == sorted(
        ("".join(read.boxes[tail].lines), head) for tail, head, style in read.arrows if style == "style=dashed"
    )
    assert len(read.arrows) == len(parents) + len(pointers)
    assert len(read.boxes) == len(pointers) + (not messages)


def test_a_merge_has_a_dashed_edge_from_what_it_merges() -> None:
    """The edges of the chains stay as they are, and what is not in the data has none."""
    drawn = draw_dot(MERGED)
    key = {box.group(2): box.group(1) for box in re.finditer(r'^ +(n\d+) \[label="(\w+) \(user\)', drawn, re.MULTILINE)}
    merges = re.findall(r'(n\d+) -> (n\d+) \[style="dashed", label="merge"', drawn)

    assert merges == [(key["i8"], key["s"])]
    assert pydot.graph_from_dot_data(drawn)
