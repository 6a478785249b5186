"""
Messages of the Anthropic API.

    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "The forecast decides.", "signature": "EqQB"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}]}
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]}
"""

from base64 import b64encode
from typing import Any, Final, cast

from .model import (
    ASSISTANT,
    TOOL,
    Call,
    File,
    Form,
    Item,
    Json,
    Own,
    Reasoning,
    Result,
    Text,
    any_json,
)
from .plain import ANY_FILE, ANY_IMAGE, list_at, object_at, text_at

NAME: Final = "anthropic"


def read(data: Any, name: str, source: Any) -> list[Item]:
    """Read a message."""
    role = data.get("role") if isinstance(data, dict) else None
    if not isinstance(role, str):
        return any_json(data, name, source)
    content = data.get("content")
    if isinstance(content, str):
        return [Item(role, Text(content), source)] if content else []
    items: list[Item] = []
    for block in list_at(data, "content"):
        fields = block if isinstance(block, dict) else {}
        kind = fields.get("type")
        if kind == "text":
            items.append(Item(role, Text(text_at(fields, "text") or ""), source, block))
        elif kind == "tool_use" and role == ASSISTANT:
            call = Call(text_at(fields, "id") or None, text_at(fields, "name") or "", fields.get("input"))
            items.append(Item(role, call, source, block))
        elif kind == "tool_result" and role != ASSISTANT:
            content = _result_content(fields.get("content"))
            result = Result(text_at(fields, "tool_use_id") or None, None, content, fields.get("is_error") is True)
            items.append(Item(TOOL, result, source, block))
        else:
            items.append(Item(role, _other(block, role), source, block))
    return items


def _other(block: Any, role: str) -> Reasoning | File | Own:
    fields = object_at(block)
    kind = fields.get("type")
    if role == ASSISTANT and kind == "thinking":
        signature = text_at(fields, "signature")
        text = text_at(fields, "thinking") or ""
        return Reasoning(text, NAME, {"signature": signature}) if signature else Reasoning(text)
    if role == ASSISTANT and kind == "redacted_thinking":
        return Reasoning("", NAME, {"data": fields.get("data")})
    if kind in {"image", "document"}:
        return _file(fields, ANY_IMAGE if kind == "image" else ANY_FILE) or Own(NAME, block)
    return Own(NAME, block)


def _file(fields: Any, any_type: str) -> File | None:
    source, name = object_at(fields, "source"), text_at(fields, "title")
    kind, media_type = source.get("type"), text_at(source, "media_type") or any_type
    data, url, file_id = (text_at(source, key) for key in ("data", "url", "file_id"))
    if kind == "base64" and data is not None:
        return File(media_type, data=data, name=name)
    if kind == "text" and data is not None:
        return File("text/plain", data=b64encode(data.encode("utf-8", "replace")).decode(), name=name)
    if kind == "url" and url is not None:
        return File("application/pdf" if any_type == ANY_FILE else any_type, url=url, name=name)
    if kind == "file" and file_id is not None:
        return File(any_type, file_id=file_id, name=name, origin=NAME)
    return None


def _result_content(content: Any) -> str | list[Text | Json | File | Own]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else [Json(content)]
    found: list[Text | Json | File | Own] = []
    for block in cast("list[Any]", content):
        fields = object_at(block)
        text = text_at(fields, "text") if fields.get("type") == "text" else None
        other = None if text is not None else _other(block, TOOL)
        assert not isinstance(other, Reasoning), "only assistants think"
        found.append(Text(text or "") if other is None else other)
    return found


FORM: Final = Form(name=NAME, read=read)
