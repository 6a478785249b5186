"""
The witness beside a log: how far the log went, so that a loss at its end is noticed also without the index.

A witness is a folder with one small file for each process that writes, locked by it. Whoever was acknowledged something notes
its position and hash there before the call returns. What the files say together is their maximum, also of processes that ended.
A file holds two halves, written by turns, so that a write that is torn leaves the older one. A half is, little-endian:

    8 number of the write | 8 position | 8 durable position | 32 hash | 16 boot | 8 inode of this file | 16 log |
    4 CRC-32 of what stands before

A write goes to the cache of the operating system, which outlives processes; it is synced within a second. What was written
when the machine went down counts only up to the durable position, which the log had on the disk before. A witness that is
behind does no harm; one that is ahead of the log shows a loss. Copied files, and those of another log, are not believed.
"""

import contextlib
import hashlib
import itertools
import logging
import os
import threading
import time
import zlib
from collections import deque
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from chatledger.domain.errors import AccessDeniedError, ChatledgerError, LogRegressedError
from chatledger.projections.lmdb.environment import make_folder
from chatledger.projections.operating_system import OPEN_FLAGS, lock_file, read_at, sync_content, write_at

from .bookmarks import Bookmark
from .envelope import clock_ms

if TYPE_CHECKING:
    from .port import EventLog


def refuse_if_regressed(log: "EventLog", *, position: int, event_hash: bytes) -> None:
    """
    Raise `LogRegressedError` when the log lost the event that was seen at a position: it would be given out again.

    An event that was erased is not lost. Its chat's tombstone stands after it, so the last event of all is never erased.
    Position 0 stands for nothing that was seen, an empty hash for one that is not known.
    """
    if not position:
        return
    # Asked of a majority where there are several servers: one that is behind would make a loss of it.
    last = log.settled_position(position)
    there = log.event_at(position) if last >= position else None
    if there is None and last >= position:
        # The end is looked up again, since the tombstone may be younger than our first look.
        last = log.settled_position(position + 1)
        is_lost = last <= position
    else:
        is_lost = there is None or event_hash not in {b"", there.hash}
    if is_lost:
        raise LogRegressedError(last_position=last, seen_position=position)


