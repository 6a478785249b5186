"""
Messages of the Anthropic API, to UIMessages and back.

    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "The forecast decides.", "signature": "EqQB"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}]}

    {"id": "m2", "role": "assistant", "parts": [
        {"type": "reasoning", "text": "The forecast decides.", "providerMetadata": {"anthropic": {"signature": "EqQB"}}},
        {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "toolu_1", "state": "input-available",
         "input": {"city": "Riga"}}]}

Results of tools, which a user's message holds there, are stored under the role `tool`: nobody said them. Nothing that the API
takes is lost; a block that could not be told again from its part is kept as it was given.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at
from .exchanges import Exchange, exchanges, reversible, texts_of, written
from .from_openai import is_bare_text
from .parts import (
    ANY_FILE,
    ANY_IMAGE,
    base64_data,
    call_part,
    file_id,
    input_of,
    is_image,
    is_tool_part,
    media_type,
    outcome_of,
    tool_name,
    without_calls,
)
from .plain import (
    CALL_PROVIDER,
    PROVIDER,
    SYSTEM,
    TOOL,
    copied,
    details_of,
    kept,
    part_details,
    plain_object,
    text_at,
    with_details,
    without,
)

FORM: Final = "anthropic"
VERBATIM: Final = "data-anthropic"
_ROLES: Final = (USER, ASSISTANT, SYSTEM)
_RESULT: Final = "tool_result"
_KINDS: Final = ("thinking", "redacted_thinking", "tool_use", _RESULT, "server_tool_use")
_MEDIA: Final = (("image", ANY_IMAGE), ("document", ANY_FILE))
_OF_ANSWERS: Final = ("id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container")
"""The fields that the API's answers have, and that it does not take back; they stay stored."""


def is_anthropic_message(value: Any) -> bool:
    """Whether this is a message with a block that only the Anthropic API has."""
    if not isinstance(value, Mapping):
        return False
    mapping = cast("Mapping[str, Any]", value)
    content = mapping.get("content")
    return (
        isinstance(mapping.get("role"), str)
        and isinstance(content, list)
        and any(map(_is_ours, cast("list[Any]", content)))
    )


def ui_of_anthropic(message: Mapping[str, Any], message_id: str) -> UIMessage:
    """
    The UIMessage for an Anthropic message, or for an answer of the SDK.

    Raises:
        InvalidValueError: Its role is not one of the API, its content is neither text nor a list, or there is something in it
            that JSON does not know.
    """
    fields = plain_object(message, "an Anthropic message")
    role, content = text_at(fields, "role"), fields.get("content")
    if role not in _ROLES:
        msg = f"an Anthropic message needs a role, 'user', 'assistant' or 'system', not {role!r}"
        raise InvalidValueError(msg)
    if not isinstance(content, str | list):
        msg = f"the content of an Anthropic message must be text or a list of blocks, not {type(content).__name__}"
        raise InvalidValueError(msg)
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[Any]", content)
    misplaced = _RESULT if role == ASSISTANT else "tool_use"  # the API refuses it there
    parts = [
        {"type": VERBATIM, "data": block} if _kind(block) == misplaced else reversible(block, _part, _block, VERBATIM)
        for block in blocks
    ]
    is_result = role == USER and bool(parts) and all(map(is_tool_part, parts))
    rest = without(fields, "role", "content")
    given = kept(
        content="list" if isinstance(content, list) and len(written(parts, _block, VERBATIM)) < 2 else None,
        fields=without(rest, *_OF_ANSWERS),
        answer={key: rest[key] for key in _OF_ANSWERS if key in rest},
    )
    found: UIMessage = {"id": message_id, "role": TOOL if is_result else role, "parts": parts}
    return found | ({"metadata": {OWNER: {FORM: given}}} if given else {})


def anthropic_messages(stored: UIMessage) -> list[dict[str, Any]]:
    """The Anthropic messages for a UIMessage; none if there is nothing to say."""
    form = object_at(details_of(stored), FORM)
    role = stored["role"] if stored["role"] in _ROLES else USER
    call_id = text_at(details_of(stored), "tool_call_id")
    if stored["role"] == TOOL and call_id is not None:
        return [_message(USER, [{"type": _RESULT, "tool_use_id": call_id, "content": texts_of(stored["parts"])}], {})]
    if role != ASSISTANT:
        blocks = written(without_calls(stored), _told, VERBATIM)
        return [_message(role, blocks, form)] if blocks or form else []
    return [
        message
        for position, exchange in enumerate(exchanges(stored))
        for message in _exchange_messages(exchange, {} if position else form)
    ]


