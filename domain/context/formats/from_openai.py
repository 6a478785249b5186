"""
OpenAI chat messages to UIMessages.

    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}]}

    {"id": "m2", "role": "assistant", "parts": [
        {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "call_1", "state": "input-available",
         "input": {"city": "Riga"}}]}

Nothing is lost: what a UIMessage has no place for is kept in its `metadata`, or in the `providerMetadata` of a part; a part that
could not be told again from its counterpart is kept as it was given.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...limits import same_json
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at
from .parts import (
    OPENAI,
    REFUSAL,
    VERBATIM,
    arguments_of,
    call_part,
    part_of,
    refusal_part,
    tool_name,
    tool_part,
    verbatim_call,
    verbatim_call_type,
)
from .plain import (
    CALL_PROVIDER,
    DEVELOPER,
    SYSTEM,
    kept,
    part_details,
    plain_object,
    role_of,
    text_at,
    with_details,
    without,
)

CUSTOM: Final = "custom"
_CONSUMED: Final = ("role", "content", "name", "tool_call_id", "tool_calls", REFUSAL)


def is_openai_message(value: Any) -> bool:
    """Whether this is an object with a text `role`, and `content` or tool calls, but no `parts`."""
    if not isinstance(value, Mapping):
        return False
    mapping = cast("Mapping[str, Any]", value)
    has_body = any(key in mapping for key in ("content", "tool_calls", "function_call"))
    return isinstance(mapping.get("role"), str) and has_body and "parts" not in mapping


def ui_of(message: Mapping[str, Any] | Any, message_id: str) -> UIMessage:
    """
    The UIMessage for an OpenAI chat message, an object or one of the SDK.

    Raises:
        InvalidValueError: It has no text `role`, its content is neither text nor a list nor None, or there is something in it
            that JSON does not know.
    """
    fields = plain_object(message, "an OpenAI message")
    role = text_at(fields, "role")
    content: str | list[Any] | None = fields.get("content")
    if not role:
        msg = "an OpenAI message needs a role, such as 'user' or 'assistant'"
        raise InvalidValueError(msg)
    if not isinstance(content, str | list | None):
        msg = f"the content of an OpenAI message must be text or a list of parts, not {type(content).__name__}"
        raise InvalidValueError(msg)
    parts = _content_parts(content, role)
    shape = _shape(fields, parts)
    rest = without(fields, *_CONSUMED)
    refusal, name, call_id = (_taken(fields, key, rest) for key in (REFUSAL, "name", "tool_call_id"))
    parts += [] if refusal is None else [refusal_part(refusal)]
    parts += _call_parts(fields, rest)
    is_inferred = role_of(role, name=name, call_id=call_id) == role or role == DEVELOPER
    form = kept(content=shape, role=None if is_inferred else role, fields=rest)
    if not (parts or form):
        form = {"content": "null"}
    given = kept(name=name, role=DEVELOPER if role == DEVELOPER else None, tool_call_id=call_id, openai=form)
    found: UIMessage = {"id": message_id, "role": SYSTEM if role == DEVELOPER else role, "parts": parts}
    return found | ({"metadata": {OWNER: given}} if given else {})


def openai_call(part: Mapping[str, Any]) -> Any:
    """The tool call for a part."""
    details = part_details(part, OPENAI, place=CALL_PROVIDER)
    inner, fields = object_at(details, "inner"), object_at(details, "fields")
    if part["type"] == verbatim_call_type(OPENAI):
        return part.get("data")
    call_id, name, written = part["toolCallId"], tool_name(part), part.get("input")
    if details.get("type") == CUSTOM and isinstance(written, str):
        return {"id": call_id, "type": CUSTOM, CUSTOM: {"name": name, "input": written, **inner}, **fields}
    function = {"name": name, "arguments": arguments_of(part), **inner}
    return {"id": call_id, "type": "function", "function": function, **fields}


def is_bare_text(parts: list[Any]) -> bool:
    """Whether these parts are one text without any detail, which is written as text instead of a list."""
    return len(parts) == 1 and isinstance(parts[0], dict) and {*parts[0]} == {"type", "text"}


def _content_parts(content: str | list[Any] | None, role: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    # Only users send files: elsewhere a part of this kind is not the API's, and goes back as it came.
    return [
        part if part["type"] == "text" or role == USER else {"type": VERBATIM, "data": block}
        for block, part in ((block, part_of(block)) for block in content)
    ]


def _shape(fields: Mapping[str, Any], parts: list[dict[str, Any]]) -> str | None:
    """Return `list` or `absent` where the parts do not show that the content was so."""
    if "content" not in fields:
        return "absent"
    is_list = isinstance(fields["content"], list)
    return "list" if is_list and (not parts or is_bare_text(parts)) else None


def _call_parts(fields: Mapping[str, Any], rest: dict[str, Any]) -> list[dict[str, Any]]:
    calls = fields.get("tool_calls")
    if fields["role"] == ASSISTANT and isinstance(calls, list) and calls:
        return [_call_part(call) for call in cast("list[Any]", calls)]
    if "tool_calls" in fields:
        rest["tool_calls"] = calls
    return []


def _call_part(call: Any) -> dict[str, Any]:
    if isinstance(call, Mapping):
        call = cast("Mapping[str, Any]", call)
        part = _converted_call(call)
        if part is not None and same_json(openai_call(part), call):
            return part
    return verbatim_call(OPENAI, call)


def _converted_call(call: Mapping[str, Any]) -> dict[str, Any] | None:
    kind, call_id = text_at(call, "type") or "", text_at(call, "id")
    inner, fields = object_at(call, kind), without(call, "id", "type", kind)
    name = text_at(inner, "name")
    written = text_at(inner, "input" if kind == CUSTOM else "arguments")
    if call_id is None or name is None or written is None:
        return None
    if kind == CUSTOM:
        details = kept(type=CUSTOM, fields=fields, inner=without(inner, "name", "input"))
        return with_details(call_part(name, call_id, written), OPENAI, details, place=CALL_PROVIDER)
    details = kept(fields=fields, inner=without(inner, "name", "arguments"))
    return with_details(tool_part(name, call_id, written), OPENAI, details, place=CALL_PROVIDER)


def _taken(fields: Mapping[str, Any], key: str, rest: dict[str, Any]) -> str | None:
    """The text under a key; anything else there stays among the fields that are kept as they are."""
    value = fields.get(key)
    if isinstance(value, str):
        return value
    if key in fields:
        rest[key] = value
    return None
