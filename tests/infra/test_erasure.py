"""Deleting chats: what is erased, and what a crash in between leaves."""

# White-box: an erasure is interrupted where no public method reaches.
# pyright: reportPrivateUsage=false

from pathlib import Path

import pytest

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.infra.log import EventLog
from chatledger.infra.log.jetstream import JetStreamLog
from chatledger.infra.log.memory import MemoryLog

SECRET = "the password is swordfish"


class Crash(Exception):  # noqa: N818 - not an error, an event
    """The process dies here."""


def _half_erased(log: EventLog, chat_id: str, positions: list[int]) -> None:
    """Erase some events only, as an erasure that is interrupted does."""
    for position in positions:
        if isinstance(log, JetStreamLog):
            log._stream_recorder.erase_events(chat_id, after=position - 1, before=position + 1)
        else:
            assert isinstance(log, MemoryLog)
            log._events.erase(chat_id, first=position, before=position + 1)


def _fill(ledger: Ledger) -> None:
    ledger.create_chat("doomed", "ada")
    for number in range(10):
        ledger.append("doomed", [NewMessage("user", f"{SECRET} {number}")])
    ledger.create_chat("other", "ada")
    ledger.append("other", [NewMessage("user", "kept")])


@pytest.fixture(params=["memory:", "path"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory:" else str(tmp_path)


@pytest.mark.parametrize("erased", [[], [11], [4, 6, 9], [1, 2, 3], list(range(2, 12))], ids=str)
def test_rebuild_after_an_interrupted_erasure(
    location: str, erased: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part of a deleted chat is still on the log, a rebuild does not show it, and then finishes erasing it."""
    with chatledger.open(location, durability="fast") as ledger:
        _fill(ledger)
        store = ledger._store

        def crash(chat_id: str, *, first_position: int, before: int) -> None:
            _half_erased(store.log, chat_id, erased)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "erase", crash)
            with pytest.raises(Crash):
                ledger.delete_chat("doomed")
        ledger.rebuild()

        assert ledger.get_chat("doomed") is None
        assert ["kept"] == [message.text for message in ledger.get_messages("other")]

        store.finish_erasures()

        assert [12, 13, 14] == [recorded.position for recorded in store.log.read(0)]
        ledger.rebuild()
        assert ["other"] == [chat.id for chat in ledger.list_chats()]


def test_reopening_finishes_an_erasure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process that died did not come to erase, the next one erases."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        _fill(ledger)

        def crash(*_: object, **__: object) -> None:
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(ledger._store.log, "erase", crash)
            with pytest.raises(Crash):
                ledger.delete_chat("doomed")
    with chatledger.open(tmp_path, durability="fast") as ledger:
        assert ["chat_deleted"] == [recorded.type for recorded in ledger.history("doomed")]


def test_no_file_has_the_text_any_more(tmp_path: Path) -> None:
    """After deletion and the next rebuild, the text is in no file of the data directory."""

    def found() -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.is_file() and b"swordfish" in path.read_bytes()]

    with chatledger.open(tmp_path, durability="fast") as ledger:
        _fill(ledger)
        before = found()
        ledger.delete_chat("doomed")
        ledger.rebuild()

        assert before
        assert [] == found()
    assert [] == found()


def test_a_deleted_id_begins_anew(location: str) -> None:
    """The new chat starts empty, its versions go on after the tombstone, and a rebuild keeps the two apart."""
    with chatledger.open(location, durability="fast") as ledger:
        _fill(ledger)
        ledger.delete_chat("doomed")
        ledger.create_chat("doomed", "bob")
        ledger.append("doomed", [NewMessage("user", "fresh")])
        ledger.rebuild()

        assert ["fresh"] == [message.text for message in ledger.get_messages("doomed")]
        assert [12, 13, 14] == [recorded.version for recorded in ledger.history("doomed")]


def test_lost_events_are_not_taken_for_erased_ones(location: str) -> None:
    """A hole that no deleted chat accounts for stops a rebuild, and the old index goes on serving."""
    with chatledger.open(location, durability="fast") as ledger:
        _fill(ledger)
        ledger.create_chat("later", "ada")
        _half_erased(ledger._store.log, "other", [13])
        with pytest.raises(chatledger.ChainIntegrityError):
            ledger.rebuild()

        assert ["kept"] == [message.text for message in ledger.get_messages("other")]
