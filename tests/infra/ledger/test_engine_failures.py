"""A log that fails under a context engine: nothing is lost, nothing is stored twice (SM-40, acceptance CE 5)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.engine_world import EngineWorld, FailingLog, data, shown
from tests.support.ledger_world import lagging, length

from chatledger import ContextEngine, HeadConflictError, LogUnavailableError, assistant, user
from chatledger.errors import AmbiguousEditError, OwnerMismatchError
from chatledger.fragments import last_assistant_message
from chatledger.reminders import reminder

WHEN = ("before", "after")
SEVERAL = [("before",), ("after",), ("before", "before"), ("before", "after")]


@pytest.fixture
def log(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> FailingLog:
    return FailingLog(world.ledger, monkeypatch)


def failed(engine: ContextEngine, log: FailingLog, *when: str) -> None:
    """Let the next saves fail; the queue is as it was each time, in order."""
    before = engine.pending
    for one in when:
        log.fail(one)
        with pytest.raises(LogUnavailableError):
            engine.save()
        assert engine.pending == before
        assert engine.branch == "main"


@pytest.mark.parametrize("when", SEVERAL, ids=" then ".join)
def test_new_messages_are_stored_once(world: EngineWorld, log: FailingLog, when: tuple[str, ...]) -> None:
    """A second save stores each message once (acceptance CE 5)."""
    engine = world.saved(user("one", id="m1"))
    engine.set(assistant("two", "m2"), user("three", id="m3"))
    failed(engine, log, *when)
    result = engine.save()

    assert result.message_ids == ["m2", "m3"]
    assert world.branches() == {"main": ["m1", "m2", "m3"]}
    assert engine.pending == []
    assert world.events() == ["chat_created", "message_appended", "message_appended"]


@pytest.mark.parametrize("when", SEVERAL, ids=" then ".join)
def test_a_failed_edit_makes_one_branch(world: EngineWorld, log: FailingLog, when: tuple[str, ...]) -> None:
    """Also when the acknowledgement is lost and the branch is there already."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"), user("three", id="m3"))
    engine.set(assistant("two, better", "m2"), user("new", id="n1"))
    failed(engine, log, *when)
    result = engine.save()

    assert world.branches() == {"main": ["m1", "m2", "m3"], "main-v2": ["m1", result.id_map["m2"], "n1"]}
    assert result.message_ids == [result.id_map["m2"], "n1"]
    assert engine.branch == result.branch == world.active() == "main-v2"
    assert engine.pending == []


@pytest.mark.parametrize("when", WHEN)
def test_what_was_set_meanwhile_follows(world: EngineWorld, log: FailingLog, when: str) -> None:
    """The next save settles the one that failed, and then stores the rest; the result speaks of both."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.set(assistant("two, better", "m2"))
    failed(engine, log, when)
    engine.set(user("three", id="m3"), assistant("four", "m4"))
    assert [one.id for one in engine.pending] == ["m2", "m3", "m4"]
    result = engine.save()
    new = result.id_map["m2"]

    assert world.branches() == {"main": ["m1", "m2"], "main-v2": ["m1", new, "m3", "m4"]}
    assert result.message_ids == [new, "m3", "m4"]
    assert (result.head_message_id, result.branch, engine.pending) == ("m4", "main-v2", [])


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("is_lagging", [False, True], ids=["index knows", "index lags"])
def test_reading_after_a_failure(world: EngineWorld, log: FailingLog, when: str, is_lagging: bool) -> None:  # noqa: FBT001 - a parameter
    """`resolve` shows the same whether the failed save is stored or not, also with an edit and a reminder (CE-21)."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.set(reminder("be brief"), user("one, better", id="m1"), assistant("new", "n1"))
    expected = shown(engine)
    with lagging(world.ledger):
        failed(engine, log, when)
        if not is_lagging:
            world.ledger.sync()
        assert shown(engine) == expected
        assert engine.turn_count() == 1
        assert len(engine.inspect()["fragments"]["pending"]) == 2
        assert shown(engine) == expected
    engine.save()

    assert shown(engine) == expected
    assert list(world.branches()) == ["main", "main-v2"]


