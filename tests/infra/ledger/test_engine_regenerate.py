"""Answering a question again: nothing is written before the new answer is."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_world import KINDS, EngineWorld, FailingLog, shown
from tests.support.ledger_world import length, snapshot
from tests.support.soak import examples

from chatledger import (
    ContextEngine,
    HeadConflictError,
    InvalidValueError,
    LogUnavailableError,
    NewMessage,
    assistant,
    user,
)
from chatledger.errors import EmptyChatError, MessageNotFoundError, WrongChatError
from chatledger.fragments import hint, last_assistant_message
from chatledger.reminders import reminder


def two_turns(world: EngineWorld) -> ContextEngine:
    """An engine on `main: q1 <- a1 <- q2 <- a2`."""
    return world.saved(user("one", id="q1"), assistant("1", "a1"), user("two", id="q2"), assistant("2", "a2"))


def test_the_last_answer(world: EngineWorld) -> None:
    """The model gets what was said up to the question; new branch, answer and activation are one commit."""
    engine = two_turns(world).set(hint("stay"))
    with world.nothing_happens(engine):
        question = engine.regenerate()
        assert shown(engine) == ["one", "1", "two"]
        assert engine.turn_count() == 2

    assert question == world.message("q2")
    assert str(engine.head_message()) == "Head(id='q2', name='user')"
    events = world.events()
    result = engine.set(assistant("2, better", "a3")).save()
    assert world.events() == [*events, "branch_created", "message_appended"]
    assert world.branches() == {"main": ["q1", "a1", "q2", "a2"], "main-v2": ["q1", "a1", "q2", "a3"]}
    assert (result.branch, result.message_ids, engine.branch, world.active()) == (
        "main-v2",
        ["a3"],
        "main-v2",
        "main-v2",
    )
    assert shown(engine) == ["one", "1", "two", "2, better"] == shown(world.engine())
    engine.set(user("three", id="q3")).save()
    assert world.chain("main-v2") == ["q1", "a1", "q2", "a3", "q3"]


def draft(message_id: str, parent_id: str, name: str = "assistant") -> NewMessage:
    return NewMessage(name, "words", id=message_id, parent_id=parent_id)


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [("a1", ["q1", "new"]), ("q1", ["q1", "new"]), ("q2", ["q1", "a1", "q2", "new"]), ("n2", ["q1", "n1", "new"])],
)
def test_any_answer(world: EngineWorld, message_id: str, expected: list[str]) -> None:
    """An earlier one, one on another branch, or a question by its id."""
    engine = two_turns(world)
    world.ledger.add_messages(world.chat, [draft("n1", "q1", "user"), draft("n2", "n1")])
    question = engine.regenerate(message_id)
    engine.set(assistant("anew", "new")).save()

    assert question is not None
    assert world.chain("main-v2") == expected
    assert question.id == expected[-2]


def test_a_greeting(world: EngineWorld) -> None:
    """The first message of the chat has no question; the new one is another root."""
    engine = world.saved(assistant("Hello", "a1"))

    assert engine.regenerate() is None
    assert (shown(engine), engine.head_message()) == ([], None)
    engine.set(assistant("Hi", "a2")).save()
    assert world.branches() == {"main": ["a1"], "main-v2": ["a2"]}


def test_a_question_without_an_answer(world: EngineWorld) -> None:
    """As after a model that failed: the answer goes to the branch, and no other one is made."""
    engine = world.saved(user("one", id="q1"))
    question = engine.regenerate()
    engine.set(assistant("1", "a1")).save()

    assert question == world.message("q1")
    assert world.branches() == {"main": ["q1", "a1"]}


def test_the_same_answer_again(world: EngineWorld) -> None:
    """Another message with the words of the old one is another version; so is one under the old id."""
    engine = two_turns(world)
    engine.regenerate()
    engine.set(assistant("2", "a3")).save()
    engine.regenerate("a2")
    result = engine.set(assistant("2, better", "a2")).save()

    assert world.chain("main-v2") == ["q1", "a1", "q2", "a3"]
    assert world.chain(result.branch) == ["q1", "a1", "q2", result.id_map["a2"]]


def test_a_client_that_sends_the_conversation(world: EngineWorld) -> None:
    """What is stored up to the question is skipped, also when it is saved before the model is asked."""
    engine = two_turns(world)
    sent = [user("one", id="q1"), assistant("1", "a1"), user("two", id="q2")]
    engine.regenerate()
    with world.nothing_happens(engine):
        assert engine.set(*sent).save().branch == "main"
    assert shown(engine) == ["one", "1", "two"]
    engine.set(*sent, assistant("2, better", "a3")).save()

    assert world.chain("main-v2") == ["q1", "a1", "q2", "a3"]


def test_an_edit_before_the_question_wins(world: EngineWorld) -> None:
    """One save, one branch, at the earlier of both."""
    engine = two_turns(world)
    engine.regenerate()
    engine.set(user("one, edited", id="q1"), assistant("anew", "a3"))
    expected = shown(engine)
    engine.save()

    assert shown(engine) == expected == ["one, edited", "anew"]
    assert list(world.branches()) == ["main", "main-v2"]


def test_reminders_and_corrections(world: EngineWorld) -> None:
    """They see the chain as it is up to the question."""
    engine = two_turns(world)
    engine.regenerate()
    engine.set(last_assistant_message("2, corrected")).save()
    assert shown(engine) == ["one", "1", "two", "2, corrected"]
    engine.regenerate("a1")
    engine.set(reminder(lambda context: f"turn {context.chain.turn}"), user("go on", id="q3"))
    assert "turn 1" in shown(engine)[-1]


TAKE_BACK: dict[str, Callable[[ContextEngine], Any]] = {
    "discard": lambda engine: engine.discard(),
    "switch_branch": lambda engine: engine.switch_branch("main"),
    "rewind": lambda engine: engine.rewind("a2"),
}


@pytest.mark.parametrize("take_back", TAKE_BACK.values(), ids=TAKE_BACK)
def test_taken_back(world: EngineWorld, take_back: Callable[[ContextEngine], Any]) -> None:
    """What is set next follows the old answer again."""
    engine = two_turns(world)
    engine.regenerate("a1")
    take_back(engine)
    engine.set(user("three", id="q3"))

    assert shown(engine) == ["one", "1", "two", "2", "three"]
    engine.save()
    assert world.chain(world.active()) == ["q1", "a1", "q2", "a2", "q3"]


def test_others_write_meanwhile(world: EngineWorld) -> None:
    """The new answer stands beside the old one, wherever the branch is now; `raise` refuses."""
    engine = two_turns(world)
    engine.regenerate()
    world.engine().set(user("three", id="q3")).save()
    engine.set(assistant("2, better", "a3"))
    with world.nothing_happens(engine), pytest.raises(HeadConflictError):
        engine.save(on_conflict="raise")
    engine.save(on_conflict="fork")

    assert world.branches() == {"main": ["q1", "a1", "q2", "a2", "q3"], "main-v2": ["q1", "a1", "q2", "a3"]}


def test_inspecting(world: EngineWorld) -> None:
    """What is stored on the branch is told as it is."""
    engine = two_turns(world)
    engine.regenerate()
    found = engine.inspect()["fragments"]

    assert [one["id"] for one in found["persisted"]] == ["q1", "a1", "q2", "a2"]
    assert found["pending"] == []


@pytest.mark.parametrize(
    ("message_id", "error"),
    [("none", MessageNotFoundError), ("there", WrongChatError)],
)
def test_refused(world: EngineWorld, message_id: str, error: type[Exception]) -> None:
    """Everything is as it was, also what the engine would show."""
    engine = two_turns(world)
    world.engine("elsewhere").set(user("there", id="there")).save()
    with world.nothing_happens(engine), pytest.raises(error):
        engine.regenerate(message_id)

    assert shown(engine) == ["one", "1", "two", "2"]


def test_refused_with_pending_messages(world: EngineWorld) -> None:
    """They would come after what goes; nothing is dropped silently."""
    engine = two_turns(world).set(user("three", id="q3"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="save or discard"):
        engine.regenerate()

    assert shown(engine) == ["one", "1", "two", "2", "three"]


def test_refused_in_an_empty_chat(world: EngineWorld) -> None:
    with pytest.raises(EmptyChatError):
        world.engine().regenerate()


@pytest.fixture
def log(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> FailingLog:
    return FailingLog(world.ledger, monkeypatch)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_save_that_fails(world: EngineWorld, log: FailingLog, when: str) -> None:
    """Whether it was written or not: saving again makes one branch with one answer (acceptance CE 5)."""
    engine = two_turns(world)
    engine.regenerate()
    engine.set(assistant("2, better", "a3"))
    log.fail(when)
    with pytest.raises(LogUnavailableError):
        engine.save()
    engine.save()

    assert world.branches() == {"main": ["q1", "a1", "q2", "a2"], "main-v2": ["q1", "a1", "q2", "a3"]}
    assert length(world.ledger) == len(world.events())


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    """One ledger for all examples, each of which has a chat of its own."""
    with EngineWorld(request.param) as world:
        yield world


roles = st.lists(st.sampled_from(["user", "assistant"]), min_size=1, max_size=6)


@settings(max_examples=examples(40))
@given(roles, st.lists(st.integers(0, 10), max_size=2), st.integers(0, 10), st.booleans())
def test_a_model_that_fails_changes_nothing(
    shared: EngineWorld,
    said: list[str],
    forks: list[int],
    number: int,
    is_last: bool,  # noqa: FBT001 - drawn by name
) -> None:
    """
    Whatever the chat and the answer: before the save every read gives what it gave, to this engine after `discard` as to others.

    The save changes no other branch, and what the model got is what is stored before its answer.
    """
    shared.chat = f"chat {uuid.uuid4().hex}"
    engine, ids = shared.engine(), [f"{at} {shared.chat}" for at in range(len(said))]
    for message_id, role in zip(ids, said, strict=True):
        engine.set(user("words", id=message_id) if role == "user" else assistant("words", message_id))
    engine.save()
    for at in forks:
        engine.rewind(ids[at % len(ids)])
    before, seen, own = snapshot(shared.ledger, [shared.chat]), engine.resolve(), engine.branch
    chains = shared.branches()
    answer_id = None if is_last else ids[number % len(ids)]
    question = engine.regenerate(answer_id)
    given_to_model = engine.resolve()
    assert snapshot(shared.ledger, [shared.chat]) == before
    assert shared.engine().resolve() == seen
    engine.discard()
    assert engine.resolve() == seen

    assert engine.regenerate(answer_id) == question
    result = engine.set(assistant("anew", f"new {shared.chat}")).save()
    after = shared.branches()
    assert engine.resolve().messages[:-1] == given_to_model.messages
    assert after.pop(result.branch)[-1] == f"new {shared.chat}"
    assert after == {name: chain for name, chain in chains.items() if name != result.branch}
    assert (result.branch == own) == (question is not None and chains[str(own)][-1:] == [question.id])
