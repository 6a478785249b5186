"""Files that only their owner may read. The index makes its own with the same functions, so they are below this room."""

from pathlib import Path

from chatledger.projections.lmdb.environment import make_folder, private

__all__ = ["private", "write_private"]


def write_private(file: Path, text: str) -> None:
    """
    Write a file with mode 0600, in a folder that is made with 0700 if it is not there.

    Raises:
        ConfigurationError: The folder cannot be made.
    """
    make_folder(file.parent)
    with open(file, "w", encoding="utf-8", opener=private) as stream:
        stream.write(text)
