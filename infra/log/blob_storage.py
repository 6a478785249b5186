"""Storage of large data (blobs): entries by name, and one in memory."""

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

CHUNK_BYTES: Final = 512 * 1024


class BlobChangedError(Exception):
    """The blob has another last entry than was expected; nothing was written."""


class BlobEntry(NamedTuple):
    """An entry of a blob and its position."""

    position: int
    entry: bytes


class BlobStorage(Protocol):
    """Blobs by name, each a sequence of entries. A name is made of letters, digits and dashes."""

    chunk_bytes: int
    """The maximum size of the data in one entry."""

    def last(self, name: str) -> BlobEntry | None:
        """Return the last entry of a blob, never a stale one; None when there is none."""
        ...

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        """
        Append an entry after the one at `expected`, 0 for none, and return its position.

        Raises:
            BlobChangedError: The last entry is another one.
        """
        ...

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        """Return the entries above `after` up to `until`, in order, read a few at a time."""
        ...

    def erase(self, name: str, *, until: int) -> None:
        """Remove all entries up to a position from the files, that at `until` last: an interruption leaves it there."""

    def remove(self, name: str, position: int) -> None:
        """Remove one entry from the files; nothing happens when it is gone."""

    def names(self) -> list[str]: ...

    def now_ms(self) -> int:
        """The time by the one clock that all who use the storage share: its server's, not that of a client."""
        ...


class MemoryBlobStorage:
    """Implements `BlobStorage` in memory."""

    def __init__(self, *, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        self._blobs: dict[str, dict[int, bytes]] = {}
        self._positions = itertools.count(1)

    def last(self, name: str) -> BlobEntry | None:
        with self._lock:
            entries = self._blobs.get(name)
            return BlobEntry(*next(reversed(entries.items()))) if entries else None

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        with self._lock:
            entries = self._blobs.setdefault(name, {})
            if next(reversed(entries), 0) != expected:
                raise BlobChangedError
            position = next(self._positions)
            entries[position] = entry
            return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        with self._lock:
            entries = list(self._blobs.get(name, {}).items())
        return (BlobEntry(position, entry) for position, entry in entries if after < position <= until)

    def erase(self, name: str, *, until: int) -> None:
        with self._lock:
            entries = {at: entry for at, entry in self._blobs.get(name, {}).items() if at > until}
            if entries:
                self._blobs[name] = entries
            else:
                self._blobs.pop(name, None)

    def remove(self, name: str, position: int) -> None:
        with self._lock:
            self._blobs.get(name, {}).pop(position, None)

    def names(self) -> list[str]:
        with self._lock:
            return [name for name, entries in self._blobs.items() if entries]

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
