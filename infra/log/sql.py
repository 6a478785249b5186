"""`SqliteLog`: the eventsourcing library's recorder for SQLite, and the few statements that it does not have."""

import secrets
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor, SQLiteFactory
from eventsourcing.utils import Environment

from chatledger.domain.errors import (
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    LogFullError,
    LogUnavailableError,
)
from chatledger.projections.lmdb.environment import make_private_file

from .blob_storage import SqlBlobStorage, Value
from .bookmarks import Bookmark, decode_bookmark, decode_bookmarks, encode_bookmark
from .errors import translated
from .live_storage import SqlLiveStorage
from .mapper import StructMapper
from .polled import PolledLog
from .port import LostRaceError, refuse_unless_empty

_BOOKMARKS: Final = "CREATE TABLE IF NOT EXISTS chatledger_feeds (key TEXT PRIMARY KEY, value TEXT, revision BIGINT)"
_IDENTITY_TABLE: Final = "chatledger_log"
_OF_SQLALCHEMY: Final = "SELECT 1 FROM sqlite_master WHERE name = 'chatledger_counters'"


class AscendingRecorder(SQLiteApplicationRecorder):
    """The library's recorder, which leaves it to a key of the table that versions are given once: what was erased has none there."""

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
        env = Environment(
            "chatledger", {"SQLITE_DBNAME": path, "SQLITE_LOCK_TIMEOUT": "10", "ORIGINATOR_ID_TYPE": "text"}
        )
        make_private_file(path)
        with translated(f"the SQLite file {path!r}", special=self.special_error):
            factory = SQLiteFactory(env)
            factory.application_recorder_class = AscendingRecorder
            try:
                with factory.datastore.transaction(commit=False) as cursor:
                    cursor.execute(_OF_SQLALCHEMY)
                    is_of_sqlalchemy = cursor.fetchone() is not None
                if is_of_sqlalchemy:
                    msg = f"{path} holds a log by SQLAlchemy: open it as sqlite+pysqlite:///{path}"
                    raise ConfigurationError(msg)
                recorder = factory.application_recorder()
            except sqlite3.DatabaseError as error:
                msg = f"{path} is no SQLite database: {error}"
                raise ConfigurationError(msg) from error
        assert isinstance(recorder, SQLiteApplicationRecorder), "the factory's own recorder"
        self._factory, self._sqlite = factory, recorder
        self._made: set[str] = set()
        super().__init__(recorder, mapper, SqlBlobStorage(self.ask), SqlLiveStorage(self.ask))
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
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {_IDENTITY_TABLE} (one INTEGER PRIMARY KEY, id TEXT)")
            cursor.execute(f"INSERT OR IGNORE INTO {_IDENTITY_TABLE} VALUES (1, ?)", (proposal,))  # noqa: S608
            cursor.execute(f"SELECT id FROM {_IDENTITY_TABLE}")  # noqa: S608
            return f"sqlite:{cursor.fetchone()[0]}"

    def _run(self, statement: LiteralString, *values: Value) -> list[Any]:
        is_erasing = statement.startswith(("DELETE FROM chatledger_blobs", "DELETE FROM chatledger_live"))
        with self._sqlite.datastore.transaction(commit=not statement.startswith("SELECT")) as cursor:
            if is_erasing:
                cursor.execute("PRAGMA secure_delete = ON")
            cursor.execute(statement, values)
            rows = list(cursor.fetchall())
        if is_erasing:
            self._empty_write_ahead_file()
        return rows

    def ask(self, what: str, table: LiteralString, statement: LiteralString, *values: Value) -> list[Any]:
        """The rows that a statement gives, on a table which the statement `table` makes; errors speak of `what`."""
        with self.translated(what):
            if table not in self._made:
                self._run(table)
                self._made.add(table)
            return self._run(statement, *values)

    def _ask(self, statement: LiteralString, *values: str | int) -> list[Any]:
        return self.ask("the positions of feeds", _BOOKMARKS, statement, *values)

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Implement `EventLog.load_bookmark`."""
        rows = self._ask("SELECT value, revision FROM chatledger_feeds WHERE key = ?", key)
        return decode_bookmark(rows[0]["value"].encode(), rows[0]["revision"]) if rows else None

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Implement `EventLog.save_bookmark`."""
        value = encode_bookmark(bookmark).decode()
        # Not counted up: one that was dropped and made anew must not have the revision of the old one.
        revision = 1 + secrets.randbits(62)
        if bookmark.revision:
            saved = self._ask(
                "UPDATE chatledger_feeds SET value = ?, revision = ? WHERE key = ? AND revision = ? RETURNING key",
                *(value, revision, bookmark.key, bookmark.revision),
            )
        else:
            saved = self._ask(
                "INSERT INTO chatledger_feeds (key, value, revision) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING key",
                *(bookmark.key, value, revision),
            )
        if not saved:
            raise LostRaceError
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        """Implement `EventLog.bookmarks`."""
        rows = self._ask("SELECT value, revision FROM chatledger_feeds")
        return decode_bookmarks((row["value"].encode(), row["revision"]) for row in rows)

    def drop_bookmark(self, key: str) -> None:
        """Implement `EventLog.drop_bookmark`."""
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
