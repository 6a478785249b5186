"""Chats to measure with where the user names no file."""

import random
from collections.abc import Iterator
from typing import Final

from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedMessage

_START_MS: Final = 1_700_000_000_000
_TEXT: Final = """
the of and a to in question answer model memory branch rewind station Riga weather plan ticket because could maybe later again
between morning context token stream index river window seven
"""
_WORDS: Final = _TEXT.split()


def generated_chats(chats: int, messages: int) -> Iterator[ImportedChat]:
    """So many chats, each a chain of so many messages of about 200 bytes; always the same."""
    for number in range(chats):
        yield _chat(f"bench-{number:06}", messages, random.Random(number))  # noqa: S311 - words to measure with


def _chat(chat_id: str, length: int, draw: random.Random) -> ImportedChat:
    messages: list[ImportedMessage] = []
    for number in range(length):
        role = "assistant" if number % 2 else "user"
        message_id = f"{chat_id}-{number:06}"
        text = " ".join(draw.choices(_WORDS, k=20))
        messages.append(
            ImportedMessage(
                id=message_id,
                parent_id=messages[-1].id if messages else None,
                name=role,
                data={"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]},
                created_at=_START_MS + number,
            )
        )
    head = messages[-1].id if messages else None
    return ImportedChat(
        id=chat_id,
        user_id="bench",
        title=None,
        metadata=None,
        messages=tuple(messages),
        branches=(ImportedBranch(name="main", head_message_id=head, is_active=True),),
    )
