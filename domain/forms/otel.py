"""
Messages as the GenAI conventions of OpenTelemetry have them in `gen_ai.input.messages` and `gen_ai.output.messages`.

    {"role": "user", "parts": [{"type": "text", "content": "Rain in Riga?"}]}
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Riga"}}]}
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "rainy"}]}

They are in development there: `result` was `response` before, and further types of parts are allowed.
"""

from collections.abc import Iterable
from typing import Any, Final

from .items import ASSISTANT, TOOL, Call, File, FormItem, Json, Own, Reasoning, Refusal, Result, Text, What
from .model import Form, call_of, contents_of
from .plain import list_at, object_at, text_at

NAME: Final = "otel"


def _read_part(part: Any) -> What:
    fields = object_at(part)
    kind, content = text_at(fields, "type"), text_at(fields, "content")
    media_type = text_at(fields, "mime_type") or f"{text_at(fields, 'modality') or 'application'}/*"
    if kind == "text" and content is not None:
        return Text(content)
    if kind == "reasoning" and content is not None:
        return Reasoning(content)
    if kind == "tool_call" and "name" in fields:
        return call_of(text_at(fields, "id"), text_at(fields, "name"), fields.get("arguments", {}))
    if kind == "tool_call_response":
        result = fields["result"] if "result" in fields else fields.get("response")
        return Result(text_at(fields, "id"), None, contents_of(result, lambda value: Own(NAME, value)))
    if kind == "blob" and content is not None:
        return File(media_type, data=content)
    if kind == "uri" and "uri" in fields:
        return File(media_type, url=text_at(fields, "uri"))
    if kind == "file" and "file_id" in fields:
        return File(media_type, file_id=text_at(fields, "file_id"))
    return Own(NAME, part)


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    """Read a message; what is no part of the conventions comes as its own."""
    fields = object_at(data)
    role = text_at(fields, "role") or name
    items: list[FormItem] = []
    for part in list_at(fields, "parts"):
        what = _read_part(part)
        items.append(FormItem(TOOL if isinstance(what, Result) else role, what, source, part, text_at(fields, "name")))
    return items


def message_of(items: Iterable[FormItem], role: str) -> dict[str, Any]:
    return {"role": role, "parts": [_part_of(item.what) for item in items]}


def _part_of(what: What) -> dict[str, Any]:
    if isinstance(what, Text | Refusal):
        return {"type": "text", "content": what.text}
    if isinstance(what, Reasoning):
        return {"type": "reasoning", "content": what.text}
    if isinstance(what, Call):
        return {
            "type": "tool_call",
            "id": what.id,
            "name": what.name,
            "arguments": what.raw if what.raw is not None else what.input or {},
        }
    if isinstance(what, Result):
        content = what.content if isinstance(what.content, str) else [_content_of(piece) for piece in what.content]
        return {"type": "tool_call_response", "id": what.call_id, "result": content}
    if isinstance(what, File):
        about = {"mime_type": what.media_type, "modality": what.media_type.partition("/")[0]}
        if what.data is not None:
            return {"type": "blob", "content": what.data, **about}
        return (
            {"type": "uri", "uri": what.url, **about}
            if what.url
            else {"type": "file", "file_id": what.file_id, **about}
        )
    return {"type": what.origin, "content": what.block}


def _content_of(piece: Any) -> Any:
    return piece.value if isinstance(piece, Json) else _part_of(piece)


FORM: Final = Form(name=NAME, read=read, role=lambda data: text_at(object_at(data), "role") or ASSISTANT)