@pytest.mark.parametrize("when", WHEN)
def test_reading_after_a_failed_first_answer(world: EngineWorld, log: FailingLog, when: str) -> None:
    """A lazy message that needs a new id has the same one each time."""
    engine = world.saved(user("one", id="m1"))
    engine.set(last_assistant_message("answer"))
    before = engine.resolve()
    failed(engine, log, when)
    world.ledger.sync()
    assert engine.resolve() == before
    engine.save()

    assert engine.resolve() == before
    assert len(world.chain()) == 2


@pytest.mark.parametrize("when", WHEN)
def test_others_write_before_the_retry(world: EngineWorld, log: FailingLog, when: str) -> None:
    """Both turns are there once, in the order in which they reached the log."""
    engine = world.saved(user("one", id="m1"))
    engine.set(user("mine", id="a1"))
    failed(engine, log, when)
    world.engine().set(user("theirs", id="b1")).save()
    engine.save()

    assert world.chain() == (["m1", "b1", "a1"] if when == "before" else ["m1", "a1", "b1"])


@pytest.mark.parametrize("on_conflict", ["raise", "fork"])
@pytest.mark.parametrize("when", WHEN)
def test_a_retry_keeps_the_way_out(world: EngineWorld, log: FailingLog, when: str, on_conflict: Any) -> None:
    """What others wrote meanwhile conflicts with the failed save only if it was not stored."""
    engine = world.saved(user("one", id="m1"))
    engine.set(user("mine", id="a1"))
    log.fail(when)
    with pytest.raises(LogUnavailableError):
        engine.save(on_conflict=on_conflict)
    world.engine().set(user("theirs", id="b1")).save()

    if when == "after":
        engine.save(on_conflict=on_conflict)
        assert world.branches() == {"main": ["m1", "a1", "b1"]}
    elif on_conflict == "fork":
        engine.save(on_conflict=on_conflict)
        assert world.branches() == {"main": ["m1", "b1"], "main-v2": ["m1", "a1"]}
    else:
        with world.nothing_happens(engine), pytest.raises(HeadConflictError):
            engine.save(on_conflict="raise")
        engine.save()
        assert world.branches() == {"main": ["m1", "b1", "a1"]}


@pytest.mark.parametrize("when", WHEN)
def test_an_edit_of_a_message_whose_save_failed(world: EngineWorld, log: FailingLog, when: str) -> None:
    """Set anew before the retry: what was tried is stored as it was, and the correction is an edit of it."""
    engine = world.saved(user("one", id="m1"))
    engine.set(assistant("two", "m2"))
    failed(engine, log, when)
    engine.set(assistant("two, better", "m2"))
    assert shown(engine) == ["one", "two, better"]
    result = engine.save()

    assert world.chain("main") == ["m1", "m2"]
    assert world.message("m2").data == data("two", "m2", "assistant")
    assert world.chain(result.branch) == ["m1", result.id_map["m2"]]
    assert shown(engine) == ["one", "two, better"]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("how", ["rewind", "switch_branch", "restore"])
def test_leaving_after_a_failure(world: EngineWorld, log: FailingLog, when: str, how: str) -> None:
    """What waited is dropped with the branch: nothing of it is stored later on the new one."""
    engine = world.saved(user("one", id="m1"))
    engine.checkpoint("here")
    engine.btw()
    engine.set(user("lost", id="x1"))
    failed(engine, log, when)
    {
        "rewind": lambda: engine.rewind("m1"),
        "switch_branch": lambda: engine.switch_branch("main-v2"),
        "restore": lambda: engine.restore("here"),
    }[how]()
    engine.save()
    engine.set(user("kept", id="k1")).save()

    assert world.chain("main") == (["m1"] if when == "before" else ["m1", "x1"])
    assert world.chain(engine.branch or "") == ["m1", "k1"]


@pytest.mark.parametrize("when", WHEN)
def test_discarding_after_a_failure(world: EngineWorld, log: FailingLog, when: str) -> None:
    """Nothing of it is stored later; what may be stored already stays, and the next save follows it."""
    engine = world.saved(user("one", id="m1")).set(user("dropped", id="x1"))
    failed(engine, log, when)
    engine.discard()
    engine.set(user("two", id="m2")).save()

    assert world.chain() == (["m1", "m2"] if when == "before" else ["m1", "x1", "m2"])


