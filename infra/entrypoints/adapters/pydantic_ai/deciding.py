"""
Decisions of a conversation store: what saving and deleting a conversation write, each in one commit.

A conversation and its forks are one chat, for they share messages. The conversation that began it has the chat's id, its record
lies in the metadata of the chat, and it goes on with the active branch. Each fork has branches of its own, and a branch of
records, whose newest message is the fork's record: so a save costs the same however many forks there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from chatledger.domain.chat.decide_chats import decide_create_chat, decide_delete_chat, decide_update_chat
from chatledger.domain.chat.decide_messages import missing_messages
from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    HeadMoved,
    MessagesAppended,
)
from chatledger.domain.chat.fork import next_name
from chatledger.domain.chat.state import ChatState, next_branch_number
from chatledger.domain.context.messages import object_at
from chatledger.domain.limits import json_copy
from chatledger.domain.values import MAIN, Branch, Message, NewMessage

KEY: Final = "pydantic-ai"
SCOPE: Final = "pydantic-ai-scope"
KIND: Final = "pydantic-ai-kind"
FORK: Final = "fork"
_PREFIX: Final = "pydantic-ai/"
_RECORD_TYPE: Final = "pydantic-ai-record"


class Changed(Exception):  # noqa: N818 - the store makes the framework's error of it
    """The stored conversation is not at the revision that the caller knows, or lies elsewhere by now."""


class Kept(NamedTuple):
    """
    A conversation as a chat has it.

    Attributes:
        record: Its record as JSON; None when something else wrote the chat.
        branch: The branch that it goes on with; None when that is gone.
        head: The message that it ends with: that of the branch, whoever moved it.
        revision: Its revision, another one when something else moved the branch since it was saved.
    """

    record: Mapping[str, Any] | None
    branch: Branch | None
    head: str | None
    revision: str

    @property
    def is_moved(self) -> bool:
        """Whether something else wrote since it was saved."""
        return self.record is None or self.record.get("head_id") != self.head


def family_of(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the id of the chat that a fork's own chat points to; None when the chat is no such pointer."""
    found = object_at(metadata, KEY).get("family")
    return found if isinstance(found, str) else None


def find_kept(state: ChatState, conversation_id: str) -> Kept | None:
    """Return a conversation of a chat; None when the chat has none of that id."""
    if state.record is None or state.profile is None:
        return None
    own = object_at(state.profile.metadata, KEY)
    if conversation_id != state.chat_id:
        stored = _newest_record(state, conversation_id)
        if stored is None:
            return None
        fields = object_at(stored.data)
        return _kept(object_at(fields, "record"), state.branch(str(fields.get("branch"))))
    active = state.branch(state.record.active_branch)
    assert active is not None, "a chat has an active branch"
    if "record" not in own:
        return None if "family" in own else Kept(None, active, active.head_message_id, _mark(active))
    return None if own["record"] is None else _kept(object_at(own, "record"), active)


def _kept(record: Mapping[str, Any], branch: Branch | None) -> Kept:
    head, revision = record.get("head_id"), str(record.get("revision"))
    if branch is None or branch.head_message_id == head:
        return Kept(record, branch, head, revision)
    return Kept(record, branch, branch.head_message_id, f"{revision}:{_mark(branch)}")


def _mark(branch: Branch) -> str:
    return f"{branch.id}:{branch.head_message_id or ''}"


