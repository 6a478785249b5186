"""Logs in SQL databases: the faults that only they can have."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import chatledger
from chatledger import ConfigurationError

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


def test_a_file_of_an_older_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "log.db")) as file:
        file.execute(
            "CREATE TABLE stored_events (originator_id TEXT, originator_version INTEGER, topic TEXT, state BLOB)"
        )
    with pytest.raises(ConfigurationError, match="older version"):
        chatledger.open(f"sqlite:///{tmp_path}/log.db")