@pytest.mark.parametrize("when", WHEN)
def test_a_failure_of_the_first_use(world: EngineWorld, log: FailingLog, when: str) -> None:
    """The chat is made once, with its metadata; the messages wait."""
    engine = world.engine(metadata={"a": 1}).set(user("one", id="m1"))
    log.fail(when)
    with pytest.raises(LogUnavailableError):
        engine.save()
    assert (engine.branch, len(engine.pending)) == (None, 1)
    engine.save()

    assert world.events() == ["chat_created", "message_appended"]
    assert world.chain() == ["m1"]
    assert engine.chat is not None
    assert engine.chat.metadata == {"a": 1}


CALLS: dict[str, Callable[[ContextEngine], Any]] = {
    "rewind": lambda engine: engine.rewind("m1"),
    "btw": lambda engine: engine.btw(),
    "switch_branch": lambda engine: engine.switch_branch("main-v2"),
    "checkpoint": lambda engine: engine.checkpoint("new"),
    "restore": lambda engine: engine.restore("here"),
    "update_chat": lambda engine: engine.update_chat(title="new"),
    "track_usage": lambda engine: engine.track_usage({"total_tokens": 1}),
}


@pytest.mark.parametrize("method", CALLS)
def test_other_operations_that_fail(world: EngineWorld, log: FailingLog, method: str) -> None:
    """Engine, pending list and store are as before (SM-28); a repetition goes through."""
    engine = world.saved(user("one", id="m1"), user("two", id="m2"))
    engine.checkpoint("here")
    engine.btw()
    engine.set(user("pending", id="p1"))
    log.fail("before")
    with world.nothing_happens(engine), pytest.raises(LogUnavailableError):
        CALLS[method](engine)
    events = length(world.ledger)
    CALLS[method](engine)

    assert length(world.ledger) == events + 1


@pytest.mark.parametrize("how", ["rewind", "btw"])
def test_a_repeated_command_makes_one_branch(world: EngineWorld, log: FailingLog, how: str) -> None:
    """Under a command id a retry after a lost acknowledgement answers what happened (PS-22)."""
    engine = world.saved(user("one", id="m1"))
    call: Callable[[], Any] = (lambda: engine.rewind("m1")) if how == "rewind" else engine.btw
    log.fail("after")
    with world.ledger.context(command_id="once"), pytest.raises(LogUnavailableError):
        call()
    with world.ledger.context(command_id="once"):
        branch = call()

    assert branch.name == "main-v2"
    assert list(world.branches()) == ["main", "main-v2"]


def test_a_turn_that_failed_is_continued_by_a_save(world: EngineWorld, log: FailingLog) -> None:
    """The input waits in the queue; `save` stores it once, and any new id will do for the answer."""
    engine = world.engine()
    engine.save()
    log.fail("after")
    with pytest.raises(LogUnavailableError):
        engine.continue_turn("hello")
    engine.save()

    assert shown(engine) == ["hello"]


def test_refusals_leave_nothing_unsettled(world: EngineWorld) -> None:
    """After an error that says that nothing was written, the next save is a new one."""
    engine = world.saved(user("one", id="m1"), user("two", id="m2"))
    engine.rewind("m1")
    engine.set(user("side", id="s1")).save()
    engine.set(user("edited", id="m2"), user("edited", id="s1"))
    for _ in range(2):
        with world.nothing_happens(engine), pytest.raises(AmbiguousEditError):
            engine.save()
    engine.switch_branch("main")
    engine.set(user("three", id="m3")).save()

    assert world.chain("main") == ["m1", "m2", "m3"]


def test_ambient_command_ids_do_not_hide_a_save(world: EngineWorld) -> None:
    """Several saves inside one `context` are several: each has a command id of its own."""
    with world.ledger.context(command_id="ambient", actor="ada"):
        engine = world.engine().set(user("one", id="m1"))
        engine.save()
        engine.set(user("two", id="m2")).save()

    assert world.chain() == ["m1", "m2"]
    assert {recorded.actor for recorded in world.ledger.history(world.chat)} == {"ada"}


def test_an_engine_of_another_user_after_a_failure(world: EngineWorld, log: FailingLog) -> None:
    """Who owns the chat is asked before anything is written (acceptance CE 11)."""
    world.saved(user("one", id="m1"))
    engine = world.engine(user_id="mallory").set(user("two"))
    log.fail("before")
    with world.nothing_happens(engine), pytest.raises(OwnerMismatchError):
        engine.save()

    assert log.failures == 1
