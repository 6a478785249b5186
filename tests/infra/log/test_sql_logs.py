"""Logs in SQL databases: the faults that only they can have."""

import subprocess
import sys
from pathlib import Path

import pytest

OPEN_AND_CLOSE = """
import sys, threading
import chatledger

for number in range(40):
    ledger = chatledger.open(sys.argv[1])
    ledger.upsert_chat("trip", "ada")
    feed = threading.Thread(target=lambda: list(ledger.feed()))
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
