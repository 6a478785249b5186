"""
Claude's data export: `conversations.json`, or the .zip that holds it.

A conversation has `chat_messages` in the order they were written. Since 2025 each names its parent; edits and repeated answers are
then branches, and every leaf gets one. `main` ends at the leaf the export names, else at the last message. Of older files each
message follows the one before it.

Anthropic publishes no schema. What is read here is what exports up to 2026 hold. Of the blocks of a message text, thinking, calls of
tools with their results, images and documents become parts; any other is kept as it is, as a part of type `data-claude`. The text of
an attachment is a text part, as it was part of what the model read. Dropped: citations, feedback, timestamps of blocks, projects.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from chatledger.domain.chat.import_tree import Located, LostMessage, Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.forms.items import Call
from chatledger.domain.forms.reading import parts_of
from chatledger.domain.forms.ui import call_part
from chatledger.domain.values import UI

from .documents import list_of, object_of, read_conversations
from .source import is_id, iso_milliseconds

_SOURCE: Final = "claude"
_DATA_TYPE: Final = "data-claude"
_NAMES: Final = {"human": "user"}
_NO_PARENT: Final = {"00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000", ""}
_FILES: Final = ("attachments", "files")


def read_claude(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of an export, in its order. Raises `InvalidValueError` when a .zip is no export at all."""
    for document in read_conversations(path, report, key="chat_messages"):
        what, fields = f"conversation {document.number}", object_of(document)
        if not isinstance(fields.get("chat_messages"), list):
            document.report.broken(f"{what} has no list of chat_messages; skipped")
        elif is_id(fields.get("uuid"), f"the uuid of {what}", document.report):
            yield _make_chat(fields, document.report)


def _make_chat(fields: dict[str, Any], report: Reporter) -> ImportedChat:
    chat_id: str = fields["uuid"]
    linked = link_messages(chat_id, _records(chat_id, fields["chat_messages"], report), report=report)
    messages, instead = linked
    leaf = fields.get("current_leaf_message_uuid")
    leaf = instead.get(leaf, leaf) if isinstance(leaf, str) else None
    if leaf not in {message.id for message in messages}:
        leaf = messages[-1].id if messages else None
    name, account = fields.get("name"), fields.get("account")
    owner = cast("dict[str, Any]", account).get("uuid") if isinstance(account, dict) else None
    summary = fields.get("summary")
    return ImportedChat(
        id=chat_id,
        user_id=owner if isinstance(owner, str) and owner else _SOURCE,
        title=name if isinstance(name, str) and name else None,
        metadata={"source": _SOURCE} | ({"summary": summary} if isinstance(summary, str) and summary else {}),
        messages=messages,
        branches=branch_leaves(messages, main_head=leaf),
        created_at=_time(fields, f"chat {chat_id!r}", "created_at", report),
        updated_at=_time(fields, f"chat {chat_id!r}", "updated_at", report),
    )


def _records(chat_id: str, given: list[Any], report: Reporter) -> Iterator[Located]:
    before: str | None = None
    for number, value in enumerate(given, 1):
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        message_id, sender = fields.get("uuid"), fields.get("sender")
        what = f"message {number} of chat {chat_id!r}"
        if not isinstance(message_id, str):
            report.broken(f"{what} has no uuid; skipped")
            continue
        named = fields.get("parent_message_uuid", before)
        parent_id = named if isinstance(named, str) and named not in _NO_PARENT else None
        before = message_id
        if not isinstance(sender, str):
            report.broken(f"{what} has no sender; skipped")
            yield LostMessage(message_id, parent_id), None
            continue
        name = _NAMES.get(sender, sender)
        yield (
            ImportedMessage(
                id=message_id,
                parent_id=parent_id,
                name=name,
                data={"id": message_id, "role": name, "parts": _parts(fields)},
                form=UI,
                created_at=_time(fields, what, "created_at", report),
            ),
            None,
        )


def _parts(fields: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for number, value in enumerate(list_of(fields.get("content"))):
        block = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if block.get("type") == "tool_result":
            # Older exports have no ids of calls: their results come in the order of the calls.
            key, sought = "toolCallId", block.get("tool_use_id")
            if sought is None:
                key, sought = "toolName", block.get("name")
            waiting = (part for part in parts if part.get(key) == sought and part.get("state") == "input-available")
            if sought is not None and (call := next(waiting, None)) is not None:
                _answer(call, block)
                continue
        part = _part(value, block, f"{fields['uuid']}-{number}")
        if part is not None:
            parts.append(part)
    text = fields.get("text")
    if not parts and isinstance(text, str) and text:
        parts.append({"type": "text", "text": text})
    return [*parts, *_attached(fields)]


def _part(value: Any, block: dict[str, Any], call_id: str) -> dict[str, Any] | None:
    """Return the part for a block; none for an empty text."""
    kind = block.get("type")
    text = block.get(kind) if kind in ("text", "thinking") else None  # it may be a list
    if isinstance(text, str):
        return {"type": "text" if kind == "text" else "reasoning", "text": text} if text else None
    name = block.get("name")
    if kind == "tool_use" and isinstance(name, str):
        given_id = block.get("id")
        call_id = given_id if isinstance(given_id, str) else call_id
        return call_part(Call(call_id, name, block.get("input")), call_id)
    if kind in ("image", "document"):
        (part,) = parts_of("anthropic", {"role": "user", "content": [block]})
        if part["type"] == "file":
            return part
    return {"type": _DATA_TYPE, "data": value}


def _answer(call: dict[str, Any], block: dict[str, Any]) -> None:
    """Put the result of a call into its part."""
    content = block.get("content")
    if block.get("is_error") is True:
        call |= {"state": "output-error", "errorText": content if isinstance(content, str) else _texts(content)}
    else:
        call |= {"state": "output-available", "output": content}


def _texts(content: Any) -> str:
    texts = (cast("dict[str, Any]", block).get("text") for block in list_of(content) if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _attached(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in _FILES:
        for value in list_of(fields.get(key)):
            file = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            text = file.get("extracted_content")
            if isinstance(text, str) and text:
                about = {name: item for name, item in file.items() if name != "extracted_content"}
                yield {"type": "text", "text": text, "providerMetadata": {_SOURCE: {"attachment": about}}}
            else:
                yield {"type": _DATA_TYPE, "data": value}


def _time(fields: dict[str, Any], what: str, key: str, report: Reporter) -> int | None:
    return iso_milliseconds(fields.get(key), f"{key} of {what}", report)
