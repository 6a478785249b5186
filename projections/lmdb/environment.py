"""One LMDB environment: transactions, a map that grows by itself, and a share in whether it may be trusted after a crash."""

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import lmdb

from chatledger.domain.errors import ConfigurationError, CorruptStateError, LedgerClosedError

from ..operating_system import OPEN_FLAGS, lock_file, read_at, write_at
from .keys import number, to_number
from .page_check import IS_KNOWN_LAYOUT, find_damage
from .system_errors import explained, reason_of, system_errors, unusable

T = TypeVar("T")

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]
else:  # generic in its stub only
    Transaction = lmdb.Transaction

INITIAL_MAP_BYTES: Final = 64 * 1024 * 1024
_ALONE_S: Final = 0.05
_MAX_READERS: Final = 1024
_MAX_TABLES: Final = 32
_DIRTY, _SCRUBBED = b"soiled", b"scrubbed"
"""Keys of the marks of the last deletion, and of the last scrub; they are equal while the file is clean."""
_NEVER: Final = number(0)
_NO_MARK: Final = b""
_CLEAN: Final = b"clean"
_UNKNOWN_BOOT: Final = b"unknown"


class UncleanStopError(Exception):
    """The machine went down while the environment was open; without syncs its pages may be in any state."""


class _StaleMemoryError(Exception):
    """This process remembers pages from before a deletion or a scrub of another one."""


