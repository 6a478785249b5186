"""
Lines of the sessions of Gemini CLI: messages of its own, whose content is parts of Gemini's API.

    {"id": "a1...", "timestamp": "2026-11-20T10:00:00.000Z", "type": "user", "content": [{"text": "Hi"}]}
    {"id": "b2...", "type": "gemini", "content": "Let me see.", "thoughts": [], "toolCalls": [{"id": "c1", "name": "run_shell_command",
     "args": {"command": "ls"}, "result": [{"functionResponse": {"id": "c1", "response": {"output": "a.py"}}}]}]}
    {"$set": {"messages": [...]}}

A call has its result with it, which the client tells as a message of the user once more: that is bookkeeping, and so is what it tells
the model by itself. A message may be a list of lines: bookkeeping, and what was said last.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from . import google
from .claude_code import BOOKKEEPING, SEARCHED_OUTPUT
from .items import ASSISTANT, TOOL, USER, Call, FormItem, Reasoning, Result
from .model import Form
from .plain import last_line, list_at, object_at, text_at

NAME: Final = "gemini-cli"
CONTEXT: Final = "<session_context>"
"""The beginning of what the client tells the model about where it is."""


def messages_in(line: Mapping[str, Any]) -> list[Any]:
    """Return the messages that a line puts in the place of all before it."""
    return list_at(object_at(line, "$set"), "messages")


def _parts(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else [content]
    return [{"text": part} if isinstance(part, str) else part for part in parts]


def _read_one(message: Mapping[str, Any], source: Any) -> Iterator[FormItem]:
    kind, parts = message.get("type"), _parts(message.get("content"))
    if kind == USER:
        first = text_at(object_at(parts[0]), "text") or "" if parts else ""
        spoken_parts = [part for part in parts if "functionResponse" not in object_at(part)]
        if not first.startswith(CONTEXT):
            yield from google.read({"role": USER, "parts": spoken_parts}, "", source)
    if kind != "gemini":
        return
    for thought in map(object_at, list_at(message, "thoughts")):
        texts = (text_at(thought, key) for key in ("subject", "description"))
        yield FormItem(ASSISTANT, Reasoning("\n".join(text for text in texts if text)), source)
    calls = [object_at(call) for call in list_at(message, "toolCalls")]
    spoken_parts = [part for part in parts if not calls or "functionCall" not in object_at(part)]
    for item in google.read({"role": google.MODEL, "parts": spoken_parts}, "", source):
        if item.native != {"text": ""}:
            yield item
    for call in calls:
        called = Call(text_at(call, "id"), text_at(call, "name") or "", object_at(call, "args"))
        yield FormItem(ASSISTANT, called, source)
        yield from (
            FormItem(TOOL, item.what, source)
            for item in google.read({"role": USER, "parts": list_at(call, "result")}, "", source)
            if isinstance(item.what, Result)
        )


def read(data: Any, name: str, source: Any) -> list[FormItem]:  # noqa: ARG001 - a line says who speaks
    line = last_line(data)
    return [item for message in messages_in(line) or [line] for item in _read_one(object_at(message), source)]


# What has no items is bookkeeping, and says no role.
FORM: Final = Form(name=NAME, read=read, role=lambda _: None, unsaid=BOOKKEEPING, searched_output=SEARCHED_OUTPUT)
