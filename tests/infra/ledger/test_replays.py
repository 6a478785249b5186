"""Replays: questions that another model answers again, on a branch of their own; answers side by side; where something turned false."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    NotFoundError,
)
from chatledger.importers import write_chats
from chatledger.replays import Exchange, ReplayAnswer
from chatledger.testing import recorded_exchanges

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "trains", "arguments": '{"to": "Riga"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "at 8:04"}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        system = chatledger.NewMessage("system", {"role": "system", "content": "Be brief."}, id="s")
        ledger.append("trip", [system, user("When is a train?", id="u1"), CALL, RESULT, assistant("At 8.", id="a1")])
        ledger.append("trip", [user("And back?", id="u2"), user("On Sunday.", id="u3"), assistant("At 9.", id="a2")])
        yield ledger


def texts(ledger: Ledger, branch: str) -> list[str]:
    return [message.text for message in ledger.get_messages("trip", branch=branch)]


def test_each_question_is_answered_again_on_a_branch_of_its_own(ledger: Ledger) -> None:
    before = ledger.get_messages("trip")
    seen: list[tuple[int, list[str]]] = []

    def runner(turn: Exchange) -> ReplayAnswer:
        seen.append((turn.number, [message.text for message in turn.messages]))
        tools = turn.tool_result("trains", {"to": "Riga"}) if turn.number == 1 else ""
        return ReplayAnswer(
            assistant(f"new {turn.number} {tools}"), {"model": "m", "usage": {"output_tokens": turn.number}}
        )

    replay = ledger.replay("trip", runner, name="m")
    assert ledger.get_messages("trip") == before, "the original stays, and the active branch is what it was"
    assert texts(ledger, "m") == [
        "Be brief.", "When is a train?", "new 1 at 8:04", "And back?", "On Sunday.", "new 2 "
    ]  # fmt: skip
    assert seen == [
        (1, ["Be brief.", "When is a train?"]),
        (2, ["Be brief.", "When is a train?", "new 1 at 8:04", "And back?", "On Sunday."]),
    ]
    copies = [message.copied_from for message in ledger.get_messages("trip", branch="m")]
    assert copies == [None, None, None, "u2", "u3", None]
    assert [(run.status, run.metadata["usage"]) for run in replay.runs] == [
        ("completed", {"output_tokens": 1}),
        ("completed", {"output_tokens": 2}),
    ]
    assert all(run.assistant_id == run.thread_id == "m" for run in replay.runs)
    assert ledger.replay("trip", runner, name="m") == replay, "repeating asks nobody"
    assert len(seen) == 2
    ledger.verify()


def test_after_an_error_it_goes_on_where_it_was(ledger: Ledger) -> None:
    asked: list[int] = []

    def runner(turn: Exchange) -> Any:
        asked.append(turn.number)
        if asked == [1, 2]:
            msg = "overloaded"
            raise RuntimeError(msg)
        return assistant(f"new {turn.number}")

    with pytest.raises(RuntimeError, match="overloaded"):
        ledger.replay("trip", runner, name="m")
    (failed,) = ledger.runs("trip", thread_id="m", status="error")
    assert failed.metadata == {"error": "RuntimeError: overloaded"}
    replay = ledger.replay("trip", runner, name="m")
    assert asked == [1, 2, 2]
    assert [run.status for run in replay.runs] == ["completed", "completed"]
    assert texts(ledger, "m")[-1] == "new 2"


def test_an_attempt_that_was_killed_is_answered_anew(ledger: Ledger) -> None:
    """Its run still runs, and what it wrote before is left beside the branch."""

    def killed(turn: Exchange) -> Any:
        ledger.append("trip", [assistant("half")], branch="m")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.replay("trip", killed, name="m")
    replay = ledger.replay("trip", lambda _: assistant("whole"), name="m", turns=1)
    assert [run.run_id for run in replay.runs] == ["m/1"]
    assert texts(ledger, "m") == ["Be brief.", "When is a train?", "whole"]


def test_what_cannot_be_replayed_is_said(ledger: Ledger) -> None:
    ledger.create_chat("empty", "ada")
    with pytest.raises(InvalidValueError, match="nothing to answer"):
        ledger.replay("empty", lambda _: "x", name="m")
    with pytest.raises(ChatNotFoundError):
        ledger.replay("absent", lambda _: "x", name="m")
    with pytest.raises(BranchNotFoundError):
        ledger.replay("trip", lambda _: "x", name="m", branch="absent")
    with pytest.raises(InvalidValueError, match="name"):
        ledger.replay("trip", lambda _: "x", name="")
    with pytest.raises(InvalidValueError, match="no message for turn 1"):
        ledger.replay("trip", lambda _: [], name="m")
    ledger.create_branch("trip", "other", "a1")
    ledger.append("trip", [user("Something else")], branch="other")
    with pytest.raises(InvalidValueError, match="no replay"):
        ledger.replay("trip", lambda _: "x", name="other")
    (turn, *_) = ledger.compare("trip", ["main"])
    assert turn.number == 1


def test_somebody_else_who_writes_there_is_noticed(ledger: Ledger) -> None:
    def runner(_: Exchange) -> Any:
        ledger.append("trip", [assistant("mine")], branch="m")
        return assistant("late")

    with pytest.raises(HeadConflictError):
        ledger.replay("trip", runner, name="m")


def test_a_tool_that_was_not_called_like_this_has_no_result(ledger: Ledger) -> None:
    def runner(turn: Exchange) -> Any:
        return assistant(turn.tool_result("trains", {"to": "Oslo"}))

    with pytest.raises(NotFoundError, match="trains"):
        ledger.replay("trip", runner, name="m")


def test_answers_side_by_side(ledger: Ledger) -> None:
    ledger.replay("trip", lambda turn: assistant(f"new {turn.number}"), name="m", turns=1)
    first, second = ledger.compare("trip", ["main", "m"])
    assert (first.number, first.said) == (1, "When is a train?")
    assert {name: answer.messages[-1].text for name, answer in first.answers.items()} == {"main": "At 8.", "m": "new 1"}
    assert (first.answers["main"].tools, first.answers["m"].tools) == (["trains"], [])
    run = first.answers["m"].run
    assert run is not None
    assert run.run_id == "m/1"
    assert (second.said, set(second.answers)) == ("And back?\nOn Sunday.", {"main"})
    with pytest.raises(BranchNotFoundError):
        ledger.compare("trip", ["absent"])


@pytest.mark.parametrize("bad", range(9))
def test_the_message_at_which_something_turned_false(ledger: Ledger, bad: int) -> None:
    chain = ledger.get_messages("trip")
    asked: list[int] = []

    def is_well(messages: list[Any]) -> bool:
        asked.append(len(messages))
        return len(messages) <= bad

    found = ledger.bisect("trip", is_well)
    assert found == (chain[bad] if bad < len(chain) else None)
    assert len(asked) <= 4


@pytest.mark.anyio
async def test_an_async_ledger_replays(ledger: Ledger) -> None:
    async with chatledger.open_async("memory:") as other:
        await other.create_chat("trip", "ada")
        await other.append("trip", [user("Where?")])
        replay = await other.replay("trip", lambda _: assistant("Riga"), name="m")
        assert [run.status for run in replay.runs] == ["completed"]
        (turn,) = await other.compare("trip", ["m"])
        assert turn.answers["m"].messages[0].text == "Riga"
        assert await other.bisect("trip", lambda messages: not messages) is not None


def test_turns_of_an_export_are_cases_of_a_test(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "trip.jsonl"
    with path.open("wb") as stream:
        write_chats(stream, [ledger.export_chat("trip")])
    first, second = recorded_exchanges(path)
    assert [message.id for message in first.messages] == ["s", "u1"]
    assert first.tool_result("trains", {"to": "Riga"}) == "at 8:04"
    assert [message.text for message in second.answered] == ["At 9."]
    path.write_text("{}")
    with pytest.raises(InvalidValueError, match=r"trip\.jsonl"):
        recorded_exchanges(path)
