"""LlamaIndex's chat stores: the contract of adapters, what only they do, and both kinds of its memory at work."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.base.llms.types import TextBlock, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, MessageRole, MockLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from tests.support.adapters.llamaindex import ChatStoreDriver, DbStoreDriver
from tests.support.adapters.plain import PlainDriver

from chatledger import Ledger, NewMessage
from chatledger.adapters.llamaindex import LedgerAsyncChatStore, LedgerChatStore
from chatledger.errors import ConfigurationError, InvalidValueError, OwnerMismatchError
from chatledger.testing import check_adapter, check_adapter_killed

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED


def said(*texts: str) -> list[ChatMessage]:
    """Messages of a user and an assistant in turn."""
    roles = (MessageRole.USER, MessageRole.ASSISTANT)
    return [ChatMessage(text, role=roles[place % 2]) for place, text in enumerate(texts)]


def texts(messages: list[ChatMessage] | None) -> list[str | None]:
    return [message.content for message in messages or []]


def words(ledger: Ledger, branch: str | None = None) -> list[str]:
    return [message.text for message in ledger.get_messages("trip", branch=branch)]


def branches(ledger: Ledger) -> list[str]:
    return [branch.name for branch in ledger.list_branches("trip")]


@pytest.mark.parametrize("driver", [DbStoreDriver(), ChatStoreDriver()], ids=lambda driver: driver.name)
def test_contract(driver: DbStoreDriver) -> None:
    check_adapter(driver, others=[PlainDriver(), ChatStoreDriver()])


@pytest.mark.soak
def test_what_is_stored_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.llamaindex:DbStoreDriver", rounds=2)


def test_messages_come_back_as_they_were(ledger: Ledger) -> None:
    store = LedgerChatStore(ledger)
    pixel = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    given = [
        ChatMessage("Be brief.", role=MessageRole.SYSTEM),
        ChatMessage(
            role=MessageRole.USER,
            blocks=[
                {"block_type": "text", "text": "Which bird?"},
                {"block_type": "image", "image": pixel, "image_mimetype": "image/png"},
                {"block_type": "document", "url": "https://example.org/a.pdf", "title": "a.pdf"},
            ],
        ),
        ChatMessage(
            role=MessageRole.ASSISTANT,
            blocks=[
                {"block_type": "thinking", "content": "Black and white."},
                {
                    "block_type": "tool_call",
                    "tool_call_id": "c1",
                    "tool_name": "birds",
                    "tool_kwargs": {"seen": "tail"},
                },
            ],
            additional_kwargs={"more": [1, {"deep": None}]},
        ),
        ChatMessage("A magpie", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": "c1", "name": "birds"}),
    ]
    store.set_messages("trip", given)
    assert [one.model_dump(mode="json") for one in store.get_messages("trip")] == [
        one.model_dump(mode="json") for one in given
    ]
    stored = ledger.get_messages("trip")
    assert [(message.form, message.name) for message in stored] == [
        ("llamaindex", name) for name in ("system", "user", "assistant", "tool")
    ]
    assert [message.data for message in stored] == [one.model_dump(mode="json") for one in given]
    parts = [message.parts for message in stored]
    assert [part["type"] for part in parts[1]] == ["text", "file", "file"]
    assert parts[1][1]["url"].startswith("data:image/png;base64,iVBOR")
    assert parts[2][0] == {"type": "reasoning", "text": "Black and white."}
    assert parts[2][1]["input"] == {"seen": "tail"}
    assert parts[3][0]["output"] == "A magpie"


def test_what_others_wrote_comes_as_messages(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    data = {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "I look."},
            {
                "type": "tool-birds",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"seen": "tail"},
                "output": "A magpie",
            },
            {"type": "text", "text": "It is a magpie."},
        ],
    }
    ledger.append("trip", [NewMessage("user", "Which bird?"), NewMessage("assistant", data, id="m1")])
    store = LedgerChatStore(ledger)
    found = store.get_messages("trip")
    assert [one.role.value for one in found] == ["user", "assistant", "tool", "assistant"]
    assert texts(found) == ["Which bird?", "I look.", "A magpie", "It is a magpie."]
    call = found[1].blocks[1]
    assert isinstance(call, ToolCallBlock)
    assert (call.tool_name, call.tool_kwargs, call.tool_call_id) == ("birds", {"seen": "tail"}, "c1")
    assert found[2].additional_kwargs == {"tool_call_id": "c1", "name": "birds"}

    assert (last := store.delete_last_message("trip")) is not None
    assert last.content == "It is a magpie."  # one of those that a message stands for: the rest is said again
    assert texts(store.get_messages("trip")) == ["Which bird?", "I look.", "A magpie"]
    assert branches(ledger) == ["main", "main-v2"]
    store.add_message("trip", ChatMessage("Surely?"))
    store.set_messages("trip", [*found, *said("Thanks")])
    assert texts(store.get_messages("trip"))[-2:] == ["It is a magpie.", "Thanks"]


def test_set_messages_branches_where_they_differ(ledger: Ledger) -> None:
    store = LedgerChatStore(ledger)
    store.set_messages("trip", said("a", "b", "c"))
    position = ledger.position
    store.set_messages("trip", said("a", "b", "c"))
    assert ledger.position == position, "equal messages are no write"
    first = [message.id for message in ledger.get_messages("trip")]
    store.set_messages("trip", said("a", "b", "c", "d"))
    assert branches(ledger) == ["main"], "more at the end is no branch"
    store.set_messages("trip", said("a", "x", "c"))
    assert (branches(ledger), words(ledger)) == (["main", "main-v2"], ["a", "x", "c"])
    assert words(ledger, "main") == ["a", "b", "c", "d"]
    assert ledger.get_messages("trip")[0].id == first[0], "what they begin with is shared"
    store.set_messages("trip", said("a"))
    assert words(ledger) == ["a"]
    store.set_messages("trip", [])
    assert (store.get_messages("trip"), len(branches(ledger))) == ([], 4)
    ledger.verify()


def test_deleted_messages_stay_in_the_history(ledger: Ledger) -> None:
    store = LedgerChatStore(ledger)
    store.set_messages("trip", said("a", "b", "c", "d"))
    before = ledger.position
    assert (gone := store.delete_message("trip", 1)) is not None
    assert gone.content == "b"
    assert texts(store.get_messages("trip")) == ["a", "c", "d"]
    assert ledger.search("b") == []
    assert (gone := store.delete_last_message("trip")) is not None
    assert gone.content == "d"
    assert (store.delete_message("trip", 7), store.delete_message("none", 0)) == (None, None)
    assert (gone := store.delete_message("trip", -1)) is not None
    assert gone.content == "c"
    assert texts(store.get_messages("trip")) == ["a"]
    assert branches(ledger) == ["main"]
    with ledger.as_of(before) as then:
        assert [message.text for message in then.get_messages("trip")] == ["a", "b", "c", "d"]
    store.add_message("trip", ChatMessage("e"))
    assert texts(store.get_messages("trip")) == ["a", "e"]
    assert store.delete_last_message("none") is None
    ledger.verify()


def test_deleting_all_erases_or_goes_on_with_an_empty_branch(ledger: Ledger) -> None:
    keeping, erasing = LedgerChatStore(ledger, on_delete="branch"), LedgerChatStore(ledger)
    keeping.set_messages("trip", said("secret", "b"))
    assert texts(keeping.delete_messages("trip")) == ["secret", "b"]
    assert (keeping.get_messages("trip"), words(ledger, "main")) == ([], ["secret", "b"])
    assert keeping.delete_messages("trip") == []
    assert erasing.get_keys() == ["trip"]
    assert erasing.delete_messages("trip") == []
    assert (erasing.get_keys(), erasing.delete_messages("trip")) == ([], None)
    assert not any("secret" in repr(recorded.to_dict()) for recorded in ledger.history())
    with pytest.raises(InvalidValueError):
        LedgerChatStore(ledger, on_delete="perhaps")  # type: ignore[arg-type]


async def _statuses(ledger: Ledger) -> None:
    store = LedgerAsyncChatStore(ledger)
    await store.add_messages("trip", said("a", "b", "c", "d", "e", "f"))
    position = ledger.position
    assert texts(await store.archive_oldest_messages("trip", 2)) == ["a", "b"]
    assert ledger.position == position + 1
    assert texts(await store.get_messages("trip")) == ["c", "d", "e", "f"]
    assert texts(await store.get_messages("trip", limit=2, offset=1)) == ["d", "e"]
    assert texts(await store.get_messages("trip", ARCHIVED)) == ["a", "b"]
    assert texts(await store.delete_oldest_messages("trip", 1)) == ["c"]
    assert texts(await store.get_messages("trip", None)) == ["a", "b", "d", "e", "f"]
    assert texts(await store.archive_oldest_messages("trip", 1)) == ["d"]
    assert [await store.count_messages("trip", status) for status in (ACTIVE, ARCHIVED, None)] == [2, 3, 5]
    assert [hit.message.text for hit in ledger.search("a")] == ["a"], "what is archived is found"
    await store.add_message("trip", ChatMessage("old"), ARCHIVED)
    await store.add_message("trip", ChatMessage("new"))
    assert texts(await store.get_messages("trip")) == ["e", "f", "new"]
    assert texts(await store.get_messages("trip", ARCHIVED)) == ["a", "b", "d", "old"]
    assert (await store.delete_message("trip", 0)) is not None
    assert texts(await store.get_messages("trip", ARCHIVED)) == ["b", "d", "old"]
    await store.delete_messages("trip", ARCHIVED)
    assert texts(await store.get_messages("trip", None)) == ["e", "f", "new"]
    await store.delete_messages("trip", ACTIVE)
    assert await store.get_messages("trip", None) == []
    assert await store.archive_oldest_messages("trip", 3) == []
    assert await store.get_keys() == ["trip"]
    await store.delete_messages("trip")
    assert await store.get_keys() == []
    assert (await store.delete_oldest_messages("none", 1), await store.count_messages("none")) == ([], 0)


def test_statuses(ledger: Ledger) -> None:
    asyncio.run(_statuses(ledger))
    ledger.verify()


async def _archive_of_a_branch(ledger: Ledger) -> None:
    store = LedgerAsyncChatStore(ledger)
    await store.set_messages("trip", said("a", "b", "c", "d"))
    await store.archive_oldest_messages("trip", 2)
    await store.set_messages("trip", said("c", "d", "e"))
    assert texts(await store.get_messages("trip", None)) == ["c", "d", "e"], "the archive is replaced too"
    ledger.set_active_branch("trip", "main")
    assert texts(await store.get_messages("trip", ARCHIVED)) == ["a", "b"], "and stays where it was"
    ledger.fork("trip", ledger.get_messages("trip")[0].id)
    assert texts(await store.get_messages("trip")) == ["a"], "before the archive began"
    await store.set_messages("trip", said("x"), ARCHIVED)
    assert (await store.get_messages("trip"), texts(await store.get_messages("trip", ARCHIVED))) == ([], ["x"])


def test_an_archive_is_that_of_a_branch(ledger: Ledger) -> None:
    asyncio.run(_archive_of_a_branch(ledger))


async def _many_active(ledger: Ledger) -> None:
    store = LedgerAsyncChatStore(ledger)
    await store.add_messages("trip", said(*(str(number) for number in range(400))))
    await store.archive_oldest_messages("trip", 150)
    assert texts(await store.get_messages("trip")) == [str(number) for number in range(150, 400)]


def test_more_active_messages_than_are_read_at_once(ledger: Ledger) -> None:
    asyncio.run(_many_active(ledger))


def test_chat_memory_buffer_at_work(ledger: Ledger) -> None:
    store = LedgerChatStore(ledger, user_id="ada")
    memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="trip", token_limit=3000)
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
    engine.chat("Riga?")
    engine.chat("And Tartu?")
    assert [message.name for message in ledger.get_messages("trip")] == ["user", "assistant"] * 2
    again = ChatMemoryBuffer.from_defaults(chat_store=LedgerChatStore(ledger), chat_store_key="trip")
    assert len(again.get()) == 4
    chat = ledger.get_chat("trip")
    assert chat is not None
    assert chat.user_id == "ada"
    assert "class_name" in memory.to_string()
    engine.reset()
    assert ledger.get_chat("trip") is None


async def _memory(ledger: Ledger) -> None:
    memory = Memory.from_defaults(
        "trip",
        chat_store=LedgerAsyncChatStore(ledger),
        token_limit=60,
        token_flush_size=10,
        chat_history_token_ratio=0.9,
    )
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
    for number in range(8):
        await engine.achat(f"Question {number}: what is there to be seen in this town?")
    everything, active = await memory.aget_all(), await memory.aget()
    assert len(everything) == 16
    assert 0 < len(active) < 16
    assert texts(active) == texts(everything[-len(active) :])
    assert [message.text for message in ledger.get_messages("trip")] == texts(everything)
    await memory.areset()
    assert ledger.get_chat("trip") is None


def test_memory_at_work(ledger: Ledger) -> None:
    asyncio.run(_memory(ledger))


def test_another_users_chat_is_refused(ledger: Ledger) -> None:
    LedgerChatStore(ledger, user_id="ada").add_message("trip", ChatMessage("mine"))
    bob = LedgerChatStore(ledger.for_user("bob"))
    assert (bob.get_messages("trip"), bob.get_keys(), bob.delete_messages("trip")) == ([], [], None)
    with pytest.raises(OwnerMismatchError):
        bob.add_message("trip", ChatMessage("x"))
    with pytest.raises(OwnerMismatchError):
        bob.set_messages("trip", said("x"))


def test_ids_that_models_repeat_lose_nothing(ledger: Ledger) -> None:
    store = LedgerChatStore(ledger)
    for text in ("a", "b", "b"):
        store.add_message("trip", ChatMessage(text, additional_kwargs={"message_id": "same"}))
    assert texts(store.get_messages("trip"))[:2] == ["a", "b"]


def test_a_location_is_opened_and_closed(tmp_path: Any) -> None:
    store = LedgerChatStore(f"sqlite:///{tmp_path}/log.db")
    store.add_message("trip", ChatMessage("a"))
    store.close()
    again = LedgerAsyncChatStore(f"sqlite:///{tmp_path}/log.db")
    assert texts(asyncio.run(again.get_messages("trip"))) == ["a"]
    asyncio.run(again.aclose())


def test_what_cannot_be_stored_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidValueError):
        LedgerChatStore(ledger).add_message("trip", ChatMessage("a", additional_kwargs={"what": object()}))
    assert ledger.get_chat("trip") is None
    with pytest.raises(ConfigurationError):
        LedgerChatStore(7)  # type: ignore[arg-type]


def test_what_json_cannot_say_is_kept(ledger: Ledger) -> None:
    """Half an emoji, integers beyond 64 bits, NaN and infinities."""
    store, odd = LedgerChatStore(ledger), {"big": 2**70, "nan": float("nan"), "deep": [{"inf": float("-inf")}]}
    call = ToolCallBlock(tool_call_id="c1", tool_name="birds", tool_kwargs=odd)
    given = ChatMessage(role=MessageRole.ASSISTANT, blocks=[call, TextBlock(text="\ud83d")], additional_kwargs=odd)
    store.add_message("trip", given)

    [found] = store.get_messages("trip")
    assert repr(found) == repr(given)
    position = ledger.position
    store.set_messages("trip", [found])
    assert ledger.position == position


async def _archive_of_others(ledger: Ledger) -> None:
    function = {"name": "birds", "arguments": "{}"}
    ledger.create_chat("trip", "ada")
    for number in range(40):
        call = {"id": f"c{number}", "type": "function", "function": function}
        turn: list[dict[str, Any]] = [
            {"role": "user", "content": f"Which bird is {number}?"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "A magpie"},
            {"role": "assistant", "content": "A magpie."},
        ]
        ledger.append("trip", turn, form="openai")
    store = LedgerAsyncChatStore(ledger)
    everything = await store.get_messages("trip")
    assert len(everything) == 160
    for count in (99, 51):
        assert len(await store.archive_oldest_messages("trip", count)) == count
    assert await store.get_messages("trip") == everything[150:]
    assert await store.get_messages("trip", ARCHIVED) == everything[:150]
    assert await store.delete_message("trip", 151) == everything[151]
    assert await store.get_messages("trip") == [everything[150], *everything[152:]]


def test_messages_of_an_api_are_archived(ledger: Ledger) -> None:
    asyncio.run(_archive_of_others(ledger))
