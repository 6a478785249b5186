"""From a location to a log and an index; ledgers of one process at one place share server, connection and index."""

import os
import re
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.extras import needing
from chatledger.projections.lmdb.environment import check_path
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.operating_system import call_in_forked_child

from ...log.nats_server.directory import DataDirectory
from .options import LogOnly, OpenedLog, OpenOptions, cache_of
from .presence import is_alchemy, sqlite_file, without_secrets

if TYPE_CHECKING:
    from chatledger.projections.snapshot import IndexReader

    from ...log.port import EventLog
    from ..store import Store


class _Closeable(Protocol):
    def close(self) -> object: ...


S = TypeVar("S", bound=_Closeable)


class Shared(Generic[S]):
    """A store or an index that the ledgers of a process share at one place, and how many of them hold it."""

    def __init__(self, key: str | None, location: str, store: S) -> None:
        self.key, self.location, self.store = key, location, store
        self.holders = 0

    def release(self) -> None:
        """Give up a hold; the last one closes the store."""
        with _lock:
            self.holders -= 1
            if self.holders:
                return
            if self.key is not None and self.key in _open and _open[self.key] is self:
                del _open[self.key]
            # Under the lock, too: whoever opens it next would meet a server that ends.
            self.store.close()


class SharedStore(Shared["Store"]):
    """A store and how many ledgers hold it."""

    def __init__(self, key: str | None, location: str, store: "Store", durability: str) -> None:
        super().__init__(key, location, store)
        self.durability = durability


class SharedIndex(Shared[Any]):
    """An index that is read alone, and how many ledgers hold it."""

    store: "IndexReader"


_lock = threading.RLock()
_open: dict[str, SharedStore | SharedIndex] = {}


def _forget() -> None:
    """A forked child has none of the parent's threads and connections: it begins with nothing open."""
    global _lock  # noqa: PLW0603 - a lock that another thread held when the process forked is held for ever
    _lock = threading.RLock()
    _open.clear()


call_in_forked_child(_forget)


def acquire(key: str, make: Callable[[], SharedStore | SharedIndex]) -> SharedStore | SharedIndex:
    """Return the store or the index that is open under that key, or a new one. `Shared.release` must follow."""
    with _lock:
        shared = _open.get(key)
        if shared is None:
            # Under the lock: two threads that open the same directory at once must not start two servers. Others wait, also for another place.
            shared = _open[key] = make()
        shared.holders += 1
        return shared


@system_errors("the ledger cannot be opened")
def open_shared(options: OpenOptions) -> SharedStore:
    """
    Return the store that the options name, shared with others who have it open in this process.

    Raises:
        ConfigurationError: There can be no ledger at that location.
        ChatledgerError: See `chatledger.open`.
    """
    text = location_text(options)
    # Before a directory, a file or a stream is made that could not be opened then.
    options.prepare()
    scheme = scheme_of(text)
    options.check_place(scheme, text)
    if text == "memory:":
        from ...log.memory import MemoryLog

        folder = options.scratch.take()
        opened = OpenedLog(MemoryLog(options.mapper), folder.path, on_close=(folder.remove,))
        own = SharedStore(None, text, options.store(opened), options.durability)
        own.holders = 1
        own.store.meaning.attach(options.embed)
        return own
    opener = _opener(scheme)
    if opener is None:
        msg = (
            f"unknown location {without_secrets(text)!r}: give the path of a directory, nats://host:port, "
            "sqlite:///file.db, postgresql://…, memory:, or a database of SQLAlchemy with its driver, such as mysql+pymysql://…"
        )
        raise ConfigurationError(msg)
    key, shown = shared_key(text, scheme, options)
    shared = acquire(key, lambda: SharedStore(key, shown, options.store(opener(text, options)), options.durability))
    if isinstance(shared, SharedIndex):
        shared.release()
        msg = f"{shown} is open in this process with read_only=True; close it first"
        raise ConfigurationError(msg)
    try:
        _check_durability(shared, options)
        check_same_keys(shared, options)
        if options.erase == "wait":  # whoever asked for less gets more
            shared.store.erases_soon = False
        if options.redactor is not None:
            shared.store.redactor = options.redactor
        shared.store.projections.attach(options.projections, options.progress)
        shared.store.meaning.attach(options.embed)
    except BaseException:
        shared.release()
        raise
    return shared


def location_text(options: OpenOptions) -> str:
    """Return the location as text. Raises `ConfigurationError` where it is none."""
    location = options.location
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else ""
    if not text:
        msg = "the location must be the path of a directory, or another place such as sqlite:///chats.db; this is no text, or an empty one"
        raise ConfigurationError(msg)
    return text


