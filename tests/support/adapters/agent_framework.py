"""Histories of Agent Framework, as the checks of adapters drive them: the calls that a run makes."""

from collections.abc import Sequence

from agent_framework import Message

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.agent_framework import LedgerHistoryProvider
from chatledger.testing import Turn


class AgentFrameworkDriver:
    """Adds and reads messages."""

    name = "agent_framework"
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

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerHistoryProvider(ledger).delete(conversation_id)
