"""The steps of an assistant: what it said, which tools it called, and then what it said next."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from ..ui_message import ASSISTANT
from .tool_calls import is_complete_call, is_tool_part, is_verbatim_call, outcome_of


class Step(msgspec.Struct, frozen=True):
    """What one answer of a model holds: content, and calls of tools, whose results come after it."""

    content: list[Mapping[str, Any]]
    calls: list[Mapping[str, Any]]


def steps_of(parts: Iterable[Any]) -> list[Step]:
    """
    The parts of an assistant's UIMessage, which holds a whole turn, as the answers that a model gave one after another.

    A step ends at a `step-start` part, and where content follows the result of a tool. Calls that are still being streamed
    are left out.
    """
    steps = [Step([], [])]
    for part in objects(parts):
        current = steps[-1]
        if is_tool_part(part) or is_verbatim_call(part):
            if is_verbatim_call(part) or is_complete_call(part):
                current.calls.append(part)
            continue
        is_next = part.get("type") == "step-start" or any(outcome_of(call) for call in current.calls)
        if is_next and (current.content or current.calls):
            current = Step([], [])
            steps.append(current)
        if part.get("type") != "step-start":
            current.content.append(part)
    return steps


def objects(parts: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The parts that are objects: all of them, unless somebody stored something else."""
    return [cast("Mapping[str, Any]", part) for part in parts if isinstance(part, Mapping)]


def model_steps(role: str, stored: Mapping[str, Any]) -> list[Step]:
    """The steps of an assistant; of anybody else one, with calls only where a tool's message holds their results."""
    parts = objects(stored["parts"])
    if role == ASSISTANT:
        return steps_of(parts)
    content, tools = [part for part in parts if not is_tool_part(part)], filter(is_tool_part, parts)
    if stored["role"] != "tool":
        return [Step(content, [])]
    return [Step(content, [part for part in tools if is_complete_call(part) and outcome_of(part)])]
