"""Files of LangGraph's SqliteSaver: all of it is here afterwards, once, and graphs go on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from tests.support.cli_world import run
from tests.support.langgraph_programs import PROGRAMS, Point, asking, run_nested

import chatledger
from chatledger.domain.errors import InvalidValueError
from chatledger.infra.exchange.langgraph_savers import import_saver_file, is_saver_file
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A file with what all programs leave, each on its thread; still open by its saver."""
    path = tmp_path / "saver.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for program in PROGRAMS:
            program(saver, {"configurable": {"thread_id": program.__name__}})
        yield path


@pytest.mark.soak
def test_everything_is_read_as_the_saver_had_it(file: Path) -> None:
    with chatledger.open("memory:") as ledger, SqliteSaver.from_conn_string(str(file)) as theirs:
        first = import_saver_file(ledger, file)
        position = ledger.last_position()
        second = import_saver_file(ledger, file)
        ours = LedgerSaver(ledger)

        assert ledger.last_position() == position
        assert (first.threads, first.known, first.checkpoints) == (len(PROGRAMS), 0, second.known)
        assert (second.checkpoints, second.writes) == (0, 0)
        expected = {str(found.config): found for found in theirs.list(None)}
        found = {str(one.config): one for one in ours.list(None)}
        assert found.keys() == expected.keys()
        for key, one in found.items():
            assert one == expected[key]
        rebuilt = import_saver_file(ledger, file)
        assert rebuilt.checkpoints == 0


def test_a_graph_goes_on_where_it_was(ledger: chatledger.Ledger, tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "t"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "saver.db")) as saver:
        asking(saver).invoke({"log": ["start"]}, config)
        asking(saver).invoke(Command(resume="one"), config)
    import_saver_file(ledger, tmp_path / "saver.db")
    graph = asking(LedgerSaver(ledger))
    assert graph.invoke(Command(resume="two"), config)["log"] == ["start", "it heard one and two", "it ended after 2"]
    import_saver_file(ledger, tmp_path / "saver.db")
    assert graph.get_state(config).values["log"][-1] == "it ended after 2"


def test_classes_stay_what_they_are_without_being_loaded(ledger: chatledger.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "saver.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        Calls(saver, is_async=False).put("t", {"points": [Point(1), Point(2)]})
    import_saver_file(ledger, path)
    found = LedgerSaver(ledger, allow=[Point]).get_tuple({"configurable": {"thread_id": "t"}})
    assert found is not None
    assert found.checkpoint["channel_values"]["points"] == [Point(1), Point(2)]


@pytest.mark.soak
def test_the_command_line_takes_such_files(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "ledger"
    first, second = run("import", file, at=place), run("import", file, "--format", "langgraph", at=place)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert f"Read {len(PROGRAMS)} threads of agents" in first.stdout
    assert "0 checkpoints added" in second.stdout
    logged = run("log", at=place).stdout
    assert "version_put" in logged
    assert "version_writes_put" in logged


def test_other_files_are_refused(ledger: chatledger.Ledger, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("create table checkpoints (id)")
    (tmp_path / "text").write_text("{}")
    for name in ("other.db", "text", "absent"):
        assert not is_saver_file(tmp_path / name)
        with pytest.raises(InvalidValueError, match=name):
            import_saver_file(ledger, tmp_path / name)


def test_a_broken_row_is_named(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("update checkpoints set checkpoint = x'c1' where thread_id = ?", (run_nested.__name__,))
        database.commit()
    with chatledger.open("memory:") as ledger, pytest.raises(InvalidValueError, match="of thread 'run_nested'"):
        import_saver_file(ledger, file)


def test_plain_values_of_any_shape_come_along(tmp_path: Path) -> None:
    """More rows and keys than pieces fit into an event; importing the file again, or what was added, writes that alone."""
    file = tmp_path / "saver.db"
    rows: list[Any] = [{"row": number, "of": [True, None, "r" * 60]} for number in range(14_000)]
    with (
        closing(sqlite3.connect(file, check_same_thread=False)) as connection,
        chatledger.open("memory:") as ledger,
    ):
        theirs, ours = Calls(SqliteSaver(connection), is_async=False), Calls(LedgerSaver(ledger), is_async=False)
        first = theirs.put("t", {"rows": rows, "keys": {str(row): row for row in range(4_000)}})
        theirs.writes("t", first, [("rows", [*rows, "one more"])])
        import_saver_file(ledger, file)
        assert ours.at("t", first)[:3] == theirs.at("t", first)[:3]
        assert ours.at("t", first).pending_writes == theirs.at("t", first).pending_writes

        second = theirs.put("t", {"rows": [*rows[:70], 0, *rows[70:]], "keys": {}}, parent=first)
        import_saver_file(ledger, file)
        position = ledger.last_position()
        import_saver_file(ledger, file)
        assert ledger.last_position() == position
        assert ours.at("t", second).checkpoint == theirs.at("t", second).checkpoint
