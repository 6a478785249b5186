"""
`LedgerConversationStore`: the conversation store of Pydantic AI on a ledger.

Conversations in a chat: what saving and deleting one does, each in one commit.

A conversation and its forks are one chat, for they share messages. The conversation that began it has the chat's id, its record
lies in the metadata of the chat, and it goes on with the active branch. Each fork has branches of its own, and a branch of
records, whose newest message is the fork's record: so a save costs the same however many forks there are.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage

from chatledger.domain.errors import ChatNotFoundError, InvalidValueError, OwnerMismatchError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.pydantic_ai import NAME
from chatledger.domain.forms.reading import name_of
from chatledger.domain.limits import check_id
from chatledger.domain.values import MAIN, Branch, Chat, NewMessage

from ....ledger.history import ChatState, Commit, History, MessageHistory, Told
from ....ledger.ledger import Ledger
from ..access import AdapterLedger, Closable, Source, utc

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


_RECORDS: Final = TypeAdapter(ConversationRecord)
_PAGE: Final = 100


class LedgerConversationStore(Closable, ConversationStore):
    """
    Conversations of Pydantic AI, which are chats: `await LedgerConversationStore(ledger).save(result)`.

    A conversation and its forks are one chat, whose messages they share. A save is one commit of the new messages and the record:
    of two that build on the same revision one is written, the other raises `ConversationConflict` and leaves nothing behind.
    A chat that something else wrote is a conversation too. Deleting the last conversation of a chat erases the chat; while other
    conversations share its messages, these stay. Safe for threads and tasks.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose conversations these are. None: the user of the ledger, or everybody's.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    def __init__(self, source: Source, *, user_id: str | None = None) -> None:
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerConversationStore")

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None. Source: the LMDB index."""
        return await self._ledger.run(lambda ledger: _find_record(ledger, conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """
        Return the records, or those of a scope, the last saved first.

        Source: the LMDB index. With `limit`, costs the page and the forks among the conversations asked for.
        """
        return await self._ledger.run(lambda ledger: _list_records(ledger, scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """
        Store a record and new entries in one commit.

        Raises:
            ConversationConflict: The stored revision is another one, or the head is nowhere.
            PayloadTooLargeError: A message exceeds the size limit of an event.
            InvalidValueError: Something is not JSON, an id is no id of a chat, or the head lies inside a message.
            MessageConflictError: An entry has the id of another message.
        """
        check_id(record.conversation_id, "conversation_id")
        own = {entry.id for entry in new_entries}
        for entry_id in (record.head_id, *(entry.parent_id for entry in new_entries)):
            if entry_id not in own:
                check_whole(entry_id)
        saved = _RECORDS.dump_python(record, mode="json")
        saving = ConversationSave(record.conversation_id, saved, drafts_of(new_entries), expected_revision)
        try:
            await self._ledger.run(lambda ledger: _save(ledger, saving))
        except (ConversationChanged, OwnerMismatchError, ChatNotFoundError):
            raise ConversationConflict(record.conversation_id) from None

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """
        Delete a conversation; and erase its chat, if no fork is left in it.

        Raises:
            ConversationConflict: There is none of that revision.
        """

        def call(ledger: Ledger) -> None:
            chat_id = _place_of(ledger, conversation_id)
            MessageHistory(ledger, chat_id).commit(lambda commit: delete(commit, conversation_id, expected_revision))
            if chat_id != conversation_id:
                MessageHistory(ledger, conversation_id).commit(drop_pointer)

        try:
            await self._ledger.run(call)
        except ConversationChanged:
            raise ConversationConflict(conversation_id) from None

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises `LookupError` when there is none of that id."""
        return (await self.read_history(entry_id, limit=1))[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """
        Return the entries up to a head, oldest first, or the last `limit` of them: one query, whatever the length.

        Raises:
            LookupError: There is no such entry.
        """
        if head_id is None or limit == 0:
            return []
        return await self._ledger.run(lambda ledger: _history(ledger, head_id, limit))


def _history(ledger: Ledger, head_id: str, limit: int | None) -> list[ConversationEntry]:
    part = part_number(head_id)
    message_id, behind = (head_id, 0) if part is None else part
    head = ledger.get_message(message_id)
    entries: list[ConversationEntry] | None = None
    if head is not None:
        wanted = None if limit is None else limit + behind
        history = MessageHistory(ledger, head.chat_id)
        entries = history.read(lambda read: entries_of(read.ending_with(message_id), wanted))
    if not entries or len(entries) <= behind:
        msg = f"there is no entry {head_id!r}"
        raise LookupError(msg)
    return entries[: len(entries) - behind]


def _place_of(ledger: Ledger, conversation_id: str) -> str:
    """The id of the chat that keeps a conversation: that of its family if it is a fork."""
    chat = ledger.get_chat(conversation_id)
    return (None if chat is None else family_of(chat.metadata)) or conversation_id


def _find_record(ledger: Ledger, conversation_id: str) -> ConversationRecord | None:
    history = MessageHistory(ledger, _place_of(ledger, conversation_id))
    return history.read(partial(_record_of, conversation_id))


def _record_of(conversation_id: str, history: History) -> ConversationRecord | None:
    state = history.state
    stored = find_conversation(state, conversation_id)
    if stored is None:
        return None
    if stored.record is None:
        return ConversationRecord(
            conversation_id=conversation_id,
            head_id=stored.head,
            revision=stored.revision,
            updated_at=_changed_at(state),
        )
    record = _RECORDS.validate_python(dict(stored.record))
    return _moved(state, record, stored) if stored.is_moved else record


def _moved(state: ChatState, record: ConversationRecord, stored: StoredConversation) -> ConversationRecord:
    """The record of a conversation that something else went on with since it was saved."""
    left, head = record.head_id, stored.head
    is_left = left is not None and (head is None or not state.is_ancestor(left, head))
    if is_left and left is not None:
        record.branches = [*(tip for tip in record.branches if tip not in {left, head}), left]
    else:
        record.branches = [tip for tip in record.branches if tip != head]
    record.head_id, record.revision, record.deferred_tool_requests = head, stored.revision, None
    record.updated_at = max(record.updated_at, _changed_at(state))
    return record


def _changed_at(state: ChatState) -> datetime:
    assert state.record is not None, "only a chat that is there has a conversation"
    return utc(state.record.updated_at)


def _save(ledger: Ledger, saving: ConversationSave) -> None:
    conversation_id, scope = saving.conversation_id, saving.record.get("scope")
    own = MessageHistory(ledger, conversation_id)
    chat_id = _place_of(ledger, conversation_id)
    if chat_id != conversation_id:
        shared = MessageHistory(ledger, chat_id)
        if shared.read(lambda read: find_conversation(read.state, conversation_id)) is not None:
            shared.commit(saving.save)
            pointer = ledger.get_chat(conversation_id)
            if pointer is not None and (pointer.metadata or {}).get(SCOPE) != scope:
                own.commit(lambda commit: point(commit, chat_id, scope))
            return
    family = None if saving.expected_revision is not None else _family_to_join(ledger, saving)
    if family is None or family == conversation_id:
        own.commit(saving.save)
        return
    # First the pointer, which is harmless alone; a fork that no id leads to would never be read again.
    own.commit(lambda commit: point(commit, family, scope))
    MessageHistory(ledger, family).commit(saving.save)
    if _place_of(ledger, conversation_id) != family:  # somebody began another conversation of that id meanwhile
        raise ConversationChanged


def _family_to_join(ledger: Ledger, saving: ConversationSave) -> str | None:
    """The chat of the stored messages that a new conversation goes on from; None when it shares none."""
    head = saving.record.get("head_id")
    parents: Mapping[str | None, str | None] = {draft.id: draft.parent_id for draft in saving.drafts}
    while head in parents:
        head = parents[head]
    if not isinstance(head, str):
        return None
    message = ledger.get_message(head)
    if message is None:
        raise ConversationChanged
    return message.chat_id


def _list_records(ledger: Ledger, scope: str | None, limit: int | None) -> list[ConversationRecord]:
    if limit == 0:
        return []
    wanted: dict[str, Any] = {} if scope is None else {SCOPE: scope}
    records = [
        record
        for chat in ledger.list_chats(metadata={KIND: FORK, **wanted})
        if (record := _find_record(ledger, chat.id)) is not None and scope in {None, record.scope}
    ]
    after: Chat | None = None
    while True:
        page = ledger.list_chats(metadata=wanted or None, limit=_PAGE, after=after)
        for chat in page:
            if limit is not None and len(records) >= limit:
                records = _newest(records, limit)
                # Chats come by their last changes, and no record is newer than its chat.
                if chat.updated_at < int(records[-1].updated_at.timestamp() * 1000):
                    return records
            if family_of(chat.metadata) is not None:
                continue
            record = MessageHistory(ledger, chat.id).read(partial(_record_of, chat.id))
            if record is not None and scope in {None, record.scope}:
                records.append(record)
        if len(page) < _PAGE:
            return _newest(records, limit)
        after = page[-1]


def _newest(records: list[ConversationRecord], limit: int | None) -> list[ConversationRecord]:
    return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]


