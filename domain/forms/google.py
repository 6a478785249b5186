"""
Contents of Google's Gemini API.

    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Riga"}}}]}
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "Rain."}}}]}

Keys are read as the API writes them (`functionCall`) and as its Python SDK does (`function_call`).
"""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from .items import ASSISTANT, TOOL, USER, Call, File, FormItem, Json, Own, Piece, Reasoning, Result, Text, Words
from .model import ANY, Form, Rules, any_json
from .plain import ANY_FILE, list_at, object_at, text_at
from .writing import NO_SIGNATURE, Sources, Writer, WrittenTurn, answers, id_at, object_of, sources_of

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
_ROLES: Final = ("user", "model", "function", None)
_OWN_FILES: Final = ("https://generativelanguage.googleapis.com/", "gs://")


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    if not isinstance(data, dict) or not isinstance(data.get("parts", []), list) or data.get("role") not in _ROLES:
        return any_json(data, name, source)
    role = ASSISTANT if data.get("role") == "model" else USER
    parts = list_at(cast("dict[str, Any]", data), "parts")
    return [FormItem(TOOL if type(what := _what(part, role)) is Result else role, what, source, part) for part in parts]


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
        # `output` and `error` of a response are its own, any other object is a value.
        value, is_error = response.get("response"), False
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            key = next(iter(cast("dict[str, Any]", value)))
            if key in {"output", "error"}:
                value, is_error = value[key], key == "error"
        content: str | list[Piece] = value if isinstance(value, str) else [Json(value)]
        files = [_file(in_camel(part)) or Own(NAME, part) for part in list_at(response, "parts")]
        if files:
            content = [*([Text(content)] if isinstance(content, str) else content), *files]
        return Result(text_at(response, "id") or None, text_at(response, "name"), content, is_error)
    return _file(fields) or Own(NAME, part)


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
    if uri.startswith(_OWN_FILES):  # which the API alone reads
        return File(media_type, file_id=uri, name=name, origin=NAME)
    return File(media_type, url=uri, name=name)


MODEL: Final = "model"


class GoogleWriter(Writer):
    """Writes contents: the calls of an answer in one, directly behind a user's, and their responses in one of nothing else."""

    form = NAME
    has_files = "it has files by URL, data or its own addresses"
    _first_call: FormItem | None = None
    """The first call of a step, which Gemini refuses without a signature."""

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:
        """Whether the API takes them as they came."""
        if any(
            source.data.get("role", USER) not in (USER, MODEL) or not all(source.data["parts"]) for source in sources
        ):
            return False
        for number, turn in enumerate(turns):
            if turn.role != ASSISTANT:
                continue
            if number == 0 and turn.calls and not self._is_behind_user():
                return False
            results = sources_of(turn.results)
            if len(sources_of(turn.items)) > 1 or len(results) > 1:
                return False
            # As many responses as calls, and nothing else beside them (pydantic-ai, `models/google.py`).
            if any(len(source.data["parts"]) != len(turn.results) for source in results):
                return False
        return True

    def _is_behind_user(self) -> bool:
        return bool(self.messages) and self.messages[-1].get("role") != MODEL

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        self.lose_name(turn)
        self._first_call = turn.calls[0] if turn.calls else None
        parts = self._blocks(turn.items)
        if parts and turn.calls and not self._is_behind_user():  # calls anywhere else are refused
            self.messages.append({"role": USER, "parts": [{"text": "Go on."}]})
        if parts:
            self.messages.append({"role": MODEL if turn.role == ASSISTANT else USER, "parts": parts})
        responses = [
            self._response(call, item, result) for _, call, item, result in answers(turn, is_all=turn.has_results)
        ]
        if responses:
            self.messages.append({"role": USER, "parts": responses})

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return {"text": what.text}
        if isinstance(what, Reasoning) and what.origin == NAME and what.opaque:
            return {"text": what.text, "thought": True, **what.opaque}
        return file_part(what) if isinstance(what, File) else None

    def _call_block(self, item: FormItem, call: Call, native: Any) -> dict[str, Any]:
        is_first = item is self._first_call
        if native is not None:
            part = _with_fields(native, "functionCall", id=call.id, name=call.name)
            is_signed = not is_first or "thoughtSignature" in part or "thought_signature" in part
            return part if is_signed else {**part, "thoughtSignature": NO_SIGNATURE}
        function = {"name": call.name, "args": object_of(call)} | ({} if call.id is None else {"id": call.id})
        if call.origin == NAME and call.opaque:
            return {"functionCall": function, "thoughtSignature": call.opaque}
        return {"functionCall": function} | ({"thoughtSignature": NO_SIGNATURE} if is_first else {})

    def _response(self, call: Call, item: FormItem, result: Result) -> dict[str, Any]:
        native = self.native(item)
        if native is not None and isinstance(in_camel(in_camel(native)["functionResponse"]).get("response"), dict):
            return _with_fields(native, "functionResponse", id=call.id, name=call.name)
        values: list[Any] = []
        files: list[Any] = []
        for piece in [Text(result.content)] if isinstance(result.content, str) else result.content:
            if isinstance(piece, Text | Json):
                values.append(piece.text if isinstance(piece, Text) else piece.value)
                continue
            files += self._blocks([FormItem(TOOL, piece, item.source)])
        value = values[0] if len(values) == 1 else values or ""
        response = {"name": call.name, "response": {"error" if result.is_error else "output": value}}
        response |= {} if call.id is None else {"id": call.id}
        return {"functionResponse": response | ({"parts": files} if files else {})}


def _with_fields(part: dict[str, Any], kind: str, **fields: str | None) -> dict[str, Any]:
    """Return a part as it came, but for fields of its call or response."""
    key = kind if kind in part else next(snake for snake, camel in _CAMEL.items() if camel == kind)
    inner = part[key]
    if all(inner.get(name) == value for name, value in fields.items()):
        return part
    changed = {**inner, **fields}
    return {**part, key: {name: value for name, value in changed.items() if name not in fields or value is not None}}


def file_part(file: File) -> dict[str, Any] | None:
    """Return the part for a file; None where it is one of another provider."""
    typed = {} if file.media_type.endswith("/*") else {"mimeType": file.media_type}
    if (file_id := id_at(file, NAME)) is not None:
        return {"fileData": {"fileUri": file_id, **typed}}
    if file.url is None and file.data is None:
        return None
    if file.data is None:
        return {"fileData": {"fileUri": file.url, **typed}}
    return {"inlineData": {"mimeType": file.media_type, "data": file.data}}


FORM: Final = Form(
    name=NAME,
    read=read,
    write=GoogleWriter,
    rules=Rules(ids=ANY, names=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"), needs_ids=False),
)
