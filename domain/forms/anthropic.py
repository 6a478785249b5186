"""
Messages of the Anthropic API.

    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "The forecast decides.", "signature": "EqQB"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}]}
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]}
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from .items import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Call,
    Dropped,
    File,
    FormItem,
    Json,
    Own,
    Reasoning,
    Result,
    Text,
    Words,
)
from .model import TOOL_NAME, Form, Rules, any_json, contents_of
from .openai import content_of
from .plain import ANY_FILE, ANY_IMAGE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, id_at, object_of

NAME: Final = "anthropic"


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    role, content = (data.get("role"), data.get("content")) if isinstance(data, dict) else (None, None)
    if role not in (USER, ASSISTANT, SYSTEM) or not isinstance(content, str | list):
        return any_json(data, name, source)
    if isinstance(content, str):
        return [FormItem(role, Text(content), source)] if content else []
    items: list[FormItem] = []
    for block in list_at(data, "content"):
        fields = block if isinstance(block, dict) else {}
        kind = fields.get("type")
        if kind == "text":
            items.append(FormItem(role, Text(text_at(fields, "text") or ""), source, block))
        elif kind == "tool_use" and role == ASSISTANT:
            call = Call(text_at(fields, "id"), text_at(fields, "name") or "", fields.get("input"))
            items.append(FormItem(role, call, source, block))
        elif kind == "tool_result" and role != ASSISTANT:
            content = contents_of(fields.get("content"), _in_result)
            result = Result(text_at(fields, "tool_use_id"), None, content, fields.get("is_error") is True)
            items.append(FormItem(TOOL, result, source, block))
        else:
            items.append(FormItem(role, _other(block, role), source, block))
    return items


def _other(block: Any, role: str) -> Reasoning | File | Own:
    fields = object_at(block)
    kind = fields.get("type")
    if role == ASSISTANT and kind == "thinking":
        signature = text_at(fields, "signature")
        text = text_at(fields, "thinking") or ""
        return Reasoning(text, NAME, {"signature": signature}) if signature else Reasoning(text)
    if role == ASSISTANT and kind == "redacted_thinking":
        return Reasoning("", NAME, {"data": fields.get("data")})
    if kind in ("image", "document"):
        return _file(fields, ANY_IMAGE if kind == "image" else ANY_FILE) or Own(NAME, block)
    return Own(NAME, block)


def _in_result(block: Any) -> Text | Reasoning | File | Own:
    fields = object_at(block)
    return Text(text_at(fields, "text") or "") if fields.get("type") == "text" else _other(block, TOOL)


def _file(fields: Any, any_type: str) -> File | None:
    source, name = object_at(fields, "source"), text_at(fields, "title")
    kind, media_type = source.get("type"), text_at(source, "media_type") or any_type
    data, url, file_id = (text_at(source, key) for key in ("data", "url", "file_id"))
    if kind == "base64" and data is not None:
        return File(media_type, data=data, name=name)
    if kind == "text" and data is not None:
        return File("text/plain", data=b64encode(data.encode("utf-8", "replace")).decode(), name=name)
    if kind == "url" and url is not None:
        return File("application/pdf" if any_type == ANY_FILE else any_type, url=url, name=name)
    if kind == "file" and file_id is not None:
        return File(any_type, file_id=file_id, name=name, origin=NAME)
    return None


_IMAGES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp", ANY_IMAGE}
_OF_ANSWERS: Final = {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container"}
"""The fields that the API's answers have, and that it does not take back."""

_THOUGHTS: Final = ("thinking", "redacted_thinking")
CACHE_MARK: Final = "cache_control"
"""The field by which a block says that the API is to cache what ends with it."""
_MAX_MARKS: Final = 4
"""The API refuses a request with more blocks that are marked for its cache."""


