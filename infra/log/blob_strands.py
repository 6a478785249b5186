"""
What is asked of the place where large data lie: a short log for each name, a strand, on which nothing is written unseen.

Positions are never used again, also not after an erasure: whoever adds behind a position knows all that came before it.
"""

import itertools
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

CHUNK_BYTES: Final = 512 * 1024


class StrandMovedError(Exception):
    """The strand has another last entry than was expected; nothing was written."""


class Placed(NamedTuple):
    """An entry of a strand."""

    position: int
    entry: bytes


class BlobStrands(Protocol):
    """Strands of entries. A name is made of letters, digits and dashes."""

    chunk_bytes: int
    """How large the data in one entry may be."""

    def last(self, name: str) -> Placed | None:
        """The last entry, never a stale one; None when there is none."""
        ...

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        """
        Add an entry behind the one at `expected`, 0 for none; its position.

        Raises:
            StrandMovedError: The last entry is another one.
        """
        ...

    def read(self, name: str, *, after: int, until: int) -> Iterator[Placed]:
        """The entries above one position up to another one, in order, a few at a time."""
        ...

    def erase(self, name: str, *, until: int) -> None:
        """Remove all entries up to a position from the files, that at `until` last: an interruption leaves it there."""
        ...

    def remove(self, name: str, position: int) -> None:
        """Remove one entry from the files; nothing happens when it is gone."""
        ...

    def names(self) -> list[str]:
        """The names that have entries."""
        ...


class MemoryStrands:
    """Strands in memory."""

    def __init__(self, *, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        self._strands: dict[str, dict[int, bytes]] = {}
        self._positions = itertools.count(1)

    def last(self, name: str) -> Placed | None:
        """As declared in `BlobStrands`."""
        with self._lock:
            strand = self._strands.get(name)
            return Placed(*next(reversed(strand.items()))) if strand else None

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        """As declared in `BlobStrands`."""
        with self._lock:
            strand = self._strands.setdefault(name, {})
            if next(reversed(strand), 0) != expected:
                raise StrandMovedError
            position = next(self._positions)
            strand[position] = entry
            return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[Placed]:
        """As declared in `BlobStrands`."""
        with self._lock:
            entries = list(self._strands.get(name, {}).items())
        return (Placed(position, entry) for position, entry in entries if after < position <= until)

    def erase(self, name: str, *, until: int) -> None:
        """As declared in `BlobStrands`."""
        with self._lock:
            strand = {at: entry for at, entry in self._strands.get(name, {}).items() if at > until}
            if strand:
                self._strands[name] = strand
            else:
                self._strands.pop(name, None)

    def remove(self, name: str, position: int) -> None:
        """As declared in `BlobStrands`."""
        with self._lock:
            self._strands.get(name, {}).pop(position, None)

    def names(self) -> list[str]:
        """As declared in `BlobStrands`."""
        with self._lock:
            return [name for name, strand in self._strands.items() if strand]
