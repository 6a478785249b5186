from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.stories import CHAT, Story, neighboured, user

from chatledger.domain.chat.decide_branches import (
    decide_activate,
    decide_create_branch,
    decide_delete_branch,
    decide_fork,
    decide_move_head,
    decide_rename_branch,
    decide_show,
)
from chatledger.domain.chat.events import Body, BranchActivated, BranchCreated, BranchDeleted, BranchRenamed, HeadMoved
from chatledger.domain.chat.fork import bases_of, next_name
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    LastBranchError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.limits import MAX_ID_BYTES, check_id
from chatledger.domain.values import ANY


def told() -> Story:
    """A chat with three messages on `main`; the message `x` is in another chat."""
    return neighboured("x").chain("m1", "m2", "m3")


def create(state: ReplayedChat, name: Any, head: Any = None, *, activate: bool = False) -> list[Body]:
    return decide_create_branch(state, name, head, activate=activate, branch_id="new", created_at=7)


def fork(state: ReplayedChat, at: Any, *, activate: bool = True, base: str | None = None) -> list[Body]:
    return decide_fork(state, at, activate=activate, branch_id="new", created_at=7, base=base)


@pytest.mark.parametrize("head", [None, "m1", "m3"])
@pytest.mark.parametrize("activate", [False, True])
def test_create_branch(head: str | None, activate: bool) -> None:  # noqa: FBT001 (a column of the table)
    """A branch points at any message of the chat or at none, and is activated in the same event (SM-17, SM-20)."""
    story = told()
    bodies = create(story.chat(), "idea", head, activate=activate)
    story.write(bodies)
    branch = story.chat().branch("idea")

    assert [BranchCreated(1, "new", "idea", head, 7, activate)] == bodies
    assert branch is not None
    assert ({None: 0, "m1": 1, "m3": 3}[head], activate) == (branch.message_count, branch.is_active)
    assert 1 == sum(found.is_active for found in story.chat().branches)


def test_branch_names_are_unique_and_case_sensitive() -> None:
    """A duplicate raises, another case is another name (SM-19)."""
    story = told()
    story.write(create(story.chat(), "Main"))
    with pytest.raises(BranchExistsError) as caught:
        create(story.chat(), "main", "m1")

    assert (CHAT, "main") == (caught.value.chat_id, caught.value.branch)
    assert ["main", "Main"] == sorted((found.name for found in story.chat().branches), reverse=True)


@pytest.mark.parametrize("bad", ["", "a\0", "\ud800", "x" * 2049, None, 5])
def test_a_bad_branch_name_is_refused(bad: Any) -> None:
    """Names follow the rules of ids (SM-19)."""
    story = told()
    acts: list[Callable[[], object]] = [
        lambda: create(story.chat(), bad),
        lambda: decide_activate(story.chat(), bad),
        lambda: decide_rename_branch(story.chat(), bad, "idea"),
        lambda: decide_rename_branch(story.chat(), "main", bad),
        lambda: decide_delete_branch(story.chat(), bad),
        lambda: decide_move_head(story.chat(), bad, "m1", expected=ANY),
    ]
    for act in acts:
        with pytest.raises((InvalidValueError, BranchNotFoundError)):
            act()


@pytest.mark.parametrize(
    ("head", "error"), [("none", MessageNotFoundError), ("x", WrongChatError), ("", InvalidValueError)]
)
def test_heads_are_messages_of_the_chat(head: str, error: type[Exception]) -> None:
    """Neither an unknown message nor one of another chat can be a head (SM-20, SM-23)."""
    story = told()
    before = story.chat().branches
    acts: list[Callable[[], object]] = [
        lambda: create(story.chat(), "idea", head),
        lambda: fork(story.chat(), head),
        lambda: decide_show(story.chat(), head, branch_id="new", created_at=7),
        lambda: decide_move_head(story.chat(), "main", head, expected=ANY),
    ]
    for act in acts:
        with pytest.raises(error):
            act()

    assert before == story.chat().branches


