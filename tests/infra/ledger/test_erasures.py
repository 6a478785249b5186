"""Deletions that return at their tombstones, and the receipts of what is erased after that."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.files_in_clear import files_with

import chatledger
from chatledger import ConfigurationError, ErasureReceipt, Ledger, LogUnavailableError, user
from chatledger.domain.versioned.keys import state_id
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.port import store_of
from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.store.erasure import Eraser
from chatledger.items import ItemStore

DAY_MS = 86_400_000


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:", erase="soon") as opened:
        yield opened


@pytest.fixture
def is_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The log erases nothing until this is set."""
    may_erase = threading.Event()
    erase = MemoryLog.erase

    def held(self: MemoryLog, stream_id: str, *, first_position: int, before: int) -> None:
        assert may_erase.wait(30)
        erase(self, stream_id, first_position=first_position, before=before)

    monkeypatch.setattr(MemoryLog, "erase", held)
    yield may_erase
    may_erase.set()


def fill(ledger: Ledger, chat_id: str, user_id: str = "ada", messages: int = 2) -> None:
    ledger.create_chat(chat_id, user_id)
    for number in range(messages):
        ledger.append(chat_id, user(f"secret of {chat_id} {number}"))


def test_a_deletion_returns_at_its_tombstone(ledger: Ledger, is_held: threading.Event) -> None:
    """Nothing is shown of it, its receipt is pending, and its events are still on the log."""
    fill(ledger, "trip")
    assert ledger.delete_chat("trip")
    assert ledger.get_chat("trip") is None
    assert ledger.search("secret") == []
    (receipt,) = ledger.erasures()
    assert receipt == ErasureReceipt(
        kind="chat", id="trip", position=4, event_count=3, deleted_at=receipt.deleted_at, erased_at=None
    )
    assert [receipt] == ledger.erasures(is_pending=True)
    assert ledger.erasures(is_pending=False) == []

    is_held.set()
    ledger.wait_erased()
    (done,) = ledger.erasures(is_pending=False)
    assert ledger.erasures(is_pending=True) == []
    assert done.erased_at is not None
    assert done.erased_at >= receipt.deleted_at
    assert [one.position for one in store_of(ledger).log.read(0)] == [4]


def test_threads_states_and_items_have_receipts_too(ledger: Ledger) -> None:
    """And what goes with a chat: it is in no answer when the deletion returns."""
    fill(ledger, "trip")
    states, items = StateStore(ledger), ItemStore(ledger.for_user("ada"))
    alone, along = state_id("ada", "alone"), state_id("ada", "trip")
    states.put(alone, {"x": 1})
    states.put(along, {"x": 1})
    items.put(("notes",), "n", {"text": "leeks"})
    assert states.delete(alone)
    assert items.delete(("notes",), "n")
    assert ledger.delete_chat("trip")
    assert states.get(along) is None
    ledger.wait_erased()
    assert [receipt.kind for receipt in ledger.erasures()] == ["state", "item", "chat", "state"]
    assert all(receipt.erased_at is not None for receipt in ledger.erasures())


def test_many_deletions_are_erased_together(ledger: Ledger, is_held: threading.Event) -> None:
    """The thread that erases takes along what was deleted meanwhile; the id of a deleted chat can be used at once."""
    for number in range(20):
        fill(ledger, f"c{number}")
    for number in range(20):
        assert ledger.delete_chat(f"c{number}")
    fill(ledger, "c7", "bob", messages=1)
    assert len(ledger.erasures(is_pending=True)) == 20
    is_held.set()
    ledger.wait_erased()
    assert len(ledger.erasures(is_pending=False)) == 20
    assert [message.text for message in ledger.get_messages("c7")] == ["secret of c7 0"]
    assert [chat.id for chat in ledger.list_chats()] == ["c7"]


def test_users_see_receipts_of_their_own(ledger: Ledger) -> None:
    fill(ledger, "trip")
    fill(ledger, "other", "bob")
    ada = ledger.for_user("ada")
    assert ada.delete_chat("trip")
    assert ledger.delete_chat("other")
    ada.wait_erased()
    assert [receipt.id for receipt in ada.erasures()] == ["trip"]
    assert [receipt.id for receipt in ledger.erasures()] == ["trip", "other"]


