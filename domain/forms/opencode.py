"""
Messages of OpenCode, with their parts, as `opencode export` has them.

    {"info": {"role": "assistant", "id": "msg_1", "sessionID": "ses_1", ...},
     "parts": [{"type": "tool", "tool": "bash", "callID": "c1", "state": {"status": "completed", "input": {}, "output": "a.py"}}, ...]}

A call has its result with it. Steps, patches and snapshots are the client's own. A message may be a list of them: of such that say
nothing or nothing new, and what was said last.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .claude_code import BOOKKEEPING, SEARCHED_OUTPUT
from .items import ASSISTANT, TOOL, USER, Call, File, FormItem, Piece, Reasoning, Result, Text
from .model import Form, file_of
from .plain import ANY_FILE, last_line, list_at, object_at, text_at

NAME: Final = "opencode"
_ENDED: Final = frozenset({"completed", "error"})
_TOLD: Final = ("text/plain", "application/x-directory")
"""Files whose content is told as a text beside them."""


def _file(part: Mapping[str, Any]) -> File | None:
    url, media_type = text_at(part, "url"), text_at(part, "mime") or ANY_FILE
    return None if url is None or media_type in _TOLD else file_of(url, media_type, text_at(part, "filename"))


def _tool(part: Mapping[str, Any], source: Any) -> Iterator[FormItem]:
    state, call_id, name = object_at(part, "state"), text_at(part, "callID"), text_at(part, "tool")
    yield FormItem(ASSISTANT, Call(call_id, name or "", object_at(state, "input")), source)
    if state.get("status") in _ENDED:
        is_error = state["status"] == "error"
        pieces: list[Piece] = [Text(text_at(state, "error" if is_error else "output") or "")]
        pieces += filter(None, (_file(object_at(file)) for file in list_at(state, "attachments")))
        yield FormItem(TOOL, Result(call_id, name, pieces, is_error), source)


def read(data: Any, name: str, source: Any) -> list[FormItem]:  # noqa: ARG001 - a message says its role
    line, items = last_line(data), list[FormItem]()
    role = text_at(object_at(line, "info"), "role") or ""
    for part in map(object_at, list_at(line, "parts") if role in {USER, ASSISTANT} else ()):
        kind, text = part.get("type"), text_at(part, "text")
        if kind == "text" and text and not part.get("ignored"):
            items.append(FormItem(role, Text(text), source))
        elif kind == "reasoning" and text:
            items.append(FormItem(role, Reasoning(text), source))
        elif kind == "file" and (file := _file(part)) is not None:
            items.append(FormItem(role, file, source))
        elif kind == "tool":
            items += _tool(part, source)
    return items


# What has no items is bookkeeping, and says no role.
FORM: Final = Form(name=NAME, read=read, role=lambda _: None, unsaid=BOOKKEEPING, searched_output=SEARCHED_OUTPUT)
