"""The tree of lines: CE-56 to CE-59."""

import sys
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.drawing_graphs import MERGED, TRIP, active_chain, chain, graph, node, shapes

from chatledger.domain.draw.tree import STROKES_IN_A_ROW, draw_flat_lines, draw_lines, visualize_graph
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Graph, GraphNode


def body(drawn: str, of: Graph | None = None) -> list[str]:
    if of is not None and not of.nodes:
        assert drawn.endswith("\n\n(empty)")
        return []
    lines = drawn.split("\n")
    assert lines[1] == lines[-2] == ""
    return lines[2:-2]


def test_example_of_the_specification() -> None:
    expected = """\
[chat: trip]

a1f0c2d3 (user): "Plan a weekend in Riga"
├── b7e1aa90 (assistant): "Old Town first?"
│   └── c9d2 (user): "Yes" <- [main] {draft}
└── d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

Legend: * = active branch, {...} = checkpoint"""

    assert expected == visualize_graph(TRIP)


def test_a_merge_names_what_it_merges() -> None:
    """Both are shown in the middle of long runs."""
    lines = body(visualize_graph(MERGED), MERGED)

    assert sum("(merges i8, elsewhe" in line for line in lines) == 1
    assert any(line.endswith('s (user): "So it was" <- [main *] (merges i8, elsewher)') for line in lines)
    assert any('i8 (user): "hi"' in line for line in lines)


def test_ascii() -> None:
    expected = """\
[chat: trip]

a1f0c2d3 (user): "Plan a weekend in Riga"
|-- b7e1aa90 (assistant): "Old Town first?"
|   +-- c9d2 (user): "Yes" <- [main] {draft}
+-- d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]

Legend: * = active branch, {...} = checkpoint"""

    assert expected == visualize_graph(TRIP, style="ascii")


def test_empty_graph() -> None:
    assert visualize_graph(graph(branches=(("main", None, True),))) == "[chat: trip]\n\n(empty)"


def test_several_branches_and_checkpoints_on_one_message() -> None:
    drawn = visualize_graph(
        graph(
            node("a"),
            branches=(("main", "a", False), ("try", "a", True), ("later", "a", False), ("none", None, False)),
            checkpoints=(("one", "a"), ("two", "a")),
        )
    )

    assert body(drawn) == ['a (user): "hi" <- [main, try *, later] {one, two}']


def test_control_characters_become_blanks() -> None:
    """Neither a line break nor an escape sequence in a message reaches the terminal."""
    drawn = visualize_graph(
        graph(node("a\n", role="us\ter", content="x\r\ny\nz\x1b[31m\u2028\x85"), checkpoints=(("c\nd", "a\n"),))
    )

    assert body(drawn) == ['a  (us er): "x y z [31m  " {c d}']


def test_what_nobody_sees_is_escaped() -> None:
    """An override of the direction would show a text other than it is."""
    drawn = visualize_graph(graph(node("a", content="x\u202ey"), branches=(("m\u2066n", "a", False),)))

    assert body(drawn) == ['a (user): "x\\u202ey" <- [m\\u2066n]']


def test_no_name_looks_like_a_marker() -> None:
    """Names that hold the signs of a drawing are quoted."""
    drawn = visualize_graph(
        graph(
            node("a"),
            branches=(
                ("main *", "a", False),
                ("b] {draft", "a", True),
                ("c, d", "a", False),
                ("plain-name", "a", False),
            ),
            checkpoints=(('x"} <- [y *]', "a"), ("v1", "a")),
        )
    )

    assert body(drawn) == ['a (user): "hi" <- ["main *", "b] {draft" *, "c, d", plain-name] {"x\\"} <- [y *]", v1}']


def comb(turns: int, *, is_first_kept: bool) -> Graph:
    """Each answer is regenerated once, and the chat goes on from one of the two."""
    nodes: list[GraphNode] = []
    for turn in range(turns):
        kept = "ab"[not is_first_kept]
        nodes += [
            node(f"u{turn}", f"{kept}{turn - 1}" if turn else None, content=f"question {turn}"),
            node(f"a{turn}", f"u{turn}", role="assistant", content="an answer"),
            node(f"b{turn}", f"u{turn}", role="assistant", content="another one"),
        ]
    return graph(
        *nodes, branches=[(f"main-v{turn}", f"{'ba'[not is_first_kept]}{turn}", False) for turn in range(turns)]
    )


