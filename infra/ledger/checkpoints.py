"""Marks on messages: checkpoints, which give them names, and annotations, which are what is said of them after they were written."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_branches import decide_delete_checkpoint, decide_set_checkpoint
from chatledger.domain.chat.decide_runs import decide_annotate
from chatledger.domain.chat.events import CheckpointDeleted, CheckpointSet, MessagesAnnotated
from chatledger.domain.limits import check_id, check_time, sought_id
from chatledger.domain.values import Annotation, Checkpoint
from chatledger.projections.chat.rows import checkpoints_at
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .drafts import new_id
from .port import LedgerPart


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
            name=body.name,
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
        wanted = None if message_ids is None else [sought_id(message_id, "message_id") for message_id in message_ids]
        return self._of_chat(
            chat_id, lambda chat: chat.checkpoints() if wanted is None else checkpoints_at(chat, wanted)
        )

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
