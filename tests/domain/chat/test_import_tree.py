"""From loose records to a tree, and what is told of those that do not fit into one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.import_tree import (
    LinkedMessages,
    Located,
    LostMessage,
    Reporter,
    branch_leaves,
    link_messages,
    lost_message,
    repair_branches,
    repair_checkpoints,
    sort_parents_first,
)
from chatledger.domain.chat.interchange import ImportedBranch, ImportedCheckpoint, ImportedMessage, Problem
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError
from chatledger.domain.limits import MAX_UNPACKED_BYTES
from chatledger.domain.values import Annotation

DEEP = 200_000


def message(message_id: str, parent_id: str | None = None, data: Any = "x", **rest: Any) -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=data, **rest)


class Told:
    """A reporter of a file, and the problems that were told to it: the line of each, and what it says."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.report = Reporter("file", strict=False, on_problem=self.problems.append)

    def has(self, *expected: tuple[int | None, str]) -> bool:
        """Whether these were told, in this order, each in its line and with these words among others."""
        assert [line for line, _ in expected] == [one.line for one in self.problems]
        assert [words for _, words in expected] == [
            words if words in one.message else one.message
            for one, (_, words) in zip(self.problems, expected, strict=True)
        ]
        return True


# What is told


@pytest.mark.parametrize(
    ("tell", "error", "is_incomplete"),
    [
        (Reporter.broken, InvalidValueError, False),
        (Reporter.incomplete, InvalidValueError, True),
        (Reporter.unlinked, ChainIntegrityError, False),
    ],
)
def test_a_problem_is_located(tell: Callable[..., None], error: type[Exception], is_incomplete: bool) -> None:  # noqa: FBT001
    """In its line, else in that of the record; raised instead when reading strictly, as then nothing is skipped."""

    def problem(line: int | None, source: str = "file") -> Problem:
        return Problem(source=source, line=line, message="gone; skipped", is_incomplete=is_incomplete)

    for report, line, expected in (
        (Reporter.at, None, problem(None)),
        (lambda one, _: one.at(3), None, problem(3)),
        (lambda one, _: one.at(3), 5, problem(5)),
        (lambda one, _: one.at(3).within("member"), None, problem(None, "file, member")),
        (lambda one, _: one.within("member").at(3), None, problem(3, "file, member")),
    ):
        told: list[Problem] = []
        reporter: Callable[[Reporter, None], Reporter] = report
        tell(reporter(Reporter("file", strict=False, on_problem=told.append), None), "gone; skipped", line=line)
        assert [expected] == told
        with pytest.raises(error, match=f"^{str(expected).removesuffix('; skipped')}$"):
            tell(reporter(Reporter("file", strict=True, on_problem=told.append), None), "gone; skipped", line=line)
        assert [expected] == told


def test_the_limit_of_unpacked_bytes_goes_with_a_file() -> None:
    """Into its records and into the files inside it."""
    report = Reporter("file", strict=True, on_problem=lambda _: None, max_unpacked_bytes=7)

    assert 7 == report.at(1).max_unpacked_bytes == report.within("member").max_unpacked_bytes
    assert MAX_UNPACKED_BYTES == Told().report.max_unpacked_bytes


# Parents first


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 15) | st.none()))
def test_any_graph_becomes_a_forest(links: dict[int, int | None]) -> None:
    """Every message is kept once, parents come first, and exactly the reported messages lose their parent."""
    parents = {str(key): None if parent is None else str(parent) for key, parent in links.items()}
    cut: list[str] = []
    order = sort_parents_first(parents, on_fault=lambda key, _: cut.append(key))

    assert set(parents) == set(order)
    placed: set[str] = set()
    for key, parent in order.items():
        assert parent is None or parent in placed
        placed.add(key)
    assert len(cut) == len(set(cut))
    assert set(cut) == {key for key in parents if order[key] != parents[key]}
    assert sort_parents_first(order, on_fault=lambda key, _: cut.append(key)) == order


@given(st.lists(st.integers(0, 1000), max_size=40))
def test_sorted_messages_stay_as_they_are(choices: list[int]) -> None:
    """A valid order is not changed, and nothing is reported."""
    parents = {str(n): None if choice > n else str(choice % n) if n else None for n, choice in enumerate(choices)}
    faults: list[str] = []

    assert list(parents.items()) == list(sort_parents_first(parents, on_fault=lambda _, f: faults.append(f)).items())
    assert faults == []


