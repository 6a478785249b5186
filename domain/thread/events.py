"""
The events of a thread: what its agents keep on the log.

As with those of chats, a topic is stable, a new field goes last and has a default, and `tests/recorded/` holds bytes of every
version. The `owner` of the event with which a thread begins is the thread's; later ones say nothing new.
"""

from typing import ClassVar, Final

import msgspec

from ..chat.events import Body, StreamDeleted
from ..content import Piece
from ..errors import InvalidValueError
from ..graph.events import STATE_PREFIX
from ..limits import check_id

THREAD_PREFIX: Final = "chatledger:thread:"
"""A thread has a stream beside that of the chat of the same id. No chat id begins with this."""


def thread_stream(thread_id: str) -> str:
    """The stream of a thread."""
    return THREAD_PREFIX + check_id(thread_id, "thread_id")


def check_chat_id(chat_id: str) -> str:
    """An id that a new chat may have."""
    check_id(chat_id, "chat_id")
    if chat_id.startswith((THREAD_PREFIX, STATE_PREFIX)):
        msg = f"chat_id must not begin with {THREAD_PREFIX!r} or {STATE_PREFIX!r}, which are kept for agents"
        raise InvalidValueError(msg)
    return chat_id


Serialized = tuple[str, bytes]
"""The name of a form and the bytes, as a serializer gives them."""
CheckpointKey = tuple[str, str]
"""A namespace and a checkpoint id."""


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
    """A pruned checkpoint of which later ones still need the values and writes of some channels."""

    namespace: str
    checkpoint_id: str
    channels: tuple[str, ...]


class AgentContentPut(Body, frozen=True):
    """Pieces of content came to a thread: those that do not fit into the event which needs them."""

    TOPIC: ClassVar[str] = "chatledger.agent_content_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("pieces", "owner")
    pieces: tuple[Piece, ...]
    owner: str | None = None


class AgentCheckpointPut(Body, frozen=True):
    """
    The state of an agent after a step.

    `channels` names each channel's value by its digest, and `pieces` are those that the thread did not have. `stored_at` is given
    by imports and copies: when it was stored where it comes from, in ms; the time of the event otherwise. `writes` are those of the
    parent which were not stored yet: the checkpoint is never there without them.
    """

    TOPIC: ClassVar[str] = "chatledger.agent_checkpoint_put/3"
    CONTENT: ClassVar[tuple[str, ...]] = ("checkpoint", "metadata", "channels", "pieces", "owner", "writes")
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Serialized
    metadata: Serialized
    channels: dict[str, bytes]
    pieces: tuple[Piece, ...]
    runtime: str
    run_id: str | None = None
    owner: str | None = None
    stored_at: int | None = None
    writes: tuple[TaskWrites, ...] | None = None


class AgentWritesPut(Body, frozen=True):
    """The writes of tasks of a step, which the next step takes up."""

    TOPIC: ClassVar[str] = "chatledger.agent_writes_put/3"
    CONTENT: ClassVar[tuple[str, ...]] = ("tasks", "pieces", "owner")
    namespace: str
    checkpoint_id: str
    tasks: tuple[TaskWrites, ...]
    pieces: tuple[Piece, ...]
    owner: str | None = None


class AgentCheckpointsDeleted(Body, frozen=True):
    """
    Checkpoints and their writes were removed: whole namespaces, single ones, and those of which a skeleton stays.

    `orphans` stay, but do not name their parent any more.
    """

    TOPIC: ClassVar[str] = "chatledger.agent_checkpoints_deleted/2"
    reason: str
    namespaces: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointKey, ...] = ()
    skeletons: tuple[Skeleton, ...] = ()
    orphans: tuple[CheckpointKey, ...] = ()


class AgentThreadCopied(Body, frozen=True):
    """The thread took over what another one had at this point of the log: all of it, or what lies within a namespace."""

    TOPIC: ClassVar[str] = "chatledger.agent_thread_copied/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("owner",)
    source_thread_id: str
    within: str | None = None
    owner: str | None = None


class AgentThreadDeleted(StreamDeleted, frozen=True):
    """The tombstone of a thread."""

    TOPIC: ClassVar[str] = "chatledger.agent_thread_deleted/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("owner_digest",)
    checkpoint_count: int = 0
    owner_digest: str | None = None


def with_owner(body: Body, owner: str) -> Body:
    """An event with which a thread may begin, as that of an owner; other events as they are."""
    if isinstance(body, AgentContentPut | AgentCheckpointPut | AgentWritesPut | AgentThreadCopied):
        return msgspec.structs.replace(body, owner=owner)
    return body


AGENT_BODIES: tuple[type[Body], ...] = (
    AgentContentPut,
    AgentCheckpointPut,
    AgentWritesPut,
    AgentCheckpointsDeleted,
    AgentThreadCopied,
    AgentThreadDeleted,
)
