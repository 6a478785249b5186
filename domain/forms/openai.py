r"""
Messages of the OpenAI Chat Completions API.

    {"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Riga\"}"}}]}
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

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
    Reasoning,
    Refusal,
    Result,
    Text,
    Words,
)
from .model import TOOL_NAME, Form, Rules, any_json, call_of, contents_of, file_of
from .plain import ANY_FILE, ANY_IMAGE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, arguments_of, id_at, result_text, url_of

NAME: Final = "openai"
AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    role = data.get("role") if isinstance(data, dict) else None
    if not isinstance(role, str):
        return any_json(data, name, source)
    content, speaker = data.get("content"), text_at(data, "name")
    if not isinstance(content, str | list | None):
        return any_json(data, name, source)
    if role in {TOOL, "function"}:
        call_id = text_at(data, "tool_call_id")
        return [FormItem(TOOL, Result(call_id, speaker, contents_of(content, what_of)), source, data)]
    items: list[FormItem] = []
    for key in ("reasoning_content", "reasoning"):  # of servers that speak this API: DeepSeek, vLLM, OpenRouter
        if role == ASSISTANT and (text := text_at(data, key)):
            items.append(FormItem(role, Reasoning(text), source))
            break
    if isinstance(content, str):
        if content:
            items.append(FormItem(role, Text(content), source, None, speaker))
    elif isinstance(content, list):
        items += [FormItem(role, what_of(block), source, block, speaker) for block in cast("list[Any]", content)]
    if role == ASSISTANT and (len(data) > 2 or "content" not in data):  # a plain text is not looked through
        # What only answers of a model have.
        refusal = text_at(data, "refusal")
        if refusal:
            items.append(FormItem(ASSISTANT, Refusal(refusal), source))
        if isinstance(data.get("audio"), dict):
            items.append(FormItem(ASSISTANT, Own(NAME, {"audio": data["audio"]}), source))
        items += [FormItem(ASSISTANT, _call(call), source, call) for call in list_at(data, "tool_calls")]
        function = data.get("function_call")
        if isinstance(function, dict):  # before `tool_calls`, a message had one call without an id
            items.append(FormItem(ASSISTANT, _function(None, object_at(function)), source))
    return items


def _call(call: Any) -> Call:
    fields = object_at(call)
    call_id, kind = text_at(fields, "id"), text_at(fields, "type") or "function"
    inner = object_at(fields, kind) or object_at(fields, "function")
    if not inner:
        return Call(call_id, "", dict(fields) or call)
    if kind == "custom":
        return Call(call_id, text_at(inner, "name") or "", {"input": text_at(inner, "input") or ""})
    return _function(call_id, inner)


def _function(call_id: str | None, function: Mapping[str, Any]) -> Call:
    return call_of(call_id, text_at(function, "name"), function.get("arguments"))


def what_of(block: Any) -> Text | Refusal | File | Own:
    fields = object_at(block)
    kind = text_at(fields, "type") or ""
    if kind in ("text", "refusal") and (text := text_at(fields, kind)) is not None:
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


_ROLES: Final = (SYSTEM, DEVELOPER, USER, ASSISTANT, TOOL)
_NOT_IN_NAMES: Final = re.compile(r"[\s<|\\/>]+")
_MAX_NAME: Final = 64
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class OpenAIWriter(Writer):
    """Writes messages: an answer with all of its calls in one, and a message for each result right behind it."""

    form = NAME
    has_files = "it takes images by URL or data, and other files by data, of users"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether the API takes them as they came."""
        is_calling = False
        for source in sources:
            data = source.data
            role = data["role"]
            # An empty list of calls is refused; and between calls and results there may be nothing (openai-agents-python#873).
            if role not in _ROLES or data.get("tool_calls") == [] or (role == ASSISTANT and is_calling):
                return False
            is_calling = role == ASSISTANT and bool(data.get("tool_calls"))
            if role == ASSISTANT and not (is_calling or any(data.get(key) for key in ("content", "refusal", "audio"))):
                return False
        return True

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        if turn.role == ASSISTANT:
            self._write_answer(turn)
            self._write_results(turn)
            return
        role, name = turn.role, turn.name
        if role not in _ROLES or role == TOOL:  # that gives it no authority that it should not have
            role, name = USER, name or _NOT_IN_NAMES.sub("_", turn.role)[:_MAX_NAME]
        # As nearly all messages are: there is no block to look at.
        if len(turn.items) == 1 and turn.items[0].native is None and type(what := turn.items[0].what) is Text:
            blocks: list[Any] = [{"type": "text", "text": what.text}]
        else:
            blocks = self._blocks(turn.items)
        if blocks:
            named = {} if name is None else {"name": name}
            self.messages.append({"role": role, "content": content_of(blocks), **named})

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return {"type": "text", "text": what.text}
        return file_block(what) if isinstance(what, File) and item.role not in (SYSTEM, DEVELOPER) else None

    def _write_answer(self, turn: WrittenTurn) -> None:
        blocks: list[Any] = []
        calls: list[Any] = []
        refusals: list[str] = []
        message: dict[str, Any] = {"role": ASSISTANT, "content": None}
        for item in turn.items:
            what, native = item.what, self.native(item)
            if type(what) is Text:
                blocks.append(native or {"type": "text", "text": what.text})
            elif type(what) is Call:
                calls.append(_written_call(what, native))
            elif isinstance(what, Refusal):
                refusals.append(what.text)
                blocks.append({"type": "text", "text": what.text})
            elif not isinstance(what, Own) or what.origin != NAME:
                self.lose(item, "it takes files of users alone")
            elif native is None:
                message["audio"] = {"id": object_at(what.block, "audio").get("id")}
            else:
                blocks.append(native)
        # Beside texts, a refusal is a text: the API takes the one or the other.
        if refusals and len(blocks) == len(refusals):
            message["refusal"], blocks = "\n".join(refusals), []
        message["content"] = content_of(blocks) if blocks else None
        if turn.name:
            message["name"] = turn.name
        if calls:
            message["tool_calls"] = calls
        if len(message) > 2 or blocks:
            self.messages.append(message)

    def _write_results(self, turn: WrittenTurn) -> None:
        files: list[Any] = []
        if not turn.calls:
            return
        told = list(answers(turn))
        if any(not isinstance(result.content, str) and len(result.content) > 1 for *_, result in told):
            told = list(answers(turn, is_all=True))  # a message with files ends the results
        for _, call, item, result in told:
            native = self.native(item)
            if native is not None and native.get("role") == TOOL:
                changed = native if native.get("tool_call_id") == call.id else {**native, "tool_call_id": call.id}
                self.messages.append(changed)
                continue
            # Several texts stay parts of their own.
            content = result.content
            if isinstance(content, list) and sum(isinstance(piece, Text | Json) for piece in content) > 1:
                parts = [Result(None, None, [piece]) for piece in content if isinstance(piece, Text | Json)]
                texts = [{"type": "text", "text": text} for part in parts if (text := result_text(part))] or ""
            else:
                texts = result_text(result)
            self.messages.append({"role": TOOL, "tool_call_id": call.id, "content": texts})
            files += self._files_behind(call, item, result)
        if files:
            self.messages.append({"role": USER, "content": files})