def _exchange_messages(exchange: Exchange, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    said = written(exchange.said, _block, VERBATIM)
    answer = [_message(ASSISTANT, said, form)] if said or form else []
    return answer + ([_message(USER, [_result(part) for part in exchange.answered], {})] if exchange.answered else [])


def _message(role: str, blocks: list[Any], form: Mapping[str, Any]) -> dict[str, Any]:
    is_text = is_bare_text(blocks) and form.get("content") != "list"
    content: Any = blocks[0]["text"] if is_text else blocks
    return copied({"role": role, "content": content, **object_at(form, "fields")}, "an Anthropic message")


def _kind(block: Any) -> str | None:
    return text_at(cast("Mapping[str, Any]", block), "type") if isinstance(block, Mapping) else None


def _is_ours(block: Any) -> bool:
    return _kind(block) in _KINDS or (_kind(block) in dict(_MEDIA) and "source" in block)


def _part(block: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = text_at(block, "type") or ""
    text = text_at(block, kind)
    if kind == "text" and text is not None:
        return with_details({"type": "text", "text": text}, FORM, kept(fields=without(block, "type", "text")))
    if kind == "thinking" and text is not None:
        details = kept(fields=without(block, "type", kind, "signature"))
        return with_details(_reasoning(text, signature=block.get("signature")), FORM, details)
    if kind == "redacted_thinking":
        return with_details(
            _reasoning("", redactedData=block.get("data")), FORM, kept(fields=without(block, "type", "data"))
        )
    if kind in dict(_MEDIA):
        return _file(kind, block)
    if kind in {"tool_use", _RESULT}:
        return _call(block) if kind == "tool_use" else _answered_call(block)
    return None


def _reasoning(text: str, **given: Any) -> dict[str, Any]:
    return {"type": "reasoning", "text": text, PROVIDER: {FORM: given}}


def _file(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    source = object_at(block, "source")
    data, url, named = (text_at(source, key) for key in ("data", "url", "media_type"))
    if source.get("type") == "base64" and data is not None and named is not None:
        part = {"type": "file", "mediaType": named, "url": f"data:{named};base64,{data}"}
    elif source.get("type") == "url" and url is not None:
        part = {"type": "file", "mediaType": dict(_MEDIA)[kind], "url": url}
    else:
        return None
    return with_details(part, FORM, {"kind": kind, **kept(fields=without(block, "type", "source"))})


def _call(block: Mapping[str, Any]) -> dict[str, Any] | None:
    call_id, name = text_at(block, "id"), text_at(block, "name")
    if call_id is None or name is None:
        return None
    details = kept(fields=without(block, "type", "id", "name", "input"))
    return with_details(call_part(name, call_id, block.get("input")), FORM, details, place=CALL_PROVIDER)


def _answered_call(block: Mapping[str, Any]) -> dict[str, Any] | None:
    call_id = text_at(block, "tool_use_id")
    if call_id is None:
        return None
    content, fields = block.get("content", ""), without(block, "type", "tool_use_id", "content")
    part: dict[str, Any] = {"type": "dynamic-tool", "toolName": "", "toolCallId": call_id, "input": {}}
    if block.get("is_error") is True:
        text = (
            content
            if isinstance(content, str)
            else texts_of(cast("list[Any]", content) if isinstance(content, list) else [])
        )
        part |= {"state": "output-error", "errorText": text}
    else:
        part |= {"state": "output-available", "output": content}
    is_told = content == part.get("errorText", content) and "content" in block
    details = kept(content=None if is_told else {key: content for key in ("content",) if key in block} or "absent")
    return with_details(part, FORM, {"result": fields, **details}, place=CALL_PROVIDER)


def _told(part: Mapping[str, Any]) -> Any:
    """The block for a part of a message that is no assistant's, whose calls are there for their results."""
    return _result(part) if is_tool_part(part) else _block(part)


def _block(part: Mapping[str, Any]) -> Any:
    """The block for a part of a UIMessage; None where the API has none."""
    kind, details = part.get("type"), part_details(part, FORM)
    text, fields = text_at(part, "text"), object_at(details, "fields")
    if kind == VERBATIM:
        return part.get("data")
    if kind == "text" and text is not None:
        return {"type": "text", "text": text, **fields}
    if kind == "reasoning" and text is not None:
        return _thinking(text, object_at(part, PROVIDER, FORM), fields)
    if kind == "file":
        return _media(part, text_at(details, "kind"), fields)
    if is_tool_part(part):
        given = part_details(part, FORM, place=CALL_PROVIDER)
        return _result(part) if "result" in given else _use(part, object_at(given, "fields"))
    return None


def _thinking(text: str, given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
    if "redactedData" in given:
        return {"type": "redacted_thinking", "data": given["redactedData"], **fields}
    if "signature" in given:
        return {"type": "thinking", "thinking": text, "signature": given["signature"], **fields}
    return None  # the API refuses what it did not sign


def _media(part: Mapping[str, Any], kind: str | None, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    url, named, uploaded = text_at(part, "url"), text_at(part, "mediaType") or "", file_id(part, FORM)
    data = base64_data(url or "")
    source: dict[str, Any]
    if uploaded is not None:
        source = {"type": "file", "file_id": uploaded}
    elif data is not None:
        source = {"type": "base64", "media_type": media_type(url or "") or named, "data": data}
    elif url is not None and url.startswith(("https:", "http:")):
        source = {"type": "url", "url": url}
    else:
        return None
    return {"type": kind or ("image" if is_image(part) else "document"), "source": source, **fields}


def _use(part: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    written = input_of(part)
    given = object_at(written) if isinstance(written, Mapping | None) else {"input": written}
    return {"type": "tool_use", "id": part["toolCallId"], "name": tool_name(part), "input": given, **fields}


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    details = part_details(part, FORM, place=CALL_PROVIDER)
    head: dict[str, Any] = {"type": _RESULT, "tool_use_id": part["toolCallId"]}
    if "result" not in details:
        outcome = outcome_of(part)
        text = "" if outcome is None else outcome.text
        return {**head, "content": text, **({"is_error": True} if outcome and outcome.is_error else {})}
    given = details.get("content")
    if isinstance(given, Mapping):
        head |= given
    elif given != "absent":
        head["content"] = part.get("errorText", part.get("output"))
    return {**head, **object_at(details, "result")}
