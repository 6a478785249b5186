"""
LangChain messages, as its `message_to_dict` writes them; LangChain itself is not needed.

    {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "weather", "args": {"city": "Riga"}, "id": "call_1"}]}}
    {"type": "tool", "data": {"content": "Rain.", "tool_call_id": "call_1"}}
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from . import openai
from .items import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Call,
    File,
    FormItem,
    Own,
    Reasoning,
    Refusal,
    Result,
    Source,
    Text,
)
from .model import ANY, Form, Rules, any_json, contents_of, file_of
from .plain import ANY_FILE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, arguments_of, id_at, input_of, result_text, sources_of

NAME: Final = "langchain"
CHAT: Final = "chat"
_ROLES: Final = {"system": SYSTEM, "human": USER, "ai": ASSISTANT, "tool": TOOL, "function": TOOL}
TYPES: Final = frozenset({CHAT, *_ROLES})
"""The types of messages that can be stored."""

_TYPES: Final = {SYSTEM: "system", DEVELOPER: "system", ASSISTANT: "ai"}
_OPENAI_ROLE: Final = "__openai_role__"
"""The key under which LangChain marks a system message as one of a developer."""

_MEDIA: Final = ("image", "audio", "video", "file")
_CALLS: Final = ("tool_calls", "invalid_tool_calls")


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    kind, fields = text_at(object_at(data), "type"), object_at(data, "data")
    content = fields.get("content")
    if kind is None or kind not in TYPES or not isinstance(content, str | list):
        return any_json(data, name, source)
    speaker = text_at(fields, "name")
    role = _ROLES.get(kind) or text_at(fields, "role") or name
    if kind in ("tool", "function"):
        contents = contents_of(content, _what)
        result = Result(text_at(fields, "tool_call_id"), speaker, contents, fields.get("status") == "error")
        return [FormItem(TOOL, result, source, data)]
    if role == SYSTEM and object_at(fields, "additional_kwargs").get(_OPENAI_ROLE) == DEVELOPER:
        role = DEVELOPER
    calls: list[FormItem] = []
    if role == ASSISTANT:
        for key in _CALLS:
            for call in list_at(fields, key):
                about = object_at(call)
                call_id, called, args = text_at(about, "id"), text_at(about, "name") or "", about.get("args")
                # Arguments that a model wrote, and that are no JSON, stay the text that they are.
                raw = None if key == "tool_calls" else args if isinstance(args, str) else ""
                what = Call(call_id, called, args) if raw is None else Call(call_id, called, raw=raw)
                calls.append(FormItem(role, what, source, call))
    if isinstance(content, str):
        return [FormItem(role, Text(content), source, None, speaker), *calls] if content or not calls else calls
    ids = {call.what.id for call in calls if isinstance(call.what, Call)}
    items = [
        FormItem(role, _what(block), source, block, speaker)
        for block in cast("list[Any]", content)
        if object_at(block).get("type") != "tool_use" or object_at(block).get("id") not in ids  # is among the calls
    ]
    return items + calls


def _what(block: Any) -> Text | Refusal | Reasoning | File | Own:
    if isinstance(block, str):
        return Text(block)
    fields = object_at(block)
    kind = text_at(fields, "type") or ""
    if kind in ("reasoning", "thinking") and (thought := text_at(fields, kind)) is not None:
        signature = text_at(fields, "signature")
        return Reasoning(thought, "anthropic", {"signature": signature}) if signature else Reasoning(thought)
    if kind == "redacted_thinking" and "data" in fields:
        return Reasoning("", "anthropic", {"data": fields["data"]})
    if kind in _MEDIA and "file" not in fields:
        return _file(kind, fields) or Own(NAME, block)
    what = openai.what_of(block)
    return Own(NAME, block) if isinstance(what, Own) else what


def _file(kind: str, fields: Any) -> File | None:
    url, data, file_id = (text_at(fields, key) for key in ("url", "base64", "file_id"))
    media_type = text_at(fields, "mime_type") or (ANY_FILE if kind == "file" else f"{kind}/*")
    name = text_at(object_at(fields, "extras"), "filename")
    if data is not None:
        return File(media_type, data=data, name=name)
    if file_id is not None:
        return File(media_type, file_id=file_id, name=name, origin="openai")
    return None if url is None else file_of(url, media_type, name)


class LangChainWriter(Writer):
    """Writes messages under the id that the first message of a turn is stored under; others get ids such as `m2#1`."""

    form = NAME
    has_files = "it has files by URL, data or ids of OpenAI"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:
        """Whether providers take them as they came: no answer right behind one with calls."""
        is_calling = False
        for source in sources:
            kind = source.data["type"]
            if kind == "ai" and is_calling:
                return False
            is_calling = kind == "ai" and any(list_at(source.data["data"], key) for key in _CALLS)
        return all(len(sources_of(turn.results)) == len(turn.results) for turn in turns)

    def put(self, sources: Sources) -> None:
        """Give messages of this form as they came, under the ids that they are stored under."""
        for source in sources:
            data, fields = source.data, object_at(source.data, "data")
            self.ids.add(source.id)
            is_same = not fields or not source.id or fields.get("id") == source.id
            self.messages.append(data if is_same else {**data, "data": {**fields, "id": source.id}})

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        if turn.role == ASSISTANT:
            self._write_answer(turn)
            for _, call, item, result in answers(turn):
                native = self.native(item)
                own = object_at(native, "data") if object_at(native).get("type") == "tool" else {}
                content = own.get("content")
                if content is None and isinstance(result.content, list) and len(result.content) > 1:
                    content = self._contents(item, result)
                fields = {
                    "status": "error" if result.is_error else "success",
                    **own,
                    "content": result_text(result) if content is None else content,
                    "tool_call_id": call.id,
                    "name": own.get("name") or call.name,
                }
                self._add("tool", item.source, fields)
            return
        blocks = self._blocks(turn.items)
        kind, name = _TYPES.get(turn.role, "human"), turn.name
        if turn.role not in {*_TYPES, USER}:
            name = name or turn.role
        more = {"additional_kwargs": {_OPENAI_ROLE: DEVELOPER}} if turn.role == DEVELOPER else {}
        if blocks:
            self._add(kind, turn.items[0].source, {"content": openai.content_of(blocks), "name": name, **more})

    def _write_answer(self, turn: WrittenTurn) -> None:
        blocks: list[Any] = []
        fields: dict[str, Any] = {"tool_calls": [], "invalid_tool_calls": []}
        for item in turn.items:
            what, native = item.what, self.native(item)
            if isinstance(what, Call):
                value = input_of(what) if native is None or "error" not in native else None
                is_valid = isinstance(value, dict) or (value is None and native is None)
                head = {**(native or {}), "name": what.name, "id": what.id}
                if is_valid:
                    fields["tool_calls"].append({"type": "tool_call", "args": value or {}, **head})
                else:
                    invalid = {"type": "invalid_tool_call", "args": arguments_of(what), "error": None}
                    fields["invalid_tool_calls"].append({**invalid, **head})
                continue
            block = self._block(item)
            blocks += [] if block is None else [block]
            if block is not None and native is None and isinstance(what, Reasoning):
                # Integrations know reasoning of this version alone.
                fields["response_metadata"] = {"output_version": "v1"}
        if blocks or turn.calls:
            content = openai.content_of(blocks) if blocks else ""
            source = turn.items[0].source
            is_whole = source.form == NAME and all(item.source is source for item in turn.items)
            own = object_at(source.data, "data") if is_whole else {}
            self._add("ai", source, {**own, "name": turn.name, **fields, "content": content})

    def _block(self, item: FormItem) -> Any:
        if isinstance(item.native, str) and item.source.form == NAME:
            return item.native
        return super()._block(item)

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Text):
            return {"type": "text", "text": what.text}
        if isinstance(what, Refusal):
            return {"type": "refusal", "refusal": what.text}
        if isinstance(what, Reasoning) and what.text:
            return {"type": "reasoning", "reasoning": what.text}
        return _file_block(what) if isinstance(what, File) else None

    def _add(self, kind: str, source: Source, fields: dict[str, Any]) -> None:
        message_id = self.free_id(source) if source.id else None
        more: dict[str, Any] = {"additional_kwargs": {}, "response_metadata": {}}
        self.messages.append({"type": kind, "data": {**more, **fields, "type": kind, "id": message_id}})


def _file_block(file: File) -> dict[str, Any] | None:
    group = file.media_type.partition("/")[0]
    kind = group if group in _MEDIA else "file"
    typed = {} if file.media_type.endswith("/*") or file.media_type == ANY_FILE else {"mime_type": file.media_type}
    named = {} if file.name is None else {"extras": {"filename": file.name}}
    if (file_id := id_at(file, "openai")) is not None:
        return {"type": kind, "file_id": file_id, **typed, **named}
    if file.url is None and file.data is None:
        return None
    if file.data is not None:
        return {"type": kind, "base64": file.data, "mime_type": file.media_type, **named}
    return {"type": kind, "url": file.url, **typed, **named}


FORM: Final = Form(name=NAME, read=read, write=LangChainWriter, rules=Rules(ids=ANY, names=ANY))
