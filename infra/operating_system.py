"""Calls that systems answer differently, and files that only their owner may read; the index does the same, below this room."""

from pathlib import Path

from chatledger.projections.lmdb.environment import make_folder, private
from chatledger.projections.operating_system import (
    HAS_EMBEDDED_SERVER,
    allow_open_files,
    is_running,
    lock_file,
    open_files_limit,
    open_folder_lock,
    replace,
)

__all__ = [
    "HAS_EMBEDDED_SERVER",
    "allow_open_files",
    "is_running",
    "lock_file",
    "open_files_limit",
    "open_folder_lock",
    "private",
    "replace",
    "write_private",
]


def write_private(file: Path, text: str) -> None:
    """
    Write a file with mode 0600, in a folder that is made with 0700 if it is not there.

    Raises:
        ConfigurationError: The folder cannot be made.
    """
    make_folder(file.parent)
    with open(file, "w", encoding="utf-8", opener=private) as stream:
        stream.write(text)
