"""Mermaid text, read back as Mermaid reads it: by its preprocessing, the tokens of its flowcharts, and its labels as HTML."""

import re
from html.parser import HTMLParser
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from tests.support.drawing_graphs import (
    MERGED,
    TRIP,
    active_chain,
    chain,
    graph,
    hostile_graphs,
    hostile_texts,
    in_order,
    name_shown,
    node,
    one_line,
    shapes,
)

from chatledger.domain.draw.diagrams import PAINTS, Direction, draw_mermaid
from chatledger.domain.draw.tree import draw_lines
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Graph

_FRONT_MATTER: Final = re.compile(r"-{3}\s*[\n\r](.*?)[\n\r]-{3}\s*[\n\r]+", re.DOTALL)
_TITLE: Final = re.compile(r'title: "((?:[^"\\]|\\U[0-9a-f]{8})*)"')
_NODE: Final = re.compile(r'    (\w+)(\(\[|\{\{|\[)"(?!`)([^"]*)"(\]\)|\}\}|\]):::(\w+)')
_LINK: Final = re.compile(r"    (\w+) (-->|==>|-\.->) (\w+)")
_CLASS_DEF: Final = re.compile(r"    classDef (\w+) ([a-z-]+:[\w# ]+(?:,[a-z-]+:[\w# ]+)*)")
_CLASS: Final = re.compile(r"    class (\w+(?:,\w+)*) (\w+)")
# What Mermaid looks for in the text of a label after it decoded and cleaned it: formulas, icons, breaks, its own marks.
_MAGIC: Final = re.compile(r"\$\$|fa[bklrs]?:fa-|\\n|ﬂ°|¶ß")


class Node(NamedTuple):
    shape: str
    lines: list[str]
    kind: str


class Flowchart:
    """A text as Mermaid 10 and 11 read it; anything that it would take for something else is an error."""

    def __init__(self, text: str) -> None:
        front = _FRONT_MATTER.match(text)
        assert front is not None
        title = _TITLE.fullmatch(front[1])
        assert title is not None
        self.title = re.sub(r"\\U([0-9a-f]{8})", lambda found: chr(int(found[1], 16)), title[1])
        self.nodes: dict[str, Node] = {}
        self.links: list[tuple[str, str, str]] = []
        self.styles: dict[str, dict[str, str]] = {}
        self.classes: dict[str, list[str]] = {}
        first, *lines = _with_entities(text[front.end() :]).split("\n")
        assert re.fullmatch(r"flowchart \w\w", first)
        self.direction = first.split()[1]
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        if found := _NODE.fullmatch(line):
            assert found[1] not in self.nodes
            assert (found[2], found[4]) in {("[", "]"), ("([", "])"), ("{{", "}}")}
            self.nodes[found[1]] = Node(found[2], _Label.lines_of(found[3]), found[5])
        elif found := _LINK.fullmatch(line):
            assert {found[1], found[3]} <= self.nodes.keys()
            self.links.append((found[1], found[2], found[3]))
        elif found := _CLASS_DEF.fullmatch(line):
            self.styles[found[1]] = dict(style.split(":") for style in found[2].split(","))
        else:
            found = _CLASS.fullmatch(line)
            assert found is not None, line
            assert set(found[1].split(",")) <= self.nodes.keys()
            self.classes[found[2]] = found[1].split(",")


def _with_entities(text: str) -> str:
    """Mermaid's preprocessing (`preprocessDiagram`, `encodeEntities`), with the same expressions."""
    assert not re.search(r"%{2}{", text), "a directive"
    assert not re.search(r"^\s*%%", text, re.MULTILINE), "a comment"
    text = re.sub(r"style.*:\S*#.*;", lambda found: found[0][:-1], text)
    text = re.sub(r"classDef.*:\S*#.*;", lambda found: found[0][:-1], text)
    return re.sub(
        r"#(\w+);", lambda found: f"{'ﬂ°°' if found[1].isdigit() else 'ﬂ°'}{found[1]}¶ß", text, flags=re.ASCII
    )


