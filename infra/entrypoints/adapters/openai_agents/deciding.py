"""Decisions of a session: what adding, popping, clearing and compacting write, each in one commit."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from chatledger.domain.chat.decide_chats import decide_upsert_chat
from chatledger.domain.chat.decide_messages import decide_append, find_branch
from chatledger.domain.chat.events import Body, BranchCreated, HeadMoved
from chatledger.domain.chat.fork import next_name
from chatledger.domain.chat.state import ChatState, next_branch_number
from chatledger.domain.errors import BranchNotFoundError
from chatledger.domain.values import MAIN, MAIN_NUMBER, Branch, NewMessage
from chatledger.projections.chat.reader import BranchRow

from ..histories import Draft, appended, says_the_same, with_free_ids
from .items import copies_of, items_for_model


class Adding(NamedTuple):
    """Items to add at the end of a branch of a chat, which is made for `owner` if there is none."""

    drafts: Sequence[Draft]
    branch: str | None
    owner: str
    branch_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write; none when the same items, by their own ids, are the newest ones already.

        So a call that is repeated, because its answer was lost, changes nothing. An id that a message has is not used again:
        models that give all their answers the same id lose nothing.

        Raises:
            BranchNotFoundError: The chat has no such branch.
        """
        if state.record is None:
            return self._begun(state, now)
        if all(draft.has_own_id for draft in self.drafts) and self._is_newest(state):
            return []
        return decide_append(state, self._free(state), branch=self.branch, expected_head=UNSET, now=now)

    def _begun(self, state: ChatState, now: int) -> list[Body]:
        if self.branch not in {None, MAIN}:
            raise BranchNotFoundError(state.chat_id, self.branch or MAIN)
        created = decide_upsert_chat(state, user_id=self.owner, title=None, metadata=None, branch_id=self.branch_id)
        return [*created, appended(self._free(state), MAIN_NUMBER, None, now)]

    def _is_newest(self, state: ChatState) -> bool:
        at = find_branch(state, self.branch).head_message_id
        for draft in reversed(self.drafts):
            stored = None if at is None else state.message(at)
            if stored is None or not says_the_same(stored, draft.message):
                return False
            at = stored.parent_id
        return True

    def _free(self, state: ChatState) -> list[NewMessage]:
        return with_free_ids(state, [draft.message for draft in self.drafts], self.branch_id)


class Popping:
    """The newest item of a branch, to be taken off it; `item` is the one that was taken, None for none."""

    def __init__(self, branch: str | None, unique_id: str) -> None:
        self._branch, self._unique_id = branch, unique_id
        self.item: dict[str, Any] | None = None

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """Return the events to write. The head moves back; what else its message said is stored again."""
        self.item = None
        if state.record is None:
            return []
        target = find_branch(state, self._branch)
        at = target.head_message_id
        while at is not None:
            message = state.message(at)
            assert message is not None, "a head and its ancestors are stored"
            items = items_for_model(state, [message])
            if items:
                self.item = items[-1].item
                rest = copies_of((one.item for one in items[:-1]), f"{state.chat_id}:{self._unique_id}")
                return _moved(target, message.parent_id, rest, now)
            at = message.parent_id
        return []


class Clearing(NamedTuple):
    """An empty branch to go on with in place of another; `is_active` when it becomes the active one."""

    branch: str | None
    branch_id: str
    is_active: bool

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write; none when the branch is empty already.

        Raises:
            BranchNotFoundError: The chat has no such branch.
        """
        if state.record is None:
            return []
        target = find_branch(state, self.branch)
        if target.head_message_id is None:
            return []
        return [_next_branch(state, target, None, branch_id=self.branch_id, is_active=self.is_active, now=now)]


class Replacing(NamedTuple):
    """
    Items to go on with in place of the end of a branch, from after the message `base` (None: from the beginning).

    They go to a new branch, which becomes the active one with `is_active`. `branch` is as it was read.
    """

    branch: BranchRow
    base: str | None
    items: Sequence[Any]
    branch_id: str
    is_active: bool

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """Return the events to write; none when the branch is not what it was."""
        record, basis = state.record, self.branch
        target = None if record is None else state.branch(basis.name)
        # A chat that was erased and begun anew may have a branch and messages of the same names.
        if record is None or target is None or target.id != basis.id or target.head_message_id != basis.head_message_id:
            return []
        if self.is_active and record.active_branch != basis.name:
            return []
        created = _next_branch(state, target, self.base, branch_id=self.branch_id, is_active=self.is_active, now=now)
        drafts = copies_of(self.items, f"{state.chat_id}:{self.branch_id}")
        return [created, appended(drafts, created.number, self.base, now)] if drafts else [created]


def _next_branch(
    state: ChatState, target: Branch, head: str | None, *, branch_id: str, is_active: bool, now: int
) -> BranchCreated:
    name = next_name(
        target.name, named_after=state.branches_named_after, is_taken=lambda name: state.branch(name) is not None
    )
    return BranchCreated(next_branch_number(state), branch_id, name, head, now, is_active)


def _moved(target: Branch, base: str | None, drafts: Sequence[NewMessage], now: int) -> list[Body]:
    moved = HeadMoved(target.number, target.name, target.head_message_id, base)
    return [moved, appended(drafts, target.number, base, now)] if drafts else [moved]
