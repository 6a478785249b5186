"""
Items of the OpenAI Responses API, to UIMessages and back: messages, calls of functions, their outputs, reasoning.

    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Riga"}'}

    {"id": "m2", "role": "assistant", "parts": [
        {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "call_1", "state": "input-available",
         "input": {"city": "Riga"}}]}

One item is one message. Nothing is lost: an item or a content part that could not be told again is kept as it was given.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...limits import json_copy, same_json
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at
from .exchanges import exchanges, reversible, texts_of
from .from_openai import is_bare_text
from .parts import (
    ANY_FILE,
    ANY_IMAGE,
    REFUSAL,
    arguments_of,
    base64_data,
    call_part,
    file_id,
    is_image,
    is_tool_part,
    media_type,
    objects,
    outcome_of,
    tool_name,
    tool_part,
    without_calls,
)
from .plain import (
    CALL_PROVIDER,
    DEVELOPER,
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

FORM: Final = "responses"
VERBATIM: Final = "data-responses"
ITEM: Final = "data-responses-item"
"""The type of a part that holds an item which has no counterpart, as it was given."""

_MESSAGE: Final = "message"
_CALLS: Final = (("function_call", "arguments"), ("custom_tool_call", "input"))
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_REASONING: Final = "reasoning"
_OTHERS: Final = (_REASONING, "item_reference", "compaction", "tool_search_output")
_TEXTS: Final = ("input_text", "output_text")
_ROLES: Final = (USER, ASSISTANT, SYSTEM, DEVELOPER)
_PARTS: Final = (*_TEXTS, "input_image", "input_file", REFUSAL)


def is_responses_item(value: Any) -> bool:
    """Whether this is an item that only the Responses API has: one with a `type` of its kinds, or with such content."""
    if not isinstance(value, Mapping) or "parts" in value:
        return False
    item = cast("Mapping[str, Any]", value)
    if "role" not in item:
        kind = text_at(item, "type") or ""
        return kind in _OTHERS or kind.endswith(("_call", "_call_output")) or kind.startswith("mcp_")
    content = item.get("content")
    return isinstance(content, list) and (
        item.get("type") == _MESSAGE or any(_kind(part) in _PARTS[:-1] for part in cast("list[Any]", content))
    )


def ui_of_item(item: Mapping[str, Any], message_id: str) -> UIMessage:
    """
    The UIMessage for an item of the Responses API.

    Raises:
        InvalidValueError: It has neither a `type` nor a `role`, or there is something in it that JSON does not know.
    """
    fields = plain_object(item, "an item of the Responses API")
    kind = text_at(fields, "type") or (_MESSAGE if "role" in fields else None)
    if kind is None:
        msg = "an item of the Responses API needs a type, such as 'function_call', or a role, such as 'user'"
        raise InvalidValueError(msg)
    stored = _converted(kind, fields, message_id)
    if stored is not None and same_json(responses_items(stored), [fields]):
        return stored
    role = TOOL if kind.endswith("_output") else ASSISTANT
    role = text_at(fields, "role") or role
    return {"id": message_id, "role": role, "parts": [{"type": ITEM, "data": fields}]}


def responses_items(stored: UIMessage) -> list[dict[str, Any]]:
    """The items for a UIMessage; none if there is nothing to say."""
    details = details_of(stored)
    form, call_id = object_at(details, FORM), text_at(details, "tool_call_id")
    parts = objects(stored["parts"])
    if len(parts) == 1 and parts[0].get("type") == ITEM:
        return [json_copy(parts[0].get("data"), "an item")]
    if stored["role"] == TOOL and call_id is not None:
        return [_output(call_id, parts, form)]
    role = DEVELOPER if stored["role"] == SYSTEM and details.get("role") == DEVELOPER else stored["role"]
    role = role if role in _ROLES else USER
    own_text = _own_text(role)
    if len(parts) == 1 and parts[0].get("type") == "text" and (block := _block(parts[0], own_text)) is not None:
        return [_message(role, [block], form)]  # what follows would say the same, in twice the time
    if role != ASSISTANT:
        results = [_result(part) for part in without_calls(stored) if is_tool_part(part)]
        return results + _said(role, [part for part in parts if not is_tool_part(part)], form)
    return [
        item
        for position, exchange in enumerate(exchanges(stored))
        for item in (*_said(role, exchange.said, {} if position else form), *map(_result, exchange.answered))
    ]


def _converted(kind: str, fields: Mapping[str, Any], message_id: str) -> UIMessage | None:
    call_id, role = text_at(fields, "call_id"), ASSISTANT
    if kind == _MESSAGE:
        return _message_of(fields, message_id)
    given: dict[str, Any] = {}
    if kind in dict(_CALLS):
        part = _call_of(kind, dict(_CALLS)[kind], fields)
        parts = [] if part is None else [part]
    elif kind in _OUTPUTS and call_id is not None:
        output, role = fields.get("output"), TOOL
        blocks: Any = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
        parts = [_part_of(block) for block in cast("list[Any]", blocks)] if isinstance(blocks, list) else []
        form = kept(
            type=None if kind == _OUTPUTS[0] else kind,
            content=None if isinstance(output, str) else "list",
            fields=without(fields, "type", "call_id", "output"),
        )
        given = {"tool_call_id": call_id, **kept(responses=form)}
    elif kind == _REASONING:
        parts = [_reasoning_of(fields)]
    else:
        return None
    found: UIMessage = {"id": message_id, "role": role, "parts": parts}
    return found | ({"metadata": {OWNER: given}} if given else {})


def _message_of(fields: Mapping[str, Any], message_id: str) -> UIMessage | None:
    role, content = text_at(fields, "role"), fields.get("content")
    if role not in _ROLES or not isinstance(content, str | list):
        return None
    own = _own_text(role)
    blocks: list[Any] = [{"type": own, "text": content}] if isinstance(content, str) else cast("list[Any]", content)
    parts = [_part_of(block, own) for block in blocks]
    form = kept(
        type=_MESSAGE if "type" in fields else None,
        content="list" if isinstance(content, list) and (not parts or is_bare_text(parts)) else None,
        fields=without(fields, "type", "role", "content"),
    )
    given = kept(role=DEVELOPER if role == DEVELOPER else None, responses=form)
    found: UIMessage = {"id": message_id, "role": SYSTEM if role == DEVELOPER else role, "parts": parts}
    return found | ({"metadata": {OWNER: given}} if given else {})


def _call_of(kind: str, key: str, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    call_id, name, written = text_at(fields, "call_id"), text_at(fields, "name"), text_at(fields, key)
    if call_id is None or name is None or written is None:
        return None
    is_custom = kind == _CALLS[1][0]
    part = call_part(name, call_id, written) if is_custom else tool_part(name, call_id, written)
    details = kept(type=kind if is_custom else None, fields=without(fields, "type", "call_id", "name", key))
    return with_details(part, FORM, details, place=CALL_PROVIDER)


def _reasoning_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    summary = fields.get("summary")
    text = texts_of(cast("list[Any]", summary)) if isinstance(summary, list) else ""
    given = kept(itemId=fields.get("id"), reasoningEncryptedContent=fields.get("encrypted_content"))
    part: dict[str, Any] = {"type": _REASONING, "text": text, PROVIDER: {"openai": given}}
    return with_details(part, FORM, {"item": without(fields, "type", "id", "encrypted_content")})


def _said(role: str, parts: list[Mapping[str, Any]], form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items for what was said: neighbouring content as one message, and calls and reasoning as items of their own."""
    found: list[dict[str, Any]] = []
    content: list[Any] = []
    for part in parts:
        item = _call(part) if is_tool_part(part) else _reasoning(part)
        block = None if item is not None else _block(part, _own_text(role))
        if block is not None or part.get("type") == VERBATIM:
            content.append(block)
        if item is not None:
            found += [_message(role, content, form)] if content else []
            found = _with_item(found, item)
            content, form = [], {}
    return found + ([_message(role, content, form)] if content or (form and not found) else [])