class Saving(NamedTuple):
    """A record to store with new messages; the new ids are for what the commit makes."""

    conversation_id: str
    record: Mapping[str, Any]
    drafts: Sequence[NewMessage]
    expected_revision: str | None
    owner: str
    branch_id: str
    record_id: str
    record_branch_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write.

        Raises:
            Changed: The revision is another one, or the head is no message of the chat.
        """
        is_root = self.conversation_id == state.chat_id
        kept = find_kept(state, self.conversation_id)
        if (None if kept is None else kept.revision) != self.expected_revision:
            raise Changed
        if state.record is None:
            return self._begun(state, now) if is_root else _refuse()
        entries = missing_messages(state, self.drafts, now=now)
        self._check_head(state, entries)
        if is_root:
            active = state.branch(state.record.active_branch)
            assert active is not None, "a chat has an active branch"
            moved, _ = self._moved(state, active, entries, now)
            return [*moved, *self._described(state)]
        if kept is None:
            return self._forked(state, entries, now)
        prefix = prefix_of(self.conversation_id)
        current = kept.branch or _empty(state, "", f"{prefix}main", now)
        moved, name = self._moved(state, current, entries, now, is_gone=kept.branch is None)
        before = state.branch(f"{prefix}record")
        assert before is not None, "a fork has a record"
        appended = self._record_message(before.head_message_id, name, now)
        return [*moved, MessagesAppended((appended,), before.number, before.head_message_id, appended.id)]

    def _begun(self, state: ChatState, now: int) -> list[Body]:
        created = decide_create_chat(
            state, user_id=self.owner, title=None, metadata=self._metadata({}), branch_id=self.branch_id
        )
        entries = missing_messages(state, self.drafts, now=now)
        self._check_head(state, entries)
        branch = _empty(state, self.branch_id, MAIN, now)
        return [*created, *_added(entries, branch.number, branch.name, None, self.record["head_id"])]

    def _forked(self, state: ChatState, entries: Sequence[Message], now: int) -> list[Body]:
        prefix, head = prefix_of(self.conversation_id), self.record["head_id"]
        name = f"{prefix}main"
        record = self._record_message(None, name, now)
        own = object_at(None if state.profile is None else state.profile.metadata, KEY)
        counted = decide_update_chat(state, merged_metadata={KEY: {**own, "forks": own.get("forks", 0) + 1}})
        number = next_branch_number(state)
        return [
            MessagesAppended((*entries, record)),
            BranchCreated(number, self.branch_id, name, head, now),
            BranchCreated(number + 1, self.record_branch_id, f"{prefix}record", record.id, now),
            *counted,
        ]

    def _moved(
        self, state: ChatState, current: Branch, entries: Sequence[Message], now: int, *, is_gone: bool = False
    ) -> tuple[list[Body], str]:
        """The events that add the entries and let the conversation end with the head, and the name of the branch."""
        head, is_root = self.record["head_id"], self.conversation_id == state.chat_id
        base = _stored_ancestor(head, entries)
        is_ours = not is_gone and (not is_root or not current.name.startswith(_PREFIX))
        if base == current.head_message_id and is_ours:
            return _added(entries, current.number, current.name, base, head), current.name
        prefix = prefix_of(self.conversation_id)
        for other in state.branches_seen():
            is_own = not other.name.startswith(_PREFIX) if is_root else other.name.startswith(prefix)
            if other.head_message_id == base and is_own and other.name != f"{prefix}record":
                shown: list[Body] = (
                    [BranchActivated(other.number, other.name)] if is_root and not other.is_active else []
                )
                return [*shown, *_added(entries, other.number, other.name, base, head)], other.name
        name = next_name(
            MAIN if is_root and not is_ours else current.name,
            named_after=state.branches_named_after,
            is_taken=lambda name: state.branch(name) is not None,
        )
        created = BranchCreated(next_branch_number(state), self.branch_id, name, base, now, is_root)
        return [created, *_added(entries, created.number, name, base, head)], name

    def _check_head(self, state: ChatState, entries: Sequence[Message]) -> None:
        head = self.record["head_id"]
        if head is not None and head not in {entry.id for entry in entries} and not state.has_message(head):
            raise Changed

    def _described(self, state: ChatState) -> list[Body]:
        metadata = cast("dict[str, Any]", (state.profile and state.profile.metadata) or {})
        return decide_update_chat(state, metadata=self._metadata(metadata))

    def _metadata(self, before: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: value for key, value in object_at(before, KEY).items() if key == "forks"}
        rest = {key: value for key, value in before.items() if key not in {KEY, SCOPE, KIND}}
        scope = self.record.get("scope")
        return {**rest, KEY: {**own, "record": self.record}, **({} if scope is None else {SCOPE: scope})}

    def _record_message(self, parent_id: str | None, branch: str, now: int) -> Message:
        data: dict[str, Any] = {
            "id": self.record_id,
            "role": "record",
            "parts": [],
            "record": self.record,
            "branch": branch,
        }
        return Message(
            id=self.record_id,
            parent_id=parent_id,
            name="record",
            type=_RECORD_TYPE,
            data=json_copy(data, "the record of a conversation"),
            created_at=now,
        )


class Deleting(NamedTuple):
    """A conversation to delete. Its chat goes with the last conversation that it has."""

    conversation_id: str
    expected_revision: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write.

        Raises:
            Changed: There is no such conversation at that revision.
        """
        del now
        kept = find_kept(state, self.conversation_id)
        if kept is None or kept.revision != self.expected_revision:
            raise Changed
        assert state.profile is not None, "a chat with a conversation has a profile"
        own = object_at(state.profile.metadata, KEY)
        forks = int(own.get("forks", 0))
        if self.conversation_id == state.chat_id:
            if not forks:
                return decide_delete_chat(state, user_id=None)
            rest = {key: value for key, value in (state.profile.metadata or {}).items() if key != SCOPE}
            return decide_update_chat(state, metadata={**rest, KEY: {"forks": forks, "record": None}})
        if forks <= 1 and "record" in own and own["record"] is None:
            return decide_delete_chat(state, user_id=None)
        counted = decide_update_chat(state, merged_metadata={KEY: {**own, "forks": max(forks - 1, 0)}})
        return [*self._dropped(state), *counted]

    def _dropped(self, state: ChatState) -> list[Body]:
        prefix = prefix_of(self.conversation_id)
        seen = state.branches_seen()
        own = [branch for branch in seen if branch.name.startswith(prefix)]
        events: list[Body] = []
        if any(branch.is_active for branch in own):
            other = next(branch for branch in seen if not branch.name.startswith(_PREFIX))
            events.append(BranchActivated(other.number, other.name))
        return events + [BranchDeleted(branch.number, branch.name) for branch in own]


