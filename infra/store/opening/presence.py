"""Whether there is a ledger at a location, without making one."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

_EVENTS_TABLE: Final = "stored_events"
_HAS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"


def sqlite_file(location: str) -> Path:
    """The file of a location on SQLite."""
    return Path(unquote(urlsplit(location).path.removeprefix("/"))).expanduser().absolute()


def has_ledger(location: str) -> bool:
    """
    Whether opening a location finds a ledger rather than makes one. Nothing is written.

    True also where opening it says more: for servers, and for a path at which something else is.
    """
    try:
        if location.startswith("sqlite://"):
            return _is_sqlite_ledger(sqlite_file(location))
        if "://" in location or location == "memory:":
            return True
        path = Path(location).expanduser()
        return path.exists() and not (path.is_dir() and not any(path.iterdir()))
    except (OSError, RuntimeError, ValueError):  # a name that is too long, a user who has no home, a folder of others
        return True


def _is_sqlite_ledger(file: Path) -> bool:
    if not file.is_file():
        return file.exists()
    if file.with_name(f"{file.name}-wal").exists():
        return True  # it is in use, and may be there as a whole
    try:
        # Otherwise reading would make files beside it.
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro&immutable=1", uri=True)) as found:
            return found.execute(_HAS_TABLE, (_EVENTS_TABLE,)).fetchone() is not None
    except sqlite3.Error:
        return True