class _Label(HTMLParser):
    """A label as a browser reads it after Mermaid turned its marks back into entities."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines = [""]

    @classmethod
    def lines_of(cls, text: str) -> list[str]:
        text = text.replace("ﬂ°°", "&#").replace("ﬂ°", "&").replace("¶ß", ";")
        inside = re.fullmatch(r"<div>(.*)</div>", text)
        assert inside is not None, "what is not one block of HTML is read as Markdown"
        for piece in re.split(r"<(?:br|wbr)/>", inside[1]):
            parser = cls()
            parser.feed(piece)
            parser.close()
            assert not _MAGIC.search(parser.lines[-1])
        parser = cls()
        parser.feed(inside[1])
        parser.close()
        return parser.lines

    def handle_data(self, data: str) -> None:
        self.lines[-1] += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"br", "wbr"}
        assert not attrs
        if tag == "br":
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        assert tag in {"br", "wbr"}

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)


def test_example() -> None:
    expected = """\
---
title: "chat: trip"
---
flowchart TD
    n1["<div>a1f0c2d3 (user)<br/>Plan a weekend in Riga</div>"]:::user
    n2["<div>b7e1aa90 (assistant)<br/>Old Town first?</div>"]:::assistant
    n1 --> n2
    n3["<div>c9d2 (user)<br/>Yes</div>"]:::user
    n2 --> n3
    b1(["<div>main</div>"]):::branch
    b1 -.-> n3
    c1{{"<div>draft</div>"}}:::checkpoint
    c1 -.-> n3
    n4["<div>d4e5f6a7 (assistant)<br/>Try the coast</div>"]:::assistant
    n1 ==> n4
    b2(["<div>main-v2 #42;</div>"]):::active
    b2 -.-> n4
    classDef user fill:#dbeafe,stroke:#3b82f6,color:#172554
    classDef assistant fill:#dcfce7,stroke:#16a34a,color:#052e16
    classDef branch fill:#f9fafb,stroke:#6b7280,color:#111827
    classDef active fill:#15803d,stroke:#16a34a,color:#ffffff
    classDef checkpoint fill:#fae8ff,stroke:#c026d3,color:#4a044e
    classDef onActive stroke-width:3px
    class n1,n4,b2 onActive"""

    assert expected == draw_mermaid(TRIP)


def test_empty_graph() -> None:
    read = Flowchart(draw_mermaid(graph(branches=(("main", None, True),))))

    assert read.nodes == {"empty": Node("[", ["(empty)"], "collapsed")}
    assert read.links == []


@pytest.mark.parametrize("direction", ["BT", "LR", "RL", "TB", "TD"])
def test_direction(direction: Direction) -> None:
    assert direction == Flowchart(draw_mermaid(TRIP, direction=direction)).direction


@pytest.mark.parametrize(
    "options",
    [{"direction": "down"}, {"direction": "TD\n    n9"}, {"collapse_after": -1}, {"collapse_after": 1.5}],
    ids=str,
)
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        draw_mermaid(TRIP, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_foreign_data() -> None:
    """A missing parent and a cycle are noted, as in the tree."""
    read = Flowchart(draw_mermaid(graph(node("o", "gone"), node("a", "b"), node("b", "a"), node("s", "s"))))

    assert [each.lines[0] for each in read.nodes.values()] == [
        "o (user) (parent missing)",
        "a (user) (cycle)",
        "b (user)",
        "s (user) (cycle)",
    ]
    assert read.links == [("n2", "-->", "n3")]


def test_messages_without_text() -> None:
    read = Flowchart(draw_mermaid(graph(node("a", content=""), node("b", content="\n "))))

    assert [["a (user)"], ["b (user)"]] == [each.lines for each in read.nodes.values()]


def test_long_run_is_one_dashed_box() -> None:
    read = Flowchart(draw_mermaid(graph(*chain(12), branches=(("main", "m11", True),))))

    assert read.nodes["n4"] == Node("[", ["... 6 messages ..."], "collapsed")
    assert "stroke-dasharray" in read.styles["collapsed"]
    assert ("n3", "==>", "n4") in read.links
    assert ("n4", "==>", "n5") in read.links
    assert read.classes["onActive"] == [*(f"n{number}" for number in range(1, 8)), "b1"]


def test_size_follows_forks_and_markers() -> None:
    """Twenty thousand messages with a fork are a few boxes."""
    nodes = [*chain(20_000), *chain(5_000, first="m9000", prefix="f")]
    text = draw_mermaid(graph(*nodes, branches=(("main", "m19999", True), ("main-v2", "f4999", False))))

    assert len(Flowchart(text).nodes) < 30
    assert len(text) < 4_000


@given(hostile_graphs())
def test_reads_back(drawn: Graph) -> None:
    """Whatever the messages contain: exactly their boxes, arrows and texts, and the active chain in thick lines."""
    read = Flowchart(draw_mermaid(drawn, collapse_after=None))
    messages = in_order(drawn)
    active = active_chain(drawn)

    boxes = {key: each for key, each in read.nodes.items() if key[0] == "n"}
    assert list(boxes) == [f"n{number}" for number in range(1, len(messages) + 1)]
    for (message, _), box in zip(messages, boxes.values(), strict=True):
        note = "" if message.parent_id != "gone" else " (parent missing)"
        title = f"{one_line(message.id[:8])} ({one_line(message.role)}){note}"
        content = one_line(message.content)
        role = message.role if message.role in {"user", "assistant", "tool", "system"} else "other"
        assert box == Node("[", [title, content] if content.strip() else [title], role)
    parent_links = [
        (f"n{parent + 1}", "==>" if message.id in active else "-->", f"n{number + 1}")
        for number, (message, parent) in enumerate(messages)
        if parent is not None
    ]
    assert parent_links == [link for link in read.links if link[1] != "-.->"]
    assert {f"n{number + 1}" for number, (message, _) in enumerate(messages) if message.id in active} == {
        key for key in read.classes.get("onActive", []) if key[0] == "n"
    }


@given(hostile_graphs())
def test_pointers_read_back(drawn: Graph) -> None:
    """Branches and checkpoints point to their message, the active branch is marked, and nothing else has a pointer."""
    read = Flowchart(draw_mermaid(drawn, collapse_after=None))
    keys = {message.id: f"n{number + 1}" for number, (message, _) in enumerate(in_order(drawn))}

    expected = [
        (
            Node("([", [name_shown(b.name) + " *" * b.is_active], "active" if b.is_active else "branch"),
            keys[b.head_message_id or ""],
        )
        for b in drawn.branches
    ] + [(Node("{{", [name_shown(mark.name)], "checkpoint"), keys[mark.message_id]) for mark in drawn.checkpoints]
    found = [(read.nodes[tail], head) for tail, kind, head in read.links if kind == "-.->"]
    assert sorted(expected) == sorted(found)
    assert len(read.nodes) == max(len(keys), not keys) + len(expected)
    assert len(read.links) == sum(parent is not None for _, parent in in_order(drawn)) + len(expected)


@given(hostile_texts)
def test_title(text: str) -> None:
    """The title names the chat; what would be cleaned away as HTML is shown in wide forms."""
    shown = Flowchart(draw_mermaid(graph(node("a"), chat_id=f"c{text}"))).title

    assert f"chat: c{one_line(text)}".translate(str.maketrans("&<>", "\uff06\uff1c\uff1e")) == shown


@given(shapes())
def test_the_tree_has_the_same_lines(drawn: Graph) -> None:
    """One box for each line of the tree, with the same messages left out."""
    read = Flowchart(draw_mermaid(drawn))
    lines = list(draw_lines(drawn))
    boxes = [each for key, each in read.nodes.items() if key[0] == "n"]

    assert [line.skipped > 0 for line in lines] == [box.kind == "collapsed" for box in boxes]
    assert [str(line).removeprefix(line.prefix) for line in lines if line.skipped] == [
        box.lines[0] for box in boxes if box.kind == "collapsed"
    ]
    assert [line.id for line in lines if not line.skipped] == [
        box.lines[0].split()[0] for box in boxes if box.kind != "collapsed"
    ]


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("kind", sorted(PAINTS))
def test_colours_can_be_read(kind: str) -> None:
    """By WCAG 2: text 4.5:1 on its box, the border 3:1 on GitHub's light and dark page."""
    paint = {str(name): each for name, each in PAINTS.items()}[kind]

    assert _contrast(paint.text, paint.fill) >= 4.5
    assert _contrast(paint.line, "#ffffff") >= 3
    assert _contrast(paint.line, "#0d1117") >= 3


def test_a_merge_has_a_dashed_link_from_what_it_merges() -> None:
    drawn = draw_mermaid(MERGED)
    keys = dict(re.findall(r'(n\d+)\["<div>(\w+) \(user\)', drawn))
    names = {name: key for key, name in keys.items()}

    assert re.findall(r"(n\d+) -\. merge \.-> (n\d+)", drawn) == [(names["i8"], names["s"])]