_HALF: Final = Struct("<QQQ32s16sQ16s")
_CHECKSUM: Final = Struct("<I")
_HALF_BYTES: Final = 128
_FILE_BYTES: Final = 2 * _HALF_BYTES
_SYNC_S: Final = 1.0
_SETTLED_S: Final = 2.5
"""After so long a log with `durability="fast"` has synced what it acknowledged: its server does it every second."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_logger = logging.getLogger(__name__)


class LastSeen(NamedTuple):
    """A position that the log must reach, and the hash of the event there; empty where it is not known."""

    position: int
    hash: bytes


class _Half(NamedTuple):
    """The content of one half of a file."""

    number: int = 0
    position: int = 0
    durable: int = 0
    hash: bytes = b""
    boot: bytes = b""
    inode: int = 0
    log: bytes = b""

    def last_seen(self, boot: bytes) -> LastSeen:
        """The part of it that counts in this run of the machine: after a restart, only what was durable."""
        if boot and self.boot == boot:
            return LastSeen(self.position, self.hash)
        return LastSeen(self.durable, self.hash if self.durable == self.position else b"")


class Witness:
    """
    The notes of one process about one log, from when it opened the log until `close`. Safe to use from any thread.

    `is_synced`: whether what the log acknowledges is on the disk already. `shared`: what other nodes have seen; told about
    once a second, in a thread of its own.
    """

    def __init__(self, folder: Path, *, identity: str, is_synced: bool, shared: "SharedWitness | None" = None) -> None:
        self.folder, self._is_synced, self._shared = folder, is_synced, shared
        self._log, self._boot = _digest(identity), boot_id()
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._half = _Half()
        self._unsettled: deque[tuple[float, int]] = deque()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._is_dirty = False
        self._shared_position = 0
        try:
            make_folder(self.folder)
            fd = next(fd for number in itertools.count(1) if (fd := _locked(self.folder / str(number))) is not None)
            self._fd = fd
            before = _newest(read_at(fd, _FILE_BYTES, 0))
            fresh = _Half(number=before.number, boot=self._boot, inode=os.fstat(fd).st_ino, log=self._log)
            self._half = fresh
            if (before.inode, before.log) == (fresh.inode, fresh.log):
                seen = before.last_seen(self._boot)
                self._half = fresh._replace(position=seen.position, hash=seen.hash, durable=before.durable)
        except (OSError, ChatledgerError) as error:
            self._warn(error)
            return
        self._thread = threading.Thread(target=self._run, name="chatledger-witness", daemon=True)
        self._thread.start()

    def last_seen(self) -> list[LastSeen]:
        """Return how far the log went, as all processes here have noted, and as other nodes have; nothing that is not known."""
        sources = (_latest(self.folder, self._log), None if self._shared is None else self._shared.read())
        return [seen for seen in sources if seen is not None]

    def note(self, position: int, event_hash: bytes) -> None:
        """Note an event that the log has acknowledged. Costs a few microseconds."""
        with self._lock:
            if self._fd is None or position <= self._half.position:
                return
            durable = position if self._is_synced else self._half.durable
            self._write(position=position, hash=event_hash, durable=durable)
        if not self._is_dirty:
            self._is_dirty = True
            self._wake.set()

    def _write(self, **changes: Any) -> None:
        """Write the other half, with these fields changed. The caller has the lock."""
        assert self._fd is not None, "the caller looked"
        self._half = self._half._replace(number=self._half.number + 1, **changes)
        raw = _HALF.pack(*self._half)
        raw += _CHECKSUM.pack(zlib.crc32(raw))
        try:
            # The other half, so that one that is torn by a kill leaves the one before it.
            write_at(self._fd, raw, _HALF_BYTES * (self._half.number & 1))
        except OSError as error:  # what is behind does no harm
            self._warn(error)

    def _run(self) -> None:
        while self._wake.wait() and not self._closing.wait(_SYNC_S):
            self._is_dirty = False
            self._wake.clear()
            if not self._sync():
                self._wake.set()
            self._share_last()
        self._share_last()

    def _share_last(self) -> None:
        last = LastSeen(self._half.position, self._half.hash)
        if self._shared is not None and last.position > self._shared_position:
            self._shared.write(last)
            self._shared_position = last.position

    def _sync(self) -> bool:
        """Take what is settled for durable, and bring the file to the disk; whether there is nothing left to do."""
        now = time.monotonic()
        with self._lock:
            if self._fd is None:
                return True
            # Under "fast" an acknowledgement says nothing of the disk. Its server syncs each second, so what is old enough is there.
            self._unsettled.append((now, self._half.position))
            durable = self._half.durable
            while self._unsettled and (now - self._unsettled[0][0] >= _SETTLED_S or self._is_synced):
                durable = max(durable, self._unsettled.popleft()[1])
            if durable > self._half.durable:
                self._write(durable=durable)
            fd, is_done = self._fd, durable == self._half.position
        if is_done:
            self._unsettled.clear()
        try:
            # Here and not in `note`, for which each append waits: a sync takes some 0.25 ms.
            sync_content(fd)
        except OSError as error:
            self._warn(error)
        return is_done

    def stop(self) -> None:
        """Share what was noted last, and no more: the log is about to be closed."""
        self._closing.set()
        self._wake.set()
        # Only for a moment: the shared copy is on a server that may be away, and a close must not wait for it.
        if self._fd is not None and self._shared is not None:
            self._thread.join(_SYNC_S)

    def settle(self) -> None:
        """Note that the log has everything on the disk."""
        with self._lock:
            if self._fd is not None and self._half.durable < self._half.position:
                self._write(durable=self._half.position)

    def close(self) -> None:
        """Sync the file and give it up; calling it again does nothing."""
        self.stop()
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is None:
            return
        self._thread.join()
        try:
            sync_content(fd)
        except OSError as error:
            self._warn(error)
        finally:
            os.close(fd)

    def _warn(self, error: Exception) -> None:
        _logger.warning(
            "the witness in %s cannot be written, so a loss at the end of the log may go unnoticed: %s",
            self.folder,
            error,
        )


def read_last_seen(folder: Path, *, identity: str | None = None) -> LastSeen | None:
    """
    Return how far a log went, as all its writers have noted; None when nothing is known.

    `identity`: of the log. None takes what was noted of whatever log was there.
    """
    return _latest(folder, None if identity is None else _digest(identity))


def logs_noted(folder: Path) -> set[str]:
    """Return the digests of the identities of the logs that a witness has notes of, in hexadecimal."""
    return {half.log.hex() for half in _halves(folder) if half.position}


def _latest(folder: Path, log: bytes | None) -> LastSeen | None:
    boot = boot_id()
    last = [half.last_seen(boot) for half in _halves(folder) if log in {None, half.log}]
    return max((seen for seen in last if seen.position), default=None)


def _locked(file: Path) -> int | None:
    """The file, open and locked; None when somebody has it."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    try:
        lock_file(fd)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def boot_id() -> bytes:
    """Return 16 bytes that tell one run of the machine from another; none where nothing does."""
    try:
        return hashlib.sha256(_BOOT_ID.read_bytes().strip()).digest()[:16]
    except OSError:
        return b""


