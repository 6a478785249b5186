"""
Messages of LlamaIndex, as its `ChatMessage` writes them; LlamaIndex itself is not needed.

    {"role": "assistant", "additional_kwargs": {}, "blocks": [
        {"block_type": "tool_call", "tool_call_id": "call_1", "tool_name": "weather", "tool_kwargs": {"city": "Riga"}}]}
    {"role": "tool", "additional_kwargs": {"tool_call_id": "call_1", "name": "weather"}, "blocks": [
        {"block_type": "text", "text": "Rain."}]}
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .items import ASSISTANT, DEVELOPER, SYSTEM, TOOL, USER, Call, File, FormItem, Own, Reasoning, Result, Text, Words
from .model import ANY, Form, Rules, any_json, call_of, file_of
from .plain import ANY_FILE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, arguments_of, input_of, sources_of

NAME: Final = "llamaindex"
_ROLES: Final = {"chatbot": ASSISTANT, "model": ASSISTANT, "function": TOOL}
_WRITTEN: Final = (SYSTEM, DEVELOPER, USER, ASSISTANT)
_FILES: Final = {
    "image": ("image", "image_mimetype", "image/*"),
    "audio": ("audio", "format", "audio/*"),
    "video": ("video", "video_mimetype", "video/*"),
    "document": ("data", "document_mimetype", ANY_FILE),
}
"""The blocks of files: the fields of the Base64 and of the type, and the type where it does not say one."""


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    role, blocks = (data.get("role"), data.get("blocks")) if isinstance(data, dict) else (None, None)
    if not isinstance(role, str) or not isinstance(blocks, list):
        return any_json(data, name, source)
    role = _ROLES.get(role, role)
    if role == TOOL:
        more = object_at(data, "additional_kwargs")
        whats = [(_what(block), block) for block in blocks]
        content: list[Any] = [
            what if isinstance(what, Text | File | Own) else Own(NAME, block) for what, block in whats
        ]
        alone = content[0].text if len(content) == 1 and isinstance(content[0], Text) else content
        return [FormItem(TOOL, Result(text_at(more, "tool_call_id"), text_at(more, "name"), alone), source, data)]
    return [FormItem(role, _what(block), source, block) for block in blocks]


def _what(block: Any) -> Text | Reasoning | File | Call | Own:
    fields = block if isinstance(block, dict) else {}
    kind = fields.get("block_type")
    if kind == "text":
        return Text(text_at(fields, "text") or "")
    if kind == "thinking":
        return Reasoning(text_at(fields, "content") or "")
    if kind == "tool_call":
        kwargs = fields.get("tool_kwargs")
        return call_of(text_at(fields, "tool_call_id"), text_at(fields, "tool_name"), {} if kwargs is None else kwargs)
    return (_file(kind, fields) if kind in _FILES else None) or Own(NAME, block)


def _file(kind: str, fields: Mapping[str, Any]) -> File | None:
    """Return a file that is given by Base64 or by its address; None when it is on some disk only."""
    data_key, type_key, any_type = _FILES[kind]
    media_type, data, url = text_at(fields, type_key) or any_type, text_at(fields, data_key), text_at(fields, "url")
    if "/" not in media_type:
        media_type = f"audio/{media_type}"
    if data is not None:
        return File(media_type, data=data, name=text_at(fields, "title"))
    return None if url is None else file_of(url, media_type, text_at(fields, "title"))


class LlamaIndexWriter(Writer):
    """Writes messages: an answer with all of its calls in one, and a message for each result right behind it."""

    form = NAME
    has_files = "it has files by data or URL"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether models take them as they came: no answer right behind one with calls, and no message of nothing."""
        is_calling = False
        for source in sources:
            blocks, is_answer = list_at(source.data, "blocks"), source.data["role"] == ASSISTANT
            if not blocks or (is_answer and is_calling):
                return False
            is_calling = is_answer and any(object_at(block).get("block_type") == "tool_call" for block in blocks)
        return True

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        self.lose_name(turn)
        role = turn.role if turn.role in _WRITTEN else USER  # roles are an enum
        blocks = self._blocks(turn.items)
        if blocks:
            source, *others = sources_of(turn.items)
            own = source.data if not others and source.form == NAME else {"additional_kwargs": {}}
            self.messages.append({"role": role, **own, "blocks": blocks})
        for _, call, item, result in answers(turn) if turn.calls else ():
            native = self.native(item)
            more = {**object_at(native, "additional_kwargs"), "tool_call_id": call.id, "name": call.name}
            content = list_at(native, "blocks") if native is not None else self._contents(item, result)
            head = {"role": TOOL} if native is None else native
            self.messages.append({**head, "additional_kwargs": more, "blocks": content or [_text("")]})

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002
        if native is None:
            arguments = input_of(call)
            arguments = arguments if isinstance(arguments, dict) else arguments_of(call)
            native = {"block_type": "tool_call", "tool_kwargs": arguments}
        return {**native, "tool_call_id": call.id, "tool_name": call.name}

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return _text(what.text)
        if isinstance(what, Reasoning) and what.text:
            return {"block_type": "thinking", "content": what.text}
        return _file_block(what) if isinstance(what, File) else None


def _text(text: str) -> dict[str, Any]:
    return {"block_type": "text", "text": text}


def _file_block(file: File) -> dict[str, Any] | None:
    group = file.media_type.partition("/")[0]
    kind = group if group in _FILES else "document"
    data_key, type_key, any_type = _FILES[kind]
    block: dict[str, Any] = {"block_type": kind}
    if file.data is not None:
        block[data_key] = file.data
    elif file.url is not None:
        block["url"] = file.url
    else:
        return None
    if file.media_type != any_type:
        block[type_key] = file.media_type.partition("/")[2] if kind == "audio" else file.media_type
    return {**block, "title": file.name} if kind == "document" and file.name is not None else block


FORM: Final = Form(name=NAME, read=read, write=LlamaIndexWriter, rules=Rules(ids=ANY, names=ANY))
