"""The owner's lock: a `flock` that the server inherits, so that it is free only when both are gone."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Self

from chatledger.domain.errors import ConfigurationError
from chatledger.projections.lmdb.system_errors import explained


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
            lock = cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            msg = f"the lock {path} cannot be opened"
            raise explained(error, msg) or ConfigurationError(f"{msg}: {error}") from error
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
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
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Shared: several may look at a directory at rest at the same time.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
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
os.register_at_fork(after_in_child=_abandon_all)
