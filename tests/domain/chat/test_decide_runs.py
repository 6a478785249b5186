"""Decisions on runs: recorded once, ended once; and what is said of messages later."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from tests.support.cases import case
from tests.support.run_stories import RunStory, answer_of, new_run
from tests.support.stories import CHAT, Story

from chatledger.domain.chat.decide_runs import (
    RunAnswer,
    decide_annotate,
    decide_complete_run,
    decide_fail_run,
    decide_record_run,
    decide_start_run,
    decide_suspend_run,
    decide_update_run,
)
from chatledger.domain.chat.events import (
    Body,
    BranchCreated,
    MessagesAnnotated,
    MessagesAppended,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import RecordedRun
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.domain.values import Annotation, Message

NOW = 1_700_000_000_999
MINE: dict[str, Any] = {"trigger": "m1", "assistant_id": "research"}


def story() -> RunStory:
    return RunStory("m1", "m2", elsewhere=["theirs"])


def recorded(run_id: str, **rest: Any) -> RecordedRun:
    fields = {"id": f"record of {run_id}", "thread_id": "t", "assistant_id": run_id, "status": "running", **rest}
    return RecordedRun(run_id=run_id, created_at=NOW, updated_at=NOW, **fields)


def record(chat: ReplayedChat, *args: Any, answer: RunAnswer | None = None, **rest: Any) -> list[Body]:
    return decide_record_run(chat, new_run(*args, **rest), answer=answer, now=NOW)


def end(chat: ReplayedChat, run_id: str = "r", **rest: Any) -> list[Body]:
    return decide_complete_run(chat, run_id, now=NOW, **rest)


def message_of(bodies: list[Body]) -> Message:
    appended = bodies[0]
    assert isinstance(appended, MessagesAppended)
    return appended.messages[-1]


# Recording


def test_a_run_is_recorded_as_it_was_described() -> None:
    """Without a status it is completed if it has a message, else running; no metadata are none."""
    everything = {
        "thread_id": "t2", "assistant_id": "a", "runtime": "ts", "trigger_message_id": "m1", "message_id": "m2",
        "checkpoint_id": "cp", "repeats": "r0", "regeneration_id": "g",
    }  # fmt: skip
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"status": "running"}),
        ({"status": "pending"}, {"status": "pending"}),
        ({"message_id": "m2"}, {"status": "completed", "message_id": "m2"}),
        ({"status": "completed"}, {"status": "completed"}),
        ({"message_id": "m2", "status": "completed"}, {"status": "completed", "message_id": "m2"}),
        (everything, {**everything, "status": "completed"}),
    ]
    for fields, expected in cases:
        with case(fields):
            assert [RunRecorded(recorded("r", **expected))] == record(story().chat(), "r", **fields)
            run = recorded("r", references=["m1", "m2"], **expected)
            assert [RunRecorded(run, {"k": 1})] == record(
                story().chat(), "r", fields.get("trigger_message_id"), "m1", "m2", metadata={"k": 1}, **fields
            )
    assert [RunRecorded(recorded("r"))] == record(story().chat(), "r", metadata={})


def test_a_run_is_recorded_with_its_answer_in_one_commit() -> None:
    """The answer goes to the active branch, or to the one named."""
    told = story()
    told.write([BranchCreated(1, "b2", "side", "m1", NOW)])
    for branch, number, head in [(None, 0, "m2"), ("side", 1, "m1")]:
        with case(branch):
            answer, run = record(told.chat(), "r", "m1", answer=answer_of("a1", branch=branch))
            message = Message(
                id="a1",
                parent_id=head,
                name="assistant",
                type="message",
                data="an answer",
                created_at=NOW,
                agent_id="r",
                reply_to="m1",
            )
            assert MessagesAppended((message,), number, head, "a1") == answer
            assert RunRecorded(recorded("r", trigger_message_id="m1", message_id="a1", status="completed")) == run


def test_an_answer_says_itself_whom_it_comes_from_and_what_it_replies_to() -> None:
    """Only what it leaves open follows from the run."""
    for rest, expected in [
        ({}, (None, "research", "m1")),
        ({"sender_id": "bob"}, ("bob", None, "m1")),
        ({"agent_id": "helper", "reply_to": "m2"}, (None, "helper", "m2")),
    ]:
        with case(rest):
            message = message_of(
                record(story().chat(), "r", "m1", assistant_id="research", answer=answer_of("a1", **rest))
            )
            assert expected == (message.sender_id, message.agent_id, message.reply_to)


PROGRESS: dict[str, Callable[[RunStory], Any]] = {
    "at once": lambda told: None,
    "after its end": lambda told: told.complete("r", answer_of("a1"), checkpoint_id="cp"),
    "after its failure": lambda told: told.fail("r", checkpoint_id="cp"),
}


def test_recording_a_run_again_changes_nothing() -> None:
    """Whatever was learned of it meanwhile, and whether the caller learned it too."""
    learned: dict[str, list[dict[str, Any]]] = {
        "after its end": [
            {"message_id": "a1"},
            {"checkpoint_id": "cp"},
            {"status": "completed"},
            {"answer": answer_of("a1")},
        ],
        "after its failure": [{"checkpoint_id": "cp"}],
    }
    for name, progress in PROGRESS.items():
        told = story()
        told.record("r", "m1", "m2")
        progress(told)
        for more in [{}, {"status": "pending"}, *learned.get(name, [])]:
            with case(name, more):
                assert [] == record(told.chat(), "r", "m1", "m2", **more)


def test_another_run_of_the_same_id_is_refused() -> None:
    """With what it differs in."""
    others: list[dict[str, Any]] = [
        {"thread_id": "u"}, {"assistant_id": "writer"}, {"runtime": "ts"}, {"trigger_message_id": "m2"},
        {"trigger_message_id": None}, {"repeats": "r0"}, {"regeneration_id": "g"}, {"message_id": "m2"},
        {"checkpoint_id": "other"}, {"references": ()}, {"references": ("m1",)},
    ]  # fmt: skip
    for name, progress in PROGRESS.items():
        told = story()
        told.record("r", "m1", "m2")
        progress(told)
        for other in [*others, *([] if name == "after its end" else [{"status": "completed"}])]:
            (field,) = other
            references = other.get("references", ("m2",))
            rest = {key: value for key, value in other.items() if key != "references"}
            with case(name, other), pytest.raises(RunConflictError, match=f"another {field};") as caught:
                record(told.chat(), "r", "m1", *references, **rest)
            assert (CHAT, "r") == (caught.value.chat_id, caught.value.run_id)
    with pytest.raises(RunConflictError, match="another thread_id, references, checkpoint_id;"):
        record(told.chat(), "r", "m1", thread_id="u", checkpoint_id="other")


def test_what_cannot_be_recorded() -> None:
    """Each rule names the field that breaks it; nothing is decided."""
    answer = answer_of("a1")
    odd: Any = 5
    stranger: Any = SimpleNamespace(id="a1")
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        *(({field: wrong}, InvalidValueError, f"^{field}") for field in ("thread_id", "assistant_id", "runtime") for wrong in ("", None)),
        *(({field: ""}, InvalidValueError, f"^{field}") for field in ("trigger_message_id", "checkpoint_id", "message_id")),
        ({"status": "error"}, InvalidValueError, "^the status of a new run must be one of pending, running, completed,"),
        ({"status": "running", "message_id": "m2"}, InvalidValueError, "so it is completed, not running"),
        ({"status": "pending", "answer": answer}, InvalidValueError, "so it is completed, not pending"),
        ({"message_id": "m2", "answer": answer}, InvalidValueError, "not both"),
        ({"answer": answer_of(odd)}, InvalidValueError, "^message id"),
        ({"answer": RunAnswer(draft=odd)}, InvalidValueError, "^message id"),
        ({"answer": RunAnswer(draft=stranger)}, InvalidValueError, "expected a NewMessage"),
        ({"metadata": odd}, InvalidValueError, "metadata"),
        ({"trigger_message_id": "none"}, MessageNotFoundError, "'none'"),
        ({"trigger_message_id": "theirs"}, WrongChatError, "'theirs'"),
        ({"message_id": "theirs"}, WrongChatError, "'theirs'"),
        ({"answer": answer_of("m1")}, MessageConflictError, "'m1'"),
        ({"answer": answer_of("theirs")}, MessageConflictError, "'theirs'"),
        ({"answer": answer_of("a1", branch="none")}, BranchNotFoundError, "'none'"),
    ]  # fmt: skip
    for fields, error, words in refused:
        with case(fields), pytest.raises(error, match=words):
            record(story().chat(), "r", **fields)
    for references, error in [((odd,), InvalidValueError), (("m1", "none"), MessageNotFoundError)]:
        with case(references), pytest.raises(error, match=r"in references must|'none'"):
            record(story().chat(), "r", "m1", *references)
    with pytest.raises(InvalidValueError, match=r"^run_id"):
        record(story().chat(), "")


def test_runs_are_of_a_chat() -> None:
    chat = Story().chat()
    decisions: list[Callable[[], object]] = [
        lambda: record(chat, "r"),
        lambda: decide_start_run(chat, "r"),
        lambda: decide_annotate(chat, "m1", stale=True),
    ]
    for decide in decisions:
        with pytest.raises(ChatNotFoundError):
            decide()


# Going on, and ending

MOVES: dict[str, Callable[[ReplayedChat, str], list[Body]]] = {
    "running": decide_start_run,
    "waiting": decide_suspend_run,
    "completed": end,
    "error": decide_fail_run,
}


def test_moves_of_the_status() -> None:
    """NS-36: to waiting only from running, and back; to an end from all, and nothing from there; where it is already is nothing."""
    told = story()
    for status in ("pending", "running", "completed"):
        told.record(status, "m1", status=status)
    told.record("waiting")
    told.suspend("waiting")
    told.record("error")
    told.fail("error")
    for before in ("pending", "running", "waiting", "completed", "error"):
        for after, move in MOVES.items():
            with case(before, after):
                if before == after:
                    assert [] == move(told.chat(), before)
                elif before in {"pending", "running", "waiting"} and (before, after) != ("pending", "waiting"):
                    assert [RunChanged(before, {"status": after})] == move(told.chat(), before)
                else:
                    with pytest.raises(RunStatusError) as caught:
                        move(told.chat(), before)
                    assert (CHAT, before, before, after) == (
                        caught.value.chat_id, caught.value.run_id, caught.value.status, caught.value.wanted,
                    )  # fmt: skip


def test_a_run_says_where_it_waits() -> None:
    """Told the same again it writes nothing; a later question has another checkpoint; it cannot be recorded as waiting."""
    told = story()
    told.record("r", "m1", metadata={"a": 1})
    changes = {"status": "waiting", "checkpoint_id": "cp", "metadata": {"a": 1, "b": 2}}
    assert [RunChanged("r", changes)] == told.suspend("r", checkpoint_id="cp", metadata={"b": 2})
    same: list[dict[str, Any]] = [{}, {"checkpoint_id": "cp"}, {"metadata": {"a": 1}}]
    for given in same:
        with case(given):
            assert [] == decide_suspend_run(told.chat(), "r", **given)
    assert [RunChanged("r", {"status": "waiting", "checkpoint_id": "cp2"})] == decide_suspend_run(
        told.chat(), "r", checkpoint_id="cp2"
    )
    run = told.chat().run("r")
    assert run is not None
    assert (run.status, run.is_ended) == ("waiting", False)
    with pytest.raises(InvalidValueError, match="status of a new run"):
        told.record("other", status="waiting")


def test_a_run_ends_with_what_it_produced() -> None:
    """A message that is there, or an answer in the same commit; a checkpoint; metadata beside those that it has."""
    told = story()
    told.record("r", "m1", metadata={"a": 1, "b": [1]})
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"message_id": "m2"}, {"message_id": "m2"}),
        ({"checkpoint_id": "cp"}, {"checkpoint_id": "cp"}),
        ({"metadata": {"a": 1}}, {}),
        ({"metadata": {"b": None}}, {"metadata": {"a": 1, "b": None}}),
    ]
    for given, changes in cases:
        with case(given):
            assert [RunChanged("r", {"status": "completed", **changes})] == end(told.chat(), **given)
    assert [RunChanged("r", {"status": "error", "checkpoint_id": "cp", "metadata": {"a": 1, "b": [1], "c": 2}})] == (
        decide_fail_run(told.chat(), "r", checkpoint_id="cp", metadata={"c": 2})
    )

    bodies = end(told.chat(), answer=answer_of("a1"))
    message = message_of(bodies)
    assert ("a1", "m2", "m1", "r", NOW) == (
        message.id, message.parent_id, message.reply_to, message.agent_id, message.created_at,
    )  # fmt: skip
    assert [RunChanged("r", {"status": "completed", "message_id": "a1"})] == bodies[1:]


def test_a_run_has_one_end() -> None:
    """Told the same again, in part or with the answer, it writes nothing; anything else is refused."""
    told = story()
    told.record("r", "m1")
    told.complete("r", answer_of("a1"), checkpoint_id="cp", metadata={"a": 1})
    told.record("failed", "m1")
    told.fail("failed", checkpoint_id="cp", metadata={"a": 1})
    same: list[dict[str, Any]] = [{}, {"checkpoint_id": "cp"}, {"metadata": {"a": 1}}, {"metadata": {}}]
    other: list[dict[str, Any]] = [{"checkpoint_id": "other"}, {"metadata": {"a": 2}}, {"metadata": {"b": 1}}]
    for given in [*same, {"message_id": "a1"}, {"answer": answer_of("a1", "whatever")}]:
        with case(given):
            assert [] == end(told.chat(), **given)
    for given in same:
        with case(given):
            assert [] == decide_fail_run(told.chat(), "failed", **given)
    for given in [*other, {"message_id": "m2"}, {"answer": answer_of("a2")}]:
        with case(given), pytest.raises(RunStatusError):
            end(told.chat(), **given)
    for given in other:
        with case(given), pytest.raises(RunStatusError):
            decide_fail_run(told.chat(), "failed", **given)


def test_metadata_are_merged_at_any_time() -> None:
    """Also after the end; what changes nothing writes nothing, whatever the order of the keys."""
    told = story()
    told.record("r", metadata={"a": 1, "b": {"x": 1, "y": 2}})
    told.record("bare")
    told.complete("r")

    changing: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"b": None, "c": 3}, {"a": 1, "b": None, "c": 3}),
        ({"a": True}, {"a": True, "b": {"x": 1, "y": 2}}),
    ]
    for metadata, merged in changing:
        with case(metadata):
            assert [RunChanged("r", {"metadata": merged})] == decide_update_run(told.chat(), "r", metadata)
    same: list[tuple[str, dict[str, Any]]] = [("r", {}), ("r", {"b": {"y": 2, "x": 1}}), ("bare", {})]
    for run_id, metadata in same:
        with case(run_id, metadata):
            assert [] == decide_update_run(told.chat(), run_id, metadata)
    refused: list[Any] = [5, {"a": object()}, {"a": float("nan")}]
    for wrong in refused:
        with case(wrong), pytest.raises(InvalidValueError, match="metadata"):
            decide_update_run(told.chat(), "r", wrong)


def test_ends_that_are_refused() -> None:
    told = story()
    told.record("r", "m1")
    decisions: list[tuple[Callable[[ReplayedChat], object], type[Exception], str]] = [
        (lambda chat: decide_start_run(chat, "none"), RunNotFoundError, "'none'"),
        (lambda chat: decide_start_run(chat, ""), InvalidValueError, "^run_id"),
        (lambda chat: decide_update_run(chat, "none", {}), RunNotFoundError, "'none'"),
        (lambda chat: decide_fail_run(chat, "none"), RunNotFoundError, "'none'"),
        (lambda chat: decide_fail_run(chat, "r", checkpoint_id=""), InvalidValueError, "^checkpoint_id"),
        (lambda chat: end(chat, "none"), RunNotFoundError, f"'{CHAT}'.*'none'"),
        (lambda chat: end(chat, checkpoint_id=""), InvalidValueError, "^checkpoint_id"),
        (lambda chat: end(chat, message_id=[5]), InvalidValueError, "^message_id"),
        (lambda chat: end(chat, message_id="m2", answer=answer_of("a1")), InvalidValueError, "not both"),
        (lambda chat: end(chat, message_id="none"), MessageNotFoundError, "'none'"),
        (lambda chat: end(chat, message_id="theirs"), WrongChatError, "'theirs'"),
        (lambda chat: end(chat, answer=answer_of("m1")), MessageConflictError, "'m1'"),
        (lambda chat: end(chat, answer=answer_of("a1", branch="none")), BranchNotFoundError, "'none'"),
    ]
    for number, (decide, error, words) in enumerate(decisions):
        with case(number), pytest.raises(error, match=words):
            decide(told.chat())


def test_what_a_run_produced_takes_the_place_of_what_it_repeats() -> None:
    """The old message is stale and replaced, unless it is the same one, or there is none."""
    told = story()
    told.record("old", "m1", message_id="m2")
    told.record("mute", "m1", status="completed")
    for repeats in ("old", "mute", "unknown", None):
        told.record(f"of {repeats}", "m1", repeats=repeats)
    marked = [MessagesAnnotated(("m2",), {"stale": True, "replaced_by": "m1"})]

    for repeats, message_id, expected in [
        ("old", "m1", marked), ("old", "m2", []), ("old", None, []), ("mute", "m1", []), ("unknown", "m1", []), (None, "m1", []),
    ]:  # fmt: skip
        with case(repeats, message_id):
            assert expected == end(told.chat(), f"of {repeats}", message_id=message_id)[1:]
    told.annotate("m2", stale=True, replaced_by="m1")
    assert [] == end(told.chat(), "of old", message_id="m1")[1:]


# Annotations


def test_an_annotation_changes_what_is_given() -> None:
    """Unset leaves, None clears, and what is so already writes nothing."""
    told = story()
    told.annotate("m2", stale=True, metadata={"a": 1, "b": 2})
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("m1", {"stale": True}, {"stale": True}),
        ("m1", {"hidden": True, "stale": False}, {"hidden": True, "stale": False}),
        ("m1", {"replaced_by": "m2", "metadata": {"k": 1}}, {"replaced_by": "m2", "metadata": {"k": 1}}),
        ("m2", {"stale": False}, {"stale": False}),
        ("m2", {"metadata": None}, {"metadata": {}}),
        ("m2", {"stale": True, "metadata": {"a": 1}}, {"stale": True, "metadata": {"a": 1}}),
    ]
    for message_id, given, changes in cases:
        with case(message_id, given):
            assert [MessagesAnnotated((message_id,), changes)] == decide_annotate(told.chat(), message_id, **given)
    nothing: dict[str, Any] = {"stale": UNSET, "replaced_by": None, "hidden": False}
    for message_id, given in [
        ("m1", {}), ("m1", nothing), ("m1", {"metadata": None}), ("m2", nothing), ("m2", {"stale": True, "metadata": {"b": 2, "a": 1}}),
    ]:  # fmt: skip
        with case(message_id, given):
            assert [] == decide_annotate(told.chat(), message_id, **given)
    assert Annotation(stale=True, metadata={"a": 1, "b": 2}) == told.chat().annotation("m2")


def test_what_cannot_be_said_of_a_message() -> None:
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (5, {}, InvalidValueError, "^message_id"),
        ("none", {}, MessageNotFoundError, "'none'"),
        ("theirs", {}, WrongChatError, "'theirs'"),
        ("m1", {"stale": 1}, InvalidValueError, "^stale"),
        ("m1", {"hidden": None}, InvalidValueError, "^hidden"),
        ("m1", {"replaced_by": 3}, InvalidValueError, "^replaced_by"),
        ("m1", {"replaced_by": "none"}, MessageNotFoundError, "'none'"),
        ("m1", {"replaced_by": "theirs"}, WrongChatError, "'theirs'"),
        ("m1", {"replaced_by": "m1"}, InvalidValueError, "by itself"),
        ("m1", {"metadata": [1]}, InvalidValueError, "metadata"),
    ]
    for message_id, given, error, words in refused:
        with case(message_id, given), pytest.raises(error, match=words):
            decide_annotate(story().chat(), message_id, **given)
