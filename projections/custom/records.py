"""Records of custom projections: where their rows are, their positions, and whether they failed or lag behind a deletion."""

import contextvars
import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmdb
import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count, check_id

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from .rows import ProjectionRows, Reach, stream_digest

if TYPE_CHECKING:
    from collections.abc import Iterator


RESERVED_NAMES: Final = frozenset({"search"})
"""Parts of the index that are there without it."""
_MAX_NAME_BYTES: Final = 200


class Projection(ABC):
    """
    Answers of your own, kept up to date with the log: derive a class, and give it to `chatledger.open(projections=[...])`.

    `name` says what it is, `version` counts its meanings: raise it when `apply` changes, and the rows are built anew from the
    log.
    """

    name: str
    version: int = 1

    @abstractmethod
    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        """
        Take one event in. Called for every event, in the order of the log, and applied exactly once.

        What it does must follow from the rows and the event alone: no clock, no randomness, no ledger, nothing kept in the
        object. It may be called again for an event of which nothing was kept.

        Rows under a chat, `rows.of(recorded.chat_id)`, go when the chat is deleted, after the `ChatDeleted` event was applied.
        What is kept elsewhere of a chat has to be removed at that event: once a chat is deleted, a rebuild sees nothing of it
        but the tombstone.
        """


def check_projection(projection: Any) -> Projection:
    """The projection, if it can be used. Raises `InvalidValueError`."""
    if isinstance(projection, type) or not isinstance(projection, Projection):
        what = projection.__name__ if isinstance(projection, type) else type(projection).__name__
        msg = f"projections holds instances of classes derived from chatledger.Projection, not {what}"
        raise InvalidValueError(msg)
    kind = type(projection).__name__
    name = check_id(getattr(projection, "name", None), f"the name of projection {kind}")
    if len(name.encode()) > _MAX_NAME_BYTES or name in RESERVED_NAMES:
        msg = (
            f"the name of projection {kind} is taken by the index, or longer than {_MAX_NAME_BYTES} bytes: {name!r:.80}"
        )
        raise InvalidValueError(msg)
    check_count(projection.version, f"the version of projection {name!r}")
    return projection


SERVING: Final = b"custom:serving:"
"""The rows that are read."""
BUILDING: Final = b"custom:building:"
"""The rows that will replace them."""
_LAST_NUMBER: Final = b"custom:number"
_TOMBSTONE: Final = number(0)  # no projection has this number


class ProjectionRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    One set of rows of a projection.

    Everything up to `position` is in them. `dirty_until` is the position of a tombstone that they lag behind although they may
    have something of what it deleted; 0 when there is none. A projection that failed at `error_position` stays as it is.
    """

    name: str
    version: int
    number: int
    position: int = 0
    dirty_until: int = 0
    error: str | None = None
    error_position: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ProjectionRecord).decode


def load_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> ProjectionRecord | None:
    raw = txn.get(slot + id_key(name), db=tables.meta)
    return None if raw is None else _decode(raw)


def save_record(txn: Transaction, tables: Tables, slot: bytes, record: ProjectionRecord) -> None:
    txn.put(slot + id_key(record.name), _encode(record), db=tables.meta)


def load_records(txn: Transaction, tables: Tables) -> list[tuple[bytes, ProjectionRecord]]:
    return [(slot, _decode(raw)) for slot in (SERVING, BUILDING) for _, raw in prefixed(txn, tables.meta, slot)]


def new_record(txn: Transaction, tables: Tables, name: str, version: int) -> ProjectionRecord:
    """A record with a number that no rows have; not saved yet."""
    last = to_number(txn.get(_LAST_NUMBER, default=number(0), db=tables.meta))
    txn.put(_LAST_NUMBER, number(last + 1), db=tables.meta)
    return ProjectionRecord(name, version, last + 1)


def drop_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> bool:
    """Remove a record with its rows; False when there is none."""
    record = load_record(txn, tables, slot, name)
    if record is None:
        return False
    drop_rows(txn, tables, record)
    forget_record(txn, tables, slot, name)
    return True


def forget_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> None:
    """Remove a record, and leave its rows."""
    txn.delete(slot + id_key(name), db=tables.meta)


def drop_rows(txn: Transaction, tables: Tables, record: ProjectionRecord) -> None:
    drop_prefixed(txn, tables.custom, number(record.number))


def note_tombstone(txn: Transaction, tables: Tables, tombstone: Recorded) -> None:
    """
    Remember a deletion.

    Projections that are built later, or lag, pass over what was before it: part of it may be erased from the log already.
    """
    txn.put(_TOMBSTONE + stream_digest(tombstone.chat_id), number(tombstone.position), db=tables.custom)


def is_deleted(txn: Transaction, tables: Tables, recorded: Recorded) -> bool:
    """Whether the stream of an event was deleted after it."""
    raw = txn.get(_TOMBSTONE + stream_digest(recorded.chat_id), db=tables.custom)
    return raw is not None and recorded.position < to_number(raw) and not isinstance(recorded.body, StreamDeleted)


_logger = logging.getLogger(__name__)
ALL_STORES: Final = 0
barred: Final[contextvars.ContextVar[tuple[int, ...]]] = contextvars.ContextVar("chatledger_barred", default=())
"""The stores that cannot be used here, by the id of their projections; `ALL_STORES` inside of `Projection.apply`."""


class Entry:
    """A projection, and whether it served this process already; then another version in its place has replaced it."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.name, self.version = projection.name, projection.version
        self.has_served = False
        self.is_replaced = False


