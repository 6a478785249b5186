"""`LedgerHistoryProvider`: the contract of adapters, and runs of an agent of Agent Framework."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("agent_framework")

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, Message

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.adapters.agent_framework import LedgerHistoryProvider
from chatledger.errors import InvalidValueError, OwnerMismatchError
from chatledger.testing import check_adapter_killed


class Echo(BaseChatClient[Any]):
    """A model that says how many messages it was given, always under the same id."""

    async def _get(self, messages: Any) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message("assistant", [f"{len(messages)} messages"], message_id="same")])

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        assert not stream
        return self._get(messages)


def _run(test: Callable[[Ledger], Coroutine[Any, Any, None]]) -> None:
    with chatledger.open("memory:") as ledger:
        asyncio.run(test(ledger))
        ledger.verify()


@pytest.mark.soak
def test_what_was_acknowledged_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.agent_framework:AgentFrameworkDriver", rounds=2)


def test_an_agent_goes_on_in_another_process() -> None:
    """Each run reads what those before it stored, though the model gives all its answers the same id."""

    async def test(ledger: Ledger) -> None:
        for text in ("one", "two", "three"):
            agent = Agent(Echo(), context_providers=[LedgerHistoryProvider(ledger)])
            await agent.run(text, session=agent.create_session(session_id="trip"))

        texts = [message.text for message in ledger.get_messages("trip")]
        assert texts == ["one", "1 messages", "two", "3 messages", "three", "5 messages"]

    _run(test)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ["question", "1 messages", "again", "3 messages"]),
        ({"load_messages": False}, ["question", "1 messages", "again", "1 messages"]),
        ({"store_inputs": False}, ["1 messages", "2 messages"]),
        ({"store_outputs": False}, ["question", "again"]),
        ({"limit": 1}, ["question", "1 messages", "again", "2 messages"]),
    ],
)
def test_flags_are_honoured(flags: dict[str, Any], expected: list[str]) -> None:
    """What a run loads, and what is stored of it."""

    async def test(ledger: Ledger) -> None:
        agent = Agent(Echo(), context_providers=[LedgerHistoryProvider(ledger, **flags)])
        for question in ("question", "again"):
            await agent.run(question, session=agent.create_session(session_id="trip"))

        assert [message.text for message in ledger.get_messages("trip")] == expected

    _run(test)


def test_messages_come_back_as_they_were() -> None:
    """With calls, results, files, reasoning and properties."""
    given = [
        Message("user", ["Where?", Content.from_data(b"\x00", "image/png")], additional_properties={"a": 1}),
        Message(
            "assistant",
            [Content.from_text_reasoning(text="Hm."), Content.from_function_call("c1", "find", arguments='{"a":1}')],
        ),
        Message("tool", [Content.from_function_result("c1", result="Alfama")]),
        Message("assistant", ["In Alfama."], author_name="guide", message_id="m4"),
    ]

    async def test(ledger: Ledger) -> None:
        provider = LedgerHistoryProvider(ledger)
        await provider.save_messages("trip", given)
        found = await provider.get_messages("trip")

        assert [message.to_dict() for message in found] == [message.to_dict() for message in given]
        stored = ledger.get_messages("trip")
        assert [message.data for message in stored] == [message.to_dict() for message in given]
        assert {message.form for message in stored} == {"agent-framework"}
        assert [message.name for message in stored] == ["user", "assistant", "tool", "assistant"]
        assert [message.text for message in stored] == ["Where?", "", "", "In Alfama."]
        assert [[part["type"] for part in message.parts] for message in stored] == [
            ["text", "file"],
            ["reasoning", "dynamic-tool"],
            ["dynamic-tool"],
            ["text"],
        ]

    _run(test)


def test_what_json_cannot_say_comes_back() -> None:
    """Half of an emoji, an integer beyond 64 bits, no number, and properties that nobody knows."""
    properties = {"half": "\ud83d", "large": 2**70, "none": float("nan"), "x": {"y": [1]}}
    given = Message("user", ["\ud83d"], additional_properties=properties)

    async def test(ledger: Ledger) -> None:
        provider = LedgerHistoryProvider(ledger)
        await provider.save_messages("trip", [given])
        (found,) = await provider.get_messages("trip")

        assert repr(found.to_dict()) == repr(given.to_dict())

    _run(test)


def test_messages_of_others_are_converted() -> None:
    """A call, its result and an answer in one UIMessage are three messages."""
    call = {"type": "dynamic-tool", "toolName": "find", "toolCallId": "c1", "input": {"a": 1}}
    parts = [{**call, "state": "output-available", "output": "Alfama"}, {"type": "text", "text": "In Alfama."}]

    async def test(ledger: Ledger) -> None:
        ledger.create_chat("trip", "")
        ledger.append("trip", [NewMessage("assistant", {"id": "m", "role": "assistant", "parts": parts}, id="m")])
        found = await LedgerHistoryProvider(ledger).get_messages("trip")

        assert [(str(one.role), [content.type for content in one.contents]) for one in found] == [
            ("assistant", ["function_call"]),
            ("tool", ["function_result"]),
            ("assistant", ["text"]),
        ]

    _run(test)


def test_the_same_message_after_a_fork_is_another_one() -> None:
    """A question that stands on another branch is asked again on this one."""

    async def test(ledger: Ledger) -> None:
        provider = LedgerHistoryProvider(ledger)
        pair = [Message("user", ["one"], message_id="1"), Message("user", ["two"], message_id="2")]
        await provider.save_messages("trip", pair)
        ledger.fork("trip", ledger.get_messages("trip")[0].id)
        for _ in range(2):
            await provider.save_messages("trip", pair[1:])

        assert [one.text for one in await provider.get_messages("trip")] == ["one", "two"]
        assert len(ledger.list_branches("trip")) == 2

    _run(test)


def test_errors_say_what_to_do() -> None:
    """No session, no limit below one, nobody else's chat."""

    async def test(ledger: Ledger) -> None:
        with pytest.raises(InvalidValueError, match="create_session"):
            await LedgerHistoryProvider(ledger).save_messages(None, [])
        assert await LedgerHistoryProvider(ledger).get_messages(None) == []
        with pytest.raises(InvalidValueError, match="limit"):
            LedgerHistoryProvider(ledger, limit=0)
        await LedgerHistoryProvider(ledger, user_id="ada").save_messages("trip", [Message("user", ["one"])])
        with pytest.raises(OwnerMismatchError):
            await LedgerHistoryProvider(ledger, user_id="bob").save_messages("trip", [Message("user", ["two"])])

    _run(test)
