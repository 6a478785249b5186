"""Logs in SQLite and PostgreSQL: the library's recorders, and the few statements they do not have."""

import secrets
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString

from eventsourcing.persistence import (
    ApplicationRecorder,
    InfrastructureFactory,
    Notification,
    PersistenceError,
)
from eventsourcing.sqlite import SQLiteApplicationRecorder
from eventsourcing.utils import Environment

from chatledger.domain.errors import (
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    LogFullError,
    LogUnavailableError,
)

from .blob_storage import SqlBlobStorage, Value
from .bookmarks import Bookmark, decode_bookmark, decode_bookmarks, encode_bookmark
from .errors import translated
from .live_storage import SqlLiveStorage
from .mapper import StructMapper
from .polled import PolledLog
from .port import LostRaceError, refuse_unless_empty

_BOOKMARKS: Final = "CREATE TABLE IF NOT EXISTS {bookmarks} (key TEXT PRIMARY KEY, value TEXT, revision BIGINT)"
_IDENTITY_TABLE: Final = "chatledger_log"
_BOOKMARK_TABLE: Final = "chatledger_feeds"
_BLOB_TABLE: Final = "chatledger_blobs"
_LIVE_TABLE: Final = "chatledger_live"


class SqlLog(PolledLog):
    """The base of logs in SQLite and PostgreSQL."""

    def __init__(
        self, factory: InfrastructureFactory[Any], recorder: ApplicationRecorder, mapper: StructMapper | None
    ) -> None:
        super().__init__(recorder, mapper, SqlBlobStorage(self.ask), SqlLiveStorage(self.ask))
        self._factory = factory
        self._made: set[LiteralString] = set()
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
        if getattr(cause, "sqlite_errorname", None) == "SQLITE_FULL" or getattr(cause, "sqlstate", None) == "53100":
            return LogFullError(
                f"{what}: the log's storage is full: {error}. Nothing was written; free space and retry"
            )
        return None

    def _make_identity(self, proposal: str) -> str:
        """The id that this log was given when it was made; `proposal` if that is now."""
        raise NotImplementedError

    def _run(self, statement: LiteralString, *values: Value) -> list[Any]:
        """
        The rows that one statement gives.

        `{bookmarks}`, `{blobs}` and `{live}` stand for the tables, `{counted}` and `{bytes}` for types, `{now}` for the time
        in ms by the clock of the database, `?` for a value.
        """
        raise NotImplementedError

    def ask(self, what: str, table: LiteralString, statement: LiteralString, *values: Value) -> list[Any]:
        """The rows that a statement gives, on a table which the statement `table` makes; errors speak of `what`."""
        with self.translated(what):
            if table not in self._made:
                self._make(table)
                self._made.add(table)
            return self._run(statement, *values)

    def _make(self, table: LiteralString) -> None:
        try:
            self._run(table)
        except PersistenceError:
            # Of several who make it at the same time, PostgreSQL refuses all but one.
            self._run(table)

    def _ask(self, statement: LiteralString, *values: str | int) -> list[Any]:
        return self.ask("the positions of feeds", _BOOKMARKS, statement, *values)

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Implement `EventLog.load_bookmark`."""
        rows = self._ask("SELECT value, revision FROM {bookmarks} WHERE key = ?", key)
        return decode_bookmark(rows[0]["value"].encode(), rows[0]["revision"]) if rows else None

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Implement `EventLog.save_bookmark`."""
        value = encode_bookmark(bookmark).decode()
        # Not counted up: one that was dropped and made anew must not have the revision of the old one.
        revision = 1 + secrets.randbits(62)
        if bookmark.revision:
            saved = self._ask(
                "UPDATE {bookmarks} SET value = ?, revision = ? WHERE key = ? AND revision = ? RETURNING key",
                *(value, revision, bookmark.key, bookmark.revision),
            )
        else:
            saved = self._ask(
                "INSERT INTO {bookmarks} (key, value, revision) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING key",
                *(bookmark.key, value, revision),
            )
        if not saved:
            raise LostRaceError
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        """Implement `EventLog.bookmarks`."""
        rows = self._ask("SELECT value, revision FROM {bookmarks}")
        return decode_bookmarks((row["value"].encode(), row["revision"]) for row in rows)

    def drop_bookmark(self, key: str) -> None:
        """Implement `EventLog.drop_bookmark`."""
        self._ask("DELETE FROM {bookmarks} WHERE key = ?", key)

    def _disconnect(self) -> None:
        self._factory.close()


