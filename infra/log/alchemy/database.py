"""`Database`: the connections of a log by SQLAlchemy, its transactions, and what differs between databases."""

import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy
from eventsourcing import persistence
from eventsourcing.persistence import PersistenceError
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    delete,
    event,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from chatledger.domain.errors import ConfigurationError, LogUnavailableError, UnsupportedFormatError
from chatledger.projections.lmdb.environment import make_private_file

from ..sql import COUNTED_BYTES, IS_MOST_OF_THE_FILE, unused_bytes
from .tables import (
    BLOB_ENTRIES,
    BLOBS,
    COUNTERS,
    EMPTIED,
    EVENT_RECORDS,
    EVENTS,
    FORMAT,
    IDENTITY,
    LIVE_ENTRIES,
    METADATA,
)

if TYPE_CHECKING:
    from .postgres import PostgresPlace

POSTGRES_SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")
_LOCK_S: Final = 10
_EXTRA: Final = "pip install 'chatledger[sqlalchemy]'"
_TIMEOUTS: Final = {
    "pymysql": ("connect_timeout", "read_timeout", "write_timeout"),
    "mysqldb": ("connect_timeout", "read_timeout", "write_timeout"),
    "mariadbconnector": ("connect_timeout", "read_timeout", "write_timeout"),
    "mysqlconnector": ("connection_timeout",),
    "psycopg2": ("connect_timeout",),
    "pyodbc": ("timeout",),
}
_UNREACHED: Final = {1040, 1053, 2002, 2003, 2006, 2013}
"""Numbers of errors of MySQL and its clients while it restarts, or has all its connections in use."""
_OLD_IDENTITY: Final = "chatledger_sql_log"
_MAKING_LOCK: Final = 0x63686174  # "chat": any number that others are unlikely to lock
_MAKING_TRIES: Final = 10
_PAUSE_S: Final = 0.1
T = TypeVar("T")


@contextmanager
def library_errors() -> Generator[None]:
    """Raise errors of SQLAlchemy as those of the eventsourcing library."""
    try:
        yield
    except DBAPIError as error:
        text = " ".join(str(error.orig).split()).rstrip(".")  # without the statement, and what SQLAlchemy links to
        raise getattr(persistence, type(error).__name__, PersistenceError)(text) from error
    except SQLAlchemyError as error:
        raise PersistenceError(error) from error


def take_positions(connection: Connection, counter: str, count: int) -> int:
    """
    Return the first of the next positions of a counter, which nobody else gets. Rolled back, they are given again.

    The row is locked until the transaction ends, on every database. So transactions that take positions follow each other:
    a reader who sees a position sees all before it.
    """
    # The update comes first: a look before it would not lock the row, and two writers would get the same positions.
    connection.execute(update(COUNTERS).where(COUNTERS.c.name == counter).values(last=COUNTERS.c.last + count))
    last = connection.execute(select(COUNTERS.c.last).where(COUNTERS.c.name == counter)).scalar_one()
    return int(last) - count + 1


def set_counter(connection: Connection, counter: str, last: int) -> None:
    """Set the position that was given last."""
    connection.execute(update(COUNTERS).where(COUNTERS.c.name == counter).values(last=last))


# What SQLite keeps of an emptied row (why it keeps it: see `infra.log.sql`): under keys that nothing has, and smaller than any row that has content.
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


def replace_state(connection: Connection, position: int, before: bytes, after: bytes) -> bool:
    """Put a record in the place of another one; False when that is not there any more. The counter's row is locked."""
    # Compared here, as some databases do not compare columns of that size.
    record = EVENT_RECORDS.c.id == position
    there = connection.execute(select(EVENT_RECORDS.c.state).where(record)).scalar()
    if there is None or bytes(there) != before:
        return False
    if after != before:
        connection.execute(update(EVENT_RECORDS).where(record).values(state=after))
        if connection.dialect.name == "sqlite":
            emptied = {"last": COUNTERS.c.last + unused_bytes(before, after)}
            connection.execute(update(COUNTERS).where(COUNTERS.c.name == EMPTIED).values(emptied))
    return True


class _Deadline(threading.local):
    """Until when the operation of this thread may wait, by the monotonic clock."""

    at = math.inf


