"""
The decision on a batch of entries: which events keep it, in one commit.

A turn follows the turn that its `parentUuid` leads to. Where that is the head of a branch, the branch goes on; elsewhere a new
branch begins, which becomes the active one: that is how edits, rewinds and compactions look in a transcript. Calls that ran
in parallel draw forks too, which are none: their parts stand one after the other. Bookkeeping goes to a branch of its own, and
each of its messages replies to the turn that it belongs to.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.decide_chats import decide_create_chat, decide_update_chat
from chatledger.domain.chat.decide_messages import check_message
from chatledger.domain.chat.events import Body, BranchActivated, BranchCreated, MessagesAppended
from chatledger.domain.chat.fork import bases_of, next_name
from chatledger.domain.chat.state import ChatState, next_branch_number
from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import InvalidValueError, PayloadTooLargeError
from chatledger.domain.limits import check_metadata
from chatledger.domain.values import MAIN, MAIN_NUMBER, Message

from .entries import BOOKKEEPING_BRANCH, Draft, answer_id, entry_of, is_bookkeeping, is_result, title_in, uuid_of

SUMMARY: Final = "claude_summary"
"""The key in the metadata of a chat of its summary, and of the number of messages that the chat had then."""
_MOST_STEPS: Final = 500

Fold = Callable[[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]], dict[str, Any]]
"""The state of a summary, None for the first, and further entries, to the state after them."""


class Batch(NamedTuple):
    """
    Entries to append to a transcript: their drafts, the metadata of its chat, its owner, and what folds its summary.

    `unique_id` begins the ids of what is made.
    """

    drafts: Sequence[Draft]
    metadata: Mapping[str, Any]
    owner: str
    fold: Fold | None
    unique_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """Return the events to write; none when all entries are there already, by their uuids."""
        state.look_up(draft.message.id or "" for draft in self.drafts)
        writing = _Writing(state, now, self.unique_id)
        for draft in self.drafts:
            if draft.uuid is None or not writing.has(draft.message.id or ""):
                writing.add(draft)
        if not writing.added:
            return []
        bodies = writing.finished()
        title, metadata = self._title(state, writing.added), self._described(state, writing.added)
        if state.record is None:
            created = decide_create_chat(
                state, user_id=self.owner, title=title, metadata=metadata, branch_id=self.unique_id
            )
            return [*created, *bodies]
        updated = decide_update_chat(state, merged_metadata=metadata, title=UNSET if title is None else title)
        return [*bodies, *updated]

    def _described(self, state: ChatState, added: Sequence[Draft]) -> dict[str, Any]:
        found = dict(self.metadata)
        if self.fold is not None:
            said = state.profile.metadata or {} if state.profile is not None else {}
            before = object_at(said, SUMMARY)
            count = 0 if state.record is None else state.record.message_count
            is_known = before.get("messages") == count
            if is_known or not count:
                folded = self.fold(before["data"] if is_known else None, [draft.entry for draft in added])
                summary = {SUMMARY: {"data": folded, "messages": count + len(added)}}
                with contextlib.suppress(InvalidValueError, PayloadTooLargeError):  # the SDK makes another one then
                    found |= check_metadata(summary) or {}
        return found

    def _title(self, state: ChatState, added: Sequence[Draft]) -> str | None:
        """The title that the chat gets: the last that was given, or its first prompt."""
        found = [(title, is_given) for title, is_given in map(title_in, added) if title is not None]
        given = [title for title, is_given in found if is_given]
        has_title = state.profile is not None and state.profile.title is not None
        return given[-1] if given else found[0][0] if found and not has_title else None


class _Writing:
    """The events of a batch, made entry by entry on the chat as it is after those before."""

    def __init__(self, state: ChatState, now: int, unique_id: str) -> None:
        self._state, self._now, self._unique_id = state, now, unique_id
        self.added: list[Draft] = []
        self._bodies: list[Body] = []
        self._run: list[Message] = []
        self._branch = ""
        self._from: str | None = None
        self._new: dict[str, Message] = {}
        self._heads: dict[str, str | None] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._active = MAIN if state.record is None else state.record.active_branch

    def has(self, message_id: str) -> bool:
        """Whether the chat has a message."""
        return message_id in self._new or self._state.has_message(message_id)

    def add(self, draft: Draft) -> None:
        """Chain an entry to where it belongs."""
        parent = self._parent(draft)
        if draft.is_turn:
            branch = self._branch_of(draft, parent)
            message = check_message(draft.message, self._now)
        else:
            branch = self._bookkeeping()
            message = check_message(msgspec.structs.replace(draft.message, reply_to=parent), self._now)
        if branch != self._branch:
            self._flush()
            self._branch, self._from = branch, self._head(branch)
        message = msgspec.structs.replace(message, parent_id=self._head(branch))
        self._run.append(message)
        self._new[message.id] = message
        self._heads[branch] = message.id
        self.added.append(draft)

    def finished(self) -> list[Body]:
        """Return the events."""
        self._flush()
        return self._bodies

    def _flush(self) -> None:
        if self._run:
            stored = self._state.branch(self._branch)
            number = self._numbers.get(self._branch, MAIN_NUMBER) if stored is None else stored.number
            self._bodies.append(MessagesAppended(tuple(self._run), number, self._from, self._run[-1].id))
        self._run, self._branch = [], ""

    def _message(self, message_id: str) -> Message | None:
        return self._new.get(message_id) or self._state.message(message_id)

    def _head(self, branch: str) -> str | None:
        if branch not in self._heads:
            stored = self._state.branch(branch)
            self._heads[branch] = None if stored is None else stored.head_message_id
        return self._heads[branch]

    def _parent(self, draft: Draft) -> str | None:
        """The turn that an entry follows: the newest where it names none, or one that is not known."""
        if "parentUuid" not in draft.entry:
            return self._head(self._active)
        uuid = draft.entry["parentUuid"]
        if uuid is None:
            return None
        found = self._message(f"{self._state.chat_id}:{uuid}")
        if found is None:
            return self._turn_of(uuid) or self._head(self._active)
        return found.reply_to if is_bookkeeping(found) else found.id

    def _turn_of(self, uuid: Any) -> str | None:
        """The message, written by something else, whose entry has a uuid; looked for near the end of the active branch."""
        at = self._head(self._active)
        for _ in range(_MOST_STEPS):
            message = None if at is None else self._message(at)
            if message is None or uuid_of(message) == uuid:
                return at
            at = message.parent_id
        return None

    def _branch_of(self, draft: Draft, parent: str | None) -> str:
        """The branch that a turn goes to, which is made if there is none."""
        head = self._head(self._active)
        if not draft.is_aside and (parent == head or self._is_parallel(draft, parent, head)):
            return self._active
        if draft.is_aside and parent == head and head is None:
            return self._active
        found = None if parent is None else self._ending_at(parent)
        if found is None or (found == self._active and draft.is_aside):
            return self._created(parent, is_active=not draft.is_aside)
        if found != self._active and not draft.is_aside:
            self._flush()
            stored = self._state.branch(found)
            if stored is not None:
                self._bodies.append(BranchActivated(stored.number, stored.name))
                self._active = found
        return found

    def _ending_at(self, message_id: str) -> str | None:
        """The branch whose head a message is."""
        stored = [] if self._state.record is None else self._state.branches_seen()
        heads = {branch.name: branch.head_message_id for branch in stored} | self._heads
        return next((name for name, head in heads.items() if head == message_id), None)

    def _created(self, head: str | None, *, is_active: bool) -> str:
        self._flush()
        name = next_name(self._active, named_after=self._named_after, is_taken=self._is_taken)
        self._create(name, head, is_active=is_active)
        if is_active:
            self._active = name
        return name

    def _bookkeeping(self) -> str:
        if not self._is_taken(BOOKKEEPING_BRANCH):
            self._flush()
            self._create(BOOKKEEPING_BRANCH, None, is_active=False)
        return BOOKKEEPING_BRANCH

    def _create(self, name: str, head: str | None, *, is_active: bool) -> None:
        number = next_branch_number(self._state) + len(self._names)
        branch_id = f"{self._unique_id}-{len(self._names)}"
        self._bodies.append(BranchCreated(number, branch_id, name, head, self._now, is_active))
        self._names.append(name)
        self._numbers[name], self._heads[name] = number, head

    def _named_after(self, base: str) -> int:
        made = sum(base in bases_of(name) for name in self._names)
        stored = int(base == MAIN) if self._state.record is None else self._state.branches_named_after(base)
        return stored + made

    def _is_taken(self, name: str) -> bool:
        if name in self._names:
            return True
        return name == MAIN if self._state.record is None else self._state.branch(name) is not None

    def _is_parallel(self, draft: Draft, parent: str | None, head: str | None) -> bool:
        """Whether only results of tools, and parts of the same answer, stand between the parent of an entry and the head."""
        if parent is None or head is None:
            return False
        above = self._message(parent)
        answers = {answer_id(draft.entry), answer_id((entry_of(above) if above else None) or {})} - {None}
        at: str | None = head
        for _ in range(_MOST_STEPS):
            if at == parent:
                return True
            message = None if at is None else self._message(at)
            entry = None if message is None else entry_of(message)
            if message is None or entry is None or not (is_result(entry) or answer_id(entry) in answers):
                return False
            at = message.parent_id
        return False