class Environment:
    """
    An LMDB environment shared by the threads of a process and by processes. Subclasses open their tables in `open_tables`.

    Nothing is synced while it is in use, as the log is the truth. The file survives the death of processes; whether it
    survived the death of the machine cannot be known, so `open` refuses it then, and the index is rebuilt. With `is_synced`
    each transaction is on the disk when it ends, and the file survives that too. One that is not `is_kept` is removed when it was closed,
    and nothing waits for a disk.
    """

    def __init__(
        self, path: Path, *, map_bytes: int = INITIAL_MAP_BYTES, is_synced: bool = False, is_kept: bool = True
    ) -> None:
        check_path(path)
        self.path = path
        self._pid = os.getpid()
        self._is_synced = is_synced
        with system_errors(f"the index at {path} cannot be opened"):
            make_folder(path)
            self._share = _Share(path / "in-use", self._check_pages, is_synced=is_synced, is_kept=is_kept)
        try:
            self._env = self._open(map_bytes)
            self._check_length()
            self._env.reader_check()  # frees the slots of killed processes, which would keep old pages for ever
        except lmdb.Error as error:
            self._share.release(is_synced=False)
            raise unusable(error, f"the index at {path} cannot be opened", self.file) from error
        except BaseException:
            self._share.release(is_synced=False)
            raise
        # LMDB forbids to resize the map while this process has transactions; the gate counts and holds them back.
        self._entry = threading.Lock()
        self._gate = threading.Condition(self._entry)
        self._active = 0
        self._is_resizing = False
        self._is_closed = False
        self.is_suspect = False
        """Whether something read from it was not as it should be: the pages are checked when it is opened next."""
        self._write_lock = threading.RLock()
        self._remembered_mark: bytes | None = None
        """The mark of deletion at the first write since the environment was opened; None before it."""
        try:
            self.open_tables()
        except BaseException:
            self.close()
            raise

    def open_tables(self) -> None:
        """Open the tables; called again when the environment was opened anew, as their handles are others then."""
        self.meta = self.table(b"meta")

    def _open(self, map_bytes: int) -> lmdb.Environment:
        size = self.file.stat().st_size if self.file.exists() else 0
        return lmdb.open(
            str(self.path),
            map_size=max(map_bytes, size),
            max_dbs=_MAX_TABLES,
            max_readers=_MAX_READERS,
            max_spare_txns=16,
            metasync=self._is_synced,
            sync=self._is_synced,
            mode=0o600,
        )

    @property
    def file(self) -> Path:
        return self.path / "data.mdb"

    def _check_length(self) -> None:
        """Refuse a file that was cut short: touching what is mapped beyond its end would kill the process."""
        pages = self._env.info()["last_pgno"] + 1
        length = self.file.stat().st_size
        # A file ends before its last page also where that was freed before it was written.
        is_short = length < pages * self._env.stat()["psize"]
        if is_short and not (IS_KNOWN_LAYOUT and find_damage(self.file) is None):
            msg = f"the file ends after {length:,} bytes, before pages that are in use"
            raise lmdb.CorruptedError(msg)

    def _check_pages(self) -> None:
        """Refuse a file whose last user died, or met damage, if that is why: LMDB would end this process at the same page."""
        damage = find_damage(self.file) if self.file.exists() else None
        if damage is not None:
            msg = f"the index at {self.path} is damaged: {damage}"
            raise CorruptStateError(msg)

    def table(self, name: bytes, *, dupsort: bool = False) -> "lmdb._Database":
        """The named table, created if absent."""
        try:
            return self._env.open_db(name, dupsort=dupsort)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)  # another process grew it; tables are opened before there are transactions
            return self.table(name, dupsort=dupsort)
        except lmdb.Error as error:
            raise unusable(error, f"the index at {self.path} cannot be opened", self.file) from error

    def reading(self) -> "Reading":
        """A read transaction, as a context manager."""
        return Reading(self)

    def copy(self, folder: Path) -> None:
        """Write a snapshot of it, without free pages, into an empty folder; it may be used meanwhile."""
        # By name LMDB writes past the page cache, which takes ten times as long and is for copies that outlive the process.
        with (
            self.reading() as txn,
            system_errors(f"the index at {self.path} cannot be copied"),
            (folder / self.file.name).open("xb") as file,
        ):
            self._env.copyfd(file.fileno(), compact=True, txn=txn)

    def note_dirty(self, txn: Transaction) -> None:
        """Mark the file as dirty: this transaction deletes rows whose bytes must not stay in it."""
        txn.put(_DIRTY, number(to_number(self._mark(txn)) + 1), db=self.meta)

    def _mark(self, txn: Transaction) -> bytes:
        """Return the mark of the last deletion."""
        return txn.get(_DIRTY, default=_NEVER, db=self.meta)

    def scrub_due(self, txn: Transaction) -> bytes | None:
        """Return the mark of the last deletion; None when the file is clean."""
        mark = self._mark(txn)
        return None if mark == txn.get(_SCRUBBED, default=_NEVER, db=self.meta) else mark

    def note_scrubbed(self, txn: Transaction) -> None:
        """Note that the file is clean, with a new mark: memory may have copies of pages from before that."""
        self.note_dirty(txn)
        txn.put(_SCRUBBED, self._mark(txn), db=self.meta)

    def update(
        self,
        change: Callable[[Transaction], T],
        *,
        admit: Callable[[Transaction], None] | None = None,
        with_fresh_memory: bool = False,
    ) -> T:
        """
        Run `change` in a write transaction; an exception leaves all as it was.

        It is run again, in a new transaction, where the file has to be prepared for it: this is the one place that does that.

        Args:
            change: What to write. It may run several times, and nothing of earlier runs is left.
            admit: Called before it in the transaction; may raise, as where another environment has to be used.
            with_fresh_memory: Free the memory of pages first, see below.
        """
        can_reopen = True
        with self._write_lock:
            if with_fresh_memory and self._remembered_mark is not None:
                self._remembered_mark = _NO_MARK
            while True:
                try:
                    txn = self.begin(write=True)
                    try:
                        with txn:
                            mark = self._mark(txn)
                            if self._remembered_mark is None:
                                self._remembered_mark = mark
                            elif mark != self._remembered_mark:
                                if can_reopen:
                                    raise _StaleMemoryError
                                # This write cannot wait for transactions that do not end, so the next scrub comes again.
                                self.note_dirty(txn)
                            if admit is not None:
                                admit(txn)
                            return change(txn)
                    finally:
                        self.end()
                # LMDB keeps the memory of the pages that it wrote, and what stood in it gets into the unused parts of later
                # pages: rows deleted since, and keys of branches that a scrub has cleaned since. Only closing frees it.
                except _StaleMemoryError:
                    can_reopen = self._reopen()
                # The map has a fixed size, which LMDB lets nobody change while transactions are open; also at the commit.
                except lmdb.MapFullError:
                    self._resize(self._env.info()["map_size"] * 2)

    def begin(self, *, write: bool = False) -> Transaction:
        """Begin a transaction; `end` must follow it."""
        if self._pid != os.getpid():
            msg = "this ledger was opened before the process forked; open it again in the child"
            raise LedgerClosedError(msg)
        while True:
            with self._entry:  # the same lock, without the cost of the condition
                while self._is_resizing:
                    self._gate.wait()
                if self._is_closed:
                    msg = "the ledger is closed"
                    raise LedgerClosedError(msg)
                self._active += 1
            try:
                return self._env.begin(write=write)
            except lmdb.MapResizedError:
                self.end()
                self._resize(0)  # another process grew it: adopt its size
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """Say that a transaction is over."""
        with self._entry:
            self._active -= 1
            if not self._active and (self._is_resizing or self._is_closed):  # else nobody waits for this
                self._gate.notify_all()

    def _reopen(self) -> bool:
        """Free the memory of pages, which only closing does; False when transactions did not end for a moment."""
        with self._alone(_ALONE_S) as is_alone:
            if not is_alone:
                return False
            if self._is_closed:
                msg = "the ledger is closed"
                raise LedgerClosedError(msg)
            map_bytes = self._env.info()["map_size"]
            with system_errors(f"the index at {self.path} cannot be opened"):
                self._env.close()
                self._env = self._open(map_bytes)
            self._remembered_mark = None
            self.open_tables()
        return True

    def _resize(self, map_bytes: int) -> None:
        with self._alone():
            self._env.set_mapsize(map_bytes)

    @contextlib.contextmanager
    def _alone(self, timeout_s: float | None = None) -> Generator[bool]:
        """Hold new transactions of this process back and wait for those there are; gives whether they ended in time."""
        with self._gate:
            while self._is_resizing:
                self._gate.wait()
            self._is_resizing = True
        try:
            with self._gate:
                is_alone = self._gate.wait_for(lambda: not self._active, timeout_s)
            yield is_alone
        finally:
            with self._gate:
                self._is_resizing = False
                self._gate.notify_all()

    def oldest_reader(self) -> int | None:
        """The snapshot of the reader that began first, of whatever process; None when nobody reads."""
        self._env.reader_check()
        rows = (line.split() for line in self._env.readers().splitlines()[1:])
        return min((int(row[2]) for row in rows if len(row) == 3 and row[2].isdecimal()), default=None)

    @property
    def last_txn_id(self) -> int:
        """The last transaction that was written."""
        return self._env.info()["last_txnid"]

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that have pages, free ones included."""
        return (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]

    @property
    def map_bytes(self) -> int:
        return self._env.info()["map_size"]

    def close(self) -> bool:
        """Wait for transactions to end and close. Returns whether this was its last user, and left it sound and synced."""
        if self._pid != os.getpid():
            return False
        with self._gate:
            if self._is_closed:
                return False
            self._is_closed = True
            while self._active or self._is_resizing:
                self._gate.wait()
        is_synced = False
        if self._share.is_last():
            with contextlib.suppress(lmdb.Error):  # a full disk: it is checked when it is opened next
                self._env.sync(True)  # noqa: FBT003 - lmdb 1 has no keyword for it
                is_synced = not self.is_suspect
        self._share.release(is_synced=is_synced)
        self._env.close()
        return is_synced


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """
    Return the absolute path; a leading `~` is the home directory.

    Raises:
        ConfigurationError: It begins with `~` and a user who does not exist or has no home directory.
    """
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        msg = f"the home directory in {os.fspath(path)!r} is not known; write out the path"
        raise ConfigurationError(msg) from error


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask, and whoever made the folder: `open(path, "x", opener=private)`."""
    return os.open(path, flags, 0o600)


