"""
Opening the index of a ledger to be read alone: no server is started, and nothing is written to the log.

An index does not know how far its log goes. So it is compared with what does: the note of a directory at rest, the server of the
process that has the directory open, or the last row of an SQLite file.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import lmdb
from eventsourcing.persistence import Notification

from chatledger.domain.errors import ChatledgerError, ConfigurationError, LedgerLockedError, LogRegressedError
from chatledger.domain.log.codec import PREFIX
from chatledger.domain.log.parts import event_hash
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.snapshot import IndexReader

from ...log.nats_server.directory import DataDirectory, EndpointRecord, OwnerLock, unowned
from ...log.witness import read_last_seen
from ..quarantine import Quarantine
from ..temp_folders import Scratch, ScratchFolder
from . import STREAM
from .at_rest import note_at_rest, read_note
from .locations import (
    SharedIndex,
    SharedStore,
    acquire,
    check_same_keys,
    checked_sqlite_file,
    location_text,
    scheme_of,
    shared_key,
)
from .options import OpenOptions
from .presence import require_ledger, without_secrets

_BEHIND_S: Final = 2.0
"""How long an index may be behind what a writer has just put on the log, who applies it before the write returns."""
_LOOK_AGAIN_S: Final = 0.02
_ANSWER_S: Final = 2.0
_LAST: Final = (
    "SELECT originator_id, originator_version, topic, state, rowid FROM standing_events ORDER BY rowid DESC LIMIT 1"
)
_TO_MEND: Final = "Open it without read_only once, which brings its index up to date"


class LogEnd(NamedTuple):
    """The end of a log, which an index of it has to have reached; `hash` is that of the last event, empty where it is not known."""

    identity: str
    position: int
    hash: bytes = b""


class CopiedIndex(IndexReader):
    """An index copied from where nothing can be written, not even that somebody reads it. The copy goes when it is closed."""

    def __init__(self, folder: ScratchFolder, *, identity: str) -> None:
        super().__init__(folder.path, identity=identity)
        self._copy = folder

    def close(self) -> bool:
        """Implement `IndexReader.close`."""
        is_settled = super().close()
        self._copy.remove()
        return is_settled


class DirectoryIndex(IndexReader):
    """
    The index inside a directory.

    Whoever closes a directory while this has its index open cannot say that it is at rest, so that is said here then.
    """

    def __init__(self, directory: DataDirectory, *, identity: str) -> None:
        super().__init__(directory.index, identity=identity)
        self._directory = directory

    def close(self) -> bool:
        """Implement `IndexReader.close`."""
        left = None
        if read_note(self._directory) is None:
            with contextlib.suppress(ChatledgerError, lmdb.Error), self.snapshot() as snapshot:
                left = snapshot.settled()
        is_last = super().close()
        if is_last and left is not None:
            with contextlib.suppress(ChatledgerError):
                lock = OwnerLock.try_take(self._directory.lock_file)
                if lock is not None:  # nobody has the directory open
                    note_at_rest(self._directory, self.identity, left)
                    lock.release()
        return is_last


@system_errors("the ledger cannot be opened")
def open_index(options: OpenOptions) -> SharedStore | SharedIndex:
    """
    Return the index at a location, opened to be read alone; the store that has it where this process has one open. To be released.

    Raises:
        ConfigurationError: There is no ledger, no index that can be read alone, or an option is about writing. Nothing was changed.
        LedgerLockedError: A process has the directory open and does not answer.
        LogRegressedError: The log lost events that the index has seen.
    """
    text = location_text(options)
    scheme = scheme_of(text)
    _refuse_writing(options)
    options.check_place(scheme, text)
    if scheme == "path" and text != "memory:":
        directory = DataDirectory(text)
        if options.index is not None or options.encryption is not None:
            msg = "read_only=True reads the index inside a directory; leave out index= and encryption=, or open it without read_only"
            raise ConfigurationError(msg)
        folder, find_end = directory.index, partial(_end_of_directory, directory, options.timeout_s)
        make: Callable[..., IndexReader] = partial(DirectoryIndex, directory)
    elif scheme == "sqlite":
        file = checked_sqlite_file(text)
        if options.index is None and options.encryption is not None:
            msg = "the index of an encrypted log is kept in memory; with read_only=True give index= of one that is on a disk"
            raise ConfigurationError(msg)
        folder = options.index or file.with_name(f"{file.name}-index")
        make = partial(IndexReader, folder)
        find_end = partial(_end_of_file, file, options)
    else:
        msg = (
            f"read_only=True is for directories and sqlite:///file.db, whose index is read alone, and not for {without_secrets(text)!r}; "
            "open a server's log with a login that may only read"
        )
        raise ConfigurationError(msg)
    require_ledger(text)
    key, shown = shared_key(text, scheme, options)
    shared = acquire(key, lambda: SharedIndex(key, shown, _opened(make, folder, shown, find_end().identity)))
    try:
        if isinstance(shared, SharedStore):
            check_same_keys(shared, options)
        else:  # looked up again: it may have been open in this process for long
            _check(shared.store, shown, find_end)
            if scheme == "path":
                shared.store.refuse = Quarantine(DataDirectory(text).path).refusal()
    except BaseException:
        shared.release()
        raise
    return shared


def _refuse_writing(options: OpenOptions) -> None:
    """Raise `ConfigurationError` for options that want something written."""
    wants = {
        "create": options.create,
        "sweep_every_s": options.sweep_every_s,
        "projections": options.projections,
        "embed": options.embed,
    }
    for name, value in wants.items():
        if value:
            msg = f"{name}= is of no use with read_only=True, as it has something written; leave one of them out"
            raise ConfigurationError(msg)


def _opened(make: Callable[..., IndexReader], folder: Path, shown: str, identity: str) -> IndexReader:
    """The index in a folder."""
    if not (folder / "CURRENT").exists():  # opening it would make one
        msg = f"{shown} has no index in {folder}. {_TO_MEND}"
        raise ConfigurationError(msg)
    index = make(identity=identity) if os.access(folder, os.W_OK) else _copied(folder, identity)
    try:
        reason = index.open()
    except BaseException:
        index.close()
        raise
    if reason is not None:
        index.close()
        msg = f"the index of {shown} cannot be read alone: {reason}. {_TO_MEND}"
        raise ConfigurationError(msg)
    return index


def _copied(folder: Path, identity: str) -> IndexReader:
    """A copy of the index in a folder."""
    copy = Scratch().take()
    try:
        shutil.copytree(folder, copy.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lock.mdb"))
        return CopiedIndex(copy, identity=identity)
    except BaseException:
        copy.remove()
        raise


def _check(index: IndexReader, shown: str, find_end: Callable[[], LogEnd]) -> None:
    """Raise `ConfigurationError` for an index that is behind its log, or of another one, `LogRegressedError` where the log lost events."""
    seen = index.state  # before the end is looked up, which goes on meanwhile
    end = find_end()
    if index.identity != end.identity:
        msg = f"the index of {shown} is of another log. {_TO_MEND}"
        raise ConfigurationError(msg)
    if end.position < seen.position or (end.position == seen.position and end.hash not in {b"", seen.hash}):
        raise LogRegressedError(last_position=end.position, seen_position=seen.position)
    deadline = time.monotonic() + _BEHIND_S
    while (position := index.state.position) < end.position:
        if time.monotonic() > deadline:
            msg = f"the index of {shown} is at position {position}, and its log ends at {end.position}. {_TO_MEND}"
            raise ConfigurationError(msg)
        time.sleep(_LOOK_AGAIN_S)


def _end_of_directory(directory: DataDirectory, timeout_s: float) -> LogEnd:
    """The end of the log of a directory at rest, or of one that a process has open."""
    deadline = time.monotonic() + timeout_s
    while True:
        note = read_note(directory)
        if note is not None:
            return LogEnd(note.identity, note.state.position, note.state.hash)
        try:
            with unowned(directory.lock_file) as is_unowned:
                is_owned = not is_unowned
        except FileNotFoundError:
            is_owned = False
        if not is_owned:
            msg = (
                f"{directory.path} is not at rest: who had it open did not close it, or it was copied or changed since, or the machine "
                f"was started anew; its index alone may lack something. {_TO_MEND}"
            )
            raise ConfigurationError(msg)
        record = directory.read_endpoint()
        end = None if record is None else _asked(record)
        if end is not None:
            return end
        if time.monotonic() > deadline:
            msg = f"another process has {directory.path} open, and its server does not answer; waited {timeout_s:g} s. Try again"
            raise LedgerLockedError(msg)
        time.sleep(_LOOK_AGAIN_S)


def _asked(record: EndpointRecord) -> LogEnd | None:
    """The end of the log as the server of another process says; None when it does not, or not yet."""
    from ...log.nats.blocking_connection import BlockingConnection
    from ...log.nats.endpoint import Endpoint
    from ...log.nats.errors import ApiError
    from ...log.nats.stream import StreamInfo
    from ...log.nats.transport import TRANSIENT, ask_api

    endpoint = Endpoint(urls=(record.url,), token=record.token, server_name=record.server_name)
    try:
        with contextlib.closing(BlockingConnection(endpoint, threading.Lock(), timeout_s=_ANSWER_S)) as connection:
            info = ask_api(connection, f"STREAM.INFO.{STREAM}", b"", StreamInfo, time.monotonic() + _ANSWER_S)
    except (ApiError, *TRANSIENT):
        return None
    return LogEnd(info.identity, info.state.last)


def _end_of_file(file: Path, options: OpenOptions) -> LogEnd:
    """The end of the log in an SQLite file."""
    import sqlite3

    witnessed = read_last_seen(file.with_name(f"{file.name}-witness"))
    # Without the file of a writer beside it, SQLite would make its own for a mere look.
    how = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True)) as database:
            ((log_id,),) = database.execute("SELECT id FROM chatledger_log")
            rows = [Notification(*row) for row in database.execute(_LAST)]
    except sqlite3.Error as error:
        msg = f"{file} cannot be read alone: {error}. Open it without read_only"
        raise ConfigurationError(msg) from error
    if not rows:
        return LogEnd(f"sqlite:{log_id}", 0)
    last = rows[0]
    if witnessed is not None and witnessed.position > last.id:
        raise LogRegressedError(last_position=last.id, seen_position=witnessed.position)
    # It also tells whether the keys are those of the log.
    is_own = last.topic.startswith(PREFIX)
    return LogEnd(f"sqlite:{log_id}", last.id, event_hash(options.mapper.event_bytes(last)) if is_own else b"")
