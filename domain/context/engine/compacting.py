"""Compacting: a long conversation goes on from a summary."""

from msgspec import UNSET

from ...chat.save import Save
from ...errors import EmptyChatError, InvalidValueError
from ...limits import check_count
from ...values import Branch, Message
from ..compaction import SUMMARY, Summarise, compacted, is_summary
from ..fitting import turn_starts
from ..summary import once_ids_of
from .base import Attempt
from .saving import Saving


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
