"""LangChain messages, as `message_to_dict` of LangChain writes them, to UIMessages; it need not be installed."""

from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import InvalidValueError
from ...limits import same_json
from ...values import OWNER
from ..messages import ASSISTANT, USER, UIMessage, object_at
from .from_openai import is_bare_text
from .parts import ANY_FILE, REFUSAL, base64_data, call_part, content_part, file_id, media_type, part_of, verbatim_call
from .parts import VERBATIM as OPENAI_VERBATIM
from .plain import (
    CALL_PROVIDER,
    DEVELOPER,
    FUNCTION,
    SYSTEM,
    TOOL,
    kept,
    part_details,
    text_at,
    with_details,
    without,
)

LANGCHAIN: Final = "langchain"
VERBATIM: Final = "data-langchain"
_OPENAI_KINDS: Final = ("image_url", "input_audio", REFUSAL)
_MEDIA: Final = ("image", "audio", "video")
_THOUGHTS: Final = ("reasoning", "thinking")


def part_of_block(block: Any) -> dict[str, Any]:
    """The part of a UIMessage for a block; a verbatim one where there is none from which it could be told again."""
    if isinstance(block, str):
        return with_details({"type": "text", "text": block}, LANGCHAIN, {"style": "plain"})
    if isinstance(block, Mapping):
        block = cast("Mapping[str, Any]", block)
        part = _converted(block)
        if part is not None and same_json(block_of(part), block):
            return part
    return {"type": VERBATIM, "data": block}


def block_of(part: Mapping[str, Any]) -> Any:
    """The block for a part of a UIMessage; None where there is none. Reasoning is given back only to where it came from."""
    details, kind, text = part_details(part, LANGCHAIN), part.get("type"), text_at(part, "text")
    style, fields = text_at(details, "style"), object_at(details, "fields")
    if kind in {VERBATIM, OPENAI_VERBATIM}:
        return part.get("data") if isinstance(part.get("data"), Mapping) else None
    if kind == "text" and text is not None:
        if style == "plain":
            return text
        refused = part_details(part, "openai").get(REFUSAL) is True
        return {"type": REFUSAL, REFUSAL: text} if refused else content_part(part, LANGCHAIN)
    if kind == "reasoning" and text is not None and style in _THOUGHTS:
        return {"type": style, style: text, **fields}
    if kind == "file":
        return content_part(part, LANGCHAIN) if style == "openai" else _media_block(part, fields)
    return None


