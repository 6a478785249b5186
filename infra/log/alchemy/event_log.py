"""`AlchemyLog`: a log in any database that SQLAlchemy knows, by the eventsourcing library's recorder."""

import secrets
import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy.exc
from eventsourcing.persistence import IntegrityError, InterfaceError, Notification, StoredEvent
from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder
from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update
from sqlalchemy.orm import Session

from chatledger.domain.errors import ChatledgerError, ConfigurationError, LogFullError, LogUnavailableError

from ..bookmarks import Bookmark, decode_bookmark, decode_bookmarks, encode_bookmark
from ..errors import translated
from ..mapper import StructMapper
from ..polled import PolledLog
from ..port import LostRaceError, refuse_unless_empty
from .database import Database, library_errors, set_counter, take_positions
from .storages import AlchemyBlobStorage, AlchemyLiveStorage
from .tables import BOOKMARKS, EVENTS, PREFIX, digest

_FEEDS: Final = "the positions of feeds"
_FULL_STATES: Final = {"53100"}  # PostgreSQL
_FULL_NUMBERS: Final = {1021, 1114, 1101, 1105}  # MySQL, SQL Server
_DELETED_AT_ONCE: Final = 500


class CountedRecorder(SQLAlchemyApplicationRecorder):
    """
    The library's recorder, with positions from a counter that is locked first.

    The library locks the table on PostgreSQL only, and lets databases count. Elsewhere an event could become visible after one
    with a higher position, which who follows the log would never see; and what is rolled back would leave a gap.
    """

    @property
    def table(self) -> Table:
        """The table of the events."""
        record: Any = self.events_record_cls
        table: Table = record.__table__
        return table

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Write events, all or none, and return their positions. Raises `IntegrityError` unless they follow those of their stream."""
        with library_errors():
            positions: Sequence[int] | None = super().insert_events(stored_events, **kwargs)
        return positions

    def _insert_stored_events(
        self, session: Session, stored_events: Sequence[StoredEvent], **_kwargs: Any
    ) -> Sequence[int]:
        first = take_positions(session, EVENTS, len(stored_events))
        firsts: dict[str, int] = {}
        for stored in stored_events:
            firsts.setdefault(str(stored.originator_id), stored.originator_version)
        for stream_id, version in firsts.items():
            newest = select(func.max(self.table.c.originator_version)).where(self.table.c.digest == digest(stream_id))
            found = session.execute(newest).scalar()
            if found is not None and found != version - 1:
                msg = f"version {version} does not follow {found}"
                raise IntegrityError(msg)
        rows = [_row(position, stored) for position, stored in enumerate(stored_events, first)]
        session.execute(insert(self.table), rows)
        return range(first, first + len(rows))

    def max_notification_id(self) -> int | None:
        """Return the position of the last event; None for none."""
        with library_errors(), self.transaction(commit=False) as session:
            last: int | None = session.execute(select(func.max(self.table.c.id))).scalar()
        return last

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> list[Notification]:
        """Select notifications in the order of their positions."""
        id_ = self.table.c.id
        which: list[ColumnElement[bool]] = []
        if start is not None:
            which.append(id_ >= start if inclusive_of_start else id_ > start)
        if stop is not None:
            which.append(id_ <= stop)
        if topics:
            which.append(self.table.c.topic.in_(topics))
        return self.select_where(*which, order_by=id_, limit=limit)

    def select_where(self, *which: ColumnElement[bool], order_by: ColumnElement[Any], limit: int) -> list[Notification]:
        """Select the notifications that meet conditions."""
        found = select(self.table).where(*which).order_by(order_by).limit(limit)
        with library_errors(), self.transaction(commit=False) as session:
            return [
                Notification(row.originator_id, row.originator_version, row.topic or "", bytes(row.state), row.id)
                for row in session.execute(found)
            ]


def _row(position: int, stored: StoredEvent | Notification) -> dict[str, Any]:
    stream_id = str(stored.originator_id)
    return {
        "id": position,
        # A message of others is of no stream, so that its version is no stream's.
        "digest": digest(stream_id) if stored.topic else f"at {position}",
        "originator_id": stream_id,
        "originator_version": stored.originator_version,
        "topic": stored.topic,
        "state": stored.state,
    }


class AlchemyLog(PolledLog):
    """
    A log in a database that SQLAlchemy has a dialect for.

    Args:
        url: For SQLAlchemy, with its driver: `mysql+pymysql://user:password@host/database`.
        timeout_s: For making a connection.
        mapper: Of the log; None for one that neither compresses nor encrypts.

    Raises:
        ConfigurationError: There can be no log at that place.
        LogUnavailableError: The database does not answer.
    """

    is_dense = True

    def __init__(self, url: str, *, timeout_s: float, mapper: StructMapper | None = None) -> None:
        with translated("the database", special=self.special_error):
            self._database = Database(url, timeout_s=timeout_s)
        self.dialect = self._database.dialect
        try:
            with translated("the database", special=self.special_error), library_errors():
                self._events = CountedRecorder(self._database.datastore, events_table_name=f"{PREFIX}_{EVENTS}")
                self._database.make(lambda engine: self._table.create(engine, checkfirst=True))
                super().__init__(self._events, mapper, AlchemyBlobStorage(self._own()), AlchemyLiveStorage(self._own()))
                self.identity = self._database.identity(str(uuid.uuid4()))
        except BaseException:
            self._database.close()
            raise

    def _own(self) -> "_Transactions":
        return _Transactions(self, self._database)

    @property
    def _table(self) -> Table:
        return self._events.table

    @staticmethod
    def special_error(error: Exception, what: str) -> ChatledgerError | None:
        """Implement `EventLog.special_error`: a full disk, a lost connection, and a file that is no database."""
        cause = error.__cause__
        original = getattr(cause, "orig", None)
        arguments: tuple[Any, ...] = getattr(original, "args", ())
        is_full = (
            getattr(original, "sqlstate", None) in _FULL_STATES
            or getattr(original, "sqlite_errorname", None) == "SQLITE_FULL"
            or (arguments[:1] and arguments[0] in _FULL_NUMBERS)
        )
        if is_full:
            return LogFullError(
                f"{what}: the log's storage is full: {original}. Nothing was written; free space and retry"
            )
        if getattr(original, "sqlite_errorname", None) == "SQLITE_NOTADB":
            return ConfigurationError(f"the file is no SQLite database: {original}")
        if isinstance(cause, sqlalchemy.exc.DBAPIError) and (
            cause.connection_invalidated or (isinstance(error, InterfaceError) and what != "the database")
        ):
            return LogUnavailableError(f"{what}: the connection to the database was lost: {original}")
        return None

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        columns = self._table.c
        return self._events.select_where(
            columns.digest == digest(stream_id),
            columns.originator_version > after_version,
            columns.id > after,
            order_by=columns.originator_version,
            limit=limit,
        )

    def restore(self, pages: Iterable[Sequence[Notification]]) -> None:
        """Implement `EventLog.restore`: all in one transaction."""
        with self._own().writing("the log") as connection:
            take_positions(connection, EVENTS, 0)
            refuse_unless_empty(connection.execute(select(func.count()).select_from(self._table)).scalar_one())
            for page in pages:
                if page:
                    connection.execute(insert(self._table), [_row(one.id, one) for one in page])
                    set_counter(connection, EVENTS, page[-1].id)

    def remove(self, positions: Sequence[int]) -> None:
        """Implement `EventLog.remove`."""
        with self._own().writing("the log") as connection:
            take_positions(connection, EVENTS, 0)
            for start in range(0, len(positions), _DELETED_AT_ONCE):
                some = positions[start : start + _DELETED_AT_ONCE]
                connection.execute(delete(self._table).where(self._table.c.id.in_(some)))

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        """Implement `EventLog.erase`. What a database keeps in free pages and in its own logs is up to it."""
        columns = self._table.c
        with self._own().erasing(f"erasing chat {stream_id!r}") as connection:
            take_positions(connection, EVENTS, 0)
            connection.execute(
                delete(self._table).where(
                    columns.digest == digest(stream_id), columns.id >= first_position, columns.id < before
                )
            )

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Implement `EventLog.load_bookmark`."""
        found = select(BOOKMARKS).where(BOOKMARKS.c.digest == digest(key))
        with self._own().reading(_FEEDS) as connection:
            row = connection.execute(found).first()
        return None if row is None else decode_bookmark(row.value.encode(), row.revision)

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Implement `EventLog.save_bookmark`."""
        # Not counted up: one that was dropped and made anew must not have the revision of the old one.
        revision = 1 + secrets.randbits(62)
        values = {"value": encode_bookmark(bookmark).decode(), "revision": revision}
        key = digest(bookmark.key)
        with self._own().writing(_FEEDS) as connection:
            if bookmark.revision:
                ours = (BOOKMARKS.c.digest == key, BOOKMARKS.c.revision == bookmark.revision)
                if not connection.execute(update(BOOKMARKS).where(*ours).values(values)).rowcount:
                    raise LostRaceError
            else:
                try:
                    connection.execute(insert(BOOKMARKS).values(digest=key, **values))
                except sqlalchemy.exc.IntegrityError as error:
                    raise LostRaceError from error
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        """Implement `EventLog.bookmarks`."""
        with self._own().reading(_FEEDS) as connection:
            rows = connection.execute(select(BOOKMARKS.c.value, BOOKMARKS.c.revision)).all()
        return decode_bookmarks((row.value.encode(), row.revision) for row in rows)

    def drop_bookmark(self, key: str) -> None:
        """Implement `EventLog.drop_bookmark`."""
        with self._own().writing(_FEEDS) as connection:
            connection.execute(delete(BOOKMARKS).where(BOOKMARKS.c.digest == digest(key)))

    def _disconnect(self) -> None:
        self._database.close()


class _Transactions:
    """The transactions of a log, in which errors are ledger errors."""

    def __init__(self, log: AlchemyLog, database: Database) -> None:
        self._log, self._database = log, database
        self.dialect = database.dialect

    @contextmanager
    def reading(self, what: str) -> Generator[Connection]:
        with self._log.translated(what), self._database.reading() as connection:
            yield connection

    @contextmanager
    def writing(self, what: str) -> Generator[Connection]:
        with self._log.translated(what), self._database.writing() as connection:
            yield connection

    @contextmanager
    def erasing(self, what: str) -> Generator[Connection]:
        with self._log.translated(what):
            with self._database.writing() as connection:
                yield connection
            self._database.empty_write_ahead_file()
