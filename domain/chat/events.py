"""
The events of a chat: what happened, as it is written on the log.

Each kind has a stable topic with a schema version. A new field goes last and has a default; a changed meaning is a new
topic, and the old class stays with a function that upgrades it. `tests/recorded/` holds bytes of every version.
"""

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ..values import MemberRole, Message
from ..wire import Times, Value, iso
from .runs import CarryOver, PlannedRun, RecordedRun


class Body(msgspec.Struct, frozen=True, array_like=True):
    """The body of an event, besides its envelope."""

    TOPIC: ClassVar[str]


class StreamDeleted(Body, frozen=True):
    """A tombstone: the `event_count` events of the stream since `first_position` are erased from the log after it."""

    first_position: int
    event_count: int


class ChatCreated(Body, frozen=True):
    """A chat began, with an empty, active branch `main`."""

    TOPIC: ClassVar[str] = "chatledger.chat_created/1"
    user_id: str
    title: str | None
    metadata: dict[str, Any] | None
    branch_id: str
    created_at: int | None = None  # given by importers; the time of the event otherwise
    expires_at: int | None = None
    updated_at: int | None = None  # given by importers; the time of the event otherwise
    branch_created_at: int | None = None  # given by importers; that of the chat otherwise


class ChatUpdated(Body, frozen=True):
    """Title, metadata or `expires_at` were replaced; `changes` holds the new values of those that were."""

    TOPIC: ClassVar[str] = "chatledger.chat_updated/1"
    changes: dict[str, Any]


class ChatDeleted(StreamDeleted, frozen=True):
    """The tombstone of a chat: how much it was. The events since `first_position` are erased from the log after it."""

    TOPIC: ClassVar[str] = "chatledger.chat_deleted/1"
    message_count: int
    branch_count: int
    checkpoint_count: int
    owner_digest: str | None = None  # by which the owner finds it, see `tombstones.py`; no name stays
    member_digests: tuple[str, ...] | None = None  # by which its members do


class MessagesAppended(Body, frozen=True):
    """
    Messages were added, parents first; with `branch`, its head moved from `from_head` to `to_head`.

    `changed_at` says when that was, where they were imported; else that is the time of the event.
    """

    TOPIC: ClassVar[str] = "chatledger.message_appended/2"
    messages: tuple[Message, ...]
    branch: str | None = None
    from_head: str | None = None
    to_head: str | None = None
    changed_at: int | None = None


class BranchCreated(Body, frozen=True):
    """A branch was made, and made the active one if `is_active`."""

    TOPIC: ClassVar[str] = "chatledger.branch_created/1"
    branch_id: str
    name: str
    head_message_id: str | None
    created_at: int
    is_active: bool = False


class BranchActivated(Body, frozen=True):
    """Another branch became the active one."""

    TOPIC: ClassVar[str] = "chatledger.branch_activated/1"
    branch_id: str
    name: str


class HeadMoved(Body, frozen=True):
    """A branch was pointed at another message, or emptied."""

    TOPIC: ClassVar[str] = "chatledger.head_moved/1"
    branch_id: str
    branch: str
    from_head: str | None
    to_head: str | None


class CheckpointSet(Body, frozen=True):
    """A checkpoint was set, or set anew."""

    TOPIC: ClassVar[str] = "chatledger.checkpoint_set/1"
    checkpoint_id: str
    name: str
    message_id: str
    created_at: int


class CheckpointDeleted(Body, frozen=True):
    """A checkpoint was removed; its message stays."""

    TOPIC: ClassVar[str] = "chatledger.checkpoint_deleted/1"
    name: str


class BranchRenamed(Body, frozen=True):
    """A branch got another name; its id, its head and whether it is active stay."""

    TOPIC: ClassVar[str] = "chatledger.branch_renamed/1"
    branch_id: str
    name: str
    new_name: str


class BranchDeleted(Body, frozen=True):
    """A branch that was not the active one was removed; its messages stay."""

    TOPIC: ClassVar[str] = "chatledger.branch_deleted/1"
    branch_id: str
    name: str


CHAT_BODIES: tuple[type[Body], ...] = (
    ChatCreated,
    ChatUpdated,
    ChatDeleted,
    MessagesAppended,
    BranchCreated,
    BranchActivated,
    HeadMoved,
    CheckpointSet,
    CheckpointDeleted,
    BranchRenamed,
    BranchDeleted,
)

B = TypeVar("B", bound=Body)


class Event(msgspec.Struct, Generic[B], frozen=True, array_like=True):
    """
    One event with its envelope.

    `originator_id` and `originator_version` (the eventsourcing library's words) are the chat and 1, 2, 3, ... in it without
    a hole. `previous_hash` is the hash of the chat's previous event. `rest` counts the events of the same commit that
    follow, so that readers never show half of one.
    """

    originator_id: str
    originator_version: int
    event_id: str
    occurred_at: int
    previous_hash: bytes
    body: B
    rest: int = 0
    actor: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    command_id: str | None = None