def _halves(folder: Path) -> list[_Half]:
    """The content of each file, but for files that were copied."""
    halves: list[_Half] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.isdecimal():
                half = _newest(path.read_bytes())
                # A copy of the folder, as a backup of files makes it, says nothing about the log beside it.
                if half.inode == path.stat().st_ino:
                    halves.append(half)
    return halves


def _newest(raw: bytes) -> _Half:
    """The half of a file that was written last."""
    newest = _Half()
    for start in (0, _HALF_BYTES):
        body = raw[start : start + _HALF.size]
        checksum = raw[start + _HALF.size : start + _HALF.size + _CHECKSUM.size]
        if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == zlib.crc32(body):
            half = _Half(*_HALF.unpack(body))
            if half.number > newest.number:
                newest = half
    boot, event_hash = newest.boot, newest.hash
    return newest._replace(boot=boot.rstrip(b"\0") and boot, hash=event_hash.rstrip(b"\0") and event_hash)


def _digest(identity: str) -> bytes:
    return hashlib.sha256(identity.encode()).digest()[:16]


class SharedWitness:
    """
    The position that the nodes of a log have reached, as a bookmark that is of no feed.

    It is lost with the server, but not with the stream of the log. A login that may not write it goes without.
    """

    def __init__(self, log: "EventLog") -> None:
        self._log = log
        self._empty = Bookmark(name="witness", index=0, count=0, position=0, holder="", log_id=log.identity, saved_at=0)
        self._is_allowed = True

    def read(self) -> LastSeen | None:
        """Return how far the log went; None where that is not known, or this login may not read it."""
        try:
            shared = self._log.load_bookmark(self._empty.key)
        except AccessDeniedError as error:
            _logger.info("what other nodes have seen of the log cannot be read: %s", error)
            return None
        # A stream that was made anew under the same name is another log, which has not gone as far.
        if shared is None or shared.log_id != self._log.identity:
            return None
        return LastSeen(shared.position, bytes.fromhex(shared.holder))

    def write(self, seen: LastSeen) -> None:
        """Keep a position, unless another node has kept a later one. What fails is tried again at the next one."""
        from .port import LostRaceError  # whoever reads a directory at rest needs no log

        if not self._is_allowed:
            return
        try:
            there = self._log.load_bookmark(self._empty.key)
            # It never goes back: another node may have seen more.
            if there is not None and there.log_id == self._log.identity and there.position >= seen.position:
                return
            self._log.save_bookmark(
                structs.replace(
                    self._empty,
                    position=seen.position,
                    holder=seen.hash.hex(),
                    saved_at=clock_ms(),
                    revision=0 if there is None else there.revision,
                )
            )
        except LostRaceError:
            return  # another node was first, with what it has seen
        except AccessDeniedError as error:
            self._is_allowed = False
            _logger.info("this login may not keep on the server how far the log went: %s", error)
        except ChatledgerError as error:
            _logger.debug("how far the log went was not kept on the server: %s", error)