def test_closing_waits_for_what_was_deleted(tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/ledger.db"
    with chatledger.open(location, erase="soon") as ledger:
        fill(ledger, "trip", messages=20)
        assert ledger.delete_chat("trip")
    assert files_with(tmp_path, b"secret of trip") == []


def test_a_program_that_does_not_close_ends_when_it_is_erased(tmp_path: Path) -> None:
    code = """
        import sys, chatledger
        ledger = chatledger.open(sys.argv[1])
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [chatledger.user("secret of trip")])
        ledger.delete_chat("trip")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "data")], check=True)
    assert files_with(tmp_path, b"secret of trip") == []


def test_a_deletion_that_waits(is_held: threading.Event) -> None:
    """With `erase="wait"` the bytes are gone, or an error says that they are not."""
    with chatledger.open("memory:", erase="wait") as ledger:
        fill(ledger, "trip")
        deletion = threading.Thread(target=ledger.delete_chat, args=("trip",))
        deletion.start()
        deletion.join(0.2)
        assert deletion.is_alive()
        is_held.set()
        deletion.join(30)
        assert [receipt.erased_at is None for receipt in ledger.erasures()] == [False]


def test_who_waits_makes_others_at_the_place_wait(tmp_path: Path) -> None:
    """Ledgers of a process that are open at one place share what erases: whoever asked for less gets more."""
    location = f"sqlite:///{tmp_path}/ledger.db"
    with chatledger.open(location, erase="soon") as first, chatledger.open(location, erase="wait"):
        fill(first, "trip")
        assert first.delete_chat("trip")
        assert [receipt.erased_at is None for receipt in first.erasures()] == [False]
        assert files_with(tmp_path, b"secret of trip") == []


def test_a_log_that_does_not_erase(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion stands, its receipt stays pending, who waits hears why, and it is done when the log can."""

    def fail(*_: object, **__: object) -> None:
        msg = "no answer"
        raise LogUnavailableError(msg)

    fill(ledger, "trip")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryLog, "erase", fail)
        assert ledger.delete_chat("trip")
        with pytest.raises(LogUnavailableError, match=r"chat 'trip' was deleted.*no answer"):
            ledger.wait_erased()
        assert [receipt.erased_at for receipt in ledger.erasures()] == [None]
    ledger.wait_erased()
    assert ledger.erasures(is_pending=True) == []


def test_receipts_are_kept_for_a_month(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones go when another erasure is finished; the tombstones stay."""
    times = iter([0, 10 * DAY_MS, 31 * DAY_MS])
    monkeypatch.setattr("chatledger.infra.store.erasure.clock_ms", lambda: next(times))
    for chat_id in ("first", "second", "third"):
        fill(ledger, chat_id)
        assert ledger.delete_chat(chat_id)
        ledger.wait_erased()
    assert [receipt.id for receipt in ledger.erasures()] == ["second", "third"]
    assert [event.type for event in ledger.history("first")] == ["chat_deleted"]


def test_a_rebuilt_index_knows_what_is_to_be_erased(ledger: Ledger, is_held: threading.Event) -> None:
    """From the log: what of a deleted chat is there. What is gone it has no receipt of; the tombstone stays."""
    fill(ledger, "gone")
    is_held.set()
    assert ledger.delete_chat("gone")
    ledger.wait_erased()
    is_held.clear()
    fill(ledger, "trip")
    assert ledger.delete_chat("trip")
    ledger.rebuild()
    assert [receipt.id for receipt in ledger.erasures(is_pending=True)] == ["trip"]
    is_held.set()
    ledger.wait_erased()
    assert [receipt.id for receipt in ledger.erasures()] == ["trip"]
    assert ledger.verify().erasure_pending == ()


def test_what_a_killed_process_left_is_erased_by_the_next(tmp_path: Path) -> None:
    """Killed between the tombstone and the erasure: the next one that opens finds it in the index."""
    location = f"sqlite:///{tmp_path}/ledger.db"
    code = """
        import os, sys, chatledger
        from chatledger.infra.store.erasure import Eraser
        Eraser._run = lambda self: None  # begun, and does not come to it
        ledger = chatledger.open(sys.argv[1])
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [chatledger.user("secret of trip")] )
        assert ledger.delete_chat("trip")
        assert len(ledger.erasures(is_pending=True)) == 1
        os._exit(7)
    """
    assert callable(Eraser._run), "what the child takes out"
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(code), location], check=False)
    assert child.returncode == 7
    assert b"secret of trip" in (tmp_path / "ledger.db").read_bytes() + (tmp_path / "ledger.db-wal").read_bytes()
    with chatledger.open(location) as ledger:
        assert [receipt.erased_at is None for receipt in ledger.erasures()] == [False]
    assert files_with(tmp_path, b"secret of trip") == []


def test_views_of_earlier_moments_have_none(ledger: Ledger) -> None:
    fill(ledger, "trip")
    assert not hasattr(ledger.as_of(ledger.position), "erasures")


def test_another_word_than_soon_and_wait() -> None:
    with pytest.raises(ConfigurationError, match="erase must be 'soon' or 'wait', not 'later'"):
        chatledger.open("memory:", erase="later")  # type: ignore[arg-type]
