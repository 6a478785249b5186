"""Runs: recorded once, ended once, and found by what they are about."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.ledger_world import text

import chatledger
from chatledger import InvalidValueError, Ledger, NewMessage, assistant
from chatledger.errors import (
    ChatNotFoundError,
    MessageConflictError,
    MessageNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.runs import MessageRun

BASIC: dict[str, Any] = {"thread_id": "t", "assistant_id": "research", "trigger_message_id": "m1"}


@pytest.fixture
def ledger() -> Any:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [text("first", id="m1"), text("second", id="m2")])
        ledger.create_chat("elsewhere", "ada")
        ledger.append("elsewhere", [text("there", id="there")])
        yield ledger


def answer(message_id: str = "a1", **rest: Any) -> NewMessage:
    return NewMessage("assistant", "an answer", id=message_id, **rest)


def test_an_answer_completes_its_run_in_one_commit(ledger: Ledger) -> None:
    """NS, acceptance 11: message, checkpoint and status are set together, and a later change of status is refused."""
    run = ledger.record_run("c", "r1", **BASIC)
    assert ("running", None, None, run.created_at) == (run.status, run.message_id, run.checkpoint_id, run.updated_at)
    position = ledger.position
    done = ledger.complete_run("c", "r1", answer=answer(), checkpoint_id="cp1")
    events = list(ledger.history("c", after=position))

    assert [("message_appended", 1), ("run_changed", 0)] == [(one.type, one.event.rest) for one in events]
    assert ("completed", "a1", "cp1", run.id, run.created_at) == (
        done.status, done.message_id, done.checkpoint_id, done.id, done.created_at,
    )  # fmt: skip
    message = ledger.get_messages("c")[-1]
    assert ("a1", "m1", "research", "m2") == (message.id, message.reply_to, message.agent_id, message.parent_id)
    position = ledger.position
    changes: list[Callable[[], object]] = [
        lambda: ledger.fail_run("c", "r1"),
        lambda: ledger.start_run("c", "r1"),
        lambda: ledger.complete_run("c", "r1", message_id="m2"),
        lambda: ledger.complete_run("c", "r1", answer=answer("a2")),
        lambda: ledger.complete_run("c", "r1", checkpoint_id="cp2"),
    ]
    for change in changes:
        with pytest.raises(RunStatusError, match="'completed'"):
            change()
    assert position == ledger.position
    assert done == ledger.get_run("c", "r1")


def test_an_answer_says_itself_who_it_comes_from(ledger: Ledger) -> None:
    """What the answer says goes before what follows from the run."""
    ledger.record_run("c", "r1", **BASIC)
    ledger.complete_run("c", "r1", answer=answer("a1", sender_id="bob", reply_to="m2"))
    ledger.record_run("c", "r2", **BASIC)
    ledger.complete_run("c", "r2", answer=assistant("hello", "a2", agent_id="helper"))

    first, second = ledger.get_messages("c")[-2:]
    assert ("bob", None, "m2") == (first.sender_id, first.agent_id, first.reply_to)
    assert (None, "helper", "m1") == (second.sender_id, second.agent_id, second.reply_to)


STATUSES: dict[str, Callable[[Ledger], MessageRun]] = {
    "pending": lambda ledger: ledger.record_run("c", "r", status="pending", **BASIC),
    "running": lambda ledger: ledger.record_run("c", "r", **BASIC),
    "waiting": lambda ledger: (ledger.record_run("c", "r", **BASIC), ledger.suspend_run("c", "r"))[1],
    "completed": lambda ledger: ledger.record_run("c", "r", message_id="m2", **BASIC),
    "error": lambda ledger: (ledger.record_run("c", "r", **BASIC), ledger.fail_run("c", "r"))[1],
}
MOVES: dict[str, Callable[[Ledger], MessageRun]] = {
    "running": lambda ledger: ledger.start_run("c", "r"),
    "waiting": lambda ledger: ledger.suspend_run("c", "r"),
    "completed": lambda ledger: ledger.complete_run("c", "r", message_id="m2"),
    "error": lambda ledger: ledger.fail_run("c", "r"),
}


@pytest.mark.parametrize("before", STATUSES)
@pytest.mark.parametrize("after", MOVES)
def test_moves_of_the_status(ledger: Ledger, before: str, after: str) -> None:
    """NS-36: pending or waiting to running, running to waiting, all three to an end, and nothing from there."""
    run = STATUSES[before](ledger)
    assert before == run.status
    position = ledger.position

    if before == after:
        assert run == MOVES[after](ledger)
        assert position == ledger.position
    elif before in {"pending", "running", "waiting"} and (before, after) != ("pending", "waiting"):
        assert after == MOVES[after](ledger).status
        changed = list(ledger.feed(position, topics={"run_changed"}, follow=False))
        assert [after] == [one.to_dict()["payload"]["changes"]["status"] for one in changed]
    else:
        with pytest.raises(RunStatusError):
            MOVES[after](ledger)
        assert run == ledger.get_run("c", "r")


PROGRESS: dict[str, Callable[[Ledger], Any]] = {
    "at once": lambda ledger: None,
    "after its end": lambda ledger: ledger.complete_run("c", "r", answer=answer(), checkpoint_id="cp"),
    "after its failure": lambda ledger: ledger.fail_run("c", "r"),
}


@pytest.mark.parametrize("progress", PROGRESS.values(), ids=PROGRESS)
def test_recording_a_run_again_changes_nothing(ledger: Ledger, progress: Callable[[Ledger], Any]) -> None:
    """NS-38: also when it has gone on meanwhile."""
    ledger.record_run("c", "r", references=["m2"], **BASIC)
    progress(ledger)
    position, run = ledger.position, ledger.get_run("c", "r")

    assert run == ledger.record_run("c", "r", references=["m2"], **BASIC)
    assert position == ledger.position


@pytest.mark.parametrize(
    "other",
    [
        {"thread_id": "u"}, {"assistant_id": "writer"}, {"runtime": "ts"}, {"trigger_message_id": "m2"},
        {"trigger_message_id": None}, {"references": []}, {"references": ["m1"]}, {"message_id": "m2"},
        {"checkpoint_id": "cp"}, {"status": "completed"},
    ],
    ids=str,
)  # fmt: skip
def test_another_run_of_the_same_id(ledger: Ledger, other: dict[str, Any]) -> None:
    ledger.record_run("c", "r", references=["m2"], **BASIC)
    position = ledger.position
    changed: dict[str, Any] = {"references": ["m2"], **BASIC, **other}
    with pytest.raises(RunConflictError, match="recorded with another"):
        ledger.record_run("c", "r", **changed)

    assert position == ledger.position


def test_the_same_id_in_another_chat_is_another_run(ledger: Ledger) -> None:
    ledger.record_run("c", "r", **BASIC)
    ledger.record_run("elsewhere", "r", thread_id="t", assistant_id="writer")

    assert ["research", "writer"] == [ledger.runs(chat)[0].assistant_id for chat in ("c", "elsewhere")]


REFUSED: list[tuple[Callable[[Any], Any], type[Exception]]] = [
    (lambda ledger: ledger.record_run("none", "r", **BASIC), ChatNotFoundError),
    (lambda ledger: ledger.record_run("c", "r", **{**BASIC, "trigger_message_id": "none"}), MessageNotFoundError),
    (lambda ledger: ledger.record_run("c", "r", **{**BASIC, "trigger_message_id": "there"}), WrongChatError),
    (lambda ledger: ledger.record_run("c", "r", references=["m2", "there"], **BASIC), WrongChatError),
    (lambda ledger: ledger.record_run("c", "r", message_id="there", **BASIC), WrongChatError),
    (lambda ledger: ledger.record_run("c", "r", answer=answer("there"), **BASIC), MessageConflictError),
    (lambda ledger: ledger.record_run("c", "r", answer=answer(reply_to="there"), **BASIC), MessageNotFoundError),
    (lambda ledger: ledger.record_run("c", "r", answer=answer(), message_id="m2", **BASIC), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "r", message_id="m2", status="running", **BASIC), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "r", status="error", **BASIC), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "r", runtime="", **BASIC), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "r", references="m2", **BASIC), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "", **BASIC), InvalidValueError),
    (lambda ledger: ledger.start_run("c", "none"), RunNotFoundError),
    (lambda ledger: ledger.fail_run("c", "none"), RunNotFoundError),
    (lambda ledger: ledger.complete_run("c", "none"), RunNotFoundError),
    (lambda ledger: ledger.complete_run("c", "known", message_id="there"), WrongChatError),
    (lambda ledger: ledger.runs("c", status="done"), InvalidValueError),
    (lambda ledger: ledger.record_run("c", "r", **{**BASIC, "thread_id": ""}), InvalidValueError),
]


@pytest.mark.parametrize(
    ("call", "error"),
    REFUSED,
    ids=[
        "no chat", "no trigger", "trigger elsewhere", "reference elsewhere", "message elsewhere", "answer elsewhere",
        "answer to nothing", "two answers", "running with an answer", "failed from the start", "no runtime",
        "references are a text", "no id", "start none", "fail none", "complete none", "complete elsewhere",
        "unknown status", "empty thread",
    ],
)  # fmt: skip
def test_what_is_refused_writes_nothing(ledger: Ledger, call: Callable[[Ledger], Any], error: type[Exception]) -> None:
    ledger.record_run("c", "known", **BASIC)
    position = ledger.position
    with pytest.raises(error):
        call(ledger)

    assert position == ledger.position


def test_runs_are_found(ledger: Ledger) -> None:
    """NS-39: by id, trigger, produced message, thread, assistant and status, in the order of recording; filters combine."""
    for number, (thread, assistant_id, trigger) in enumerate(
        [("t", "a", "m1"), ("t", "b", "m1"), ("t1", "a", "m2"), ("t", "a", None), ("T" * 900, "a", "m2")]
    ):
        ledger.record_run("c", f"r{number}", thread_id=thread, assistant_id=assistant_id, trigger_message_id=trigger)
    ledger.complete_run("c", "r2", message_id="m2")
    ledger.complete_run("c", "r0", answer=answer("a0"))
    ledger.fail_run("c", "r3")

    def found(**wanted: Any) -> str:
        return " ".join(run.run_id for run in ledger.runs("c", **wanted))

    assert "r0 r1 r2 r3 r4" == found()
    assert ("r0 r1 r3", "r2", "r4") == (found(thread_id="t"), found(thread_id="t1"), found(thread_id="T" * 900))
    assert ("r0 r3", "r1") == (found(thread_id="t", assistant_id="a"), found(assistant_id="b"))
    assert ("r0", "r1") == (found(thread_id="t", status="completed"), found(thread_id="t", status="running"))
    assert ("r0 r1", "r2 r4") == (found(trigger_message_id="m1"), found(trigger_message_id="m2"))
    assert ("r2", "r0") == (found(message_id="m2"), found(message_id="a0"))
    assert ("", "", "") == (
        found(thread_id="T"),
        found(message_id="m1"),
        found(trigger_message_id="m1", thread_id="t1"),
    )
    assert ("r3", "r0 r2", "r1 r4") == (found(status="error"), found(status="completed"), found(status="running"))
    assert ([], None, None) == (ledger.runs("none"), ledger.get_run("none", "r0"), ledger.get_run("c", "none"))


def test_a_deleted_chat_has_no_runs(ledger: Ledger) -> None:
    ledger.record_run("c", "r", **BASIC)
    ledger.delete_chat("c")
    ledger.create_chat("c", "ada")

    assert [] == ledger.runs("c")
    assert "running" == ledger.record_run("c", "r", thread_id="t", assistant_id="other").status
    ledger.verify()


def test_a_command_repeated_under_its_id(ledger: Ledger) -> None:
    """The answer is there once, and the run is the one that was recorded then."""
    ledger.record_run("c", "r", **BASIC)
    for _ in range(2):
        with ledger.context(command_id="k"):
            done = ledger.complete_run("c", "r", answer=NewMessage("assistant", "without an id"))
        assert "completed" == done.status

    assert 3 == len(ledger.get_messages("c"))


def test_a_run_has_one_end(ledger: Ledger) -> None:
    """Of several that end a run at once, one does; the others are refused, and their answers are not there."""
    ledger.record_run("c", "r", **BASIC)

    def end(number: int) -> str | None:
        try:
            return ledger.complete_run("c", "r", answer=answer(f"a{number}")).message_id
        except RunStatusError:
            return None

    with ThreadPoolExecutor(8) as pool:
        ends = [message_id for message_id in pool.map(end, range(8)) if message_id is not None]

    assert 1 == len(ends)
    assert ["m1", "m2", *ends] == [message.id for message in ledger.get_messages("c")]


def test_metadata_of_runs_are_merged(ledger: Ledger) -> None:
    """With each change, and alone, also after the end; what changes nothing writes nothing."""
    run = ledger.record_run("c", "r", thread_id="t", assistant_id="a", metadata={"a": 1, "b": [1]})
    assert run.metadata == {"a": 1, "b": [1]}
    assert ledger.update_run("c", "r", {"b": None}).metadata == {"a": 1, "b": None}
    assert ledger.fail_run("c", "r", metadata={"why": "boom"}).metadata == {"a": 1, "b": None, "why": "boom"}
    position = ledger.position
    assert ledger.fail_run("c", "r", metadata={"why": "boom"}) == ledger.update_run("c", "r", {"a": 1})
    assert position == ledger.position
    assert ledger.update_run("c", "r", {"seen": True}).status == "error"
    ledger.record_run("c", "r2", thread_id="t", assistant_id="a")
    assert ledger.complete_run("c", "r2", metadata={"n": 1}).metadata == {"n": 1}
    with pytest.raises(InvalidValueError):
        ledger.update_run("c", "r2", {"n": object()})
    with pytest.raises(RunNotFoundError):
        ledger.update_run("c", "none", {})
    ledger.rebuild()
    assert [one.metadata for one in ledger.runs("c")] == [{"a": 1, "b": None, "why": "boom", "seen": True}, {"n": 1}]
