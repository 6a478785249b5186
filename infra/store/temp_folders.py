"""Folders for what is derived from a log and needed for a while; in memory where it must not come onto a disk in clear."""

import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ConfigurationError, ResourceError
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.operating_system import is_own, lock_file, open_folder_lock

RUNTIME_DIR_ENV: Final = "CHATLEDGER_RUNTIME_DIR"
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_MOUNTS: Final = Path("/proc/self/mountinfo")


def memory_folder() -> Path:
    """
    Return this user's private folder in memory, made if it is not there.

    It lies in `CHATLEDGER_RUNTIME_DIR` of the environment if that is set, else in `/dev/shm` or `XDG_RUNTIME_DIR`.

    Raises:
        ConfigurationError: This machine has no such place, or somebody else has made that folder.
    """
    named = os.environ.get(RUNTIME_DIR_ENV)
    if named and not is_in_memory(Path(named)):
        msg = f"{RUNTIME_DIR_ENV} names {named}, which is not a folder on a file system in memory (tmpfs)"
        raise ConfigurationError(msg)
    for place in [Path(named)] if named else _places():
        if is_in_memory(place) and os.access(place, os.W_OK | os.X_OK):
            return _private(place / f"chatledger-{os.geteuid()}")
    msg = (
        "with encryption the index is kept in memory, and this machine has no writable folder there (tmpfs at /dev/shm or "
        f"XDG_RUNTIME_DIR). Mount one and name it in {RUNTIME_DIR_ENV}; or keep the index on a volume that is encrypted "
        "itself: index=folder and Encryption(keys, index_at_rest='plain')"
    )
    raise ConfigurationError(msg)


def is_in_memory(path: Path) -> bool:
    """Whether an existing folder, or the one it would be made in, is on a file system in memory."""
    try:
        existing = next(folder for folder in [path, *path.parents] if folder.exists())
        device = existing.stat().st_dev
        mounts = _MOUNTS.read_text()
    except OSError:
        return False  # what cannot be known is not relied on
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {kind for mounted, kind in _mounted(mounts) if mounted == number}
    return bool(kinds) and kinds <= _IN_MEMORY


def _places() -> Iterator[Path]:
    # Not the other way round: services have no XDG_RUNTIME_DIR, and a user's processes are to share one index.
    yield Path("/dev/shm")  # noqa: S108 - what is made there is private, and checked to be
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime)


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    """The device and the kind of file system of each mount, see proc_pid_mountinfo(5)."""
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        yield place.split()[2], kind.split()[0]


def _private(folder: Path) -> Path:
    """The folder, which others may neither read nor have made."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        stats = folder.lstat()
    except OSError as error:
        msg = f"{folder} cannot be made: {error}"
        raise ConfigurationError(msg) from error
    if not stat.S_ISDIR(stats.st_mode) or not is_own(stats) or stat.S_IMODE(stats.st_mode) & 0o077:
        msg = f"{folder} is not a private folder of this user (mode 0700); remove it, or find out who made it"
        raise ConfigurationError(msg)
    return folder


_PREFIX: Final = "chatledger-scratch-"


class ScratchFolder:
    """A folder with mode 0700. As long as its `flock` is held it is in use; the kernel frees the lock of a killed process."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove it with all that is in it; calling it again does nothing."""
        self.release()  # before: on Windows a file that is open cannot be removed
        shutil.rmtree(self.path, ignore_errors=True)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Scratch:
    """
    The place for temporary folders. For an encrypted log it is one where clear text may lie.

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
        doing = "a temporary folder cannot be made"
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
        folders: list[Path] = []
        for folder in self._abandoned():
            folders.append(folder.path)
            folder.release()
        return folders

    def _abandoned(self) -> Iterator[ScratchFolder]:
        for path in Path(self.base or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            try:
                scratch = ScratchFolder(path, _lock(path)) if is_own(path.lstat()) else None
            except OSError:
                continue
            if scratch is not None:
                yield scratch


def _lock(path: Path) -> int:
    """A descriptor that holds the lock of a folder. `BlockingIOError` when somebody has it, `FileNotFoundError` when it is gone."""
    descriptor = open_folder_lock(path)
    try:
        lock_file(descriptor)
        path.stat()
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