@pytest.mark.parametrize("is_first_kept", [False, True])
def test_a_drawing_grows_with_the_forks_and_not_with_their_square(is_first_kept: bool) -> None:  # noqa: FBT001
    """CE-58: 3,000 forks, each inside of the one before, are drawn in less than a million bytes."""
    drawn = comb(3_000, is_first_kept=is_first_kept)

    assert len(visualize_graph(drawn).encode()) < 1_000_000
    assert sum(len(f"{line}\n".encode()) for line in draw_flat_lines(drawn)) < 1_000_000


def test_far_below_lines_begin_again_at_the_left() -> None:
    """With the number of the levels that are left out, until the drawing is back above."""
    lines = body(visualize_graph(comb(10, is_first_kept=True), style="ascii"))

    assert lines[16] == "|       " * 7 + '|   +-- u8 (user): "question 8"'
    assert lines[17:22] == [
        '(+16) |-- a8 (assistant): "an answer"',
        '(+16) |   +-- u9 (user): "question 9"',
        '(+16) |       |-- a9 (assistant): "an answer"',
        '(+16) |       +-- b9 (assistant): "another one" <- [main-v9]',
        '(+16) +-- b8 (assistant): "another one" <- [main-v8]',
    ]
    assert lines[22] == "|       " * 7 + '+-- b7 (assistant): "another one" <- [main-v7]'


def test_long_run_is_collapsed() -> None:
    """The root and the leaf are no part of the run."""
    drawn = visualize_graph(graph(*chain(11)))

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
    assert len(body(visualize_graph(graph(*chain(length))))) == shown


def test_twenty_thousand_messages_with_one_fork() -> None:
    """Fewer than 40 lines, without recursion."""
    nodes = [*chain(20_000), *chain(5_000, first="m9000", prefix="f")]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(120)
    try:
        drawn = visualize_graph(graph(*nodes, branches=(("main", "m19999", True), ("main-v2", "f4999", False))))
    finally:
        sys.setrecursionlimit(limit)

    assert len(drawn.split("\n")) < 40
    assert len(drawn) < 4_000


def test_twenty_thousand_replies_to_one_message() -> None:
    drawn = visualize_graph(graph(node("root"), *(node(f"r{n}", "root") for n in range(20_000))))

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


