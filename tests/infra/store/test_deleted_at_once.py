"""From its tombstone on, what was deleted is in no answer, whatever the log still has, or has again; `verify` and `doctor` say so."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.jetstream_world import TOKEN, Server
from tests.support.ledger_world import internals, lagging, store_behind

import chatledger
from chatledger import Ledger, LogUnavailableError, admin, user
from chatledger.errors import LiveStreamNotFoundError
from chatledger.infra.log.alchemy.event_log import AlchemyLog
from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.sql import SqliteLog

LOGS: dict[str, Any] = {
    "memory:": MemoryLog,
    "data": JetStreamLog,
    "sqlite:///{}/log.db": SqliteLog,
    "sqlite+pysqlite:///{}/log.db": AlchemyLog,
}
TOMBSTONE = 8


def place(kind: str, folder: Path) -> str:
    return str(folder / kind) if kind == "data" else kind.format(folder)


def erase_only(kind: str, wanted: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a kind of log erase nothing but what stands at these positions, and say that it did as it was told."""
    erase = LOGS[kind].erase

    def erase_some(log: Any, stream: str, *, first_position: int, before: int) -> None:
        for position in range(first_position, before):
            if position in wanted:
                erase(log, stream, first_position=position, before=position + 1)

    monkeypatch.setattr(LOGS[kind], "erase", erase_some)


def fill(ledger: Ledger) -> None:
    """A chat that is deleted, and not erased; then another one of its id."""
    ledger.create_chat("gone", "ada")
    for number in range(5):
        ledger.append("gone", [user(f"ghost {number}", id=f"g{number}")])
    ledger.create_chat("kept", "ada")
    with pytest.raises(LogUnavailableError, match=r"'gone' was deleted.*next open.*still has events"):
        ledger.delete_chat("gone")
    ledger.create_chat("gone", "bob")
    ledger.append("gone", [user("anew", id="new")])


def positions_told(ledger: Ledger) -> list[list[int]]:
    """The positions of the events of the chat that each reader of the log gives, and its messages as each index has them."""
    readers = [
        ledger.history(),
        ledger.history("gone"),
        ledger.as_of(9).history(),
        ledger.feed(after=0, follow=False),
        ledger.feed(after=3, follow=False),
        ledger.feed(after=0, follow=False, chat_id="gone"),
        ledger.for_user("ada").history(),
        ledger.for_user("ada").feed(after=0, follow=False),
    ]
    assert [] == ledger.search("ghost")
    assert [] == ledger.as_of(6).list_chats()
    assert ["anew"] == [message.text for message in ledger.get_messages("gone")]
    assert ledger.get_message("g1") is None
    return [[event.position for event in events if event.chat_id == "gone"] for events in readers]


