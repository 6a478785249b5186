import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Graph, GraphBranch, GraphCheckpoint, GraphNode
from chatledger.infra.drawing import Style, draw_graph, draw_lines


def node(id_: str, parent_id: str | None = None, *, role: str = "user", content: str = "hi") -> GraphNode:
    return GraphNode(id=id_, parent_id=parent_id, role=role, content=content, created_at=0)


def graph(
    *nodes: GraphNode,
    branches: tuple[tuple[str, str | None, bool], ...] = (),
    checkpoints: tuple[tuple[str, str], ...] = (),
) -> Graph:
    return Graph(
        chat_id="trip",
        nodes=list(nodes),
        branches=[GraphBranch(name=name, head_message_id=head, is_active=active) for name, head, active in branches],
        checkpoints=[GraphCheckpoint(name=name, message_id=message_id) for name, message_id in checkpoints],
    )


def chain(length: int, *, first: str | None = None, prefix: str = "m") -> list[GraphNode]:
    return [node(f"{prefix}{n}", f"{prefix}{n - 1}" if n else first) for n in range(length)]


def body(drawn: str) -> list[str]:
    lines = drawn.split("\n")
    assert lines[1] == lines[-2] == ""
    return lines[2:-2]


TRIP = graph(
    node("a1f0c2d3-0001", content="Plan a weekend in Riga"),
    node("b7e1aa90-0002", "a1f0c2d3-0001", role="assistant", content="Old Town first?"),
    node("d4e5f6a7-0004", "a1f0c2d3-0001", role="assistant", content="Try the coast"),
    node("c9d2", "b7e1aa90-0002", content="Yes"),
    branches=(("main", "c9d2", False), ("main-v2", "d4e5f6a7-0004", True)),
    checkpoints=(("draft", "c9d2"),),
)


def test_example_of_the_specification() -> None:
    expected = """\
[chat: trip]

a1f0c2d3 (user): "Plan a weekend in Riga"
├── b7e1aa90 (assistant): "Old Town first?"
│   └── c9d2 (user): "Yes" <- [main] {draft}
└── d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

Legend: * = active branch, {...} = checkpoint"""

    assert expected == draw_graph(TRIP)


def test_ascii() -> None:
    expected = """\
[chat: trip]

a1f0c2d3 (user): "Plan a weekend in Riga"
|-- b7e1aa90 (assistant): "Old Town first?"
|   +-- c9d2 (user): "Yes" <- [main] {draft}
+-- d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

Legend: * = active branch, {...} = checkpoint"""

    assert expected == draw_graph(TRIP, style="ascii")


def test_empty_graph() -> None:
    assert draw_graph(graph(branches=(("main", None, True),))) == "[chat: trip]\n\n(empty)"


def test_several_branches_and_checkpoints_on_one_message() -> None:
    drawn = draw_graph(
        graph(
            node("a"),
            branches=(("main", "a", False), ("try", "a", True), ("later", "a", False), ("none", None, False)),
            checkpoints=(("one", "a"), ("two", "a")),
        )
    )

    assert body(drawn) == ['a (user): "hi" <- [main, try *, later] {one, two}']


def test_several_roots_and_orphans() -> None:
    """Roots stand at column 0 in their order; one whose parent is not in the data says so."""
    drawn = draw_graph(graph(node("a"), node("o", "gone"), node("b"), node("p", "o"), node("c", "a")))

    assert body(drawn) == [
        'a (user): "hi"',
        '└── c (user): "hi"',
        'o (user): "hi" (parent missing)',
        '└── p (user): "hi"',
        'b (user): "hi"',
    ]


def test_control_characters_become_blanks() -> None:
    """Neither a line break nor an escape sequence in a message reaches the terminal."""
    drawn = draw_graph(
        graph(node("a\n", role="us\ter", content="x\r\ny\nz\x1b[31m\u2028\x85"), checkpoints=(("c\nd", "a\n"),))
    )

    assert body(drawn) == ['a  (us er): "x y z [31m  " {c d}']


