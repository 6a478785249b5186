"""Compacting: a long conversation begins anew with a summary of what was said, and goes on with its last turns."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import UNSET

from ...chat.save import Save
from ...errors import EmptyChatError, InvalidValueError
from ...limits import check_count
from ...values import UI, Branch, Message, NewMessage
from ..fitting import turn_starts
from ..messages import USER, ui_message
from ..reminders_in_messages import ONCE_IDS
from ..summary import once_ids_of
from .base import Attempt
from .saving import Saving

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


class Compacting(Saving):
    """The part of a context engine that makes long conversations short."""

    async def compact(self, summary: str | Summarise, *, keep_last: int = 1) -> Branch:
        """
        Go on from a summary: a new branch begins with it and with copies of the last turns, and becomes the active one and the
        engine's. One commit.

        The old branch stays as it is, and is searched; `switch_branch` to it undoes the compaction. The summary is a message of
        the user with `synthetic` and `summary` in its notes, and does not count as a turn. Copies have new ids, the time of
        the original, and its id as `copied_from`. Hidden messages are neither summed up nor copied. Pending messages stay
        pending, and follow on the new branch. Costs O(messages of the branch).

        Args:
            summary: The text, or a function that takes the messages to be summed up (`list[Message]`, oldest first) and gives the
                text; it may be asynchronous. An earlier summary is among them.
            keep_last: How many of the last turns go on after the summary.

        Returns:
            The new branch, named after the one the engine was on: `main-v2`, `main-v3`, ...

        Raises:
            EmptyChatError: The branch has no stored message yet.
            InvalidValueError: There is nothing to sum up, the summary is no text or blank, or an answer is being regenerated.
            HeadConflictError: Others wrote to the branch meanwhile. Nothing was written.
            ResolverError: The function failed. Nothing was written.
        """
        check_count(keep_last, "keep_last")
        name = await self._ready()
        settled = None if self._unsettled is None else await self._carry_out(self._unsettled)
        name = name if settled is None else settled.branch
        if self._after is not UNSET:
            msg = "an answer is being regenerated; save or discard it before you compact the conversation"
            raise InvalidValueError(msg)
        read = await self._port.preview_save(self._chat_id, self._save_of((), name, on_conflict="raise"))
        chain = read.for_model
        if not chain:
            raise EmptyChatError(self._chat_id, name)
        begin = _kept_from(chain, keep_last)
        if begin == 0 or (begin == 1 and is_summary(chain[0])):
            if settled is not None:
                return await self._port.get_branch(self._chat_id, name)  # it was this very compaction
            msg = f"branch {name!r} of chat {self._chat_id!r} has nothing to sum up; keep_last={keep_last} turns are all it has"
            raise InvalidValueError(msg)
        if isinstance(summary, str):
            text: object = summary
        elif callable(summary):
            text = await self._port.ask(lambda: summary(chain[:begin]), name=SUMMARY)
        else:
            msg = f"a summary must be text, or a function that gives text, not {type(summary).__name__}"
            raise InvalidValueError(msg)
        fired = frozenset(item for message in read.messages for item in once_ids_of(message))
        drafts = compacted(chain[:begin], chain[begin:], text, once_ids=fired, new_id=self._port.new_id)
        save = Save(
            drafts=tuple(drafts),
            spare_ids=tuple(self._port.new_id() for _ in drafts),
            branch=name,
            read_head=read.read_head,
            on_conflict="raise",
            branch_id=self._port.new_id(),
            after=None,
        )
        result = await self._carry_out(Attempt(save, self._port.new_id(), ()))
        return await self._port.get_branch(self._chat_id, result.branch)


def _kept_from(chain: list[Message], turns: int) -> int:
    """The place where the last turns begin."""
    if not turns:
        return len(chain)
    starts = [at for at in turn_starts(chain, is_whole=True) if at or not is_summary(chain[0])]
    return starts[turns - 1] if len(starts) >= turns else 0
