"""Stored data, and how answers are compared."""

from collections.abc import Sequence
from typing import Any

from chatledger import Message

START_MS = 1_700_000_000_000
"""When the first message of every conversation was made."""


def as_rows(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of ours as the peer gives its own."""
    return [
        {
            "id": message.id,
            "chatId": message.chat_id,
            "parentId": message.parent_id,
            "name": message.name,
            "type": message.type,
            "data": message.data,
            "createdAt": message.created_at,
        }
        for message in messages
    ]
