"""Conversations whose messages name their parents: what readers of several exports share."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from chatledger.domain.chat.import_tree import Located, LostMessage, Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.forms.plain import text_at
from chatledger.domain.values import UI

from .parts import Part

_NO_PARENT: Final = {"00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000", ""}
"""The ids that Claude and LibreChat give the parent of a first message."""


def link_chat(
    chat: ImportedChat, records: Iterable[Located], *, leaf: str | None = None, report: Reporter
) -> ImportedChat:
    """Return the chat with these messages: `main` ends at the leaf that is named, else at the last message, and every other leaf has a branch."""
    messages, instead = link_messages(chat.id, records, report=report)
    head = None if leaf is None else instead.get(leaf, leaf)
    if head not in {message.id for message in messages}:
        head = messages[-1].id if messages else None
    return msgspec.structs.replace(chat, messages=messages, branches=branch_leaves(messages, main_head=head))


def has_messages(chat: ImportedChat, report: Reporter) -> Iterator[ImportedChat]:
    """Yield the chat, if any message of it was read; one of nothing but broken ones is reported, and would stand empty in lists."""
    if chat.messages:
        yield chat
    else:
        report.broken(f"chat {chat.id!r} has no message that can be read; skipped")


def parent_of(parent: Any) -> str | None:
    """Return the id of a parent; None where it stands for none."""
    return parent if isinstance(parent, str) and parent not in _NO_PARENT else None


def ui_record(
    message_id: str,
    parent_id: str | None,
    name: str | None,
    parts: list[Part],
    *,
    what: str,
    report: Reporter,
    **fields: Any,
) -> Located:
    """Return the record of a UIMessage; without the name of who said it, it is lost, which is reported."""
    if name is None:
        report.broken(f"{what} has no sender; skipped")
        return LostMessage(message_id, parent_id), None
    data = {"id": message_id, "role": name, "parts": parts}
    return ImportedMessage(id=message_id, parent_id=parent_id, name=name, data=data, form=UI, **fields), None


def notes_of(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any] | None:
    """Return what an export says beside a message, under these names; None where it says nothing."""
    return {name: fields[name] for name in names if fields.get(name) not in (None, "", [], {})} or None


def title_of(fields: Mapping[str, Any]) -> str | None:
    return text_at(fields, "title") or None