class Database:
    """
    A database with the tables of a log.

    Args:
        url: Of libpq for PostgreSQL; else for SQLAlchemy, with its driver: `mysql+pymysql://user:password@host/database`.
        timeout_s: For an operation, and making a connection for it, again and again while a server restarts.

    Raises:
        ConfigurationError: There is no such driver, or the location is malformed.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = _Deadline()
        self.postgres: PostgresPlace | None = None
        scheme = url.partition("://")[0]
        # Its pool prints a traceback for each connection that breaks, besides the error that is raised.
        options: dict[str, Any] = {"hide_parameters": True, "pool_logging_name": __name__}
        logging.getLogger(f"sqlalchemy.pool.impl.QueuePool.{__name__}").setLevel(logging.CRITICAL)
        try:
            if scheme in POSTGRES_SCHEMES:
                from . import postgres

                self.postgres = postgres.PostgresPlace(url)
                url = "postgresql+psycopg://"
            options |= _engine_options(url, timeout_s)
            engine = sqlalchemy.create_engine(url, **options)
        except ImportError as error:
            extra = "pip install 'chatledger[postgres]'" if scheme in POSTGRES_SCHEMES else f"{_EXTRA}, and the driver"
            msg = f"{scheme}:// needs a driver that is not installed ({error}): {extra}"
            raise ConfigurationError(msg) from None
        if self.postgres is not None:
            engine.dialect.do_ping = self.postgres.is_alive  # type: ignore[method-assign, assignment]  # pyright: ignore[reportAttributeAccessIssue]
        self.schema = None if self.postgres is None else self.postgres.schema
        # All connections are of one pool, also those of an engine with other options.
        self.engine: Engine = engine.execution_options(schema_translate_map={None: self.schema})
        self.dialect = engine.dialect.name
        # The pool connects by itself, also in place of a connection that broke: a server that restarts is waited for there.
        event.listen(engine, "do_connect", self._connect)
        if self.dialect == "sqlite":
            if engine.url.database:
                make_private_file(engine.url.database)
            event.listen(engine, "connect", _set_up_sqlite)
        elif self.dialect in {"mysql", "mariadb"}:
            event.listen(engine, "connect", functools.partial(_set_up_mysql, wait_s=max(1, round(timeout_s))))

    def _connect(self, dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        """Connect, also to a server that is being restarted."""
        while True:
            try:
                if self.postgres is not None:
                    return self.postgres.connect(lambda: self._deadline.at)
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError as error:
                if self.postgres is None:
                    is_unreached = bool(error.args) and error.args[0] in _UNREACHED
                else:
                    is_unreached = self.postgres.is_unreached(error)
                # A wrong password, or a database that is not there, will not be right in a second.
                if not is_unreached or time.monotonic() + _PAUSE_S > self._deadline.at:
                    raise
            time.sleep(_PAUSE_S)

    @contextmanager
    def bounded(self) -> Generator[None]:
        """Let all that this thread does in the database be over in time, and its errors be those of the library."""
        outer = self._deadline.at
        self._deadline.at = min(outer, time.monotonic() + self._timeout_s)
        try:
            with library_errors():
                yield
        finally:
            self._deadline.at = outer

    def repeat(self, work: Callable[[], T]) -> T:
        """Do what may happen twice, again whenever a connection breaks, until the time is over."""
        with self.bounded():
            while True:
                try:
                    return work()
                except DBAPIError as error:
                    # Whether the broken one had committed is unknown. A commit that had is refused now, and found by its ids.
                    if not error.connection_invalidated or time.monotonic() + _PAUSE_S > self._deadline.at:
                        raise
                time.sleep(_PAUSE_S)

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that changes nothing."""
        with self.bounded(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, is_long: bool = False) -> Generator[Connection]:
        """
        A transaction, which is rolled back when an error is raised in it.

        Args:
            is_long: Whether it may take longer than an operation does, but for its waits for others.
        """
        with self.bounded(), self.engine.begin() as connection:
            # A restore or an erasure takes as long as it has rows; only its waits for others are bounded.
            if is_long:
                self._deadline.at = math.inf
            if self.postgres is not None:
                # For this transaction only: behind a pooler, the session is another client's next.
                names = ("lock_timeout",) if is_long else ("lock_timeout", "idle_in_transaction_session_timeout")
                connection.execute(select(*(func.set_config(name, str(self.patience_ms), True) for name in names)))  # noqa: FBT003
            yield connection

    @property
    def patience_ms(self) -> int:
        """How long the server may wait, in ms. It must give up before the client does, which would not know the outcome."""
        return max(1, round(self._timeout_s * 750))

    def quoted(self, table: Table) -> str:
        """The name of a table, for statements that are not written by SQLAlchemy."""
        prepare = self.engine.dialect.identifier_preparer
        return ".".join(prepare.quote(name) for name in (self.schema, table.name) if name is not None)

    def has_tables(self) -> bool:
        """
        Whether the database holds a ledger. Nothing is made.

        Raises:
            ConfigurationError: It holds a ledger of another kind or version, or there is no such schema.
        """
        with self.reading() as connection:
            inspector = sqlalchemy.inspect(connection)
            if self.schema is not None and not inspector.has_schema(self.schema):
                msg = f"the database has no schema {self.schema!r}; make it, or correct ?schema= in the location"
                raise ConfigurationError(msg)
            if inspector.has_table(IDENTITY.name, schema=self.schema):
                columns = {column["name"] for column in inspector.get_columns(IDENTITY.name, schema=self.schema)}
                # Not by the names of tables alone: sqlite:// and older versions have tables of the same name.
                if "format" in columns:
                    return all(inspector.has_table(name, schema=self.schema) for name in METADATA.tables)
                if self.dialect == "sqlite":
                    msg = "the file holds a log of sqlite://, which is not read by SQLAlchemy; open it without a driver"
                    raise ConfigurationError(msg)
            elif not inspector.has_table(_OLD_IDENTITY, schema=self.schema):
                return False
        msg = (
            "the database holds a ledger of an older version, in tables of another form: export its chats with that version, and "
            "import them into another database"
        )
        raise ConfigurationError(msg)

    def identity(self, proposal: str) -> str:
        """
        The id that the log was given when it was made; `proposal` if that is now.

        A log that is there is not written to, for a login may not be allowed to.
        """
        tries = 0
        while True:
            tries += 1
            if self.has_tables():
                with self.reading() as connection:
                    row = connection.execute(select(IDENTITY)).first()
                if row is not None:
                    break
            try:
                with self.writing() as connection:
                    if self.postgres is not None:  # one after the other, and the next one finds all of it
                        connection.execute(select(func.pg_advisory_xact_lock(_MAKING_LOCK)))
                    # Only where nothing is there: at each open, it would ask a login for rights that it needs for nothing else, and wait for locks.
                    METADATA.create_all(connection)
                    there = set(connection.execute(select(COUNTERS.c.name)).scalars())
                    for name in {EVENTS, BLOBS, EMPTIED} - there:
                        connection.execute(insert(COUNTERS).values(name=name, last=0))
                    if connection.execute(select(IDENTITY.c.id)).first() is None:
                        connection.execute(insert(IDENTITY).values(one=1, id=proposal, format=FORMAT))
            except PersistenceError:
                # Of several who make them at the same time, other databases refuse all but one, table by table.
                if tries == _MAKING_TRIES:
                    raise
                time.sleep(_PAUSE_S)
        if row.format > FORMAT:
            msg = f"the database holds a ledger of format {row.format}, and this chatledger reads {FORMAT}; upgrade it"
            raise UnsupportedFormatError(msg)
        return f"{self.dialect}:{row.id}"

    def finish_erasing(self, *, may_write_anew: bool) -> None:
        """Give back room where that is due, and remove the old pages that the write-ahead file of SQLite still has; nothing to do for other databases."""
        if self.dialect != "sqlite":
            return
        with self.bounded(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # Written anew when more than half of it is in emptied rows.
            is_due = f"SELECT last {IS_MOST_OF_THE_FILE} FROM {COUNTERS.name} WHERE name = ?"  # noqa: S608 - all names are ours
            if may_write_anew and connection.exec_driver_sql(is_due, (EMPTIED,)).scalar():
                # On a full disk, or while others write without a pause: the next erasure tries again.
                with contextlib.suppress(OperationalError):
                    connection.exec_driver_sql("VACUUM")
                    connection.execute(update(COUNTERS).where(COUNTERS.c.name == EMPTIED).values(last=0))
            is_busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
        if is_busy:
            msg = "others use the SQLite file without a pause, so its write-ahead file still has what was deleted"
            raise LogUnavailableError(msg)

    def close(self) -> None:
        self.engine.dispose()


def _engine_options(url: str, timeout_s: float) -> dict[str, Any]:
    scheme = url.partition("://")[0]
    try:
        parsed = sqlalchemy.make_url(url)
        dialect, driver = parsed.get_backend_name(), parsed.get_driver_name()
        parsed.get_dialect()
    except (SQLAlchemyError, ValueError, ImportError):
        # Their messages may show the password.
        msg = f"the location {scheme}://… is none of SQLAlchemy: give dialect+driver://user:password@host:port/database"
        raise ConfigurationError(msg) from None
    if dialect == "sqlite":
        return {"connect_args": {"timeout": _LOCK_S}}
    options: dict[str, Any] = {"pool_pre_ping": True, "pool_timeout": timeout_s}
    # Those in the location come first: `?read_timeout=60`. A wait for a lock ends before, with an error that says so.
    names = [name for name in _TIMEOUTS.get(driver, ()) if name not in parsed.query]
    options["connect_args"] = dict.fromkeys(names, max(1, round(timeout_s)) + 1)
    if dialect in {"mysql", "mariadb", "postgresql"}:
        # Each statement sees what was committed before it, and erasing keeps no gaps locked.
        options["isolation_level"] = "READ COMMITTED"
    return options


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    try:
        # Readers go on beside a writer; what is acknowledged is on the disk; what is freed is overwritten, also where SQLite was built not to.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()


def _set_up_mysql(connection: Any, _record: Any, *, wait_s: int) -> None:
    cursor = connection.cursor()
    try:
        # InnoDB waits for 50 s by default, whatever time the caller gave.
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {wait_s}, lock_wait_timeout = {wait_s}")
    finally:
        cursor.close()
