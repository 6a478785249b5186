"""Records of a versioned value and of its versions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from ..chat.state import StreamHead, Tombstone
from .content import Content
from .events import FieldRef, Serialized

BEGINNING: Final = "00000000-0000-0000-0000-000000000000"
"""The id of no checkpoint: who names it begins with nothing, whatever the thread has."""
CHECKPOINT, METADATA = 0, 1
"""The frames of a version of a thread: LangGraph's checkpoint without its values, and its metadata."""
_NUMBER_DIGITS: Final = 12


def number_id(number: int) -> str:
    """Return the id of the version with a number, in whose order versions lie."""
    return f"{number:0{_NUMBER_DIGITS}d}"


class VersionedRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    The part of a versioned value that changes with every event; its size does not depend on the value's. Times are in ms.

    Without an `owner` it belongs to whom its key names, or to the owner of the chat of the same id. `newest` is the id of the newest
    version of the line "", and `node`, `size_bytes` and `is_ended` are that version's. `has_plain_line` says that this line was the first
    to come, and has no rows of its own.
    """

    key: str
    first_position: int
    first_version: int
    head: StreamHead
    created_at: int
    updated_at: int
    owner: str | None = None
    version_count: int = 0
    line_count: int = 0
    has_plain_line: bool = False
    newest: str | None = None
    node: str | None = None
    size_bytes: int = 0
    is_ended: bool = False
    expires_at: int | None = None

    @property
    def version(self) -> int:
        """The number of the newest version, where versions are numbered; 0 when there is none."""
        return 0 if self.newest is None else int(self.newest)


class VersionRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    A version as it is stored, without its content: its `fields` name that by digests.

    With `skeleton` it was pruned, and is there for what later ones need of those fields. An orphan's parent was removed, or
    is a skeleton. `position` is that of its event; 0 where it is not known yet.
    """

    line: str
    id: str
    parent: str | None
    fields: dict[str, FieldRef]
    frames: tuple[Serialized, ...] = ()
    runtime: str = ""
    stored_at: int = 0
    run_id: str | None = None
    node: str | None = None
    is_final: bool = False
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None
    position: int = 0

    @property
    def version(self) -> int:
        """The number of the version, where versions are numbered."""
        return int(self.id)

    @property
    def size_bytes(self) -> int:
        """The size of the whole encoded value in bytes, whatever it shares with other versions."""
        return sum(len(name.encode()) + ref.size_bytes for name, ref in self.fields.items())

    @property
    def digests(self) -> list[bytes]:
        """The digests of the values of its fields."""
        return [ref.digest for ref in self.fields.values()]


def ancestors(record: VersionRecord, find: Callable[[str], VersionRecord | None]) -> Iterator[VersionRecord]:
    """
    The ancestors of a version, the nearest first, as far as they are there: an orphan's parent as a skeleton only.

    It ends on any parents: those that earlier code stored may lead in a circle.
    """
    seen = {record.id}
    while record.parent is not None and record.parent not in seen:
        parent = find(record.parent)
        if parent is None or (record.is_orphan and parent.skeleton is None):
            return
        seen.add(parent.id)
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


class VersionedState(Protocol):
    """One versioned value as it stood at one moment. Asking twice gives the same answer."""

    @property
    def stream_id(self) -> str:
        """The id of its stream."""
        ...

    @property
    def key(self) -> str:
        """The key that was asked for, whether or not there is such a value; "" where only a value that is there knows it."""
        ...

    @property
    def record(self) -> VersionedRecord | None:
        """None when there is no such value."""
        ...

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of its last deletion."""
        ...

    def absent(self) -> "VersionedState":
        """The same stream without its value, as it stands once the end of that is written."""
        ...

    def version(self, line: str, version_id: str) -> VersionRecord | None:
        """A version, skeletons too."""
        ...

    def is_awaited(self, line: str, version_id: str) -> bool:
        """Whether there may be versions whose parent it is, though it is not there yet."""
        ...

    def newest(self, line: str) -> VersionRecord | None:
        """The version with the greatest id that is no skeleton."""
        ...

    def writes(self, line: str, version_id: str) -> list[StoredWrite]:
        """The pending writes of a version, be it there or not, by task path, task and index."""
        ...

    def writes_of_task(self, line: str, version_id: str, task_id: str) -> list[StoredWrite]:
        """Return the writes of one task."""
        ...

    def lines(self) -> list[str]:
        """In the order in which they came up."""
        ...

    def versions(self, line: str) -> Iterable[VersionRecord]:
        """All of a line, newest first, skeletons too."""
        ...

    def has_content(self, digest: bytes) -> bool:
        """Whether the value has this piece, and it is sound."""
        ...

    def content(self, digest: bytes) -> Content | None:
        """A piece; of a list all elements. Raises `CorruptStateError` where it is damaged."""
        ...


def is_expired(record: VersionedRecord, moment_ms: int) -> bool:
    """Whether a value counts as absent at a moment."""
    return record.expires_at is not None and record.expires_at <= moment_ms


def digests_of(fields: Mapping[str, FieldRef]) -> dict[str, bytes]:
    """Return the digests of the values of fields."""
    return {name: ref.digest for name, ref in fields.items()}
