"""`SqliteLog`: a log in an SQLite file, by the eventsourcing library's recorder and the few statements that it does not have."""

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, LiteralString

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
    SQLiteFactory,
)
from eventsourcing.utils import Environment

from chatledger.domain.chat.live import LiveKey
from chatledger.domain.errors import (
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    LogFullError,
    LogUnavailableError,
)
from chatledger.projections.lmdb.environment import make_private_file

from .blob_storage import CHUNK_BYTES, BlobChangedError, BlobEntry
from .errors import translated
from .live_storage import (
    LIVE_PAGE,
    MAX_ENTRY_BYTES,
    LiveAbsentError,
    LiveChangedError,
    LiveReading,
    PolledReading,
    StoredEnds,
    StoredEntry,
)
from .mapper import StructMapper
from .polled import PolledLog
from .port import refuse_unless_empty

_BOOKMARKS: Final = "CREATE TABLE IF NOT EXISTS chatledger_feeds (key TEXT PRIMARY KEY, value TEXT, revision BIGINT)"
_IDENTITY_TABLE: Final = "chatledger_log"
_LOCK_S: Final = 10
_EVENTS: Final[LiteralString] = "stored_events"
_STANDING: Final = "standing_events"
# What is erased is emptied, and its row stays, of some 25 bytes. To delete it would let SQLite move the rows around it to other pages, with
# copies left behind that belong to no row, so that nothing overwrites them when those rows are erased in their turn, whatever
# `secure_delete` says. A row that becomes smaller in its place moves none, nor does one that is added at the end.
_COLUMNS: Final = {
    _EVENTS: ("originator_id", "originator_version", "topic", "state"),
    "chatledger_blobs": ("name", "previous", "entry"),
    "chatledger_live": ("chat", "stream", "number", "at", "entry"),
}
_PARTIAL: Final = 1
"""The `user_version` of a file of which only a part is restored."""
_WHOLE_FILE: Final = 1 << 40
COUNTED_BYTES: Final = 4000
"""Of a row, how much at most stays in its place. The pages that a larger one has besides are free at once."""
IS_MOST_OF_THE_FILE: Final = (
    "> (SELECT MAX(1048576, page_count * page_size / 2) FROM pragma_page_count(), pragma_page_size())"
)
_OF_SQLALCHEMY: Final = "SELECT 1 FROM sqlite_master WHERE name = 'chatledger_counters'"
_OF_OLDER_VERSION: Final = f"SELECT 1 FROM sqlite_master WHERE name = '{_EVENTS}' AND sql NOT LIKE '%position%'"  # noqa: S608


Value = str | int | bytes
_LARGE: Final = "the large data of messages"
# Each entry names the one before it, so that of two that are added at the same time one is refused.
BLOB_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS chatledger_blobs "
    "(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, previous BIGINT, entry BLOB, UNIQUE (name, previous))"
)
_PAGE: Final = 8
NOW_MS: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
"""The time in ms since the epoch, for SQLite."""
_LIVE: Final = "a live stream"
LIVE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS chatledger_live (chat TEXT, stream TEXT, number BIGINT, at BIGINT, entry BLOB, "
    "PRIMARY KEY (chat, stream, number))"
)


def unused_bytes(before: bytes, after: bytes) -> int:
    """
    Return the bytes of a file that nothing uses any more when these are replaced.

    Those of the whole file where they grow: then SQLite may move the rows beside them to other pages, and the copies that it leaves
    behind belong to no row, so that no later erasure would find them. Only a file that is written anew has none.
    """
    return (
        min(len(before), COUNTED_BYTES) - min(len(after), COUNTED_BYTES) if len(after) <= len(before) else _WHOLE_FILE
    )


class _SecurePool(SQLiteConnectionPool):
    """Connections that overwrite what they free. SQLite may be built not to, and the first rows stay in the root page then, too."""

    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        connection.cursor().execute("PRAGMA secure_delete = ON")
        return connection


