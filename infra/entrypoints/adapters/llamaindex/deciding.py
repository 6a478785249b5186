"""Decisions of the chat stores: what setting, deleting and archiving messages write, each in one commit. Nothing is lost by them."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus
from msgspec import UNSET

from chatledger.domain.chat.annotations import annotation_events
from chatledger.domain.chat.decide_messages import decide_append, find_branch
from chatledger.domain.chat.decide_runs import annotations
from chatledger.domain.chat.events import Body, HeadMoved, MessagesAppended
from chatledger.domain.limits import same_json
from chatledger.domain.values import Annotation
from chatledger.projections.chat.reader import IndexedChat

from ..histories import Adding, Draft, branched, with_free_ids
from .history import ARCHIVED, ARCHIVED_ALL, Entry, entries, newest
from .messages import FORM, draft_of, value_of

_HIDDEN: Final = {"hidden": True}


class AddingAs(NamedTuple):
    """Messages to add that have a status from the beginning."""

    adding: Adding
    status: MessageStatus

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write."""
        return with_status(self.adding.decided(state, now), self.status)


class Setting(NamedTuple):
    """Messages that a history is to have in place of those that it has, all of them with one status."""

    messages: Sequence[ChatMessage]
    status: MessageStatus
    owner: str
    branch_id: str

    def drafts(self, chat_id: str) -> list[Draft]:
        """Return the messages to store, the same ones however often they are asked for."""
        return [
            draft_of(message, chat_id, f"{self.branch_id}-{number}") for number, message in enumerate(self.messages)
        ]

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write: what is new at the end is added, and where something differs begins a new branch."""
        drafts = self.drafts(state.chat_id)
        if state.record is None:
            return with_status(Adding(drafts, self.owner, self.branch_id).decided(state, now), self.status)
        return with_status(replaced(state, entries(state), self, drafts, now), self.status)


def replaced(
    state: IndexedChat, known: Sequence[Entry], setting: Setting, drafts: Sequence[Draft], now: int
) -> list[Body]:
    """Return the events that make a history of `known` messages that of `setting`."""
    kept = _common(known, setting)
    new = [draft.message for draft in drafts[kept:]]
    if kept == len(known):
        free = with_free_ids(state, new, setting.branch_id)
        return decide_append(state, free, branch=None, expected_head=UNSET, now=now) if free else []
    base = known[kept - 1].base.id if kept else None
    return branched(state, find_branch(state, None), base, new, branch_id=setting.branch_id, now=now)


def _common(known: Sequence[Entry], setting: Setting) -> int:
    """The number of messages that both begin with; never a part of those that one stored message stands for."""
    pairs = zip(known, setting.messages, strict=False)
    same = list(
        takewhile(
            lambda pair: pair[0].status is setting.status and same_json(value_of(pair[0].message), value_of(pair[1])),
            pairs,
        )
    )
    kept = len(same)
    while kept and not known[kept - 1].is_last:
        kept -= 1
    return kept


class Deleting:
    """
    A message to be taken out of a history: `message` is the one that was, None for none.

    The newest one is left behind, as the head of the branch moves back. Another one is hidden where it stands: what follows it
    keeps its place and ids, and is not stored a second time.
    """

    def __init__(self, index: int | None, branch_id: str) -> None:
        self._index, self._branch_id = index, branch_id
        self.message: ChatMessage | None = None

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write."""
        self.message = None
        if state.record is None:
            return []
        known = newest(state) if self._index is None else entries(state)
        index = -1 if self._index is None else self._index
        if not -len(known) <= index < len(known):
            return []
        index %= len(known)
        gone = known[index]
        self.message = gone.message
        if gone.place or not gone.is_last:
            return self._said_again(state, index, now)
        if index == len(known) - 1:
            branch = find_branch(state, None)
            return [HeadMoved(branch.number, branch.name, branch.head_message_id, gone.base.parent_id)]
        return hidden(state, [gone])

    def _said_again(self, state: IndexedChat, index: int, now: int) -> list[Body]:
        """A new branch without one of several messages that a stored one stands for."""
        known = entries(state)
        index += len(known) - len(newest(state)) if self._index is None else 0
        status = known[index].status
        rest = [entry.message for entry in (*known[:index], *known[index + 1 :])]
        setting = Setting(rest, status, "", self._branch_id)
        return replaced(state, known, setting, setting.drafts(state.chat_id), now)


class Clearing(NamedTuple):
    """The messages of a status to be hidden."""

    status: MessageStatus

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write."""
        del now
        return [] if state.record is None else hidden(state, entries(state, self.status))


class TakingOldest:
    """The oldest active messages, to be hidden or archived: `messages` are those that were, at most `count`."""

    def __init__(self, count: int, *, is_archived: bool) -> None:
        self._count, self._is_archived = count, is_archived
        self.messages: list[ChatMessage] = []

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write. Of several messages that a stored one stands for all are taken, or none."""
        del now
        active = [] if state.record is None else entries(state, MessageStatus.ACTIVE)
        count = max(0, min(self._count, len(active)))
        while count and not active[count - 1].is_last:
            count -= 1
        taken = active[:count]
        self.messages = [entry.message for entry in taken]
        if not taken:
            return []
        return _marked(state, taken[-1], ARCHIVED_ALL) if self._is_archived else hidden(state, taken)


def hidden(state: IndexedChat, gone: Sequence[Entry]) -> list[Body]:
    """Messages, and those in whose places they stand, that models, searches and histories do not show any more."""
    ids = dict.fromkeys(message.id for entry in gone for message in (entry.base, entry.stands))
    return annotations(state, list(ids), _HIDDEN)


def with_status(bodies: list[Body], status: MessageStatus) -> list[Body]:
    """Events, with those that archive the new messages in them if they are to be."""
    if status is MessageStatus.ACTIVE:
        return bodies
    ids = [message.id for body in bodies if isinstance(body, MessagesAppended) for message in body.messages]
    archived = Annotation(metadata={FORM: dict(ARCHIVED)})
    return [*bodies, *annotation_events((message_id, archived) for message_id in ids)]


def _marked(state: IndexedChat, entry: Entry, mark: Mapping[str, Any]) -> list[Body]:
    said = state.annotation(entry.base.id) or Annotation()
    return annotations(state, [entry.base.id], {"metadata": {**said.metadata, FORM: dict(mark)}})
