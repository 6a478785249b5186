"""`AlchemyLog`: a log in PostgreSQL, or any other database that SQLAlchemy knows."""

import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import sqlalchemy.exc
from eventsourcing.persistence import (
    ApplicationRecorder,
    IntegrityError,
    InterfaceError,
    InternalError,
    Notification,
    StoredEvent,
    Subscription,
)
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from chatledger.domain.chat.live import LiveKey
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatledgerError,
    ConfigurationError,
    LogFullError,
    LogUnavailableError,
)

from ..blob_storage import CHUNK_BYTES, BlobChangedError, BlobEntry
from ..errors import translated
from ..live_storage import (
    LIVE_PAGE,
    MAX_ENTRY_BYTES,
    LiveAbsentError,
    LiveChangedError,
    LiveReading,
    PolledReading,
    StoredEnds,
    StoredEntry,
)
from ..mapper import StructMapper
from ..polled import PolledLog
from ..port import refuse_unless_empty
from .database import Database, erase_rows, replace_state, set_counter, take_positions
from .tables import BLOB_ENTRIES as _BLOBS
from .tables import BLOBS, BOOKMARKS, COUNTERS, EVENT_RECORDS, EVENTS, clock, digest
from .tables import LIVE_ENTRIES as _LIVE

_LARGE: Final = "the large data of messages"
_A_STREAM: Final = "a live stream"
_PAGE: Final = 8


class Transactions(Protocol):
    """The transactions of a log; see `AlchemyLog`. Errors are ledger errors, and speak of the first argument."""

    dialect: str

    def reading(self, what: str, /) -> AbstractContextManager[Connection]: ...
    def writing(self, what: str, /) -> AbstractContextManager[Connection]: ...
    def emptying(self, what: str, /) -> AbstractContextManager[Connection]: ...


