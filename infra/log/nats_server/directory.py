"""
The data directory: what lies where, and whether it is ours.

    format.json      {"format": 2}
    lock             held by the owner and by its server, see `lock.py`
    nats.conf        written at every start
    endpoint.json    how other processes find the live server; mode 0600, it holds the token
    server.log       what the server prints
    erasing-*        erasures under way, or interrupted, see `erasures.py`
    log/             the JetStream store: the truth
    witness/         how far the log went, see `chatledger.infra.log.witness`
    seals            what the blocks of the log held when they were written, see `seals.py`
    at-rest          whether the index can be read without a server, see `chatledger.infra.store.opening.at_rest`
    index/           derived from the log by `chatledger.projections`
"""

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ConfigurationError, LogUnavailableError, UnsupportedFormatError
from chatledger.projections.lmdb.environment import absolute_path, check_path, make_folder
from chatledger.projections.lmdb.system_errors import explained, reason_of
from chatledger.projections.operating_system import (
    HAS_EMBEDDED_SERVER,
    OPEN_FLAGS,
    call_in_forked_child,
    lock_file,
    replace,
    sync,
    unlock_file,
)

from .blocks import block_files


class OwnerLock:
    """
    A held lock. `flock` belongs to the open file description, so every process with the descriptor holds it.

    Taken by `try_take`. Pass `descriptor` to the server; after kill -9 of the owner the lock then stays until the
    server has ended, and nobody starts a second server on the same store.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._is_open = True
        _held.add(self)

    @classmethod
    def try_take(cls, path: Path) -> Self | None:
        """
        Take the lock, or return None when somebody has it.

        Raises:
            ConfigurationError: The file cannot be opened, or the file system has no locks.
        """
        try:
            # Not inherited by programs in general: only the server is given it by name.
            lock = cls(os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600))
        except OSError as error:
            msg = f"the lock {path} cannot be opened"
            raise explained(error, msg) or ConfigurationError(f"{msg}: {reason_of(error)}") from error
        try:
            lock_file(lock.descriptor)
            # A lock on a file that was deleted meanwhile excludes nobody.
            is_current = os.path.samestat(os.fstat(lock.descriptor), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_current = False
        except OSError as error:
            lock.abandon()
            msg = f"the lock {path} cannot be taken ({error}); keep the data directory on a local file system"
            raise ConfigurationError(msg) from error
        except BaseException:
            lock.abandon()
            raise
        if is_current:
            return lock
        lock.abandon()
        return None

    def release(self) -> None:
        """Free the lock for everybody, copies of the descriptor included. Only when the server has ended."""
        if self._is_open:
            with contextlib.suppress(OSError):
                unlock_file(self.descriptor)
            self.abandon()

    def abandon(self) -> None:
        """Close our copy of the descriptor; the lock lives on in the others."""
        if self._is_open:
            self._is_open = False
            _held.discard(self)
            os.close(self.descriptor)


@contextlib.contextmanager
def unowned(path: Path) -> Generator[bool]:
    """
    Keep owners out for a moment, if there is none; gives whether that is so. Others may do the same meanwhile.

    Raises:
        OSError: The file is not there, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        # Shared: several may look at a directory at rest at the same time.
        lock_file(descriptor, is_shared=True)
    except BlockingIOError:
        yield False
    else:
        yield os.path.samestat(os.fstat(descriptor), path.stat())
    finally:
        os.close(descriptor)


_held: set[OwnerLock] = set()


def _abandon_all() -> None:
    for lock in list(_held):
        lock.abandon()


# A forked worker that outlives the owner would keep a lock that it does not know it has.
call_in_forked_child(_abandon_all)


