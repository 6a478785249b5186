r"""
Items of the OpenAI Responses API: messages, calls of functions, their outputs, reasoning. One item is one message.

    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Riga\"}"}
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
"""

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
    Refusal,
    Result,
    Text,
    any_json,
    file_of,
)
from .openai import uploaded_or_sent
from .plain import ANY_IMAGE, list_at, object_at, text_at

NAME: Final = "responses"
_TEXTS: Final = {"input_text", "output_text", "text"}


def read(data: Any, name: str, source: Any) -> list[Item]:
    """Read an item."""
    if not isinstance(data, dict):
        return any_json(data, name, source)
    kind, role = data.get("type"), data.get("role")
    if isinstance(role, str) and kind in {None, "message"}:
        content = data.get("content")
        if isinstance(content, str):
            return [Item(role, Text(content), source)] if content else []
        return [Item(role, _what(block), source, block) for block in list_at(data, "content")]
    if not isinstance(kind, str):
        return any_json(data, name, source)
    call_id = text_at(data, "call_id") or None
    if kind == "function_call":
        raw = data.get("arguments")
        call_name = text_at(data, "name") or ""
        call = Call(call_id, call_name, raw=raw) if isinstance(raw, str) else Call(call_id, call_name, raw)
        return [Item(ASSISTANT, call, source, data)]
    if kind in {"function_call_output", "custom_tool_call_output"}:
        return [Item(TOOL, Result(call_id, None, _output(data.get("output"))), source, data)]
    if kind == "custom_tool_call":
        call = Call(call_id, text_at(data, "name") or "", {"input": text_at(data, "input") or ""})
        return [Item(ASSISTANT, call, source, data)]
    if kind == "reasoning":
        return [Item(ASSISTANT, _reasoning(data), source, data)]
    return [Item(TOOL if kind.endswith("_output") else ASSISTANT, Own(NAME, data), source, data)]


def _reasoning(data: dict[str, Any]) -> Reasoning:
    texts = [
        text
        for block in (*list_at(data, "summary"), *list_at(data, "content"))
        if (text := text_at(object_at(block), "text")) is not None
    ]
    opaque = {key: data[key] for key in ("id", "encrypted_content") if data.get(key)}
    return Reasoning("\n".join(texts), NAME if opaque else None, opaque or None)


def _output(output: Any) -> str | list[Text | Json | File | Own]:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        return "" if output is None else [Json(output)]
    found = [_what(block) for block in cast("list[Any]", output)]
    return [Text(what.text) if isinstance(what, Refusal) else what for what in found]


def _what(block: Any) -> Text | Refusal | File | Own:
    fields = object_at(block)
    kind = fields.get("type")
    if kind in _TEXTS and (text := text_at(fields, "text")) is not None:
        return Text(text)
    if kind == "refusal" and (text := text_at(fields, "refusal")) is not None:
        return Refusal(text)
    if kind == "input_image" and (url := text_at(fields, "image_url")) is not None:
        return file_of(url, ANY_IMAGE)
    if kind == "input_image" and (file_id := text_at(fields, "file_id")) is not None:
        return File(ANY_IMAGE, file_id=file_id, origin="openai")
    if kind == "input_file":
        return uploaded_or_sent(fields) or Own(NAME, block)
    return Own(NAME, block)


FORM: Final = Form(name=NAME, read=read)