def make_private_file(path: str) -> None:
    """
    Make an empty file that only its owner may read, unless it is there or cannot be made; what SQLite makes beside it has its mode.

    One that is there is not opened: closing it would free the locks that SQLite has in this process.
    """
    with contextlib.suppress(OSError):
        os.close(private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS))


def make_folder(path: Path) -> None:
    """
    Make a folder that is not there, and those above it, with mode 0700.

    Raises:
        ConfigurationError: A file or a link to nowhere is in its place, or it cannot be made.
    """
    if path.is_symlink() and not path.exists():
        msg = f"{path} is a link to {path.readlink()}, which leads nowhere; make a folder there, or give another path"
        raise ConfigurationError(msg)
    if path.exists() and not path.is_dir():
        msg = f"{path} is a file; give the path of a directory, which is created when it does not exist"
        raise ConfigurationError(msg)
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir():  # `parents=True` would leave the modes of those above to the umask
                folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        msg = f"the folder {path} cannot be used"
        raise explained(error, msg) or ConfigurationError(f"{msg}: {reason_of(error)}") from error


def check_path(path: Path) -> Path:
    """Return a path. Raises `ConfigurationError` for one that LMDB does not take."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        msg = f"the path {str(path)!r} is not UTF-8, and an index cannot be kept there; rename the folder, or give another one"
        raise ConfigurationError(msg) from error
    return path


def prefixed(txn: Transaction, table: lmdb._Database, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows whose keys begin with `prefix`, in order."""
    cursor = txn.cursor(table)
    found = cursor.set_range(prefix)
    while found and (key := cursor.key()).startswith(prefix):
        yield key, cursor.value()
        found = cursor.next()