def _converted(block: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = text_at(block, "type") or ""
    if kind == "text":
        return part_of(block, LANGCHAIN)
    if kind in _OPENAI_KINDS or (kind == "file" and "file" in block):
        return _in_openai_style(part_of(block, LANGCHAIN))
    if kind in _THOUGHTS and (text := text_at(block, kind)) is not None:
        details = kept(style=kind, fields=without(block, "type", kind))
        return with_details({"type": "reasoning", "text": text}, LANGCHAIN, details)
    if kind in _MEDIA or kind == "file":
        return _media_part(kind, block)
    return None


def _in_openai_style(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] != "file":
        return part
    return with_details(part, LANGCHAIN, {"style": "openai", **part_details(part, LANGCHAIN)})


def _media_part(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    url, data, named = (text_at(block, key) for key in ("url", "base64", "mime_type"))
    if (url is None) == (data is None) or (data is not None and named is None):
        return None
    media = named or (ANY_FILE if kind == "file" else f"{kind}/*")
    part = {"type": "file", "mediaType": media, "url": url if data is None else f"data:{named};base64,{data}"}
    details = kept(kind=kind, fields=without(block, "type", "url", "base64", "mime_type"))
    return with_details(part, LANGCHAIN, details)


def _media_block(part: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
    url, media, name = text_at(part, "url"), text_at(part, "mediaType") or "", text_at(part, "filename")
    group = media.partition("/")[0]
    kind = text_at(part_details(part, LANGCHAIN), "kind") or (group if group in _MEDIA else "file")
    named = {} if media.endswith("/*") or "/" not in media or media == ANY_FILE else {"mime_type": media}
    extras = {} if name is None else {"extras": {"filename": name}}
    uploaded = file_id(part)
    if uploaded is not None:
        return {"type": kind, "file_id": uploaded, **named, **extras, **fields}
    if url is None:
        return None
    data = base64_data(url)
    if data is None:
        return {"type": kind, "url": url, **named, **extras, **fields}
    return {"type": kind, "base64": data, "mime_type": media_type(url) or media, **extras, **fields}


OPENAI_ROLE: Final = "__openai_role__"
"""The key under which LangChain marks a system message as one of a developer."""

CHAT: Final = "chat"
_ROLES: Final = (("system", SYSTEM), ("human", USER), ("ai", ASSISTANT), ("tool", TOOL), ("function", FUNCTION))
TYPES: Final = frozenset({CHAT, *dict(_ROLES)})
"""The types of messages that can be stored."""
_CONSUMED: Final = ("type", "id", "content", "name", "role", "tool_call_id", "tool_calls", "invalid_tool_calls")
_DEFAULTS: Final[dict[str, Any]] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "usage_metadata": None,
    "artifact": None,
    "status": "success",
    "example": False,
}


def ui_of_langchain(message: Mapping[str, Any], message_id: str) -> UIMessage:
    """
    The UIMessage for a LangChain message, `{"type": ..., "data": {...}}`.

    Raises:
        InvalidValueError: It is of a type that LangChain does not define, or its content is neither text nor a list.
    """
    fields = object_at(message, "data")
    kind, content = message.get("type"), fields.get("content")
    role = dict(_ROLES).get(str(kind)) or text_at(fields, "role")
    if kind not in TYPES or role is None or not isinstance(content, str | list):
        msg = f"a LangChain message has a type, of {', '.join(sorted(TYPES))}, not {kind!r}, and data with its content"
        raise InvalidValueError(msg)
    calls = [_call_part(call) for call in _objects(fields, "tool_calls")]
    calls += [_invalid_part(call) for call in _objects(fields, "invalid_tool_calls")]
    parts = (
        _text_parts(content, calls)
        if isinstance(content, str)
        else [part_of_block(block) for block in cast("list[Any]", content)]
    )
    is_list = isinstance(content, list) and (not parts or is_bare_text(parts))
    rest = {key: value for key, value in without(fields, *_CONSUMED).items() if value != _DEFAULTS.get(key, fields)}
    is_developer = object_at(fields, "additional_kwargs").get(OPENAI_ROLE) == DEVELOPER
    given = kept(
        name=text_at(fields, "name"),
        role=DEVELOPER if is_developer else None,
        tool_call_id=text_at(fields, "tool_call_id"),
        langchain=kept(type=CHAT if kind == CHAT else None, content="list" if is_list else None, fields=rest),
    )
    found: UIMessage = {"id": message_id, "role": role, "parts": parts + calls}
    return found | ({"metadata": {OWNER: given}} if given else {})


def _objects(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return cast("list[Mapping[str, Any]]", fields.get(key) or [])


def _text_parts(content: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if content or not calls else []


def _call_part(call: Mapping[str, Any]) -> dict[str, Any]:
    call_id = text_at(call, "id")
    if call_id is None:
        return verbatim_call(LANGCHAIN, call)
    details = kept(fields=without(call, "name", "args", "id", "type"))
    return with_details(call_part(call["name"], call_id, call["args"]), LANGCHAIN, details, place=CALL_PROVIDER)


def _invalid_part(call: Mapping[str, Any]) -> dict[str, Any]:
    call_id, name, written = (text_at(call, key) for key in ("id", "name", "args"))
    if call_id is None or name is None or written is None:
        return verbatim_call(LANGCHAIN, call)
    part = call_part(name, call_id, written) | {"rawInput": written}
    details = {"invalid": True, "fields": without(call, "name", "args", "id", "type")}
    return with_details(part, LANGCHAIN, details, place=CALL_PROVIDER)
