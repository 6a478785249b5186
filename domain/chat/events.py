"""
The events of a chat: what happened, as it is written on the log.

Each kind has a stable topic with a schema version. A new field goes last and has a default; a changed meaning is a new
topic. `tests/recorded/` holds bytes of every version.
"""

from typing import Any, ClassVar

from ..values import MemberRole, Message, RedactionCause
from .recorded import Body as Body  # noqa: PLC0414 - bodies are written and folded with their envelope: one import has both
from .recorded import Event as Event  # noqa: PLC0414
from .recorded import Recorded as Recorded  # noqa: PLC0414
from .runs import CarryOver, PlannedRun, RecordedRun

HoldNote = tuple[str, str | None, str | None]
"""The id of what a legal hold is on, who put it, and why."""


def stand_in(number: int) -> str:
    """Return the name that earlier moments show for a branch whose name was erased."""
    return f"redacted-{number}"


class StreamDeleted(Body, frozen=True):
    """A tombstone: the `event_count` events of the stream since `first_position` are erased from the log after it."""

    first_position: int
    event_count: int


class ChatCreated(Body, frozen=True):
    """
    A chat began, with an empty, active branch `main`.

    The owner is None where the title or the metadata were taken away, which are in one slot with it: a later `chat_updated` says it anew.
    """

    TOPIC: ClassVar[str] = "chatledger.chat_created/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("user_id", "title", "metadata")
    user_id: str | None
    title: str | None
    metadata: dict[str, Any] | None
    branch_id: str
    created_at: int | None = None  # given by importers; the time of the event otherwise
    expires_at: int | None = None
    updated_at: int | None = None  # given by importers; the time of the event otherwise
    branch_created_at: int | None = None  # given by importers; that of the chat otherwise


class ChatUpdated(Body, frozen=True):
    """
    Title, metadata, `expires_at` or legal holds were replaced; `changes` holds the new values of those that were.

    Of holds: `holds` are the times by kind, and `hold_notes` say id, actor and reason of each. `user_id` is the owner, who is the
    same as ever: it stands there where the event that said so before loses its words.
    """

    TOPIC: ClassVar[str] = "chatledger.chat_updated/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("title", "metadata", "hold_notes", "user_id")
    changes: dict[str, Any]


class ChatDeleted(StreamDeleted, frozen=True):
    """The tombstone of a chat: how much it was. The events since `first_position` are erased from the log after it."""

    TOPIC: ClassVar[str] = "chatledger.chat_deleted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("owner_digest", "member_digests")
    message_count: int
    branch_count: int
    checkpoint_count: int
    owner_digest: str | None = None  # by which the owner finds it, see `tombstones.py`; no name stays
    member_digests: tuple[str, ...] | None = None  # by which its members do


class MessagesAppended(Body, frozen=True):
    """
    Messages were added, parents first; with `branch`, its head moved from `from_head` to `to_head`.

    `branch` is the number of a branch. Each message is a part of the event, whose sender and content are redacted by themselves.
    `changed_at` says when that was, where they were imported; else that is the time of the event.
    """

    TOPIC: ClassVar[str] = "chatledger.message_appended/2"
    messages: tuple[Message, ...]
    branch: int | None = None
    from_head: str | None = None
    to_head: str | None = None
    changed_at: int | None = None


class ContentRedacted(Body, frozen=True):
    """
    Content of earlier events of the chat was taken away: that of messages, and `text` is put in its place, or nothing. In a thread, a
    state or an item only names are.

    `targets` are versions of events, and the numbers of their slots as `RawEvent` counts them: those of the messages, and that of the
    event by which text was put in the place of one before. Their bytes are rewritten after this event.

    Or the names of a person were: then `text` is what the person is called instead, and slots that say who are among the targets.
    Messages lose their sender, unless all targets are heads: then they lose the name of who redacted them.

    Or, without messages and text, titles, metadata, annotations, notes of runs, reasons of holds, and names of branches and checkpoints were
    that others had taken the place of. How many branches are named alike is counted anew from there.
    """

    TOPIC: ClassVar[str] = "chatledger.content_redacted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("text", "reason")
    message_ids: tuple[str, ...]
    targets: tuple[tuple[int, tuple[int, ...]], ...]
    cause: RedactionCause
    text: Any = None
    reason: str | None = None

    @property
    def takes_names(self) -> bool:
        """Whether it takes names away. Content of messages is in odd slots, and who in even ones."""
        is_of_heads = not self.message_ids and self.text is not None
        return is_of_heads or any(slot % 2 == 0 for _, slots in self.targets for slot in slots)

    @property
    def takes_senders(self) -> bool:
        """Whether the names that it takes away are those of senders, among others; else of who redacted messages."""
        return self.takes_names and any(slot > 1 for _, slots in self.targets for slot in slots)


class BranchCreated(Body, frozen=True):
    """
    A branch was made, and made the active one if `is_active`.

    `number` counts the branches of the chat in the order of their creation, from 0, which is `main`. Events name branches by it. A
    name is None where it was taken away: until an event names the branch it is called `redacted-<number>`.
    """

    TOPIC: ClassVar[str] = "chatledger.branch_created/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name",)
    number: int
    branch_id: str
    name: str | None
    head_message_id: str | None
    created_at: int
    is_active: bool = False

    @property
    def shown_name(self) -> str:
        """The name, or what stands for it where it was taken away."""
        return self.name or stand_in(self.number)


