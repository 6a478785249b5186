"""Both chat stores of LlamaIndex, as the checks of adapters drive them."""

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.llamaindex import LedgerAsyncChatStore, LedgerChatStore
from chatledger.testing import Turn


def message(turn: Turn, message_id: str) -> ChatMessage:
    """A message of LlamaIndex with an id."""
    return ChatMessage(turn.text, role=MessageRole(turn.role), additional_kwargs={"message_id": message_id})


def turn_of(told: ChatMessage) -> Turn:
    """A message as the checks have it."""
    return Turn(told.role.value, told.content or "")


def _value_of(told: ChatMessage) -> dict[str, Any]:
    value = told.model_dump(mode="json")
    for block, dumped in zip(told.blocks, value["blocks"], strict=True):
        if isinstance(block, ToolCallBlock):  # pydantic writes NaN as null
            dumped["tool_kwargs"] = block.tool_kwargs
    return value


class DbStoreDriver:
    """The store that `Memory` takes."""

    name = "llamaindex"
    form = "llamaindex"
    losses: Mapping[str, str] = {"unknown fields": "its models ignore them"}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        told = [message(turn, f"{key}-{place}") for place, turn in enumerate(turns)]
        await LedgerAsyncChatStore(ledger).add_messages(conversation_id, told)

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        return [turn_of(told) for told in await LedgerAsyncChatStore(ledger).get_messages(conversation_id)]

    def message_with(self, value: Any) -> dict[str, Any]:
        call = ToolCallBlock(tool_call_id="call_1", tool_name="about", tool_kwargs={"value": value})
        return _value_of(ChatMessage(role=MessageRole.ASSISTANT, blocks=[call]))

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        told = [ChatMessage.model_validate(value) for value in values]
        await LedgerAsyncChatStore(ledger).set_messages(conversation_id, told)

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        return [_value_of(told) for told in await LedgerAsyncChatStore(ledger).get_messages(conversation_id)]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerAsyncChatStore(ledger).delete_messages(conversation_id)


class ChatStoreDriver(DbStoreDriver):
    """The store that `ChatMemoryBuffer` takes, which has no call that adds several messages: they are set with those before."""

    name = "llamaindex-buffer"

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        store = LedgerChatStore(ledger)
        told = [message(turn, f"{key}-{place}") for place, turn in enumerate(turns)]
        if len(told) == 1:
            await store.async_add_message(conversation_id, told[0])
            return
        known = await store.aget_messages(conversation_id)
        new = [one for one in told if one not in known]
        await store.aset_messages(conversation_id, [*known, *new])

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        return [turn_of(told) for told in await LedgerChatStore(ledger).aget_messages(conversation_id)]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerChatStore(ledger).adelete_messages(conversation_id)