class AscendingRecorder(SQLiteApplicationRecorder):
    """
    The library's recorder, but for two things.

    It leaves it to a key of the table that versions are given once: what was erased has none there. And it leaves the number of a row to
    SQLite, which may change it in a `VACUUM` where it is no column.
    """

    def __init__(self, datastore: SQLiteDatastore, events_table_name: str = _STANDING) -> None:
        super().__init__(datastore, events_table_name)
        self.insert_events_statement = (
            f"INSERT INTO {_EVENTS} (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)"  # noqa: S608
        )

    def construct_create_table_statements(self) -> list[str]:
        """The table, and the view of its events that were not erased, which all reads go to."""
        table = (
            f"CREATE TABLE IF NOT EXISTS {_EVENTS} (position INTEGER PRIMARY KEY, originator_id TEXT, originator_version INTEGER, "
            "topic TEXT, state BLOB, UNIQUE (originator_id, originator_version))"
        )
        view = (
            f"CREATE VIEW IF NOT EXISTS {_STANDING} AS SELECT position AS rowid, originator_id, originator_version, topic, state "  # noqa: S608
            f"FROM {_EVENTS} WHERE topic IS NOT NULL"
        )
        return [table, view]

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        positions = super()._insert_events(c, stored_events, **kwargs)
        # Afterwards: a transaction that reads before it writes does not wait for another writer, but fails.
        c.execute(
            f"SELECT MAX(originator_version) FROM {self.events_table_name} WHERE originator_id = ?",  # noqa: S608 - as below
            (stored_events[0].originator_id,),
        )
        if c.fetchone()[0] != stored_events[-1].originator_version:
            msg = f"version {stored_events[0].originator_version} was erased"
            raise IntegrityError(msg)
        return positions


