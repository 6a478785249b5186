"""
Stored messages to OpenAI chat messages.

A message that came from there is given back as it was. Of any other the API gets what it knows: text; images, audio and files
of users; calls of tools, and after them a message with each result. Reasoning, sources, data parts and calls that are still
being streamed are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...limits import json_copy
from ..messages import ASSISTANT, USER, object_at
from .from_openai import is_bare_text, openai_call
from .parts import (
    OPENAI,
    VERBATIM,
    Step,
    content_part,
    is_tool_part,
    model_steps,
    outcome_of,
    refusal_field,
    verbatim_call_type,
)
from .plain import DEVELOPER, SYSTEM, TOOL, details_of, model_role, text_at
from .stored import as_ui_message, stored_of


def to_openai(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """
    Return messages as the OpenAI Chat Completions API takes them.

    Args:
        messages: What a ledger gave, fragments, UIMessages, OpenAI messages, pairs of name and data, or text from the user.

    Returns:
        Messages made by `openai_message` as they were. An assistant's UIMessage with results of tools becomes the calls and a
        `tool` message for each result, in the order in which they happened. Messages with nothing that the API knows are left
        out. A role that the API does not know becomes `user` with the role as its `name`; so does a `tool` message that does
        not say which call it answers.

    Raises:
        InvalidValueError: One of them is no message.
    """
    return [message for stored in map(stored_of, messages) for message in openai_messages(stored.name, stored.data)]


def openai_messages(name: str, data: Any) -> list[dict[str, Any]]:
    """The OpenAI messages for the name and the data of one stored message: often one, none if there is nothing to say."""
    stored = as_ui_message(name, data)
    details = details_of(stored)
    form = object_at(details, OPENAI)
    role, given_name = model_role(stored)
    role = text_at(form, "role") or (DEVELOPER if role == SYSTEM and details.get("role") == DEVELOPER else role)
    call_id = text_at(details, "tool_call_id")
    tail = {key: value for key, value in (("name", given_name), ("tool_call_id", call_id)) if value is not None}
    return [
        message
        for position, step in enumerate(model_steps(role, stored))
        for message in _step_messages(step, role, tail, {} if position else form)
    ]


def _step_messages(step: Step, role: str, tail: dict[str, str], form: Mapping[str, Any]) -> list[dict[str, Any]]:
    refusals = [text for part in step.content if (text := refusal_field(part)) is not None]
    blocks = _blocks(step, role)
    kept = [part for part in step.calls if is_tool_part(part) or part.get("type") == verbatim_call_type(OPENAI)]
    calls = [openai_call(part) for part in kept] if role == ASSISTANT else []
    if not (blocks or refusals or calls or form):
        return _results(step)
    message: dict[str, Any] = {"role": role, "content": _content(blocks, form.get("content"))}
    if form.get("content") == "absent":
        del message["content"]
    message |= {"refusal": refusals[-1]} if refusals else {}
    message |= {"tool_calls": calls} if calls else {}
    message |= {**tail, **object_at(form, "fields")}
    return [json_copy(message, "an OpenAI message"), *_results(step)]


def _blocks(step: Step, role: str) -> list[Any]:
    return [
        block
        for part in step.content
        if (part.get("type") in ("text", VERBATIM) or role == USER)
        and refusal_field(part) is None
        and ((block := content_part(part)) is not None or part.get("type") == VERBATIM)
    ]


def _content(blocks: list[Any], shape: Any) -> Any:
    if shape == "list":
        return blocks
    if is_bare_text(blocks):
        return blocks[0]["text"]
    return blocks or None


def _results(step: Step) -> list[dict[str, Any]]:
    return [
        {"role": TOOL, "tool_call_id": call["toolCallId"], "content": outcome.text}
        for call in step.calls
        if (outcome := outcome_of(call)) is not None
    ]
