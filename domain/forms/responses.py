r"""
Items of the OpenAI Responses API: messages, calls of functions, their outputs, reasoning. One item is one message.

    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Riga\"}"}
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from .items import ASSISTANT, TOOL, Call, File, FormItem, Json, Own, Reasoning, Refusal, Result, Text, Words
from .model import TOOL_NAME, Form, Rules, any_json, call_of, contents_of, file_of
from .openai import uploaded_or_sent
from .plain import ANY_IMAGE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, arguments_of, id_at, result_text, url_of

NAME: Final = "responses"
_TEXTS: Final = ("input_text", "output_text", "text")


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    if not isinstance(data, dict):
        return any_json(data, name, source)
    kind, role = data.get("type"), data.get("role")
    if isinstance(role, str) and kind in (None, "message"):
        content = data.get("content")
        if isinstance(content, str):
            return [FormItem(role, Text(content), source)] if content else []
        return [FormItem(role, _what(block), source, block) for block in list_at(data, "content")]
    if not isinstance(kind, str):
        return any_json(data, name, source)
    call_id = text_at(data, "call_id")
    if kind == "function_call":
        call = call_of(call_id, text_at(data, "name"), data.get("arguments"))
        return [FormItem(ASSISTANT, call, source, data)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [FormItem(TOOL, Result(call_id, None, contents_of(data.get("output"), _what)), source, data)]
    if kind == "custom_tool_call":
        call = Call(call_id, text_at(data, "name") or "", {"input": text_at(data, "input") or ""})
        return [FormItem(ASSISTANT, call, source, data)]
    if kind == "reasoning":
        texts = [
            text
            for block in (*list_at(data, "summary"), *list_at(data, "content"))
            if (text := text_at(object_at(block), "text")) is not None
        ]
        opaque = {key: data[key] for key in ("id", "encrypted_content") if data.get(key)}
        reasoning = Reasoning("\n".join(texts), NAME if opaque else None, opaque or None)
        return [FormItem(ASSISTANT, reasoning, source, data)]
    return [FormItem(TOOL if kind.endswith("_output") else ASSISTANT, Own(NAME, data), source, data)]


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


_ROLES: Final = ("system", "developer", "user", ASSISTANT)


class ResponsesWriter(Writer):
    """
    Writes items. A reasoning item stays with the item that follows it, both with their ids, or it is left out: the API refuses
    the one without the other.
    """

    form = NAME
    has_files = "it has files by URL, data or its own ids"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether the API takes them as they came."""
        is_reasoning = False
        for source in sources:
            kind, role = str(source.data.get("type")), source.data.get("role", ASSISTANT)
            if role not in _ROLES or (is_reasoning and (role != ASSISTANT or kind.endswith("_output"))):
                return False
            is_reasoning = kind == "reasoning"
        return not is_reasoning

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        if turn.role == ASSISTANT:
            self._write_answer(turn)
            for call, _, item, result in answers(turn):
                self.messages.append(self._output(call, item, result))
            return
        self.lose_name(turn)
        role = turn.role if turn.role in _ROLES else "user"
        # As it came, with the fields that only its own API knows.
        if turn.items[0].source.form == NAME and role == turn.role and turn.is_told:
            self.messages.append(_own_message(turn.items))
            return
        blocks = self._blocks(turn.items)
        if blocks:
            texts = [item.what.text for item in turn.items if isinstance(item.what, Words)]
            self.messages.append({"role": role, "content": texts[0] if len(texts) == len(blocks) == 1 else blocks})

    def _block(self, item: FormItem) -> Any:
        what = item.what
        self.native(item)
        if isinstance(what, Words):
            return {"type": "input_text", "text": what.text}
        if isinstance(what, Own) and what.origin == NAME:
            return what.block
        block = file_block(what) if isinstance(what, File) else None
        if block is None:
            self.lose(item, self.has_files)
        return block

    def _write_answer(self, turn: WrittenTurn) -> None:
        parts: list[list[FormItem]] = []
        for item in turn.items:
            if item.source.form == NAME and parts and parts[-1][-1].source is item.source:
                parts[-1].append(item)  # another block of one message
            else:
                parts.append([item])
        whole: list[list[FormItem]] = []
        following: FormItem | None = None
        for items in reversed(parts):
            # The API refuses reasoning without the item that it led to, and the other way round (vercel/ai#7099).
            if isinstance(items[0].what, Reasoning) and not _goes_with(items[0], following):
                self.lose(items[0])
                continue
            whole.append(items)
            # What the form has nothing for is left out: it leads nowhere.
            is_left_out = isinstance(items[0].what, File | Own) and items[0].what.origin != NAME
            following = following if is_left_out and items[0].source.form != NAME else items[0]
        is_reasoning = False
        for items in reversed(whole):
            message = self._item_of(items, is_reasoning=is_reasoning)
            if message is not None:
                is_reasoning = isinstance(items[0].what, Reasoning)
                self.messages += [] if self._is_summarised(message) else [message]

    def _is_summarised(self, message: dict[str, Any]) -> bool:
        """Whether a message was added to the one before it: another paragraph of the summary of one reasoning item."""
        before = self.messages[-1] if self.messages else {}
        if not message.get("type") == before.get("type") == "reasoning" or message["id"] != before.get("id"):
            return False
        summary = [*list_at(before, "summary"), *list_at(message, "summary")]
        self.messages[-1] = {**before, **message, "summary": summary}
        return True

    def _item_of(self, items: list[FormItem], *, is_reasoning: bool) -> Any:
        """Return the item for something that an assistant said."""
        item = items[0]
        what = item.what
        if item.source.form == NAME:
            if not isinstance(what, Call):
                return _own_message(items)
            same = item.native.get("call_id") == what.id and item.native.get("name") == what.name
            return item.native if same else {**item.native, "call_id": what.id, "name": what.name}
        self.native(item)
        if isinstance(what, Words):
            item_id = _item_id(item, "providerMetadata") if is_reasoning else None
            if item_id is None:
                return {"role": ASSISTANT, "content": what.text}
            content = [{"type": "output_text", "text": what.text, "annotations": []}]
            return {"type": "message", "id": item_id, "role": ASSISTANT, "status": "completed", "content": content}
        if isinstance(what, Call):
            item_id = _item_id(item, "callProviderMetadata") if is_reasoning else None
            call = {"type": "function_call", "call_id": what.id, "name": what.name, "arguments": arguments_of(what)}
            return call if item_id is None else {**call, "id": item_id}
        if isinstance(what, Reasoning) and what.origin == NAME and what.opaque and "id" in what.opaque:
            summary = [{"type": "summary_text", "text": what.text}] if what.text else []
            return {"type": "reasoning", **what.opaque, "summary": summary}
        if isinstance(what, Own) and what.origin == NAME:
            return what.block
        self.lose(item, "it takes files of users alone")
        return None

    def _output(self, call: FormItem, item: FormItem, result: Result) -> Any:
        native = self.native(item)
        is_custom = call.source.form == NAME and object_at(call.native).get("type") == "custom_tool_call"
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        if native is not None and native["type"] == kind:
            return native if native.get("call_id") == result.call_id else {**native, "call_id": result.call_id}
        head = {"type": kind, "call_id": result.call_id}
        content = result.content
        if isinstance(content, str) or (all(isinstance(piece, Text | Json) for piece in content) and len(content) < 2):
            return {**head, "output": result_text(result)}
        blocks = [block for block in self._contents(item, result) if object_at(block).get("text") != ""]
        return {**head, "output": blocks or ""}