FORMAT = 10
"""
The form of what is in a directory. It is raised whenever records get a new form, which a test over recorded bytes demands: an older
version would take them for damaged, and says instead that it is to be upgraded.
"""
_OLDEST_FORMAT: Final = 9
"""The form from which on all are read; the number of a directory in an older one is raised as it is opened."""
FORMAT_FILE = "format.json"
CHECKED = "erasures-checked"
RESERVE_BYTES = 12 * 1024 * 1024
"""The space left free on a disk: an event that the log took has room in the index too, and the server can end cleanly."""
_BLOCK_BYTES: Final = 16 * 1024 * 1024
"""More than a block takes: where so much is free for each, nobody need look."""
_BESIDES_BYTES: Final = 64 * 1024
"""Notes of the server on a stream, which it writes besides."""
_DELETED = "."
"""Begins the name of the folder of a stream that is deleted, and of which a killed server has left something."""
LOST_AND_FOUND = "lost+found"  # the root of a freshly made ext4 volume is not empty

Durability = Literal["always", "fast"]


class FormatRecord(msgspec.Struct, frozen=True):
    """The content of `format.json`."""

    format: int


class EndpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """
    The content of `endpoint.json`: the live server as its owner describes it to other processes.

    Args:
        format: Of the data directory.
        url: `nats://127.0.0.1:port`.
        token: The server's secret of this start. Not in the `repr`.
        server_name: Random per start; the server at `url` must give itself this name.
        owner_pid, server_pid: In the PID namespace of the owner, which need not be the reader's.
        pid_space: Which one that is, see `pid_space`.
        durability: What the server was started with.
        stream: The stream that holds the log.
    """

    format: int
    url: str
    token: str
    server_name: str
    owner_pid: int
    server_pid: int
    durability: Durability
    stream: str
    pid_space: str = ""

    @property
    def has_our_pids(self) -> bool:
        """Whether its process numbers are those of this process's PID namespace, and not somebody else's there."""
        return self.pid_space == pid_space()

    @property
    def owner(self) -> str:
        return (
            f"process {self.owner_pid}" if self.has_our_pids else "a process in another container or on another machine"
        )

    def __repr__(self) -> str:
        return f"EndpointRecord({self.server_name} at {self.url}, pid {self.server_pid}, owner {self.owner_pid})"