class SqliteLog(PolledLog):
    """A log in an SQLite file: durable with every commit, one writer at a time."""

    def __init__(self, path: str, *, mapper: StructMapper | None = None) -> None:
        env = Environment("chatledger", {"SQLITE_DBNAME": path, "ORIGINATOR_ID_TYPE": "text"})
        # Before SQLite makes it, which would go by the umask: the text of messages stood readable for every local user in the file and its journal.
        make_private_file(path)
        with translated(f"the SQLite file {path!r}", special=self.special_error):
            factory = SQLiteFactory(env)
            factory.application_recorder_class = AscendingRecorder
            # Before the first table is made, whose first rows stand in the root page.
            factory.datastore.pool = _SecurePool(db_name=path, lock_timeout=_LOCK_S)
            try:
                with factory.datastore.transaction(commit=False) as cursor:
                    # Its tables are of another form. Ours made beside them, in the same file, would be a second and empty ledger.
                    cursor.execute(_OF_SQLALCHEMY)
                    is_of_sqlalchemy = cursor.fetchone() is not None
                    cursor.execute(_OF_OLDER_VERSION)
                    is_older = cursor.fetchone() is not None
                if is_of_sqlalchemy:
                    msg = f"{path} holds a log by SQLAlchemy: open it as sqlite+pysqlite:///{path}"
                    raise ConfigurationError(msg)
                if is_older:
                    msg = f"{path} holds a log of an older version: export its chats with that, and import them into another file"
                    raise ConfigurationError(msg)
                recorder = factory.application_recorder()
            except sqlite3.DatabaseError as error:
                msg = f"{path} is no SQLite database: {error}"
                raise ConfigurationError(msg) from error
        assert isinstance(recorder, SQLiteApplicationRecorder), "the factory's own recorder"
        self._factory, self._sqlite = factory, recorder
        super().__init__(recorder, mapper, SqlBlobStorage(self), SqlLiveStorage(self))
        with self.translated("the log"):
            self.identity = self._make_identity(str(uuid.uuid4()))

    @staticmethod
    def special_error(error: Exception, what: str) -> ChatledgerError | None:
        """Implement `EventLog.special_error`: a full disk, which undoes the transaction, and damaged text."""
        cause = error.__cause__
        if "Could not decode to UTF-8" in str(error):  # how SQLite says that stored text is damaged
            return CorruptStateError(
                f"{what}: the text of a stored event is damaged: {error} Restore the log from a backup"
            )
        if getattr(cause, "sqlite_errorname", None) == "SQLITE_FULL":
            return LogFullError(
                f"{what}: the log's storage is full: {error}. Nothing was written; free space and retry"
            )
        return None

    def _make_identity(self, proposal: str) -> str:
        # Each statement by itself: a transaction that reads before it writes does not wait for another writer, but fails.
        with self._sqlite.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            # Of several processes that make a ledger at once, each finds what another made; the first identity stays.
            for table in (_BOOKMARKS, BLOB_TABLE, LIVE_TABLE):
                cursor.execute(table)
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_IDENTITY_TABLE} (one INTEGER PRIMARY KEY, id TEXT, emptied BIGINT)"
            )
            cursor.execute(f"INSERT OR IGNORE INTO {_IDENTITY_TABLE} VALUES (1, ?, 0)", (proposal,))  # noqa: S608
            cursor.execute(f"SELECT id FROM {_IDENTITY_TABLE}")  # noqa: S608
            return f"sqlite:{cursor.fetchone()[0]}"

    def ask(self, what: str, statement: LiteralString, *values: Value) -> list[Any]:
        """Return the rows that a statement gives. Errors are ledger errors, and speak of `what`."""
        is_write = not statement.startswith("SELECT")
        with self.translated(what), self._sqlite.datastore.transaction(commit=is_write) as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    def empty(self, what: str, name: LiteralString, which: LiteralString, *rows: Sequence[Value]) -> None:
        """
        Remove the content of the rows of a table from the files, which are all NULL then.

        `rows`: the values in the condition, once or for one row after the other.
        """
        columns = _COLUMNS[name]
        count = (
            f"UPDATE {_IDENTITY_TABLE} SET emptied = emptied + "  # noqa: S608 - all names are ours
            f"(SELECT COALESCE(SUM(MIN(LENGTH({columns[-1]}), {COUNTED_BYTES})), 0) FROM {name} WHERE {which})"
        )
        with self.translated(what):
            with self._sqlite.datastore.transaction(commit=True) as cursor:
                # Counted before, as the sizes are gone afterwards; in one transaction, so that a kill leaves both or none.
                cursor.executemany(count, rows)
                cursor.executemany(f"UPDATE {name} SET {' = NULL, '.join(columns)} = NULL WHERE {which}", rows)  # noqa: S608
                if name != _EVENTS:  # whose rows keep their positions from being given again
                    some = f"SELECT 1 FROM {name} WHERE {columns[0]} IS NOT NULL"  # noqa: S608
                    cursor.execute(f"DELETE FROM {name} WHERE NOT EXISTS ({some})")  # noqa: S608 - only empty ones are moved
            self._finish_erasing()

    def _finish_erasing(self) -> None:
        """
        Write the file anew when more than half of it is in emptied rows, so that it costs no more than they did, and remove the
        old pages that the write-ahead file still has.
        """
        # Not as a writer: those of this process wait for SQLite, which is longer than they do for a connection.
        with self._sqlite.datastore.get_connection(commit=False) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT emptied {IS_MOST_OF_THE_FILE} FROM {_IDENTITY_TABLE}")  # noqa: S608
            if cursor.fetchone()[0] and not self._is_erasing:
                # On a full disk, or while others write without a pause: the next erasure tries again.
                with contextlib.suppress(sqlite3.OperationalError):
                    cursor.execute("VACUUM")
                    cursor.execute(f"UPDATE {_IDENTITY_TABLE} SET emptied = 0")  # noqa: S608
        with self._sqlite.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            # The write-ahead file has the pages as they were, in clear. Only one that is cut has none.
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if cursor.fetchone()[0]:
                msg = "others use the SQLite file without a pause, so its write-ahead file still has what was deleted"
                raise LogUnavailableError(msg)

    def _ask(self, statement: LiteralString, *values: Value) -> list[Any]:
        return self.ask("the positions of feeds", statement, *values)

    def _select_bookmarks(self, key: str | None) -> list[tuple[bytes, int]]:
        statement: LiteralString = "SELECT value, revision FROM chatledger_feeds"
        rows = self._ask(statement) if key is None else self._ask(f"{statement} WHERE key = ?", key)
        return [(row["value"].encode(), row["revision"]) for row in rows]

    def _put_bookmark(self, key: str, value: str, revision: int, *, before: int) -> bool:
        if before:
            statement: LiteralString = (
                "UPDATE chatledger_feeds SET value = ?, revision = ? WHERE key = ? AND revision = ? RETURNING key"
            )
            return bool(self._ask(statement, value, revision, key, before))
        statement = (
            "INSERT INTO chatledger_feeds (key, value, revision) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING key"
        )
        return bool(self._ask(statement, key, value, revision))

    def drop_bookmark(self, key: str) -> None:
        self._ask("DELETE FROM chatledger_feeds WHERE key = ?", key)

    def _disconnect(self) -> None:
        self._factory.close()

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        statement = (
            f"SELECT rowid, * FROM {self._sqlite.events_table_name} "  # noqa: S608 - the table's name is ours
            "WHERE originator_id = ? AND originator_version > ? AND rowid > ? ORDER BY originator_version LIMIT ?"
        )
        with self._sqlite.datastore.transaction(commit=False) as cursor:
            cursor.execute(statement, (stream_id, after_version, after, limit))
            return [
                Notification(row["originator_id"], row["originator_version"], row["topic"], row["state"], row["rowid"])
                for row in cursor.fetchall()
            ]

    def restore(self, pages: Iterable[Sequence[Notification]], *, source: str | None = None) -> None:
        """Implement `EventLog.restore`: of a named source page by page, into a file that nobody else has; else all in one transaction."""
        parts = [pages] if source is None else ([page] for page in pages)
        with self.translated("the log"):
            for part in parts:
                with self._sqlite.datastore.transaction(commit=True) as cursor:
                    self._insert(cursor, part, is_part=source is not None)

    def _insert(self, cursor: SQLiteCursor, pages: Iterable[Sequence[Notification]], *, is_part: bool) -> None:
        if not (is_part and _is_partial(cursor)):
            cursor.execute(f"SELECT COUNT(*) AS count FROM {_EVENTS}")  # noqa: S608 - the table's name is ours
            refuse_unless_empty(cursor.fetchone()["count"])
        if is_part:
            cursor.execute(f"PRAGMA user_version = {_PARTIAL}")
        insert = (
            f"INSERT INTO {_EVENTS} (position, originator_id, originator_version, topic, state) "  # noqa: S608
            "VALUES (?, ?, ?, ?, ?)"
        )
        for page in pages:
            cursor.executemany(
                insert,
                [
                    (record.id, record.originator_id, record.originator_version, record.topic, record.state)
                    for record in page
                    if record.topic
                ],
            )

    def restored_position(self, source: str) -> int | None:
        """Implement `EventLog.restored_position`. What is from another source is never there: the file is one of this."""
        del source
        with self.translated("the log"), self._sqlite.datastore.transaction(commit=False) as cursor:
            is_partial = _is_partial(cursor)
        return self.last_position() if is_partial else 0

    def finish_restore(self) -> None:
        with self.translated("the log"), self._sqlite.datastore.transaction(commit=True) as cursor:
            cursor.execute("PRAGMA user_version = 0")

    def remove(self, positions: Sequence[int]) -> None:
        self.empty("the log", _EVENTS, "position = ?", *((position,) for position in positions))

    def _replace(self, record: Notification, rewritten: Notification) -> bool:
        with self._sqlite.datastore.transaction(commit=True) as cursor:
            cursor.execute(
                f"UPDATE {_EVENTS} SET state = ? WHERE position = ? AND state = ? RETURNING position",  # noqa: S608 - all names are ours
                (rewritten.state, record.id, record.state),
            )
            if cursor.fetchone() is None:
                return False
            cursor.execute(
                f"UPDATE {_IDENTITY_TABLE} SET emptied = emptied + ?",  # noqa: S608
                (unused_bytes(record.state, rewritten.state),),
            )
        self._finish_erasing()
        return True

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        self.empty(
            f"erasing chat {stream_id!r}",
            _EVENTS,
            "originator_id = ? AND position >= ? AND position < ?",
            (stream_id, first_position, before),
        )