def test_branches_need_a_chat() -> None:
    none = ReplayedChat("none")
    acts: list[Callable[[], object]] = [
        lambda: create(none, "idea"),
        lambda: fork(none, "m1"),
        lambda: decide_activate(none, "main"),
        lambda: decide_rename_branch(none, "main", "idea"),
        lambda: decide_show(none, "m1", branch_id="new", created_at=7),
        lambda: decide_move_head(none, "main", None, expected=ANY),
    ]
    for act in acts:
        with pytest.raises(ChatNotFoundError):
            act()


def test_fork_needs_a_message() -> None:
    """There is nothing to fork at None."""
    with pytest.raises(InvalidValueError):
        fork(told().chat(), None)


def test_activate_is_one_event() -> None:
    """The flag moves from one branch to the other at once (SM-21)."""
    story = told()
    story.write(create(story.chat(), "idea", "m1"))
    bodies = decide_activate(story.chat(), "idea")
    story.write(bodies)

    assert [BranchActivated(1, "idea")] == bodies
    assert ["idea"] == [found.name for found in story.chat().branches if found.is_active]
    assert [] == decide_activate(story.chat(), "idea")


def test_unknown_branches_are_refused() -> None:
    """The same branch stays active (SM-21, SM-23)."""
    story = told()
    with pytest.raises(BranchNotFoundError) as caught:
        decide_activate(story.chat(), "idea")
    with pytest.raises(BranchNotFoundError):
        decide_move_head(story.chat(), "none", "m1", expected=ANY)
    with pytest.raises(BranchNotFoundError):
        decide_rename_branch(story.chat(), "none", "idea")

    assert (CHAT, "idea") == (caught.value.chat_id, caught.value.branch)
    assert ["main"] == [found.name for found in story.chat().branches if found.is_active]


@pytest.mark.parametrize(
    ("target", "expected", "event"),
    [
        ("m1", "m3", [HeadMoved(0, "main", "m3", "m1")]),
        ("m1", ANY, [HeadMoved(0, "main", "m3", "m1")]),
        (None, "m3", [HeadMoved(0, "main", "m3", None)]),
        ("m3", "m3", []),
        ("m3", ANY, []),
    ],
)
def test_move_head(target: str | None, expected: Any, event: list[Body]) -> None:
    """The head moves when it is where it was expected, or may be anywhere; to where it is, nothing moves (SM-23)."""
    assert event == decide_move_head(told().chat(), "main", target, expected=expected)


@pytest.mark.parametrize(("target", "expected"), [("m1", "m2"), ("m1", None), ("m3", "m2"), (None, "m1")])
def test_move_head_from_elsewhere_is_refused(target: str | None, expected: str | None) -> None:
    """A head that is not the expected one raises, and says where it is; None expects an empty branch (SM-23)."""
    with pytest.raises(HeadConflictError) as caught:
        decide_move_head(told().chat(), "main", target, expected=expected)

    assert (CHAT, "main", expected, "m3") == (
        caught.value.chat_id,
        caught.value.branch,
        caught.value.expected,
        caught.value.actual,
    )


@pytest.mark.parametrize(
    ("existing", "base", "name"),
    [
        (["main"], "main", "main-v2"),
        (["main", "main-v2"], "main", "main-v3"),
        (["main", "main-v2", "main-v2-v2"], "main-v2", "main-v2-v3"),
        (["main", "main-v3", "main-v4"], "main", "main-v5"),
        (["main", "main-v-v2"], "main-v", "main-v-v3"),  # the base itself is no branch
        (["main", "main-v2", "main-v2-v2"], "main-v2-v2", "main-v4"),  # no third ending
        (["main", "main-v2", "main-v4", "main-v2-v2"], "main-v2-v2", "main-v5"),
        (["main", "-v2-v3"], "-v2-v3", "-v2-v3-v2"),  # a name is left
        (["main", "-v2-v3-v4"], "-v2-v3-v4", "-v2-v2"),
    ],
)
def test_automatic_names(existing: list[str], base: str, name: str) -> None:
    """`<base>-v<N+1>`, N counting the base and what starts with `<base>-v`; the next free one on collision (SM-25)."""
    story = told()
    for other in existing[1:]:
        story.write(create(story.chat(), other, "m1"))
    [body] = fork(story.chat(), "m2", base=base)

    assert isinstance(body, BranchCreated)
    assert name == body.name