# Entries: stored messages, and what is told of those that something else wrote. Several entries may be told of one message, such as
# a call, its return and an answer. The last of them has the message's id; those before it are `m7#1`, `m7#2` and so on, counted from
# the end, and nothing goes on from these.

# Theirs (`ModelMessagesTypeAdapter`) writes NaN and infinities as null.
_MESSAGES: Final[TypeAdapter[list[ModelMessage]]] = TypeAdapter(
    list[ModelMessage],
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


def drafts_of(entries: Sequence[ConversationEntry]) -> list[NewMessage]:
    """Return the messages to store for entries, under their ids and with their parents."""
    values: list[Any] = _MESSAGES.dump_python([entry.message for entry in entries], mode="json")
    return [
        NewMessage(name_of(value, NAME), value, form=NAME, id=entry.id, parent_id=entry.parent_id)
        for entry, value in zip(entries, values, strict=True)
    ]


def entries_of(history: History, limit: int | None = None) -> list[ConversationEntry]:
    """Return the entries of a history, oldest first; the last `limit` of them, all when None."""
    wanted = None if limit is None else limit + 1  # one more, which may be the parent of the first
    chain = history.chain(wanted)
    if all(message.form == NAME and message.annotation is None for message in chain):  # each stands for itself
        values, ids = [message.data for message in chain], [message.id for message in chain]
        first_parent = chain[0].parent_id if chain else None
    else:
        told = history.told(NAME, wanted)
        values, ids = [value for value, _ in told], [origin[0].base.id for _, origin in told]
        first_parent = told[0].origin[0].base.parent_id if told else None
        if len({*ids}) < len(ids) or any(len(origin) > 1 for _, origin in told):
            ids = _ids_of_parts(history, told)
    messages = _MESSAGES.validate_python(values)
    parent_ids = [first_parent, *ids[:-1]][: len(ids)]
    entries = [
        ConversationEntry(id=entry_id, parent_id=parent_id, message=message)
        for entry_id, parent_id, message in zip(ids, parent_ids, messages, strict=True)
    ]
    return entries if limit is None else entries[-limit:]


def _ids_of_parts(history: History, told: Sequence[Told]) -> list[str]:
    depths = {standing.base.id: history.state.depth(standing.base.id) for _, origin in told for standing in origin}
    ids = {depth: message_id for message_id, depth in depths.items()}
    places = [[depths[standing.base.id] for standing in origin] for _, origin in told]
    ends = list(accumulate(map(max, places), max))
    ids_backwards: list[str] = []
    following, number = history.branch.message_count, 0
    for at in range(len(told) - 1, -1, -1):
        is_same = at + 1 < len(told) and ends[at] == ends[at + 1]
        number = 0 if ends[at] < following else number + 1 if is_same else 1
        ids_backwards.append(f"{ids[ends[at]]}#{number}" if number else ids[ends[at]])
        following = min(following, *places[at])
    return ids_backwards[::-1]


def check_whole(entry_id: str | None) -> None:
    """Raise `InvalidValueError` for an entry that is but a part of a stored message."""
    if entry_id is not None and part_number(entry_id) is not None:
        msg = f"entry {entry_id!r} is in the middle of a message that was not written by Pydantic AI; go on before or after it"
        raise InvalidValueError(msg)


def part_number(entry_id: str) -> tuple[str, int] | None:
    message_id, mark, number = entry_id.rpartition("#")
    return (message_id, int(number)) if mark and message_id and number.isdecimal() and int(number) else None