def pid_space() -> str:
    """Return what tells a PID namespace, of one run of a machine, from others; empty where that is not known."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class DataDirectory:
    """
    The layout of one data directory. Nothing is read or written before `prepare`.

    Args:
        path: Made absolute at once, so that a later `chdir` changes nothing. A leading `~` is the home directory.

    Raises:
        ConfigurationError: The path is not UTF-8, or its home directory is not known; or this system has no directories, see
            `HAS_EMBEDDED_SERVER`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not HAS_EMBEDDED_SERVER:
            msg = (
                f"{os.fspath(path)!r} is a directory, and the server that keeps one does not run on Windows yet; use a file "
                "(sqlite:///chats.db), memory:, or a NATS server of your own (nats://host:4222)"
            )
            raise ConfigurationError(msg)
        self.path = check_path(absolute_path(path))
        self.lock_file = self.path / "lock"
        self.config_file = self.path / "nats.conf"
        self.endpoint_file = self.path / "endpoint.json"
        self.server_log = self.path / "server.log"
        self.log = self.path / "log"
        self.index = self.path / "index"
        self.witness = self.path / "witness"
        self.seals_file = self.path / "seals"

    def __repr__(self) -> str:
        return f"DataDirectory({str(self.path)!r})"

    def prepare(self) -> None:
        """
        Create the directory with mode 0700, or check that it is one of ours. Safe to call at any time, by many processes.

        Raises:
            ConfigurationError: The path is a file, cannot be written, or holds something else. Nothing was written.
            UnsupportedFormatError: A newer chatledger wrote it, or one before 0.1. Nothing was written.
        """
        with self._explain():
            _make_folder(self.path)
            if self._found_format() != FORMAT:
                self._format()
            # Told now, in words: the server would end with a line in its log.
            if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
                msg = f"{self.path} cannot be written by this process; change its owner or permissions"
                raise ConfigurationError(msg)

    @property
    def is_read_only(self) -> bool:
        """Whether it is one of ours, on a file system that is mounted for reading only."""
        try:
            return bool(os.statvfs(self.path).f_flag & os.ST_RDONLY) and self._found_format() is not None
        except OSError:
            return False

    def has_stream(self, name: str) -> bool:
        """
        Whether the store on disk has a folder for this stream, whatever the server says about it.

        Tells "never created" from "lost": a server that does not report a stream which is here could not read it.
        """
        folder = self.streams / name
        return folder.is_dir() and not _is_half_made(folder)

    @property
    def streams(self) -> Path:
        return self.log / "jetstream" / "$G" / "streams"

    def stream_folders(self) -> list[Path]:
        """Return the folders of the streams in the store, by name. Live streams are left out: they may be lost."""
        from ..nats.live import is_live_stream

        return sorted(
            folder for folder in self.streams.glob("*") if folder.is_dir() and not is_live_stream(folder.name)
        )

    def read_endpoint(self) -> EndpointRecord | None:
        """Return the endpoint of the owner; None when there is none, it is not ready, or its file is not readable to us."""
        try:
            return msgspec.json.decode(self.endpoint_file.read_bytes(), type=EndpointRecord)
        except (OSError, *DECODE_ERRORS):
            return None

    def write(self, file: Path, content: bytes) -> None:
        """
        Replace one of the files of the live server as a whole, see `write_private`. Only the holder of the lock may do that.

        Not synced: the next server gets others.
        """
        with self._explain():
            write_private(file, content, is_synced=False)

    def sync_stream(self, name: str) -> None:
        """
        Bring to the disk what describes a stream that was just made or changed.

        nats-server leaves that to the system unless `sync_interval` is `always`. After a power cut within half a minute these
        files would be empty, and the server passes over such a stream.
        """
        stream = self.streams / name
        with self._explain(), contextlib.suppress(FileNotFoundError):  # somebody has deleted it
            for path in (stream / "meta.inf", stream / "meta.sum", stream, self.streams):
                sync(path)

    def sync_messages(self, name: str) -> None:
        """Bring the last messages of a stream to the disk. Raises `LogUnavailableError` where that fails."""
        try:
            # The two last files: a message may have begun a new one.
            for block in block_files(self.streams / name)[-2:]:
                with contextlib.suppress(FileNotFoundError):  # the server has just written it anew, and synced it
                    sync(block)
        except OSError as error:
            msg = f"what was written to {self.streams / name} may not have reached the disk: {error}"
            raise LogUnavailableError(msg) from error

    def remove_traces(self) -> None:
        """Remove what an earlier server left behind, which kill -9 does. Only the holder of the lock may do that."""
        with self._explain():
            self.endpoint_file.unlink(missing_ok=True)
            # A killed server leaves it, with a port that may be anybody's by now.
            for stale in self.path.glob("*.ports"):
                stale.unlink(missing_ok=True)
            for folder in self.streams.glob("*"):
                # nats-server renames the folder of a stream before it deletes it.
                if folder.name.startswith(_DELETED) or _is_half_made(folder):
                    shutil.rmtree(folder)

    def make_log(self) -> None:
        """Make the folder of the store, if it is not there, and in it that of the streams, which the server would not sync."""
        with self._explain():
            _make_folder(self.log)
            _make_folder(self.streams)

    def get_room_bytes(self) -> int:
        """
        Return the size limit of the log: its present size and nine tenths of the free space; the rest is for the index.

        Source: the file system, now.
        """
        self.make_log()
        with self._explain():
            stored = 0
            for folder, _, names in os.walk(self.log):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        stored += (Path(folder) / name).lstat().st_size
            return stored + shutil.disk_usage(self.log).free * 9 // 10

    def why_full(self, *, may_use_reserve: bool = False) -> str | None:
        """
        Return the reason when the disk is full; None while there is room. nats-server answers no append on a full disk.

        A deletion may use most of the reserve: it makes room.
        """
        free = self._free_bytes()
        reserve = RESERVE_BYTES // 12 if may_use_reserve else RESERVE_BYTES
        return None if free is None or free > reserve else f"the disk of {self.path} is full: {free:,} bytes are left"

    def erasable(self, stream: str, most: int) -> int:
        """
        Return how many messages of a stream there is room to erase at the same time, at most `most`: the server writes a block anew for each.

        A server that finds no room for that erases nothing of the stream any more until it is started again (2.15).
        """
        free = self._free_bytes()
        if free is None or free > most * _BLOCK_BYTES:
            return most
        sizes = [0]
        for block in block_files(self.streams / stream):
            with contextlib.suppress(OSError):  # the server has just removed it
                sizes.append(block.stat().st_size)
        return min(most, free // (max(sizes) + _BESIDES_BYTES))

    def _free_bytes(self) -> int | None:
        """Return what is left of the disk; None where that is not known."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def _found_format(self) -> int | None:
        """The number in `format.json`; None where there is none yet."""
        try:
            number = msgspec.json.decode((self.path / FORMAT_FILE).read_bytes(), type=FormatRecord).format
        except FileNotFoundError:
            return None
        except DECODE_ERRORS as error:
            msg = f"{self.path / FORMAT_FILE} is not chatledger's ({error}); give a new or empty directory"
            raise ConfigurationError(msg) from error
        if number > FORMAT:
            msg = (
                f"{self.path} has format {number}, this chatledger reads up to {FORMAT}; upgrade chatledger to open it"
            )
            raise UnsupportedFormatError(msg)
        if number < _OLDEST_FORMAT:
            msg = (
                f"{self.path} has format {number}, which a version before 0.1 wrote and this chatledger does not read. Export its chats "
                "with 'chatledger export' of the version that wrote it, and import them into a new directory"
            )
            raise UnsupportedFormatError(msg)
        return number

    def _format(self) -> None:
        names = {path.name for path in self.path.iterdir()}
        # Another process may be doing the same: its temporary file, or its finished one, is not foreign.
        foreign = {name for name in names if name != LOST_AND_FOUND and not name.startswith(FORMAT_FILE)}
        if foreign and self._found_format() is None:
            msg = f"{self.path} is not empty and not a chatledger directory; give a new or empty directory"
            raise ConfigurationError(msg)
        if self._found_format() != FORMAT:
            write_private(self.path / FORMAT_FILE, msgspec.json.encode(FormatRecord(FORMAT)) + b"\n")

    @contextlib.contextmanager
    def _explain(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            msg = f"the data directory {self.path} cannot be used"
            raise explained(error, msg) or ConfigurationError(f"{msg}: {reason_of(error)}") from error


def write_private(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """
    Replace a file as a whole: readers see the old or the new content, other users see nothing (mode 0600).

    It is on the disk when this returns; without `is_synced` a machine that goes down soon may take it along.
    """
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                # Its content before its name: after a power cut the name may be there without it.
                os.fsync(file.fileno())
        replace(Path(temporary), path)
        if is_synced:
            sync(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there, and bring them to the disk."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    for new in absent:
        # Above the ledger there may be a folder that we may write to, and not list.
        with contextlib.suppress(PermissionError):
            sync(new.parent)


def _is_half_made(stream: Path) -> bool:
    """
    Whether a stream's server was killed, or the machine went down, before both files that describe it were on the disk; it holds nothing then.

    Every later start passes over such a stream. Created again, it takes messages, but never gets its second file: the next
    start would pass over those too.
    """
    description = (stream / "meta.inf", stream / "meta.sum")
    is_described = all(file.exists() and file.stat().st_size for file in description)
    return not is_described and not any(file.stat().st_size for file in stream.glob("msgs/*.blk"))
