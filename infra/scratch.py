"""Folders for what is derived from a log and needed for a while, such as a second index."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ResourceError
from chatledger.projections.system_errors import system_errors

_PREFIX: Final = "chatledger-scratch-"


class ScratchFolder:
    """A folder with mode 0700. As long as its `flock` is held it is in use; the kernel frees the lock of a killed process."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove it with all that is in it; calling it again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Leave it to others."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Scratch:
    """
    Where such folders are made. Of an encrypted log that is a place where clear text may lie.

    Args:
        base: The folder to make them in; the system's temporary folder when None.
    """

    def __init__(self, base: Path | None = None) -> None:
        self.base = base

    def take(self) -> ScratchFolder:
        """A new folder, to be removed by whoever takes it."""
        while True:
            path = self._made()
            try:
                return ScratchFolder(path, _lock(path))
            except (BlockingIOError, FileNotFoundError):
                continue  # somebody took it for an abandoned one before it was locked, and removes it
            except OSError:
                return ScratchFolder(path, None)  # no locks here, so nobody can take it for an abandoned one

    def _made(self) -> Path:
        doing = "a temporary folder can not be made"
        try:
            with system_errors(doing):
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self.base))
        except OSError as error:
            msg = f"{doing}: {error}. Name one with room in TMPDIR, and retry"
            raise ResourceError(msg) from error

    @contextmanager
    def folder(self) -> Generator[Path]:
        """A new folder, which is gone after the `with`."""
        taken = self.take()
        try:
            yield taken.path
        finally:
            taken.remove()

    def remove_abandoned(self) -> None:
        """Remove what processes left behind that were killed."""
        for folder in self._abandoned():
            folder.remove()

    def abandoned(self) -> list[Path]:
        """The folders that processes left behind that were killed."""
        found: list[Path] = []
        for folder in self._abandoned():
            found.append(folder.path)
            folder.release()
        return found

    def _abandoned(self) -> Iterator[ScratchFolder]:
        for path in Path(self.base or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            try:
                found = ScratchFolder(path, _lock(path)) if path.lstat().st_uid == os.geteuid() else None
            except OSError:
                continue
            if found is not None:
                yield found


def _lock(path: Path) -> int:
    """A descriptor that holds the lock of a folder. `BlockingIOError` when somebody has it, `FileNotFoundError` when it is gone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
