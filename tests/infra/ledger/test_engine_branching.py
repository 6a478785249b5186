"""Going back, aside and elsewhere with a context engine: branches and checkpoints (SM-25 to SM-35)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.engine_world import EngineWorld, as_set, shown
from tests.support.ledger_world import length

from chatledger import ChatledgerError, ContextEngine, InvalidValueError, assistant, user
from chatledger.errors import (
    BranchNotFoundError,
    CheckpointNotFoundError,
    EmptyChatError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.fragments import hint


def three(world: EngineWorld) -> ContextEngine:
    """An engine on `main: m1 <- m2 <- m3`."""
    return world.saved(user("one", id="m1"), assistant("two", "m2"), user("three", id="m3"))


# Rewind


def test_rewind(world: EngineWorld) -> None:
    """
    A branch begins at the message, active, and the engine's; new messages chain there (SM-29, acceptance SM 1).

    One commit; the old branch keeps its head. What is pending belonged to it and is dropped, the context stays (SM-27, SM-28).
    """
    engine = three(world).set(hint("stay"), user("lost"))
    events = length(world.ledger)
    branch = engine.rewind("m1")

    assert length(world.ledger) == events + 1
    assert branch == world.ledger.get_branch(world.chat, "main-v2")
    assert (branch.head_message_id, branch.is_active, branch.message_count) == ("m1", True, 1)
    assert (engine.branch, engine.head_message_id, world.active()) == ("main-v2", "m1", "main-v2")
    assert (engine.pending, len(engine.fragments)) == ([], 1)
    engine.set(user("four", id="m4"), assistant("five", "m5")).save()
    assert world.branches() == {"main": ["m1", "m2", "m3"], "main-v2": ["m1", "m4", "m5"]}
    assert shown(engine) == ["one", "four", "five"]


@pytest.mark.parametrize(
    ("existing", "base", "expected"),
    [
        ([], "main", "main-v2"),
        (["main-v2"], "main", "main-v3"),
        (["main-v2"], "main-v2", "main-v2-v2"),
        (["main-v2", "main-v2-v2"], "main", "main-v4"),
        (["main-v2", "main-v2-v2"], "main-v2", "main-v2-v3"),
        (["main-v3"], "main", "main-v4"),
    ],
    ids=["first", "second", "of a fork", "descendants count", "of a fork with a fork", "taken"],
)
@pytest.mark.parametrize("how", ["rewind", "btw", "restore", "edit"])
def test_automatic_names(how: str, existing: list[str], base: str, expected: str) -> None:
    """
    The table of SM-25 for all that makes branches (SM-26, acceptance SM 8).

    The source fails when the name is taken.
    """
    with EngineWorld("sync") as world:
        engine = three(world)
        engine.checkpoint("here")
        for name in existing:
            world.ledger.create_branch(world.chat, name, "m3")
        engine.switch_branch(base)
        calls: dict[str, Callable[[], Any]] = {
            "rewind": lambda: engine.rewind("m1"),
            "btw": engine.btw,
            "restore": lambda: engine.restore("here"),
            "edit": lambda: engine.set(user("edited", id="m3")).save(),
        }
        calls[how]()

        assert set(world.branches()) == {"main", *existing, expected}
        assert world.active() == (base if how == "btw" else expected)


# By the way


def test_btw(world: EngineWorld) -> None:
    """A branch at the head, wherever others moved it; engine, active branch and pending messages stay (SM-30, acceptance SM 10)."""
    engine = three(world).set(user("pending", id="p1"))
    world.engine().set(assistant("four", "m4")).save()
    branch = engine.btw()

    assert (branch.name, branch.head_message_id, branch.is_active, branch.message_count) == ("main-v2", "m4", False, 4)
    assert (engine.branch, world.active()) == ("main", "main")
    assert as_set(engine.pending) == [("p1", "user")]
    engine.save()
    assert world.branches() == {"main": ["m1", "m2", "m3", "m4", "p1"], "main-v2": ["m1", "m2", "m3", "m4"]}


@pytest.mark.parametrize("how", ["btw", "checkpoint"])
def test_without_a_stored_message(world: EngineWorld, how: str) -> None:
    """`EmptyChatError`: pending messages do not count (SM-31)."""
    engine = world.engine().set(user("pending", id="p1"))
    engine.resolve()
    call: Callable[[], Any] = engine.btw if how == "btw" else lambda: engine.checkpoint("here")
    with world.nothing_happens(engine), pytest.raises(EmptyChatError, match="'main'"):
        call()

    assert len(engine.pending) == 1


# Switching


def test_switch_branch(world: EngineWorld) -> None:
    """Engine and active flag move, in one commit; pending messages are dropped (SM-28)."""
    engine = three(world)
    engine.rewind("m1")
    engine.set(user("lost"))
    events = length(world.ledger)
    branch = engine.switch_branch("main")

    assert (branch.name, branch.is_active, branch.message_count) == ("main", True, 3)
    assert (engine.branch, engine.head_message_id, world.active(), engine.pending) == ("main", "m3", "main", [])
    assert length(world.ledger) == events + 1
    assert shown(engine) == ["one", "two", "three"]


def test_switching_to_the_own_branch(world: EngineWorld) -> None:
    """Writes nothing, or the active flag if another engine moved it."""
    engine = three(world)
    events = length(world.ledger)
    engine.switch_branch("main")
    assert length(world.ledger) == events
    world.engine().rewind("m1")
    engine.switch_branch("main")

    assert world.active() == engine.branch == "main"


def test_another_engine_stays_on_its_branch(world: EngineWorld) -> None:
    """
    The active flag moves, this engine does not; `refresh` adopts it, and keeps what is pending (SM-30).

    The source caches the head per instance.
    """
    first, second = three(world), world.engine()
    second.resolve()
    second.rewind("m1")
    first.set(user("more", id="m4"))
    assert (first.branch, shown(first)) == ("main", ["one", "two", "three", "more"])
    first.save()
    assert world.branches() == {"main": ["m1", "m2", "m3", "m4"], "main-v2": ["m1"]}
    assert world.active() == "main-v2"
    first.set(user("on the other", id="x1"))
    branch = first.refresh()

    assert (branch.name, first.branch, first.head_message_id) == ("main-v2", "main-v2", "m1")
    assert as_set(first.pending) == [("x1", "user")]
    first.save()
    assert world.chain("main-v2") == ["m1", "x1"]


def test_refresh_reads_the_chat_anew(world: EngineWorld) -> None:
    """Title, metadata and counts as others left them."""
    engine = three(world)
    world.ledger.update_chat(world.chat, title="Riga")
    engine.refresh()

    assert engine.chat == world.ledger.get_chat(world.chat)
    assert engine.chat is not None
    assert engine.chat.title == "Riga"


# Checkpoints


def test_checkpoint(world: EngineWorld) -> None:
    """A bookmark of the stored head; pending messages do not count (SM-31)."""
    engine = three(world).set(user("pending"))
    checkpoint = engine.checkpoint("here")

    assert (checkpoint.name, checkpoint.message_id, checkpoint.chat_id) == ("here", "m3", world.chat)
    assert world.ledger.get_checkpoint(world.chat, "here") == checkpoint
    assert len(engine.pending) == 1


def test_restore_is_a_rewind(world: EngineWorld) -> None:
    """No branch is moved, pending messages are dropped, one commit (SM-35)."""
    engine = three(world)
    engine.checkpoint("here")
    engine.set(user("four", id="m4")).save()
    engine.set(user("lost"))
    events = length(world.ledger)
    engine.restore("here")

    assert engine.pending == []
    assert length(world.ledger) == events + 1
    assert (engine.branch, engine.head_message_id) == ("main-v2", "m3")


# Refusals


NOT_THERE: dict[str, tuple[str, str, type[ChatledgerError], str]] = {
    "unknown message": ("rewind", "nowhere", MessageNotFoundError, "'nowhere'"),
    "foreign message": ("rewind", "foreign", WrongChatError, "'foreign'"),
    "pending message": ("rewind", "p1", MessageNotFoundError, "'p1'"),
    "unknown branch": ("switch_branch", "nowhere", BranchNotFoundError, "list of its branches"),
    "other case": ("switch_branch", "Main", BranchNotFoundError, "'Main'"),
    "foreign branch": ("switch_branch", "theirs", BranchNotFoundError, "'theirs'"),
    "unknown checkpoint": ("restore", "nowhere", CheckpointNotFoundError, "list of its checkpoints"),
    "foreign checkpoint": ("restore", "theirs", CheckpointNotFoundError, "'theirs'"),
}


@pytest.mark.parametrize(("method", "argument", "error", "says"), NOT_THERE.values(), ids=NOT_THERE)
def test_what_is_not_there(
    world: EngineWorld, method: str, argument: str, error: type[ChatledgerError], says: str
) -> None:
    """Engine, pending list and store are as before (SM-28)."""
    world.engine("other").set(user("x", id="foreign")).save()
    world.ledger.create_branch("other", "theirs", None)
    world.ledger.set_checkpoint("other", "theirs", "foreign")
    engine = three(world).set(user("pending", id="p1"))
    with world.nothing_happens(engine), pytest.raises(error, match=says):
        getattr(engine, method)(argument)


@pytest.mark.matrix
@pytest.mark.parametrize("method", ["rewind", "switch_branch", "restore", "checkpoint"])
@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", "x" * 2049, None, 5, ["m1"]], ids=ascii)
def test_names_and_ids_are_checked(world: EngineWorld, method: str, bad: Any) -> None:
    """`InvalidValueError`, or that there is no such checkpoint, and all is as before."""
    is_sought = method == "restore" and isinstance(bad, str)
    engine = three(world).set(user("pending", id="p1"))
    with world.nothing_happens(engine), pytest.raises(CheckpointNotFoundError if is_sought else InvalidValueError):
        getattr(engine, method)(bad)
