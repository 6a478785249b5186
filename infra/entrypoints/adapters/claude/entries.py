"""
Entries of a transcript: lines that Claude writes, kept as they are, and what they say as messages that all others read.

    {"type": "user", "uuid": "a1...", "parentUuid": null, "sessionId": "...", "timestamp": "2026-11-20T10:00:00.000Z",
     "message": {"role": "user", "content": "Hello"}}

What the user and the assistant said are turns. Everything else (summaries, snapshots of files, progress, what the client tells
the model by itself) is bookkeeping: kept, in order, and nothing that others would read.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast
from uuid import UUID, uuid5

from chatledger.domain.context.formats.anthropic import ui_of_anthropic
from chatledger.domain.context.messages import UIMessage, object_at
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import data_copy
from chatledger.domain.values import Message, NewMessage

from ....ledger.drafts import new_id

FORM: Final = "claude"
_TEXT_FORM: Final = "claude-text"
"""Of entries that have what the ledger does not store as JSON, such as half of a character: they are kept as text."""
BOOKKEEPING: Final = "bookkeeping"
"""The name of messages that keep bookkeeping."""
BOOKKEEPING_BRANCH: Final = "claude-bookkeeping"
_SPEAKERS: Final = ("user", "assistant")
_MADE_FROM: Final = UUID("6f0c3f3e-5a83-4c1b-9d0e-0f5c2b7a9e11")
_MAX_TITLE: Final = 100


class Draft(NamedTuple):
    """An entry to be appended: the message that keeps it, without its parent, and what tells where it goes."""

    message: NewMessage
    entry: Mapping[str, Any]
    uuid: str | None
    is_turn: bool
    is_aside: bool
    """Whether it is of a conversation beside the main one of its transcript."""


def draft_of_entry(given: Mapping[str, Any], chat_id: str, *, is_main: bool) -> Draft:
    """
    Return the draft of an entry; with a `uuid` its message has an id made of that.

    Args:
        given: The entry, which is not changed.
        chat_id: The chat of the transcript.
        is_main: Whether it is the main transcript of a session, in which there may be conversations of subagents.
    """
    uuid = given.get("uuid")
    uuid = uuid if isinstance(uuid, str) and uuid else None
    message_id = f"{chat_id}:{uuid or new_id()}"
    created_at = entry_ms(given)
    try:
        entry = cast("dict[str, Any]", data_copy(dict(given), "an entry"))
    except InvalidValueError:
        kept = native_message(
            _TEXT_FORM, json.dumps(given), id=message_id, role=BOOKKEEPING, parts=[], created_at=created_at
        )
        return Draft(kept, given, uuid, is_turn=False, is_aside=False)
    said = _said(entry, message_id)
    parts: list[dict[str, Any]] = [] if said is None else said["parts"]
    role: str = BOOKKEEPING if said is None else said["role"]
    message = native_message(
        FORM,
        entry,
        id=message_id,
        role=role,
        parts=parts,
        created_at=created_at,
        metadata=None if said is None else object_at(said, "metadata"),
    )
    is_aside = is_main and entry.get("isSidechain") is True
    return Draft(message, entry, uuid, is_turn=said is not None, is_aside=is_aside)


def _said(entry: Mapping[str, Any], message_id: str) -> UIMessage | None:
    """The UIMessage for a turn; None for bookkeeping."""
    message = object_at(entry, "message")
    if entry.get("type") not in _SPEAKERS or entry.get("isMeta") or entry.get("teamName"):
        return None
    try:
        return ui_of_anthropic(message, message_id)
    except InvalidValueError:
        return None


def entry_of(message: Message) -> dict[str, Any] | None:
    """Return the entry that a message keeps; None when it keeps none, or its parts were changed since."""
    found: Any = native_of(message, FORM)
    if found is None:
        text = native_of(message, _TEXT_FORM)
        found = json.loads(text) if isinstance(text, str) else None
    return cast("dict[str, Any] | None", found)


def is_bookkeeping(message: Message) -> bool:
    """Whether a message keeps bookkeeping."""
    return message.name == BOOKKEEPING and entry_of(message) is not None


def uuid_of(message: Message) -> str:
    """Return the `uuid` of the (last) entry for a message: its own, or one made from the id of the message."""
    entry = entry_of(message)
    own = None if entry is None else entry.get("uuid")
    if isinstance(own, str) and own:
        return own
    last = message.id.rpartition(":")[2]
    try:
        return str(UUID(last))
    except ValueError:
        return str(uuid5(_MADE_FROM, message.id))


def uuid_before(uuid: str, number: int) -> str:
    """Return the `uuid` of the entry that comes so many before the last one for a message."""
    return str(uuid5(_MADE_FROM, f"{uuid}:{number}"))


def is_result(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has results of tools."""
    content = object_at(entry, "message").get("content")
    return (
        entry.get("type") == "user"
        and isinstance(content, list)
        and any(
            object_at(block).get("type") == "tool_result"
            for block in cast("list[Any]", content)
            if isinstance(block, Mapping)
        )
    )


def answer_id(entry: Mapping[str, Any]) -> str | None:
    """Return the id of the answer of the API that an assistant's entry is a part of."""
    found = object_at(entry, "message").get("id")
    return found if entry.get("type") == "assistant" and isinstance(found, str) else None


def title_in(draft: Draft) -> tuple[str | None, bool]:
    """Return a title for the chat, and whether it was given as one: by a user or a model, or the text of a prompt."""
    for key in ("customTitle", "aiTitle"):
        given = draft.entry.get(key)
        if isinstance(given, str) and given.strip() and draft.message.name == BOOKKEEPING:
            return _title(given), True
    if not draft.is_turn or draft.message.name != "user" or draft.is_aside:
        return None, False
    parts = cast("list[dict[str, Any]]", draft.message.data["parts"])
    return _title(" ".join(str(part["text"]) for part in parts if part.get("type") == "text")), False


def _title(text: str) -> str | None:
    readable = text.encode(errors="ignore").decode()
    return " ".join(readable.replace("\0", "").split())[:_MAX_TITLE] or None


def entry_ms(entry: Mapping[str, Any]) -> int | None:
    """Return the time of an entry in ms; None where it has none."""
    written = entry.get("timestamp")
    try:
        return int(datetime.fromisoformat(written).timestamp() * 1000) if isinstance(written, str) else None
    except (ValueError, OverflowError):
        return None


def iso_time(at_ms: int) -> str:
    """Return a time as entries have it, such as `2026-11-20T10:00:00.000Z`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
