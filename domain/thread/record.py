"""Records of a thread and of its checkpoints."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from ..chat.state import StreamHead, Tombstone
from ..content import Content
from .events import Serialized

BEGINNING: Final = "00000000-0000-0000-0000-000000000000"
"""The id of no checkpoint: who names it begins with nothing, whatever the thread has."""


class ThreadRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    The part of a thread that changes with every event; its size does not depend on the thread's.

    Without an `owner` it belongs to who owns the chat of the same id.
    """

    thread_id: str
    first_position: int
    first_version: int
    head: StreamHead
    created_at: int
    updated_at: int
    owner: str | None = None
    checkpoint_count: int = 0
    namespace_count: int = 0


class CheckpointRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    A checkpoint as it is stored. `channels` has the digest of each channel's value.

    With `skeleton` it was pruned, and is there for what later ones need of those channels. An orphan's parent was removed, or
    is a skeleton.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Serialized
    metadata: Serialized
    channels: dict[str, bytes]
    runtime: str
    stored_at: int
    run_id: str | None = None
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None


def ancestors(record: CheckpointRecord, find: Callable[[str], CheckpointRecord | None]) -> Iterator[CheckpointRecord]:
    """
    The ancestors of a checkpoint, the nearest first, as far as they are there: an orphan's parent as a skeleton only.

    It ends on any parents: those that earlier versions stored may lead in a circle.
    """
    seen = {record.checkpoint_id}
    while record.parent_id is not None and record.parent_id not in seen:
        parent = find(record.parent_id)
        if parent is None or (record.is_orphan and parent.skeleton is None):
            return
        seen.add(parent.checkpoint_id)
        yield parent
        record = parent


class StoredWrite(msgspec.Struct, frozen=True, array_like=True):
    """A pending write in its slot, which is the task and the index. For `written_at` see `TaskWrites`."""

    task_id: str
    index: int
    task_path: str
    channel: str
    digest: bytes
    written_at: int = 0


class ThreadState(Protocol):
    """One thread as it stood at one moment. Asking twice gives the same answer."""

    @property
    def stream_id(self) -> str:
        """The id of its stream."""
        ...

    @property
    def thread_id(self) -> str:
        """The id that was asked for, whether or not there is such a thread."""
        ...

    @property
    def record(self) -> ThreadRecord | None:
        """None when there is no such thread."""
        ...

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of its last deletion."""
        ...

    def checkpoint(self, namespace: str, checkpoint_id: str) -> CheckpointRecord | None:
        """A checkpoint, skeletons too."""
        ...

    def is_awaited(self, namespace: str, checkpoint_id: str) -> bool:
        """Whether there may be checkpoints whose parent it is, though it is not there yet."""
        ...

    def latest(self, namespace: str) -> CheckpointRecord | None:
        """The checkpoint with the greatest id."""
        ...

    def writes(self, namespace: str, checkpoint_id: str) -> list[StoredWrite]:
        """The pending writes of a checkpoint, be it there or not, by task path, task and index."""
        ...

    def writes_of_task(self, namespace: str, checkpoint_id: str, task_id: str) -> list[StoredWrite]:
        """Return the writes of one task."""
        ...

    def namespaces(self) -> list[str]:
        """In the order in which they came up."""
        ...

    def checkpoints(self, namespace: str) -> Iterable[CheckpointRecord]:
        """All of a namespace, newest first, skeletons too."""
        ...

    def has_content(self, digest: bytes) -> bool:
        """Whether the thread has this piece."""
        ...

    def content(self, digest: bytes) -> Content | None:
        """A piece; of a list all elements."""
        ...