def _own_message(items: list[FormItem]) -> Any:
    """Return a message of this form with those of its blocks that are left."""
    data = items[0].source.data
    if not isinstance(data.get("content"), list) or "role" not in data or len(data["content"]) == len(items):
        return data
    return {**data, "content": [item.native for item in items]}


def _goes_with(reasoning: FormItem, following: FormItem | None) -> bool:
    """Whether the API has a reasoning item, and what follows is what it wants to see behind it: something from the same place."""
    what = reasoning.what
    assert isinstance(what, Reasoning), "other items stand alone"
    if reasoning.source.form != NAME and (what.origin != NAME or not what.opaque or "id" not in what.opaque):
        return False
    if following is None or following.source.form != reasoning.source.form:
        return False
    behind = following.what
    return not isinstance(behind, Own) or not str(object_at(behind.block).get("type")).endswith("_output")


def _item_id(item: FormItem, place: str) -> str | None:
    """Return the id that the API gave an item, which a UIMessage keeps with its part."""
    return text_at(object_at(item.native, place, "openai"), "itemId")


def file_block(file: File) -> dict[str, Any] | None:
    """Return the content part for a file; None where it is one of another provider."""
    is_image = file.media_type.partition("/")[0] == "image"
    kind = "input_image" if is_image else "input_file"
    if (file_id := id_at(file, "openai")) is not None:
        typed = {"type": kind, "detail": "auto"} if is_image else {"type": kind}
        return {**typed, "file_id": file_id}
    if file.url is None and file.data is None:
        return None
    if is_image:
        return {"type": kind, "image_url": url_of(file), "detail": "auto"}
    if file.data is None:
        return {"type": kind, "file_url": url_of(file)}
    return {"type": kind, "file_data": url_of(file), "filename": file.name or "file"}


FORM: Final = Form(
    name=NAME,
    read=read,
    write=ResponsesWriter,
    rules=Rules(ids=re.compile(r".{1,64}", re.DOTALL), names=TOOL_NAME),  # longer ids are refused (Roo-Code#10763)
)