def shared_key(text: str, scheme: str, options: OpenOptions) -> tuple[str, str]:
    """Return the key under which a process shares what is open at a location, and the location as it is shown."""
    # Two ways to one directory are one ledger.
    name = os.path.realpath(DataDirectory(text).path) if scheme == "path" else text
    shown = text if scheme == "path" else without_secrets(text)
    return f"{name}\n{options.index or ''}\n{hash(options.login)}\n{options.share}", shown


def _check_durability(shared: SharedStore, options: OpenOptions) -> None:
    """Raise `ConfigurationError` where a store that is open does less than the options ask for."""
    if options.durability == "always" and shared.durability == "fast":
        msg = f"{shared.location} is open in this process with durability 'fast', which is less than 'always'; close it first"
        raise ConfigurationError(msg)


def check_same_keys(shared: SharedStore, options: OpenOptions) -> None:
    """Raise `ConfigurationError` unless the options have the encryption keys of a store that is open."""
    # Who cannot show the keys must not get the messages by way of another part of the process that has them.
    from ...log.cipher import RecordCipher

    cipher, own = shared.store.log.cipher, options.mapper.cipher
    if (cipher and cipher.keys) != (own.keys if isinstance(own, RecordCipher) else None):
        msg = f"{shared.location} is open in this process with other encryption keys, or without; close it first"
        raise ConfigurationError(msg)


def _open_sqlite(location: str, options: OpenOptions) -> OpenedLog:
    from ...log.sql import SqliteLog

    path = checked_sqlite_file(location)
    log = SqliteLog(str(path), mapper=options.mapper)
    return options.with_witness(log, path.with_name(f"{path.name}-index"), path.with_name(f"{path.name}-witness"))


def checked_sqlite_file(location: str) -> Path:
    """The file of a location on SQLite. Raises `ConfigurationError` when it can be none."""
    path = check_path(sqlite_file(location))  # its index lies beside it
    if path.is_dir() or not path.parent.is_dir():
        msg = f"{path} cannot be an SQLite file: its folder does not exist, or it is a folder"
        raise ConfigurationError(msg)
    return path


def _open_alchemy(location: str, options: OpenOptions) -> OpenedLog:
    scheme = location.partition("://")[0]
    with needing("postgres" if scheme.startswith("postgres") else "sqlalchemy", f"{scheme}://"):
        from ...log.alchemy.event_log import AlchemyLog
    if not scheme.startswith("sqlite+"):
        log = AlchemyLog(location, timeout_s=options.timeout_s, mapper=options.mapper)
        return options.with_witness(log, cache_of(log))
    path = checked_sqlite_file(location)
    log = AlchemyLog(f"{scheme}:///{path}", timeout_s=options.timeout_s, mapper=options.mapper)
    return options.with_witness(log, path.with_name(f"{path.name}-index"), path.with_name(f"{path.name}-witness"))


def open_unshared(options: OpenOptions) -> OpenedLog:
    """Open the log that the options name, for nobody else of this process to share."""
    text = os.fspath(options.location)
    scheme = scheme_of(text)
    opener = _opener(scheme)
    if opener is None:
        msg = (
            f"{without_secrets(text)!r} is no place that outlives its process: give a directory, nats://, sqlite://, postgresql:// "
            "or a database of SQLAlchemy with its driver"
        )
        raise ConfigurationError(msg)
    options.check_place(scheme, text)
    options.prepare()
    return opener(text, options)


def scheme_of(location: str) -> str:
    """The scheme of a location, `path` where it has none."""
    before, slashes, _ = location.partition("://")
    # `sqlite:chats.db` is a mistyped URL: taken for a path, it would silently make a directory of that name.
    if not slashes and (half_url := re.match(r"(sqlite|nats|tls|postgres(ql)?):", location)):
        return half_url[0]
    return before if slashes else "path"


def _opener(scheme: str) -> Callable[[str, OpenOptions], OpenedLog] | None:
    """Return the function that opens locations of a scheme, None for an unknown one."""
    if is_alchemy(scheme):
        return _open_alchemy
    if scheme == "sqlite":
        return _open_sqlite
    if scheme not in {"path", "nats", "tls"}:
        return None
    # Imported here: the client of NATS takes as long to import as all the rest, and a ledger in a file or in memory does without.
    from .on_servers import open_nats, open_path

    return open_path if scheme == "path" else open_nats


@contextmanager
def log_at(options: LogOnly) -> Generator["EventLog"]:
    """Open the log that the options name. Raises `ChatledgerError` as `chatledger.open` does, where that is not about the index."""
    with closing(open_unshared(options)) as opened:
        yield opened.log
