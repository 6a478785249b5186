"""Compaction: a conversation that begins anew with a summary of what was said, and goes on with its last turns."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ..errors import InvalidValueError
from ..values import UI, Message, NewMessage
from .messages import USER, ui_message
from .reminders_in_messages import ONCE_IDS

SUMMARY: Final = "summary"
_HEADING: Final = "Summary of the conversation so far:"

Summarise = Callable[[list[Message]], Any]
"""Gives the summary of messages, oldest first: text, or an awaitable of it."""


def is_summary(message: Message) -> bool:
    """Whether this message stands for others, which it sums up."""
    return bool(message.metadata.get(SUMMARY))


def compacted(
    summed_up: Sequence[Message],
    last_turns: Sequence[Message],
    summary: Any,
    *,
    once_ids: AbstractSet[str],
    new_id: Callable[[], str],
) -> list[NewMessage]:
    """
    Return the messages of the new chain: the summary, then copies of what is kept.

    The summary is a message of the user that no user wrote: `synthetic` in its notes, beside `summary`, which says how many
    messages it stands for and which was the first and the last, and `once_ids`, so that no reminder fires again. A copy
    has a new id and names the original in `copied_from`.

    Raises:
        InvalidValueError: The summary is no text, or blank.
    """
    if not isinstance(summary, str) or not summary.strip():
        kind = "blank text" if isinstance(summary, str) else type(summary).__name__
        msg = f"a summary must be text, or a function that gives text, not {kind}"
        raise InvalidValueError(msg)
    first = new_id()
    stands_for = {"count": len(summed_up), "first_id": summed_up[0].id, "last_id": summed_up[-1].id}
    metadata: dict[str, Any] = {"synthetic": True, SUMMARY: stands_for}
    if once_ids:
        metadata[ONCE_IDS] = sorted(once_ids)
    data = ui_message(USER, f"{_HEADING}\n\n{summary}", first)
    new_ids = {message.id: new_id() for message in last_turns}
    copies = [_copy(message, new_ids) for message in last_turns]
    return [NewMessage(USER, data, UI, id=first, metadata=metadata), *copies]


def _copy(message: Message, new_ids: dict[str, str]) -> NewMessage:
    own_id = new_ids[message.id]
    return NewMessage(
        message.name,
        message.data,
        message.form,
        id=own_id,
        type=message.type,
        created_at=message.created_at,
        sender_id=message.sender_id,
        agent_id=message.agent_id,
        reply_to=None if message.reply_to is None else new_ids.get(message.reply_to, message.reply_to),
        metadata=message.notes,
        copied_from=message.id,
    )