def drop_prefixed(txn: Transaction, table: lmdb._Database, prefix: bytes) -> None:
    """Delete the rows whose keys begin with `prefix`."""
    cursor = txn.cursor(table)
    found = cursor.set_range(prefix)
    while found and cursor.key().startswith(prefix):
        cursor.delete()  # moves to the next row
        found = bool(cursor.key())


class Reading:
    """A read transaction: a snapshot of the index. It must end in the thread that began it."""

    __slots__ = ("_env", "_txn")

    def __init__(self, env: Environment) -> None:
        self._env = env

    def __enter__(self) -> Transaction:
        self._txn = self._env.begin()
        return self._txn

    def __exit__(self, *_: object) -> None:
        self._txn.abort()
        self._env.end()


class _Share:
    """
    A lock that every process holds in common while it uses an environment, and a note of the boot it was opened in.

    The kernel releases the lock of a killed process. The note is replaced by `clean` when the last one has synced.

    `after_death` is called, before anybody else may use it, when the last process that used it did not come to that. Without
    `is_synced` what is open when the machine goes down is refused.
    """

    def __init__(self, path: Path, after_death: Callable[[], None], *, is_synced: bool, is_kept: bool) -> None:
        self._is_synced, self._is_kept = is_synced, is_kept
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
        try:
            while True:
                if self._try_exclusive():
                    if self._is_noted(path):
                        after_death()
                    self._write(_boot_id())
                lock_file(self._fd, is_shared=True, is_waiting=True)
                # Between the two locks another process may have closed it, or refused it, as the last one.
                if read_at(self._fd, 100, 0) == _boot_id():
                    break
        except BaseException:
            os.close(self._fd)
            raise

    def _is_noted(self, path: Path) -> bool:
        """Whether somebody used it since it was clean."""
        note = read_at(self._fd, 100, 0)
        if note in {b"", _CLEAN}:
            return False
        if not self._is_synced and (note != _boot_id() or note == _UNKNOWN_BOOT):
            raise UncleanStopError(path)
        return True

    def is_last(self) -> bool:
        return self._try_exclusive()

    def release(self, *, is_synced: bool) -> None:
        if is_synced:
            with contextlib.suppress(
                OSError
            ):  # a note that could not be written makes the pages be checked, or built anew
                self._write(_CLEAN)
        os.close(self._fd)

    def _try_exclusive(self) -> bool:
        try:
            lock_file(self._fd)
        except BlockingIOError:
            return False
        return True

    def _write(self, note: bytes) -> None:
        os.ftruncate(self._fd, 0)
        write_at(self._fd, note, 0)
        if self._is_kept:
            os.fsync(self._fd)


def _boot_id() -> bytes:
    """Return an id of the present run of the machine; where there is none, no unclean stop is trusted."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except (
        FileNotFoundError,
        PermissionError,
    ):  # not for want of descriptors: an index that is sound would be given up
        return _UNKNOWN_BOOT
