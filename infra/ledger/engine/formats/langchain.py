"""LangChain messages, to UIMessages and back."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from chatledger.domain.context.formats.exchanges import turns
from chatledger.domain.context.formats.from_openai import is_bare_text
from chatledger.domain.context.formats.parts import (
    ANY_FILE,
    REFUSAL,
    Step,
    arguments_of,
    base64_data,
    call_part,
    content_part,
    file_id,
    input_of,
    is_tool_part,
    media_type,
    model_steps,
    outcome_of,
    part_of,
    tool_name,
    verbatim_call,
)
from chatledger.domain.context.formats.parts import VERBATIM as OPENAI_VERBATIM
from chatledger.domain.context.formats.plain import (
    CALL_PROVIDER,
    DEVELOPER,
    FUNCTION,
    OWNER,
    SYSTEM,
    TOOL,
    details_of,
    kept,
    model_role,
    part_details,
    plain_object,
    text_at,
    with_details,
    without,
)
from chatledger.domain.context.formats.stored import all_stored, as_ui_message
from chatledger.domain.context.messages import ASSISTANT, USER, UIMessage, object_at
from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.limits import data_copy, same_json

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


def messages_module() -> Any:
    """
    The module `langchain_core.messages`.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module("langchain_core.messages")
    except ImportError as error:
        msg = "LangChain messages need langchain-core: pip install 'chatledger[langchain]'"
        raise ConfigurationError(msg) from error


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
_CONSUMED: Final = ("type", "id", "content", "name", "role", "tool_call_id", "tool_calls", "invalid_tool_calls")
_DEFAULTS: Final[dict[str, Any]] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "usage_metadata": None,
    "artifact": None,
    "status": "success",
    "example": False,
}


def ui_of_langchain(message: "BaseMessage", message_id: str) -> UIMessage:
    """
    The UIMessage for a LangChain message. A chunk is stored as the message that it has become.

    Raises:
        InvalidValueError: It is no message, one of a type that LangChain does not define, one that removes another, or there is
            something in it that JSON does not know.
        ConfigurationError: LangChain is not installed.
    """
    fields = _fields(message)
    role = dict(_ROLES).get(fields["type"]) or str(fields["role"])
    content: str | list[Any] = fields["content"]
    calls = [_call_part(call) for call in _objects(fields, "tool_calls")]
    calls += [_invalid_part(call) for call in _objects(fields, "invalid_tool_calls")]
    parts = _text_parts(content, calls) if isinstance(content, str) else [part_of_block(block) for block in content]
    is_list = isinstance(content, list) and (not parts or is_bare_text(parts))
    rest = {key: value for key, value in without(fields, *_CONSUMED).items() if value != _DEFAULTS.get(key, fields)}
    is_developer = object_at(fields, "additional_kwargs").get(OPENAI_ROLE) == DEVELOPER
    given = kept(
        name=text_at(fields, "name"),
        role=DEVELOPER if is_developer else None,
        tool_call_id=text_at(fields, "tool_call_id"),
        langchain=kept(type=CHAT if fields["type"] == CHAT else None, content="list" if is_list else None, fields=rest),
    )
    found: UIMessage = {"id": message_id, "role": role, "parts": parts + calls}
    return found | ({"metadata": {OWNER: given}} if given else {})


def _fields(message: Any) -> dict[str, Any]:
    library = messages_module()
    if not isinstance(message, library.BaseMessage):
        msg = f"expected a LangChain message, not {type(message).__name__}"
        raise InvalidValueError(msg)
    whole: Any = library.message_chunk_to_message(message) if isinstance(message, library.BaseMessageChunk) else message
    kind = whole.type
    if kind not in {name for name, _ in _ROLES} | {CHAT}:
        msg = f"a LangChain message of type {kind!r} cannot be stored; system, human, ai, tool, function and chat can"
        raise InvalidValueError(msg)
    return plain_object(dict(whole), "a LangChain message")


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


_CLASSES: Final = (
    (SYSTEM, "SystemMessage"),
    (USER, "HumanMessage"),
    (ASSISTANT, "AIMessage"),
    (TOOL, "ToolMessage"),
    (FUNCTION, "FunctionMessage"),
)
_PLAIN_ARGUMENT: Final = "__arg1"
"""The argument under which LangChain hands text to a tool that takes nothing else."""


