"""
Contents of Google's Gemini API, to UIMessages and back.

    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Riga"}}}]}

    {"id": "m2", "role": "assistant", "parts": [
        {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "weather", "state": "input-available",
         "input": {"city": "Riga"}}]}

Keys are taken as the API writes them (`functionCall`) and as its Python SDK does (`function_call`), and given back alike. A call
without an id has its name for one, as the API pairs it with its response. Nothing is lost: a part that could not be told again
is kept as it was given.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at
from .exchanges import exchanges, reversible, texts_of, written
from .parts import (
    base64_data,
    call_part,
    file_id,
    input_of,
    is_tool_part,
    media_type,
    outcome_of,
    tool_name,
    without_calls,
)
from .plain import (
    CALL_PROVIDER,
    PROVIDER,
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

FORM: Final = "google"
VERBATIM: Final = "data-google"
_MODEL: Final = "model"
_ROLES: Final = ((_MODEL, ASSISTANT), (USER, USER), ("function", TOOL))
_SNAKE: Final = (
    ("functionCall", "function_call"),
    ("functionResponse", "function_response"),
    ("inlineData", "inline_data"),
    ("fileData", "file_data"),
    ("mimeType", "mime_type"),
    ("fileUri", "file_uri"),
    ("thoughtSignature", "thought_signature"),
)
_OF_PARTS: Final = ("text", *(name for pair in _SNAKE[:4] for name in pair))


def is_google_content(value: Any) -> bool:
    """Whether this is an object with `parts` of the Gemini API, which have no `type`, and with a role that it has, or none."""
    if not isinstance(value, Mapping):
        return False
    content = cast("Mapping[str, Any]", value)
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts or "id" in content or content.get("role", USER) not in (*dict(_ROLES),):
        return False
    return all(
        isinstance(part, Mapping)
        and "type" not in part
        and not {*_OF_PARTS}.isdisjoint(cast("Mapping[str, Any]", part))
        for part in cast("list[Any]", parts)
    )


def ui_of_content(content: Mapping[str, Any], message_id: str) -> UIMessage:
    """
    The UIMessage for a content of the Gemini API.

    Raises:
        InvalidValueError: Its role is not one of the API, its `parts` are no list, or there is something in it that JSON does not
            know.
    """
    fields = plain_object(content, "a content of the Gemini API")
    given, blocks = fields.get("role", USER), fields.get("parts", [])
    role = dict(_ROLES).get(given) if isinstance(given, str) else None
    if role is None:
        msg = f"a content of the Gemini API needs a role, 'user' or 'model', not {given!r}"
        raise InvalidValueError(msg)
    if not isinstance(blocks, list):
        msg = f"the parts of a content of the Gemini API must be a list, not {type(blocks).__name__}"
        raise InvalidValueError(msg)
    parts = [_part_of(block, is_model=role == ASSISTANT) for block in cast("list[Any]", blocks)]
    is_result = role == USER and bool(parts) and all(map(is_tool_part, parts))
    rest = without(fields, "role", "parts")
    details = kept(
        role=given if role == TOOL else None if "role" in fields else "absent",
        parts=None if blocks else "empty" if "parts" in fields else "absent",
        fields=rest,
    )
    found: UIMessage = {"id": message_id, "role": TOOL if is_result else role, "parts": parts}
    return found | ({"metadata": {OWNER: {FORM: details}}} if details else {})


def google_contents(stored: UIMessage) -> list[dict[str, Any]]:
    """The contents for a UIMessage; none if there is nothing to say."""
    form, call_id = object_at(details_of(stored), FORM), text_at(details_of(stored), "tool_call_id")
    if stored["role"] == TOOL and call_id is not None:
        output = {"output": texts_of(stored["parts"])}
        return [_content(USER, [{"functionResponse": {"id": call_id, "name": call_id, "response": output}}], form)]
    if stored["role"] != ASSISTANT:
        blocks = written(without_calls(stored), _told, VERBATIM)
        return [_content(USER, blocks, form)] if blocks or form else []
    found: list[dict[str, Any]] = []
    for position, exchange in enumerate(exchanges(stored)):
        own: Mapping[str, Any] = {} if position else form
        said = written(exchange.said, _block, VERBATIM)
        found += [_content(_MODEL, said, own)] if said or own else []
        found += [_content(USER, [_response(part) for part in exchange.answered], {})] if exchange.answered else []
    return found


def _content(role: str, blocks: list[Any], form: Mapping[str, Any]) -> dict[str, Any]:
    named = form.get("role", role)
    head = {} if named == "absent" else {"role": named}
    body = {} if form.get("parts") == "absent" and not blocks else {"parts": blocks}
    return copied({**head, **body, **object_at(form, "fields")}, "a content of the Gemini API")


def _part_of(block: Any, *, is_model: bool) -> dict[str, Any]:
    def convert(given: Mapping[str, Any]) -> dict[str, Any] | None:
        part = _part(given)
        is_misplaced = part is not None and is_tool_part(part) and is_model == ("output" in part)
        return None if is_misplaced else part

    return reversible(block, convert, _block, VERBATIM)


def _part(block: Mapping[str, Any]) -> dict[str, Any] | None:
    is_snake = any(snake in block for _, snake in _SNAKE)
    plain = _in_camel(block)
    text, style = text_at(plain, "text"), "snake" if is_snake else None
    if text is not None:
        is_thought = plain.get("thought") is True
        given = kept(thoughtSignature=plain.get("thoughtSignature"))
        part: dict[str, Any] = {"type": "reasoning" if is_thought else "text", "text": text}
        part |= {PROVIDER: {FORM: given}} if given else {}
        rest = without(plain, "text", "thoughtSignature", *(("thought",) if is_thought else ()))
        details: dict[str, Any] = kept(style=style, fields=rest) | ({"thought": True} if is_thought else {})
        return with_details(part, FORM, details)
    for kind, make in (
        ("functionCall", _call),
        ("functionResponse", _answered),
        ("inlineData", _data),
        ("fileData", _link),
    ):
        inner = _in_camel(object_at(plain, kind))
        made = make(inner) if inner else None
        if made is not None:
            place = CALL_PROVIDER if is_tool_part(made) else PROVIDER
            own = part_details(made, FORM, place=place)
            return with_details(made, FORM, {**own, **kept(style=style, fields=without(plain, kind))}, place=place)
    return None


def _call(inner: Mapping[str, Any]) -> dict[str, Any] | None:
    name, call_id = text_at(inner, "name"), text_at(inner, "id")
    if name is None:
        return None
    part = call_part(name, name if call_id is None else call_id, inner.get("args"))
    details = kept(unnamed=call_id is None, inner=without(inner, "name", "id", "args"))
    return with_details(part, FORM, details, place=CALL_PROVIDER)


def _answered(inner: Mapping[str, Any]) -> dict[str, Any] | None:
    part = _call(inner)
    if part is None:
        return None
    details = kept(unnamed=text_at(inner, "id") is None, inner=without(inner, "name", "id", "response"))
    part |= {"state": "output-available", "input": {}, "output": inner.get("response")}
    return part | {CALL_PROVIDER: {OWNER: {FORM: {"result": True, **details}}}}


def _data(inner: Mapping[str, Any]) -> dict[str, Any] | None:
    data, named = text_at(inner, "data"), text_at(inner, "mimeType")
    if data is None or named is None:
        return None
    return _file(f"data:{named};base64,{data}", named, without(inner, "data", "mimeType"))


def _link(inner: Mapping[str, Any]) -> dict[str, Any] | None:
    url, named = text_at(inner, "fileUri"), text_at(inner, "mimeType")
    if url is None or named is None or base64_data(url) is not None:
        return None
    return _file(url, named, without(inner, "fileUri", "mimeType"))


def _file(url: str, named: str, inner: dict[str, Any]) -> dict[str, Any]:
    return with_details({"type": "file", "mediaType": named, "url": url}, FORM, kept(inner=inner))


def _told(part: Mapping[str, Any]) -> Any:
    """The part of the API for a part of a message that is no assistant's, whose calls are there for their results."""
    return _response(part) if is_tool_part(part) else _block(part)


