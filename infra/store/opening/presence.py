"""Locations: how they are shown, and whether there is a ledger at one, without making it."""

import contextlib
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from chatledger.domain.errors import ConfigurationError, LogUnavailableError
from chatledger.projections.lmdb.environment import absolute_path
from chatledger.projections.operating_system import HAS_EMBEDDED_SERVER

_EVENTS_TABLE: Final = "stored_events"
POSTGRES_SCHEMES: Final = ("postgresql", "postgres")
_PATIENCE_S: Final = 2
_HAS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
_HIDDEN: Final = re.compile(r"(?<=://).*@", re.DOTALL)
"""A secret that was not percent-encoded may contain what ends the part of a URL where it stands."""
_FILES: Final = ("sqlite:", "file:")
_HIDDEN_IN_QUERY: Final = re.compile(
    r"(?<=[?&])([^=&]*(?:pass|pwd|token|secret|key|cred|seed|odbc)[^=&]*=)[^&#]*", re.IGNORECASE
)


def without_secrets(location: str) -> str:
    """The location as it may be shown, whether or not it is a valid one."""
    if location.startswith(_FILES):
        return location
    return _HIDDEN_IN_QUERY.sub(r"\1…", _HIDDEN.sub("…@", location))


def sqlite_file(location: str) -> Path:
    """The file of a location on SQLite. Raises `ConfigurationError` where it names none."""
    parts = urlsplit(location)
    if parts.netloc or not parts.path.strip("/"):
        file = unquote(parts.netloc + parts.path).strip("/") or "chats.db"
        msg = f"{location} names no file: a file has three slashes before it, as in sqlite:///{file}, and four where it begins with one"
        raise ConfigurationError(msg)
    return absolute_path(unquote(parts.path.removeprefix("/")))


def is_alchemy(scheme: str) -> bool:
    """Whether a scheme is PostgreSQL's, or names a database with its driver, as SQLAlchemy's URLs do: `mysql+pymysql`."""
    dialect, plus, driver = scheme.partition("+")
    return scheme in POSTGRES_SCHEMES or (bool(plus) and dialect.isidentifier() and driver.isidentifier())


def has_ledger(location: str) -> bool:
    """
    Whether opening a location finds a ledger rather than makes one. Nothing is written.

    True also where opening it says more: for NATS servers, for a path at which something else is or none can be, and without a location.

    Raises:
        LogUnavailableError: No database server answers.
    """
    try:
        if location.startswith("sqlite://"):
            return _is_sqlite_ledger(sqlite_file(location))
        if is_alchemy(location.partition("://")[0]):
            return _is_alchemy_ledger(location)
        if "://" in location or location in {"", "memory:"}:
            return True
        if not HAS_EMBEDDED_SERVER:
            return True
        path = absolute_path(location)
        return path.exists() and not (path.is_dir() and not any(path.iterdir()))
    except (OSError, ValueError):  # a name that is too long, a folder of others
        return True


def require_ledger(location: str, *, hint: str = "") -> None:
    """
    Raise unless there may be a ledger at a location, see `has_ledger`. Nothing is written.

    Args:
        location: Where it should be.
        hint: What the error says besides.

    Raises:
        ConfigurationError: There is none.
        LogUnavailableError: No PostgreSQL server answers.
    """
    if not has_ledger(location):
        msg = f"there is no ledger at {without_secrets(location)}{hint}"
        raise ConfigurationError(msg)


def _is_sqlite_ledger(file: Path) -> bool:
    if not file.is_file():
        return file.exists()
    if file.with_name(f"{file.name}-wal").exists():
        return True  # it is in use, and may be there as a whole
    import sqlite3

    try:
        # Otherwise reading would make files beside it.
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro&immutable=1", uri=True)) as database:
            return database.execute(_HAS_TABLE, (_EVENTS_TABLE,)).fetchone() is not None
    except sqlite3.Error:
        return True


def _is_alchemy_ledger(location: str) -> bool:
    if location.startswith("sqlite") and not sqlite_file(location).is_file():
        return False
    from eventsourcing.persistence import OperationalError, PersistenceError

    try:
        from ...log.alchemy.database import Database
    except ImportError:
        return True
    try:
        database = Database(location, timeout_s=_PATIENCE_S)
        with contextlib.closing(database):
            return database.has_tables()
    except OperationalError as error:
        explanation = re.sub(r"Is the server running[^?]*\?", "", str(error))
        msg = f"the database cannot be used: {' '.join(explanation.split()).rstrip('.')}. Start it, or correct the location"
        raise LogUnavailableError(msg) from error
    except (PersistenceError, ConfigurationError):  # opening it says more
        return True
