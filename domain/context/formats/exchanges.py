"""Messages as rounds of saying and answering: what a model said, with its calls in place, and then the results of these calls."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ...limits import same_json
from ..messages import ASSISTANT, USER, UIMessage, is_ui_message, object_at
from .parts import is_complete_call, is_tool_part, objects, outcome_of
from .plain import text_at

Part = Mapping[str, Any]
"""A part of a UIMessage."""


STEERING: Final = "steering-message"
"""The type of a part that holds what a user said while the assistant was answering."""


def turns(stored: UIMessage) -> list[UIMessage]:
    """
    Return the messages that a UIMessage stands for: itself, but where a user steered the assistant while it answered what it
    said before that, the user's message, and what it said after.
    """
    if stored["role"] != ASSISTANT or all(object_at(part).get("type") != STEERING for part in stored["parts"]):
        return [stored]
    found: list[UIMessage] = [{**stored, "parts": []}]
    for part in stored["parts"]:
        if object_at(part).get("type") != STEERING:
            found[-1]["parts"].append(part)
            continue
        steering = {"id": "", "role": USER, **object_at(part)}
        found += [steering] if is_ui_message(steering) else []
        found.append({"id": "", "role": ASSISTANT, "parts": []})
    return [message for message in found if message["parts"]]


class Exchange(msgspec.Struct, frozen=True):
    """One answer of a model, in its order, and those of its calls that have a result, which follows it."""

    said: list[Part]
    answered: list[Part]


def exchanges(stored: UIMessage) -> list[Exchange]:
    """
    Return the exchanges of an assistant's UIMessage, which holds a whole turn, one after another.

    One ends at a `step-start` part, and where anything follows the result of a call. Calls that are still being streamed are
    left out.
    """
    parts = [part for part in objects(stored["parts"]) if not is_tool_part(part) or is_complete_call(part)]
    found = [Exchange([], [])]
    for part in parts:
        is_start = part.get("type") == "step-start"
        is_next = is_start or (found[-1].answered and not is_tool_part(part))
        if is_next and found[-1].said:
            found.append(Exchange([], []))
        if not is_start:
            found[-1].said.append(part)
        if is_tool_part(part) and outcome_of(part) is not None:
            found[-1].answered.append(part)
    return found


def reversible(
    given: Any,
    convert: Callable[[Mapping[str, Any]], dict[str, Any] | None],
    revert: Callable[[Mapping[str, Any]], Any],
    verbatim: str,
) -> dict[str, Any]:
    """Return the part for something given; one of type `verbatim`, which holds it as it is, where `revert` would not give it back."""
    if isinstance(given, Mapping):
        part = convert(object_at(given))
        if part is not None and same_json(revert(part), given):
            return part
    return {"type": verbatim, "data": given}


def written(parts: Iterable[Part], block: Callable[[Part], Any], verbatim: str) -> list[Any]:
    """Return the blocks of the parts that have one: a part of type `verbatim` has what it holds, even None."""
    return [found for part in parts if (found := block(part)) is not None or part.get("type") == verbatim]


def texts_of(values: Iterable[Any]) -> str:
    """Return the texts of blocks, one to a line."""
    return "\n".join(text for value in values if (text := text_at(object_at(value), "text")) is not None)
