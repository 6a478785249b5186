"""Stored messages as LangChain has them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from chatledger.domain.context.formats.exchanges import turns
from chatledger.domain.context.formats.from_openai import is_bare_text
from chatledger.domain.context.formats.langchain import CHAT, LANGCHAIN, OPENAI_ROLE, block_of
from chatledger.domain.context.formats.parts import (
    Step,
    arguments_of,
    input_of,
    is_tool_part,
    model_steps,
    outcome_of,
    tool_name,
)
from chatledger.domain.context.formats.plain import (
    CALL_PROVIDER,
    DEVELOPER,
    FUNCTION,
    SYSTEM,
    TOOL,
    details_of,
    model_role,
    part_details,
    text_at,
)
from chatledger.domain.context.formats.stored import all_stored, as_ui_message, told
from chatledger.domain.context.messages import ASSISTANT, USER, UIMessage, is_ui_message, object_at
from chatledger.domain.limits import json_copy

from ...langchain import messages_module

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


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
        Messages of LangChain as they were appended, each with the id it is stored under. An assistant's UIMessage with
        results of tools becomes an `AIMessage` with the calls and a `ToolMessage` for each result, in the order in which they
        happened; all but the first have ids such as `m2#1`. Messages with nothing that LangChain knows are left out. A role
        that models do not know becomes a `HumanMessage` with the role as its `name`; so does a `tool` message that does not
        say which call it answers.

    Raises:
        InvalidValueError: One of them is no message.
        ConfigurationError: LangChain is not installed.
    """
    return [
        message
        for one in all_stored(messages)
        for message in langchain_messages(one.name, told(*one), message_id=one.id)
    ]


def langchain_messages(name: str, data: Any, *, message_id: str | None = None) -> "list[BaseMessage]":
    """The LangChain messages for the name and the data of one stored message; see `to_langchain`."""
    stored = as_ui_message(name, data, "ui" if is_ui_message(data) else None)
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
    fields: dict[str, Any] = json_copy(dict(object_at(form, "fields")), "fields")
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
        return json_copy(blocks, "content")
    return blocks[0]["text"] if is_bare_text(blocks) else json_copy(blocks, "content") or ""


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
        return json_copy(part["data"], "a tool call") if part.get("type") == "data-langchain-call" else None
    details = part_details(part, LANGCHAIN, place=CALL_PROVIDER)
    fields, written, name = object_at(details, "fields"), input_of(part), tool_name(part)
    head = {"name": name, "id": part["toolCallId"]}
    if part_details(part, "openai", place=CALL_PROVIDER).get("type") == "custom" and isinstance(written, str):
        return {**head, "args": {_PLAIN_ARGUMENT: written}, "type": "tool_call"}
    if isinstance(written, Mapping | None) and details.get("invalid") is None:
        args = json_copy(dict(cast("Mapping[str, Any]", written or {})), "arguments")
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