def test_fork_is_named_after_the_active_branch() -> None:
    """Unless another base is given; the old branch keeps its head (SM-25, SM-27)."""
    story = told()
    story.write(create(story.chat(), "idea", "m1", activate=True))
    story.write(fork(story.chat(), "m2"))
    forked, main = story.chat().branch("idea-v2"), story.chat().branch("main")

    assert forked is not None
    assert main is not None
    assert (True, "m2", 2) == (forked.is_active, forked.head_message_id, forked.message_count)
    assert "m3" == main.head_message_id


def test_fork_without_activation() -> None:
    """`btw`: a branch beside the active one, which stays active (SM-28)."""
    story = told()
    story.write(fork(story.chat(), "m3", activate=False))

    assert [("main", True), ("main-v2", False)] == sorted(
        (found.name, found.is_active) for found in story.chat().branches
    )


NAME = st.text("mv-12é", min_size=1, max_size=6) | st.from_regex(r"m?é?(-v[12]){0,4}", fullmatch=True).filter(bool)


@given(st.lists(NAME, unique=True, max_size=12), NAME)
@example(["main", "main-v3"], "main")
def test_names_agree_with_the_rule(existing: list[str], base: str) -> None:
    """The count by bases equals the rule of SM-25 as it is written, and the name is free."""
    first = base
    while (shorter := first.rpartition("-v"))[0] and shorter[2].isdecimal():
        first = shorter[0]
    stem = first if base.count("-v", len(first)) >= 2 else base  # a third ending is not made
    counted = sum(name == stem or name.startswith(f"{stem}-v") for name in existing)
    number = counted + 1
    while f"{stem}-v{number}" in existing:
        number += 1

    assert counted == sum(stem in bases_of(name) for name in existing)
    assert f"{stem}-v{number}" == next_name(
        base, named_after=lambda base: sum(base in bases_of(name) for name in existing), is_taken=existing.__contains__
    )