class Attached:
    """The projections that are attached to an index in this process. May change while events are applied."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, projection: Projection) -> Entry:
        """Attach a projection in place of one with that name."""
        entry = Entry(projection)
        self._entries = {**self._entries, entry.name: entry}
        return entry

    def remove(self, name: str) -> None:
        self._entries = {key: entry for key, entry in self._entries.items() if key != name}

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def __iter__(self) -> "Iterator[Entry]":
        return iter(self._entries.values())

    def follow(self, txn: Transaction, tables: Tables, events: Sequence[Recorded], *, before: int, after: int) -> None:
        """
        Apply the events that took the index from position `before` to `after`, in the transaction that did it.

        Projections that are not in step, or not attached here, are left as they are. They catch up later.
        """
        in_step: set[int] = set()
        for entry in self._entries.values():
            record = load_record(txn, tables, SERVING, entry.name)
            if record is None and not before and not entry.is_replaced:
                record = new_record(txn, tables, entry.name, entry.version)
            if record is None or record.version != entry.version or record.error or record.position != before:
                continue
            record = apply_events(txn, tables, entry.projection, record, events)
            if not record.error:
                record = msgspec.structs.replace(record, position=after)
                in_step.add(record.number)
            save_record(txn, tables, SERVING, record)
        for recorded in events:
            body = recorded.event.body
            if isinstance(body, StreamDeleted):
                note_tombstone(txn, tables, recorded)
                _note_dirty(txn, tables, recorded, body, in_step)


def _note_dirty(txn: Transaction, tables: Tables, tombstone: Recorded, body: StreamDeleted, in_step: set[int]) -> None:
    for slot, record in load_records(txn, tables):
        if record.number not in in_step and record.position >= body.first_position:
            save_record(txn, tables, slot, msgspec.structs.replace(record, dirty_until=tombstone.position))


def apply_events(
    txn: Transaction, tables: Tables, projection: Projection, record: ProjectionRecord, events: Sequence[Recorded]
) -> ProjectionRecord:
    """
    Apply events to the rows of a projection. Returns its record, which is only to be saved.

    An error of the projection is noted in the record, with the event; what came before it stays.

    Raises:
        lmdb.Error: The index cannot be written.
    """
    reach = Reach(txn, tables.custom, lambda: None)
    try:
        for recorded in events:
            rows = ProjectionRows(reach, record.number, position=recorded.position)
            error = _apply(projection, rows, recorded)
            if reach.failure is not None:
                raise reach.failure
            if error is not None:
                reach.undo()
                return msgspec.structs.replace(
                    record, position=recorded.position - 1, error=error, error_position=recorded.position
                )
            if isinstance(recorded.body, StreamDeleted):
                rows.drop_stream(recorded.chat_id)
            reach.changes.clear()
    finally:
        reach.end()
    return record


def _apply(projection: Projection, rows: ProjectionRows, recorded: Recorded) -> str | None:
    """Apply one event; returns what went wrong."""
    token = barred.set((*barred.get(), ALL_STORES))
    try:
        projection.apply(rows, recorded)
    except lmdb.Error:
        raise
    except Exception as error:
        _logger.warning("projection %r failed at position %d", projection.name, recorded.position, exc_info=error)
        # The kind of an error and where it was raised. Its text may hold what is deleted one day.
        frames = traceback.extract_tb(error.__traceback__)
        begin = frames[min(1, len(frames) - 1)]  # the first is that of this module
        last = [frame for frame in frames if frame.filename == begin.filename][-1]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    finally:
        barred.reset(token)
    return None
