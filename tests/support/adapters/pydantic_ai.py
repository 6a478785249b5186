"""Conversations of Pydantic AI, as the checks of adapters drive them: loaded before a run and saved after it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.pydantic_ai import LedgerConversationStore
from chatledger.testing import Turn

# Theirs (`ModelMessagesTypeAdapter`) writes NaN as null.
_MESSAGES: Final[TypeAdapter[list[ModelMessage]]] = TypeAdapter(
    list[ModelMessage],
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


class PydanticAIDriver:
    """Loads, adds turns, and saves. A write that is repeated saves the same conversation again, as a program that retries does."""

    name = "pydantic_ai"
    form = "pydantic-ai"
    losses: Mapping[str, str] = {"unknown fields": "its dataclasses have none"}
    notes_saves = True
    conflicts: tuple[type[Exception], ...] = (ConversationConflict,)

    def __init__(self) -> None:
        self._saved: dict[tuple[object, str, str], Conversation] = {}

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        store = LedgerConversationStore(ledger)
        again = self._saved.get((ledger, conversation_id, key))
        if again is not None:
            await store.save(again)
            return
        conversation = await store.load(conversation_id) or Conversation(conversation_id=conversation_id)
        conversation.messages.extend(map(message_of, turns))
        unsaved = dataclasses.replace(conversation, messages=list(conversation.messages))
        await store.save(conversation)
        self._saved[ledger, conversation_id, key] = unsaved

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        conversation = await LedgerConversationStore(ledger).load(conversation_id)
        return [] if conversation is None else [turn_of(message) for message in conversation.messages]

    def message_with(self, value: Any) -> dict[str, Any]:
        (told,) = _MESSAGES.dump_python(
            [ModelResponse(parts=[ToolCallPart("about", {"value": value}, "call_1")])], mode="json"
        )
        return dict(told)

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        store = LedgerConversationStore(ledger)
        conversation = await store.load(conversation_id) or Conversation(conversation_id=conversation_id)
        conversation.messages = _MESSAGES.validate_python(values)
        await store.save(conversation)

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        conversation = await LedgerConversationStore(ledger).load(conversation_id)
        return [] if conversation is None else list(_MESSAGES.dump_python(conversation.messages, mode="json"))

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerConversationStore(ledger).delete(conversation_id)


def message_of(turn: Turn) -> ModelMessage:
    """The message of a run for a turn."""
    if turn.role == "user":
        return ModelRequest(parts=[UserPromptPart(turn.text)])
    return ModelResponse(parts=[TextPart(turn.text)])


def turn_of(message: ModelMessage) -> Turn:
    """The turn that a message is."""
    role = "user" if isinstance(message, ModelRequest) else "assistant"
    parts: Any = message.parts
    return Turn(role, "".join(str(part.content) for part in parts if isinstance(part, TextPart | UserPromptPart)))
