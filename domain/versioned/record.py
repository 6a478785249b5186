"""Records of a versioned value and of its versions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from ..chat.state import StreamHead, Tombstone
from ..legal_hold import LegalHold
from .content import Content, Serial, Tree
from .events import FieldRef, Serialized

BEGINNING: Final = "00000000-0000-0000-0000-000000000000"
"""The id of no checkpoint: who names it begins with nothing, whatever the thread has."""
CHECKPOINT, METADATA = 0, 1
"""The frames of a version of a thread: LangGraph's checkpoint without its values, and its metadata."""
_NUMBER_DIGITS: Final = 12


def number_id(number: int) -> str:
    """Return the id of the version with a number, in whose order versions lie."""
    return f"{number:0{_NUMBER_DIGITS}d}"


StatusName = Literal["waits", "running", "failed", "stopped", "finished"]
STATUSES: Final[tuple[StatusName, ...]] = ("waits", "running", "failed", "stopped", "finished")
"""How a thread may stand; see `ThreadStatus`. Lists in the index have their places in this order."""


class AgentStanding(msgspec.Struct, frozen=True, array_like=True):
    """
    How an agent stands, as the index keeps it: `version_id` is its newest checkpoint, and `digest` the value that `words` are made
    of: the question, the error or the messages; b"" for none. `stored_at` is the time of that checkpoint.
    """

    status: StatusName
    node: str
    version_id: str
    stored_at: int
    since: int
    digest: bytes = b""


class VersionedRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    The part of a versioned value that changes with every event; its size does not depend on the value's. Times are in ms.

    Without an `owner` it belongs to whom its key names, or to the owner of the chat of the same id. `newest` is the id of the newest
    version of the line "", and `node`, `size_bytes` and `is_ended` are that version's. `has_plain_line` says that this line was the first
    to come, and has no rows of its own. Its messages, counted once each, are in the search index under `messages_no`.

    Of a thread, `standing` is that of its agent which waits, or else changed last; `work_ms` how long its tasks worked, and
    `is_running` whether a run of a chat on it is open.
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
    standing: AgentStanding | None = None
    work_ms: int = 0
    is_running: bool = False
    message_count: int = 0
    messages_no: int = 0
    holds: tuple[LegalHold, ...] = ()

    @property
    def hold(self) -> LegalHold | None:
        """The legal hold that keeps it; None for none."""
        return self.holds[0] if self.holds else None

    @property
    def ends_at(self) -> int | None:
        """From when on it counts as absent; None for never, as under a hold."""
        return None if self.holds else self.expires_at

    @property
    def status(self) -> StatusName:
        """How a thread stands: a question waits whatever else runs, and what runs has not failed yet."""
        stored = "stopped" if self.standing is None else self.standing.status
        return "running" if self.is_running and stored != "waits" else stored

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

    def unpruned(self, line: str) -> Iterable[VersionRecord]:
        """The newest of a line, down to where none has any content."""
        ...

    def has_content(self, digest: bytes) -> bool:
        """Whether the value has this piece, and it is sound."""
        ...

    def content(self, digest: bytes) -> Content | None:
        """A piece; of a list all elements. Raises `CorruptStateError` where it is damaged."""
        ...


def is_expired(record: VersionedRecord, moment_ms: int) -> bool:
    """Whether a value counts as absent at a moment."""
    return record.ends_at is not None and record.ends_at <= moment_ms


def digests_of(fields: Mapping[str, FieldRef]) -> dict[str, bytes]:
    return {name: ref.digest for name, ref in fields.items()}


class PutVersion(msgspec.Struct, frozen=True, kw_only=True):
    """
    A version to be stored.

    Args:
        key: Of its value, where the stream does not tell it.
        line, id: Where it goes.
        parent: The id of the version that it was made from.
        values: Of each field that changed, its value.
        unchanged: Given the parent, the other fields: None for one with the parent's value, else its own value.
        not_given: The fields whose values the writer does not have; whichever they have is right when it is put again.
        order: The order of the fields, where the writer cares.
        sizes: How many bytes values take encoded, where that is limited.
        before: The fields by which values are cut; those of the parent when None.
        frames: What only the writer understands.
        runtime: What writes it, and alone can go on from it.
        expected_latest: The newest version of the line that the writer knows of; UNSET when that does not matter.
        ttl_ms: After how many ms without another version the value expires.
    """

    id: str
    parent: str | None
    values: Mapping[str, Tree | Serial]
    line: str = ""
    key: str = ""
    unchanged: Callable[[VersionRecord | None], Mapping[str, Tree | Serial | None]] = lambda _parent: {}
    not_given: Sequence[str] = ()
    order: Sequence[str] | None = None
    sizes: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    before: Mapping[str, FieldRef] | None = None
    frames: tuple[Serialized, ...] = ()
    runtime: str = "python"
    run_id: str | None = None
    node: str | None = None
    is_final: bool = False
    expected_latest: str | msgspec.UnsetType | None = msgspec.UNSET
    ttl_ms: int | None = None


class TaskPut(NamedTuple):
    """The writes of a task to be stored, as (index, channel, value); `written_at` is when it handed them over, in ms."""

    task_id: str
    task_path: str
    written_at: int
    writes: Sequence[tuple[int, str, Tree | Serial]]
