"""Conversations that are a list of messages without ids: ids are made of what they say, so that importing again changes nothing."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from chatledger.domain.chat.import_fit import with_floats
from chatledger.domain.chat.import_tree import Located, LostMessage, MessageIds, Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.context.messages import UIMessage
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import plain_text

from .documents import Document

Convert = Callable[[Any, str], UIMessage]
"""Makes a UIMessage of a message and its new id; raises `InvalidValueError` with what is wrong with it."""

_TITLE_CHARACTERS: Final = 60
_ID_BYTES: Final = 12


def make_chat(
    source: str, document: Document, given: Sequence[Any], convert: Convert, metadata: dict[str, Any], report: Reporter
) -> ImportedChat | None:
    """
    Return a conversation with all its messages on `main`; None where there is none, which is reported.

    The id of the chat is a digest of the whole record, so that of two conversations which begin alike neither is taken for the
    other. The id of a message is a digest of it, of the chat and of the messages before it.
    """
    line, what = document.line, f"conversation {document.number}"
    try:
        chat_id = f"{source}-{_digest(document.value)}"
    except (ValueError, OverflowError, RecursionError):
        report.broken(f"{what} holds a value that is nested too deeply; skipped", line=line)
        return None
    records: list[Located] = []
    parent_id: str | None = None
    for number, message in enumerate(given, 1):
        message_id = _digest([chat_id, parent_id, message])
        try:
            made = convert(with_floats(message), message_id)
        except InvalidValueError as error:
            report.broken(f"message {number} of {what}: {error}; skipped", line=line)
            records.append((LostMessage(message_id, parent_id), line))
        else:
            records.append((ImportedMessage(id=message_id, parent_id=parent_id, name=made["role"], data=made), line))
        parent_id = message_id
    messages = link_messages(chat_id, records, ids=MessageIds(), report=report).messages
    if not messages:
        report.broken(f"{what} has no message that can be read; skipped", line=line)
        return None
    return ImportedChat(
        id=chat_id,
        user_id=source,
        title=title_of(messages),
        metadata={"source": source, **metadata},
        messages=messages,
        branches=branch_leaves(messages, main_head=messages[-1].id),
    )


def title_of(messages: Sequence[ImportedMessage]) -> str | None:
    """Return the beginning of what the user said first."""
    first = next((message for message in messages if message.name == "user"), messages[0])
    return " ".join(plain_text(first.data).split())[:_TITLE_CHARACTERS] or None


def _digest(value: Any) -> str:
    text = msgspec.json.encode(with_floats(value), order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