@pytest.mark.parametrize(
    "options", [{"style": "fancy"}, {"collapse_after": -1}, {"collapse_after": True}, {"collapse_after": "8"}]
)
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        visualize_graph(TRIP, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wrong on purpose


@given(shapes())
def test_every_message_is_shown_or_counted(drawn: Graph) -> None:
    """Whatever the shape: each message once, none of those with a marker left out, its own line for each."""
    lines = list(draw_lines(drawn))

    shown = [line.id for line in lines if not line.skipped]
    assert len(shown) == len(set(shown))
    assert len(drawn.nodes) == len(shown) + sum(line.skipped for line in lines)
    assert {branch.head_message_id for branch in drawn.branches} == {line.id for line in lines if line.branches}
    assert {mark.message_id for mark in drawn.checkpoints} == {line.id for line in lines if line.checkpoints}
    assert {line.id for line in lines if line.note} == {each.id for each in drawn.nodes if each.parent_id == "gone"}
    assert active_chain(drawn) >= {line.id for line in lines if line.is_active and not line.skipped}


@given(shapes(), st.one_of(st.none(), st.integers(min_value=0, max_value=12)))
@example(graph(*chain(2 * STROKES_IN_A_ROW + 3)), None)
def test_tree_is_the_one_of_the_definition(drawn: Graph, collapse_after: int | None) -> None:
    """Line by line what a recursion draws that is written down from the rules."""
    assert _by_the_rules(drawn, collapse_after) == body(visualize_graph(drawn, collapse_after=collapse_after), drawn)


def _by_the_rules(drawn: Graph, collapse_after: int | None) -> list[str]:
    nodes = {each.id: each for each in drawn.nodes}
    children = {each.id: [child for child in drawn.nodes if child.parent_id == each.id] for each in drawn.nodes}
    names: dict[str, list[str]] = {}
    for branch in drawn.branches:
        names.setdefault(branch.head_message_id or "", []).append(
            f"{branch.name} *" if branch.is_active else branch.name
        )
    marks: dict[str, list[str]] = {}
    for mark in drawn.checkpoints:
        marks.setdefault(mark.message_id, []).append(mark.name)

    def in_run(each: GraphNode) -> bool:
        is_only_child = each.parent_id in nodes and len(children[each.parent_id]) == 1
        return is_only_child and len(children[each.id]) == 1 and each.id not in names and each.id not in marks

    def run_of(each: GraphNode) -> list[str]:
        """The longest run that a message lies in, oldest first."""
        run = [each]
        while (above := nodes.get(run[0].parent_id or "")) is not None and in_run(above):
            run.insert(0, above)
        while in_run(below := children[run[-1].id][0]):
            run.append(below)
        return [member.id for member in run]

    def text(each: GraphNode) -> str:
        run = run_of(each) if in_run(each) else []
        if collapse_after is not None and len(run) > collapse_after and each.id in run[2:-2]:
            return f"... {len(run) - 4} message{'s' * (len(run) > 5)} ..." if each.id == run[2] else ""
        branches = f" <- [{', '.join(names[each.id])}]" if each.id in names else ""
        checkpoints = f" {{{', '.join(marks[each.id])}}}" if each.id in marks else ""
        missing = " (parent missing)" if each.parent_id is not None and each.parent_id not in nodes else ""
        return f'{each.id} ({each.role}): "{each.content}"{branches}{checkpoints}{missing}'

    lines: list[str] = []

    def draw(each: GraphNode, level: int, indent: str, connector: str) -> None:
        line = text(each)
        if line:
            lines.append(indent + connector + line)
            indent += {"": "", "├── ": "│   ", "└── ": "    "}[connector]
            if level and level % STROKES_IN_A_ROW == 0:
                indent = f"(+{level}) "  # a row is full
            level += 1
        for child in children[each.id]:
            # What is left out takes no column either.
            draw(child, level, indent, "└── " if child is children[each.id][-1] else "├── ")

    for each in drawn.nodes:
        if each.parent_id not in nodes:
            draw(each, 0, "", "")
    return lines


def test_creation_order() -> None:
    """Roots and children are drawn as they were created, also where the data are not sorted."""
    drawn = visualize_graph(
        graph(
            node("late", "root", created_at=9),
            node("other", created_at=2),
            node("early", "root", created_at=3),
            node("root", created_at=1),
        )
    )

    assert body(drawn) == [
        'root (user): "hi"',
        '├── early (user): "hi"',
        '└── late (user): "hi"',
        'other (user): "hi"',
    ]


def test_cycles_are_drawn() -> None:
    """A cycle in foreign data is cut above its first message, whatever hangs on it; nothing is lost."""
    circle = graph(
        node("tail", "b"),
        node("a", "c"),
        node("b", "a"),
        node("c", "b"),
        node("self", "self"),
        node("root"),
        branches=(("main", "tail", True),),
    )

    assert body(visualize_graph(circle)) == [
        'a (user): "hi" (cycle)',
        '└── b (user): "hi"',
        '    ├── tail (user): "hi" <- [main *]',
        '    └── c (user): "hi"',
        'self (user): "hi" (cycle)',
        'root (user): "hi"',
    ]
    assert [line.id for line in draw_lines(circle) if line.is_active] == ["a", "b", "tail"]


@given(st.lists(st.integers(min_value=-2, max_value=20), max_size=20), st.sampled_from([None, 0, 8]))
def test_any_parents(parents: list[int], collapse_after: int | None) -> None:
    """Parents in any direction: each message is drawn or counted once."""
    nodes = [node(f"n{number}", None if parent == -1 else f"n{parent}") for number, parent in enumerate(parents)]
    branches = [("main", nodes[-1].id, True)] if nodes else []
    lines = list(draw_lines(graph(*nodes, branches=branches), collapse_after=collapse_after))

    shown = [line.id for line in lines if not line.skipped]
    assert len(shown) == len(set(shown))
    assert len(nodes) == len(shown) + sum(line.skipped for line in lines)
    assert {line.prefix for line in lines if line.note} <= {""}


def test_long_cycle() -> None:
    """Twenty thousand messages in a circle are drawn as the run that they are."""
    nodes = [node(f"m{number}", f"m{(number - 1) % 20_000}") for number in range(20_000)]

    lines = body(visualize_graph(graph(*nodes)))
    assert lines[0] == 'm0 (user): "hi" (cycle)'
    assert [line.strip() for line in lines[3:4]] == ["└── ... 19994 messages ..."]
    assert len(lines) == 7


def test_the_same_id_twice() -> None:
    with pytest.raises(InvalidValueError, match=r"'a' is more than once in the graph of chat 'trip'"):
        visualize_graph(graph(node("a"), node("b", "a"), node("a", "b")))


@pytest.mark.soak
def test_long_chain_without_collapsing() -> None:
    """Line by line, in bounded memory: only forks that are still open are remembered."""
    lines = draw_lines(graph(*chain(20_000)), collapse_after=None)
    tracemalloc.start()
    try:
        last = sum(1 for _ in lines)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert last == 20_000
    assert peak < 50_000_000
