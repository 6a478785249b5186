"""Damage that is met while the search index is merged: by the thread that follows the log, and by a writer."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest
from tests.support.ledger_world import internals

import chatledger
from chatledger import user
from chatledger.domain.chat.events import Recorded


def test_damage_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A page of the index that cannot be read is told, and what is written afterwards is followed all the same."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        index = internals(ledger).index
        calls = threading.Semaphore(0)

        def merge() -> bool:
            calls.release()
            msg = "mdb_get: MDB_CORRUPTED: Located page was wrong type"
            raise lmdb.CorruptedError(msg)

        monkeypatch.setattr(index, "merge_search", merge)
        ledger.create_chat("c", "ada")
        with caplog.at_level(logging.WARNING):
            for number in range(2):
                ledger.append("c", [user(str(number))])
                assert calls.acquire(timeout=20)
        monkeypatch.undo()

    assert "following the log: mdb_get: MDB_CORRUPTED" in caplog.text


def test_a_writer_that_meets_damage_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it stored is stored; merging comes afterwards, and is no reason to say otherwise."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        met: list[int] = []

        def relieve(_live: object, events: Sequence[Recorded]) -> None:
            met.append(len(events))
            msg = "mdb_get: MDB_CORRUPTED: Located page was wrong type"
            raise lmdb.CorruptedError(msg)

        monkeypatch.setattr(internals(ledger).index, "_is_search_overdue", True)
        monkeypatch.setattr(internals(ledger).index, "_relieve_search", relieve)
        ledger.append("c", [user("hello")])

        assert 1 in met
        assert [message.text for message in ledger.get_messages("c")] == ["hello"]
