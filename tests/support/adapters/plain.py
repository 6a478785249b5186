"""The ledger itself, as the checks of adapters drive it: what any adapter has to keep up with."""

from collections.abc import Mapping, Sequence
from typing import Any

from chatledger import AsyncLedger, Ledger, NewMessage
from chatledger.testing import Turn


class PlainDriver:
    """Writes and reads messages by the ledger's own methods."""

    name = "plain"
    form = "openai"
    losses: Mapping[str, str] = {}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        opened.upsert_chat(conversation_id, getattr(opened, "user_id", None) or "")
        messages = [
            NewMessage(turn.role, turn.text, id=f"{conversation_id}:{key}:{place}") for place, turn in enumerate(turns)
        ]
        opened.append(conversation_id, messages, on_existing="skip")

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        if opened.get_chat(conversation_id) is None:
            return []
        return [Turn(message.name, message.text) for message in opened.get_messages(conversation_id)]

    def message_with(self, value: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": "Well.", "audio": {"id": "a1", "about": value}}

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        opened.upsert_chat(conversation_id, "")
        messages = [
            NewMessage(value["role"], value, self.form, id=f"{conversation_id}:{place}")
            for place, value in enumerate(values)
        ]
        opened.append(conversation_id, messages, on_existing="skip")

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        return [message.data for message in opened.get_messages(conversation_id)]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        opened.delete_chat(conversation_id)
