"""The last event of a SQL log, damaged on the disk: it is there, so the log lost nothing, and the index has what it says."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.encrypted_world import in_memory

import chatledger
from chatledger import Encryption, user
from chatledger.errors import ChatledgerError, CorruptStateError, LogRegressedError
from chatledger.graph_state import StateStore, state_id

__all__ = ["in_memory"]

STATE = state_id("ada", "c")
Change = Callable[[bytes], bytes]


def _of_a_value(state: bytes) -> bytes:
    return state.replace(b"number 3", b"number 7")


def _of_its_form(state: bytes) -> bytes:
    return bytes((state[0] ^ 0xFF, *state[1:]))


CHANGES = {"a value": _of_a_value, "its form": _of_its_form}


def fill(location: str, index: Path | None, **options: Any) -> None:
    """Four versions of a state; the last one is the last event."""
    with chatledger.open(location, index=index, **options) as ledger:
        ledger.upsert_chat("chat", "ada")
        ledger.append("chat", [user("before")])
        for number in range(4):
            StateStore(ledger).update(STATE, {"generated_text": f"number {number}"}, node="write")


def read(ledger: chatledger.Ledger) -> list[str]:
    return [text(ledger, version) for version in (1, 2, 3, 4)]


def text(ledger: chatledger.Ledger, version: int | None = None) -> str:
    state = StateStore(ledger).get(STATE, version)
    assert state is not None
    return str(state["generated_text"])


def damage_sqlite(file: Path, change: Change) -> None:
    with closing(sqlite3.connect(file)) as database:
        position, state = database.execute("SELECT rowid, state FROM stored_events ORDER BY rowid DESC").fetchone()
        assert change(state) != state
        database.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", (change(state), position))
        database.commit()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_all_is_read_and_the_damage_is_told(change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The ledger opens, reads every version from the index and takes new ones; `verify` and the history name the damage."""
    location, index = f"sqlite:///{tmp_path}/log.db", tmp_path / "index"
    fill(location, index)
    damage_sqlite(tmp_path / "log.db", change)
    with caplog.at_level(logging.WARNING), chatledger.open(location, index=index) as ledger:
        position = ledger.position

        assert [f"number {number}" for number in range(4)] == read(ledger)
        told = [record.getMessage() for record in caplog.records if "is damaged" in record.getMessage()]
        assert len(told) == 1
        assert f"position {position}" in told[0]
        assert "number" not in told[0]
        with pytest.raises(ChatledgerError, match=f"position {position}"):
            ledger.verify()
        with pytest.raises(ChatledgerError, match=f"position {position}"):
            list(ledger.history(after=position - 1))
        assert StateStore(ledger).update(STATE, {"generated_text": "more"}, node="write").version == 5
    with chatledger.open(location, index=index) as ledger:
        assert text(ledger) == "more"


@pytest.mark.soak
def test_without_the_index_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/log.db"
    fill(location, tmp_path / "index")
    damage_sqlite(tmp_path / "log.db", _of_its_form)
    with pytest.raises(CorruptStateError) as caught:
        chatledger.open(location, index=tmp_path / "other")
    assert caught.value.version == 4


def test_a_log_that_lost_its_end_and_grew_again_is_refused(tmp_path: Path) -> None:
    """Another event in the place of the last one, of the same version of the same state, is no damage."""
    file, location, index = tmp_path / "log.db", f"sqlite:///{tmp_path}/log.db", tmp_path / "index"
    fill(location, index)
    shutil.copyfile(file, tmp_path / "older")
    with chatledger.open(location, index=index) as ledger:
        StateStore(ledger).update(STATE, {"generated_text": "lost"}, node="write")
    shutil.copyfile(tmp_path / "older", file)
    with pytest.raises(LogRegressedError):
        chatledger.open(location, index=index)
    shutil.move(tmp_path / "log.db-witness", tmp_path / "witness")
    with chatledger.open(location, index=tmp_path / "fresh") as ledger:
        StateStore(ledger).update(STATE, {"generated_text": "other"}, node="write")
    shutil.rmtree(tmp_path / "log.db-witness")
    shutil.move(tmp_path / "witness", tmp_path / "log.db-witness")
    with pytest.raises(LogRegressedError):
        chatledger.open(location, index=index)


def test_an_encrypted_event_that_is_damaged_is_told_from_a_wrong_key(tmp_path: Path, in_memory: Path) -> None:
    """Damage is served around, as the key opens other events; a wrong key of that name is refused, and writes nothing."""
    location, old, new = f"sqlite:///{tmp_path}/log.db", Encryption.new_key("k1"), Encryption.new_key("k2")
    fill(location, None, encryption=Encryption([old]))
    damage_sqlite(tmp_path / "log.db", lambda state: bytes((*state[:-1], state[-1] ^ 1)))
    with chatledger.open(location, encryption=Encryption([new, old])) as ledger:
        assert [f"number {number}" for number in range(4)] == read(ledger)
        StateStore(ledger).update(STATE, {"generated_text": "more"}, node="write")
        position = ledger.position
    with pytest.raises(CorruptStateError) as caught:
        chatledger.open(location, encryption=Encryption([Encryption.new_key("k2"), old]))
    assert caught.value.position == position


@pytest.mark.soak
def test_also_in_postgresql(new_postgres_database: Callable[[], str], tmp_path: Path) -> None:
    psycopg: Any = pytest.importorskip("psycopg")
    location = new_postgres_database()
    fill(location, tmp_path / "index")
    with psycopg.connect(location) as connection:
        query = "SELECT id, state FROM chatledger_events ORDER BY id DESC LIMIT 1"
        position, state = connection.execute(query).fetchone()
        changed = (_of_a_value(bytes(state)), position)
        connection.execute("UPDATE chatledger_events SET state = %s WHERE id = %s", changed)
    with chatledger.open(location, index=tmp_path / "index") as ledger:
        assert read(ledger)[-1] == "number 3"
        with pytest.raises(ChatledgerError, match="position 6"):
            ledger.verify()
