"""Summaries of chains, by which reminders are decided."""

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from ..values import plain_text
from .messages import ASSISTANT, USER, UIMessage, is_ui_message, object_at

ChainMessage = tuple[str, Any, int]
"""Name, data and `created_at` of a message."""


class ChainSummary(msgspec.Struct, frozen=True, kw_only=True):
    """
    A chain from its root to some message, in short.

    A *real* user message is one that a user wrote. Those that a program put in as a reminder, which have `synthetic` in
    their metadata, count in `message_count` only.

    Args:
        turn: How many real user messages there are.
        message_count: How many messages there are.
        last_message_at: When the last real user message was created, in ms since the epoch.
        last_message: The last real user message, as it is stored: with the reminders that were folded into it.
        last_assistant_message: The last message of the assistant.
        assistant_replies: What the assistant said after each real user message, oldest first. Several messages in a row,
            tool results and synthetic messages between them included, are one reply: the last of them with the parts of all.
        once_ids: The ids of `once` that have fired.
        is_replied: Whether the assistant said something since the last real user message.
    """

    turn: int = 0
    message_count: int = 0
    last_message_at: int | None = None
    last_message: UIMessage | None = None
    last_assistant_message: UIMessage | None = None
    assistant_replies: tuple[UIMessage, ...] = ()
    once_ids: frozenset[str] = frozenset()
    is_replied: bool = False


def summarise(messages: Iterable[ChainMessage]) -> ChainSummary:
    """The summary of a chain, root first. Costs O(messages); data that are no UIMessage count with their plain text."""
    return extended(ChainSummary(), messages)


def extended(summary: ChainSummary, messages: Iterable[ChainMessage]) -> ChainSummary:
    """
    The summary of a chain that goes on with these messages: the same as of the whole chain.

    Costs O(new messages), and one copy of the list of replies.
    """
    turn, message_count = summary.turn, summary.message_count
    last_message, last_message_at = summary.last_message, summary.last_message_at
    last_answer = summary.last_assistant_message
    replies, once_ids = list(summary.assistant_replies), set(summary.once_ids)
    segments = [replies.pop()] if summary.is_replied else []  # of a reply; they are merged once, when it ends
    for name, data, created_at in messages:
        message_count += 1
        if name == ASSISTANT:
            last_answer = _as_ui_message(name, data)
            segments.append(last_answer)
        elif name == USER:
            once_ids.update(_once_ids(data))
            if is_real_user_message(name, data):
                turn += 1
                last_message, last_message_at = _as_ui_message(name, data), created_at
                replies += _merged(segments)
                segments = []
    return ChainSummary(
        turn=turn,
        message_count=message_count,
        last_message_at=last_message_at,
        last_message=last_message,
        last_assistant_message=last_answer,
        assistant_replies=(*replies, *_merged(segments)),
        once_ids=frozenset(once_ids),
        is_replied=bool(segments),
    )


def with_unsaved(summary: ChainSummary, messages: Iterable[tuple[str, Any]]) -> ChainSummary:
    """
    The summary with messages, as name and data, that are saved along with the one to be decided on, and before it.

    They count, but the last message and its time remain the stored ones: two messages of one save are no time apart, and
    the first of them must not hide from the second, which carries the reminders, that a new day has begun.
    """
    count = extended(summary, ((name, data, 0) for name, data in messages))
    return msgspec.structs.replace(count, last_message=summary.last_message, last_message_at=summary.last_message_at)


def is_real_user_message(name: str, data: Any) -> bool:
    """Whether a user wrote this message, and not a program that reminds the model of something."""
    return name == USER and not object_at(data, "metadata").get("synthetic")


def _merged(segments: list[UIMessage]) -> list[UIMessage]:
    """The segments of a reply as one message; none when there are none."""
    if len(segments) <= 1:
        return segments
    return [{**segments[-1], "parts": [part for segment in segments for part in segment["parts"]]}]


def _as_ui_message(name: str, data: Any) -> UIMessage:
    if is_ui_message(data):
        return cast("UIMessage", data)
    return {"role": name, "parts": [{"type": "text", "text": plain_text(data)}]}


def _once_ids(data: Any) -> list[str]:
    """
    What fired with a message.

    Conversations imported from Deep Agents say `onceIds`, and synthetic messages have them in `synthetic`.
    """
    places = [object_at(data, "metadata"), object_at(data, "metadata", "synthetic")]
    listed = [place.get(key) for place in places for key in ("once_ids", "onceIds")]
    return [item for ids in listed if isinstance(ids, list) for item in cast("list[Any]", ids) if isinstance(item, str)]
