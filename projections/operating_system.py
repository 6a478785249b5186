"""
Differences between POSIX systems and Windows: locks of files, reads at a place, folders, limits, forks and processes.

No other module imports, or calls by name, what one of the two lacks: such a name fails on the other only when it is reached.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

OPEN_FLAGS: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For each `os.open`: not inherited by other programs, and no line ends translated."""
HAS_EMBEDDED_SERVER: Final = sys.platform != "win32"
"""Whether a ledger can be a directory: its server is bound to its owner by a shared lock and signals."""

if sys.platform == "win32":
    import ctypes
    import msvcrt

    _FAIL_IMMEDIATELY: Final = 1
    _EXCLUSIVE: Final = 2
    _LOCKED: Final = (33, 997)
    """ERROR_LOCK_VIOLATION and ERROR_IO_PENDING: another handle has the lock."""
    _QUERY_LIMITED_INFORMATION: Final = 0x1000
    _STILL_ACTIVE: Final = 259
    _PATIENCE_S: Final = 5.0
    _PAUSE_S: Final = 0.01
    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    # An int would be cut to 32 bits on its way.
    _kernel.OpenProcess.restype = ctypes.c_void_p
    _moving = threading.Lock()

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("internal_high", ctypes.c_void_p),
            ("offset", ctypes.c_uint32),
            ("offset_high", ctypes.c_uint32),
            ("event", ctypes.c_void_p),
        )

    def _lock_place() -> "_Overlapped":
        # Far behind the end of every file: such locks are mandatory, and others have to read what is in the file.
        return _Overlapped(offset=0, offset_high=0x7FFFFFFF)

    def _handle(descriptor: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))

    def lock_file(descriptor: int, *, is_shared: bool = False, is_waiting: bool = False) -> None:
        """
        Lock a file until its descriptor is closed; the lock that it had is given up for it. The system frees that of a killed process.

        `is_shared`: others may have a shared lock, too.

        Raises:
            BlockingIOError: Somebody has it.
            OSError: The file system has no locks.
        """
        # A second lock of the same handle would wait for its first; `flock`, too, gives up the one before it takes the other.
        unlock_file(descriptor)
        flags = (0 if is_shared else _EXCLUSIVE) | (0 if is_waiting else _FAIL_IMMEDIATELY)
        if not _kernel.LockFileEx(_handle(descriptor), flags, 0, 1, 0, ctypes.byref(_lock_place())):
            code = ctypes.get_last_error()
            if code in _LOCKED:
                raise BlockingIOError(code, "somebody else has the lock")
            raise ctypes.WinError(code)

    def unlock_file(descriptor: int) -> None:
        """Free the lock of a file. Nothing happens where it has none."""
        _kernel.UnlockFileEx(_handle(descriptor), 0, 1, 0, ctypes.byref(_lock_place()))

    def open_folder_lock(folder: Path) -> int:
        """Return a descriptor by which a folder can be locked, of a file in it: a folder itself cannot be opened here."""
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)

    def read_at(descriptor: int, size: int, offset: int) -> bytes:
        """Return so many bytes of a file from a place on; less at its end."""
        with _moving:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)

    def write_at(descriptor: int, content: bytes | bytearray, offset: int) -> int:
        """Write into a file from a place on; returns how many bytes were."""
        with _moving:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.write(descriptor, content)

    def sync_content(descriptor: int) -> None:
        """Bring the content of a file to the disk."""
        os.fsync(descriptor)

    def sync(path: Path) -> None:
        """Bring the content of a file to the disk. For a folder nothing is done: NTFS keeps a journal of names."""
        if not path.is_dir():
            descriptor = os.open(path, os.O_RDWR | OPEN_FLAGS)  # one that only reads cannot be synced here
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(draft: Path, path: Path) -> None:
        """Put a file in the place of another one, at once for all who open it."""
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            try:
                draft.replace(path)
            except PermissionError:
                # Refused as long as somebody reads the one that is there.
                if time.monotonic() > give_up:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def call_in_forked_child(function: Callable[[], object]) -> None:
        """Call a function in each process that is forked from this one: here nothing forks."""

    def is_own(_stats: os.stat_result) -> bool:
        """Whether a file is of the user of this process: temporary folders here are each user's own."""
        return True

    def is_running(pid: int) -> bool:
        # Not `os.kill(pid, 0)`: 0 is CTRL_C_EVENT here.
        process = ctypes.c_void_p(_kernel.OpenProcess(_QUERY_LIMITED_INFORMATION, 0, pid))
        if not process:
            return False
        code = ctypes.c_uint32()
        is_known = _kernel.GetExitCodeProcess(process, ctypes.byref(code))
        _kernel.CloseHandle(process)
        return bool(is_known) and code.value == _STILL_ACTIVE

    def open_files_limit() -> int | None:
        """Return how many descriptors this process may have open; None for any number."""
        return None

    def allow_open_files(_count: int) -> None:
        """Let this process open so many descriptors, if it may: here it may anyway."""

    def file_size_limit() -> int | None:
        """Return how many bytes a file may have that this process writes; None for any number."""
        return None

else:
    import fcntl
    import resource

    def lock_file(descriptor: int, *, is_shared: bool = False, is_waiting: bool = False) -> None:
        """
        Lock a file until its descriptor is closed; the lock that it had is given up for it. The system frees that of a killed process.

        `is_shared`: others may have a shared lock, too.

        Raises:
            BlockingIOError: Somebody has it.
            OSError: The file system has no locks.
        """
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if is_waiting else fcntl.LOCK_NB))

    def unlock_file(descriptor: int) -> None:
        """Free the lock of a file, for all copies of its descriptor. Nothing happens where it has none."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def open_folder_lock(folder: Path) -> int:
        """Return a descriptor by which a folder can be locked. Raises `OSError` for a link, too."""
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | OPEN_FLAGS)

    def read_at(descriptor: int, size: int, offset: int) -> bytes:
        """Return so many bytes of a file from a place on; less at its end."""
        return os.pread(descriptor, size, offset)

    def write_at(descriptor: int, content: bytes | bytearray, offset: int) -> int:
        """Write into a file from a place on; returns how many bytes were."""
        return os.pwrite(descriptor, content, offset)

    def sync_content(descriptor: int) -> None:
        """Bring the content of a file to the disk."""
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(descriptor)  # macOS has no fdatasync

    def sync(path: Path) -> None:
        """Bring the content of a file to the disk, or which files a folder has."""
        descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(draft: Path, path: Path) -> None:
        """Put a file in the place of another one, at once for all who open it."""
        draft.replace(path)

    def call_in_forked_child(function: Callable[[], object]) -> None:
        os.register_at_fork(after_in_child=function)

    def is_own(stats: os.stat_result) -> bool:
        """Whether a file is of the user of this process."""
        return stats.st_uid == os.geteuid()

    def is_running(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def open_files_limit() -> int | None:
        """Return how many descriptors this process may have open; None for any number."""
        return _soft_limit(resource.RLIMIT_NOFILE)

    def allow_open_files(count: int) -> None:
        """Let this process open so many descriptors, if it may; most systems begin with 1,024 and allow more."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < allowed:
            with contextlib.suppress(ValueError, OSError):  # macOS allows less than it says
                resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))

    def file_size_limit() -> int | None:
        """Return how many bytes a file may have that this process writes; None for any number."""
        return _soft_limit(resource.RLIMIT_FSIZE)

    def _soft_limit(kind: int) -> int | None:
        soft = resource.getrlimit(kind)[0]
        return None if soft == resource.RLIM_INFINITY else soft
