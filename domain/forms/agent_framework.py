r"""
Messages of Microsoft's Agent Framework, as its `Message.to_dict` writes them; the framework itself is not needed.

    {"type": "message", "role": "assistant", "contents": [
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Riga\"}"}]}
    {"type": "message", "role": "tool", "contents": [{"type": "function_result", "call_id": "call_1", "result": "Rain."}]}
"""

from collections.abc import Sequence
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
    Piece,
    Reasoning,
    Result,
    Source,
    Text,
    Words,
)
from .model import ANY, Form, Rules, any_json, call_of, file_of
from .plain import ANY_FILE, list_at, object_at, text_at
from .writing import Sources, Writer, WrittenTurn, answers, arguments_of, result_text, sources_of, url_of

NAME: Final = "agent-framework"
_FAILED: Final = "FunctionInvocationError"
"""The exception that the framework writes in place of any other, so that no store has its words."""


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    role, contents = (data.get("role"), data.get("contents")) if isinstance(data, dict) else (None, None)
    if not isinstance(role, str) or not isinstance(contents, list):
        return any_json(data, name, source)
    speaker = text_at(cast("dict[str, Any]", data), "author_name")
    whats = [(_what(content, role), content) for content in cast("list[Any]", contents)]
    return [FormItem(TOOL if type(what) is Result else role, what, source, content, speaker) for what, content in whats]


def _what(content: Any, role: str) -> Text | Reasoning | File | Call | Result | Own:
    fields = object_at(content)
    kind, text = fields.get("type"), text_at(fields, "text")
    if kind == "text":
        return Text(text or "")
    if kind == "text_reasoning" and role == ASSISTANT:
        opaque = {key: fields[key] for key in ("id", "protected_data") if fields.get(key)}
        return Reasoning(text or "", NAME, opaque) if "protected_data" in opaque else Reasoning(text or "")
    if kind in ("data", "uri") and (uri := text_at(fields, "uri")) is not None:
        return file_of(uri, text_at(fields, "media_type") or ANY_FILE, text_at(fields, "name"))
    if kind == "function_call" and role == ASSISTANT:
        return call_of(text_at(fields, "call_id"), text_at(fields, "name"), fields.get("arguments"))
    if kind == "function_result" and role != ASSISTANT:
        return Result(text_at(fields, "call_id"), None, _result_content(fields), fields.get("exception") is not None)
    return Own(NAME, content)


def _result_content(fields: Any) -> str | list[Piece]:
    """Return the items of a result; its text, where it has no others, or was stored before results had items."""
    result, items = fields.get("result"), list_at(fields, "items")
    whats = [_what(item, TOOL) for item in items]
    if all(type(what) is Text for what in whats) and (len(whats) < 2 or not isinstance(result, str)):
        return result if isinstance(result, str) else "" if result is None else [Json(result)]
    return [
        what if isinstance(what, Text | File | Own) else Own(NAME, item)
        for what, item in zip(whats, items, strict=True)
    ]


class AgentFrameworkWriter(Writer):
    """Writes messages: the calls of an answer in one, as clients make a message of the API of each, and its results in the next."""

    form = NAME
    has_files = "it has files by URL or data"

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:
        """Whether clients take them as they came."""
        if any(source.data["role"] not in _ROLES or not source.data["contents"] for source in sources):
            return False
        for turn in turns:
            results = sources_of(turn.results)
            # Clients make a message of the API of each: calls of one answer in two would be two answers.
            if turn.calls and (len(sources_of(turn.items)) > 1 or len(results) > 1):
                return False
            if any(
                source.data["role"] != TOOL or len(source.data["contents"]) != len(turn.calls) for source in results
            ):
                return False
        return True

    def put(self, sources: Sources) -> None:
        """Give messages of this form as they came."""
        super().put(sources)
        self.ids.update(message_id for source in sources if (message_id := text_at(source.data, "message_id")))

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        role, author = SYSTEM if turn.role == DEVELOPER else turn.role, turn.name
        if role not in _ROLES or role == TOOL:  # that gives it no authority that it should not have
            role, author = USER, author or role
        if contents := self._blocks(turn.items):
            self._add(role, contents, turn.items[0].source, author)
        results = [self._result(item, result) for _, _, item, result in answers(turn, is_all=turn.has_results)]
        if results:
            self._add(TOOL, results, turn.calls[0].source)

    def _add(self, role: str, contents: list[Any], source: Source, author: str | None = None) -> None:
        # The framework takes messages of one id for one message.
        identified = {"message_id": self.free_id(source)} if source.id else {}
        named = {} if author is None else {"author_name": author}
        self.messages.append({"type": "message", "role": role, "contents": contents, **named, **identified})

    def _call_block(self, item: FormItem, call: Call, native: Any) -> Any:  # noqa: ARG002
        if native is not None:
            return {**native, "call_id": call.id, "name": call.name}
        arguments = call.input if isinstance(call.input, dict) else arguments_of(call)
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}

    def _new_block(self, item: FormItem) -> Any:
        what = item.what
        if isinstance(what, Words):
            return {"type": "text", "text": what.text}
        if isinstance(what, Reasoning) and what.text:
            return {"type": "text_reasoning", "text": what.text}
        url = url_of(what) if isinstance(what, File) else None
        if url is None or not isinstance(what, File):
            return None
        named = {} if what.name is None else {"name": what.name}
        return {"type": "uri" if what.data is None else "data", "uri": url, "media_type": what.media_type, **named}

    def _result(self, item: FormItem, result: Result) -> dict[str, Any]:
        native = self.native(item)
        if native is not None:
            return {**native, "call_id": result.call_id}
        failure = {"exception": _FAILED} if result.is_error else {}
        head = {"type": "function_result", "call_id": result.call_id, "result": result_text(result)}
        return {**head, "items": self._contents(item, result), **failure}


_ROLES: Final = (SYSTEM, USER, ASSISTANT, TOOL)

FORM: Final = Form(name=NAME, read=read, write=AgentFrameworkWriter, rules=Rules(ids=ANY, names=ANY))
