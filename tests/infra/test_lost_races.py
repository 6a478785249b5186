"""Commands that the log refuses again and again."""

# pyright: reportPrivateUsage=false

import time

import pytest

import chatledger
from chatledger import NewMessage
from chatledger.domain.errors import CorruptStateError
from chatledger.infra.store import Store
from chatledger.projections.keys import id_key


def test_an_index_that_lost_a_chat_is_told_from_another_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has events that the index read and does not show. Others write to other chats meanwhile."""
    monkeypatch.setitem(Store.execute.__kwdefaults__ or {}, "timeout_s", 1.0)
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.create_chat("d", "ada")
        ledger._store.index.update(
            lambda generation, txn: txn.delete(b"c" + id_key("c"), db=generation.tables.chat_ids)
        )
        assert ledger.get_chat("c") is None

        def write_elsewhere(pause_s: float) -> None:
            del pause_s
            ledger.append("d", [NewMessage("user", "busy")])

        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", write_elsewhere)
            with pytest.raises(CorruptStateError, match=r"'c'.*rebuild"):
                ledger.upsert_chat("c", "ada")
        ledger.rebuild()
        assert ledger.upsert_chat("c", "ada").user_id == "ada"


def test_pauses_stay_short_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty seconds have room for more than a thousand attempts."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with chatledger.open("memory:") as ledger:
        for attempts in (1, 2, 5_000):
            ledger._store._await_other("c", attempts, time.monotonic() + 60, {0})

    assert len(pauses) == 2
    assert all(0 <= pause <= 0.05 for pause in pauses)
