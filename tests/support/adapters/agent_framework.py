"""Histories of Agent Framework, as the checks of adapters drive them: the calls that a run makes."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import Content, Message

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.agent_framework import LedgerHistoryProvider
from chatledger.testing import Turn


class AgentFrameworkDriver:
    """Adds and reads messages."""

    name = "agent_framework"
    form = "agent-framework"
    losses: Mapping[str, str] = {"unknown fields": "its messages have none"}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        messages = [
            Message(turn.role, [turn.text], message_id=f"msg_{key}_{place}") for place, turn in enumerate(turns)
        ]
        await LedgerHistoryProvider(ledger).save_messages(conversation_id, messages)

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        messages = await LedgerHistoryProvider(ledger).get_messages(conversation_id)
        return [Turn(str(message.role), message.text) for message in messages]

    def message_with(self, value: Any) -> dict[str, Any]:
        call = Content.from_function_call("call_1", "about", arguments={"value": value})
        return Message("assistant", [call], message_id="m1").to_dict()

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        begin = len(await self.load_values(ledger, conversation_id))
        while begin and values[begin - 1].get("message_id"):  # what has no id is new whenever it is added
            begin -= 1
        told = [Message.from_dict(value) for value in values[begin:]]
        await LedgerHistoryProvider(ledger).save_messages(conversation_id, told)

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        return [told.to_dict() for told in await LedgerHistoryProvider(ledger).get_messages(conversation_id)]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerHistoryProvider(ledger).delete(conversation_id)