def test_a_cycle_is_cut_at_its_first_member() -> None:
    """The tail that leads into the cycle stays attached."""
    faults: list[tuple[str, str]] = []
    order = sort_parents_first({"tail": "c", "b": "a", "c": "b", "a": "c"}, on_fault=lambda k, f: faults.append((k, f)))

    assert order == {"b": None, "a": "c", "c": "b", "tail": "c"}
    assert faults == [("b", "3 message(s) are their own ancestors: 'c', 'b', 'a'")]


@pytest.mark.soak
def test_depth_is_no_limit() -> None:
    """A chain given backwards, and a cycle as long, are handled without recursion."""
    chain = {str(n): str(n - 1) if n else None for n in reversed(range(DEEP))}
    faults: list[str] = []
    order = sort_parents_first(chain, on_fault=lambda key, _: faults.append(key))

    assert [str(n) for n in range(DEEP)] == list(order)
    assert faults == []

    cycle = {**chain, "0": str(DEEP - 1)}
    order = sort_parents_first(cycle, on_fault=lambda key, _: faults.append(key))

    assert faults == [str(DEEP - 1)]
    assert set(order) == set(cycle)


@pytest.mark.parametrize(("size", "shown"), [(5, "'1', '2', '3', '4', '0'"), (6, "'1', '2', '3', '4', '5', ...")])
def test_a_cycle_is_shown_in_part(size: int, shown: str) -> None:
    """Up to five of its members."""
    faults: list[tuple[str, str]] = []
    cycle = {str(at): str((at + 1) % size) for at in range(size)}
    sort_parents_first({"1": cycle.pop("1"), **cycle}, on_fault=lambda *fault: faults.append(fault))

    assert [("1", f"{size} message(s) are their own ancestors: {shown}")] == faults


# The messages of a chat


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=14))
def test_what_follows_skipped_messages_goes_to_the_nearest_one_above(tree: list[tuple[int, bool]]) -> None:
    """However many are skipped in a row: the kept ones keep their order of descent, and nothing else becomes a root."""
    parents = {str(at): str(parent % at) if at and parent < 12 else None for at, (parent, _) in enumerate(tree)}
    kept = {str(at) for at, (_, is_kept) in enumerate(tree) if is_kept}
    records: list[Located] = [
        (message(key, parent) if key in kept else LostMessage(key, parent), None) for key, parent in parents.items()
    ]
    linked = link_messages("c", records, report=Told().report)

    def above(key: str | None) -> str | None:
        while key is not None and key not in kept:
            key = parents[key]
        return key

    assert {key: above(parents[key]) for key in kept} == {one.id: one.parent_id for one in linked.messages}
    assert {key: above(key) for key in parents.keys() - kept} == linked.instead


def test_skipped_messages_in_a_circle() -> None:
    """They are nowhere below a kept one, which is no fault of what names them."""
    told = Told()
    records: list[Located] = [(LostMessage("a", "b"), None), (LostMessage("b", "a"), None), (message("m", "a"), None)]
    linked = link_messages("c", records, report=told.report)

    assert LinkedMessages((message("m"),), {"a": None, "b": None}) == linked
    assert told.has()


def test_records_that_come_twice() -> None:
    """The first one counts; the others are told, with their lines, where they say something else."""
    told = Told()
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    first = (message("a", data=1), message("b", "a"), message("c", annotation=Annotation(metadata=deep)))
    again = (message("a", data=1), message("a", data=True), message("b"), first[2])
    linked = link_messages("c", [(one, at) for at, one in enumerate((*first, *again))], report=told.report)

    assert [True] * 3 == [one is kept for one, kept in zip(linked.messages, first, strict=True)]
    assert told.has(*((line, f"message '{key}' appears again") for line, key in ((4, "a"), (5, "b"), (6, "c"))))


def test_records_that_do_not_fit() -> None:
    """What no ledger takes, what names a parent that is nowhere, and the first of a circle are told with their lines."""
    told = Told()
    records: list[Located] = [
        (message("good"), 1),
        (message("bad", "good", b""), 2),
        (message("below", "bad", sender_id=""), 3),
        (message("alone", "nowhere"), 4),
        (message("x", "y"), 5),
        (message("y", "x"), 6),
        (LostMessage("bad", "y"), 7),
    ]
    linked = link_messages("c", records, report=told.report)

    assert [("good", None), ("below", "good"), ("alone", None), ("x", None), ("y", "x")] == [
        (one.id, one.parent_id) for one in linked.messages
    ]
    assert {"bad": "good"} == linked.instead
    assert told.has(
        (2, "message 'bad' of chat 'c'"),
        (3, "message 'below' of chat 'c'"),
        (4, "'alone' becomes a root of chat 'c'"),
        (5, "'x' becomes a root of chat 'c'"),
    )


# Branches and checkpoints


