"""Chats replayed from their events in memory: the plain way to read a log, and a check of the index."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import islice
from typing import Self, TypeVar

import msgspec

from ..errors import ChainIntegrityError, MessageNotFoundError
from ..values import Annotation, Branch, Chat, Checkpoint, Member, Message
from .events import ContentRedacted, Recorded
from .fork import bases_of
from .members import role_in
from .runs import MessageRun, RegenerationRecord
from .state import (
    BranchRecord,
    ChatChanges,
    ChatProfile,
    ChatRecord,
    ChatState,
    Role,
    Tombstone,
    by_seen,
    describe_chat,
    evolve,
)

V = TypeVar("V")


class _Recalled(MutableMapping[str, V]):
    """Values by keys, of which those that were not set are asked for."""

    def __init__(self, ask: Callable[[str], V | None]) -> None:
        self._ask = ask
        self._known: dict[str, V | None] = {}

    def __getitem__(self, key: str) -> V:
        if key not in self._known:
            self._known[key] = self._ask(key)
        value = self._known[key]
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: V) -> None:
        self._known[key] = value

    def __delitem__(self, key: str) -> None:
        self._known[key] = None

    def __iter__(self) -> Iterator[str]:
        return (key for key, value in self._known.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ReplayedChat:
    """
    The state of one chat after the events applied so far; a `ChatState`.

    Example:
        chat = ReplayedChat("trip")
        for recorded in ledger.history("trip"):
            chat.apply(recorded)
    """

    def __init__(self, chat_id: str, events: Iterable[Recorded] = ()) -> None:
        self.chat_id = chat_id
        self.record: ChatRecord | None = None
        self.profile: ChatProfile | None = None
        self.tombstone: Tombstone | None = None
        self._branches: MutableMapping[str, BranchRecord] = {}
        self._names: Counter[str] = Counter()
        self._renamed: set[str] = set()
        self._checkpoints: MutableMapping[str, Checkpoint] = {}
        self._members: dict[str, Member] = {}
        self._messages: MutableMapping[str, Message] = {}
        self._depths: MutableMapping[str, int] = {}
        self._runs: MutableMapping[str, MessageRun] = {}
        self._regenerations: MutableMapping[str, RegenerationRecord] = {}
        for recorded in events:
            self.apply(recorded)

    @classmethod
    def after(cls, state: ChatState) -> Self:
        """Return a chat to which further events are applied; it asks `state` for what is older, one by one, and lists only what it asked for."""
        chat = cls(state.chat_id)
        chat.record, chat.profile, chat.tombstone = state.record, state.profile, state.tombstone
        records = (state.branch_record(branch.name) for branch in state.branches_seen())
        chat._branches = {record.name: record for record in records if record is not None}
        chat._members = {member.user_id: member for member in state.members()}
        chat._checkpoints = _Recalled(state.checkpoint)

        def message(message_id: str) -> Message | None:
            stored = state.message(message_id)
            return None if stored is None else msgspec.structs.replace(stored, annotation=state.annotation(message_id))

        chat._messages = _Recalled(message)
        chat._depths = _Recalled(lambda message_id: state.depth(message_id) if state.has_message(message_id) else None)
        chat._runs, chat._regenerations = _Recalled(state.run), _Recalled(state.regeneration)
        return chat

    @property
    def stream_id(self) -> str:
        return self.chat_id

    def apply(self, recorded: Recorded) -> ChatChanges:
        """Take the next event in. Raises `ChainIntegrityError` when it does not follow."""
        changes = evolve(self, recorded)
        self._check(changes, recorded)
        if changes.record is None:
            self._branches, self._checkpoints, self._messages, self._depths = {}, {}, {}, {}
            self._names.clear()
            self._renamed.clear()
            self._members.clear()
            self._runs, self._regenerations = {}, {}
            self.profile = None
        self.record = changes.record
        self.profile = changes.profile or self.profile
        self.tombstone = changes.tombstone or self.tombstone
        for message in changes.messages:
            self._messages[message.id] = msgspec.structs.replace(message, chat_id=self.chat_id)
            self._depths[message.id] = 0 if message.parent_id is None else self._depths[message.parent_id] + 1
        self._messages.update({message.id: message for message in changes.redacted})
        if isinstance(recorded.body, ContentRedacted) and recorded.body.takes_senders:
            self._renamed.update(recorded.body.message_ids)
        if changes.dropped_branch is not None:
            del self._branches[changes.dropped_branch]
        if changes.branch is not None:
            self._branches[changes.branch.name] = changes.branch
            self._names.update(bases_of(changes.branch.name) if changes.is_new_name else ())
        if changes.recounts_names:
            self._names = Counter(base for name in self._branches for base in bases_of(name))
        if changes.checkpoint is not None:
            self._checkpoints[changes.checkpoint.name] = changes.checkpoint
        if changes.dropped_checkpoint is not None:
            del self._checkpoints[changes.dropped_checkpoint]
        if changes.member is not None:
            self._members[changes.member.user_id] = changes.member
        if changes.dropped_member is not None:
            del self._members[changes.dropped_member]
        if changes.runs is not None:
            for message_id, annotation in changes.runs.annotations:
                message = self._messages[message_id]
                self._messages[message_id] = msgspec.structs.replace(message, annotation=annotation)
            if changes.runs.run is not None:
                run = msgspec.structs.replace(changes.runs.run, chat_id=self.chat_id)
                self._runs[run.run_id] = run
            if changes.runs.regeneration is not None:
                self._regenerations[changes.runs.regeneration.id] = changes.runs.regeneration
        return changes

    def _check(self, changes: ChatChanges, recorded: Recorded) -> None:
        """Refuse changes that point at messages which the chat does not have, before anything of them is applied."""
        added: set[str] = set()
        targets = [
            None if changes.branch is None else changes.branch.head_message_id,
            None if changes.checkpoint is None else changes.checkpoint.message_id,
        ]
        for message in changes.messages:
            if message.id in self._messages or message.id in added:
                raise self._damage(recorded, f"adds message {message.id!r} a second time")
            if message.parent_id is not None and not (
                message.parent_id in self._messages or message.parent_id in added
            ):
                raise self._damage(recorded, f"names the parent {message.parent_id!r}, which the chat does not have")
            for merged in message.merged_from:
                if merged not in self._messages and merged not in added:
                    raise self._damage(recorded, f"merges message {merged!r}, which the chat does not have")
            added.add(message.id)
        for target in targets:
            if target is not None and target not in self._messages and target not in added:
                raise self._damage(recorded, f"names message {target!r}, which the chat does not have")

    def _damage(self, recorded: Recorded, what: str) -> ChainIntegrityError:
        msg = f"the event at position {recorded.position} of chat {self.chat_id!r} {what}"
        return ChainIntegrityError(msg, chat_id=self.chat_id, position=recorded.position)

    @property
    def chat(self) -> Chat | None:
        """The chat itself, or None before its creation and after its deletion."""
        if self.record is None:
            return None
        head = self._branches[self.record.active_branch].head_message_id
        return describe_chat(self.record, self.profile, None if head is None else self._messages[head].line)

    @property
    def messages(self) -> list[Message]:
        """All messages on all branches, in log order."""
        return list(self._messages.values())

    @property
    def branches(self) -> list[Branch]:
        """By `created_at`, ties by name."""
        return sorted(
            (branch for name in self._branches if (branch := self.branch(name))), key=lambda b: (b.created_at, b.name)
        )

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """By `created_at`, newest first, ties by name."""
        return sorted(self._checkpoints.values(), key=lambda c: (-c.created_at, c.name))

    def branch_record(self, name: str) -> BranchRecord | None:
        """The branch of that name as it is kept."""
        return self._branches.get(name)

    def numbered_branch(self, number: int) -> BranchRecord | None:
        """The branch of that number as it is kept."""
        return next((branch for branch in self._branches.values() if branch.number == number), None)

    def branches_seen(self) -> list[Branch]:
        """All branches, the one seen last first; those that were never active last, the newest of them first."""
        return [branch for record in by_seen(self._branches.values()) if (branch := self.branch(record.name))]

    def branch(self, name: str) -> Branch | None:
        record = self._branches.get(name)
        if record is None or self.record is None:
            return None
        head = record.head_message_id
        return Branch(
            id=record.id,
            chat_id=self.chat_id,
            name=record.name,
            head_message_id=head,
            is_active=record.name == self.record.active_branch,
            message_count=0 if head is None else self._depths[head] + 1,
            created_at=record.created_at,
            number=record.number,
        )

    def checkpoint(self, name: str) -> Checkpoint | None:
        return self._checkpoints.get(name)

    def role_of(self, user_id: str) -> Role | None:
        return role_in(self.profile, self.member(user_id), user_id)

    def member(self, user_id: str) -> Member | None:
        return self._members.get(user_id)

    def members(self) -> list[Member]:
        """All members, those first that were added first, ties by name."""
        return sorted(self._members.values(), key=lambda member: (member.added_at, member.user_id))

    def message(self, message_id: str) -> Message | None:
        return self._messages.get(message_id)

    def has_pseudonym(self, message_id: str) -> bool:
        """Whether the sender of a message is called otherwise than when it was said."""
        return message_id in self._renamed

    def has_message(self, message_id: str) -> bool:
        return message_id in self._messages

    def annotation(self, message_id: str) -> Annotation | None:
        message = self._messages.get(message_id)
        return None if message is None else message.annotation

    def run(self, run_id: str) -> MessageRun | None:
        return self._runs.get(run_id)

    def runs(
        self,
        *,
        regeneration_id: str | None = None,
        message_id: str | None = None,
        trigger_message_id: str | None = None,
    ) -> list[MessageRun]:
        """The runs in the order in which they were recorded: all, or those of one regeneration, answer or trigger."""
        return [
            run
            for run in self._runs.values()
            if regeneration_id in {None, run.regeneration_id}
            and message_id in {None, run.message_id}
            and trigger_message_id in {None, run.trigger_message_id}
        ]

    def regeneration(self, regeneration_id: str) -> RegenerationRecord | None:
        return self._regenerations.get(regeneration_id)

    def look_up(self, message_ids: Iterable[str]) -> None:
        """Do nothing: all messages are at hand."""

    def is_elsewhere(self, message_id: str) -> bool:
        """Always false: only this chat is known here."""
        del message_id
        return False

    def is_ancestor(self, message_id: str, descendant_id: str) -> bool:
        """Whether the chain of `descendant_id` contains `message_id`."""
        return any(message.id == message_id for message in self._upwards(descendant_id))

    def all_messages(self) -> list[Message]:
        """All messages on all branches, in log order."""
        return self.messages

    def chain(self, head_message_id: str, limit: int | None = None) -> list[Message]:
        """The chain of a message, oldest first; the last `limit` messages of it, all when None."""
        return list(islice(self._upwards(head_message_id), limit))[::-1]

    def depth(self, message_id: str) -> int:
        return self._depths[message_id]

    def ancestor(self, message_id: str, depth: int) -> str:
        return next(message.id for message in self._upwards(message_id) if self._depths[message.id] == depth)

    def merge_base(self, a: str, b: str, *, is_on_chain: bool = False) -> str | None:
        """The newest message that is `a` or comes before it, and is `b` or comes before it; of the chain of `a` on request."""
        before_a = {message.id for message in self._upwards(a)} if is_on_chain else self._all_before(a)
        shared = before_a & self._all_before(b)
        return next((message_id for message_id in reversed([*self._messages]) if message_id in shared), None)

    def _all_before(self, message_id: str) -> set[str]:
        """A message and all before it, on the chains of what was merged too."""
        before: set[str] = set()
        heads = [message_id]
        while heads:
            for message in self._upwards(heads.pop()):
                if message.id in before:
                    break
                before.add(message.id)
                heads += message.merged_from
        return before

    def newest_leaf(self, message_id: str) -> str:
        """The message at which one arrives from a message of this chat by going on to the newest child each time."""
        newest = {message.parent_id: message.id for message in self._messages.values()}
        while message_id in newest:
            message_id = newest[message_id]
        return message_id

    def branches_named_after(self, base: str) -> int:
        """The number of branches named `base` or starting with `<base>-v`, with those renamed or deleted since."""
        return self._names[base]

    def get_chain(self, head_message_id: str) -> list[Message]:
        """The messages from the root to `head_message_id`, oldest first."""
        if head_message_id not in self._messages:
            raise MessageNotFoundError(head_message_id, chat_id=self.chat_id)
        return list(self._upwards(head_message_id))[::-1]

    def _upwards(self, message_id: str) -> Iterator[Message]:
        at: str | None = message_id
        while at is not None:
            message = self._messages[at]
            yield message
            at = message.parent_id
