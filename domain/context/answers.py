"""Answers: which messages of a chain are the answer that ends it, and which message that answers."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..values import Message
from .formats.parts import is_tool_part
from .messages import ASSISTANT, is_ui_message
from .summary import is_real_user_message


def answered_message(chain: Sequence[Message]) -> Message | None:
    """
    Return the message that the last answer of a chain follows, root first; None for an answer at the root.

    An answer is all that one assistant said since the last message that a user wrote: its calls of tools, their results, and
    what a program put in between are parts of it. After an answer of another agent it begins anew. Without an answer
    at the end of the chain it is the last message: that is still to be answered.
    """
    begin = len(chain)
    agent_id: str | None = None
    for at in range(len(chain) - 1, -1, -1):
        message = chain[at]
        if message.name == ASSISTANT:
            if begin < len(chain) and message.agent_id != agent_id:
                break
            begin, agent_id = at, message.agent_id
        elif _is_question(message):
            break
    return chain[begin - 1] if begin else None


def _is_question(message: Message) -> bool:
    """Whether a user wrote it. Some APIs pass the results of tools as messages of the user."""
    if not is_real_user_message(message.name, message.data):
        return False
    parts = cast("Mapping[str, Any]", message.data)["parts"] if is_ui_message(message.data) else ()
    return not parts or not all(
        isinstance(part, Mapping) and is_tool_part(cast("Mapping[str, Any]", part)) for part in parts
    )
