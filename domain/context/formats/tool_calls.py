"""Tool calls as the parts of a UIMessage that stand for them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...rules import same_json
from .plain import compact, object_at, parsed, text_at

DYNAMIC_TOOL: Final = "dynamic-tool"
TOOL_PREFIX: Final = "tool-"
DENIED: Final = "Tool execution denied."


class Outcome(msgspec.Struct, frozen=True):
    """What a tool answered, as text."""

    text: str
    is_error: bool


def is_tool_part(part: Mapping[str, Any]) -> bool:
    """Whether this part is the call of a tool, with its result or without."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind == DYNAMIC_TOOL or kind.startswith(TOOL_PREFIX))


def is_complete_call(part: Mapping[str, Any]) -> bool:
    """Whether the call has arrived as a whole and can be answered: it has an id and is not being streamed."""
    return text_at(part, "toolCallId") is not None and part.get("state") != "input-streaming"


def verbatim_call_type(form: str) -> str:
    """The type of a part that holds a call of this format which has no counterpart, as it was given."""
    return f"data-{form}-call"


def verbatim_call(form: str, call: Any) -> dict[str, Any]:
    """A part that holds a call as it was given."""
    return {"type": verbatim_call_type(form), "data": call}


def is_verbatim_call(part: Mapping[str, Any]) -> bool:
    """Whether this part holds a call as some format gave it."""
    kind = part.get("type")
    return isinstance(kind, str) and kind.startswith("data-") and kind.endswith("-call")


def tool_name(part: Mapping[str, Any]) -> str:
    """The name of the tool: of a static part, such as `tool-weather`, the rest of its type."""
    if part["type"] == DYNAMIC_TOOL:
        return text_at(part, "toolName") or ""
    return str(part["type"]).removeprefix(TOOL_PREFIX)


def tool_part(name: str, call_id: str, arguments: str) -> dict[str, Any]:
    """
    The part of a call that has no result yet.

    `input` is what `arguments` say. Where they cannot be told from it again, because they are no JSON or written in another
    way, the text itself stands in `rawInput`.
    """
    value, is_json = parsed(arguments)
    part = call_part(name, call_id, value)
    return part if is_json and compact(value) == arguments else part | {"rawInput": arguments}


def call_part(name: str, call_id: str, value: Any) -> dict[str, Any]:
    """The part of a call that has no result yet, with its parsed input."""
    return {"type": DYNAMIC_TOOL, "toolName": name, "toolCallId": call_id, "state": "input-available", "input": value}


def arguments_of(part: Mapping[str, Any]) -> str:
    """The arguments of a call as text: as the model wrote them, unless somebody changed the `input` since."""
    raw, value = text_at(part, "rawInput"), part.get("input")
    if raw is not None and (value is None or value == raw or same_json(parsed(raw)[0], value)):
        return raw
    return compact({} if value is None else value)


def outcome_of(part: Mapping[str, Any]) -> Outcome | None:
    """What the tool answered; None while there is no answer."""
    state = part.get("state")
    if state == "output-available":
        output = part.get("output")
        return Outcome(output if isinstance(output, str) else compact(output), is_error=False)
    if state == "output-error":
        return Outcome(text_at(part, "errorText") or "", is_error=True)
    if state == "output-denied":
        return Outcome(text_at(object_at(part, "approval"), "reason") or DENIED, is_error=True)
    return None
