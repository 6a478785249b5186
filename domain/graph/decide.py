"""The record of a stored graph state and of its versions, and the decisions on it."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from ..chat.events import Body
from ..chat.state import StreamHead, Tombstone
from ..content import Content, Missing, Tree, tree_of
from ..errors import CorruptStateError, PayloadTooLargeError, StateConflictError
from ..thread.decide import batches_of
from .events import FieldRef, StateContentPut, StateDeleted, StatePut, shown_id
from .pieces import Encoded

K = TypeVar("K")
T = TypeVar("T")


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
    position: int = 0  # of its event; 0 where it is not known yet

    @property
    def size_bytes(self) -> int:
        """The size of the whole encoded state in bytes, whatever it shares with other versions."""
        return sum(len(name.encode()) + ref.size_bytes for name, ref in self.fields.items())


class StoredGraphState(Protocol):
    """One stored state as it stood at one moment."""

    @property
    def stream_id(self) -> str:
        """The id of its stream."""
        ...

    @property
    def record(self) -> GraphStateRecord | None:
        """None when there is no such state."""
        ...

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of its last deletion."""
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


class StateDraft(msgspec.Struct, frozen=True, kw_only=True):
    """
    A version to be stored.

    Args:
        state_id: The state.
        values: Of each field, its value; None where it is that of the parent.
        node: What wrote it.
        parent: The version that it was made from.
        basis: The position of the parent's event, where the state was computed from it: a state that was deleted and made anew
            has other versions of the same numbers. None when that does not matter.
        expected_version: The newest version that the writer knows of, 0 for none; None when that does not matter.
        ttl_ms: After how many ms without another version it expires.
        limit_bytes: How much the state may take encoded.
    """

    state_id: str
    values: dict[str, Encoded | None]
    node: str | None = None
    parent: int | None = None
    basis: int | None = None
    is_final: bool = False
    expected_version: int | None = None
    ttl_ms: int | None = None
    limit_bytes: int | None = None


def decide_put_state(state: StoredGraphState, draft: StateDraft, moment_ms: int) -> list[Body]:
    """
    The next version, with the pieces that no version has; on a state that has expired, the first one of a new life.

    Raises:
        StateConflictError: There is another newest version than was expected, or the parent is gone or another one.
        PayloadTooLargeError: The state is larger than it may be.
    """
    record, bodies = state.record, list[Body]()
    # Nothing on the log says that a state has expired: its end is written first, and the versions begin anew.
    if record is not None and is_expired(record, moment_ms):
        bodies.append(expiry_of(record))
        record = None
    newest = 0 if record is None else record.version
    if draft.expected_version not in {None, newest}:
        raise StateConflictError(shown_id(draft.state_id), expected=draft.expected_version or 0, actual=newest)
    parent = None if record is None or draft.parent is None else state.version(draft.parent)
    if draft.basis is not None and (parent is None or parent.position != draft.basis):
        raise StateConflictError(shown_id(draft.state_id), expected=draft.parent or 0, actual=newest)

    def stored(digest: bytes) -> Content | None:
        return None if record is None else _intact(state.content, digest)

    before = parent if parent is not None or record is None else _intact(state.version, newest)
    earlier = {} if before is None else {name: ref.digest for name, ref in before.fields.items()}
    trees = {
        name: tree_of(value.serial, earlier.get(name), stored)
        for name, value in draft.values.items()
        if value is not None
    }
    fields = _fields(draft, trees, parent, newest)
    version = VersionRecord(newest + 1, fields, draft.node, draft.parent, moment_ms, draft.is_final)
    if draft.limit_bytes is not None and version.size_bytes > draft.limit_bytes:
        raise PayloadTooLargeError(
            shown_id(draft.state_id), size_bytes=version.size_bytes, limit_bytes=draft.limit_bytes, what="the state"
        )
    missing = Missing(lambda digest: stored(digest) is not None, stored)
    for name, tree in trees.items():
        missing.add(tree, earlier.get(name))
    *earlier_pieces, last = batches_of(missing.found)
    put = StatePut(
        state_id=draft.state_id,
        version=version.version,
        fields=fields,
        pieces=last,
        node=draft.node,
        parent=draft.parent,
        is_final=draft.is_final,
        expires_at=None if draft.ttl_ms is None else moment_ms + draft.ttl_ms,
    )
    return [*bodies, *map(StateContentPut, earlier_pieces), put]


def _intact(read: Callable[[K], T], key: K) -> T | None:
    """The stored pieces. A damaged one counts as missing, and is stored again; nothing has grown out of a damaged version."""
    try:
        return read(key)
    except CorruptStateError:
        return None


def _fields(
    draft: StateDraft, trees: Mapping[str, Tree], parent: VersionRecord | None, newest: int
) -> dict[str, FieldRef]:
    fields: dict[str, FieldRef] = {}
    for name, value in draft.values.items():
        if value is not None:
            fields[name] = FieldRef(trees[name].digest, value.size_bytes)
        elif parent is None or name not in parent.fields:
            raise StateConflictError(shown_id(draft.state_id), expected=draft.parent or 0, actual=newest)
        else:
            fields[name] = parent.fields[name]
    return fields


def decide_delete_state(
    state: StoredGraphState, *, reason: str, before: int | None = None, expired_at: int | None = None
) -> list[Body]:
    """
    The tombstone of a state; nothing when there is none.

    Args:
        state: The state.
        reason: Why it ends.
        before: Only if its last version is from before this moment, in ms.
        expired_at: Or only if it has expired at this one.
    """
    record = state.record
    if record is None:
        return []
    if before is not None and record.updated_at < before:
        return [_tombstone(record, "too_old")]
    if expired_at is not None and is_expired(record, expired_at):
        return [expiry_of(record)]
    return [] if before is not None or expired_at is not None else [_tombstone(record, reason)]


def expiry_of(record: GraphStateRecord) -> StateDeleted:
    """Return the tombstone of a state that has expired."""
    return _tombstone(record, "expired")


def _tombstone(record: GraphStateRecord, reason: str) -> StateDeleted:
    return StateDeleted(
        first_position=record.first_position,
        event_count=record.head.version - record.first_version + 1,
        version_count=record.version,
        reason=reason,
    )