class Recorded(Value, frozen=True):
    """An event where it stands on the log: `position` counts over all chats, `hash` is what the next event names."""

    position: int
    event: Event[Any]
    hash: bytes

    @property
    def chat_id(self) -> str:
        """The chat it belongs to."""
        return self.event.originator_id

    @property
    def version(self) -> int:
        """1, 2, 3, ... in the chat, without a hole."""
        return self.event.originator_version

    @property
    def event_id(self) -> str:
        """A UUID."""
        return self.event.event_id

    @property
    def occurred_at(self) -> int:
        """Milliseconds since the epoch."""
        return self.event.occurred_at

    @property
    def actor(self) -> str | None:
        """The actor, as the writer named it."""
        return self.event.actor

    @property
    def topic(self) -> str:
        """The stable name of its kind and schema version, e.g. `chatledger.chat_created/1`."""
        body: Body = self.event.body
        return body.TOPIC

    @property
    def type(self) -> str:
        """The kind alone, e.g. `chat_created`."""
        return self.topic.removeprefix("chatledger.").rpartition("/")[0]

    @property
    def schema_version(self) -> int:
        """The version of the kind's schema."""
        return int(self.topic.rpartition("/")[2])

    @property
    def body(self) -> Body:
        """The body: one of the classes of `chatledger.domain.chat.events`."""
        body: Body = self.event.body
        return body

    def to_dict(self, *, times: Times = "ms") -> dict[str, Any]:
        """Return all of it as JSON values, what happened as `payload`; see `Value.to_dict`."""
        event = self.event
        return {
            "position": self.position,
            "event_id": event.event_id,
            "type": self.type,
            "schema_version": self.schema_version,
            "chat_id": event.originator_id,
            "version": event.originator_version,
            "occurred_at": iso(event.occurred_at) if times == "iso" else event.occurred_at,
            "actor": event.actor,
            "correlation_id": event.correlation_id,
            "causation_id": event.causation_id,
            "command_id": event.command_id,
            "hash": self.hash.hex(),
            "previous_hash": event.previous_hash.hex(),
            "payload": {
                field: msgspec.to_builtins(getattr(event.body, field)) for field in event.body.__struct_fields__
            },
        }


class MessagesAnnotated(Body, frozen=True):
    """Annotations of messages were changed, the same way for all; `changes` holds the new values of those that were."""

    TOPIC: ClassVar[str] = "chatledger.message_annotated/1"
    message_ids: tuple[str, ...]
    changes: dict[str, Any]


class RunRecorded(Body, frozen=True):
    """A run of an assistant became known."""

    TOPIC: ClassVar[str] = "chatledger.run_recorded/1"
    run: RecordedRun
    metadata: dict[str, Any] | None = None


class RunChanged(Body, frozen=True):
    """A run went on or ended; `changes` holds its status, and what it produced."""

    TOPIC: ClassVar[str] = "chatledger.run_changed/1"
    run_id: str
    changes: dict[str, Any]


class RegenerationBegun(Body, frozen=True):
    """
    Runs are to be repeated, because `new_message_id` takes the place of `edited_message_id`.

    `created_at` says when that was decided, where it was imported; else that is the time of the event. `carries` says which
    branch is built meanwhile, if one is.
    """

    TOPIC: ClassVar[str] = "chatledger.regeneration_begun/1"
    regeneration_id: str
    edited_message_id: str
    new_message_id: str
    runs: tuple[PlannedRun, ...]
    approved: tuple[str, ...]
    created_at: int | None = None
    carries: CarryOver | None = None


class RegenerationApproved(Body, frozen=True):
    """More runs of a regeneration may be repeated."""

    TOPIC: ClassVar[str] = "chatledger.regeneration_approved/1"
    regeneration_id: str
    run_ids: tuple[str, ...]


class MemberSet(Body, frozen=True):
    """A user became a member of the chat, or one of its members got another role."""

    TOPIC: ClassVar[str] = "chatledger.member_set/1"
    user_id: str
    role: MemberRole


class MemberRemoved(Body, frozen=True):
    """A user is no member of the chat any more."""

    TOPIC: ClassVar[str] = "chatledger.member_removed/1"
    user_id: str


MEMBER_BODIES: tuple[type[Body], ...] = (MemberSet, MemberRemoved)

RUN_BODIES: tuple[type[Body], ...] = (
    MessagesAnnotated,
    RunRecorded,
    RunChanged,
    RegenerationBegun,
    RegenerationApproved,
)
