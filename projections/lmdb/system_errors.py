"""Errors of the operating system, translated into ours: no room on a disk, no file descriptors, no memory."""

import errno
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import lmdb

from chatledger.domain.errors import ChatledgerError, CorruptStateError, LogFullError, ResourceError

from ..operating_system import file_size_limit

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NEAR_BYTES: Final = 1024 * 1024
"""A file that could not grow has so much left at most: a write is refused as a whole, or a part of it is written."""
SystemRefusal: Final = (OSError, lmdb.Error, ImportError)
"""The errors that a refusal of the operating system may raise; a module is imported when it is needed first, from a file."""


def reason_of(error: OSError) -> str:
    """Return what the operating system says, and of which file."""
    return ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)


def explained(error: BaseException, doing: str) -> ChatledgerError | None:
    """
    The error that says what the operating system refused; None when it was something else.

    `doing`: what could not be done, such as "the index at /path cannot be built".
    """
    number = _number(error)
    if number in _FULL:
        return LogFullError(f"{doing}: {error}. Nothing was written; free space and retry")
    if number in _REMEDIES:
        return ResourceError(f"{doing}: {error}. {_REMEDIES[number]}, and retry")
    return None


def why_full(error: BaseException, file: Path) -> str | None:
    """Return why a file of LMDB could not grow, when that is what an error means; LMDB calls a write that was cut short EIO."""
    code = _number(error)
    if code not in {*_FULL, errno.EFBIG, errno.EIO}:
        return None
    limit = file_size_limit()
    try:
        size, free = file.stat().st_size, shutil.disk_usage(file.parent).free
    except OSError:
        return None
    if limit is not None and (code == errno.EFBIG or size > limit - _NEAR_BYTES):
        return f"as this process may write no file of more than {limit:,} bytes (ulimit -f)"
    if code == errno.EFBIG:
        return "as its file system takes no larger file"
    return f"as the disk is full: {free:,} bytes are left" if code in _FULL or free < _NEAR_BYTES else None


def unusable(error: BaseException, doing: str, file: Path) -> ChatledgerError:
    """Translate an error of an index in a file: what the operating system did not raise is damage."""
    full = why_full(error, file)
    if full is not None:
        return LogFullError(f"{doing}, {full}. Nothing was written; free space and retry")
    return explained(error, doing) or CorruptStateError(f"{doing}: {error}")


@contextmanager
def system_errors(doing: str) -> Generator[None]:
    """Raise refusals of the operating system as ours; see `explained`. Also a decorator of functions."""
    try:
        yield
    except SystemRefusal as error:
        ours = explained(error, doing)
        if ours is None:
            raise
        raise ours from error


_REMEDIES: Final = {
    errno.EMFILE: "Close files, or raise the limit of open files of this process (ulimit -n)",
    errno.ENFILE: "Close files, or raise the limit of open files of the system (fs.file-max)",
    errno.ENOMEM: "Free memory",
}


def _number(error: BaseException | None) -> int | None:
    """The system's number of an error, or of its cause."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, lmdb.Error):
        code: object = getattr(error, "code", None)  # only what LMDB itself raised has it
        return code if isinstance(code, int) else None
    return None if error is None else _number(error.__cause__)