def test_long_run_is_collapsed() -> None:
    """The root and the leaf are no part of the run."""
    drawn = draw_graph(graph(*chain(11)))

    assert [line.strip() for line in body(drawn)] == [
        'm0 (user): "hi"',
        *(f'└── {name} (user): "hi"' for name in ("m1", "m2")),
        "└── ... 5 messages ...",
        *(f'└── {name} (user): "hi"' for name in ("m8", "m9", "m10")),
    ]
    assert [len(line) - len(line.lstrip()) for line in body(drawn)] == [0, 0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize(("length", "shown"), [(10, 10), (11, 7)])
def test_collapse_begins_above_the_limit(length: int, shown: int) -> None:
    """A chain of ten has a run of eight between root and leaf, which is not more than eight."""
    assert len(body(draw_graph(graph(*chain(length))))) == shown


@pytest.mark.parametrize(("collapse_after", "shown"), [(None, 30), (28, 30), (27, 7), (0, 7), (10**9, 30)])
def test_collapse_after(collapse_after: int | None, shown: int) -> None:
    assert len(body(draw_graph(graph(*chain(30)), collapse_after=collapse_after))) == shown


def test_one_collapsed_message() -> None:
    """A run of five is the shortest that can lose one; a run of four has nothing between its ends."""
    five = draw_graph(graph(*chain(7)), collapse_after=0)
    four = draw_graph(graph(*chain(6)), collapse_after=0)

    assert "└── ... 1 message ..." in [line.strip() for line in body(five)]
    assert "..." not in "\n".join(body(four))


def test_markers_interrupt_a_run() -> None:
    """What carries a branch or a checkpoint is always shown."""
    drawn = draw_graph(
        graph(*chain(60), branches=(("old", "m20", False), ("main", "m59", True)), checkpoints=(("mark", "m40"),))
    )

    lines = [line.strip() for line in body(drawn)]
    assert '└── m20 (user): "hi" <- [old]' in lines
    assert '└── m40 (user): "hi" {mark}' in lines
    assert lines.count("└── ... 15 messages ...") == 2
    assert lines.count("└── ... 14 messages ...") == 1


def test_twenty_thousand_messages_with_one_fork() -> None:
    """Fewer than 40 lines, without recursion."""
    nodes = [*chain(20_000), *chain(5_000, first="m9000", prefix="f")]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(120)
    try:
        drawn = draw_graph(graph(*nodes, branches=(("main", "m19999", True), ("main-v2", "f4999", False))))
    finally:
        sys.setrecursionlimit(limit)

    assert len(drawn.split("\n")) < 40
    assert len(drawn) < 4_000


def test_twenty_thousand_replies_to_one_message() -> None:
    drawn = draw_graph(graph(node("root"), *(node(f"r{n}", "root") for n in range(20_000))))

    lines = body(drawn)
    assert len(lines) == 20_001
    assert lines[-2].startswith("├── ")
    assert lines[-1].startswith("└── ")


def test_lines_know_the_active_chain() -> None:
    lines = list(draw_lines(TRIP))

    assert [(line.id, line.is_active) for line in lines] == [
        ("a1f0c2d3", True),
        ("b7e1aa90", False),
        ("c9d2", False),
        ("d4e5f6a7", True),
    ]


@pytest.mark.parametrize("options", [{"style": "fancy"}, {"collapse_after": -1}])
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        draw_graph(TRIP, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wrong on purpose


@given(
    parents=st.lists(st.integers(min_value=-2, max_value=40), max_size=40),
    heads=st.sets(st.integers(min_value=0, max_value=39), max_size=6),
    style=st.sampled_from(["ascii", "unicode"]),
)
def test_every_message_is_shown_or_counted(parents: list[int], heads: set[int], style: Style) -> None:
    """Whatever the shape: each message once, none of those with a marker left out, its own line for each."""
    nodes = [
        node(f"n{n}", None if parent == -1 else "gone" if parent < 0 else f"n{parent % n}" if n else None)
        for n, parent in enumerate(parents)
    ]
    marked = {f"n{head}" for head in heads if head < len(nodes)}
    lines = list(
        draw_lines(graph(*nodes, branches=tuple((f"b-{name}", name, False) for name in sorted(marked))), style=style)
    )

    shown = [line.id for line in lines if not line.skipped]
    assert len(shown) == len(set(shown))
    assert len(nodes) == len(shown) + sum(line.skipped for line in lines)
    assert marked == {line.id for line in lines if line.branches}
    assert {line.id for line in lines if line.is_orphan} == {n.id for n in nodes if n.parent_id == "gone"}
    assert all("\n" not in str(line) for line in lines)
    for before, after in itertools.pairwise(lines):
        assert len(after.prefix) <= len(before.prefix) + 4
