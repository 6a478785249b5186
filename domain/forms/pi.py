"""
Entries of the sessions of pi: messages of its own, each with the `id` of the entry and the `parentId` of the one that it follows.

    {"type": "message", "id": "4fadbeec", "parentId": "b915130c", "timestamp": "2026-11-20T10:00:00.000Z",
     "message": {"role": "user", "content": [{"type": "text", "text": "Hi"}]}}

All other entries are bookkeeping. A message may be a list of entries: bookkeeping, and what was said last.
"""

from typing import Any, Final

from .claude_code import BOOKKEEPING, SEARCHED_OUTPUT
from .items import ASSISTANT, TOOL, USER, Call, File, FormItem, Own, Piece, Reasoning, Result, Text
from .model import Form
from .plain import last_line, list_at, object_at, text_at

NAME: Final = "pi"


def _what(block: Any) -> Text | Reasoning | Call | File | Own:
    fields = object_at(block)
    kind, text = fields.get("type"), text_at(fields, "text")
    if kind == "text" and text is not None:
        return Text(text)
    if kind == "thinking":
        return Reasoning(text_at(fields, "thinking") or "")
    if kind == "toolCall":
        return Call(text_at(fields, "id"), text_at(fields, "name") or "", object_at(fields, "arguments"))
    if kind == "image" and (data := text_at(fields, "data")) is not None:
        return File(text_at(fields, "mimeType") or "image/*", data=data)
    return Own(NAME, block)


def read(data: Any, name: str, source: Any) -> list[FormItem]:  # noqa: ARG001 - an entry says its role
    entry = last_line(data)
    message = object_at(entry, "message") if entry.get("type") == "message" else {}
    role, content = message.get("role"), message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list_at(message, "content")
    if role == "toolResult":
        pieces: list[Piece] = [what for block in blocks if isinstance(what := _what(block), Text | File | Own)]
        call_id, tool = text_at(message, "toolCallId"), text_at(message, "toolName")
        return [FormItem(TOOL, Result(call_id, tool, pieces, message.get("isError") is True), source, message)]
    if role == "bashExecution" and not message.get("excludeFromContext"):
        text = f"$ {message.get('command')}\n{message.get('output')}"
        return [FormItem(USER, Text(text), source)]
    if role not in (USER, ASSISTANT):
        return []
    return [FormItem(role, _what(block), source, block) for block in blocks]


# What has no items is bookkeeping, and says no role.
FORM: Final = Form(name=NAME, read=read, role=lambda _: None, unsaid=BOOKKEEPING, searched_output=SEARCHED_OUTPUT)
