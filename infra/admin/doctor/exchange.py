"""Putting a repaired directory in the place of a damaged one, so that nobody ever finds neither."""

import ctypes
import os
import shutil
import time
from pathlib import Path
from typing import Final

from ...log.nats_server.directory import DataDirectory
from ...log.nats_server.lock import OwnerLock

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05
_READY: Final = "ready"


def put_in_place(repaired: Path, directory: Path, kept_as: Path) -> None:
    """
    Give a damaged directory another name, and a repaired one its name.

    Where the system exchanges two names at once (Linux), `directory` is one or the other at every moment. Elsewhere there is a
    moment without any; `finish_interrupted_exchange` ends what was interrupted then.
    """
    # Without this mark a later repair would not know that the draft is whole, and remove it.
    (repaired.parent / _READY).touch()
    _flush(repaired.parent)
    repaired.rename(kept_as)
    if not _exchange(kept_as, directory):
        kept_as.rename(repaired)
        directory.rename(kept_as)
        repaired.rename(directory)
    _flush(directory.parent)


def finish_interrupted_exchange(directory: Path, draft: Path) -> None:
    """End an exchange that was interrupted between two renames: the repaired directory gets the name that nothing has."""
    if not directory.exists() and (draft / _READY).exists() and (draft / "data").is_dir():
        (draft / "data").rename(directory)
        _flush(directory.parent)


def remove_draft(draft: Path) -> None:
    """Remove what an interrupted repair left, when its server has ended."""
    place = DataDirectory(draft / "data")
    if place.path.is_dir():
        # The server of a repair that was killed is told to end, and writes until it has.
        ends_at = time.monotonic() + _PATIENCE_S
        while (lock := OwnerLock.try_take(place.lock_file)) is None and time.monotonic() < ends_at:
            time.sleep(_PAUSE_S)
        if lock is not None:
            lock.release()
    shutil.rmtree(draft, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second)
    return bool(rename(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _flush(folder: Path) -> None:
    """Bring the names in a folder onto the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
