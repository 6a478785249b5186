"""Annotations: what is said of messages after they were written."""

from typing import Any

from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_runs import decide_annotate
from chatledger.domain.chat.events import MessagesAnnotated
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.values import Annotation
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .port import LedgerPart


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
        chat_id = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            return snapshot.chat(chat_id).annotations()
