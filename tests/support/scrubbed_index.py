"""Indexes of which something was deleted."""

# White-box: a scrub is interrupted, and the format of the file altered.
# pyright: reportPrivateUsage=false

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st
from tests.support.naive_index import dump

from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.environment import Transaction

TABLES = ("meta", "chat_ids", "message_ids", "order", "rows", "search")
TOKEN = re.compile(rb"<[0-9]{6}>")


class World:
    """Rows with recognisable keys and values in a generation, and what should be there."""

    def __init__(self, path: Path, map_bytes: int = 64 * 1024 * 1024) -> None:
        self.generation = Generation(1, path, map_bytes=map_bytes)
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self._count = 0

    def put(self, table: str, sizes: list[int], *, over: int = 0) -> None:
        """New rows, one for each size of value; the first `over` replace rows of the same table."""
        known = [key for name, key in self.rows if name == table][:over]
        changes = dict[bytes, bytes]()
        for number, size in enumerate(sizes):
            token = b"<%06d>" % self._count
            # Values that others replace must not leave their token in the key that stays.
            key = known[number] if number < len(known) else b"%04d" % (self._count * 7919 % 10_000) + token
            changes[key] = token * max(1, size // len(token))
            self._count += 1

        def change(txn: Transaction) -> None:
            for key, value in changes.items():
                if (old := self.rows.get((table, key))) is not None:
                    txn.delete(key, old, db=getattr(self.generation.tables, table))
                txn.put(key, value, db=getattr(self.generation.tables, table))
            if known:
                self.generation.note_dirty(txn)

        self.generation.update(change)
        self.rows |= {(table, key): value for key, value in changes.items()}

    def delete(self, rows: list[tuple[str, bytes]]) -> None:
        """Remove rows in one transaction, as the deletion of a chat does."""

        def change(txn: Transaction) -> None:
            for table, key in rows:
                txn.delete(key, db=getattr(self.generation.tables, table))
            self.generation.note_dirty(txn)

        self.generation.update(change)
        for row in rows:
            del self.rows[row]

    def found(self) -> set[bytes]:
        """The tokens that are in the file."""
        return set(TOKEN.findall(self.generation.file.read_bytes()))

    def wanted(self) -> set[bytes]:
        """Those that may be."""
        return set(TOKEN.findall(b" ".join(key + b" " + value for (_, key), value in self.rows.items())))

    def check_rows(self) -> None:
        """All rows are as they were written."""
        with self.generation.reading() as txn:
            there = {
                (table, key): value
                for table in TABLES
                for key, value in dump(txn, getattr(self.generation.tables, table))
                if TOKEN.search(key)
            }
        assert there == self.rows

    def is_due(self) -> bool:
        """Whether there is something to scrub."""
        with self.generation.reading() as txn:
            return self.generation.scrub_due(txn) is not None


@contextmanager
def opened(path: Path, map_bytes: int = 64 * 1024 * 1024) -> Generator[World]:
    """A world that is closed at the end."""
    world = World(path, map_bytes)
    try:
        yield world
    finally:
        world.generation.close()


sizes = st.lists(st.sampled_from([8, 100, 700, 1900, 2100, 4000, 4080, 5000, 9000, 30_000]), min_size=1, max_size=12)
