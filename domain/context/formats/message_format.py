"""The form in which a context engine hands out messages."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .to_openai import openai_messages


class MessageFormat(msgspec.Struct, frozen=True):
    """
    A form of messages: `MessageFormat(name, to_model)`.

    Args:
        name: What it is called, such as `openai`.
        to_model: Gives the messages of this form for the name and the data of one stored message: one, several where a stored
            message stands for several, or none where it has nothing that this form knows.
    """

    name: str
    to_model: Callable[[str, Any], list[Any]]


def _unchanged(_name: str, data: Any) -> list[Any]:
    return [data]


UI: Final = MessageFormat("ui", _unchanged)
"""The stored data, unchanged: UIMessages, unless something else was stored."""

OPENAI: Final = MessageFormat("openai", openai_messages)
"""Messages of the OpenAI Chat Completions API."""
