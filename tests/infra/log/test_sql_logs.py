"""Logs in SQL databases: the faults that only they can have."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledger_world import internals

import chatledger
from chatledger import ConfigurationError, LedgerClosedError

OPEN_AND_CLOSE = """
import contextlib, sys, threading
import chatledger

def follow():
    with contextlib.suppress(chatledger.LedgerClosedError):  # the thread may begin later than that
        list(ledger.feed())

for number in range(40):
    ledger = chatledger.open(sys.argv[1])
    ledger.upsert_chat("trip", "ada")
    feed = threading.Thread(target=follow)
    feed.start()
    ledger.append("trip", [chatledger.user(str(number))])
    ledger.close()
    feed.join(30)
    assert not feed.is_alive()
"""


@pytest.mark.soak
def test_closing_waits_for_those_who_read(tmp_path: Path) -> None:
    """A ledger that is closed while threads follow it ends them; closing their connection under them killed the process."""
    command = [sys.executable, "-W", "error", "-c", OPEN_AND_CLOSE, f"sqlite:///{tmp_path}/log.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (0, "") == (done.returncode, done.stderr)


def test_closing_waits_for_those_who_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that is under way is written before its connection is closed."""
    order: list[str] = []
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        ledger.create_chat("trip", "ada")
        log: Any = internals(ledger).log
        insert, disconnect = log._recorder.insert_events, log._disconnect
        closer = threading.Thread(target=log.close)

        def insert_while_closing(events: Sequence[Any]) -> Any:
            closer.start()
            with log._appended:
                log._appended.wait_for(lambda: log._is_closed, 30)
            closer.join(0.1)  # it would not wait
            order.append("written")
            return insert(events)

        def note_and_disconnect() -> None:
            order.append("disconnected")
            disconnect()

        monkeypatch.setattr(log._recorder, "insert_events", insert_while_closing)
        monkeypatch.setattr(log, "_disconnect", note_and_disconnect)
        with pytest.raises(LedgerClosedError):  # the index cannot catch up with it any more
            ledger.append("trip", [chatledger.user("hi", id="m1")])
        closer.join(30)
        assert ["written", "disconnected"] == order
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        assert ["m1"] == [message.id for message in ledger.get_messages("trip")]


def test_a_file_of_an_older_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "log.db")) as file:
        file.execute(
            "CREATE TABLE stored_events (originator_id TEXT, originator_version INTEGER, topic TEXT, state BLOB)"
        )
    with pytest.raises(ConfigurationError, match="older version"):
        chatledger.open(f"sqlite:///{tmp_path}/log.db")
