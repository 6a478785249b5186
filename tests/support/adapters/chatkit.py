"""ChatKit's store, as the checks of adapters drive it: by the calls that its server makes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    InferenceOptions,
    ThreadItem,
    ThreadMetadata,
    UserMessageItem,
    UserMessageTextContent,
)

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.chatkit import LedgerStore
from chatledger.testing import Turn

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


class ChatKitDriver:
    """Makes a thread, and adds items to it."""

    name = "chatkit"
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

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        store: LedgerStore[None] = LedgerStore(ledger)
        await store.delete_thread(conversation_id, None)
