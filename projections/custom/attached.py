"""The projections that a process keeps up to date, and applying events to them."""

import contextvars
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmdb
import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .projection import Projection
from .records import SERVING, ProjectionRecord, load_record, load_records, new_record, note_tombstone, save_record
from .rows import ProjectionRows, Reach

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """Detach it."""
        self._entries = {key: entry for key, entry in self._entries.items() if key != name}

    def get(self, name: str) -> Entry | None:
        """The projection of that name, if it is attached."""
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
        return _where(error)
    finally:
        barred.reset(token)
    return None


def _where(error: Exception) -> str:
    """The kind of an error and where it was raised. Its text may hold what is deleted one day."""
    frames = traceback.extract_tb(error.__traceback__)
    begin = frames[min(1, len(frames) - 1)]  # the first is that of this module
    last = [frame for frame in frames if frame.filename == begin.filename][-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
