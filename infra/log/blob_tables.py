"""Large data in a table beside the events of an SQL log."""

from collections.abc import Iterator
from typing import Any, Final, LiteralString, Protocol

from .blob_strands import CHUNK_BYTES, Placed, StrandMovedError

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