class AnthropicWriter(Writer):
    """Writes messages: all results of an answer first in the next message of the user."""

    form = NAME
    has_files = "it takes images, PDFs and texts of users"

    def __init__(self, turns: Sequence[WrittenTurn], dropped: list[Dropped], kin: frozenset[str]) -> None:
        super().__init__(turns, dropped, kin)
        blocks = [
            object_at(item.what.block)
            for turn in turns
            for item in turn.items
            if isinstance(item.what, Own) and item.what.origin == NAME
        ]
        self._answered = {block["tool_use_id"] for block in blocks if isinstance(block.get("tool_use_id"), str)}
        self._called = {block["id"] for block in blocks if _is_call(block)}

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:
        """Whether the API takes them as they came."""
        if any(source.data["role"] not in {USER, ASSISTANT} for source in sources) and not self._is_behind_user(
            turns[0]
        ):
            return False
        for turn in turns:
            if any(isinstance(item.what, Reasoning) and item.what.origin is None for item in turn.items):
                return False  # an empty signature is refused
            results = [result for result in turn.results if result is not None]
            if len({id(result.source) for result in results}) > 1:  # all belong in the very next message
                return False
            if any(_is_refused(result.native) for result in results):
                return False
            if turn.role == ASSISTANT and object_at(turn.items[-1].native).get("type") in _THOUGHTS:
                return False
            if not _has_calls_last(turn):
                return False
            if any(isinstance(item.what, Own) and not self._has_pair(item.what.block, turn) for item in turn.items):
                return False
        return True

    def put(self, sources: Sources) -> None:
        """Give messages of this form as they came, without what only answers of the API have."""
        for source in sources:
            data = source.data
            if isinstance(data, dict) and not _OF_ANSWERS.isdisjoint(data):
                data = {key: value for key, value in data.items() if key not in _OF_ANSWERS}
            self.messages.append(data)

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        self.lose_name(turn)
        role = turn.role if turn.role == ASSISTANT or self._is_behind_user(turn) else USER
        told = [(item, block) for item in turn.items if (block := self._told(item, turn)) is not None]
        if not _has_calls_last(turn):  # which is refused; the order is else as it came
            told.sort(key=lambda pair: object_at(pair[1]).get("type") == "tool_use")
        while role == ASSISTANT and told and object_at(told[-1][1]).get("type") in _THOUGHTS:
            # "The final block in an assistant message cannot be `thinking`", the API says.
            self.dropped.append(Dropped(told.pop()[0].source.id, "reasoning", "nothing follows it"))
        if told:
            self.messages.append({"role": role, "content": content_of([block for _, block in told])})
        if not turn.calls:
            return
        results = [self._result(item, result) for _, _, item, result in answers(turn, is_all=turn.has_results)]
        files: list[Any] = []
        for _, call, item, result in answers(turn):
            if result.is_error:  # which may only be text
                files += self._files_behind(call, item, result)
        if results:
            self.messages.append({"role": USER, "content": results + files})

    def finish(self, ids: Sequence[str]) -> None:
        """Leave the newest marks for the cache, as many as the API takes: what was cached up to an older one is found without it."""
        left = _MAX_MARKS
        for place in range(len(self.messages) - 1, -1, -1):
            marks = _count_marks(self.messages[place])
            if marks > left:
                self.messages[place] = unmarked(self.messages[place])
                self.dropped.append(Dropped(ids[place], CACHE_MARK, f"{NAME} takes {_MAX_MARKS} of them"))
                left = 0
            left -= min(marks, left)

    def _is_behind_user(self, turn: WrittenTurn) -> bool:
        """Whether a turn is the system's own of this API, and stands where that is taken."""
        is_system = turn.role == SYSTEM and turn.items[0].source.form == NAME
        return is_system and bool(self.messages) and self.messages[-1]["role"] == USER

    def _told(self, item: FormItem, turn: WrittenTurn) -> Any:
        what = item.what
        if isinstance(what, Own) and what.origin == NAME and not self._has_pair(what.block, turn):
            kind = str(object_at(what.block).get("type"))
            self.dropped.append(Dropped(item.source.id, kind, "a server tool's call and result go together"))
            return None
        if isinstance(what, Reasoning) and _thoughts(what) is None:
            return self.lose(item)
        return self._block(item)

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002
        if native is not None:
            same = native.get("id") == call.id and native.get("name") == call.name
            return native if same else {**native, "id": call.id, "name": call.name}
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": object_of(call)}

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return {"type": "text", "text": what.text}
        if isinstance(what, Reasoning):
            return _thoughts(what)
        return file_block(what) if isinstance(what, File) and item.role != ASSISTANT else None

    def _has_pair(self, block: Any, turn: WrittenTurn) -> bool:
        """Whether the other one of a server tool's call and result is there; the result of a call may still come in the last turn."""
        fields = object_at(block)
        if _is_call(fields):
            return fields["id"] in self._answered or turn is self.turns[-1]
        answers_id = text_at(fields, "tool_use_id")
        return answers_id is None or answers_id in self._called

    def _result(self, item: FormItem, result: Result) -> Any:
        native = self.native(item)
        if native is not None and not _is_refused(native):
            same = native.get("tool_use_id") == result.call_id
            return native if same else {**native, "tool_use_id": result.call_id}
        head = {key: value for key, value in (native or {}).items() if key not in {"tool_use_id", "content"}}
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id, **head}
        if isinstance(result.content, str):
            content = result.content if result.content.strip() else None  # blank texts are refused
        else:
            if result.is_error:  # its files stand behind all results
                result = Result(None, None, [piece for piece in result.content if isinstance(piece, Text | Json)])
            blocks = [
                block
                for block in self._contents(item, result)
                if not isinstance(text := object_at(block).get("text"), str) or text.strip()
            ]
            content = content_of(blocks) if blocks else None
        if content:  # blank texts and empty lists are refused, a result of nothing is not
            block["content"] = content
        return block | ({"is_error": True} if result.is_error else {})


