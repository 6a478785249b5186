"""The items of a thread as pages have them, and what saving and deleting items writes, each in one commit."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from chatledger.domain.chat.annotations import replacement
from chatledger.domain.chat.decide_chats import decide_create_chat, decide_update_chat
from chatledger.domain.chat.decide_messages import decide_add_messages, find_branch
from chatledger.domain.chat.decide_runs import annotations
from chatledger.domain.chat.events import Body, HeadMoved
from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import IndexedChat

from ..histories import Adding, Draft, says_the_same, standing
from .items import FORM, message_ids

_FIRST_PAGE: Final = 16


class Found(NamedTuple):
    """A message of a thread that counts, and the one that stands in its place: mostly itself."""

    base: Message
    stands: Message


class History:
    """The active branch of a chat that is there, as it is in one snapshot."""

    def __init__(self, chat: IndexedChat) -> None:
        branch = find_branch(chat, None)
        self._chat = chat
        self._head: Place | None = None
        self._length = branch.message_count
        if branch.head_message_id is not None:
            self._head = chat.place(branch.head_message_id)

    def place_of(self, thread_id: str, sought: str) -> Place | None:
        """Return the place of an item on the branch; None when it is not there."""
        if self._head is None:
            return None
        for message_id in message_ids(thread_id, sought):
            place = self._chat.place(message_id)
            if place is not None and self._chat.chains.is_ancestor(place, self._head):
                return place
        return None

    def at(self, place: Place) -> Found | None:
        """Return what counts at a place of the branch; None for a hidden message."""
        found = self._between(self._chat.chains.depth(place), 1)
        return found[0] if found else None

    def page(self, after: Place | None, limit: int, *, ascending: bool) -> list[Found]:
        """Return at most `limit` of those that follow a place, or precede it, in that order. Costs O(result)."""
        depth = None if after is None else self._chat.chains.depth(after)
        found: list[Found] = []
        start = (0 if depth is None else depth + 1) if ascending else (self._length if depth is None else depth)
        step = max(limit, _FIRST_PAGE)
        while len(found) < limit and (start < self._length if ascending else start > 0):
            if ascending:
                found += self._between(start, step)
                start += step
            else:
                first = max(start - step, 0)
                found += reversed(self._between(first, start - first))
                start = first
            step *= 2
        return found[:limit]

    def _between(self, depth: int, count: int) -> list[Found]:
        """Those that count among so many messages from a depth on. One more is looked at, as several may have one in their places."""
        head = self._head
        if head is None:
            return []
        chains = self._chat.chains
        last = min(depth + count, self._length - 1)
        chain = chains.chain(chains.ancestor(head, last), last - depth + 1)
        beyond = chain[count].id if len(chain) > count else None
        return [Found(base, stands) for base, stands in standing(self._chat, chain) if base.id != beyond]


class SavingThread(NamedTuple):
    """The metadata of a thread, whose chat is made for `owner` if there is none."""

    title: str | None
    value: dict[str, Any]
    created_at: int
    owner: str
    branch_id: str

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write; none when all is as it was."""
        del now
        if state.record is not None:
            return decide_update_chat(state, title=self.title, merged_metadata={FORM: self.value})
        return decide_create_chat(
            state,
            user_id=self.owner,
            title=self.title,
            metadata={FORM: self.value},
            branch_id=self.branch_id,
            created_at=self.created_at,
        )


class SavingItem(NamedTuple):
    """An item that is to take the place of the one with its id, or to be added at the end where there is none."""

    item_id: str
    draft: Draft
    owner: str
    branch_id: str

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write; none when the item is as it was. The old one stays in the history."""
        adding = Adding([self.draft], self.owner, self.branch_id)
        if state.record is None:
            return adding.decided(state, now)
        place = History(state).place_of(state.chat_id, self.item_id)
        if place is None:
            return adding.decided(state, now)
        base = state.chains.message(place)
        new = replacement(state, base.id)
        stands = base if new is None else state.message(new) or base
        if says_the_same(stands, self.draft.message):
            return annotations(state, [stands.id], {"hidden": False}) if stands.is_hidden else []
        number = 2
        while state.has_message(message_id := f"{base.id}:{number}") or state.is_elsewhere(message_id):
            number += 1
        message = msgspec.structs.replace(
            self.draft.message,
            id=message_id,
            parent_id=base.parent_id,
            data={**self.draft.message.data, "id": message_id},
        )
        added = decide_add_messages(state, [message], now=now)
        return [*added, *annotations(state, list(dict.fromkeys([base.id, stands.id])), {"replaced_by": message_id})]


class DeletingItem(NamedTuple):
    """
    An item to be taken out of a thread.

    The newest one is left behind, as the head of the branch moves back: what is said instead is another version of it. Others
    are hidden where they stand.
    """

    item_id: str

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write; none when there is no such item."""
        del now
        if state.record is None:
            return []
        history = History(state)
        place = history.place_of(state.chat_id, self.item_id)
        found = None if place is None else history.at(place)
        if found is None:
            return []
        newest = history.page(None, 1, ascending=False)
        if newest and newest[0].base.id == found.base.id:
            branch = find_branch(state, None)
            return [HeadMoved(branch.number, branch.name, branch.head_message_id, found.base.parent_id)]
        return annotations(state, list(dict.fromkeys([found.base.id, found.stands.id])), {"hidden": True})


def all_items(chat: IndexedChat) -> Sequence[Found]:
    """Return all that count on the active branch."""
    history = History(chat)
    return history.page(None, find_branch(chat, None).message_count, ascending=True)
