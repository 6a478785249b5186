"""Compacting: a branch that begins with a summary, and the old one as it was."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.support.engine_world import EngineWorld, FailingLog, shown, texts

from chatledger import (
    ContextEngine,
    Fragment,
    HeadConflictError,
    InvalidValueError,
    LogUnavailableError,
    Message,
    assistant,
    user,
)
from chatledger.errors import EmptyChatError, ResolverError
from chatledger.reminders import once, reminder

HEADING = "Summary of the conversation so far:\n\n"


def talk(world: EngineWorld, turns: int) -> ContextEngine:
    said = ((user(f"question {at}", id=f"q{at}"), assistant(f"answer {at}", f"a{at}")) for at in range(turns))
    return world.saved(*(message for turn in said for message in turn))


def test_summary_and_last_turns(world: EngineWorld) -> None:
    """In one commit, on a new branch with an automatic name; the old one stays, is searched, and is one switch away."""
    engine = talk(world, 5)
    before, events = world.chain(), len(world.events())

    branch = engine.compact("They plan a trip.", keep_last=2)

    assert (branch.name, branch.is_active, engine.branch) == ("main-v2", True, "main-v2")
    assert shown(engine) == [f"{HEADING}They plan a trip.", "question 3", "answer 3", "question 4", "answer 4"]
    assert world.chain() == before
    assert {hit.message.id for hit in world.ledger.search("answer 0", chat_id=world.chat)} >= {"a0"}
    assert world.events()[events:] == ["branch_created", "message_appended"]
    engine.switch_branch("main")
    assert len(shown(engine)) == 10


def test_marks(world: EngineWorld) -> None:
    """The summary says what it stands for and is nobody's message; copies say of what, and are theirs who said it."""
    engine = talk(world, 3)

    engine.compact("Short.", keep_last=1)

    first, *copies = world.ledger.get_messages(world.chat)
    assert (first.name, first.parent_id) == ("user", None)
    assert first.notes == {"synthetic": True, "summary": {"count": 4, "first_id": "q0", "last_id": "a1"}}
    assert [one.copied_from for one in copies] == ["q2", "a2"]
    assert [one.created_at for one in copies] == [world.message(old).created_at for old in ("q2", "a2")]
    assert [one.data["id"] for one in copies] == ["q2", "a2"]  # as they came
    assert engine.turn_count() == 1


def test_function_of_the_messages(world: EngineWorld) -> None:
    """Asynchronous or not, it gets what is summed up, oldest first, without what is hidden."""
    engine, seen = talk(world, 4), list[str]()
    world.ledger.annotate(world.chat, "a0", hidden=True)

    def summary(messages: list[Message]) -> str:
        seen.extend(message.id for message in messages)
        return "So far."

    async def summary_async(messages: list[Message]) -> str:
        return summary(messages)

    for function in (summary, summary_async):
        engine.switch_branch("main")
        seen.clear()
        engine.compact(function)

        assert seen == ["q0", "q1", "a1", "q2", "a2"]
        assert shown(engine) == [f"{HEADING}So far.", "question 3", "answer 3"]


def test_again_and_again(world: EngineWorld) -> None:
    """The earlier summary is summed up with the rest; pending messages follow."""
    engine = talk(world, 3)
    engine.compact("First.")
    engine.set(user("more"), assistant("sure")).save()
    engine.set(user("pending"))

    engine.compact(lambda messages: " | ".join(message.text for message in messages))

    summary = f"{HEADING}{HEADING}First. | question 2 | answer 2"
    assert shown(engine) == [summary, "more", "sure", "pending"]
    engine.save()
    assert texts(engine.resolve(last_n=1).messages) == ["pending"]


def test_replies_to_copies(world: EngineWorld) -> None:
    """An answer that replies to a copied message replies to the copy."""
    engine = talk(world, 2)
    engine.set(user("and?", id="q"), assistant("yes", "a").with_metadata(reply_to="q")).save()

    engine.compact("Short.")

    _, question, answer = world.ledger.get_messages(world.chat)
    assert answer.reply_to == question.id


def test_what_was_computed_survives_a_compaction(world: EngineWorld) -> None:
    """Also between a resolve that failed and the next one: a generator that was used up is no empty list afterwards."""
    failing = True

    def version() -> str:
        if failing:
            raise ConnectionError
        return "up"

    engine = talk(world, 2).set(Fragment("tables", (name for name in "ab")), Fragment("version", version))
    with pytest.raises(ResolverError):
        engine.resolve()
    engine.compact(lambda _messages: "Short.")
    failing = False

    assert engine.resolve().system_prompt == (
        "<tables>\n  <table>a</table>\n  <table>b</table>\n</tables>\n<version>up</version>"
    )


