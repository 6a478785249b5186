"""Folders for what is derived from a log and needed for a while, such as a second index."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class Scratch:
    """
    Where such folders are made. Of an encrypted log that is a place where clear text may lie.

    Args:
        base: The folder to make them in; the system's temporary folder when None.
    """

    def __init__(self, base: Path | None = None) -> None:
        self.base = base

    @contextmanager
    def folder(self) -> Generator[Path]:
        """A new folder with mode 0700, which is gone after the `with`."""
        with tempfile.TemporaryDirectory(prefix="chatledger-", dir=self.base, ignore_cleanup_errors=True) as path:
            yield Path(path)
