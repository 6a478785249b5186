r"""
Messages of the OpenAI Chat Completions API.

    {"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Riga\"}"}}]}
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
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
from .plain import ANY_FILE, ANY_IMAGE, list_at, object_at, text_at

NAME: Final = "openai"
AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read(data: Any, name: str, source: Any) -> list[Item]:
    """Read a message."""
    role = data.get("role") if isinstance(data, dict) else None
    if not isinstance(role, str):
        return any_json(data, name, source)
    content, speaker = data.get("content"), text_at(data, "name")
    if role in {TOOL, "function"}:
        call_id = text_at(data, "tool_call_id")
        return [Item(TOOL, Result(call_id, speaker, _result_content(content)), source, data)]
    items: list[Item] = []
    for key in ("reasoning_content", "reasoning"):  # of servers that speak this API: DeepSeek, vLLM, OpenRouter
        if role == ASSISTANT and (text := text_at(data, key)):
            items.append(Item(role, Reasoning(text), source))
            break
    if isinstance(content, str):
        if content:
            items.append(Item(role, Text(content), source, None, speaker))
    elif isinstance(content, list):
        items += [Item(role, _what(block), source, block, speaker) for block in cast("list[Any]", content)]
    if role == ASSISTANT and (len(data) > 2 or "content" not in data):
        _read_answer(data, source, items)
    return items


def _read_answer(data: dict[str, Any], source: Any, items: list[Item]) -> None:
    """Add what only answers of a model have."""
    refusal = text_at(data, "refusal")
    if refusal:
        items.append(Item(ASSISTANT, Refusal(refusal), source))
    if isinstance(data.get("audio"), dict):
        items.append(Item(ASSISTANT, Own(NAME, {"audio": data["audio"]}), source))
    items += [Item(ASSISTANT, _call(call), source, call) for call in list_at(data, "tool_calls")]
    function = data.get("function_call")
    if isinstance(function, dict):  # before `tool_calls`, a message had one call without an id
        items.append(Item(ASSISTANT, _function(None, cast("dict[str, Any]", function)), source))


def _call(call: Any) -> Call | Own:
    fields = object_at(call)
    if fields.get("type") == "custom":
        custom = object_at(fields, "custom")
        return Call(
            text_at(fields, "id") or None, text_at(custom, "name") or "", {"input": text_at(custom, "input") or ""}
        )
    if not isinstance(fields.get("function"), dict):
        return Own(NAME, call)
    return _function(text_at(fields, "id") or None, fields["function"])


def _function(call_id: str | None, function: dict[str, Any]) -> Call:
    name, arguments = text_at(function, "name") or "", function.get("arguments")
    if isinstance(arguments, str):
        return Call(call_id, name, raw=arguments)
    return Call(call_id, name, arguments)  # servers that send an object


def _result_content(content: Any) -> str | list[Text | Json | File | Own]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else [Json(content)]
    found = [_what(block) for block in cast("list[Any]", content)]
    return [Text(what.text) if isinstance(what, Refusal) else what for what in found]


def _what(block: Any) -> Text | Refusal | File | Own:
    fields = object_at(block)
    kind = text_at(fields, "type") or ""
    if kind in {"text", "refusal"} and (text := text_at(fields, kind)) is not None:
        return Text(text) if kind == "text" else Refusal(text)
    inner = object_at(fields, kind)
    if kind == "image_url" and (url := text_at(inner, "url")) is not None:
        return file_of(url, ANY_IMAGE)
    if kind == "input_audio" and (data := text_at(inner, "data")) is not None:
        sound = text_at(inner, "format") or ""
        return File(AUDIO.get(sound, f"audio/{sound}"), data=data)
    if kind == "file":
        return uploaded_or_sent(inner) or Own(NAME, block)
    return Own(NAME, block)


def uploaded_or_sent(inner: Any) -> File | None:
    """Return the file of an object with `file_id`, `file_data` or `file_url`; None where it has none of them."""
    name, file_id = text_at(inner, "filename"), text_at(inner, "file_id")
    if file_id is not None:
        return File(ANY_FILE, file_id=file_id, name=name, origin=NAME)
    url = text_at(inner, "file_data") or text_at(inner, "file_url")
    return None if url is None else file_of(url, ANY_FILE, name)


FORM: Final = Form(name=NAME, read=read)
