"""Sessions of OpenAI's Agents SDK, as the checks of adapters drive them: the calls that its runner makes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.openai_agents import LedgerSession
from chatledger.testing import Turn


class OpenAIAgentsDriver:
    """Adds and reads items."""

    name = "openai_agents"
    form = "responses"
    losses: Mapping[str, str] = {}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        items = [item_of(turn, f"msg_{key}_{place}") for place, turn in enumerate(turns)]
        await LedgerSession(conversation_id, ledger).add_items(cast("Any", items))

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        items = await LedgerSession(conversation_id, ledger).get_items()
        return [Turn(str(item.get("role")), text_of(item)) for item in items if "content" in item]

    def message_with(self, value: Any) -> dict[str, Any]:
        return {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "", "about": value}

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        begin = len(await self.load_values(ledger, conversation_id))
        while begin and values[begin - 1].get("id"):  # what has no id is new whenever it is added
            begin -= 1
        await LedgerSession(conversation_id, ledger).add_items(list(values[begin:]))

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        return list(await LedgerSession(conversation_id, ledger).get_items())

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerSession(conversation_id, ledger).delete()


def item_of(turn: Turn, item_id: str) -> dict[str, Any]:
    """The item for a turn: what the runner stores of an input and of an answer."""
    if turn.role == "user":
        return {"role": "user", "content": turn.text, "id": item_id}
    content: list[dict[str, Any]] = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": content}


def text_of(item: Any) -> str:
    """The text of a message."""
    content = item["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
