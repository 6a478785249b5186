"""
Marks on messages: checkpoints, which give them names, and annotations, which are what is said of them after they were written;
and versions, as chat interfaces show them: "2 of 3", and going to another one.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_branches import decide_delete_checkpoint, decide_set_checkpoint, decide_show
from chatledger.domain.chat.decide_runs import decide_annotate
from chatledger.domain.chat.events import (
    BranchActivated,
    BranchCreated,
    CheckpointDeleted,
    CheckpointSet,
    MessagesAnnotated,
)
from chatledger.domain.errors import InvalidValueError, MessageNotFoundError
from chatledger.domain.limits import check_count, check_id, check_time, sought_id
from chatledger.domain.values import Annotation, Branch, Checkpoint, Page, Versions
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .branches import branch_after
from .drafts import new_id
from .messages import branch_at, chain_end, path_end
from .port import LedgerPart

_NO_VERSIONS = Versions(ids=[], index=None)
_CATCH_UP_S = 30.0


class VersionMethods(LedgerPart):
    """The part of a ledger that is about versions of messages."""

    def get_page(
        self,
        chat_id: str,
        *,
        branch: str | None = None,
        limit: int = 50,
        before: str | None = None,
        along: str | None = None,
        first: int | None = None,
    ) -> Page:
        """
        One page of the chain of a branch, newest last, each message with its versions.

        Args:
            chat_id: The chat.
            branch: Its name; the active branch when None. Give `Page.branch` with `before`, so that all pages are of one branch.
            limit: At most this many messages, the newest ones.
            before: A message of the chain; the page ends just before it. `Page.before` is that of the page before.
            along: In place of `branch`: a branch, or a message, to which the chain leads.
            first: In place of `before`: the depth of the first message, counted from 0. A page that begins after the end is empty.

        Returns:
            The page. Each `PageEntry.versions` has the ids of the message's versions, in the order of their creation, and at
            which `index` the message is among them.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch, nor a message `along`.
            MessageNotFoundError, InvalidValueError: `before` is unknown, or not on the chain.

        Source: the LMDB index at `position`, in one transaction; the log is not read. Costs O(messages and versions of the page),
        whatever the number of branches and the length of the chain.
        """
        if not check_count(limit, "limit"):
            msg = "limit must be at least 1, for a page has a message"
            raise InvalidValueError(msg)
        if (branch is not None and along is not None) or (before is not None and first is not None):
            msg = "give branch or along, and before or first: each pair says the same in two ways"
            raise InvalidValueError(msg)
        if first is not None:
            check_count(first, "first")
        with self._chat(chat_id) as chat:
            if branch is None:
                name, head = path_end(chat, along, chat_id=chat_id)
            else:
                name, head = branch, branch_at(chat, branch, chat_id=chat_id).place
            count = 0 if head is None else chat.chains.depth(head) + 1
            if head is None or first is None:
                end = chain_end(chat, head, before)
            else:
                end = chat.chains.ancestor(head, min(first + limit, count) - 1) if first < count else None
                limit = min(limit, count - first)
            if end is None:
                return Page(
                    chat_id=chat_id, branch=name, entries=[], before=None, first=min(first or 0, count), count=count
                )
            entries = chat.chains.page(end, limit)
            start = chat.chains.depth(end) + 1 - len(entries)
        return Page(
            chat_id=chat_id,
            branch=name,
            entries=entries,
            before=entries[0].message.id if start else None,
            first=start,
            count=count,
        )

    def versions(self, message_id: str) -> Versions:
        """
        The versions of a message: all messages with its parent, and which of them is shown.

        Shown is the one on the active branch; where it has none of them, that on the branch seen last which has one. A branch is
        seen when it becomes the active one. None of them, and no ids, when there is no such message.

        Source: the LMDB index at `position`. Costs O(versions), and O(branches) where the active branch has none of them.
        """
        return self._of_message(message_id, IndexedChat.versions, absent=_NO_VERSIONS)

    def branches_of(self, message_id: str) -> list[Branch]:
        """
        The branches whose chains have a message, the one seen last first; none when there is no such message.

        A branch is seen when it becomes the active one. Those that never were come last, the newest of them first.

        Source: the LMDB index at `position`. Costs O(branches); no chain is walked.
        """
        return self._of_message(message_id, IndexedChat.branches_with, absent=[])

    def show(self, message_id: str) -> Branch:
        """
        Make a branch with this message the active one: of those that have it, the one seen last.

        Where no branch has it, since it was deleted or pointed elsewhere, one is made, with an automatic name: it ends where one
        arrives by going on from the message to the newest answer, and to the newest answer of that, until there is none.

        Returns:
            The active branch.

        Raises:
            MessageNotFoundError: There is no such message.
        """
        chat_id = self._chat_of(check_id(message_id, "message_id"))
        branch_id = new_id()
        written = self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_show(state, message_id, branch_id=branch_id, created_at=now),
            kind=(BranchActivated, BranchCreated),
        )
        body = written[0].body if written else None
        if isinstance(body, BranchActivated | BranchCreated):
            name = body.name or ""  # taken away since: the number says which
        else:
            with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
                name = branch_at(snapshot.chat(chat_id), None, chat_id=chat_id).name
        return branch_after(self._store, chat_id, written, name)

    def _chat_of(self, message_id: str) -> str:
        """The id of the chat that has a message; the log is asked whether the index is behind before there is none."""
        for is_last in (False, True):
            with self._store.snapshot() as snapshot:
                located = snapshot.find(message_id)
            if located is not None:
                return located[0].chat_id
            if not is_last:
                self._store.catch_up(None, _CATCH_UP_S)
        raise MessageNotFoundError(message_id)


class CheckpointMethods(LedgerPart):
    """The part of a ledger that is about checkpoints."""

    def set_checkpoint(
        self,
        chat_id: str,
        name: str,
        message_id: str,
        *,
        created_at: int | None = None,
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Checkpoint:
        """
        Bookmark a message. Setting a name again keeps the checkpoint's id; earlier targets stay in the history.

        Args:
            chat_id: The chat.
            name: Unique in the chat, 1 to 2,048 bytes.
            message_id: A message of the chat.
            created_at: For imports; the time of the call when None.
            id: For imports, too; a new random one when None. One that is set already keeps its own.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
        """
        check_id(chat_id, "chat_id")
        if created_at is not None:
            check_time(created_at, "created_at")
        checkpoint_id = new_id() if id is None else check_id(id, "checkpoint id")
        recorded = self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_set_checkpoint(
                state,
                name,
                message_id,
                checkpoint_id=checkpoint_id,
                created_at=now if created_at is None else created_at,
            ),
            kind=CheckpointSet,
        )
        body = recorded[0].body
        assert isinstance(body, CheckpointSet), "setting a checkpoint is one event"
        return Checkpoint(
            id=body.checkpoint_id,
            chat_id=chat_id,
            name=name,
            message_id=body.message_id,
            created_at=body.created_at,
        )

    def get_checkpoint(self, chat_id: str, name: str) -> Checkpoint | None:
        """The checkpoint of that name, or None."""
        name = sought_id(name, "checkpoint name")
        return self._of_chat(chat_id, lambda chat: chat.checkpoint(name))

    def list_checkpoints(self, chat_id: str, *, message_ids: Iterable[str] | None = None) -> list[Checkpoint]:
        """
        The checkpoints by `created_at`, newest first, ties by name; none when there is no such chat.

        Args:
            chat_id: The chat.
            message_ids: Only those at these messages.

        Source: the LMDB index at `position`. Costs O(checkpoints); with `message_ids` a look-up for each, and what `get_rows`
        reads once in a while.
        """
        if message_ids is None:
            return self._of_chat(chat_id, lambda chat: chat.checkpoints())
        from chatledger.projections.chat.rows import checkpoints_at

        wanted = [sought_id(message_id, "message_id") for message_id in message_ids]
        return self._of_chat(chat_id, lambda chat: checkpoints_at(chat, wanted))

    def delete_checkpoint(self, chat_id: str, name: str) -> bool:
        """Remove a bookmark; its message stays. Returns whether there was one."""
        check_id(chat_id, "chat_id")
        return bool(
            self._store.execute(
                CHATS, chat_id, lambda state, now: decide_delete_checkpoint(state, name), kind=CheckpointDeleted
            )
        )


class AnnotationMethods(LedgerPart):
    """The part of a ledger that is about annotations."""

    def annotate(
        self,
        chat_id: str,
        message_id: str,
        *,
        stale: bool | UnsetType = UNSET,
        replaced_by: str | UnsetType | None = UNSET,
        hidden: bool | UnsetType = UNSET,
        metadata: dict[str, Any] | None = None,
        replace_metadata: dict[str, Any] | UnsetType | None = UNSET,
    ) -> Annotation:
        """
        Say something of a message: an event of its own, which every later read of the message shows.

        Models and searches get neither hidden nor replaced messages; lists of messages do, with the annotation. See
        docs/reference/annotations.md. Concurrent calls lose nothing of each other's metadata.

        Args:
            chat_id: The chat.
            message_id: A message of it; it stays as it is.
            stale: Whether what it answers was edited.
            replaced_by: The message of the chat that takes its place, also in what a model gets; None for none.
            hidden: Whether models and searches do not get to see it. It is not erased.
            metadata: The keys to set, merged over what is stored; others stay.
            replace_metadata: The new metadata as a whole; None clears them.

        Returns:
            The annotation afterwards. What is left out stays; what changes nothing writes nothing.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or a message is not there.
            WrongChatError: A message belongs to another chat.
            InvalidValueError: A value breaks a rule.
        """
        check_id(chat_id, "chat_id")
        # Metadata are merged in the decision: read, merged and written in three steps they lost what others wrote in between.
        self._store.execute(
            CHATS,
            chat_id,
            lambda state, _now: decide_annotate(
                state,
                message_id,
                stale=stale,
                replaced_by=replaced_by,
                hidden=hidden,
                metadata=replace_metadata,
                merged_metadata=metadata,
            ),
            kind=MessagesAnnotated,
        )
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            return snapshot.chat(chat_id).annotation(message_id) or Annotation()

    def get_annotations(self, chat_id: str) -> dict[str, Annotation]:
        """
        The annotations of all messages that have one, by message id; none when there is no such chat.

        Source: the LMDB index at `position`.
        """
        return self._of_chat(chat_id, lambda chat: chat.annotations())