def test_every_leaf_has_a_branch() -> None:
    messages = [message("a"), message("b", "a"), message("c", "a"), message("d", "b"), message("x")]

    assert branch_leaves(messages, main_head="c") == (
        ImportedBranch(name="main", head_message_id="c", is_active=True),
        ImportedBranch(name="main-v2", head_message_id="d"),
        ImportedBranch(name="main-v3", head_message_id="x"),
    )


def branch(name: str, head: str | None = "b", *, is_active: bool = False) -> ImportedBranch:
    return ImportedBranch(name=name, head_message_id=head, is_active=is_active, created_at=7)


TREE = LinkedMessages((message("a"), message("b", "a"), message("c", "a")), {"lost": "a", "all": None})


@pytest.mark.parametrize(
    ("given_branches", "expected", "told"),
    [
        ([branch("main"), branch("x", None, is_active=True)], [branch("main"), branch("x", None, is_active=True)], []),
        (
            [branch("x", is_active=True), branch("x", "c"), branch(""), branch("y", "c")],
            [branch("x", is_active=True), branch("y", "c")],
            [(1, "branch 'x' of chat 'c' has an"), (2, "branch '' of chat 'c' has an")],
        ),
        (
            [branch("x", "nowhere", is_active=True), branch("y", is_active=True)],
            [branch("y", is_active=True)],
            [(0, "the head 'nowhere' of branch 'x' of chat 'c' is not there")],
        ),
        (
            [branch("x", "lost", is_active=True), branch("y", "all"), branch("z", None)],
            [branch("x", "a", is_active=True), branch("y", None), branch("z", None)],
            [(0, "the head 'lost' of branch 'x' of chat 'c'"), (1, "the head 'all' of branch 'y' of chat 'c'")],
        ),
        (
            [branch("x", is_active=True), branch("y", is_active=True), branch("z", is_active=True)],
            [branch("x", is_active=True), branch("y"), branch("z")],
            [(1, "branch 'y' of chat 'c' is active besides"), (2, "branch 'z' of chat 'c' is active besides")],
        ),
        (
            [branch("x"), branch("main"), branch("y")],
            [branch("x"), branch("main", is_active=True), branch("y")],
            [(None, "chat 'c' has no active branch; 'main'")],
        ),
        ([branch("x"), branch("y")], [branch("x", is_active=True), branch("y")], [(None, "'x' becomes active")]),
        (
            [branch("x", "nowhere")],
            [*branch_leaves(TREE.messages, main_head="c")],
            [(0, "the head 'nowhere' of branch 'x' of chat 'c' is not there"), (None, "chat 'c' has no usable branch")],
        ),
    ],
    ids=["sound", "names", "heads", "skipped heads", "several active", "none active", "no main", "none is left"],
)
def test_branches_are_repaired(
    given_branches: list[ImportedBranch], expected: list[ImportedBranch], told: list[tuple[int | None, str]]
) -> None:
    """Those that can be used stay as they are, exactly one of them active; whatever is changed or left out is told."""
    heard = Told()
    located = [(one, at) for at, one in enumerate(given_branches)]

    assert tuple(expected) == repair_branches("c", located, TREE, report=heard.report)
    assert heard.has(*told)


def test_a_chat_without_anything_has_a_branch() -> None:
    empty = repair_branches("c", [], LinkedMessages(()), report=Told().report)

    assert (ImportedBranch(name="main", head_message_id=None, is_active=True),) == empty


def test_checkpoints_are_repaired() -> None:
    """Those of messages that are there, under names of their own, stay as they are; the others are told."""
    told = Told()
    given_marks = [ImportedCheckpoint(name=name, message_id=at) for name, at in zip("xxy", "abz", strict=True)]
    given_marks += [ImportedCheckpoint(name="\0", message_id="a"), ImportedCheckpoint(name="z", message_id="c", id="i")]
    kept = repair_checkpoints("c", [(one, at) for at, one in enumerate(given_marks)], TREE.messages, report=told.report)

    assert (given_marks[0], given_marks[4]) == kept
    assert told.has(
        (1, "checkpoint 'x' of chat 'c' has an empty, impossible or repeated name"),
        (2, "the message 'z' of checkpoint 'y' of chat 'c' is not there"),
        (3, "checkpoint '\\x00' of chat 'c' has an empty, impossible or repeated name"),
    )
    assert [one.message[:3] for one in told.problems] == ["che", "the", "che"]


@pytest.mark.parametrize(("named", "expected"), [([], None), ([None, "a"], None), ([None, "b", "a", "c"], "b")])
def test_the_first_message_that_is_not_there(named: list[str | None], expected: str | None) -> None:
    assert expected == lost_message({"a"}, named)
