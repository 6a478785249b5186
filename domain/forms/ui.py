"""
UIMessages.

    {"id": "m2", "role": "assistant", "parts": [
        {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "call_1", "state": "output-available",
         "input": {"city": "Riga"}, "output": "Rain."}]}

One part holds a call and its result. The reader gives the results after the last call of a step, as models make and get them:
behind each call they would make steps of one call each out of parallel calls.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from ..limits import same_json
from .items import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Call,
    File,
    FormItem,
    Json,
    Own,
    Piece,
    Reasoning,
    Result,
    Text,
)
from .model import ANY, Form, Rules, any_json, file_of
from .plain import ANY_FILE, object_at, parsed, text_at
from .writing import Sources, Writer, WrittenTurn, answers, input_of, result_text, url_of

NAME: Final = "ui"
DYNAMIC_TOOL: Final = "dynamic-tool"
TOOL_PREFIX: Final = "tool-"
STEP_START: Final = "step-start"
STEERING: Final = "steering-message"
"""The type of a part that holds what a user said while the assistant was answering."""

_ERROR: Final = "error-text"
_MEDIA: Final = ("image", "audio", "media", "image-data", "file-data")
"""The types of files in outputs, as MCP and the AI SDK have them."""

_DENIED: Final = "Tool execution denied."
_PROVIDERS: Final = {"openai": "responses", "anthropic": "anthropic", "google": "google"}
"""Providers as the AI SDK names them, and the forms of their APIs."""
_PLACES: Final = {
    "file-": "openai",
    "file_": "anthropic",
    "https://generativelanguage.googleapis.com/": "google",
    "gs://": "google",
}
"""Beginnings of ids and addresses that providers give files: the AI SDK takes them for what they are, where a URL stands."""

_OPAQUE: Final = {
    "itemId": "id",
    "reasoningEncryptedContent": "encrypted_content",
    "signature": "signature",
    "redactedData": "data",
    "thoughtSignature": "thoughtSignature",
}
"""The names of opaque fields in the metadata of a provider, and in its API."""


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    parts = data.get("parts") if isinstance(data, dict) else None
    if not isinstance(parts, list):
        return any_json(data, name, source)
    role = text_at(cast("dict[str, Any]", data), "role") or name
    items: list[FormItem] = []
    results: list[FormItem] = []  # of the calls of this step
    for part in cast("list[Any]", parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            items.append(FormItem(role, Own(NAME, part), source, part))
            continue
        if role != USER and (kind == DYNAMIC_TOOL or kind.startswith(TOOL_PREFIX)):
            _read_tool(part, role, source, items, results)
            continue
        if results:  # whatever is no call ends the step
            items += results
            results = []
        if kind == "text":
            items.append(FormItem(role, Text(text_at(part, "text") or ""), source, part))
        elif kind == STEERING:
            # Among instructions it is one: these are left out where a user speaks beside them.
            items += read(part, SYSTEM if role == SYSTEM else USER, source)
        elif kind != STEP_START:
            other = _reasoning(part) if kind == "reasoning" else _file(part) if kind == "file" else None
            items.append(FormItem(role, other or Own(NAME, part), source, part))
    return items + results if results else items


def _reasoning(part: dict[str, Any]) -> Reasoning:
    text = text_at(part, "text") or ""
    for provider, details in object_at(part, "providerMetadata").items():
        fields = {_OPAQUE[key]: value for key, value in object_at(details).items() if key in _OPAQUE and value}
        if fields and provider in _PROVIDERS:
            return Reasoning(text, _PROVIDERS[provider], fields)
    return Reasoning(text)


def _file(part: dict[str, Any]) -> File | None:
    media_type, name = text_at(part, "mediaType") or ANY_FILE, text_at(part, "filename")
    ids = {
        provider: text_at(object_at(details), "fileId")
        for provider, details in object_at(part, "providerMetadata").items()
    }
    ids |= object_at(part, "providerReference")
    copies = {provider: file_id for provider, file_id in ids.items() if isinstance(file_id, str)}
    url = text_at(part, "url")
    if copies and (url is None or ":" not in url):  # an id of a provider may stand where a URL belongs
        origin = next(iter(copies))
        return File(media_type, file_id=copies[origin], name=name, origin=origin, copies=copies)
    if url is None:
        return None
    if copies:
        return msgspec.structs.replace(file_of(url, media_type, name), copies=copies)
    for prefix, provider in _PLACES.items():
        if url.startswith(prefix):
            return File(media_type, file_id=url, name=name, origin=provider)
    return file_of(url, media_type, name)


def _read_tool(part: dict[str, Any], role: str, source: Any, items: list[FormItem], results: list[FormItem]) -> None:
    """Add the call to the items and its result to the results; of a part that no assistant said, the result alone."""
    call_id, kind = text_at(part, "toolCallId"), part["type"]
    name = (text_at(part, "toolName") or "") if kind == DYNAMIC_TOOL else kind.removeprefix(TOOL_PREFIX)
    if role not in {ASSISTANT, TOOL} or call_id is None or part.get("state") == "input-streaming":
        items.append(FormItem(role, Own(NAME, part), source, part))
        return
    if role == ASSISTANT:
        items.append(FormItem(role, _call(part, call_id, name), source, part))
    result = _result(part, call_id, name)
    if result is not None:
        results.append(FormItem(TOOL, result, source, part))


def _call(part: dict[str, Any], call_id: str, name: str) -> Call:
    value, raw = part.get("input"), text_at(part, "rawInput")
    if value is None and "rawInput" in part:
        value = part["rawInput"]
    if raw is not None and value != raw and not same_json(parsed(raw)[0], value):
        raw = None  # somebody changed the input since
    signature = None
    if "callProviderMetadata" in part:
        signature = text_at(object_at(part, "callProviderMetadata", "google"), "thoughtSignature")
    return Call(call_id, name, value, raw, None if signature is None else "google", signature)


def _result(part: dict[str, Any], call_id: str, name: str) -> Result | None:
    """Return the result in a part of a tool; None while there is none."""
    state = part.get("state")
    if state == "output-available":
        output = part.get("output")
        if isinstance(output, str):
            return Result(call_id, name, output)
        is_error = isinstance(output, list) and any(object_at(block).get("type") == _ERROR for block in output)
        return Result(call_id, name, _content(output), is_error)
    if state == "output-error":
        return Result(call_id, name, text_at(part, "errorText") or "", is_error=True)
    approval = object_at(part, "approval")
    if state == "output-denied" or (state == "approval-responded" and approval.get("approved") is False):
        return Result(call_id, name, text_at(approval, "reason") or _DENIED, is_error=True)
    return None


def _content(output: Any) -> str | list[Piece]:
    if isinstance(output, str):
        return output
    if isinstance(output, list) and output:
        contents = [_content_of(block) for block in cast("list[Any]", output)]
        readable = [content for content in contents if content is not None]
        if len(readable) == len(contents):
            return readable
    return [Json(output)]


def _content_of(block: Any) -> Piece | None:
    """Return the content for a part in an output: as this form writes them, and as tools of MCP do."""
    fields = object_at(block)
    kind, text = fields.get("type"), text_at(fields, "text")
    if kind == _ERROR:
        text = text_at(fields, "value")
    if kind in ("text", _ERROR) and text is not None:
        return Text(text)
    if kind == "json" and "value" in fields:
        return Json(fields["value"])
    if kind == "file" and "mediaType" in fields:
        return _file(cast("dict[str, Any]", fields))
    data, media_type = text_at(fields, "data"), text_at(fields, "mimeType") or text_at(fields, "mediaType")
    return File(media_type, data=data) if kind in _MEDIA and data and media_type else None


def parts_of(items: list[FormItem]) -> list[dict[str, Any]]:
    """Return the UIMessage parts for the items of one message; a result whose call is elsewhere has a part of its own."""
    parts: list[dict[str, Any]] = []
    calls: dict[str | None, dict[str, Any]] = {}
    for item in items:
        what = item.what
        if type(what) is Result:
            key = what.call_id if what.call_id is not None else what.name
            call = calls.pop(key, None)
            if call is None:
                head = {"type": DYNAMIC_TOOL, "toolName": what.name or "", "toolCallId": key or ""}
                parts.append(with_result(head, what))
            else:
                call |= with_result(call, what)
        elif type(what) is Call:
            key = what.id if what.id is not None else what.name
            calls[key] = part = call_part(what, key)
            parts.append(part)
        else:
            parts.append(said_part(item))
    return parts


def said_part(item: FormItem) -> dict[str, Any]:
    """Return the part for an item that is neither call nor result."""
    what = item.what
    if type(what) is Reasoning:
        part: dict[str, Any] = {"type": "reasoning", "text": what.text}
        provider = next((name for name, form in _PROVIDERS.items() if form == what.origin), None)
        if provider is None or not what.opaque:
            return part
        keys = {field: key for key, field in _OPAQUE.items()}
        details = {keys[field]: value for field, value in what.opaque.items()}
        return {**part, "providerMetadata": {provider: details}}
    if type(what) is File:
        return file_part(what)
    if type(what) is Own:
        return {"type": f"data-{what.origin}", "data": what.block}
    assert not isinstance(what, Call | Result | Own | File | Reasoning), "calls and results have parts of their own"
    return {"type": "text", "text": what.text}


def file_part(file: File) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "file", "mediaType": file.media_type}
    if file.name is not None:
        part["filename"] = file.name
    if file.file_id is None:
        return {**part, "url": url_of(file)}
    part["url"] = file.file_id
    is_known = any(file.file_id.startswith(prefix) and provider == file.origin for prefix, provider in _PLACES.items())
    return part if is_known else {**part, "providerMetadata": {file.origin: {"fileId": file.file_id}}}


def call_part(call: Call, call_id: str) -> dict[str, Any]:
    """Return the part for a call without its result."""
    part: dict[str, Any] = {
        "type": DYNAMIC_TOOL,
        "toolName": call.name,
        "toolCallId": call_id,
        "state": "input-available",
    }
    part["input"] = input_of(call)
    if call.origin == "google" and call.opaque is not None:
        part["callProviderMetadata"] = {"google": {"thoughtSignature": call.opaque}}
    return part


def with_result(part: dict[str, Any], result: Result) -> dict[str, Any]:
    content = result.content
    if not result.is_error:
        return {**part, "state": "output-available", "output": _output(content)}
    text = result_text(result)
    files = [] if isinstance(content, str) else [piece for piece in content if isinstance(piece, File | Own)]
    if not files:
        return {**part, "state": "output-error", "errorText": text}
    output = [{"type": _ERROR, "value": text}, *map(_output_part, files)]  # the state of an error has no place for them
    return {**part, "state": "output-available", "output": output}


def _output(content: str | list[Piece]) -> Any:
    """Return what an output says, as JSON: a text or a value alone as it is, else a list of parts."""
    if isinstance(content, str):
        return content
    if len(content) == 1 and isinstance(only := content[0], Text | Json):
        return only.text if isinstance(only, Text) else only.value
    return [_output_part(piece) for piece in content]


def _output_part(content: Piece) -> Any:
    if isinstance(content, Text):
        return {"type": "text", "text": content.text}
    if isinstance(content, Json):
        return {"type": "json", "value": content.value}
    return file_part(content) if isinstance(content, File) else content.block


_OF_RESULTS: Final = {"output", "errorText", "preliminary", "approval"}
_ROLES: Final = (SYSTEM, USER, ASSISTANT)


class UIWriter(Writer):
    """Writes UIMessages: what an assistant says until somebody else speaks is one, whose steps are parted by `step-start`."""

    form = NAME

    _answer: dict[str, Any] | None = None

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether the API takes them as they came."""
        return all(source.data.get("role") in _ROLES for source in sources)

    def put(self, sources: Sources) -> None:
        """Give messages of this form as they came, under the ids that they are stored under."""
        self._answer = None
        for source in sources:
            data = source.data
            same = not isinstance(data, dict) or data.get("id") == source.id
            self.messages.append(data if same else {**data, "id": source.id})
            self.ids.add(source.id)

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        if turn.role != ASSISTANT:
            self.lose_name(turn)
            self._answer = None
            role = SYSTEM if turn.role in {SYSTEM, DEVELOPER} else USER
            parts = [part for item in turn.items if (part := self._part(item, role)) is not None]
            if parts:
                self._begin(turn, role, parts)
            return
        parts = self._step(turn)
        if not parts:
            return
        if self._answer is None:
            self._answer = self._begin(turn, ASSISTANT, parts)
        else:
            self._answer["parts"] += [{"type": STEP_START}, *parts]

    def _begin(self, turn: WrittenTurn, role: str, parts: list[Any]) -> dict[str, Any]:
        source = turn.items[0].source
        message_id, number = source.id, 1
        while message_id in self.ids:  # a user spoke in the midst of a message
            number += 1
            message_id = f"{source.id}:{number}"
        self.ids.add(message_id)
        message: dict[str, Any] = {"id": message_id, "role": role, "parts": parts}
        if source.form == NAME and "metadata" in source.data:
            message["metadata"] = source.data["metadata"]
        self.messages.append(message)
        return message

    def _step(self, turn: WrittenTurn) -> list[Any]:
        results = {id(call): (item, result) for call, _, item, result in answers(turn)} if turn.calls else {}
        parts: list[Any] = []
        for item in turn.items:
            what = item.what
            if not isinstance(what, Call):
                part = self._part(item, ASSISTANT)
            else:
                part = self._call(item, what, *results.get(id(item), (None, None)))
            parts += [] if part is None else [part]
        return parts

    def _call(self, call: FormItem, what: Call, item: FormItem | None, result: Result | None) -> dict[str, Any]:
        native = self.native(call)
        part: dict[str, Any] = native or call_part(what, what.id or "")
        if part["toolCallId"] != what.id:
            part = {**part, "toolCallId": what.id}
        if item is None or result is None or (native is not None and item.native is native):
            return part
        self.native(item)
        return with_result({key: value for key, value in part.items() if key not in _OF_RESULTS}, result)

    def _part(self, item: FormItem, role: str) -> Any:
        what, native = item.what, self.native(item)
        kind = str(object_at(native).get("type"))
        # A system has text alone; a user has text, files and data.
        if native is not None and (
            role == ASSISTANT or kind == "text" or (role == USER and kind.startswith(("file", "data-")))
        ):
            return native
        if isinstance(what, Own) or (isinstance(what, File) and role == SYSTEM):
            self.lose(item, "messages of the system are text")
            return None
        return said_part(item)


FORM: Final = Form(name=NAME, read=read, write=UIWriter, rules=Rules(ids=ANY, names=ANY, blank="kept"))
