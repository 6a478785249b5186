"""
What a message of another format carries and a UIMessage has no place for.

It is kept under the name `chatledger`: of a message in its `metadata`, of a part in the metadata that the shape has for
providers. `name`, `role` and `tool_call_id` hold for every format, what only one of them knows stands under its name.

    {"id": "m3", "role": "tool", "parts": [{"type": "text", "text": "12 °C"}],
     "metadata": {"chatledger": {"tool_call_id": "call_1", "langchain": {"fields": {"status": "error"}}}}}
"""

from collections.abc import Mapping
from typing import Any, Final

from .plain import object_at

OWNER: Final = "chatledger"
PROVIDER: Final = "providerMetadata"
CALL_PROVIDER: Final = "callProviderMetadata"


def details_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is kept for a message."""
    return object_at(message, "metadata", OWNER)


def part_details(part: Mapping[str, Any], form: str, *, place: str = PROVIDER) -> Mapping[str, Any]:
    """What one format keeps for a part."""
    return object_at(part, place, OWNER, form)


def kept(**details: Any) -> dict[str, Any]:
    """The details but for those that say nothing."""
    return {key: value for key, value in details.items() if value is not None and value is not False and value != {}}


def with_details(part: dict[str, Any], form: str, details: dict[str, Any], *, place: str = PROVIDER) -> dict[str, Any]:
    """The part with what a format keeps for it, if anything."""
    if not details:
        return part
    return {**part, place: {**part.get(place, {}), OWNER: {form: details}}}
