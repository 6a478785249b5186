"""
This process with what Windows lacks taken away, as far as chatledger can see it; for a process of its own.

Locks are those of this system, behind the two functions of Windows's kernel. What a file system of Windows refuses besides (to
remove or replace a file that is open) only a run there shows.
"""

import ctypes
import os
import stat
import sys
import types
from typing import Any, Never

LACKS = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
_LACKED_CALLS = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "ST_RDONLY", "fdatasync", "fork", "getegid", "geteuid", "getgid", "getuid",
    "killpg", "pread", "pwrite", "register_at_fork", "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname",
)  # fmt: skip
_HANDLES = 1 << 20
"""Handles are other numbers than descriptors."""


def become_windows() -> None:
    """Import what chatledger needs of others, as they are here; then let chatledger be imported as if this were Windows."""
    import fcntl
    import shutil

    import chatledger.admin
    import chatledger.infra.entrypoints.cli.app
    import chatledger.infra.entrypoints.cli.serving
    import chatledger.infra.entrypoints.http.serving  # noqa: F401 - for what they import of others

    shutil._use_fd_functions = False  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    for name in [name for name in sys.modules if name.split(".")[0] in {"chatledger", "eventsourcing"}]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(LACKS))  # type: ignore[arg-type]
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.get_osfhandle = lambda descriptor: descriptor + _HANDLES  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = msvcrt
    kernel = _Kernel(fcntl.flock)
    windows: Any = ctypes
    windows.WinDLL = lambda _name, use_last_error: kernel
    windows.get_last_error = lambda: kernel.last_error
    windows.WinError = lambda code: OSError(code, "an error of Windows")
    for name in _LACKED_CALLS:
        if hasattr(os, name):
            delattr(os, name)
    _refuse_folders()
    sys.platform = "win32"


def _refuse_folders() -> None:
    real_open = os.open

    def open_file(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = real_open(path, flags, mode, **more)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise PermissionError(13, "a folder cannot be opened", path)
        return descriptor

    def kill(*_: int) -> Never:
        msg = "os.kill ends processes on Windows, whatever the signal"
        raise AssertionError(msg)

    os.open = open_file
    os.kill = kill


class _Kernel:
    """`LockFileEx` and `UnlockFileEx`, see their pages at learn.microsoft.com: locks of a range, which only unlocking gives up."""

    def __init__(self, flock: Any) -> None:
        self._flock = flock
        self.last_error = 0
        self.OpenProcess = _Function(lambda _access, _inherits, pid: pid if os.path.exists(f"/proc/{pid}") else None)  # noqa: PTH110
        self.GetExitCodeProcess = _Function(self._running)
        self.CloseHandle = _Function(lambda _: 1)
        self.LockFileEx = _Function(self._lock)
        self.UnlockFileEx = _Function(self._unlock)

    @staticmethod
    def _running(_process: ctypes.c_void_p, code: Any) -> int:
        code._obj.value = 259
        return 1

    def _lock(self, handle: ctypes.c_void_p, flags: int, reserved: int, low: int, high: int, place: Any) -> int:
        assert (reserved, low, high, place._obj.offset_high) == (0, 1, 0, 0x7FFFFFFF)
        assert handle.value is not None
        try:
            self._flock(handle.value - _HANDLES, (2 if flags & 2 else 1) | (4 if flags & 1 else 0))
        except BlockingIOError:
            self.last_error = 33
            return 0
        return 1

    def _unlock(self, handle: ctypes.c_void_p, reserved: int, low: int, high: int, place: Any) -> int:
        assert (reserved, low, high, place._obj.offset_high) == (0, 1, 0, 0x7FFFFFFF)
        assert handle.value is not None
        self._flock(handle.value - _HANDLES, 8)
        return 1


class _Function:
    """A function of a library, whose type of result is set."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.restype: Any = ctypes.c_int

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)
