"""
Items of ChatKit's threads, as JSON.

    {"type": "user_message", "id": "msg_1", "thread_id": "t", "created_at": "...", "content": [{"type": "input_text", "text": "Hi"}],
     "attachments": [], "quoted_text": null, "inference_options": {}}
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .items import ASSISTANT, SYSTEM, TOOL, USER, Call, FormItem, Json, Own, Reasoning, Result, Text
from .model import Form, any_json, file_of
from .plain import ANY_IMAGE, compact, list_at, object_at, text_at

NAME: Final = "chatkit"
_HIDDEN: Final = ("hidden_context_item", "sdk_hidden_context")


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    """Read an item. Widgets say the text that is copied of them; marks at the end of a turn say nothing."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        return any_json(data, name, source)
    role = USER if kind == "user_message" else SYSTEM if kind in _HIDDEN else ASSISTANT
    return [FormItem(TOOL if isinstance(what, Result) else role, what, source) for what in _whats(kind, data)]


def _whats(kind: str, data: Mapping[str, Any]) -> Iterator[Any]:
    if kind in ("user_message", "assistant_message"):
        if (quoted := text_at(data, "quoted_text")) is not None:
            yield Text("> " + quoted.replace("\n", "\n> "))
        for content in list_at(data, "content"):
            yield Text(text_at(object_at(content), "text") or "")
        for attachment in list_at(data, "attachments"):
            yield Own(NAME, attachment)
    elif kind == "client_tool_call":
        call_id, name = text_at(data, "call_id"), text_at(data, "name") or ""
        yield Call(call_id, name, data.get("arguments"))
        if data.get("status") == "completed":
            output = data.get("output")
            yield Result(call_id, name, output if isinstance(output, str) else [Json(output)])
    elif kind == "widget" and (text := text_at(data, "copy_text")):
        yield Text(text)
    elif kind == "generated_image" and (url := text_at(object_at(data, "image"), "url")) is not None:
        yield file_of(url, ANY_IMAGE)
    elif kind == "structured_input":
        for question in map(object_at, list_at(data, "inputs")):
            values = list_at(object_at(question, "answer"), "values")
            yield Text("\n".join([text_at(question, "question") or "", *map(str, values)]))
    elif kind in ("workflow", "task"):
        tasks = list_at(object_at(data, "workflow"), "tasks") if kind == "workflow" else [data.get("task")]
        for task in map(object_at, tasks):
            if text := "\n".join(filter(None, (text_at(task, "title"), text_at(task, "content")))):
                yield Reasoning(text)
    elif kind in _HIDDEN:
        context = data.get("content")
        yield Text(context if isinstance(context, str) else compact(context))


FORM: Final = Form(name=NAME, read=read)
