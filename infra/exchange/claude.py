"""
Claude's data export: `conversations.json`, or the .zip that holds it.

A conversation has `chat_messages` in the order they were written. Since 2025 each names its parent; edits and repeated answers are
then branches, and every leaf gets one. `main` ends at the leaf the export names, else at the last message. Of older files each
message follows the one before it.

Anthropic publishes no schema. What is read here is what exports up to 2026 hold. Of the blocks of a message text, thinking, calls of
tools with their results, images and documents become parts; any other is kept as it is, as a part of type `data-claude`. The text of
an attachment is a text part, as it was part of what the model read. Pages that a text cites are `source-url` parts after it. Dropped:
feedback, timestamps of blocks.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chatledger.domain.chat.import_tree import Located, Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.forms.items import Call
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.forms.reading import parts_of
from chatledger.domain.forms.ui import call_part

from .documents import read_conversations
from .parts import SourceLink, data_part, reasoning_part, source_parts, text_part
from .source import is_id, iso_milliseconds
from .trees import link_chat, notes_of, parent_of, ui_record

_SOURCE: Final = "claude"
_NAMES: Final = {"human": "user"}
_CHAT_FIELDS: Final = ("summary", "model", "is_starred", "project_uuid")
_FILES: Final = ("attachments", "files")


def read_claude(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of an export, in its order. Raises `InvalidValueError` when a .zip is no export at all."""
    for document in read_conversations(path, report, key="chat_messages"):
        what, fields = f"conversation {document.number}", document.fields
        if not isinstance(fields.get("chat_messages"), list):
            document.report.broken(f"{what} has no list of chat_messages; skipped")
        elif is_id(fields.get("uuid"), f"the uuid of {what}", document.report):
            yield _make_chat(fields, document.report)


def _make_chat(fields: Mapping[str, Any], report: Reporter) -> ImportedChat:
    chat_id: str = fields["uuid"]
    what = f"chat {chat_id!r}"
    chat = ImportedChat(
        id=chat_id,
        user_id=text_at(object_at(fields, "account"), "uuid") or _SOURCE,
        title=text_at(fields, "name") or None,
        metadata={"source": _SOURCE} | (notes_of(fields, _CHAT_FIELDS) or {}),
        messages=(),
        branches=(),
        created_at=iso_milliseconds(fields.get("created_at"), f"created_at of {what}", report),
        updated_at=iso_milliseconds(fields.get("updated_at"), f"updated_at of {what}", report),
    )
    leaf = text_at(fields, "current_leaf_message_uuid")
    return link_chat(chat, _records(chat_id, fields["chat_messages"], report), leaf=leaf, report=report)


def _records(chat_id: str, values: list[Any], report: Reporter) -> Iterator[Located]:
    before: str | None = None
    for number, fields in enumerate(map(object_at, values), 1):
        message_id, sender = fields.get("uuid"), fields.get("sender")
        what = f"message {number} of chat {chat_id!r}"
        if not isinstance(message_id, str):
            report.broken(f"{what} has no uuid; skipped")
            continue
        # Older exports name no parents: a chat is a line.
        parent_id = parent_of(fields.get("parent_message_uuid", before))
        before = message_id
        name = _NAMES.get(sender, sender) if isinstance(sender, str) else None
        created_at = iso_milliseconds(fields.get("created_at"), f"created_at of {what}", report)
        yield ui_record(message_id, parent_id, name, _parts(fields), what=what, report=report, created_at=created_at)


def _parts(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for number, value in enumerate(list_at(fields, "content")):
        block = object_at(value)
        if block.get("type") == "tool_result":
            # Older exports have no ids of calls: their results come in the order of the calls.
            key, sought = "toolCallId", block.get("tool_use_id")
            if sought is None:
                key, sought = "toolName", block.get("name")
            waiting = (part for part in parts if part.get(key) == sought and part.get("state") == "input-available")
            if sought is not None and (call := next(waiting, None)) is not None:
                output = block.get("content")
                if block.get("is_error") is True:
                    texts = (text_at(object_at(piece), "text") for piece in list_at(block, "content"))
                    error = output if isinstance(output, str) else "\n".join(text for text in texts if text is not None)
                    call |= {"state": "output-error", "errorText": error}
                else:
                    call |= {"state": "output-available", "output": output}
                continue
        part = _part(value, block, f"{fields['uuid']}-{number}")
        parts += [] if part is None else [part]
        parts += source_parts(_SOURCE, map(_source_link, map(object_at, list_at(block, "citations"))))
    if not parts and (text := text_at(fields, "text")):
        parts.append(text_part(text))
    for attached in [value for key in _FILES for value in list_at(fields, key)]:
        if text := text_at(object_at(attached), "extracted_content"):
            about = {name: item for name, item in attached.items() if name != "extracted_content"}
            parts.append({"type": "text", "text": text, "providerMetadata": {_SOURCE: {"attachment": about}}})
        else:
            parts.append(data_part(_SOURCE, attached))
    return parts


def _part(value: Any, block: Mapping[str, Any], call_id: str) -> dict[str, Any] | None:
    """Return the part for a block; none for an empty text."""
    kind = block.get("type")
    text = block.get(kind) if kind in ("text", "thinking") else None  # it may be a list
    if isinstance(text, str):
        summaries = list_at(block, "summaries") if kind == "thinking" else []
        # Newer models show summaries of what they think, and no more than these.
        text = text or "\n\n".join(filter(None, (text_at(object_at(each), "summary") for each in summaries)))
        details = {"summaries": summaries} if summaries else None
        return (reasoning_part(text, _SOURCE, details) if kind == "thinking" else text_part(text)) if text else None
    name, own_id = text_at(block, "name"), text_at(block, "id")
    if kind == "tool_use" and name is not None:
        call_id = call_id if own_id is None else own_id
        return call_part(Call(call_id, name, block.get("input")), call_id)
    if kind in ("image", "document"):
        (part,) = parts_of("anthropic", {"role": "user", "content": [block]})
        if part["type"] == "file":
            return part
    return data_part(_SOURCE, value)


def _source_link(citation: Mapping[str, Any]) -> SourceLink:
    page = object_at(citation, "details")
    url = text_at(page, "url") or text_at(citation, "url")
    title = text_at(page, "title") or text_at(citation, "title")
    return SourceLink(url, title, text_at(citation, "uuid"), citation.get("start_index"), dict(citation))
