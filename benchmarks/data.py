"""What is stored: the same conversations for everybody."""

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from chatledger import Message, NewMessage

START_MS = 1_700_000_000_000
_WORDS = [
    "alpha",
    "river",
    "window",
    "seven",
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "question",
    "answer",
    "model",
    "memory",
    "branch",
    "rewind",
    "station",
    "Riga",
    "weather",
    "plan",
    "ticket",
    "because",
    "could",
    "maybe",
    "later",
    "again",
    "between",
    "morning",
    "número",
    "größer",
    "漢字",
    "context",
    "token",
    "stream",
    "index",
]


class Conversations:
    """Makes messages of about 200 bytes as JSON, UIMessages with one text part; equal seeds make equal messages."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def message(self) -> NewMessage:
        """The next message."""
        return next(self.messages(1))

    def messages(self, count: int) -> Iterator[NewMessage]:
        """The next so many messages."""
        for _ in range(count):
            number = self._count
            self._count += 1
            message_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
            role = "assistant" if number % 2 else "user"
            text = self.text(number)
            data = {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}
            yield NewMessage(role, data, id=message_id, created_at=START_MS + number)

    def text(self, number: int) -> str:
        """The text of a message, given how many there are before it."""
        del number
        return " ".join(self._random.choices(_WORDS, k=15))


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
