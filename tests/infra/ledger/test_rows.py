"""Rows: windows of a chat drawn as a git graph, whatever was done to it, and as of earlier moments."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import Graph, Ledger, user
from chatledger.drawing import GraphRow, RowWindow
from chatledger.errors import BranchNotFoundError, ChatNotFoundError, InvalidValueError, MessageNotFoundError
from chatledger.infra.ledger.port import store_of
from chatledger.projections.lmdb.cache import Remembered

CHAT = "trip"
Act = tuple[str, int, int]

acts = st.lists(
    st.tuples(
        st.sampled_from(["append"] * 4 + ["fork", "fork", "other", "root", "activate", "mark", "hide", "drop"]),
        st.integers(0, 200),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)


def act(ledger: Ledger, given_act: Act) -> None:
    """Do something to the chat, on a branch or a message that a number names."""
    kind, number, count = given_act
    branches = ledger.list_branches(CHAT)
    branch = branches[number % len(branches)].name
    nodes = [row.id for row in ledger.get_rows(CHAT, limit=10_000).rows]
    message = nodes[-1 - number % len(nodes)] if nodes else None
    if kind == "append":
        ledger.append(CHAT, [user(f"{at}") for at in range(count)])
    elif kind == "other":
        ledger.append(CHAT, [user(f"{at}") for at in range(count)], branch=branch)
    elif kind == "root":
        ledger.add_messages(CHAT, [user("a root")])
    elif kind == "activate":
        ledger.set_active_branch(CHAT, branch)
    elif kind == "drop" and len(branches) > 1 and not branches[-1].is_active:
        ledger.delete_branch(CHAT, branches[-1].name)
    elif message is not None and kind == "fork":
        ledger.fork(CHAT, message, activate=bool(count % 2))
    elif message is not None and kind == "mark":
        ledger.set_checkpoint(CHAT, f"mark {count}", message)
    elif message is not None and kind == "hide":
        ledger.annotate(CHAT, message, hidden=True)


def forget(ledger: Ledger) -> None:
    """Forget what is kept of the rows of chats."""
    with store_of(ledger).snapshot() as snapshot:
        snapshot.tables.caches.rows = Remembered()


def answers(ledger: Any) -> list[Any]:
    return [
        ledger.get_rows(CHAT, limit=10_000),
        [ledger.get_rows(CHAT, first=first, limit=4) for first in range(0, 40, 4)],
        ledger.list_branch_points(CHAT),
        [ledger.get_row_strip(CHAT, height=height) for height in (1, 7, 200)],
    ]


@given(acts)
@settings(max_examples=examples(40), deadline=None)
def test_rows_are_kept_up(done: list[Act]) -> None:
    """What is kept and added to gives what the index gives anew; windows together are the whole; the past is as it was."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        then: list[tuple[int, list[Any]]] = []
        for one in done:
            act(ledger, one)
            kept = answers(ledger)
            forget(ledger)

            assert kept == answers(ledger)
            then.append((ledger.position, kept))
        check_whole(ledger, ledger.get_rows(CHAT, limit=10_000))
        check_windows(ledger)
        check_paths(ledger)
        position, earlier = then[len(then) // 2]
        with ledger.as_of(position) as view:
            assert earlier == answers(view)


def check_whole(ledger: Ledger, whole: RowWindow) -> None:
    """The rows are the messages of the chat, once each, parents before their children, with what belongs to each."""
    graph: Graph = ledger.graph(CHAT)
    rows = {row.id: row for row in whole.rows}
    assert [row.row for row in whole.rows] == list(range(len(graph.nodes)))
    assert {node.id for node in graph.nodes} == set(rows)
    for node in graph.nodes:
        row = rows[node.id]
        parent = None if node.parent_id is None else rows[node.parent_id]
        assert [(one.row, one.lane) for one in row.parents] == ([] if parent is None else [(parent.row, parent.lane)])
        assert parent is None or parent.row < row.row
        assert row.children == len(ledger.children(node.id))
    for branch in ledger.list_branches(CHAT):
        if branch.head_message_id is not None:
            assert branch.name in rows[branch.head_message_id].branches
    for checkpoint in ledger.list_checkpoints(CHAT):
        assert checkpoint.name in rows[checkpoint.message_id].checkpoints
    check_points(ledger, whole)
    for row in whole.rows:
        check_line(ledger, row, rows)


def check_points(ledger: Ledger, whole: RowWindow) -> None:
    """The messages with several children, and of each child the first branches that have it."""
    points = ledger.list_branch_points(CHAT).points
    forks = [row.id for row in whole.rows if row.children > 1]
    assert forks == [point.id for point in points if point.id is not None]
    for child in (child for point in points for child in point.children):
        having = {branch.name for branch in ledger.branches_of(child.id)}
        assert child.branches == [one.name for one in ledger.list_branches(CHAT) if one.name in having][:20]


def check_line(ledger: Ledger, row: GraphRow, rows: dict[str, GraphRow]) -> None:
    line = ledger.get_row_line(CHAT, row.id)
    inside = [at for first, last in line.spans for at in range(first, last + 1)]
    assert (line.line, line.lane, line.count) == (row.line, row.lane, len(inside))
    by_row = {one.row: one for one in rows.values()}
    first = by_row[line.line]
    below = {one.row for one in rows.values() if first.id in [message.id for message in ledger.get_chain(one.id)]}
    assert set(inside) == below


def check_windows(ledger: Ledger) -> None:
    """Windows together are the whole: its rows, the edges that are seen in them, and the cut lines."""
    whole = ledger.get_rows(CHAT, limit=10_000)
    size = 3
    windows = [ledger.get_rows(CHAT, first=first, limit=size) for first in range(0, whole.total, size)]
    assert whole.rows == [row for window in windows for row in window.rows]
    assert len(set(whole.edges)) == len(whole.edges)
    assert all(edge.line == whole.rows[edge.to_row].line for edge in whole.edges if edge.cut != "down")
    for window in windows:
        end = window.first + len(window.rows)
        assert set(window.edges) == {edge for edge in whole.edges if edge.row < end and edge.to_row >= window.first}
        assert len(set(window.edges)) == len(window.edges)
        assert window.bundle == [cut for cut in whole.bundle if cut.row < end and cut.to_row >= window.first]


def check_paths(ledger: Ledger) -> None:
    """The path that is read has lane 0; rows stay, and name a branch that has them; by itself a path has its depths for rows."""
    whole = ledger.get_rows(CHAT, limit=10_000)
    chains = {
        branch.name: {message.id for message in ledger.get_messages(CHAT, branch=branch.name)}
        for branch in ledger.list_branches(CHAT)
    }
    for row in whole.rows:
        assert row.id in chains[row.branch] if row.branch else not any(row.id in chain for chain in chains.values())
    ends = [(branch.name, branch.head_message_id) for branch in ledger.list_branches(CHAT)]
    ends += [(row.id, row.id) for row in whole.rows[::7]]
    for along, head in ends:
        path = [] if head is None else [message.id for message in ledger.get_chain(head)]
        drawn = ledger.get_rows(CHAT, limit=10_000, along=along)
        assert [row.id for row in drawn.rows] == [row.id for row in whole.rows]
        assert [row.id for row in drawn.rows if row.on_path] == path
        assert all(row.lane == 0 for row in drawn.rows if row.on_path)
        alone = ledger.get_rows(CHAT, limit=10_000, along=along, only="path")
        assert [(row.row, row.id) for row in alone.rows] == list(enumerate(path))
        assert (alone.total, [row.branches for row in alone.rows]) == (
            len(path),
            [row.branches for row in drawn.rows if row.on_path],
        )
        for cut in drawn.bundle[:3]:
            lines = ledger.list_bundled_lines(CHAT, cut.row, along=along)
            assert len(lines) == cut.count
            assert all(line.row > cut.row or line.row < cut.row for line in lines)


def test_lines_that_only_run_on_are_bundled() -> None:
    """Branches off early messages that are written last are cut, and the lines over a row are found."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        made = ledger.append(CHAT, [user(str(at)) for at in range(200)])
        names = [ledger.fork(CHAT, made[at].id, activate=False).name for at in range(60)]
        for name in names:
            ledger.append(CHAT, [user(f"on {name}")], branch=name)
        window = ledger.get_rows(CHAT, first=100, limit=20)

        assert [(row.lane, row.on_path) for row in window.rows] == [(0, True)] * 20
        assert [cut.count for cut in window.bundle] == [len(names)]
        assert {edge.lane for edge in window.edges} == {0}
        for name in ("main", *names):
            rows = ledger.get_rows(CHAT, limit=10_000, along=name).rows
            path = [message.id for message in ledger.get_messages(CHAT, branch=name)]
            assert [row.id for row in rows if row.on_path] == path
            assert {row.lane for row in rows if row.on_path} == {0}
        lines = ledger.list_bundled_lines(CHAT, 110)
        assert sorted(line.branches[0] for line in lines) == sorted(names)
        assert len(ledger.list_bundled_lines(CHAT, 110, limit=3)) == 3
        assert ledger.list_bundled_lines(CHAT, 110, along=names[0]) != lines
        last = ledger.get_rows(CHAT, first=200).rows[-1]
        assert ledger.get_rows(CHAT, first=200, along=last.id).rows[-1].on_path


def test_a_window_is_found_by_a_message() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        made = ledger.append(CHAT, [user(str(at)) for at in range(100)])

        assert ledger.get_rows(CHAT, around=made[50].id, limit=10).first == 45
        assert ledger.get_rows(CHAT, around=made[2].id, limit=10).first == 0
        assert ledger.get_rows(CHAT, around=made[99].id, limit=10).first == 90
        assert ledger.get_rows(CHAT, first=200).rows == []
        assert ledger.get_rows(CHAT, around=made[50].id, limit=10, only="path").first == 45
        assert ledger.get_row_numbers(CHAT, [made[7].id, "absent"]) == {made[7].id: 7}


def test_first_branches_of_many_are_named() -> None:
    """Where many branches have a message, the first 20 of them by `created_at` are named, wherever they fork off."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        ids = [message.id for message in ledger.append(CHAT, [user(f"{at}") for at in range(20)])]
        for at in range(45):
            name = f"way {at}"
            ledger.create_branch(CHAT, name, ids[at * 7 % 20 if at < 30 else at - 12])
            ids += [message.id for message in ledger.append(CHAT, [user(name)], branch=name)] if at % 3 else []

        check_points(ledger, ledger.get_rows(CHAT, limit=10_000))


def test_checkpoints_at_messages() -> None:
    """Of some messages only their checkpoints are listed, in the order of all; now and then."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        ids = [message.id for message in ledger.append(CHAT, [user(f"{at}") for at in range(6)])]
        for at in range(12):
            ledger.set_checkpoint(CHAT, f"mark {at}", ids[at % 4], created_at=1_000 + at // 3)
        position = ledger.get_position()
        wanted = [ids[3], ids[1], ids[1], ids[5], "absent"]
        expected = [one for one in ledger.list_checkpoints(CHAT) if one.message_id in wanted]
        assert ledger.list_checkpoints(CHAT, message_ids=wanted) == expected
        assert len(expected) == 6
        assert ledger.list_checkpoints("absent", message_ids=wanted) == []
        ledger.set_checkpoint(CHAT, "mark 1", ids[0])
        assert ledger.list_checkpoints(CHAT, message_ids=[ids[1]]) == [
            one for one in ledger.list_checkpoints(CHAT) if one.message_id == ids[1]
        ]
        with ledger.as_of(position) as view:
            assert view.list_checkpoints(CHAT, message_ids=wanted) == expected


def test_branch_points_come_in_pages() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        made = ledger.append(CHAT, [user(str(at)) for at in range(20)])
        for at in (3, 7, 11):
            ledger.append(CHAT, [user("fork")], branch=ledger.fork(CHAT, made[at].id).name)
        first = ledger.list_branch_points(CHAT, limit=2)
        rest = ledger.list_branch_points(CHAT, limit=2, after=first.next)

        assert [3, 7, 11] == [point.row for point in (*first.points, *rest.points)]
        assert (3, None) == (first.total, rest.next)
        earlier = ledger.list_branch_points(CHAT, above=11, limit=1)
        assert [7] == [point.row for point in earlier.points]
        assert ["main", "main-v4"] == [child.branches[0] for child in rest.points[0].children]


def test_an_earlier_chat_of_the_id_leaves_no_trace() -> None:
    """The version of a chat counts from its creation: it does not say that somebody had deleted a chat of this id."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        ledger.delete_chat(CHAT)
        ledger.create_chat(CHAT, "bob")

        assert ledger.get_rows(CHAT).version == ledger.get_row_strip(CHAT, height=1).version == 1


def test_another_users_chat_is_not_there() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        bob = ledger.for_user("bob")
        asks: list[Callable[[], object]] = [
            lambda: bob.get_rows(CHAT),
            lambda: bob.list_branch_points(CHAT),
            lambda: bob.get_row_numbers(CHAT, []),
            lambda: bob.get_row_strip(CHAT),
            lambda: bob.list_bundled_lines(CHAT, 0),
            lambda: bob.get_row_line(CHAT, "m"),
        ]
        for ask in asks:
            with pytest.raises(ChatNotFoundError):
                ask()


def test_wrong_arguments_are_refused() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        with pytest.raises(MessageNotFoundError):
            ledger.get_rows(CHAT, around="absent")
        with pytest.raises(MessageNotFoundError):
            ledger.get_row_line(CHAT, "absent")
        made = ledger.append(CHAT, [user("here")])
        ledger.create_branch(CHAT, "empty", None)
        for absent in ("absent", ""):
            for ask in (
                lambda along: ledger.get_rows(CHAT, along=along),
                lambda along: ledger.get_row_strip(CHAT, along=along),
                lambda along: ledger.list_branch_points(CHAT, along=along),
                lambda along: ledger.list_bundled_lines(CHAT, 0, along=along),
            ):
                with pytest.raises(BranchNotFoundError):
                    ask(absent)
        with pytest.raises(MessageNotFoundError):
            ledger.get_rows(CHAT, around=made[0].id, along="empty", only="path")
        for wrong in (
            lambda: ledger.get_rows(CHAT, first=-1),
            lambda: ledger.get_rows(CHAT, only="branch"),  # type: ignore[arg-type]
            lambda: ledger.list_bundled_lines(CHAT, -1),
            lambda: ledger.get_row_strip(CHAT, height=0),
            lambda: ledger.get_row_strip(CHAT, height=10_001),
            lambda: ledger.list_branch_points(CHAT, limit=0),
        ):
            with pytest.raises(InvalidValueError):
                wrong()
