"""The ledger itself, as the checks of adapters drive it: what any adapter has to keep up with."""

from collections.abc import Sequence

from chatledger import AsyncLedger, Ledger, NewMessage
from chatledger.testing import Turn


class PlainDriver:
    """Writes and reads messages by the ledger's own methods."""

    name = "plain"
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

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        opened.delete_chat(conversation_id)
