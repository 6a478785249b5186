"""
The events of versioned values: threads of agents, states of graphs, and items.

As with those of chats, a topic is stable, a new field goes last and has a default, and `tests/recorded/` holds bytes of every
version.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from ..chat.events import Body, HoldNote, StreamDeleted
from .content import Piece

Serialized = tuple[str, bytes]
"""The name of a form and the bytes, as a serializer gives them."""
THINNED: Final = "retention"
"""The reason of the removal of content by a rule; it leaves the index with the last event of the commit."""
SOURCE_DELETED: Final = "source_deleted"
"""The reason of the removal behind what a copy writes anew of its own, as its source is erased."""
VersionKey = tuple[str, str]
"""A line and the id of a version in it."""


class Begins(msgspec.Struct, frozen=True, array_like=True):
    """
    What a stream begins with: the key of its value, and its owner, where the key does not name that.

    `created_at` is given by imports: when it began where it comes from, in ms; the time of the event otherwise.
    """

    key: str
    owner: str | None = None
    created_at: int | None = None


class FieldRef(msgspec.Struct, frozen=True, array_like=True):
    """The value of a field: the digest of its piece, and how many bytes the value takes encoded; 0 where nobody limits that."""

    digest: bytes
    size_bytes: int = 0


class WriteSlot(msgspec.Struct, frozen=True, array_like=True):
    """A pending write: its place in the task's writes, its channel, and the digest of its value."""

    index: int
    channel: str
    digest: bytes


class TaskWrites(msgspec.Struct, frozen=True, array_like=True):
    """
    Writes of one task. Slots from 0 on that are taken stay, those below are replaced.

    `written_at` is when the task handed them over, in ms, which may be a while before the event; 0 where nobody knows.
    """

    task_id: str
    task_path: str
    written_at: int
    slots: tuple[WriteSlot, ...]


class Skeleton(msgspec.Struct, frozen=True, array_like=True):
    """A pruned version of which later ones still need the values and writes of some channels."""

    line: str
    id: str
    channels: tuple[str, ...]


class VersionContentPut(Body, frozen=True):
    """Pieces of content came to a versioned value: those that do not fit into the event which needs them."""

    TOPIC: ClassVar[str] = "chatledger.version_content_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("pieces", "begins")
    pieces: tuple[Piece, ...]
    begins: Begins | None = None


class VersionPut(Body, frozen=True):
    """
    A version of a value: all of its fields by digest, and the pieces that no version before had.

    `line` is the sequence of versions that it belongs to, such as a namespace of a thread, in which ids grow. `parent` is the version that
    it came from. `frames` are what only the writer understands, such as a checkpoint of LangGraph without its values, and `writes` those of the
    parent which were not stored yet: the version is never there without them. From `expires_at` on, in ms, the value counts as absent.
    `stored_at` is given by imports and copies: when it was stored where it comes from, in ms; the time of the event otherwise.
    An orphan's parent was removed, and a `skeleton` has what is left of a pruned version.
    """

    TOPIC: ClassVar[str] = "chatledger.version_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("fields", "frames", "pieces", "writes", "begins")
    line: str
    id: str
    parent: str | None
    fields: dict[str, FieldRef]
    pieces: tuple[Piece, ...] = ()
    frames: tuple[Serialized, ...] = ()
    runtime: str = ""
    run_id: str | None = None
    node: str | None = None
    is_final: bool = False
    writes: tuple[TaskWrites, ...] | None = None
    expires_at: int | None = None
    stored_at: int | None = None
    begins: Begins | None = None
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None


class VersionWritesPut(Body, frozen=True):
    """The writes of tasks of a step, which the next step takes up."""

    TOPIC: ClassVar[str] = "chatledger.version_writes_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("tasks", "pieces", "begins")
    line: str
    id: str
    tasks: tuple[TaskWrites, ...]
    pieces: tuple[Piece, ...] = ()
    begins: Begins | None = None


class VersionRest(msgspec.Struct, frozen=True, array_like=True):
    """Fields and frames of a version whose events lose their content; `skeleton` names those that others need of a pruned one."""

    line: str
    id: str
    fields: dict[str, FieldRef]
    frames: tuple[Serialized, ...] = ()
    skeleton: tuple[str, ...] | None = None


class VersionsKept(Body, frozen=True):
    """
    What stays of versions whose events lose their content by a `ContentRedacted` behind this one, in the same commit.

    `begins` is what the stream begins with, where the event that said it is among those. Pieces and writes that stay came anew before.
    """

    TOPIC: ClassVar[str] = "chatledger.versions_kept/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("rests", "begins")
    rests: tuple[VersionRest, ...]
    begins: Begins | None = None


class VersionsRemoved(Body, frozen=True):
    """
    Versions and their writes were removed: whole lines, single ones, and those of which a skeleton stays.

    `orphans` stay, but do not name their parent any more. Content that nothing reaches then leaves the index.
    """

    TOPIC: ClassVar[str] = "chatledger.versions_removed/2"
    reason: str
    lines: tuple[str, ...] = ()
    versions: tuple[VersionKey, ...] = ()
    skeletons: tuple[Skeleton, ...] = ()
    orphans: tuple[VersionKey, ...] = ()


class VersionsExpirySet(Body, frozen=True):
    """
    A new end of a value, in ms: from `expires_at` on it counts as absent. None: it does not expire.

    Legal holds put that off. They are as in `ChatUpdated`, and as they were where `holds` is None.
    """

    TOPIC: ClassVar[str] = "chatledger.versions_expiry_set/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("hold_notes",)
    expires_at: int | None
    holds: dict[str, int] | None = None
    hold_notes: dict[str, HoldNote] | None = None


class VersionsCopied(Body, frozen=True):
    """
    The value took over what another one had at this point of the log: all of it, or what lies within a line.

    `lines` are those that it took over, in the order in which they came up there: they are told where the source is erased.
    """

    TOPIC: ClassVar[str] = "chatledger.versions_copied/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("begins",)
    source_key: str
    lines: tuple[str, ...]
    within: str | None = None
    begins: Begins | None = None


class VersionsDeleted(StreamDeleted, frozen=True):
    """The tombstone of a versioned value. `reason` is `deleted`, `expired`, `too_old` or `chat_deleted`."""

    TOPIC: ClassVar[str] = "chatledger.versions_deleted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("owner_digest",)
    version_count: int
    reason: str
    owner_digest: str | None = None


BeginningBody = VersionContentPut | VersionPut | VersionWritesPut | VersionsCopied
"""An event with which a stream may begin."""


def begun(bodies: Sequence[Body], begins: Begins) -> list[Body]:
    """Return events of which the first that a stream may begin with says what it begins with."""
    for number, body in enumerate(bodies):
        if isinstance(body, BeginningBody):
            first = msgspec.structs.replace(body, begins=begins)
            return [*bodies[:number], first, *bodies[number + 1 :]]
    return [*bodies]


def with_owner(body: Body, owner: str) -> Body:
    """An event with which a stream begins as that of an owner; other events as they are."""
    begins = body.begins if isinstance(body, BeginningBody) else None
    if begins is None:
        return body
    return msgspec.structs.replace(body, begins=msgspec.structs.replace(begins, owner=owner))


VERSIONED_BODIES: tuple[type[Body], ...] = (
    VersionContentPut,
    VersionPut,
    VersionWritesPut,
    VersionsKept,
    VersionsRemoved,
    VersionsExpirySet,
    VersionsCopied,
    VersionsDeleted,
)
