"""`LedgerConversationStore` beside Pydantic AI's own store in memory: the same calls, equal answers."""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from tests.support.soak import examples

import chatledger
from chatledger import Ledger
from chatledger.adapters.pydantic_ai import LedgerConversationStore

CALLS: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("You know Lisbon."), UserPromptPart("Where is fado sung?")]),
    ModelResponse(parts=[ThinkingPart("Look it up.", signature="s"), ToolCallPart("find", {"what": "fado"}, "c1")]),
    ModelRequest(parts=[ToolReturnPart("find", {"where": ["Alfama"]}, "c1")]),
    ModelResponse(parts=[ToolCallPart("find", "{not json", "c2")]),
    ModelRequest(parts=[ToolReturnPart("find", "Write JSON.", "c2", outcome="retried")]),
    ModelResponse(parts=[TextPart("In Alfama.")]),
    ModelRequest(
        parts=[
            UserPromptPart(
                ["Here?", ImageUrl("https://example.com/a.png"), BinaryContent(b"\x00\xff", media_type="image/png")]
            )
        ]
    ),
]
NAMES = ("a", "b", "c", "d")
STEP = st.one_of(
    st.tuples(st.just("save"), st.sampled_from(NAMES), st.integers(1, 3), st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("save_window"), st.sampled_from(NAMES), st.integers(1, 2), st.integers(0, 3)),
    st.tuples(st.just("rewrite"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("stale"), st.sampled_from(NAMES)),
    st.tuples(st.just("branch"), st.sampled_from(NAMES), st.integers(0, 4)),
    st.tuples(st.just("back"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("fork"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 4), st.sampled_from([None, "y"])
    ),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.sampled_from([None, "x"])),
)


class Player:
    """Makes the steps on one store, and says what came of them with ids replaced by the order in which they came up."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self._numbers: dict[str, int] = {}
        self._count = 0

    def number(self, entry_id: str | None) -> int | None:
        return None if entry_id is None else self._numbers.setdefault(entry_id, len(self._numbers))

    async def play(self, step: Sequence[Any]) -> Any:
        try:
            return await getattr(self, f"_{step[0]}")(*step[1:])
        except (UserError, AssertionError) as error:
            return type(error).__name__

    def _new(self, count: int) -> list[ModelMessage]:
        self._count += 1
        return [ModelRequest(parts=[UserPromptPart(f"{self._count}.{number}")]) for number in range(count)]

    async def _save(self, name: str, count: int, scope: str | None) -> Any:
        conversation = await self.store.load(name) or Conversation(conversation_id=name)
        conversation.messages += self._new(count)
        conversation.usage += RunUsage(requests=1)
        entries = await self.store.save(conversation, scope=scope)
        return [(self.number(entry.id), self.number(entry.parent_id)) for entry in entries]

    async def _save_window(self, name: str, count: int, limit: int) -> Any:
        conversation = await self.store.load(name, limit=limit)
        if conversation is None:
            return None
        conversation.messages += self._new(count)
        return len(await self.store.save(conversation))

    async def _rewrite(self, name: str, keep: int) -> Any:
        conversation = await self.store.load(name)
        if conversation is None:
            return None
        rewritten = dataclasses.replace(
            conversation, messages=[*conversation.messages[:keep], *self._new(1)], new_message_index=None
        )
        return len(await self.store.save(rewritten))

    async def _stale(self, name: str) -> Any:
        first, second = await self.store.load(name), await self.store.load(name)
        if first is None or second is None:
            return None
        first.messages += self._new(1)
        second.messages += self._new(1)
        await self.store.save(first)
        await self.store.save(second)
        return "not reached"

    async def _branch(self, name: str, at: int) -> Any:
        conversation = await self.store.load(name)
        revision = None if conversation is None else conversation.revision
        return (await self.store.branch(name, at=at, expected_revision=revision)).messages

    async def _back(self, name: str) -> Any:
        record = await self.store.read_record(name)
        if record is None or not record.branches:
            return None
        tip = record.branches[0]
        return (await self.store.branch(name, from_entry=tip, expected_revision=record.revision)).messages

    async def _fork(self, name: str, to: str, at: int, scope: str | None) -> Any:
        return (await self.store.fork(name, at=at, new_conversation_id=to, scope=scope)).messages

    async def _delete(self, name: str, scope: str | None) -> Any:
        return await self.store.delete(name, scope=scope)

    async def seen(self) -> Any:
        """All that the store answers."""
        found: list[Any] = []
        for name in NAMES:
            record = await self.store.read_record(name)
            found.append(
                record
                and (
                    self.number(record.head_id),
                    [self.number(tip) for tip in record.branches],
                    record.usage,
                    record.scope,
                    record.forked_from,
                    self.number(record.forked_at),
                )
            )
            for limit in (None, 0, 2):
                entries = await self.store.load_entries(name, limit=limit)
                found.append(
                    entries
                    and [(self.number(entry.id), self.number(entry.parent_id), entry.message) for entry in entries]
                )
            tips = record.branches if record else []
            found += [[entry.message for entry in await self.store.read_history(tip)] for tip in tips]
            found.append(await self.store.load(name, scope="x") is None)
        for scope in (None, "x", "y"):
            for limit in (None, 1, 2):
                listed = await self.store.list_conversations(scope=scope, limit=limit)
                found.append([one.conversation_id for one in listed])
        return found


async def _compare(ledger: Ledger, steps: Sequence[Sequence[Any]]) -> None:
    ours, theirs = Player(LedgerConversationStore(ledger)), Player(InMemoryConversationStore())
    for step in steps:
        expected, found = await theirs.play(step), await ours.play(step)
        assert _plain(expected) == _plain(found), step
        assert _plain(await theirs.seen()) == _plain(await ours.seen()), step


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, ModelRequest | ModelResponse):
        return [getattr(part, "content", None) for part in value.parts]
    return value


@pytest.mark.guard
@settings(max_examples=examples(600, one_in=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=1, max_size=12))
def test_the_same_calls_get_equal_answers(steps: list[tuple[Any, ...]]) -> None:
    """Saves, windows, rewritten histories, branches, forks of forks, deletions, scopes and lists."""
    with chatledger.open("memory:") as ledger:
        asyncio.run(_compare(ledger, [("save", "a", 3, "x"), ("fork", "a", "b", 2, None), *steps]))
        ledger.verify()


def test_every_kind_of_message_comes_back_as_it_was() -> None:
    """Equal to what was saved, with the fields that equality does not look at."""

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        await store.save(Conversation(messages=list(CALLS), conversation_id="trip"), scope="ada")
        found = await store.load("trip")
        assert found is not None
        given = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(CALLS))
        assert found.messages == given
        assert ModelMessagesTypeAdapter.dump_json(found.messages) == ModelMessagesTypeAdapter.dump_json(CALLS)

    with chatledger.open("memory:") as ledger:
        asyncio.run(run(ledger))
        names = [message.name for message in ledger.get_messages("trip")]

        assert names == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
        assert [hit.message.text for hit in ledger.search("Lisbon")] == []


def test_a_conflict_leaves_nothing_behind() -> None:
    """Of eight saves on one revision one is written; no entry of the others is stored."""

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        await store.save(Conversation(messages=CALLS[:1], conversation_id="trip"))
        loaded = [await store.load("trip") for _ in range(8)]
        for number, one in enumerate(loaded):
            assert one is not None
            one.messages.append(ModelRequest(parts=[UserPromptPart(f"writer {number}")]))
        outcomes = await asyncio.gather(*(store.save(one) for one in loaded if one), return_exceptions=True)

        assert sum(isinstance(outcome, ConversationConflict) for outcome in outcomes) == 7
        chat = ledger.get_chat("trip")
        assert chat is not None
        assert chat.message_count == 2

    with chatledger.open("memory:") as ledger:
        asyncio.run(run(ledger))


def test_forks_share_messages_and_are_branches_of_one_chat() -> None:
    """Two conversations of three messages each are four stored messages; one save of a fork costs the same with many forks."""

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        await store.save(Conversation(messages=CALLS[:3], conversation_id="trip"))
        fork = await store.fork("trip", at=2, new_conversation_id="other")
        fork.messages.append(CALLS[5])
        await store.save(fork)

        stored = list(ledger.graph("trip").nodes)
        assert len(stored) == 6  # four of the conversations, two records of the fork
        branch = ledger.get_branch("trip", "pydantic-ai/other/main")
        assert branch is not None
        assert branch.message_count == 3
        await store.delete("trip")
        other = await store.load("other")
        assert other is not None
        assert other.messages == [*CALLS[:2], CALLS[5]]
        assert await store.load("trip") is None
        await store.delete("other")
        assert ledger.list_chats() == []

    with chatledger.open("memory:") as ledger:
        asyncio.run(run(ledger))


def test_a_save_of_a_fork_costs_the_same_with_many_forks() -> None:
    """The events of one save have the same size beside 60 forks as beside one."""

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        await store.save(Conversation(messages=CALLS[:3], conversation_id="trip"))
        sizes: list[int] = []
        for number in range(60):
            fork = await store.fork("trip", new_conversation_id=f"f{number:02}")
            before = ledger.position
            fork.messages.append(CALLS[5])
            await store.save(fork)
            sizes.append(len(repr([one.to_dict()["payload"] for one in ledger.history(after=before)])))
        assert max(sizes) - min(sizes) < 50

    with chatledger.open("memory:") as ledger:
        asyncio.run(run(ledger))


def test_messages_of_others_are_read_as_messages_of_pydantic_ai() -> None:
    """A call, its result and an answer in one UIMessage are three messages, from any of which but the middle one can go on."""
    call = {"type": "dynamic-tool", "toolName": "find", "toolCallId": "c1", "input": {"what": "fado"}}
    parts = [
        {**call, "state": "output-available", "output": "Alfama"},
        {"type": "text", "text": "In Alfama."},
    ]

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        entries = await store.load_entries("trip")
        assert entries is not None
        assert [entry.id for entry in entries] == ["q", "m#2", "m#1", "m"]
        assert [entry.parent_id for entry in entries] == [None, "q", "m#2", "m#1"]
        kinds = [[part.part_kind for part in entry.message.parts] for entry in entries]
        assert kinds == [["user-prompt"], ["tool-call"], ["tool-return"], ["text"]]
        assert await store.read_entry("m#1") == entries[2]
        conversation = await store.load("trip")
        assert conversation is not None
        with pytest.raises(chatledger.errors.InvalidValueError):
            await store.branch("trip", at=2, expected_revision=conversation.revision)
        with pytest.raises(ConversationConflict):
            await store.save(Conversation(messages=CALLS[:1], conversation_id="trip"))
        with pytest.raises(LookupError):
            await store.read_entry("nobody")

    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [chatledger.NewMessage("user", "Where?", id="q")])
        ledger.append(
            "trip", [chatledger.NewMessage("assistant", {"id": "m", "role": "assistant", "parts": parts}, id="m")]
        )
        asyncio.run(run(ledger))


def test_what_json_cannot_say_is_kept() -> None:
    """Half an emoji, integers beyond 64 bits and NaN, as the message came, in arguments and texts."""
    call = ToolCallPart("find", {"big": 2**70, "nan": float("nan"), "half": "\ud83d"}, "c1")

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        await store.save(Conversation(messages=[ModelResponse(parts=[call])], conversation_id="trip"))
        found = await store.load("trip")
        assert found is not None
        [part] = found.messages[0].parts
        assert isinstance(part, ToolCallPart)
        assert repr(part.args) == repr(call.args)

    with chatledger.open("memory:") as ledger:
        asyncio.run(run(ledger))
        [message] = ledger.get_messages("trip")
        assert message.form == "pydantic-ai"
        assert message.data["parts"][0]["args"]["big"] == 2**70


def test_each_message_of_an_api_is_an_entry_of_its_id() -> None:
    """Of a call and its results in messages of their own, so that a conversation goes on, or branches, behind each; hidden ones are left out."""
    function = {"name": "find", "arguments": "{}"}
    chain: list[dict[str, Any]] = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Alfama"},
        {"role": "assistant", "content": "Hm."},
        {"role": "assistant", "content": "In Alfama."},
    ]

    async def run(ledger: Ledger) -> None:
        store = LedgerConversationStore(ledger)
        entries = await store.load_entries("trip")
        assert entries is not None
        stored = [message.id for message in ledger.get_messages("trip")]
        assert [entry.id for entry in entries] == [*stored[:3], stored[4]]
        for limit in (1, 2, 3):
            assert await store.load_entries("trip", limit=limit) == entries[-limit:]
        conversation = await store.load("trip")
        assert conversation is not None
        branched = await store.branch("trip", at=3, expected_revision=conversation.revision)
        branched.messages.append(CALLS[5])
        await store.save(branched)
        again = await store.load("trip")
        assert again is not None
        assert again.messages == [*(entry.message for entry in entries[:3]), CALLS[5]]
        ledger.annotate("trip", stored[0], hidden=True)
        assert await store.load_entries("trip", limit=5) != entries

    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", chain, form="openai")
        asyncio.run(run(ledger))
        assert len(ledger.list_branches("trip")) == 2
