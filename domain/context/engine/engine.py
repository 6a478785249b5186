"""The context engine whole, with its branches and checkpoints."""

import msgspec
from msgspec import UNSET

from ...errors import (
    CheckpointNotFoundError,
    EmptyChatError,
    InvalidValueError,
)
from ...values import Branch, Checkpoint, Message
from ..summary import answered_message
from .base import ChatUpdates
from .compacting import Compacting
from .reading import Inspecting
from .saving import PendingMessages


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
