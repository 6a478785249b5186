"""What is known of a stored state and of its versions."""

from typing import Protocol

import msgspec

from ..agents.content import Content
from ..state import StreamHead, Tombstone
from .events import FieldRef


class GraphStateRecord(msgspec.Struct, frozen=True, array_like=True):
    """The part of a stored state that changes with every event. Times are in ms."""

    state_id: str
    first_position: int
    first_version: int
    head: StreamHead
    created_at: int
    updated_at: int
    version: int = 0
    node: str | None = None
    size_bytes: int = 0
    expires_at: int | None = None


class VersionRecord(msgspec.Struct, frozen=True, array_like=True):
    """One version of a state, without its content."""

    version: int
    fields: dict[str, FieldRef]
    node: str | None
    parent: int | None
    stored_at: int
    is_final: bool

    @property
    def size_bytes(self) -> int:
        """How many bytes the whole state takes encoded, whatever it shares with other versions."""
        return sum(len(name.encode()) + ref.size_bytes for name, ref in self.fields.items())


class StoredGraphState(Protocol):
    """One stored state as it stood at one moment."""

    @property
    def chat_id(self) -> str:
        """The id of its stream."""
        ...

    @property
    def record(self) -> GraphStateRecord | None:
        """None when there is no such state."""
        ...

    @property
    def tombstone(self) -> Tombstone | None:
        """Its last deletion."""
        ...

    def version(self, version: int) -> VersionRecord | None:
        """A version."""
        ...

    def content(self, digest: bytes) -> Content | None:
        """A piece of any version; of a list all elements."""
        ...


def is_expired(record: GraphStateRecord, moment_ms: int) -> bool:
    """Whether a state counts as absent at a moment."""
    return record.expires_at is not None and record.expires_at <= moment_ms
