"""Logs by SQLAlchemy: positions without a gap from two processes, ids that collations confuse, and statements for SQL Server."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.alchemy_world import ALCHEMY_KINDS, new_alchemy_location
from tests.support.ledger_world import refused

import chatledger
import chatledger.admin
from chatledger import ConfigurationError, LogUnavailableError, user
from chatledger.infra.store.opening.locations import log_at
from chatledger.infra.store.opening.options import LogOnly
from chatledger.infra.store.opening.presence import has_ledger
from chatledger.testing import check_log

pytest.importorskip("sqlalchemy")

import sqlalchemy
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from chatledger.infra.log.alchemy.tables import COUNTERS, EVENTS, METADATA, clock

WRITER = """
import sys
import chatledger
import chatledger.admin
from chatledger import HeadConflictError, user

location, index, name = sys.argv[1:]
won = 0
with chatledger.open(location, index=index) as ledger:
    ledger.upsert_chat("shared", "ada")
    ledger.upsert_chat(name, "ada")
    for number in range(8):
        # Large ones are written while small ones of the other overtake them, if nothing holds these up.
        ledger.append(name, [user(f"{name} {number}"), user("x" * 60_000 * (number % 2))])
        branch = ledger.get_active_branch("shared")
        try:
            ledger.append("shared", [user(f"{name} {number}")], expected_head=branch.head_message_id)
            won += 1
        except HeadConflictError:
            pass
print(won)
"""


@pytest.fixture(params=ALCHEMY_KINDS)
def new_location(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes an empty database of one kind, and returns its location."""
    return new_alchemy_location(request, request.param, tmp_path)


@pytest.mark.guard
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "kind",
    [
        # Both names of PostgreSQL are one log.
        *(
            pytest.param(kind, marks=pytest.mark.soak if "psycopg" in kind else pytest.mark.guard)
            for kind in ALCHEMY_KINDS
        ),
        "postgresql",
        "sqlite",
    ],
)
def test_two_processes(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> None:
    """Of two that write to one head one wins; whoever follows sees each position after the one before; all indexes are equal."""
    if kind == "sqlite":
        location = f"sqlite:///{tmp_path}/log.db"
    elif kind == "postgresql":
        location = request.getfixturevalue("new_postgres_database")()
    else:
        location = new_alchemy_location(request, kind, tmp_path)()
    with log_at(LogOnly(location)) as log, chatledger.open(location, index=tmp_path / "follower"):
        command = [sys.executable, "-c", WRITER, location]
        writers = [
            subprocess.Popen([*command, str(tmp_path / name), name], stdout=subprocess.PIPE, text=True)
            for name in ("one", "other")
        ]
        seen = 0
        is_over = False
        while not is_over:
            is_over = all(writer.poll() is not None for writer in writers)
            for recorded in log.read(seen):
                assert seen + 1 == recorded.position
                seen = recorded.position
        outcomes = [writer.communicate() for writer in writers]
        assert [0, 0] == [writer.returncode for writer in writers]
        assert seen == log.last_position()

    with chatledger.open(location, index=tmp_path / "index") as ledger:
        written = ledger.get_messages("shared")
        branch = ledger.get_active_branch("shared")
        assert branch is not None
        assert sum(int(out) for out, _ in outcomes) == len(written) == branch.message_count
        assert [16, 16] == [len(ledger.get_messages(name)) for name in ("one", "other")]
        ledger.verify()
        there = contents(ledger)
    for index in ("one", "other", "follower"):
        with chatledger.open(location, index=tmp_path / index) as ledger:
            assert there == contents(ledger)


def contents(ledger: chatledger.Ledger) -> dict[str, list[tuple[str, str]]]:
    """The ids and texts of all messages by chat, as the index has them."""
    ledger.sync()
    chats = [chat.id for chat in ledger.list_chats(user_id="ada")]
    return {name: [(message.id, message.text) for message in ledger.get_messages(name)] for name in sorted(chats)}


def test_a_lock_of_others_on_mariadb_ends_a_write_in_time(
    new_mariadb_database: Callable[[], str], tmp_path: Path
) -> None:
    """And nothing was written; InnoDB's own patience is 50 s."""
    location = new_mariadb_database()
    other = sqlalchemy.create_engine(location)
    with chatledger.open(location, index=tmp_path / "index", timeout_s=1) as ledger:
        ledger.create_chat("trip", "ada")
        with other.connect() as connection:
            connection.execute(sqlalchemy.select(COUNTERS).with_for_update())
            with pytest.raises(LogUnavailableError, match=r"lock.*Nothing was written"):
                ledger.append("trip", [user("hello")])
        ledger.append("trip", [user("again")])
        assert ["again"] == [message.text for message in ledger.get_messages("trip")]
    other.dispose()


def test_ids_that_collations_confuse(new_location: Callable[[], str], tmp_path: Path) -> None:
    """Case, accents, trailing spaces and length tell ids apart, and every character comes back."""
    ids = ["Trip", "trip", "trip ", "tríp", "🦜", "x" * 2048, "x" * 2047 + "y", "'\"%s:a\\"]
    location = new_location()
    with chatledger.open(location, index=tmp_path / "index") as ledger:
        for chat_id in ids:
            ledger.create_chat(chat_id, "ada")
            ledger.append(chat_id, [user(f"of {chat_id} 🦜")])
    with chatledger.open(location, index=tmp_path / "anew") as ledger:
        for chat_id in ids:
            assert [f"of {chat_id} 🦜"] == [message.text for message in ledger.get_messages(chat_id)]


def test_a_commit_on_what_was_erased(new_location: Callable[[], str], tmp_path: Path) -> None:
    """The versions of a deleted chat are not given again, though their events are gone."""
    location = new_location()
    with chatledger.open(location, index=tmp_path / "index") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("secret words")])
        ledger.delete_chat("trip")
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("new")])
        ledger.verify()
    with log_at(LogOnly(location)) as log:
        assert b"secret words" not in b"".join(record.state for record in log.stored(0))