class Pointing(NamedTuple):
    """The chat of a fork, which only says in which chat its family is. It harms nobody when the fork is not made after all."""

    family: str
    scope: str | None
    owner: str
    branch_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """Return the events to write. Raises `Changed` when the chat is a conversation of its own."""
        del now
        found = {KEY: {"family": self.family}, KIND: FORK}
        metadata: dict[str, Any] = found | ({} if self.scope is None else {SCOPE: self.scope})
        if state.profile is None:
            title = f"A fork of {self.family}"[:200]
            return decide_create_chat(
                state, user_id=self.owner, title=title, metadata=metadata, branch_id=self.branch_id
            )
        if family_of(state.profile.metadata) is None:
            raise Changed
        return decide_update_chat(state, metadata=metadata)


def decide_drop_pointer(state: ChatState, now: int) -> list[Body]:
    """The tombstone of a fork's own chat; nothing when that is something else by now, or somebody wrote into it."""
    del now
    if state.profile is None or state.record is None or state.record.message_count:
        return []
    return [] if family_of(state.profile.metadata) is None else decide_delete_chat(state, user_id=None)


def prefix_of(conversation_id: str) -> str:
    """Return what the names of a fork's branches begin with."""
    return f"{_PREFIX}{conversation_id.replace('%', '%25').replace('/', '%2F')}/"


def _newest_record(state: ChatState, conversation_id: str) -> Message | None:
    branch = state.branch(f"{prefix_of(conversation_id)}record")
    head = None if branch is None else branch.head_message_id
    return None if head is None else state.message(head)


def _stored_ancestor(head: str | None, entries: Sequence[Message]) -> str | None:
    parents = {entry.id: entry.parent_id for entry in entries}
    while head in parents:
        head = parents[head]
    return head


def _added(entries: Sequence[Message], number: int, name: str, base: str | None, head: str | None) -> list[Body]:
    """The events that add entries and move a branch from `base` to the head."""
    at = base
    for entry in entries:
        if entry.parent_id != at:
            moved: list[Body] = [] if head == base else [HeadMoved(number, name, base, head)]
            return [MessagesAppended(tuple(entries)), *moved]
        at = entry.id
    if not entries:
        return []
    if at == head:
        return [MessagesAppended(tuple(entries), number, base, head)]
    rest: list[Body] = [] if head == base else [HeadMoved(number, name, base, head)]
    return [MessagesAppended(tuple(entries)), *rest]


def _empty(state: ChatState, branch_id: str, name: str, now: int) -> Branch:
    return Branch(
        id=branch_id,
        chat_id=state.chat_id,
        name=name,
        head_message_id=None,
        is_active=False,
        message_count=0,
        created_at=now,
    )


def _refuse() -> list[Body]:
    raise Changed