def to_langchain(messages: Iterable[Any]) -> "list[BaseMessage]":
    """
    Return messages as LangChain takes them.

    Args:
        messages: One or several: what a ledger gave, fragments, UIMessages, OpenAI messages, pairs of name and data, or text
            from the user.

    Returns:
        Messages made by `langchain_message` as they were, each with the id it is stored under. An assistant's UIMessage with
        results of tools becomes an `AIMessage` with the calls and a `ToolMessage` for each result, in the order in which they
        happened; all but the first have ids such as `m2#1`. Messages with nothing that LangChain knows are left out. A role
        that models do not know becomes a `HumanMessage` with the role as its `name`; so does a `tool` message that does not
        say which call it answers.

    Raises:
        InvalidValueError: One of them is no message.
        ConfigurationError: LangChain is not installed.
    """
    return [
        message for one in all_stored(messages) for message in langchain_messages(one.name, one.data, message_id=one.id)
    ]


def langchain_messages(name: str, data: Any, *, message_id: str | None = None) -> "list[BaseMessage]":
    """The LangChain messages for the name and the data of one stored message; see `to_langchain`."""
    stored = as_ui_message(name, data)
    found: list[Any] = []
    for turn in turns(stored):
        role, participant = model_role(turn)
        for position, step in enumerate(model_steps(role, turn)):
            message = _message(step, role, participant, turn, is_first=position == 0)
            own = [] if message is None else [message]
            found += own + _results(step) if role == ASSISTANT else _results(step) + own
    own_id = text_at(stored, "id") or message_id
    for position, message in enumerate(found):
        message.id = f"{own_id}#{position}" if own_id and position else own_id
    return found


def _message(step: Step, role: str, participant: str | None, stored: UIMessage, *, is_first: bool) -> Any:
    details = details_of(stored)
    form: Mapping[str, Any] = object_at(details, LANGCHAIN) if is_first else {}
    calls, invalid = _calls(step) if role == ASSISTANT else ([], [])
    blocks = [block for part in step.content if (block := block_of(part)) is not None]
    if not (blocks or calls or invalid or form):
        return None
    fields: dict[str, Any] = data_copy(dict(object_at(form, "fields")), "fields")
    if role == SYSTEM and details.get("role") == DEVELOPER:
        fields["additional_kwargs"] = {OPENAI_ROLE: DEVELOPER} | fields.get("additional_kwargs", {})
    is_chat = form.get("type") == CHAT
    speaking = text_at(details, "name") if is_chat else participant
    fields |= {} if speaking is None else {"name": speaking}
    fields |= {"tool_call_id": details["tool_call_id"]} if role == TOOL and not is_chat else {}
    message = _made(role, stored["role"] if is_chat else None, _content(blocks, form.get("content")), fields)
    if role == ASSISTANT and not is_chat:
        # The constructor refuses what some providers add to their calls.
        message.tool_calls, message.invalid_tool_calls = calls, invalid
    return message


def _made(role: str, speaker: str | None, content: Any, fields: Mapping[str, Any]) -> Any:
    library = messages_module()
    if speaker is not None:
        return library.ChatMessage(content=content, role=speaker, **fields)
    return getattr(library, dict(_CLASSES)[role])(content=content, **fields)


def _content(blocks: list[Any], shape: Any) -> Any:
    if shape == "list":
        return data_copy(blocks, "content")
    return blocks[0]["text"] if is_bare_text(blocks) else data_copy(blocks, "content") or ""


def _calls(step: Step) -> tuple[list[Any], list[Any]]:
    valid: list[Any] = []
    invalid: list[Any] = []
    for part in step.calls:
        call = _call(part)
        if call is not None:
            (invalid if call.get("type") == "invalid_tool_call" else valid).append(call)
    return valid, invalid


def _call(part: Mapping[str, Any]) -> Any:
    if not is_tool_part(part):
        return data_copy(part["data"], "a tool call") if part.get("type") == "data-langchain-call" else None
    details = part_details(part, LANGCHAIN, place=CALL_PROVIDER)
    fields, written, name = object_at(details, "fields"), input_of(part), tool_name(part)
    head = {"name": name, "id": part["toolCallId"]}
    if part_details(part, "openai", place=CALL_PROVIDER).get("type") == "custom" and isinstance(written, str):
        return {**head, "args": {_PLAIN_ARGUMENT: written}, "type": "tool_call"}
    if isinstance(written, Mapping | None) and details.get("invalid") is None:
        args = data_copy(dict(cast("Mapping[str, Any]", written or {})), "arguments")
        return {**head, "args": args, "type": "tool_call", **fields}
    return {**head, "args": arguments_of(part), "error": None, "type": "invalid_tool_call", **fields}


def _results(step: Step) -> list[Any]:
    library = messages_module()
    return [
        library.ToolMessage(
            content=outcome.text,
            name=tool_name(call),
            tool_call_id=call["toolCallId"],
            status="error" if outcome.is_error else "success",
        )
        for call in step.calls
        if (outcome := outcome_of(call)) is not None
    ]