def _is_partial(cursor: SQLiteCursor) -> bool:
    cursor.execute("PRAGMA user_version")
    version: int = cursor.fetchone()[0]
    return version == _PARTIAL


class SqlBlobStorage:
    """Implements `BlobStorage` in a table of an SQLite file."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, log: SqliteLog) -> None:
        self._log = log

    def _ask(self, statement: LiteralString, *values: Value) -> list[Any]:
        return self._log.ask(_LARGE, statement, *values)

    def last(self, name: str) -> BlobEntry | None:
        rows = self._ask("SELECT id, entry FROM chatledger_blobs WHERE name = ? ORDER BY id DESC LIMIT 1", name)
        return _blob_entry(rows[0]) if rows else None

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        rows = self._ask(
            "INSERT INTO chatledger_blobs (name, previous, entry) SELECT ?, ?, ? "
            "WHERE COALESCE((SELECT MAX(id) FROM chatledger_blobs WHERE name = ?), 0) = ? ON CONFLICT DO NOTHING RETURNING id",
            *(name, expected, entry, name, expected),
        )
        if not rows:
            raise BlobChangedError
        position: int = rows[0]["id"]
        return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        while True:
            rows = self._ask(
                "SELECT id, entry FROM chatledger_blobs WHERE name = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
                *(name, after, until, _PAGE),
            )
            if not rows:
                return
            for row in rows:
                stored = _blob_entry(row)
                after = stored.position
                yield stored

    def erase(self, name: str, *, until: int) -> None:
        self._log.empty(_LARGE, "chatledger_blobs", "name = ? AND id <= ?", (name, until))

    def remove(self, name: str, position: int) -> None:
        self._log.empty(_LARGE, "chatledger_blobs", "name = ? AND id = ?", (name, position))

    def names(self) -> list[str]:
        return [row["name"] for row in self._ask("SELECT DISTINCT name FROM chatledger_blobs WHERE name IS NOT NULL")]

    def now_ms(self) -> int:
        now: int = self._ask(f"SELECT {NOW_MS} AS now")[0]["now"]
        return now


def _blob_entry(row: Any) -> BlobEntry:
    return BlobEntry(row["id"], bytes(row["entry"]))


class SqlLiveStorage:
    """Implements `LiveStorage` in a table of an SQLite file. Readers poll: each 2 ms while there is news, more slowly after a second without."""

    max_entry_bytes = MAX_ENTRY_BYTES

    def __init__(self, log: SqliteLog) -> None:
        self._log = log

    def ask(self, statement: LiteralString, *values: str | int | bytes) -> list[Any]:
        return self._log.ask(_LIVE, statement, *values)

    def make(self) -> None:
        """Implement `LiveStorage.make`."""

    def create(self, key: LiveKey, record: bytes) -> int:
        if not self._insert(key, record, 1):
            raise LiveChangedError
        return 1

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        if self._insert(key, record, expected + 1):
            return expected + 1
        last = self._last(key)
        if last is None:
            raise LiveAbsentError
        rows = self.ask(
            "SELECT entry FROM chatledger_live WHERE chat = ? AND stream = ? AND number = ?", *key, expected + 1
        )
        # A record has a random token: an equal one is ours.
        if rows and bytes(rows[0]["entry"]) == record:  # the answer was lost
            return expected + 1
        raise LiveChangedError

    def _insert(self, key: LiveKey, record: bytes, number: int) -> bool:
        rows = self.ask(
            # One statement: between a look and an insert, somebody else could add.
            f"INSERT INTO chatledger_live (chat, stream, number, at, entry) SELECT ?, ?, ?, {NOW_MS}, ? "  # noqa: S608
            "WHERE COALESCE((SELECT MAX(number) FROM chatledger_live WHERE chat = ? AND stream = ?), 0) = ? "
            "ON CONFLICT DO NOTHING RETURNING number",
            *(*key, number, record, *key, number - 1),
        )
        return bool(rows)

    def _last(self, key: LiveKey) -> Any:
        rows = self.ask(
            f"SELECT number, entry, {NOW_MS} - at AS idle FROM chatledger_live WHERE chat = ? AND stream = ? "  # noqa: S608
            "ORDER BY number DESC LIMIT 1",
            *key,
        )
        return rows[0] if rows else None

    def ends(self, key: LiveKey) -> StoredEnds | None:
        last = self._last(key)
        if last is None:
            return None
        rows = self.ask(
            "SELECT number, entry FROM chatledger_live WHERE chat = ? AND stream = ? ORDER BY number LIMIT 1", *key
        )
        return StoredEnds(_stored(rows[0]) if rows else None, _stored(last), max(0, last["idle"]) / 1000)

    def open(self, key: LiveKey, *, after: int) -> LiveReading:

        def read(after: int) -> list[StoredEntry]:
            rows = self.ask(
                "SELECT number, entry FROM chatledger_live WHERE chat = ? AND stream = ? AND number > ? ORDER BY number LIMIT ?",
                *(*key, after, LIVE_PAGE),
            )
            return [_stored(row) for row in rows]

        return PolledReading(read, lambda: self.ends(key) is None, after)

    def list_keys(self, chat: str | None = None) -> list[LiveKey]:
        if chat is None:
            rows = self.ask("SELECT DISTINCT chat, stream FROM chatledger_live WHERE chat IS NOT NULL")
        else:
            rows = self.ask("SELECT DISTINCT chat, stream FROM chatledger_live WHERE chat = ?", chat)
        return [LiveKey(row["chat"], row["stream"]) for row in rows]

    def drop(self, key: LiveKey) -> None:
        self._log.empty(_LIVE, "chatledger_live", "chat = ? AND stream = ?", key)


def _stored(row: Any) -> StoredEntry:
    return StoredEntry(row["number"], bytes(row["entry"]))