def content_of(blocks: list[Any]) -> Any:
    """Return the content for blocks: a text alone as text."""
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
        return blocks[0]["text"]
    return blocks


def _written_call(call: Call, native: Any) -> Any:
    if native is not None:
        kind = "custom" if native.get("type") == "custom" else "function"
        inner = object_at(native, kind)
        if native.get("id") == call.id and inner.get("name") == call.name:
            return native
        return {**native, "id": call.id, kind: {**inner, "name": call.name}}
    function = {"name": call.name, "arguments": arguments_of(call)}
    return {"id": call.id, "type": "function", "function": function}


def file_block(file: File) -> dict[str, Any] | None:
    """Return the content part for a file; None where the API takes none: it fetches images only."""
    if (file_id := id_at(file, NAME)) is not None:
        return {"type": "file", "file": {"file_id": file_id}}
    if file.url is None and file.data is None:
        return None
    kind = file.media_type.partition("/")[0]
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url_of(file)}}
    if file.data is None:
        return None
    if file.media_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": file.data, "format": _SOUNDS[file.media_type]}}
    return {"type": "file", "file": {"file_data": url_of(file), "filename": file.name or "file"}}


FORM: Final = Form(
    name=NAME,
    read=read,
    write=OpenAIWriter,
    # Longer ids are refused (vercel/ai#8132), though newer models take 64 characters.
    rules=Rules(ids=re.compile(r".{1,40}", re.DOTALL), names=TOOL_NAME),
)
