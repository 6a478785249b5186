"""Saves: new and edited messages in one commit, and what would come of it; and what of a chain fits a model, read backwards from its end."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_messages import find_branch
from chatledger.domain.chat.events import Body, BranchCreated, MessagesAppended
from chatledger.domain.chat.history import for_model, replacement
from chatledger.domain.chat.save import Foreseen, Save, SavePreview, SaveResult, decide_save, save_result
from chatledger.domain.context.fitting import Fit, Limit, Omitted, Window
from chatledger.domain.errors import ChatledgerError, HeadConflictError, NotFoundError
from chatledger.domain.limits import check_id
from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..log.envelope import clock_ms
from ..store.commands import ChatsToRead
from ..store.redactor import Redactor
from .port import LedgerPart, StorePort


class ReadForModel(NamedTuple):
    """The messages of a chain, those of them that a model gets, and what was left out to make them fit."""

    chain: list[Message]
    for_model: list[Message]
    omitted: Omitted | None
    tokens: int | None
    uncounted: int


def read_for_model(
    chat: IndexedChat, head: Place | None, *, fit: Limit | None, new: Sequence[Message] = (), always: str | None = None
) -> ReadForModel:
    """
    Read the chain up to a place, with new messages after it, as a model gets it; see `for_model`.

    Reads no more than four times what fits, however long the chain is.

    Args:
        chat: The chat.
        head: The last stored message; None where there is none.
        fit: The size that the messages may have; any when None.
        new: Messages that are not stored yet.
        always: A message that is given as it is.

    Raises:
        ContextTooLargeError: The newest turn does not fit.
    """
    length = 0 if head is None else chat.chains.depth(head) + 1
    taken = length if fit is None else min(length, fit.first_page)
    while True:
        stored = [] if head is None or not taken else chat.chains.chain(head, taken)
        shown = for_model(chat, stored, always=always) if stored else []
        messages, whole = [*shown, *new], taken == length
        window = Window(0, None, 0) if fit is None else fit.window(messages, is_whole=whole)
        if window is not None:
            break
        taken = min(taken * 2, length)  # doubled, so that what is read twice is no more than what is read once
    start = window.start
    chain = [*stored, *new]
    begin = 0 if whole and start == 0 else _begin(chat, stored, shown, start)
    before = length - len(stored) + begin
    omitted: Omitted | None = None
    if before and head is not None:
        last_id = chain[begin - 1].id if begin else chain[begin].parent_id
        assert last_id is not None, "a message before it is left out"
        root_id = chat.chains.id_at(chat.chains.ancestor(head, 0))
        omitted = Omitted(count=before, first_id=root_id, last_id=last_id)
    elif before:
        omitted = Omitted(count=before, first_id=chain[0].id, last_id=chain[begin - 1].id)
    return ReadForModel(chain[begin:], messages[start:], omitted, window.tokens, window.uncounted)


def _begin(chat: IndexedChat, stored: Sequence[Message], shown: Sequence[Message], start: int) -> int:
    """Return the index in the chain at which the shown messages from `start` on begin; a replacement stands for what it replaces."""
    if start >= len(shown):
        return len(stored) + start - len(shown)
    own = {message.id for message in stored}
    at = len(stored)
    for message in reversed(shown[start:]):
        at -= 1
        while stored[at].id != message.id and (message.id in own or replacement(chat, stored[at].id) != message.id):
            at -= 1
    return at


MAX_LOST_SWAPS: Final = 5
"""A save gives up after others moved the head so many times in a row."""


class _HeadMovedError(ChatledgerError):
    """The head of the branch is another one than the save is decided on; nothing was written."""

    def __init__(self, head: str | None) -> None:
        super().__init__(f"the branch is at {head!r}; nothing was written")
        self.head = head


class SaveMethods(LedgerPart):
    """The part of a ledger that is about saves."""

    def save(self, chat_id: str, save: Save) -> SaveResult:
        """
        Store new and edited messages: one commit, all or nothing. What `ContextEngine.save` does.

        A message whose id is stored with other content is an edit: messages never change, so it gets its spare id, and the
        whole save goes to a new branch from the parent of the earliest edited message. Equal ones are skipped. Others are
        chained onto the head; when that moved meanwhile, `on_conflict` says what to do. With `after` they go to a new
        branch at that message.

        Args:
            chat_id: The chat.
            save: The messages, the branch, and the head that the caller has seen.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            AmbiguousEditError: The edited messages do not lie on one chain.
            MessageNotFoundError: `after` or a `reply_to` is not in the chat.
            HeadConflictError: The branch moved and `on_conflict` is `raise`, or it moved five times in a row.
            WrongChatError: An id is used in another chat.
            PayloadTooLargeError: A message exceeds the size limit of an event.
            InvalidValueError: A value breaks a rule.
        """
        check_id(chat_id, "chat_id")
        save = _redacted(save, self._store.redactor)

        def decide(head: str | UnsetType | None, state: IndexedChat, now: int) -> list[Body]:
            target = find_branch(state, save.branch)
            if target.head_message_id != head:
                raise _HeadMovedError(target.head_message_id)
            return decide_save(state, save, now=now, target=target)

        basis = save.read_head
        if isinstance(basis, UnsetType):
            # The index knows the head, but for what others wrote just now; a decision that is refused would ask the log.
            with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot, suppress(NotFoundError):
                basis = find_branch(snapshot.chat(chat_id), save.branch).head_message_id
        seen = [] if isinstance(basis, UnsetType) else [basis]
        while len(seen) <= MAX_LOST_SWAPS:
            try:
                written = self._store.execute(
                    CHATS, chat_id, partial(decide, basis), kind=(BranchCreated, MessagesAppended)
                )
            except _HeadMovedError as moved:
                basis = moved.head
                seen.append(moved.head)
            else:
                bodies = [recorded.event.body for recorded in written]
                return save_result(save, bodies, head_message_id=None if basis is UNSET else basis)
        raise HeadConflictError(chat_id, save.branch, expected=seen[-2], actual=seen[-1])

    def preview_save(self, chat_id: str, save: Save, *, fit: Fit | None = None) -> SavePreview:
        """
        The chain as it would be after a save at this moment. Nothing is written; the arguments and errors are those of `save`.

        Args:
            chat_id: The chat.
            save: What would be saved.
            fit: The size that the chain may have for a model; all of it when None.

        Raises:
            ContextTooLargeError: The newest turn does not fit.

        Source: the LMDB index at `position`. Costs O(result).
        """
        check_id(chat_id, "chat_id")
        save = _redacted(save, self._store.redactor)
        # Decided like a save, but on the index as it is: nothing is written, so nothing has to be asked of the log.
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            chat = snapshot.chat(chat_id)
            plan = _planned(chat, save)
            place = None if plan.base is None else chat.place(plan.base)
            read = read_for_model(chat, place, fit=fit, new=plan.new)
        return SavePreview(
            read_head=plan.read_head,
            branch=plan.branch,
            head_message_id=plan.new[-1].id if plan.new else plan.base,
            messages=read.chain,
            for_model=read.for_model,
            saved=len(plan.new),
            omitted=read.omitted,
            tokens=read.tokens,
            uncounted=read.uncounted,
        )


def _redacted(save: Save, redactor: Redactor | None) -> Save:
    """Return a save without secrets, before it is compared with what is stored: an equal message is no edit."""
    if redactor is None:
        return save
    return msgspec.structs.replace(save, drafts=tuple(map(redactor.message, save.drafts)))


class _PlannedSave(NamedTuple):
    """The outcome of a save before it is made: its branch, the message that it follows, and the messages that it adds."""

    read_head: str | None
    branch: str
    base: str | None
    new: list[Message]


def _planned(chat: IndexedChat, save: Save) -> _PlannedSave:
    branch = find_branch(chat, save.branch)
    bodies = decide_save(chat, save, now=clock_ms(), target=branch)
    created = next((body for body in bodies if isinstance(body, BranchCreated)), None)
    base = branch.head_message_id if save.after is UNSET else save.after
    if created is not None:
        base = created.head_message_id
    new = [message for body in bodies if isinstance(body, MessagesAppended) for message in body.messages]
    return _PlannedSave(branch.head_message_id, branch.name if created is None else created.shown_name, base, new)


def foresee_save(store: StorePort, chat_id: str, save: Save) -> Foreseen:
    """
    Return what a save would add at this moment, whatever the length of the chain that it adds to. The errors are those of `save`.

    Source: the LMDB index. The chain is not read.
    """
    check_id(chat_id, "chat_id")
    with store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
        state = snapshot.chat(chat_id)
        plan = _planned(state, save)
        chat = state.chat
    assert chat is not None, "it has the branch of the save"
    return Foreseen(chat=chat, read_head=plan.read_head, base=plan.base, new=plan.new)
