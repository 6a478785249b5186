"""
Erasures under way, noted in the data directory, and finishing those that were interrupted before a server starts.

    erasing-<random>   an erasure is under way, and locked by its process; or it was interrupted, and nobody has the lock
    erasures-checked   the block files were looked through since this version has the directory

While a server runs, what it answers is enough: it has overwritten a message before it says that it is deleted. But of a message
that was deleted when a server died nobody can say whether it was overwritten, also not the next server. See `overwriting.py`.
"""

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ConfigurationError, LogUnavailableError

from .directory import DataDirectory
from .lock import OwnerLock
from .overwriting import Leftovers, find_deleted, overwrite_deleted, sync_folder

MARK: Final = "erasing-"
CHECKED: Final = "erasures-checked"
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def erasing(directory: DataDirectory) -> Generator[None]:
    """
    Note that messages are being erased, from before the first one until all are known to be overwritten.

    Raises:
        LogUnavailableError: It could not be noted, and nothing was erased; or what was erased could not be synced.
    """
    mark = directory.path / f"{MARK}{secrets.token_hex(8)}"
    lock = _make(mark)
    try:
        yield
        _remove(mark, directory)
    finally:
        lock.abandon()


def _make(mark: Path) -> OwnerLock:
    try:
        lock = OwnerLock.try_take(mark)
        sync_folder(mark.parent)
    except (ConfigurationError, OSError) as error:
        msg = f"an erasure could not be noted in {mark.parent}, and was not begun: {error}"
        raise LogUnavailableError(msg) from error
    assert lock is not None, "nobody else has that name"
    return lock


def _remove(mark: Path, directory: DataDirectory) -> None:
    try:
        # The server syncs the content of a block that it writes anew, but not its new name.
        for folder in _streams(directory):
            sync_folder(folder / "msgs")
        mark.unlink(missing_ok=True)
    except OSError as error:
        msg = f"what was erased in {directory.path} may not have reached the disk: {error}"
        raise LogUnavailableError(msg) from error


def interrupted(directory: DataDirectory) -> list[Path]:
    """The notes of erasures that were interrupted."""
    return [mark for mark in sorted(directory.path.glob(f"{MARK}*")) if _is_interrupted(mark)]


def is_due(directory: DataDirectory) -> bool:
    """Whether the next start of a server looks through the files."""
    return not (directory.path / CHECKED).exists() or any(directory.path.glob(f"{MARK}*"))


def find_unfinished(directory: DataDirectory) -> Iterator[Leftovers]:
    """What interrupted erasures left in the files. Only while no server runs."""
    for folder in _streams(directory):
        yield from find_deleted(folder, _prefix(folder))


def finish_interrupted(directory: DataDirectory) -> None:
    """
    Overwrite what interrupted erasures left, before a server starts. Only for the holder of the directory's lock.

    Where that fails, as on a full disk, it is logged and left to the next start.
    """
    if not is_due(directory):
        return
    marks = list(directory.path.glob(f"{MARK}*"))
    try:
        count = sum(overwrite_deleted(folder, _prefix(folder)) for folder in _streams(directory))
        (directory.path / CHECKED).touch(mode=0o600)
        for mark in filter(_is_interrupted, marks):
            mark.unlink()
    except OSError as error:
        _logger.warning(
            "an interrupted erasure in %s could not be finished; the next open tries again: %s", directory.path, error
        )
        return
    if count:
        _logger.info("an interrupted erasure in %s was finished: %d files had something left", directory.path, count)


def _is_interrupted(mark: Path) -> bool:
    """Whether nobody works on an erasure any more, and it was not finished."""
    try:
        descriptor = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return mark.exists()


def _streams(directory: DataDirectory) -> list[Path]:
    return [folder for folder in sorted(directory.streams.glob("*")) if (folder / "msgs").is_dir()]


def _prefix(folder: Path) -> bytes:
    """What the subjects of messages with content begin with. Where a feed stands is not erased but replaced."""
    kind = "b" if folder.name.endswith("-blobs") else "e"
    return f"{folder.name}.{kind}.".encode()
