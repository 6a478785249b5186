"""
Contents of Google's Gemini API.

    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Riga"}}}]}
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "Rain."}}}]}

Keys are read as the API writes them (`functionCall`) and as its Python SDK does (`function_call`).
"""

from typing import Any, Final, cast

from .model import (
    ASSISTANT,
    TOOL,
    USER,
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
from .plain import ANY_FILE, list_at, object_at, text_at

NAME: Final = "google"
_CAMEL: Final = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "thought_signature": "thoughtSignature",
    "display_name": "displayName",
}
_OWN_FILES: Final = ("https://generativelanguage.googleapis.com/", "gs://")


def read(data: Any, name: str, source: Any) -> list[Item]:
    """Read a content."""
    if not isinstance(data, dict) or not isinstance(data.get("parts"), list):
        return any_json(data, name, source)
    role = ASSISTANT if data.get("role") == "model" else USER
    parts = cast("list[Any]", data["parts"])
    return [Item(TOOL if type(what := _what(part, role)) is Result else role, what, source, part) for part in parts]


def in_camel(fields: Any) -> dict[str, Any]:
    """Return an object with its keys as the API writes them."""
    return {_CAMEL.get(key, key): value for key, value in object_at(fields).items()}


def _what(part: Any, role: str) -> Text | Reasoning | Call | Result | File | Own:
    if isinstance(part, dict) and len(cast("dict[str, Any]", part)) == 1 and isinstance(text := part.get("text"), str):
        return Text(text)  # as nearly all are
    fields = in_camel(part)
    text, signature = fields.get("text"), text_at(fields, "thoughtSignature")
    if isinstance(text, str):
        if fields.get("thought") is True or (signature and not text):
            return Reasoning(text, NAME, {"thoughtSignature": signature}) if signature else Reasoning(text)
        return Text(text)
    call = in_camel(fields.get("functionCall"))
    if call and role == ASSISTANT:
        origin = NAME if signature else None
        return Call(text_at(call, "id") or None, text_at(call, "name") or "", call.get("args"), None, origin, signature)
    response = in_camel(fields.get("functionResponse"))
    if response and role == USER:
        return _result(response)
    return _file(fields) or Own(NAME, part)


def _result(response: dict[str, Any]) -> Result:
    """Return the result: `output` and `error` of a response are its own, any other object is a value."""
    value, is_error = response.get("response"), False
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        key = next(iter(cast("dict[str, Any]", value)))
        if key in {"output", "error"}:
            value, is_error = value[key], key == "error"
    content: str | list[Text | Json | File | Own] = value if isinstance(value, str) else [Json(value)]
    files = [_file(in_camel(part)) or Own(NAME, part) for part in list_at(response, "parts")]
    if files:
        content = [*([Text(content)] if isinstance(content, str) else content), *files]
    return Result(text_at(response, "id") or None, text_at(response, "name"), content, is_error)


def _file(fields: dict[str, Any]) -> File | None:
    data = in_camel(fields.get("inlineData"))
    if (encoded := text_at(data, "data")) is not None:
        return File(text_at(data, "mimeType") or ANY_FILE, data=encoded, name=text_at(data, "displayName"))
    link = in_camel(fields.get("fileData"))
    uri, media_type, name = (
        text_at(link, "fileUri"),
        text_at(link, "mimeType") or ANY_FILE,
        text_at(link, "displayName"),
    )
    if uri is None:
        return None
    if uri.startswith(_OWN_FILES):
        return File(media_type, file_id=uri, name=name, origin=NAME)
    return File(media_type, url=uri, name=name)


FORM: Final = Form(name=NAME, read=read)