@pytest.mark.guard
@pytest.mark.parametrize(
    ("kind", "erased"),
    [
        *(("memory:", erased) for erased in ([], [1, 2, 3], [3, 5], [6])),
        *((kind, erased) for kind in LOGS if kind != "memory:" for erased in ([], [3, 5])),
    ],
    ids=str,
)
def test_a_log_that_does_not_erase(
    kind: str, erased: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It erases nothing, or half, whatever it says: no reader is given that, before and after a rebuild, nor is a backup."""
    with monkeypatch.context() as patched, chatledger.open(place(kind, tmp_path), durability="fast") as ledger:
        erase_only(kind, erased, patched)
        fill(ledger)
        for _ in range(2):
            assert [[8, 9, 10], [8, 9, 10], [8, 9], [8, 9, 10], [8, 9, 10], [8, 9, 10], [8], [8]] == positions_told(
                ledger
            )
            assert ("gone",) == ledger.verify().erasure_pending
            ledger.rebuild()
        ledger.backup(tmp_path / "backup")
        if kind == "memory:":
            patched.undo()
            store_behind(ledger).finish_erasures()
            assert () == ledger.verify().erasure_pending
            assert [7, 8, 9, 10] == [recorded.position for recorded in internals(ledger).log.read(0)]
    admin.restore(tmp_path / "backup", tmp_path / "restored")
    for location in (str(tmp_path / "restored"), *([] if kind == "memory:" else [place(kind, tmp_path)])):
        with chatledger.open(location, durability="fast") as ledger:
            assert () == ledger.verify().erasure_pending
            assert [7, 8, 9, 10] == [recorded.position for recorded in internals(ledger).log.read(0)]


def test_a_reader_whose_index_is_behind_the_tombstone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reads is on the log with the tombstone behind it: it looks for that before it gives anything."""
    location, other = f"sqlite:///{tmp_path}/log.db", tmp_path / "other"
    erase_only("sqlite:///{}/log.db", [], monkeypatch)
    with chatledger.open(location) as writer, chatledger.open(location, index=other) as reader, lagging(reader):
        fill(writer)
        assert [8, 9, 10] == [event.position for event in reader.history("gone")]
    with chatledger.open(location, index=tmp_path / "third") as late:
        assert [7, 8, 9, 10] == [event.position for event in late.feed(after=0, follow=False)]


def test_what_is_deleted_while_it_is_read(tmp_path: Path) -> None:
    """A history and a feed that have read a page give nothing more of it."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("gone", "ada")
        ledger.append("gone", [user("ghost")])
        ledger.create_chat("kept", "ada")
        history, feed = ledger.history(), ledger.feed(after=0, follow=False)
        assert next(history).position == next(feed).position == 1
        ledger.delete_chat("gone")
        assert [3, 4] == [recorded.position for recorded in feed]
        assert [3, 4] == [recorded.position for recorded in history]


def test_a_live_stream_of_a_deleted_chat_that_is_not_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads it hears that it is gone, and gets no chunk more."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("gone", "ada")
        answer = ledger.live("gone", id="l")
        answer.write("seen")
        answer.flush()
        reader = ledger.read_live("gone", "l")
        assert next(reader).data == "seen"
        with monkeypatch.context() as patched:
            patched.setattr(internals(ledger).log.live, "drop_begun", lambda *_args, **_options: None)
            ledger.delete_chat("gone")
        answer.write("ghost")
        answer.flush()
        with pytest.raises(LiveStreamNotFoundError):
            next(reader)


@pytest.fixture
def undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose log has again what was erased, and whose index knows that it was."""
    data, before = tmp_path / "data", tmp_path / "before"
    with monkeypatch.context() as patched:
        erase_only("data", [4], patched)
        with chatledger.open(data, durability="fast") as ledger:
            fill(ledger)
    shutil.copytree(data, before)
    with chatledger.open(data, durability="fast") as ledger:
        assert () == ledger.verify().erasure_pending
    for name in ("log", "seals", "witness"):
        path = data / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (before / name).rename(path)
    return data


def test_a_deletion_that_was_taken_back_is_done_again(undone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of a cluster may forget deletions: `doctor` says so, nothing of it is shown, and the next open erases it."""
    assert "erasure-pending" in {finding.kind for finding in admin.diagnose(undone).findings}
    with monkeypatch.context() as patched:
        erase_only("data", [], patched)
        with chatledger.open(undone, durability="fast") as ledger:
            assert [7, 8, 9, 10] == [event.position for event in ledger.history()]
            assert ("gone",) == ledger.verify().erasure_pending
    with chatledger.open(undone, durability="fast") as ledger:
        assert [7, 8, 9, 10] == [recorded.position for recorded in internals(ledger).log.read(0)]
        assert () == ledger.verify().erasure_pending
    assert "erasure-pending" not in {finding.kind for finding in admin.diagnose(undone).findings}


def test_a_server_says_what_is_to_be_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` reads the log of a server, and compares it with no index."""
    server = Server(tmp_path / "server").start()
    try:
        location = server.url.replace("nats://", f"nats://{TOKEN}@") + "/chats"
        with monkeypatch.context() as patched:
            erase_only("data", [2], patched)
            with chatledger.open(location, create=True, index=tmp_path / "index") as ledger:
                fill(ledger)
        shutil.rmtree(tmp_path / "index")
        (found,) = [one for one in admin.diagnose(location).findings if one.kind == "erasure-pending"]
        assert "'gone'" in found.where
        chatledger.open(location, index=tmp_path / "index").close()
        assert not [one for one in admin.diagnose(location).findings if one.kind == "erasure-pending"]
    finally:
        server.stop()
