"""Graphs for the tests of the drawings: making them, hostile texts, and the order of drawing as the definition has it."""

import re
from collections.abc import Sequence

from hypothesis import strategies as st

from chatledger.domain.values import Graph, GraphBranch, GraphCheckpoint, GraphNode


def node(
    id_: str,
    parent_id: str | None = None,
    *,
    role: str = "user",
    content: str = "hi",
    created_at: int = 0,
    merged_from: tuple[str, ...] = (),
) -> GraphNode:
    return GraphNode(
        id=id_, parent_id=parent_id, role=role, content=content, created_at=created_at, merged_from=[*merged_from]
    )


def graph(
    *nodes: GraphNode,
    branches: Sequence[tuple[str, str | None, bool]] = (),
    checkpoints: Sequence[tuple[str, str]] = (),
    chat_id: str = "trip",
) -> Graph:
    return Graph(
        chat_id=chat_id,
        nodes=list(nodes),
        branches=[GraphBranch(name=name, head_message_id=head, is_active=active) for name, head, active in branches],
        checkpoints=[GraphCheckpoint(name=name, message_id=message_id) for name, message_id in checkpoints],
    )


def chain(length: int, *, first: str | None = None, prefix: str = "m") -> list[GraphNode]:
    return [node(f"{prefix}{n}", f"{prefix}{n - 1}" if n else first) for n in range(length)]


TRIP = graph(
    node("a1f0c2d3-0001", content="Plan a weekend in Riga"),
    node("b7e1aa90-0002", "a1f0c2d3-0001", role="assistant", content="Old Town first?"),
    node("d4e5f6a7-0004", "a1f0c2d3-0001", role="assistant", content="Try the coast"),
    node("c9d2", "b7e1aa90-0002", content="Yes"),
    branches=(("main", "c9d2", False), ("main-v2", "d4e5f6a7-0004", True)),
    checkpoints=(("draft", "c9d2"),),
)

MERGED = graph(
    *chain(12),
    *chain(12, first="m2", prefix="i"),
    node("s", "m11", content="So it was", merged_from=("i8", "elsewhere")),
    branches=(("main", "s", True),),
)
"""Two lines of twelve messages; the first merges the ninth of the second, and a message that is not in the data."""

_SNIPPETS = (
    *'"`*_#;:%&<>[](){}|\\/$@^~=-ß¶ﬂ°',
    *(
        '"]; n9["x"]',
        '"] -->',
        "n1 --> n2",
        "]:::user",
        "click n1 call alert()",
        "%%{init: {}}%%",
        "%% x",
        "@{ shape: x }",
    ),
    *("<script>alert(1)</script>", "</div>", "<b onclick=x>", "<br/>", "<!--", "&lt;b&gt;", "&amp;", "&#60;", "]]>"),
    *(
        "#quot;",
        "#35;",
        "#60;",
        "style a:b#35;c;",
        "classDef a:b#1;",
        "ﬂ°°60¶ß",
        "ﬂ°lt¶ß",
        "```",
        "`md`",
        "**b**",
        "1. x",
    ),
    *(
        "$$x$$",
        "$$$",
        "fa:fa-ban",
        "\\n",
        "\\\\n",
        "\\N\\G\\L\\E\\T\\H\\l\\r",
        '\\"',
        "https://a.b/?c=d&e#f",
        "end",
        "subgraph",
    ),
    *("\n", "\r\n", "\x00", "\x1b[2J", "\u2028", "\ufffe", "\ufeff", "e\u0301", "日本語", "🎉", "  "),
)
hostile_texts = st.lists(
    st.one_of(st.sampled_from(_SNIPPETS), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)), max_size=5
).map("".join)


@st.composite
def shapes(draw: st.DrawFn, max_size: int = 40) -> Graph:
    """Graphs of any shape without cycles: forks, long runs, several roots, missing parents, markers; ids `n0`, `n1` ..."""
    parents: list[int] = draw(st.lists(st.integers(min_value=-2, max_value=60), max_size=max_size))
    nodes: list[GraphNode] = []
    for number, choice in enumerate(parents):
        # Large numbers continue a chain, so that there are runs to collapse.
        parent = number - 1 if choice > 8 else choice % number if number and choice >= 0 else min(choice, -1)
        nodes.append(node(f"n{number}", None if parent == -1 else "gone" if parent < 0 else f"n{parent}"))
    ids = [each.id for each in nodes]
    if not ids:
        return graph()
    heads = draw(st.lists(st.sampled_from(ids), max_size=4))
    marked = draw(st.lists(st.sampled_from(ids), max_size=3))
    return graph(
        *nodes,
        branches=[(f"b{number}", head, number == 0) for number, head in enumerate(heads)],
        checkpoints=[(f"c{number}", message_id) for number, message_id in enumerate(marked)],
    )


@st.composite
def hostile_graphs(draw: st.DrawFn) -> Graph:
    """Small graphs in which every text is hostile."""
    shape = draw(shapes(max_size=6))
    ids = {each.id: each.id + draw(hostile_texts) for each in shape.nodes} | {"gone": "gone"}
    return graph(
        *(
            node(
                ids[each.id],
                None if each.parent_id is None else ids[each.parent_id],
                role=draw(st.one_of(st.sampled_from(["user", "assistant", "tool"]), hostile_texts)),
                content=draw(hostile_texts),
            )
            for each in shape.nodes
        ),
        branches=[
            (f"{draw(hostile_texts)}{branch.name}", ids[branch.head_message_id or ""], branch.is_active)
            for branch in shape.branches
        ],
        checkpoints=[(f"{draw(hostile_texts)}{mark.name}", ids[mark.message_id]) for mark in shape.checkpoints],
        chat_id=f"c{draw(hostile_texts)}",
    )


def in_order(drawn: Graph) -> list[tuple[GraphNode, int | None]]:
    """The messages in the order of drawing, each with the number of its parent; straight from the definition."""
    found: list[tuple[GraphNode, int | None]] = []
    ids = {each.id for each in drawn.nodes}

    def visit(each: GraphNode, parent: int | None) -> None:
        number = len(found)
        found.append((each, parent))
        for child in drawn.nodes:
            if child.parent_id == each.id:
                visit(child, number)

    for each in drawn.nodes:
        if each.parent_id not in ids:
            visit(each, None)
    return found


def active_chain(drawn: Graph) -> set[str]:
    """The ids on the chain of the active branches."""
    parents = {each.id: each.parent_id for each in drawn.nodes}
    found: set[str] = set()
    for branch in drawn.branches:
        at = branch.head_message_id if branch.is_active else None
        while at is not None and at in parents:
            found.add(at)
            at = parents[at]
    return found


_UNSEEN = re.compile(
    "[\u00ad\u180e\u200b\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def one_line(text: str) -> str:
    """A text as a box shows it: line breaks and other control characters as blanks, what nobody sees as escapes."""
    kept = "".join(
        " " if c < " " or "\x7f" <= c < "\xa0" or c in "\u2028\u2029" else c for c in text.replace("\r\n", " ")
    )
    shown = _UNSEEN.sub(lambda c: f"\\u{ord(c[0]):04x}" if c[0] < "\U00010000" else f"\\U{ord(c[0]):08x}", kept)
    return shown.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def name_shown(name: str) -> str:
    """The name of a branch or checkpoint as a drawing shows it: quoted where its characters mean something there."""
    shown = one_line(name)
    if shown == shown.strip() and shown and not set(shown) & set('[]{}*,"'):
        return shown
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