def _message(role: str, content: list[Any], form: Mapping[str, Any]) -> dict[str, Any]:
    is_text = is_bare_text(content) and content[0]["type"] == _own_text(role) and form.get("content") != "list"
    head = {"type": _MESSAGE} if form.get("type") == _MESSAGE else {}
    written: Any = content[0]["text"] if is_text else content
    return copied({**head, "role": role, "content": written, **object_at(form, "fields")}, "a message")


def _output(call_id: str, parts: list[Mapping[str, Any]], form: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [_block(part, _TEXTS[0]) for part in parts]
    output = blocks if form.get("content") == "list" else texts_of(blocks)
    head = {"type": text_at(form, "type") or _OUTPUTS[0], "call_id": call_id, "output": output}
    return copied({**head, **object_at(form, "fields")}, "an output")


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    details = part_details(part, FORM, place=CALL_PROVIDER)
    kind, fields = text_at(details, "type") or _CALLS[0][0], object_at(details, "fields")
    written = part.get("input") if kind == _CALLS[1][0] else arguments_of(part)
    head = {"type": kind, "call_id": part["toolCallId"], "name": tool_name(part), dict(_CALLS)[kind]: written}
    return copied({**head, **fields}, "a call")


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    outcome = outcome_of(part)
    is_custom = part_details(part, FORM, place=CALL_PROVIDER).get("type") == _CALLS[1][0]
    return {
        "type": _OUTPUTS[is_custom],
        "call_id": part["toolCallId"],
        "output": "" if outcome is None else outcome.text,
    }


def _reasoning(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reasoning item for a part; None for other parts, and for reasoning of another API."""
    given, details = object_at(part, PROVIDER, "openai"), part_details(part, FORM)
    if part.get("type") != _REASONING or "itemId" not in given:
        return None
    summary: list[Any] = [{"type": "summary_text", "text": part["text"]}] if part.get("text") else []
    encrypted = given.get("reasoningEncryptedContent")
    secret = {} if encrypted is None else {"encrypted_content": encrypted}
    return copied(
        {"type": _REASONING, "id": given["itemId"], **secret, **(object_at(details, "item") or {"summary": summary})},
        "item",
    )


def _with_item(found: list[dict[str, Any]], item: dict[str, Any]) -> list[dict[str, Any]]:
    """The items and one more; reasoning with the id of an earlier item is another paragraph of its summary."""
    for position, one in enumerate(found):
        if item["type"] == one.get("type") == _REASONING and item["id"] == one["id"]:
            given = (one.get("summary"), item.get("summary"))
            summary = [text for texts in given if isinstance(texts, list) for text in cast("list[Any]", texts)]
            return [*found[:position], {**one, **item, "summary": summary}, *found[position + 1 :]]
    return [*found, item]


def _own_text(role: str) -> str:
    return _TEXTS[role == ASSISTANT]


def _kind(block: Any) -> Any:
    return cast("Mapping[str, Any]", block).get("type") if isinstance(block, Mapping) else None


def _part_of(block: Any, own_text: str = _TEXTS[0]) -> dict[str, Any]:
    return reversible(block, lambda given: _part(given, own_text), lambda part: _block(part, own_text), VERBATIM)


def _part(block: Mapping[str, Any], own_text: str) -> dict[str, Any] | None:
    kind = text_at(block, "type") or ""
    if kind in _TEXTS or kind == REFUSAL:
        text, key = text_at(block, REFUSAL if kind == REFUSAL else "text"), REFUSAL if kind == REFUSAL else "text"
        details = kept(kind=None if kind == own_text else kind, fields=without(block, "type", key))
        return None if text is None else with_details({"type": "text", "text": text}, FORM, details)
    if kind == "input_image":
        return _file(block, "image_url", ANY_IMAGE, detail="detail")
    if kind == "input_file":
        return _file(block, "file_data" if "file_data" in block else "file_url", ANY_FILE)
    return None


def _file(block: Mapping[str, Any], key: str, kind: str, detail: str = "") -> dict[str, Any] | None:
    url, uploaded, name = (text_at(block, each) for each in (key, "file_id", "filename"))
    if (url is None) == (uploaded is None):
        return None
    address = uploaded or url or ""
    given = {} if uploaded is None else {"fileId": uploaded}
    given |= {"imageDetail": block[detail]} if detail in block else {}
    part: dict[str, Any] = {"type": "file", "mediaType": media_type(address) or kind, "url": address}
    part |= {} if name is None else {"filename": name}
    part |= {PROVIDER: {"openai": given}} if given else {}
    fields = without(block, "type", key, "file_id", "filename", *((detail,) if detail else ()))
    return with_details(part, FORM, {"kind": text_at(block, "type"), "key": key, **kept(fields=fields)})


def _block(part: Mapping[str, Any], own_text: str) -> Any:
    """The content part for a part of a UIMessage; None where the API has none."""
    kind, details, text = part.get("type"), part_details(part, FORM), text_at(part, "text")
    named, fields = text_at(details, "kind"), object_at(details, "fields")
    if kind == VERBATIM:
        return part.get("data")
    if kind == "text" and text is not None:
        return {"type": named or own_text, (REFUSAL if named == REFUSAL else "text"): text, **fields}
    if kind == "file" and own_text == _TEXTS[0]:
        return _media(part, details, fields)
    return None


def _media(part: Mapping[str, Any], details: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
    url, name, uploaded = text_at(part, "url"), text_at(part, "filename"), file_id(part)
    kind = text_at(details, "kind") or ("input_image" if is_image(part) else "input_file")
    key = text_at(details, "key") or (
        "image_url" if is_image(part) else "file_data" if base64_data(url or "") else "file_url"
    )
    given = object_at(part, PROVIDER, "openai")
    detail = {"detail": given["imageDetail"]} if "imageDetail" in given else {}
    named = {} if name is None else {"filename": name}
    if uploaded is None and url is None:
        return None
    address = {key: url} if uploaded is None else {"file_id": uploaded}
    return {"type": kind, **address, **detail, **named, **fields}
