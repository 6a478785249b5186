"""Databases of LangGraph's PostgresSaver: all of it is here afterwards, once, and graphs go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command, Send
from tests.support.cli_world import run
from tests.support.langgraph_programs import PROGRAMS, Point, asking
from tests.support.soak import IS_SOAK

import chatledger
from chatledger.errors import InvalidValueError
from chatledger.infra.exchange.langgraph_savers import import_saver_database
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver

pytestmark = pytest.mark.xdist_group("databases")
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def database(new_postgres_database: Callable[[], str]) -> str:
    """The location of an empty database with the tables of a saver."""
    location = new_postgres_database()
    with PostgresSaver.from_conn_string(location) as saver:
        saver.setup()
    return location


def fill(saver: Any) -> None:
    """The threads of all programs, or of some where there is no time, and what no program leaves."""
    for program in PROGRAMS if IS_SOAK else PROGRAMS[:3]:
        program(saver, {"configurable": {"thread_id": program.__name__}})
    calls = Calls(saver, is_async=False)
    before = calls.put("odd", {"text": "inline", "number": 1.5, "none": None, "flag": True, "points": [Point(1)]})
    calls.writes("odd", before, [("text", "next"), ("points", [Point(2)])], "task", path="~1")
    calls.put("odd", {"text": "next"}, parent=before, ns="", changed=["text"], versions={"text": 7})
    calls.put("odd", {"a": ["in a namespace"]}, ns="sub|more", metadata={"run_id": "r"})


def test_everything_is_read_as_the_saver_had_it(database: str) -> None:
    with PostgresSaver.from_conn_string(database) as theirs, chatledger.open("memory:") as ledger:
        fill(theirs)
        first = import_saver_database(ledger, database)
        position = ledger.last_position()
        second = import_saver_database(ledger, database)

        assert ledger.last_position() == position
        assert (first.known, first.checkpoints) == (0, second.known)
        assert (second.checkpoints, second.writes) == (0, 0)
        assert first.threads == len(LedgerSaver(ledger).threads())
        expected = {str(one.config): one for one in theirs.list(None)}
        found = {str(one.config): one for one in LedgerSaver(ledger, allow=[Point]).list(None)}
        assert found.keys() == expected.keys()
        for key, one in found.items():
            assert one == expected[key]


def test_packets_from_before_they_were_part_of_a_checkpoint(database: str) -> None:
    """A checkpoint of an older LangGraph has them as its parent's writes."""
    with PostgresSaver.from_conn_string(database) as theirs, chatledger.open("memory:") as ledger:
        calls = Calls(theirs, is_async=False)
        first = calls.put("t", {"a": 1})
        calls.writes("t", first, [("__pregel_tasks", Send("node", {"x": 1})), ("__pregel_tasks", Send("node", 2))])
        old = calls.put("t", {"a": 2}, parent=first)
        with psycopg.connect(database) as connection:
            connection.execute("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3')")
        import_saver_database(ledger, database)

        found = LedgerSaver(ledger).get_tuple({"configurable": {"thread_id": "t", "checkpoint_id": old}})
        assert found is not None
        assert found == calls.at("t", old)
        assert found.checkpoint["channel_values"]["__pregel_tasks"] == [Send("node", {"x": 1}), Send("node", 2)]


def test_a_graph_goes_on_where_it_was_and_a_later_import_adds_what_is_new(database: str) -> None:
    with PostgresSaver.from_conn_string(database) as theirs, chatledger.open("memory:") as ledger:
        asking(theirs).invoke({"log": ["start"]}, CONFIG)
        import_saver_database(ledger, database)
        asking(theirs).invoke(Command(resume="one"), CONFIG)
        later = import_saver_database(ledger, database)
        graph = asking(LedgerSaver(ledger))

        assert later.known > 0
        assert later.writes > 0
        assert graph.invoke(Command(resume="two"), CONFIG)["log"][-1] == "it ended after 2"


@pytest.mark.soak
def test_the_command_line_takes_such_databases(database: str, tmp_path: Path) -> None:
    with PostgresSaver.from_conn_string(database) as theirs:
        Calls(theirs, is_async=False).put("t", {"a": 1})
    first, second = run("import", database, at=tmp_path / "l"), run("import", database, at=tmp_path / "l")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "Read 1 thread of agents: 1 checkpoint added, 0 here already." in first.stdout
    assert "0 checkpoints added, 1 here already" in second.stdout


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://ada:s3cret@127.0.0.1:1/db",
        "postgresql://ada:s3cret@[::1/db",
        "postgresql://ada:s3cret@h:port/db",
        "postgresql://ada:half@s3cret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/s3cret@127.0.0.1:1/db",
        "postgresql://ada:s3cret\udcff@127.0.0.1:1/db",
    ],
)
def test_a_database_that_cannot_be_read_is_refused_without_its_password(
    location: str, ledger: chatledger.Ledger
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        import_saver_database(ledger, location)
    assert "s3cret" not in str(caught.value)
    assert ledger.last_position() == 0


@pytest.mark.soak
def test_a_database_without_such_tables_is_refused(
    new_postgres_database: Callable[[], str], ledger: chatledger.Ledger
) -> None:
    with pytest.raises(InvalidValueError, match="has no tables of LangGraph's PostgresSaver"):
        import_saver_database(ledger, new_postgres_database())


@pytest.mark.soak
def test_writes_during_an_import_come_with_the_next_one(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import reads one state of the database: never writes of a checkpoint that it lacks, or values of a later one."""
    store = Threads.put_checkpoint
    with PostgresSaver.from_conn_string(database) as theirs, chatledger.open("memory:") as ledger:
        calls = Calls(theirs, is_async=False)
        first = calls.put("t", {"a": [1]})

        def go_on(threads: Threads, *args: Any, **options: Any) -> None:
            monkeypatch.undo()
            second = calls.put("t", {"a": [1, 2]}, parent=first)
            calls.writes("t", first, [("a", [2])], "task")
            calls.writes("t", second, [("a", [3])], "task")
            store(threads, *args, **options)

        monkeypatch.setattr(Threads, "put_checkpoint", go_on)
        before, after = import_saver_database(ledger, database), import_saver_database(ledger, database)

        assert (before.checkpoints, before.writes) == (1, 0)
        assert (after.checkpoints, after.writes, after.known) == (1, 2, 1)
        assert list(LedgerSaver(ledger).list(None)) == list(theirs.list(None))


@pytest.mark.soak
def test_a_broken_row_is_named(database: str, ledger: chatledger.Ledger) -> None:
    with PostgresSaver.from_conn_string(database) as theirs:
        Calls(theirs, is_async=False).put("t", {"a": [1]})
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE checkpoint_blobs SET blob = 'xc1'")
    with pytest.raises(InvalidValueError, match="of thread 't'"):
        import_saver_database(ledger, database)
