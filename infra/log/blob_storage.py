"""Where large data lie: a short log for each name, in memory or in a table beside the events of an SQL log."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any, Final, LiteralString, NamedTuple, Protocol

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


Value = str | int | bytes
_LARGE: Final = "the large data of messages"
# Each entry names the one before it, so that of two that are added at the same time one is refused.
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS {blobs} "
    "(id {counted}, name TEXT NOT NULL, previous BIGINT NOT NULL, entry {bytes} NOT NULL, UNIQUE (name, previous))"
)
_PAGE: Final = 8


class Ask(Protocol):
    """Runs a statement; see `SqlLog.ask`."""

    def __call__(self, what: str, table: LiteralString, statement: LiteralString, *values: Value) -> list[Any]:
        """The rows that it gives."""
        ...


class SqlStrands:
    """Strands in a table; see `BlobStrands`."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, ask: Ask) -> None:
        self._asked = ask

    def _ask(self, statement: LiteralString, *values: Value) -> list[Any]:
        return self._asked(_LARGE, _TABLE, statement, *values)

    def last(self, name: str) -> Placed | None:
        """As declared in `BlobStrands`."""
        rows = self._ask("SELECT id, entry FROM {blobs} WHERE name = ? ORDER BY id DESC LIMIT 1", name)
        return _placed(rows[0]) if rows else None

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        """As declared in `BlobStrands`."""
        rows = self._ask(
            "INSERT INTO {blobs} (name, previous, entry) SELECT ?, ?, ? "
            "WHERE COALESCE((SELECT MAX(id) FROM {blobs} WHERE name = ?), 0) = ? ON CONFLICT DO NOTHING RETURNING id",
            *(name, expected, entry, name, expected),
        )
        if not rows:
            raise StrandMovedError
        position: int = rows[0]["id"]
        return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[Placed]:
        """As declared in `BlobStrands`."""
        while True:
            rows = self._ask(
                "SELECT id, entry FROM {blobs} WHERE name = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
                *(name, after, until, _PAGE),
            )
            if not rows:
                return
            for row in rows:
                placed = _placed(row)
                after = placed.position
                yield placed

    def erase(self, name: str, *, until: int) -> None:
        """As declared in `BlobStrands`."""
        self._ask("DELETE FROM {blobs} WHERE name = ? AND id <= ? RETURNING id", name, until)

    def remove(self, name: str, position: int) -> None:
        """As declared in `BlobStrands`."""
        self._ask("DELETE FROM {blobs} WHERE name = ? AND id = ? RETURNING id", name, position)

    def names(self) -> list[str]:
        """As declared in `BlobStrands`."""
        return [row["name"] for row in self._ask("SELECT DISTINCT name FROM {blobs}")]


def _placed(row: Any) -> Placed:
    return Placed(row["id"], bytes(row["entry"]))
