"""Entries of a transcript, lines that Claude writes: one is one message, as it came."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, cast
from uuid import UUID, uuid5

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.claude_code import BOOKKEEPING, NAME
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.forms.reading import name_of, text_of
from chatledger.domain.limits import data_copy
from chatledger.domain.values import Message, NewMessage

from ....ledger.drafts import new_id

BOOKKEEPING_BRANCH: Final = "claude-bookkeeping"
_AS_TEXT: Final = "chatledgerJson"
"""The key of an entry as JSON text in the one that is stored of it: it has what data of messages have not, such as too many levels."""
_MADE_FROM: Final = UUID("6f0c3f3e-5a83-4c1b-9d0e-0f5c2b7a9e11")
_MAX_TITLE: Final = 100


class EntryDraft(NamedTuple):
    """An entry to be appended: the message that keeps it, without its parent, and what tells where it goes."""

    message: NewMessage
    entry: Mapping[str, Any]
    uuid: str | None
    is_aside: bool
    """Whether it is of a conversation beside the main one of its transcript."""

    @property
    def is_turn(self) -> bool:
        """Whether it is something that was said."""
        return self.message.name != BOOKKEEPING


def draft_of_entry(entry: Mapping[str, Any], chat_id: str, *, is_main: bool) -> EntryDraft:
    """Return the draft of an entry; with a `uuid` its message has an id made of that. Only a main transcript has subagents beside it."""
    uuid, written = text_at(entry, "uuid") or None, text_at(entry, "timestamp")
    try:
        data = cast("dict[str, Any]", data_copy(dict(entry), "an entry"))
    except InvalidValueError:  # it is loaded as it was all the same: Claude may read what JSON of a log cannot hold
        data = {"type": BOOKKEEPING, _AS_TEXT: json.dumps(entry)}
    try:
        created_at = None if written is None else int(datetime.fromisoformat(written).timestamp() * 1000)
    except (ValueError, OverflowError):
        created_at = None
    message = NewMessage(name_of(data, NAME), data, NAME, id=f"{chat_id}:{uuid or new_id()}", created_at=created_at)
    return EntryDraft(message, entry, uuid, is_aside=is_main and data.get("isSidechain") is True)


def entry_of(message: Message) -> dict[str, Any] | None:
    """Return the entry that a message is; None when it is none."""
    if message.form != NAME:
        return None
    entry: dict[str, Any] = message.data
    return json.loads(entry[_AS_TEXT]) if _AS_TEXT in entry else entry


def is_bookkeeping(message: Message) -> bool:
    """Whether a message is bookkeeping."""
    return message.name == BOOKKEEPING and message.form == NAME


def uuid_of(message: Message) -> str:
    """Return the `uuid` of the (last) entry for a message: its own, or one made from the id of the message."""
    own = text_at(object_at(entry_of(message)), "uuid")
    if own:
        return own
    last = message.id.rpartition(":")[2]
    try:
        return str(UUID(last))
    except ValueError:
        return str(uuid5(_MADE_FROM, message.id))


def uuid_before(uuid: str, number: int) -> str:
    """Return the `uuid` of the entry that comes so many before the last one for a message."""
    return str(uuid5(_MADE_FROM, f"{uuid}:{number}")) if number else uuid


def is_result(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has results of tools."""
    blocks = list_at(object_at(entry, "message"), "content")
    return entry.get("type") == "user" and any(object_at(block).get("type") == "tool_result" for block in blocks)


def answer_id(entry: Mapping[str, Any]) -> str | None:
    """Return the id of the answer of the API that an assistant's entry is a part of."""
    return text_at(object_at(entry, "message"), "id") if entry.get("type") == "assistant" else None


def title_in(draft: EntryDraft) -> tuple[str | None, bool]:
    """Return a title for the chat, and whether it was given as one: by a user or a model, or the text of a prompt."""
    for key in ("customTitle", "aiTitle"):
        title = text_at(draft.entry, key)
        if title is not None and title.strip() and not draft.is_turn:
            return _title(title), True
    if draft.message.name != "user" or draft.is_aside:
        return None, False
    return _title(text_of(NAME, draft.message.data)), False


def _title(text: str) -> str | None:
    readable = text.encode(errors="ignore").decode()
    return " ".join(readable.replace("\0", "").split())[:_MAX_TITLE] or None
