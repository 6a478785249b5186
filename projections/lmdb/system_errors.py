"""What the operating system refuses, as errors of ours: no room on a disk, no file descriptors, no memory."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import lmdb

from chatledger.domain.errors import ChatledgerError, CorruptStateError, LogFullError, ResourceError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
SystemRefusal: Final = (OSError, lmdb.Error, ImportError)
"""What a refusal of the operating system may come as; a module is imported when it is needed first, from a file."""


def explained(error: BaseException, doing: str, *, is_written: bool = False) -> ChatledgerError | None:
    """
    The error that says what the operating system refused; None when it was something else.

    Args:
        error: What was raised.
        doing: What could not be done, such as "the index at /path cannot be built".
        is_written: Something may have been written, so `LogFullError` would say too much.
    """
    number = _number(error)
    if number in _FULL and not is_written:
        return LogFullError(f"{doing}: {error}. Nothing was written; free space and retry")
    if number in _REMEDIES:
        return ResourceError(f"{doing}: {error}. {_REMEDIES[number]}, and retry")
    return None


def unusable(error: BaseException, doing: str, *, is_written: bool = False) -> ChatledgerError:
    """The same for an index: what the operating system did not refuse is damage."""
    return explained(error, doing, is_written=is_written) or CorruptStateError(f"{doing}: {error}")


@contextmanager
def system_errors(doing: str, *, is_written: bool = False) -> Generator[None]:
    """Raise refusals of the operating system as ours; see `explained`. Also a decorator of functions."""
    try:
        yield
    except SystemRefusal as error:
        ours = explained(error, doing, is_written=is_written)
        if ours is None:
            raise
        raise ours from error


_REMEDIES: Final = {
    errno.EMFILE: "Close files, or raise the limit of open files of this process (ulimit -n)",
    errno.ENFILE: "Close files, or raise the limit of open files of the system (fs.file-max)",
    errno.ENOMEM: "Free memory",
    errno.ENOSPC: "Free space",
    errno.EDQUOT: "Free space",
}


def _number(error: BaseException | None) -> int | None:
    """The system's number of an error, or of its cause."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, lmdb.Error):
        code: object = getattr(error, "code", None)  # only what LMDB itself raised has it
        return code if isinstance(code, int) else None
    return None if error is None else _number(error.__cause__)
