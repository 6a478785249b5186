"""ChatKit's store, as the checks of adapters drive it: by the calls that its server makes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    ClientToolCallItem,
    InferenceOptions,
    ThreadItem,
    ThreadMetadata,
    UserMessageItem,
    UserMessageTextContent,
)
from pydantic import TypeAdapter

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.chatkit import LedgerStore
from chatledger.testing import Turn

_ITEM: Final[TypeAdapter[ThreadItem]] = TypeAdapter(ThreadItem)
THEN = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)


def user_item(item_id: str, text: str, thread_id: str = "trip") -> UserMessageItem:
    """Item of a user, with a text."""
    return UserMessageItem(
        id=item_id,
        thread_id=thread_id,
        created_at=THEN,
        content=[UserMessageTextContent(text=text)],
        inference_options=InferenceOptions(),
    )


def assistant_item(item_id: str, text: str, thread_id: str = "trip") -> AssistantMessageItem:
    """Item of an assistant, with a text."""
    content = [AssistantMessageContent(text=text)]
    return AssistantMessageItem(id=item_id, thread_id=thread_id, created_at=THEN, content=content)


def text_of(item: Any) -> str:
    """Text of an item of either."""
    return "".join(content.text for content in item.content)


def _value_of(item: ThreadItem) -> dict[str, Any]:
    value: dict[str, Any] = _ITEM.dump_python(item, mode="json")
    if isinstance(item, ClientToolCallItem):  # pydantic writes NaN as null
        value["arguments"] = item.arguments
    return value


class ChatKitDriver:
    """Makes a thread, and adds items to it."""

    name = "chatkit"
    form = "chatkit"
    losses: Mapping[str, str] = {"unknown fields": "its models ignore them"}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return conversation_id

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        store: LedgerStore[None] = LedgerStore(ledger)
        await store.save_thread(ThreadMetadata(id=conversation_id, created_at=THEN), None)
        items: list[ThreadItem] = []
        for place, (role, text) in enumerate(turns):
            item = user_item if role == "user" else assistant_item
            items.append(item(f"msg_{key}_{place}", text, conversation_id))
        await store.add_thread_items(conversation_id, items, None)

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        store: LedgerStore[None] = LedgerStore(ledger)
        page = await store.load_thread_items(conversation_id, None, 1000, "asc", None)
        messages = [item for item in page.data if item.type.endswith("_message")]
        return [Turn(item.type.removesuffix("_message"), text_of(item)) for item in messages]

    def message_with(self, value: Any) -> dict[str, Any]:
        item = ClientToolCallItem(
            id="c1", thread_id="", created_at=THEN, call_id="call_1", name="about", arguments={"value": value}
        )
        return _value_of(item)

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        store: LedgerStore[None] = LedgerStore(ledger)
        await store.save_thread(ThreadMetadata(id=conversation_id, created_at=THEN), None)
        for value in values:
            await store.save_item(conversation_id, _ITEM.validate_python(value), None)

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        store: LedgerStore[None] = LedgerStore(ledger)
        page = await store.load_thread_items(conversation_id, None, 1000, "asc", None)
        return [_value_of(item) for item in page.data]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        store: LedgerStore[None] = LedgerStore(ledger)
        await store.delete_thread(conversation_id, None)
