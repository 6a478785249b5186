"""Erasing rows. Those of SQLite stay, emptied, so that no copy is left in the file; see `chatledger.infra.log.sql`."""

import contextlib
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, func, literal_column, select, update
from sqlalchemy.exc import OperationalError

from ..sql import COUNTED_BYTES, IS_MOST_OF_THE_FILE
from .tables import BLOB_ENTRIES, COUNTERS, EMPTIED, EVENT_RECORDS, LIVE_ENTRIES

# Under keys that nothing has, and smaller than any row that has content.
_EMPTY: Final[dict[Table, dict[str, Any]]] = {
    EVENT_RECORDS: {"digest": EVENT_RECORDS.c.id, "originator_id": "", "topic": None, "state": b""},
    BLOB_ENTRIES: {"name": "", "entry": b""},
    LIVE_ENTRIES: {"chat": "", "stream": "", "number": literal_column("rowid"), "at": 0, "entry": b""},
}


def erase_rows(connection: Connection, table: Table, *which: ColumnElement[bool]) -> None:
    """Delete the rows that meet conditions, in SQLite without moving others."""
    if connection.dialect.name != "sqlite":
        connection.execute(delete(table).where(*which))
        return
    content = table.c[[*_EMPTY[table]][-1]]
    bytes_in_place = select(func.coalesce(func.sum(func.min(func.length(content), COUNTED_BYTES)), 0)).where(*which)
    emptied = {"last": COUNTERS.c.last + bytes_in_place.scalar_subquery()}
    connection.execute(update(COUNTERS).where(COUNTERS.c.name == EMPTIED).values(emptied))
    connection.execute(update(table).where(*which).values(_EMPTY[table]))
    if table is not EVENT_RECORDS:
        others = table.alias()
        key = others.c[next(iter(_EMPTY[table]))]
        connection.execute(delete(table).where(~exists(select(1).select_from(others).where(key != ""))))


def give_back_room(connection: Connection) -> None:
    """Write a file of SQLite anew when more than half of it is in emptied rows; `connection` commits each statement by itself."""
    is_due = f"SELECT last {IS_MOST_OF_THE_FILE} FROM {COUNTERS.name} WHERE name = ?"  # noqa: S608 - all names are ours
    if connection.exec_driver_sql(is_due, (EMPTIED,)).scalar():
        # On a full disk, or while others write without a pause: the next erasure tries again.
        with contextlib.suppress(OperationalError):
            connection.exec_driver_sql("VACUUM")
            connection.execute(update(COUNTERS).where(COUNTERS.c.name == EMPTIED).values(last=0))
