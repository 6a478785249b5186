"""LangChain messages to UIMessages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from chatledger.domain.context.formats.details import CALL_PROVIDER, OWNER, kept, with_details
from chatledger.domain.context.formats.from_openai import is_bare_text
from chatledger.domain.context.formats.plain import object_at, plain_object, text_at, without
from chatledger.domain.context.formats.roles import DEVELOPER, FUNCTION, SYSTEM, TOOL
from chatledger.domain.context.formats.tool_calls import call_part, verbatim_call
from chatledger.domain.context.ui_message import ASSISTANT, USER, UIMessage
from chatledger.domain.errors import InvalidValueError

from .langchain_blocks import LANGCHAIN, part_of_block
from .langchain_library import messages_module

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

OPENAI_ROLE: Final = "__openai_role__"
"""Where LangChain keeps that a system message is one of a developer."""

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
        msg = f"a LangChain message of type {kind!r} can not be stored; system, human, ai, tool, function and chat can"
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