def _block(part: Mapping[str, Any]) -> Any:
    """The part of the API for a part of a UIMessage; None where it has none."""
    kind, text, given = part.get("type"), text_at(part, "text"), object_at(part, PROVIDER, FORM)
    details = part_details(part, FORM)
    if kind == VERBATIM:
        return part.get("data")
    signed = {"thoughtSignature": given["thoughtSignature"]} if "thoughtSignature" in given else {}
    if kind == "text" and text is not None:
        return _styled({"text": text, **signed, **object_at(details, "fields")}, details)
    if kind == "reasoning" and text is not None and details.get("thought") is True:
        return _styled({"text": text, "thought": True, **signed, **object_at(details, "fields")}, details)
    if kind == "file":
        return _media(part, details)
    if is_tool_part(part):
        is_response = part_details(part, FORM, place=CALL_PROVIDER).get("result") is True
        return _response(part) if is_response else _use(part)
    return None


def _media(part: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any] | None:
    url, named = text_at(part, "url"), text_at(part, "mediaType")
    uploaded = file_id(part, FORM)
    address = url if uploaded is None else uploaded
    if address is None or named is None:
        return None
    data, inner = base64_data(address), object_at(details, "inner")
    if data is None:
        found = {"fileData": {"fileUri": address, "mimeType": named, **inner}}
    else:
        found = {"inlineData": {"mimeType": media_type(address) or named, "data": data, **inner}}
    return _styled({**found, **object_at(details, "fields")}, details)


def _use(part: Mapping[str, Any]) -> dict[str, Any]:
    details, written = part_details(part, FORM, place=CALL_PROVIDER), input_of(part)
    named = {} if details.get("unnamed") is True else {"id": part["toolCallId"]}
    args = (
        {} if written is None else {"args": object_at(written) if isinstance(written, Mapping) else {"input": written}}
    )
    call: dict[str, Any] = {"name": tool_name(part), **named, **args, **object_at(details, "inner")}
    return _styled({"functionCall": call, **object_at(details, "fields")}, details)


def _response(part: Mapping[str, Any]) -> dict[str, Any]:
    details = part_details(part, FORM, place=CALL_PROVIDER)
    outcome, told = outcome_of(part), cast("Any", part.get("output"))
    if details.get("result") is not True and not isinstance(told, Mapping):
        text = "" if outcome is None else outcome.text
        told = {"error": text} if outcome and outcome.is_error else {"output": told if told is not None else text}
    named = {} if details.get("unnamed") is True else {"id": part["toolCallId"]}
    name = tool_name(part) or ("" if "result" in details else part["toolCallId"])  # other APIs name the call only
    answer: dict[str, Any] = {"name": name, **named, "response": told, **object_at(details, "inner")}
    return _styled({"functionResponse": answer, **object_at(details, "fields")}, details)


def _in_camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    names = {snake: camel for camel, snake in _SNAKE}
    return {names.get(key, key): value for key, value in fields.items()}


def _styled(block: dict[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    """The part with its keys as they were given."""
    if details.get("style") != "snake":
        return block
    names = dict(_SNAKE)
    inner = ("functionCall", "functionResponse", "inlineData", "fileData")
    return {
        names.get(key, key): {names.get(each, each): item for each, item in value.items()} if key in inner else value
        for key, value in block.items()
    }
