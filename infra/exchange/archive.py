"""Reading members of a .zip, whatever is wrong with it."""

import lzma
import re
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import InvalidValueError

from .source import Allowance, LimitedStream, as_utf8, refuse_unreadable

ZIP_MAGIC: Final = b"PK\x03\x04"
_CONVERSATIONS: Final = re.compile(r"conversations(-\d+)?\.json")
_UNPACKABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    StructError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
"""RuntimeError is an encrypted member, NotImplementedError (its subclass) an unknown version or compression; ValueError a bad name."""


def base_name(name: str) -> str:
    """Return the last part of the name of a member. PowerShell's Compress-Archive separates the parts by backslashes."""
    return name.replace("\\", "/").rpartition("/")[2]


class Archive:
    """The .zip of a data export."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, report: Reporter) -> None:
        self._archive, self._report = archive, report
        self._allowance = Allowance(str(path), report.max_unpacked_bytes)
        self.names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]

    def conversations(self) -> list[str]:
        """Return the names of the members that hold conversations: conversations.json, or its numbered parts."""
        return sorted(name for name in self.names if _CONVERSATIONS.fullmatch(base_name(name)))

    def read(self, name: str) -> bytes | None:
        """Return a member; None where it cannot be unpacked, which is reported."""
        try:
            with self._archive.open(name) as member:
                return as_utf8(LimitedStream(member, self._allowance).read())
        except InvalidValueError:
            raise
        except _UNPACKABLE as error:
            self._report.broken(f"{name} cannot be unpacked: {error}; skipped")
            return None


@contextmanager
def open_archive(path: Path, report: Reporter) -> Generator[Archive]:
    """The .zip at a path. Raises `InvalidValueError` when it cannot be read."""
    try:
        archive = zipfile.ZipFile(path)
    except _UNPACKABLE as error:
        refuse_unreadable(path, error)
    with archive:
        yield Archive(path, archive, report)


def start_of_conversations(path: Path, size: int) -> bytes:
    """Return the first bytes of the conversations in a .zip; none where there are none that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if _CONVERSATIONS.fullmatch(base_name(name)):
                    with archive.open(name) as member:
                        return as_utf8(member.read(size))
    except _UNPACKABLE:
        pass
    return b""
