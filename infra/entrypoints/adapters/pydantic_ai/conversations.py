"""
Conversations in a chat: what saving and deleting one does, each in one commit.

A conversation and its forks are one chat, for they share messages. The conversation that began it has the chat's id, its record
lies in the metadata of the chat, and it goes on with the active branch. Each fork has branches of its own, and a branch of
records, whose newest message is the fork's record: so a save costs the same however many forks there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from chatledger.domain.context.messages import object_at
from chatledger.domain.values import MAIN, Branch, NewMessage

from ....ledger.history import ChatState, Commit

KEY: Final = "pydantic-ai"
SCOPE: Final = "pydantic-ai-scope"
KIND: Final = "pydantic-ai-kind"
FORK: Final = "fork"
_PREFIX: Final = "pydantic-ai/"
_RECORD_TYPE: Final = "pydantic-ai-record"


class ConversationChanged(Exception):  # noqa: N818 - the store makes the framework's error of it
    """The stored conversation is not at the revision that the caller knows, or lies elsewhere by now."""


class StoredConversation(NamedTuple):
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
    family = object_at(metadata, KEY).get("family")
    return family if isinstance(family, str) else None


def find_conversation(state: ChatState, conversation_id: str) -> StoredConversation | None:
    """Return a conversation of a chat; None when the chat has none of that id."""
    if state.record is None or state.profile is None:
        return None
    own = object_at(state.profile.metadata, KEY)
    if conversation_id != state.chat_id:
        records = state.branch(f"{prefix_of(conversation_id)}record")
        head = None if records is None else records.head_message_id
        newest = None if head is None else state.message(head)
        if newest is None:
            return None
        fields = object_at(newest.data)
        return _conversation(object_at(fields, "record"), state.branch(str(fields.get("branch"))))
    active = state.branch(state.record.active_branch)
    assert active is not None, "a chat has an active branch"
    if "record" not in own:
        return None if "family" in own else StoredConversation(None, active, active.head_message_id, _mark(active))
    return None if own["record"] is None else _conversation(object_at(own, "record"), active)


def _conversation(record: Mapping[str, Any], branch: Branch | None) -> StoredConversation:
    head, revision = record.get("head_id"), str(record.get("revision"))
    if branch is None or branch.head_message_id == head:
        return StoredConversation(record, branch, head, revision)
    return StoredConversation(record, branch, branch.head_message_id, f"{revision}:{_mark(branch)}")


def _mark(branch: Branch) -> str:
    return f"{branch.id}:{branch.head_message_id or ''}"


class ConversationSave(NamedTuple):
    """A record to store with new messages."""

    conversation_id: str
    record: Mapping[str, Any]
    drafts: Sequence[NewMessage]
    expected_revision: str | None

    def save(self, commit: Commit) -> None:
        """Store them, and let the conversation end with the head of the record. `ConversationChanged` where that is no message of the chat."""
        head, is_root = self.record["head_id"], self.conversation_id == commit.state.chat_id
        stored = find_conversation(commit.state, self.conversation_id)
        if (None if stored is None else stored.revision) != self.expected_revision or not (is_root or commit.is_begun):
            raise ConversationChanged
        if head is not None and head not in {draft.id for draft in self.drafts} and not commit.has(head):
            raise ConversationChanged
        metadata = {} if commit.state.profile is None else commit.state.profile.metadata or {}
        if commit.begin(metadata=self._metadata({})):
            commit.insert(self.drafts)
            commit.move_head(head)
        elif is_root:
            self._go_on(commit, commit.state.branch(commit.active_branch))
            commit.describe(replace_metadata=self._metadata(metadata))
        elif stored is None:
            self._fork(commit, object_at(metadata, KEY))
        else:
            name = self._go_on(commit, stored.branch)
            commit.append([self._record_message(commit, name)], branch=f"{prefix_of(self.conversation_id)}record")

    def _fork(self, commit: Commit, own: Mapping[str, Any]) -> None:
        prefix = prefix_of(self.conversation_id)
        name = f"{prefix}main"
        record = self._record_message(commit, name)
        commit.insert([*self.drafts, record])
        commit.create_branch(self.record["head_id"], name=name, activate=False)
        commit.create_branch(record.id, name=f"{prefix}record", activate=False)
        commit.describe(metadata={KEY: {**own, "forks": own.get("forks", 0) + 1}})

    def _go_on(self, commit: Commit, current: Branch | None) -> str:
        """Add the messages to the branch that the conversation goes on with, which is made if there is none; returns its name."""
        base, is_root = self._base(commit), self.conversation_id == commit.state.chat_id
        prefix = prefix_of(self.conversation_id)
        is_ours = current is not None and (not is_root or not current.name.startswith(_PREFIX))
        if current is not None and is_ours and base == current.head_message_id:
            name = current.name
        else:
            others = (
                branch.name
                for branch in commit.state.branches_seen()
                if branch.head_message_id == base
                and (not branch.name.startswith(_PREFIX) if is_root else branch.name.startswith(prefix))
                and branch.name != f"{prefix}record"
            )
            after = current.name if current is not None and is_ours else MAIN if is_root else f"{prefix}main"
            name = next(others, None) or commit.create_branch(base, after=after, activate=is_root)
            if is_root:
                commit.activate(name)
        commit.insert(self.drafts)
        commit.move_head(self.record["head_id"], branch=name)
        return name

    def _base(self, commit: Commit) -> str | None:
        """The stored message that the new ones lead from."""
        parents = {draft.id: draft.parent_id for draft in self.drafts if not commit.has(str(draft.id))}
        head: str | None = self.record["head_id"]
        while head in parents:
            head = parents[head]
        return head

    def _metadata(self, before: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: value for key, value in object_at(before, KEY).items() if key == "forks"}
        rest = {key: value for key, value in before.items() if key not in {KEY, SCOPE, KIND}}
        scope = self.record.get("scope")
        return {**rest, KEY: {**own, "record": self.record}, **({} if scope is None else {SCOPE: scope})}

    def _record_message(self, commit: Commit, branch: str) -> NewMessage:
        message_id = f"{self.conversation_id}:{commit.unique_id}"
        data: dict[str, Any] = {
            "id": message_id,
            "role": "record",
            "parts": [],
            "record": self.record,
            "branch": branch,
        }
        return NewMessage("record", data, id=message_id, type=_RECORD_TYPE)


def delete(commit: Commit, conversation_id: str, expected_revision: str) -> None:
    """Delete a conversation of a revision, else raise `ConversationChanged`. Its chat goes with the last conversation that it has."""
    stored, profile = find_conversation(commit.state, conversation_id), commit.state.profile
    if profile is None or stored is None or stored.revision != expected_revision:
        raise ConversationChanged
    metadata = profile.metadata or {}
    own = object_at(metadata, KEY)
    forks = int(own.get("forks", 0))
    if conversation_id == commit.state.chat_id:
        if not forks:
            commit.delete_chat()
            return
        rest = {key: value for key, value in metadata.items() if key != SCOPE}
        commit.describe(replace_metadata={**rest, KEY: {"forks": forks, "record": None}})
    elif forks <= 1 and "record" in own and own["record"] is None:
        commit.delete_chat()
    else:
        seen = commit.state.branches_seen()
        names = [branch.name for branch in seen if branch.name.startswith(prefix_of(conversation_id))]
        if commit.active_branch in names:
            commit.activate(next(branch.name for branch in seen if not branch.name.startswith(_PREFIX)))
        for name in names:
            commit.delete_branch(name)
        commit.describe(metadata={KEY: {**own, "forks": max(forks - 1, 0)}})


def point(commit: Commit, family: str, scope: str | None) -> None:
    """Make the chat of a fork, which only says in which chat its family is. Raises `ConversationChanged` where another one is there."""
    # It harms nobody when the fork is not made after all.
    pointer = {KEY: {"family": family}, KIND: FORK}
    metadata: dict[str, Any] = pointer | ({} if scope is None else {SCOPE: scope})
    if commit.begin(title=f"A fork of {family}"[:200], metadata=metadata):
        return
    if commit.state.profile is None or family_of(commit.state.profile.metadata) is None:
        raise ConversationChanged
    commit.describe(replace_metadata=metadata)


def drop_pointer(commit: Commit) -> None:
    """Delete a fork's own chat; nothing when that is something else by now, or somebody wrote into it."""
    record, profile = commit.state.record, commit.state.profile
    if record is not None and profile is not None and not record.message_count and family_of(profile.metadata):
        commit.delete_chat()


def prefix_of(conversation_id: str) -> str:
    """Return what the names of a fork's branches begin with."""
    return f"{_PREFIX}{conversation_id.replace('%', '%25').replace('/', '%2F')}/"
