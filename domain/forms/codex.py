"""
Lines of the rollouts of Codex: items of the Responses API, and what the client noted beside them.

    {"timestamp": "2026-11-20T10:00:00.000Z", "ordinal": 7, "type": "response_item",
     "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}}

Events tell the same texts a second time, for the client's own window: they are bookkeeping, and so is what the client tells the
model by itself. A message may be a list of lines: bookkeeping, and what was said last.
"""

from collections.abc import Mapping
from typing import Any, Final

from . import responses
from .claude_code import BOOKKEEPING, SEARCHED_OUTPUT
from .items import ASSISTANT, TOOL, USER, FormItem
from .model import Form
from .plain import last_line, list_at, object_at, text_at

NAME: Final = "codex"
_INJECTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<skills_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "# AGENTS.md",
)
"""The beginnings of messages that the client writes in the name of the user."""
_ITEMS: Final = frozenset({"message", "reasoning"})


def item_in(data: Any) -> Mapping[str, Any] | None:
    """Return the item in a line; None of bookkeeping."""
    line = last_line(data)
    kind = text_at(line, "type") or ""
    # In the first rollouts of 2025 a line is an item.
    item = object_at(line, "payload") if kind == "response_item" else {} if "payload" in line else line
    kind = text_at(item, "type") or ""
    if kind != "message":
        return item if kind in _ITEMS or kind.endswith(("_call", "_call_output")) else None
    if item.get("role") == ASSISTANT:
        return item
    texts = [text_at(object_at(block), "text") or "" for block in list_at(item, "content")]
    is_injected = bool(texts) and texts[0].lstrip().startswith(_INJECTED)
    return None if item.get("role") != USER or is_injected else item


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    item = item_in(data)
    return [] if item is None else responses.read(item, name, source)


def _role(data: Any) -> str | None:
    item = item_in(data)
    if item is None:
        return None
    kind = text_at(item, "type") or ""
    return text_at(item, "role") or (TOOL if kind.endswith("_output") else ASSISTANT)


FORM: Final = Form(
    name=NAME, read=read, rules=responses.FORM.rules, role=_role, unsaid=BOOKKEEPING, searched_output=SEARCHED_OUTPUT
)