@pytest.mark.parametrize(
    "base",
    [
        "x" * MAX_ID_BYTES,
        "x" * (MAX_ID_BYTES - 2),
        "x" * (MAX_ID_BYTES - 3),
        "é" * (MAX_ID_BYTES // 2),
        "x" * (MAX_ID_BYTES - 3) + "-v2",
        "main" + "-v2" * 681,
        "-v2" * 682,
    ],
    ids=["longest", "two bytes left", "room for v9", "two-byte characters", "one ending", "endings only", "no stem"],
)
def test_forks_of_very_long_names_have_valid_names(base: str) -> None:
    """An automatic name obeys the rules of names, however long the base is, and however often it is forked."""
    story = told()
    story.write(create(story.chat(), base, "m1", activate=True))
    for _ in range(12):
        story.write(fork(story.chat(), "m2", base=base))

    assert 14 == len(story.chat().branches)
    for branch in story.chat().branches:
        check_id(branch.name, "branch")


def test_forks_of_forks_without_end() -> None:
    """A thousand forks, each of the one before: all names differ and stay short, and each is found at the first try."""
    counts = Counter(bases_of("main"))
    names = ["main"]
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return name in names

    for _ in range(1000):
        names.append(next_name(names[-1], named_after=counts.__getitem__, is_taken=is_taken))
        counts.update(bases_of(names[-1]))

    assert names[:8] == ["main", "main-v2", "main-v2-v2", "main-v4", "main-v4-v2", "main-v6", "main-v6-v2", "main-v8"]
    assert 1001 == len(set(names))
    assert max(map(len, names)) == len("main-v1000-v2")
    assert 1000 == len(asked)


def test_rename_branch() -> None:
    """The name alone changes, of the active branch too; a name that is taken is refused, the own one changes nothing."""
    story = told()
    story.write(create(story.chat(), "idea", "m1"))
    before = story.chat().branch("main")
    bodies = decide_rename_branch(story.chat(), "main", "Riga")
    story.write(bodies)
    after = story.chat().branch("Riga")

    assert [BranchRenamed(0, "main", "Riga")] == bodies
    assert before is not None
    assert after is not None
    assert ("Riga", *msgspec.structs.astuple(before)[:2]) == (after.name, *msgspec.structs.astuple(after)[:2])
    assert (True, "m3", 3) == (after.is_active, after.head_message_id, after.message_count)
    assert story.chat().branch("main") is None
    assert [] == decide_rename_branch(story.chat(), "Riga", "Riga")
    with pytest.raises(BranchExistsError):
        decide_rename_branch(story.chat(), "idea", "Riga")


def test_delete_branch() -> None:
    """A branch that is not active goes in one event, and its messages stay; of an unknown one nothing is written."""
    story = told()
    story.write(create(story.chat(), "idea", "m1"))
    bodies = decide_delete_branch(story.chat(), "idea")
    story.write(bodies)

    assert [BranchDeleted(1, "idea")] == bodies
    assert ["main"] == [branch.name for branch in story.chat().branches]
    assert 3 == len(story.chat().messages)
    assert [] == decide_delete_branch(story.chat(), "idea")
    assert [] == decide_delete_branch(ReplayedChat("none"), "idea")


def test_delete_the_active_branch() -> None:
    """The one seen last before becomes active in the same commit, appending to others aside."""
    story = told()
    for name in ("a", "b", "c"):
        story.write(create(story.chat(), name, "m1", activate=name != "c"))
    story.write(decide_activate(story.chat(), "a"))
    story.append(user("m4"), branch="main")

    assert ["a", "b", "main", "c"] == [branch.name for branch in story.chat().branches_seen()]
    for name, then in (("a", "b"), ("b", "main"), ("main", "c")):
        bodies = decide_delete_branch(story.chat(), name)
        story.write(bodies)
        assert [BranchActivated, BranchDeleted] == [type(body) for body in bodies]
        assert [then] == [branch.name for branch in story.chat().branches if branch.is_active]


def test_the_last_branch_stays() -> None:
    """A chat has one branch at least."""
    story = told()
    with pytest.raises(LastBranchError) as caught:
        decide_delete_branch(story.chat(), "main")

    assert (CHAT, "main") == (caught.value.chat_id, caught.value.branch)


def test_names_are_not_given_twice() -> None:
    """A deleted or renamed branch counts when the next automatic name is chosen: no name means something else later."""
    story = told()
    for expected in ("main-v2", "main-v3", "main-v4"):
        [body] = fork(story.chat(), "m2", activate=False, base="main")
        story.write([body])
        assert isinstance(body, BranchCreated)
        assert expected == body.name
        story.write(
            decide_delete_branch(story.chat(), expected)
            if expected == "main-v3"
            else decide_rename_branch(story.chat(), expected, f"was {expected}")
        )


def test_show_goes_to_the_branch_seen_last() -> None:
    """Of the branches with the message; when it is the active one, nothing happens."""
    story = told()
    for name in ("a", "b"):
        story.write(create(story.chat(), name, "m1", activate=True))
        story.append(user(f"m-{name}"), branch=name)
    story.write(decide_activate(story.chat(), "main"))

    assert [] == decide_show(story.chat(), "m1", branch_id="x", created_at=7)
    assert [BranchActivated(1, "a")] == decide_show(story.chat(), "m-a", branch_id="x", created_at=7)
    story.write(create(story.chat(), "c", "m-a"))
    assert [BranchActivated(1, "a")] == decide_show(story.chat(), "m-a", branch_id="x", created_at=7)


def test_show_makes_a_branch_where_none_has_the_message() -> None:
    """It ends at the newest answer to the newest answer."""
    story = told()
    story.add(user("n1", parent_id="m1"), user("n2", parent_id="n1"), user("n3", parent_id="n1"))
    story.add(user("n4", parent_id="n3"), user("n5", parent_id="n2"))

    assert [BranchCreated(1, "x", "main-v2", "n4", 7, is_active=True)] == decide_show(
        story.chat(), "n1", branch_id="x", created_at=7
    )
    assert [BranchCreated(1, "x", "main-v2", "n5", 7, is_active=True)] == decide_show(
        story.chat(), "n2", branch_id="x", created_at=7
    )