def _has_calls_last(turn: WrittenTurn) -> bool:
    """Whether nothing stands behind or between calls, which the API refuses."""
    return not turn.calls or turn.items[-len(turn.calls)] is turn.calls[0]


def unmarked(value: Any) -> Any:
    """Return a message or block without the marks for the cache that it, and the blocks in it, came with."""
    if not isinstance(value, Mapping):
        return value
    rest = {key: item for key, item in cast("Mapping[str, Any]", value).items() if key != CACHE_MARK}
    if isinstance(content := rest.get("content"), list):
        rest["content"] = list(map(unmarked, cast("list[Any]", content)))
    return rest


def _count_marks(value: Any) -> int:
    fields = value if isinstance(value, dict) else {}
    content = fields.get("content")
    return (CACHE_MARK in fields) + (sum(map(_count_marks, content)) if isinstance(content, list) else 0)


def _is_call(block: Mapping[str, Any]) -> bool:
    """Whether a block is a call of a tool that the API runs itself."""
    return block.get("type") in ("server_tool_use", "mcp_tool_use") and isinstance(block.get("id"), str)


def _is_refused(result: Any) -> bool:
    """Whether a result as it came has content that the API refuses: blank texts, and files in an error."""
    content = object_at(result).get("content", "some")
    if isinstance(content, str):
        return not content.strip()
    if not isinstance(content, list) or not content:
        return True
    is_error = object_at(result).get("is_error")
    return any(
        not (text_at(object_at(block), "text") or "").strip() if object_at(block).get("type") == "text" else is_error
        for block in cast("list[Any]", content)
    )


def _thoughts(reasoning: Reasoning) -> dict[str, Any] | None:
    """Return the block for reasoning that the API has signed."""
    # A signature of another API, or none, is refused (earendil-works/pi#9048).
    if reasoning.origin != NAME or not reasoning.opaque:
        return None
    if reasoning.opaque.get("signature"):
        return {"type": "thinking", "thinking": reasoning.text, "signature": reasoning.opaque["signature"]}
    return {"type": "redacted_thinking", "data": reasoning.opaque.get("data")}


def file_block(file: File) -> dict[str, Any] | None:
    """Return the block for a file; None where the API takes none of its kind."""
    media_type = "image/jpeg" if file.media_type == "image/jpg" else file.media_type
    is_image = media_type in _IMAGES
    kind = "image" if is_image else "document"
    if (file_id := id_at(file, NAME)) is not None:
        return {"type": kind, "source": {"type": "file", "file_id": file_id}}
    if file.url is None and file.data is None:
        return None
    titled = {} if is_image or not file.name else {"title": file.name}
    if file.data is None:
        is_fetched = is_image or media_type in {"application/pdf", ANY_FILE}
        return {"type": kind, "source": {"type": "url", "url": file.url}, **titled} if is_fetched else None
    if media_type.startswith("text/"):
        text = b64decode(file.data).decode("utf-8", "replace")
        return {"type": kind, "source": {"type": "text", "media_type": "text/plain", "data": text}, **titled}
    if (not is_image and media_type != "application/pdf") or media_type == ANY_IMAGE:
        return None
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": file.data}, **titled}


FORM: Final = Form(
    name=NAME,
    read=read,
    write=AnthropicWriter,
    # Other ids are refused (bifrost#5097, langchain#37756); blank texts are too.
    rules=Rules(ids=re.compile(r"[a-zA-Z0-9_-]+"), names=TOOL_NAME, blank="blank"),
)
