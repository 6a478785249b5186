"""`Database`: the connections of a log by SQLAlchemy, its transactions, and what differs between databases."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy
from eventsourcing.persistence import PersistenceError
from eventsourcing_sqlalchemy.datastore import SQLAlchemyDatastore, exception_classes
from sqlalchemy import Connection, Engine, event, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from chatledger.domain.errors import ConfigurationError, LogUnavailableError

from .tables import BLOBS, COUNTERS, EVENTS, IDENTITY, METADATA, PREFIX, PositionedEvent

_LOCK_S: Final = 10
_EXTRA: Final = "pip install 'chatledger[sqlalchemy]'"
_CONNECT_TIMEOUTS: Final = {
    "pymysql": "connect_timeout",
    "mysqldb": "connect_timeout",
    "mariadbconnector": "connect_timeout",
    "mysqlconnector": "connection_timeout",
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "pyodbc": "timeout",
}
_NATIVE_TABLE: Final = "chatledger_log"


@contextmanager
def library_errors() -> Generator[None]:
    """Raise errors of SQLAlchemy as those of the eventsourcing library."""
    try:
        yield
    except DBAPIError as error:
        raise exception_classes.get(type(error).__name__, PersistenceError)(error) from error
    except SQLAlchemyError as error:
        raise PersistenceError(error) from error


def take_positions(connection: Connection | Session, counter: str, count: int) -> int:
    """
    Return the first of the next positions of a counter, which nobody else gets. Rolled back, they are given again.

    The row is locked until the transaction ends, on every database. So transactions that take positions follow each other:
    a reader who sees a position sees all before it.
    """
    connection.execute(update(COUNTERS).where(COUNTERS.c.name == counter).values(last=COUNTERS.c.last + count))
    last = connection.execute(select(COUNTERS.c.last).where(COUNTERS.c.name == counter)).scalar_one()
    return int(last) - count + 1


def set_counter(connection: Connection, counter: str, last: int) -> None:
    """Set the position that was given last."""
    connection.execute(update(COUNTERS).where(COUNTERS.c.name == counter).values(last=last))


class Database:
    """
    A database with the tables of a log, which are made where they are missing.

    Args:
        url: For SQLAlchemy, with its driver: `mysql+pymysql://user:password@host/database`.
        timeout_s: For making a connection.

    Raises:
        ConfigurationError: There is no such driver, or the database holds a log of another kind.
        PersistenceError: Of the eventsourcing library, when the database does not answer.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        scheme = url.partition("://")[0]
        options = _engine_options(url, timeout_s)
        try:
            self.datastore = SQLAlchemyDatastore(url=url, hide_parameters=True, **options)
        except ImportError as error:
            msg = f"{scheme}:// needs a driver that is not installed ({error}): {_EXTRA}, and the driver"
            raise ConfigurationError(msg) from None
        engine = self.datastore.engine
        assert isinstance(engine, Engine), "the library makes an engine of a URL"
        self.engine = engine
        self.dialect = engine.dialect.name
        if self.dialect == "sqlite":
            event.listen(engine, "connect", _set_up_sqlite)
        self.datastore.base_stored_event_record_cls = PositionedEvent  # pyright: ignore[reportAttributeAccessIssue]  # untyped
        try:
            with library_errors():
                self._make_tables()
        except BaseException:
            engine.dispose()
            raise

    def _make_tables(self) -> None:
        with self.engine.connect() as connection:
            inspector = sqlalchemy.inspect(connection)
            is_native = self.dialect in {"sqlite", "postgresql"} and inspector.has_table(_NATIVE_TABLE)
            if is_native and not inspector.has_table(IDENTITY.name):
                msg = f"the database holds a log of {self.dialect}://, which is not read by SQLAlchemy; open it without a driver"
                raise ConfigurationError(msg)
        self.make(METADATA.create_all)
        for counter in (EVENTS, BLOBS):
            self.insert_if_absent(insert(COUNTERS).values(name=counter, last=0))

    def make(self, create: Callable[[Engine], object]) -> None:
        """Make tables that are missing. Of several who make them at the same time, databases refuse all but one."""
        try:
            create(self.engine)
        except DBAPIError:
            create(self.engine)

    def insert_if_absent(self, statement: Any) -> None:
        """Insert a row unless there is one with its key."""
        try:
            with self.engine.begin() as connection:
                connection.execute(statement)
        except IntegrityError:
            pass

    def identity(self, proposal: str) -> str:
        """The id that the log was given when it was made; `proposal` if that is now."""
        with library_errors():
            self.insert_if_absent(insert(IDENTITY).values(one=1, id=proposal))
            with self.reading() as connection:
                return f"{self.dialect}:{connection.execute(select(IDENTITY.c.id)).scalar_one()}"

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that changes nothing."""
        with library_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """A transaction, which is rolled back when an error is raised in it."""
        with library_errors(), self.engine.begin() as connection:
            yield connection

    def empty_write_ahead_file(self) -> None:
        """Remove the old pages that the write-ahead file of SQLite still has; nothing to do for other databases."""
        if self.dialect != "sqlite":
            return
        with library_errors(), self.engine.connect() as connection:
            is_busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
        if is_busy:
            msg = "others use the SQLite file without a pause, so its write-ahead file still has what was deleted"
            raise LogUnavailableError(msg)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def has_tables(url: str, timeout_s: float) -> bool:
    """Whether a database has the tables of a log. Nothing is made. Raises an error of SQLAlchemy without an answer."""
    engine = sqlalchemy.create_engine(url, hide_parameters=True, **_engine_options(url, timeout_s))
    try:
        with engine.connect() as connection:
            return sqlalchemy.inspect(connection).has_table(f"{PREFIX}_log")
    finally:
        engine.dispose()


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
    if driver in _CONNECT_TIMEOUTS:
        options["connect_args"] = {_CONNECT_TIMEOUTS[driver]: max(1, round(timeout_s))}
    if dialect in {"mysql", "mariadb"}:
        # Each statement sees what was committed before it, and erasing keeps no gaps locked.
        options["isolation_level"] = "READ COMMITTED"
    return options


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()