class AlchemyBlobStorage:
    """Implements `BlobStorage` in a table. A counter gives the positions, so that none is given twice."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, log: Transactions) -> None:
        self._log = log

    def last(self, name: str) -> BlobEntry | None:
        newest = select(_BLOBS.c.position, _BLOBS.c.entry).where(_BLOBS.c.name == name)
        with self._log.reading(_LARGE) as connection:
            row = connection.execute(newest.order_by(_BLOBS.c.position.desc()).limit(1)).first()
        return None if row is None else BlobEntry(row.position, bytes(row.entry))

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        with self._log.writing(_LARGE) as connection:
            position = take_positions(connection, BLOBS, 1)
            newest = select(func.max(_BLOBS.c.position)).where(_BLOBS.c.name == name)
            # Under the lock of the counter, so nobody adds between this look and the insert.
            if (connection.execute(newest).scalar() or 0) != expected:
                raise BlobChangedError
            connection.execute(insert(_BLOBS).values(position=position, name=name, entry=entry))
        return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        entries = select(_BLOBS.c.position, _BLOBS.c.entry).order_by(_BLOBS.c.position).limit(_PAGE)
        while True:
            page = entries.where(_BLOBS.c.name == name, _BLOBS.c.position > after, _BLOBS.c.position <= until)
            with self._log.reading(_LARGE) as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            for row in rows:
                after = row.position
                yield BlobEntry(row.position, bytes(row.entry))

    def erase(self, name: str, *, until: int) -> None:
        self._delete(_BLOBS.c.name == name, _BLOBS.c.position <= until)

    def remove(self, name: str, position: int) -> None:
        self._delete(_BLOBS.c.name == name, _BLOBS.c.position == position)

    def _delete(self, *which: ColumnElement[bool]) -> None:
        with self._log.emptying(_LARGE) as connection:
            take_positions(connection, BLOBS, 0)  # waits for who is adding
            erase_rows(connection, _BLOBS, *which)

    def names(self) -> list[str]:
        with self._log.reading(_LARGE) as connection:
            return [name for name in connection.execute(select(_BLOBS.c.name).distinct()).scalars() if name]

    def now_ms(self) -> int:
        with self._log.reading(_LARGE) as connection:
            return int(connection.execute(select(clock(self._log.dialect))).scalar_one())


class AlchemyLiveStorage:
    """Implements `LiveStorage` in a table. The first entry of a stream is locked while it is added to or dropped."""

    max_entry_bytes = MAX_ENTRY_BYTES

    def __init__(self, log: Transactions) -> None:
        self._log = log

    def make(self) -> None:
        """Implement `LiveStorage.make`."""

    def create(self, key: LiveKey, record: bytes) -> int:
        with self._log.writing(_A_STREAM) as connection:
            try:
                self._insert(connection, key, 1, record)
            except sqlalchemy.exc.IntegrityError as error:
                raise LiveChangedError from error
        return 1

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        number = expected + 1
        with self._log.writing(_A_STREAM) as connection:
            # A drop locks the same row: an entry that is being added must not outlive its stream.
            if not _lock(connection, key):
                raise LiveAbsentError
            last = connection.execute(select(func.max(_LIVE.c.number)).where(_is_of(key))).scalar_one()
            if last == expected:
                self._insert(connection, key, number, record)
                return number
            there = select(_LIVE.c.entry).where(_is_of(key), _LIVE.c.number == number)
            stored = connection.execute(there).scalar()
        if stored is not None and bytes(stored) == record:  # the answer was lost
            return number
        raise LiveChangedError

    def _insert(self, connection: Connection, key: LiveKey, number: int, record: bytes) -> None:
        now = clock(self._log.dialect)
        values = {"chat": key.chat, "stream": key.stream, "number": number, "at": now, "entry": record}
        connection.execute(insert(_LIVE).values(values))

    def ends(self, key: LiveKey) -> StoredEnds | None:
        idle = (clock(self._log.dialect) - _LIVE.c.at).label("idle")
        entries = select(_LIVE.c.number, _LIVE.c.entry, idle).where(_is_of(key)).limit(1)
        with self._log.reading(_A_STREAM) as connection:
            last = connection.execute(entries.order_by(_LIVE.c.number.desc())).first()
            first = connection.execute(entries.order_by(_LIVE.c.number)).first()
        if last is None:
            return None
        return StoredEnds(None if first is None else _stored(first), _stored(last), max(0, int(last.idle)) / 1000)

    def open(self, key: LiveKey, *, after: int) -> LiveReading:
        entries = select(_LIVE.c.number, _LIVE.c.entry).where(_is_of(key)).order_by(_LIVE.c.number).limit(LIVE_PAGE)

        def read(after: int) -> list[StoredEntry]:
            with self._log.reading(_A_STREAM) as connection:
                return [_stored(row) for row in connection.execute(entries.where(_LIVE.c.number > after))]

        return PolledReading(read, lambda: self.ends(key) is None, after)

    def list_keys(self, chat: str | None = None) -> list[LiveKey]:
        keys = select(_LIVE.c.chat, _LIVE.c.stream).where(_LIVE.c.number == 1)
        with self._log.reading(_A_STREAM) as connection:
            rows = connection.execute(keys if chat is None else keys.where(_LIVE.c.chat == chat)).all()
        return [LiveKey(row.chat, row.stream) for row in rows if row.chat]

    def drop(self, key: LiveKey) -> None:
        with self._log.emptying(_A_STREAM) as connection:
            _lock(connection, key)
            erase_rows(connection, _LIVE, _is_of(key))


def _is_of(key: LiveKey) -> ColumnElement[bool]:
    return and_(_LIVE.c.chat == key.chat, _LIVE.c.stream == key.stream)


def _lock(connection: Connection, key: LiveKey) -> bool:
    """Lock the first entry of a stream, which an update does on every database; whether there is one."""
    first = update(_LIVE).where(_is_of(key), _LIVE.c.number == 1).values(at=_LIVE.c.at)
    return connection.execute(first).rowcount > 0


def _stored(row: Any) -> StoredEntry:
    return StoredEntry(row.number, bytes(row.entry))


_FEEDS: Final = "the positions of feeds"
# States are those of PostgreSQL, numbers those of MySQL, MariaDB and SQL Server.
_FULL: Final = {"53100", 1021, 1114, 1101, 1105, "SQLITE_FULL"}
_DENIED: Final = {"42501", "25006", 1044, 1142, 1143, 1290, 1792, 1836, 229, "SQLITE_READONLY"}
_LOCKED: Final = {"55P03", "57014", 1205, 1222, "SQLITE_BUSY"}
_DAMAGED: Final = {"XX001", "XX002", "SQLITE_CORRUPT"}
_DELETED_AT_ONCE: Final = 500
_RECORDS: Final = EVENT_RECORDS.c


class CountedRecorder(ApplicationRecorder):
    """
    A recorder of the eventsourcing library with positions from a counter, whose row is locked first.

    So writers wait for each other, and no event becomes visible after one with a higher position, which whoever follows the log would
    never see.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statement = None
        self._standing = (
            [_RECORDS.topic.is_not(None)] if database.dialect == "sqlite" else []
        )  # those that are not emptied
        if database.postgres is not None:
            names = (database.quoted(EVENT_RECORDS), database.quoted(COUNTERS))
            self._statement = database.postgres.insert_statement(*names, database.patience_ms)

    def insert_events(self, stored_events: Sequence[StoredEvent], **_kwargs: Any) -> Sequence[int]:
        """
        Write events of one stream, all or none, and return their positions. Repeated while connections break.

        Raises:
            IntegrityError: They do not follow those of their stream, which a commit that was written before does not either.
        """
        return self._database.repeat(lambda: self._insert(stored_events))

    def _insert(self, stored_events: Sequence[StoredEvent]) -> Sequence[int]:
        stream_id, before = str(stored_events[0].originator_id), stored_events[0].originator_version - 1
        count = len(stored_events)
        if self._statement is not None:
            values = {
                "counter": EVENTS,
                "count": count,
                "digest": digest(stream_id),
                "stream": stream_id.encode(),
                "before": before,
                "topics": [stored.topic for stored in stored_events],
                "states": [stored.state for stored in stored_events],
            }
            # The statement has its own BEGIN and COMMIT, so that all goes to the server in one round trip.
            with self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                return sorted(connection.exec_driver_sql(self._statement, values).scalars())
        with self._database.writing() as connection:
            first = take_positions(connection, EVENTS, count)
            newest = select(func.max(_RECORDS.originator_version)).where(_RECORDS.digest == digest(stream_id))
            version = connection.execute(newest).scalar()
            # None after an erasure, or for a new stream. The key of the table keeps a version from being given twice.
            if version not in {None, before}:
                msg = f"version {before + 1} does not follow {version}"
                raise IntegrityError(msg)
            rows = [_row(position, stored) for position, stored in enumerate(stored_events, first)]
            connection.execute(insert(EVENT_RECORDS), rows)
        return range(first, first + count)

    def max_notification_id(self) -> int | None:
        """Return the position of the last event; None for none."""
        newest = select(func.max(_RECORDS.id)).where(*self._standing)
        ((last,),) = self._database.repeat(lambda: self._rows(newest))
        return None if last is None else int(last)

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
        which: list[ColumnElement[bool]] = []
        if start is not None:
            which.append(_RECORDS.id >= start if inclusive_of_start else _RECORDS.id > start)
        if stop is not None:
            which.append(_RECORDS.id <= stop)
        if topics:
            which.append(_RECORDS.topic.in_(topics))
        return self.select_where(*which, order_by=_RECORDS.id, limit=limit)

    def select_where(
        self, *which: ColumnElement[bool], order_by: ColumnElement[Any], limit: int | None
    ) -> list[Notification]:
        """Select the notifications that meet conditions."""
        statement = select(EVENT_RECORDS).where(*which, *self._standing).order_by(order_by).limit(limit)
        return [
            Notification(row.originator_id, row.originator_version, row.topic or "", bytes(row.state), row.id)
            for row in self._database.repeat(lambda: self._rows(statement))
        ]

    def _rows(self, statement: Any) -> Sequence[Any]:
        with self._database.engine.connect() as connection:
            return connection.execute(statement).all()

    def select_events(
        self,
        originator_id: uuid.UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Select the events of a stream, as the library's aggregates are read."""
        version = _RECORDS.originator_version
        which = [_RECORDS.digest == digest(str(originator_id))]
        if gt is not None:
            which.append(version > gt)
        if lte is not None:
            which.append(version <= lte)
        return self.select_where(*which, order_by=version.desc() if desc else version, limit=limit)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[Any]:
        """Raise `NotImplementedError`: a ledger asks for new events by itself."""
        raise NotImplementedError


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
    A log in PostgreSQL, or any other database that SQLAlchemy has a dialect for.

    Args:
        url: See `Database`.
        timeout_s: For an operation; connections are made again that long.
        mapper: Of the log; None for one that neither compresses nor encrypts.

    Raises:
        ConfigurationError: There can be no log at that place.
        LogUnavailableError: The database does not answer.
    """

    is_dense = True

    def __init__(self, url: str, *, timeout_s: float, mapper: StructMapper | None = None) -> None:
        self._database = Database(url, timeout_s=timeout_s)
        self.dialect = self._database.dialect
        try:
            with translated("the database", special=self.special_error):
                self.identity = self._database.identity(str(uuid.uuid4()))
            self._events = CountedRecorder(self._database)
            super().__init__(self._events, mapper, AlchemyBlobStorage(self), AlchemyLiveStorage(self))
        except BaseException:
            self._database.close()
            raise

    @contextmanager
    def reading(self, what: str) -> Generator[Connection]:
        """Begin a transaction that changes nothing. Errors are ledger errors, and speak of `what`."""
        with self.translated(what), self._database.reading() as connection:
            yield connection

    @contextmanager
    def writing(self, what: str) -> Generator[Connection]:
        """Begin a transaction that is rolled back when an error is raised in it."""
        with self.translated(what), self._database.writing() as connection:
            yield connection

    @contextmanager
    def emptying(self, what: str) -> Generator[Connection]:
        """Begin a transaction after which no file of the database has what was deleted in it, as far as that is in our hands."""
        with self.translated(what):
            with self._database.writing(is_long=True) as connection:
                yield connection
            self._finish_erasing()

    def _finish_erasing(self) -> None:
        self._database.finish_erasing(may_write_anew=not self._is_erasing)

    @staticmethod
    def special_error(error: Exception, what: str) -> ChatledgerError | None:
        """Implement `EventLog.special_error`: a full disk, a right that is missing, a lock, a lost connection, and a file that is none."""
        cause = error.__cause__
        if isinstance(cause, sqlalchemy.exc.TimeoutError):
            return LogUnavailableError(f"{what}: all connections to the database were in use. Nothing was written")
        if not isinstance(cause, sqlalchemy.exc.DBAPIError):
            return None
        original = cause.orig
        codes = {
            getattr(original, "sqlstate", None),
            getattr(original, "sqlite_errorname", None),
            *getattr(original, "args", ())[:1],
        }
        text = " ".join(str(original).split()).rstrip(".")
        if codes & _FULL:
            return LogFullError(f"{what}: the log's storage is full: {text}. Nothing was written; free space and retry")
        if codes & _DENIED:
            return AccessDeniedError(
                f"{what}: the database does not let this login do that: {text}. Nothing was written"
            )
        if codes & _LOCKED:
            return LogUnavailableError(f"{what}: somebody else holds a lock on the log: {text}. Nothing was written")
        # Taken for damage, it told people to restore a sound log from a backup.
        if isinstance(error, InternalError) and not codes & _DAMAGED:  # such as two that change a catalog at once
            return LogUnavailableError(f"{what}: the database failed: {text}. The outcome is unknown")
        if "SQLITE_NOTADB" in codes:
            return ConfigurationError(f"the file is no SQLite database: {text}")
        # While a ledger is opened, an interface error says that the location is wrong; later, that the connection broke.
        if cause.connection_invalidated or (isinstance(error, InterfaceError) and what != "the database"):
            return LogUnavailableError(
                f"{what}: the connection to the database was lost: {text}. The outcome is unknown"
            )
        return None

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        return self._events.select_where(
            _RECORDS.digest == digest(stream_id),
            _RECORDS.originator_version > after_version,
            _RECORDS.id > after,
            order_by=_RECORDS.originator_version,
            limit=limit,
        )

    def restore(self, pages: Iterable[Sequence[Notification]], *, source: str | None = None) -> None:
        """Implement `EventLog.restore`: all in one transaction, of which nothing is left when it is interrupted."""
        del source
        with self.translated("the log"), self._database.writing(is_long=True) as connection:
            # Locks the counter: a writer that is under way would add behind what was just counted.
            take_positions(connection, EVENTS, 0)
            refuse_unless_empty(connection.execute(select(func.count()).select_from(EVENT_RECORDS)).scalar_one())
            for page in pages:
                if page:
                    connection.execute(insert(EVENT_RECORDS), [_row(record.id, record) for record in page])
                    set_counter(connection, EVENTS, page[-1].id)

    def remove(self, positions: Sequence[int]) -> None:
        with self.writing("the log") as connection:
            take_positions(connection, EVENTS, 0)
            for start in range(0, len(positions), _DELETED_AT_ONCE):
                some = positions[start : start + _DELETED_AT_ONCE]
                erase_rows(connection, EVENT_RECORDS, _RECORDS.id.in_(some))

    def _replace(self, record: Notification, rewritten: Notification) -> bool:
        with self.emptying("the log") as connection:
            take_positions(connection, EVENTS, 0)
            return replace_state(connection, record.id, record.state, rewritten.state)

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        """Implement `EventLog.erase`. What a database keeps in free pages and in its own logs is up to it."""
        with self.emptying(f"erasing chat {stream_id!r}") as connection:
            take_positions(connection, EVENTS, 0)
            erase_rows(
                connection,
                EVENT_RECORDS,
                _RECORDS.digest == digest(stream_id),
                _RECORDS.id >= first_position,
                _RECORDS.id < before,
            )

    def _select_bookmarks(self, key: str | None) -> list[tuple[bytes, int]]:
        rows = select(BOOKMARKS.c.value, BOOKMARKS.c.revision)
        with self.reading(_FEEDS) as connection:
            which = rows if key is None else rows.where(BOOKMARKS.c.digest == digest(key))
            return [(row.value.encode(), row.revision) for row in connection.execute(which)]

    def _put_bookmark(self, key: str, value: str, revision: int, *, before: int) -> bool:
        ours = (BOOKMARKS.c.digest == digest(key), BOOKMARKS.c.revision == before)
        with self.writing(_FEEDS) as connection:
            if before:
                changed = connection.execute(update(BOOKMARKS).where(*ours).values(value=value, revision=revision))
                return changed.rowcount > 0
            try:
                connection.execute(insert(BOOKMARKS).values(digest=digest(key), value=value, revision=revision))
            except sqlalchemy.exc.IntegrityError:
                connection.rollback()
                return False
        return True

    def drop_bookmark(self, key: str) -> None:
        with self.writing(_FEEDS) as connection:
            connection.execute(delete(BOOKMARKS).where(BOOKMARKS.c.digest == digest(key)))

    def _disconnect(self) -> None:
        self._database.close()
