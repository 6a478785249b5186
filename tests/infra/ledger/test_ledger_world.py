"""The world of ledger tests: a check of every promise, writers in other processes, and ledgers that lag behind."""

from pathlib import Path

import pytest
from tests.support.ledger_world import Worker, check_chat, ids, perform

import chatledger

# Promises


# Ledgers that lag behind


# Other processes


@pytest.mark.soak
def test_worker_does_what_a_ledger_does(tmp_path: Path) -> None:
    """A call in another process has the outcome that it has here."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        with Worker(tmp_path / "data", durability="fast").ready() as worker:
            there = worker.call("append", "c", [{"name": "user", "data": "hello", "id": "m"}])
            refused = worker.call("get_messages", "unknown")

        assert there == perform(ledger, "append", ["c", [{"name": "user", "data": "hello", "id": "m"}]], {})
        assert refused[:2] == ["error", "ChatNotFoundError"]
        assert ids(check_chat(ledger, "c").messages) == ["m"]
