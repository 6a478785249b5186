"""Bytes of what was erased in an SQLite file: none, in whatever order small rows of many were written and erased."""

# White-box: the storages of a log are used without what stands above them.
# pyright: reportPrivateUsage=false

import random
import re
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import store_behind
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, user
from chatledger.domain.chat.live import LiveKey
from chatledger.infra.log.blob_storage import BlobStorage
from chatledger.infra.log.live_storage import LiveStorage

MARK = re.compile(rb"<(c[0-9]+)>")
KINDS = ["sqlite", "sqlite+pysqlite"]
Table = tuple[Callable[[str, bytes], object], Callable[[str], object]]
"""Adds bytes for an owner, and erases all that an owner has."""


@contextmanager
def small_folder() -> Generator[Path]:
    """A folder in memory where there is such a file system: SQLite waits for the disk with each commit."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    with small_folder() as folder:
        yield folder


def chats(ledger: Ledger) -> Table:
    def add(name: str, content: bytes) -> None:
        ledger.upsert_chat(name, "ada")
        ledger.append(name, [user(content.decode())])

    return add, ledger.delete_chat


def large_data(ledger: Ledger) -> Table:
    storage: BlobStorage = store_behind(ledger).log.blobs._storage

    def end(name: str) -> int:
        last = storage.last(name)
        return last.position if last else 0

    return lambda name, content: storage.add(name, content, expected=end(name)), lambda name: storage.erase(
        name, until=end(name)
    )


def live_streams(ledger: Ledger) -> Table:
    storage: LiveStorage = store_behind(ledger).log.live.storage

    def add(name: str, content: bytes) -> None:
        key = LiveKey(name, "s")
        ends = storage.ends(key)
        if ends is None or ends.last is None:
            storage.create(key, content)
        else:
            storage.add(key, content, expected=ends.last.position)

    return add, lambda name: storage.drop(LiveKey(name, "s"))


def check_story(folder: Path, table: Table, rng: random.Random, *, owners: int, rounds: int) -> None:
    """Write rows of many owners by turns, and erase all of some of them, again and again: the others alone are in the files."""
    add, erase = table
    names, living = iter(range(1_000_000)), list[str]()
    for _ in range(rounds):
        while len(living) < owners:
            living.append(f"c{next(names)}")
        for _ in range(owners * 10):
            name = rng.choice(living)
            add(name, f"<{name}>".encode() * rng.choice([10, 60, 100, 200]))
        rng.shuffle(living)
        for _ in range(owners * 2 // 3):
            erase(living.pop())
            assert marks(folder) <= set(living)


def marks(folder: Path) -> set[str]:
    """Return the owners whose content stands in the files of the log."""
    return {
        mark.decode() for file in folder.glob("log.db*") if file.is_file() for mark in MARK.findall(file.read_bytes())
    }


@pytest.mark.parametrize(
    ("kind", "table_of", "seed", "rounds"),
    [
        *(("sqlite", table_of, 4, 1) for table_of in (large_data, live_streams)),
        *(
            pytest.param("sqlite+pysqlite", table_of, 4, 1, marks=pytest.mark.guard)
            for table_of in (large_data, live_streams)
        ),
        ("sqlite", chats, 4, 1),
        pytest.param("sqlite+pysqlite", chats, 3, 2, marks=pytest.mark.guard),
    ],
)
def test_rows_of_many_by_turns(
    folder: Path, kind: str, table_of: Callable[[Ledger], Table], seed: int, rounds: int
) -> None:
    """
    SQLite joins pages that deletions have emptied, and leaves copies of the rows it moves where no row is: for the next deletion.

    With these seeds it did.
    """
    with chatledger.open(f"{kind}:///{folder}/log.db") as ledger:
        check_story(folder, table_of(ledger), random.Random(seed), owners=30, rounds=rounds)


@given(seed=st.integers(0, 2**32), owners=st.integers(2, 30), table_of=st.sampled_from([large_data, live_streams]))
@settings(max_examples=examples(6), deadline=None)
def test_any_rows_by_turns(seed: int, owners: int, table_of: Callable[[Ledger], Table]) -> None:
    with small_folder() as folder, chatledger.open(f"sqlite:///{folder}/log.db") as ledger:
        check_story(folder, table_of(ledger), random.Random(seed), owners=owners, rounds=3)


@pytest.mark.parametrize("kind", KINDS)
def test_where_sqlite_does_not_overwrite_by_itself(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some builds of SQLite overwrite what is freed and others do not. A table that outgrows its first page leaves a copy there then."""
    make = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = make(*args, **kwargs)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", connect)
    with chatledger.open(f"{kind}:///{folder}/log.db") as ledger:
        add, erase = chats(ledger)
        for number in range(20):
            add("c1", b"<c1>" * 30)
            add("c2", b"<c2>" * number)
        erase("c1")
        assert marks(folder) == {"c2"}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("sqlite+pysqlite", marks=pytest.mark.guard)])
def test_the_room_of_what_was_erased(kind: str, folder: Path) -> None:
    """It is given back once it is more than half of the file, and then all of it. Positions stay, and go on."""
    with chatledger.open(f"{kind}:///{folder}/log.db", compression="none") as ledger:
        add, erase = chats(ledger)
        for number in range(480):
            add(f"c{number % 4}", b"x" * 3000)
        before = {recorded.position: recorded.chat_id for recorded in ledger.history()}
        sizes = list[int]()
        for number in range(3):
            erase(f"c{number}")
            sizes.append((folder / "log.db").stat().st_size)
        assert sizes[0] == sizes[1] > sizes[2] * 3

        after = [recorded.position for recorded in ledger.history()]
        assert after == [position for position, chat in before.items() if chat == "c3"] + [484 + 1, 484 + 2, 484 + 3]
        add("c3", b"more")
        assert ledger.last_position() == 484 + 4
        ledger.rebuild()
        assert ledger.verify().message_count == 121
