"""Merges: what a branch came to is brought back to the one that it left."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

from chatledger.domain.chat.decide_messages import find_branch
from chatledger.domain.chat.events import Body, HeadMoved, MessagesAppended
from chatledger.domain.chat.merging import MergeHow, PlannedMerge, decide_merge, merged_up_to, unmerged
from chatledger.domain.context.messages import USER, ui_message
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_choice, check_id, check_ids
from chatledger.domain.values import UI, Message, NewMessage
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .drafts import MessageLike, as_drafts, new_id
from .messages import stored_messages
from .port import LedgerPart, store_of

MergeOutcome = Literal["merged", "fast_forward", "already_merged"]
"""The effect of a merge: messages appended, the head moved of a branch that had nothing of its own, or nothing."""

_NEEDS: Final[dict[MergeHow, str]] = {
    "summary": "a merge by summary needs the summary, and takes no messages to pick",
    "pick": "a merge by pick needs the ids of the messages to pick, and takes no summary",
    "rebase": "a merge by rebase takes neither a summary nor messages to pick",
}


class Merge(Value, frozen=True, kw_only=True):
    """
    A merge of a branch into another one of its chat.

    Args:
        chat_id: The chat.
        into: The branch that went on.
        source: The branch that was merged.
        source_head: Its head, which the last of the messages names in `merged_from`.
        base: The id of the last message of it that `into` had; None where it had none.
        outcome: `merged`, `fast_forward` (the head of `into` moved to `source_head`), or `already_merged` (nothing was written).
        messages: What was appended, oldest first.
    """

    chat_id: str
    into: str
    source: str
    source_head: str
    base: str | None
    outcome: MergeOutcome
    messages: list[Message]


class MergePreview(Value, frozen=True, kw_only=True):
    """
    What a merge would bring.

    Args:
        source_head: The head of the branch to merge; None where it is empty.
        base: The last message of it that the other branch has; None where it has none.
        theirs: Number of its messages after that, those that are hidden too.
        ours: Number of messages of the other branch that it does not have.
        messages: The last of its messages after the base, oldest first, without those that are hidden.
        is_fast_forward: Whether a rebase would only move the head of the other branch.
    """

    source_head: str | None
    base: Message | None = None
    theirs: int = 0
    ours: int = 0
    messages: tuple[Message, ...] = ()
    is_fast_forward: bool = False


def preview_merge(ledger: LedgerPart, chat_id: str, source: str, into: str, *, limit: int) -> MergePreview:
    """
    Tell what `merge` would bring, with at most `limit` messages; costs no more for what both have.

    Raises:
        ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
    """
    with store_of(ledger).snapshot(ChatsToRead(chat_id)) as snapshot:
        chat = snapshot.chat(chat_id)
        source_head, head = (find_branch(chat, name).head_message_id for name in (source, into))
        if source_head is None:
            return MergePreview(source_head=None)
        base = merged_up_to(chat, source_head, head)
        theirs = chat.depth(source_head) - (-1 if base is None else chat.depth(base))
        ours = 0
        if head is not None:
            shared = merged_up_to(chat, head, source_head)
            ours = chat.depth(head) - (-1 if shared is None else chat.depth(shared))
        messages = chat.chain(source_head, min(theirs, limit)) if theirs else []
        return MergePreview(
            source_head=source_head,
            base=None if base is None else chat.chain(base, 1)[0],
            theirs=theirs,
            ours=ours,
            messages=tuple(message for message in messages if not message.is_hidden),
            is_fast_forward=head is None or chat.is_ancestor(head, source_head),
        )


class MergeMethods(LedgerPart):
    """The part of a ledger that merges branches."""

    def merge(
        self,
        chat_id: str,
        source: str,
        into: str = "main",
        *,
        how: MergeHow = "summary",
        summary: MessageLike | str | Callable[[list[Message]], MessageLike | str] | None = None,
        pick: Sequence[str] | None = None,
    ) -> Merge:
        """
        Merge a branch into another one, in one commit: the last message that is appended has two parents.

        `parent_id` of that message is the head of `into`, and `merged_from` names the head of `source`. Chains, and so what a model gets,
        follow the first parent; the other branch stays as it is. Merging it again takes what came after that head.

        Args:
            chat_id: The chat.
            source: The branch to merge.
            into: The branch that goes on.
            how: `summary` appends one message that sums up what the branch came to; `pick` copies of chosen messages; `rebase` copies
                of all that `into` does not have, or moves its head there where it has nothing of its own. Hidden messages are not copied.
            summary: For `summary`, the message, or text, which is stored as a message of the user that no user wrote (`synthetic` in its notes);
                or a function that makes either of the messages to sum up, oldest first.
            pick: For `pick`, their ids, in the order in which they are to follow. Copies have new ids, the time of the original, and its
                id as `copied_from`.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            InvalidValueError: The branch is empty or the same, what `how` needs is not there, or a picked message is not to be merged.
            HeadConflictError: A part of what was summed up was merged meanwhile. Nothing was written.
        """
        check_id(chat_id, "chat_id")
        check_choice(how, get_args(MergeHow), "how")
        if (summary is not None, bool(pick)) != (how == "summary", how == "pick"):
            raise InvalidValueError(_NEEDS[how])
        if source == into:
            msg = f"branch {into!r} cannot be merged into itself; name another branch that goes on"
            raise InvalidValueError(msg)
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            chat = snapshot.chat(chat_id)
            source_head = find_branch(chat, check_id(source, "source")).head_message_id
            head = find_branch(chat, check_id(into, "into")).head_message_id
            if source_head is None:
                msg = f"branch {source!r} of chat {chat_id!r} is empty; there is nothing to merge"
                raise InvalidValueError(msg)
            base = merged_up_to(chat, source_head, head)
            tail = unmerged(chat, source_head, base) if callable(summary) and base != source_head else []
        merge = PlannedMerge(
            id=new_id(),
            source_head=source_head,
            into=into,
            how=how,
            summary=None if summary is None or base == source_head else self._summary(source, tail, summary),
            summed_up_behind=base,
            pick=() if pick is None else tuple(check_ids(pick, "pick")),
        )

        def decide(state: IndexedChat, now: int) -> list[Body]:
            return decide_merge(state, now, merge)

        recorded = self._store.execute(CHATS, chat_id, decide, kind=(MessagesAppended, HeadMoved))
        appended = any(isinstance(each.body, MessagesAppended) for each in recorded)
        return Merge(
            chat_id=chat_id,
            into=into,
            source=source,
            source_head=source_head,
            base=base,
            outcome="merged" if appended else "fast_forward" if recorded else "already_merged",
            messages=stored_messages(self._store, chat_id, [], recorded) if appended else [],
        )

    def _summary(
        self,
        source: str,
        tail: list[Message],
        summary: MessageLike | str | Callable[[list[Message]], MessageLike | str],
    ) -> NewMessage:
        content = summary(tail) if callable(summary) else summary
        if isinstance(content, str):
            if not content.strip():
                msg = "a summary must not be blank text"
                raise InvalidValueError(msg)
            message_id = new_id()
            data = ui_message(USER, f"Summary of branch {source}:\n\n{content}", message_id)
            content = NewMessage(USER, data, UI, id=message_id, metadata={"synthetic": True})
        (draft,) = as_drafts([content], redactor=self._store.redactor)
        return draft