class SqliteLog(SqlLog):
    """A log in an SQLite file: durable with every commit, one writer at a time."""

    def __init__(self, path: str, *, mapper: StructMapper | None = None) -> None:
        env = Environment(
            "chatledger", {"SQLITE_DBNAME": path, "SQLITE_LOCK_TIMEOUT": "10", "ORIGINATOR_ID_TYPE": "text"}
        )
        with translated(f"the SQLite file {path!r}", special=SqlLog.special_error):
            from eventsourcing.sqlite import SQLiteFactory

            factory = SQLiteFactory(env)
            try:
                recorder = factory.application_recorder()
            except sqlite3.DatabaseError as error:
                msg = f"{path} is no SQLite database: {error}"
                raise ConfigurationError(msg) from error
        assert isinstance(recorder, SQLiteApplicationRecorder), "the factory's own recorder"
        self._sqlite = recorder
        super().__init__(factory, recorder, mapper)

    def _make_identity(self, proposal: str) -> str:
        # Each statement by itself: a transaction that reads before it writes does not wait for another writer, but fails.
        with self._sqlite.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {_IDENTITY_TABLE} (one INTEGER PRIMARY KEY, id TEXT)")
            cursor.execute(f"INSERT OR IGNORE INTO {_IDENTITY_TABLE} VALUES (1, ?)", (proposal,))  # noqa: S608
            cursor.execute(f"SELECT id FROM {_IDENTITY_TABLE}")  # noqa: S608
            return f"sqlite:{cursor.fetchone()[0]}"

    def _run(self, statement: LiteralString, *values: Value) -> list[Any]:
        named = statement.format(
            bookmarks=_BOOKMARK_TABLE,
            blobs=_BLOB_TABLE,
            live=_LIVE_TABLE,
            counted="INTEGER PRIMARY KEY AUTOINCREMENT",
            bytes="BLOB",
            now="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        )
        is_erasing = statement.startswith(("DELETE FROM {blobs}", "DELETE FROM {live}"))
        with self._sqlite.datastore.transaction(commit=not statement.startswith("SELECT")) as cursor:
            if is_erasing:
                cursor.execute("PRAGMA secure_delete = ON")
            cursor.execute(named, values)
            rows = list(cursor.fetchall())
        if is_erasing:
            self._empty_write_ahead_file()
        return rows

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

    def restore(self, pages: Iterable[Sequence[Notification]]) -> None:
        """Implement `EventLog.restore`: all in one transaction."""
        table = self._sqlite.events_table_name
        with self.translated("the log"), self._sqlite.datastore.transaction(commit=True) as cursor:
            cursor.execute(f"SELECT COUNT(*) AS count FROM {table}")  # noqa: S608 - the table's name is ours
            refuse_unless_empty(cursor.fetchone()["count"])
            insert = (
                f"INSERT INTO {table} (rowid, originator_id, originator_version, topic, state) "  # noqa: S608
                "VALUES (?, ?, ?, ?, ?)"
            )
            for page in pages:
                cursor.executemany(
                    insert,
                    [
                        (one.id, one.originator_id, one.originator_version, one.topic, one.state)
                        for one in page
                        if one.topic
                    ],
                )

    def remove(self, positions: Sequence[int]) -> None:
        """Implement `EventLog.remove`."""
        statement = f"DELETE FROM {self._sqlite.events_table_name} WHERE rowid = ?"  # noqa: S608 - the table's name is ours
        with self.translated("the log"), self._sqlite.datastore.transaction(commit=True) as cursor:
            cursor.executemany(statement, [(position,) for position in positions])

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        """Implement `EventLog.erase`."""
        table = self._sqlite.events_table_name
        with self.translated(f"erasing chat {stream_id!r}"):
            with self._sqlite.datastore.transaction(commit=True) as cursor:
                cursor.execute("PRAGMA secure_delete = ON")
                cursor.execute(
                    f"DELETE FROM {table} WHERE originator_id = ? AND rowid >= ? AND rowid < ?",  # noqa: S608
                    (stream_id, first_position, before),
                )
            self._empty_write_ahead_file()

    def _empty_write_ahead_file(self) -> None:
        """Remove the old pages that the write-ahead file still has."""
        with self._sqlite.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if cursor.fetchone()[0]:
                msg = "others use the SQLite file without a pause, so its write-ahead file still has what was deleted"
                raise LogUnavailableError(msg)


class PostgresLog(SqlLog):
    """A log in a PostgreSQL database."""

    def __init__(self, settings: dict[str, str], *, timeout_s: float, mapper: StructMapper | None = None) -> None:
        try:
            from eventsourcing.postgres import PostgresApplicationRecorder, PostgresFactory
        except ImportError as error:
            msg = "postgresql:// needs psycopg: pip install 'chatledger[postgres]'"
            raise ConfigurationError(msg) from error
        env = Environment(
            "chatledger",
            {
                **settings,
                "ORIGINATOR_ID_TYPE": "text",
                # Without it an event of about half a megabyte stalls: the library fills a pipeline that nobody drains.
                "POSTGRES_ENABLE_DB_FUNCTIONS": "y",
                "POSTGRES_CONNECT_TIMEOUT": str(max(1, round(timeout_s))),
            },
        )
        with translated("the PostgreSQL database", special=SqlLog.special_error):
            factory = PostgresFactory(env)
            recorder = factory.application_recorder()
        assert isinstance(recorder, PostgresApplicationRecorder), "the factory's own recorder"
        self._postgres = recorder
        super().__init__(factory, recorder, mapper)

    def _statement(self, text: LiteralString) -> Any:
        from psycopg.sql import SQL, Identifier

        return SQL(text).format(
            schema=Identifier(self._postgres.datastore.schema),
            table=Identifier(self._postgres.events_table_name),
            identity=Identifier(_IDENTITY_TABLE),
            bookmarks=Identifier(self._postgres.datastore.schema, _BOOKMARK_TABLE),
            blobs=Identifier(self._postgres.datastore.schema, _BLOB_TABLE),
            live=Identifier(self._postgres.datastore.schema, _LIVE_TABLE),
            now=SQL("(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT"),
            counted=SQL("BIGSERIAL PRIMARY KEY"),
            bytes=SQL("BYTEA"),
        )

    def _run(self, statement: LiteralString, *values: Value) -> list[Any]:
        with self._postgres.datastore.transaction(commit=True) as cursor:
            if statement.startswith("DELETE FROM {live}"):  # which does not see what is being added
                cursor.execute(self._statement("LOCK TABLE {live} IN SHARE ROW EXCLUSIVE MODE"))
            cursor.execute(self._statement(statement.replace("?", "%s")), values)
            return list(cursor.fetchall()) if cursor.description else []

    def _make_identity(self, proposal: str) -> str:
        with self._postgres.datastore.transaction(commit=True) as cursor:
            cursor.execute(
                self._statement("CREATE TABLE IF NOT EXISTS {schema}.{identity} (one int PRIMARY KEY, id text)")
            )
            cursor.execute(
                self._statement("INSERT INTO {schema}.{identity} VALUES (1, %s) ON CONFLICT DO NOTHING"), (proposal,)
            )
            cursor.execute(self._statement("SELECT id FROM {schema}.{identity}"))
            row = cursor.fetchone()
        assert row is not None, "the row was just inserted, or stood there"
        return f"postgresql:{row['id']}"

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        statement = self._statement(
            "SELECT * FROM {schema}.{table} WHERE originator_id = %s AND originator_version > %s AND notification_id > %s "
            "ORDER BY originator_version LIMIT %s"
        )
        with self._postgres.datastore.transaction() as cursor:
            cursor.execute(statement, (stream_id, after_version, after, limit))
            return [
                Notification(
                    row["originator_id"],
                    row["originator_version"],
                    row["topic"],
                    bytes(row["state"]),
                    row["notification_id"],
                )
                for row in cursor.fetchall()
            ]

    def restore(self, pages: Iterable[Sequence[Notification]]) -> None:
        """Implement `EventLog.restore`: all in one transaction."""
        with self.translated("the log"), self._postgres.datastore.transaction(commit=True) as cursor:
            cursor.execute(self._statement("LOCK TABLE {schema}.{table} IN EXCLUSIVE MODE"))
            cursor.execute(self._statement("SELECT COUNT(*) AS count FROM {schema}.{table}"))
            row = cursor.fetchone()
            refuse_unless_empty(0 if row is None else row["count"])
            insert = self._statement(
                "INSERT INTO {schema}.{table} (notification_id, originator_id, originator_version, topic, state) "
                "VALUES (%s, %s, %s, %s, %s)"
            )
            last = 0
            for page in pages:
                for one in page:
                    if not one.topic:
                        continue  # a message of others, which takes no place here
                    values = (one.id, one.originator_id, one.originator_version, one.topic, one.state)
                    cursor.execute(insert, values, prepare=True)
                    last = one.id
            if last:
                table = f'"{self._postgres.datastore.schema}"."{self._postgres.events_table_name}"'
                cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'notification_id'), %s)", (table, last))

    def remove(self, positions: Sequence[int]) -> None:
        """Implement `EventLog.remove`."""
        statement = self._statement("DELETE FROM {schema}.{table} WHERE notification_id = ANY(%s)")
        with self.translated("the log"), self._postgres.datastore.transaction(commit=True) as cursor:
            cursor.execute(statement, (list(positions),))

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        """Implement `EventLog.erase`. The pages are free for reuse; `VACUUM FULL` removes their old bytes from the disk."""
        statement = self._statement(
            "DELETE FROM {schema}.{table} WHERE originator_id = %s AND notification_id >= %s AND notification_id < %s"
        )
        with (
            self.translated(f"erasing chat {stream_id!r}"),
            self._postgres.datastore.transaction(commit=True) as cursor,
        ):
            cursor.execute(statement, (stream_id, first_position, before))
