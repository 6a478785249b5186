"""
Stored messages to OpenAI chat messages.

A message that came from there is given back as it was. Of any other the API gets what it knows: text; images, audio and files
of users; calls of tools, and after them a message with each result. Reasoning, sources, data parts and calls that are still
being streamed are left out.
"""

from collections.abc import Mapping
from typing import Any

from ...limits import data_copy
from ..messages import ASSISTANT, USER, UIMessage, object_at
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


def openai_messages(stored: UIMessage) -> list[dict[str, Any]]:
    """The OpenAI messages for a UIMessage: often one, none if there is nothing to say."""
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
    copied = data_copy(message, "an OpenAI message")
    return [copied, *_results(step)] if role == ASSISTANT else [*_results(step), copied]


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