class BranchActivated(Body, frozen=True):
    """Another branch became the active one."""

    TOPIC: ClassVar[str] = "chatledger.branch_activated/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name",)
    number: int
    name: str | None


class HeadMoved(Body, frozen=True):
    """A branch was pointed at another message, or emptied."""

    TOPIC: ClassVar[str] = "chatledger.head_moved/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("branch",)
    number: int
    branch: str | None
    from_head: str | None
    to_head: str | None


class CheckpointSet(Body, frozen=True):
    """A checkpoint was set, or set anew. Where its name was taken away, an event behind it removes it."""

    TOPIC: ClassVar[str] = "chatledger.checkpoint_set/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name",)
    checkpoint_id: str
    name: str | None
    message_id: str
    created_at: int


class CheckpointDeleted(Body, frozen=True):
    """A checkpoint was removed; its message stays."""

    TOPIC: ClassVar[str] = "chatledger.checkpoint_deleted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name",)
    checkpoint_id: str
    name: str | None


class BranchRenamed(Body, frozen=True):
    """
    A branch got another name; its id, its head and whether it is active stay.

    It may be the name that the branch has already: this event repeats it before the one that gave it loses its words.
    """

    TOPIC: ClassVar[str] = "chatledger.branch_renamed/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name", "new_name")
    number: int
    name: str | None
    new_name: str | None


class BranchDeleted(Body, frozen=True):
    """A branch that was not the active one was removed; its messages stay."""

    TOPIC: ClassVar[str] = "chatledger.branch_deleted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("name",)
    number: int
    name: str | None


CHAT_BODIES: tuple[type[Body], ...] = (
    ChatCreated,
    ChatUpdated,
    ChatDeleted,
    MessagesAppended,
    ContentRedacted,
    BranchCreated,
    BranchActivated,
    HeadMoved,
    CheckpointSet,
    CheckpointDeleted,
    BranchRenamed,
    BranchDeleted,
)


class MessagesAnnotated(Body, frozen=True):
    """Annotations of messages were changed, the same way for all; `changes` holds the new values of those that were."""

    TOPIC: ClassVar[str] = "chatledger.message_annotated/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("metadata",)
    message_ids: tuple[str, ...]
    changes: dict[str, Any]


class RunRecorded(Body, frozen=True):
    """A run of an assistant became known."""

    TOPIC: ClassVar[str] = "chatledger.run_recorded/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("metadata",)
    run: RecordedRun
    metadata: dict[str, Any] | None = None


class RunChanged(Body, frozen=True):
    """A run went on or ended; `changes` holds its status, and what it produced."""

    TOPIC: ClassVar[str] = "chatledger.run_changed/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("metadata",)
    run_id: str
    changes: dict[str, Any]


class RegenerationBegun(Body, frozen=True):
    """
    Runs are to be repeated, because `new_message_id` takes the place of `edited_message_id`.

    `created_at` says when that was decided, where it was imported; else that is the time of the event. `carries` says which
    branch is built meanwhile, if one is.
    """

    TOPIC: ClassVar[str] = "chatledger.regeneration_begun/2"
    regeneration_id: str
    edited_message_id: str
    new_message_id: str
    runs: tuple[PlannedRun, ...]
    approved: tuple[str, ...]
    created_at: int | None = None
    carries: CarryOver | None = None


class RegenerationApproved(Body, frozen=True):
    """More runs of a regeneration may be repeated."""

    TOPIC: ClassVar[str] = "chatledger.regeneration_approved/2"
    regeneration_id: str
    run_ids: tuple[str, ...]


class MemberSet(Body, frozen=True):
    """A user became a member of the chat, or one of its members got another role. None is who is called otherwise since."""

    TOPIC: ClassVar[str] = "chatledger.member_set/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("user_id",)
    user_id: str | None
    role: MemberRole


class MemberRemoved(Body, frozen=True):
    """A user is no member of the chat any more. None is who is called otherwise since."""

    TOPIC: ClassVar[str] = "chatledger.member_removed/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("user_id",)
    user_id: str | None


class LinkCreated(Body, frozen=True):
    """A link was made by which anybody reads the chat; `branch` is the number of the one that it shows."""

    TOPIC: ClassVar[str] = "chatledger.link_created/2"
    link_id: str
    digest: str  # SHA-256 of the secret in the link, in hex: whoever reads the log opens nothing by it
    branch: int | None = None
    until: str | None = None
    expires_at: int | None = None


class LinkRevoked(Body, frozen=True):
    """A link opens nothing any more."""

    TOPIC: ClassVar[str] = "chatledger.link_revoked/2"
    link_id: str


LINK_BODIES: tuple[type[Body], ...] = (LinkCreated, LinkRevoked)
MEMBER_BODIES: tuple[type[Body], ...] = (MemberSet, MemberRemoved)

RUN_BODIES: tuple[type[Body], ...] = (
    MessagesAnnotated,
    RunRecorded,
    RunChanged,
    RegenerationBegun,
    RegenerationApproved,
)