def test_the_summary_may_ask_for_the_context(world: EngineWorld) -> None:
    """It is no part of it, unlike a computed value."""
    engine = talk(world, 2).set(Fragment("version", lambda: "up"))

    engine.compact(lambda messages: f"{len(messages)} of {len(shown(engine))} with {engine.resolve().system_prompt}")

    assert shown(engine)[0] == f"{HEADING}2 of 4 with <version>up</version>"


def test_what_was_said_once_is_not_said_again(world: EngineWorld) -> None:
    """However often the conversation is compacted, and whether the message that said it was summed up, kept or hidden."""
    for keep_last, hidden in ((0, False), (1, False), (0, True)):
        world.chat = f"chat {keep_last} {hidden}"
        engine = world.engine().set(reminder("euros", when=once("currency")), reminder("UTC", when=once("zone")))
        engine.set(user("one")).save()
        world.ledger.annotate(world.chat, world.chain()[0], hidden=hidden)
        engine.set(user("two")).save()

        engine.compact("Short.", keep_last=keep_last)
        engine.set(user("three")).save()
        engine.compact("Shorter.", keep_last=0)
        engine.set(user("four")).save()

        assert shown(engine)[1:] == ["four"]
        assert world.message(world.chain()[0]).data["metadata"]["once_ids"] == ["currency", "zone"]


def test_nothing_kept(world: EngineWorld) -> None:
    engine = talk(world, 2)

    engine.compact("All of it.", keep_last=0)

    assert shown(engine) == [f"{HEADING}All of it."]


REFUSED: Final[list[tuple[Callable[[ContextEngine], Any], type[Exception]]]] = [
    (lambda engine: engine.compact(""), InvalidValueError),
    (lambda engine: engine.compact(" \n"), InvalidValueError),
    (lambda engine: engine.compact(None), InvalidValueError),  # type: ignore[arg-type]
    (lambda engine: engine.compact(lambda _messages: 7), InvalidValueError),
    (lambda engine: engine.compact(lambda _messages: 1 / 0), ResolverError),
    (lambda engine: engine.compact("x", keep_last=-1), InvalidValueError),
    (lambda engine: engine.compact("x", keep_last=3), InvalidValueError),
    (lambda engine: engine.compact("x", keep_last="2"), InvalidValueError),  # type: ignore[arg-type]
]


def test_refusals_change_nothing(world: EngineWorld) -> None:
    engine = talk(world, 3)
    for call, error in REFUSED:
        with world.nothing_happens(engine), pytest.raises(error):
            call(engine)


def test_refused_where_there_is_nothing_or_an_answer_is_awaited(world: EngineWorld) -> None:
    with pytest.raises(EmptyChatError):
        world.engine().compact("x")
    engine = talk(world, 3)
    engine.regenerate("a1")
    with pytest.raises(InvalidValueError, match="regenerated"):
        engine.compact("x")
    engine.discard()
    engine.compact("x")
    with pytest.raises(InvalidValueError, match="nothing to sum up"):
        engine.compact("y")


def test_what_others_said_meanwhile_is_not_lost(world: EngineWorld) -> None:
    """Then nothing is written, and compacting again takes it in."""
    engine = talk(world, 3)

    def summary(_messages: list[Message]) -> str:
        world.ledger.append(world.chat, [user("wait", id="late")])
        return "Short."

    with pytest.raises(HeadConflictError):
        engine.compact(summary)

    assert [branch.name for branch in world.ledger.list_branches(world.chat)] == ["main"]
    engine.compact("Short.")
    assert shown(engine) == [f"{HEADING}Short.", "wait"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_unknown_outcome(world: EngineWorld, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calling again makes sure that it happened, once."""
    engine = talk(world, 3)
    failing = FailingLog(world.ledger, monkeypatch)
    failing.fail(when, failures=100)
    with pytest.raises(LogUnavailableError):
        engine.compact("Short.")
    failing.fail(when, failures=0)

    branch = engine.compact("Short.")

    assert [one.name for one in world.ledger.list_branches(world.chat)] == ["main", branch.name]
    assert shown(engine) == [f"{HEADING}Short.", "question 2", "answer 2"]