MODULES: tuple[Any, ...] = (mssql, oracle, mysql, postgresql)
DIALECTS = [module.dialect() for module in MODULES]


@pytest.fixture
def statements() -> Iterator[list[Any]]:
    """All statements that SQLAlchemy runs meanwhile, not yet of a dialect."""
    found: list[Any] = []

    def take(_connection: Any, statement: Any, *_rest: Any) -> None:
        found.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_execute", take)
    yield found
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_execute", take)


@pytest.mark.guard
def test_statements_of_dialects(statements: list[Any], tmp_path: Path) -> None:
    """Each statement that the contract of a log runs can be written for databases that are not here."""
    numbers = iter(range(1000))

    def make_log() -> Any:
        return log_at(LogOnly(f"sqlite+pysqlite:///{tmp_path}/{next(numbers)}.db"))

    check_log(make_log)
    for dialect in DIALECTS:
        written = {str(statement.compile(dialect=dialect)) for statement in statements if hasattr(statement, "compile")}

        assert len(written) > 20
        for table in METADATA.tables.values():
            assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=dialect))
            for index in table.indexes:
                assert str(CreateIndex(index).compile(dialect=dialect))
        assert str(sqlalchemy.select(clock(dialect.name)).compile(dialect=dialect))
        # What is not indexed by a digest would be too long for SQL Server, and what is counted by it could have gaps.
        assert not any("IDENTITY" in statement or "AUTO_INCREMENT" in statement for statement in written)


def test_sql_server_locks_the_counter_first(statements: list[Any], tmp_path: Path) -> None:
    """Each commit begins with the update of the counter, which is locked until its end."""
    with chatledger.open(f"sqlite+pysqlite:///{tmp_path}/log.db") as ledger:
        ledger.create_chat("trip", "ada")
        statements.clear()
        ledger.append("trip", [user("hello")])
    inserts = [
        number
        for number, one in enumerate(statements)
        if isinstance(one, sqlalchemy.Insert) and one.table.name.endswith(EVENTS)
    ]
    updates = [
        number for number, one in enumerate(statements) if isinstance(one, sqlalchemy.Update) and one.table is COUNTERS
    ]

    assert len(inserts) == len(updates) == 1
    assert updates[0] < inserts[0]


@pytest.mark.guard
def test_large_data_survive(new_location: Callable[[], str], tmp_path: Path) -> None:
    """What exceeds the columns and packets that databases have by default comes back."""
    text = "a parrot 🦜 " * 200_000
    location = new_location()
    with chatledger.open(location, index=tmp_path / "index") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user(text), user("x" * 300_000)])
    with chatledger.open(location, index=tmp_path / "anew") as ledger:
        assert [text, "x" * 300_000] == [message.text for message in ledger.get_messages("trip")]


def test_a_log_without_a_driver_is_not_taken_for_empty(tmp_path: Path) -> None:
    """A log that the SQLite module wrote is refused by SQLAlchemy, and says how it is opened."""
    file = tmp_path / "log.db"
    with chatledger.open(f"sqlite:///{file}") as ledger:
        ledger.create_chat("trip", "ada")
    refused(f"sqlite+pysqlite:///{file}", ConfigurationError, "sqlite://")


def test_whether_there_is_a_ledger(new_location: Callable[[], str]) -> None:
    """Looking makes nothing."""
    location = new_location()
    assert not has_ledger(location)
    assert not has_ledger(location)
    with log_at(LogOnly(location)):
        assert has_ledger(location)


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("mysql+nodriver://h/d", "dialect\\+driver"),
        ("nothing+pymysql://h/d", "dialect\\+driver"),
        ("mysql+mysqldb://h/d", "driver"),
        ("sqlite+pysqlite:////no/such/folder/x.db", "folder"),
    ],
)
def test_a_location_that_is_none(location: str, hint: str, tmp_path: Path) -> None:
    refused(location, ConfigurationError, hint, index=tmp_path / "index")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"this is not a database, but long enough to be taken for one" * 100)
    refused(f"sqlite+pysqlite:///{file}", ConfigurationError, "no SQLite database")


@pytest.mark.guard
def test_backup_and_restore(new_location: Callable[[], str], tmp_path: Path) -> None:
    """Positions come back as they were, with what was erased left out; the log goes on after them."""
    with chatledger.open(new_location(), index=tmp_path / "index") as ledger:
        for name in ("gone", "trip"):
            ledger.create_chat(name, "ada")
            ledger.append(name, [user("hello")])
        ledger.delete_chat("gone")
        ledger.append("trip", [user("again")])
        ledger.backup(tmp_path / "backup")
        last = ledger.position
    place = new_location()
    chatledger.admin.restore(tmp_path / "backup", place)
    with chatledger.open(place, index=tmp_path / "anew") as ledger:
        assert last == ledger.position
        ledger.append("trip", [user("and again")])
        assert ["hello", "again", "and again"] == [message.text for message in ledger.get_messages("trip")]
        ledger.verify()
    with closing(chatledger.open(place, index=tmp_path / "third")) as ledger:
        assert last + 1 == ledger.position
