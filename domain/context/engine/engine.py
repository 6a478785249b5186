"""
The context engine whole, with its branches and checkpoints, and its compacting: a long conversation begins anew with a summary of
what was said, and goes on with its last turns.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ...chat.save import Save
from ...errors import (
    CheckpointNotFoundError,
    EmptyChatError,
    InvalidValueError,
)
from ...limits import check_count
from ...values import UI, Branch, Checkpoint, Message, NewMessage
from ..fitting import turn_starts
from ..messages import USER, ui_message
from ..reminders import ONCE_IDS
from ..summary import answered_message, once_ids_of
from .base import Attempt, ChatUpdates
from .reading import Inspecting
from .saving import PendingMessages, Saving

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
        begin = len(chain)
        if keep_last:
            starts = [at for at in turn_starts(chain, is_whole=True) if at or not is_summary(chain[0])]
            begin = starts[keep_last - 1] if len(starts) >= keep_last else 0
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


class Branching(PendingMessages):
    """The part of a context engine that goes back, aside and elsewhere. What writes is one commit."""

    async def regenerate(self, message_id: str | None = None) -> Message | None:
        """
        Go back to a question, to answer it again. Nothing is written before the next save.

        From then on `resolve` gives the messages up to the question. `set(assistant(...)).save()` stores the new answer on a new
        branch that begins there, becomes the active one and the engine's; branch and answer are one commit. Until then
        the chat reads as before, whatever fails meanwhile. `discard` takes it back; so does each move to another branch.

        Args:
            message_id: The answer, on any branch, or the question itself; None for the end of the engine's branch. An answer is all
                that one assistant said since a user's last message, tool calls and their results included.

        Returns:
            The question, which the new answer will follow; None if the answer is the first message of the chat. Where the
            branch ends with the question, which has no answer yet, the save goes on from there, without another branch.

        Raises:
            InvalidValueError: Messages are pending: save or discard them first.
            EmptyChatError: The branch has no stored message yet.
            MessageNotFoundError: There is no such message.
            WrongChatError: It belongs to another chat.
        """
        name = await self._ready()
        if self._pending:
            msg = "messages are pending, which come after the answer; save or discard them before you regenerate it"
            raise InvalidValueError(msg)
        head = (await self._port.get_branch(self._chat_id, name)).head_message_id
        last = head if message_id is None else message_id
        if last is None:
            raise EmptyChatError(self._chat_id, name)
        nothing = msgspec.structs.replace(self._save_of((), name, on_conflict="rebase"), after=last)
        question = await self._port.foresee(
            self._chat_id, nothing, lambda _, chain: answered_message(chain.backwards())
        )
        after = None if question is None else question.id
        self._after = UNSET if after == head else after
        return question

    async def rewind(self, message_id: str) -> Branch:
        """
        Go back to a message: a new branch begins there, becomes the active one and the engine's. Pending messages are dropped.

        What is said next follows that message. The old branch keeps its head, so nothing that was saved is lost.

        Args:
            message_id: A message of the chat, on any branch.

        Returns:
            The new branch, named after the one the engine was on: `main-v2`, `main-v3`, ...

        Raises:
            MessageNotFoundError: There is no such message.
            WrongChatError: It belongs to another chat.
        """
        base = await self._ready()
        branch = await self._port.fork(self._chat_id, message_id, base=base, activate=True)
        self._move_to(branch)
        return branch

    async def btw(self) -> Branch:
        """
        Open a side branch at the present head, for a question by the way. The engine stays where it is, pending messages too.

        Returns:
            The side branch. `switch_branch(branch.name)` goes there.

        Raises:
            EmptyChatError: The branch has no stored message yet.
        """
        base = await self._ready()
        return await self._port.fork(self._chat_id, await self._head(base), base=base, activate=False)

    async def switch_branch(self, name: str) -> Branch:
        """
        Go to another branch and make it the active one. Pending messages are dropped.

        Args:
            name: Of a branch of the chat; `Ledger.list_branches` has them all. That of the present one drops what is pending.

        Raises:
            BranchNotFoundError: There is no such branch; everything is as before.
        """
        await self._ready()
        branch = await self._port.set_active_branch(self._chat_id, name)
        self._move_to(branch)
        return branch

    async def refresh(self) -> Branch:
        """
        Read the chat anew and go to its active branch, which another engine may have changed. Pending messages are kept.

        An engine works on its own branch until it moves itself.
        """
        await self._ready()
        self._chat = await self._port.get_chat(self._chat_id)
        branch = await self._port.get_active_branch(self._chat_id)
        self._adopt(branch)
        return branch

    async def checkpoint(self, name: str) -> Checkpoint:
        """
        Bookmark the head of the branch; pending messages do not count.

        A name that is set again points to the new head and keeps its id. `restore` comes back here.

        Args:
            name: Any text of 1 to 2,048 bytes.

        Raises:
            EmptyChatError: The branch has no stored message yet.
        """
        branch = await self._ready()
        return await self._port.set_checkpoint(self._chat_id, name, await self._head(branch))

    async def restore(self, name: str) -> Branch:
        """
        Go back to a checkpoint: as `rewind` to its message. No branch is moved.

        Returns:
            The new branch, as of `rewind`.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
        """
        await self._ready()
        checkpoint = await self._port.get_checkpoint(self._chat_id, name)
        if checkpoint is None:
            raise CheckpointNotFoundError(self._chat_id, name)
        return await self.rewind(checkpoint.message_id)

    async def _head(self, branch: str) -> str:
        head = (await self._port.get_branch(self._chat_id, branch)).head_message_id
        if head is None:
            raise EmptyChatError(self._chat_id, branch)
        return head


class Engine(Compacting, Inspecting, Branching, ChatUpdates):
    """
    A context engine over a port. Its methods are awaited; over a port that answers at once they never suspend.

    Made for one task or thread at a time, as a file is; several engines may work on one chat.
    """
