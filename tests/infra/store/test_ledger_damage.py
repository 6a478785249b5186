"""Logs and indexes that are not what they were: nothing is written to a log that lost events."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.foreign_world import by_hand
from tests.support.ledger_world import check_chat, lagging, length, snapshot, store_behind, text, texts

import chatledger
from chatledger import ChainIntegrityError, HeadConflictError, Ledger, NewMessage
from chatledger.domain.chat.events import Recorded
from chatledger.errors import BranchExistsError, LogRegressedError, QuarantinedError
from chatledger.infra.admin.doctor.store_files import StoreFiles
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.witness import refuse_if_regressed
from chatledger.infra.store.opening import STREAM


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fill(path: Path, *contents: str) -> None:
    with chatledger.open(path) as ledger:
        ledger.upsert_chat("c", "u")
        for content in contents:
            ledger.append("c", [text(content)])


def last_sequence(path: Path) -> int:
    """Read from the files: no server starts on a damaged log."""
    return StoreFiles(DataDirectory(path)).last


# The log


@pytest.mark.guard
@pytest.mark.parametrize("where", ["own index", "index elsewhere"])
def test_an_older_copy_of_the_log(path: Path, where: str) -> None:
    """A log that ends before what the index has seen is refused with both positions, and nothing is written to it."""
    index = None if where == "own index" else path.with_name("index")
    fill(path, "one")
    shutil.copytree(path / "log", path.with_name("older"))
    fill(path, "two", "three")
    with chatledger.open(path, index=index) as ledger:
        assert ledger.position == 4
    shutil.rmtree(path / "log")
    shutil.copytree(path.with_name("older"), path / "log")
    for _ in range(2):
        with pytest.raises(LogRegressedError, match="position 4") as caught:
            chatledger.open(path, index=index)
        assert (caught.value.last_position, caught.value.seen_position) == (2, 4)
    assert last_sequence(path) == 2

    for seen in (path / "witness", path / "index", path.with_name("index")):  # accepts the loss
        shutil.rmtree(seen, ignore_errors=True)
    with chatledger.open(path, index=path.with_name("accepted")) as ledger:
        assert texts(ledger, "c") == ["one"]
        check_chat(ledger, "c")


def test_an_older_copy_of_the_log_that_went_on(path: Path) -> None:
    """A log that lost its end and grew again to the same length and beyond is recognised."""
    fill(path, "one")
    shutil.copytree(path / "log", path.with_name("older"))
    fill(path, "two")
    shutil.copytree(path / "index", path.with_name("seen"))
    for name in ("log", "index", "witness"):
        shutil.rmtree(path / name)
    shutil.copytree(path.with_name("older"), path / "log")
    fill(path, "other", "events")
    shutil.rmtree(path / "index")
    shutil.copytree(path.with_name("seen"), path / "index")

    with pytest.raises(ChainIntegrityError):
        chatledger.open(path)


@pytest.mark.parametrize("which", ["last", "middle"])
def test_an_event_deleted_by_hand(path: Path, which: str) -> None:
    """An event that is gone without a tombstone is noticed by the next write or rebuild, and nothing is written after it."""
    fill(path, "one", "two", "three")
    position = 4 if which == "last" else 3

    async def delete(js: Any) -> None:
        assert await js.delete_msg(STREAM, position)

    by_hand(path, delete)
    with pytest.raises(ChainIntegrityError), chatledger.open(path) as ledger:
        _append_or_rebuild(ledger, is_last=which == "last")
    with pytest.raises(ChainIntegrityError):
        chatledger.open(path, index=path.with_name("fresh")).close()
    assert last_sequence(path) == (3 if which == "last" else 4)


def test_the_last_event_is_erased_while_somebody_opens(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion between a look at the end of the log and one at its last event is no loss: its tombstone came after both."""
    fill(path, "one")
    with chatledger.open(path) as ledger:
        log, seen = store_behind(ledger).log, store_behind(ledger).index.state
        look = log.event_at

        def delete_before(position: int) -> Recorded | None:
            monkeypatch.undo()
            ledger.delete_chat("c")
            return look(position)

        monkeypatch.setattr(log, "event_at", delete_before)
        refuse_if_regressed(log, position=seen.position, event_hash=seen.hash)
        assert log.event_at(seen.position) is None

        def find_nothing(position: int) -> None:
            del position

        deletion = store_behind(ledger).index.state
        monkeypatch.setattr(log, "event_at", find_nothing)
        with pytest.raises(LogRegressedError):
            refuse_if_regressed(log, position=deletion.position, event_hash=deletion.hash)


def _append_or_rebuild(ledger: Ledger, *, is_last: bool) -> None:
    if is_last:
        ledger.append("c", [text("after")])
    else:
        ledger.rebuild()


def test_an_event_written_by_hand(path: Path) -> None:
    """An event that is there twice is not taken for one of the chat, which is refused; nothing is written after it."""
    fill(path, "one")

    async def copy(js: Any) -> None:
        message = await js.get_msg(STREAM, 2)
        headers = {name: value for name, value in message.headers.items() if not name.startswith("Nats-")}
        await js.publish(message.subject, message.data, headers=headers)

    by_hand(path, copy)
    for index in (None, path.with_name("fresh")):
        with chatledger.open(path, index=index) as ledger:
            with pytest.raises(QuarantinedError, match="it repeats version 2"):
                ledger.get_messages("c")
            with pytest.raises(QuarantinedError):
                ledger.append("c", [text("two")])
    assert last_sequence(path) == 3


# The index


@pytest.mark.parametrize(
    "damage", ["gone", "current gone", "current damaged", "no environment", "overwritten", "of another log"]
)
def test_an_index_that_can_not_serve_is_rebuilt(path: Path, damage: str) -> None:
    """Whatever happened to the index, it is made anew from the log, and says the same (PS-30)."""
    fill(path, "one", "two")
    with chatledger.open(path) as ledger:
        ledger.fork("c", ledger.get_messages("c")[0].id)
        before = snapshot(ledger, ["c"])
    index = path / "index"
    if damage == "gone":
        shutil.rmtree(index)
    elif damage == "current gone":
        (index / "CURRENT").unlink()
    elif damage == "current damaged":
        (index / "CURRENT").write_bytes(b"\xff")
    elif damage == "no environment":
        shutil.rmtree(next(folder for folder in index.iterdir() if folder.is_dir()))
    elif damage == "overwritten":
        next(index.rglob("data.mdb")).write_bytes(b"not an environment" * 1000)
    else:
        other = path.with_name("other")
        fill(other, "not ours")
        shutil.rmtree(index)
        shutil.copytree(other / "index", index)
    progress: list[tuple[int, int]] = []
    with chatledger.open(path, progress=lambda done, total: progress.append((done, total))) as ledger:
        assert snapshot(ledger, ["c"]) == before
        check_chat(ledger, "c")
    assert progress[-1] == (4, 4)


def test_an_interrupted_rebuild_begins_again(path: Path) -> None:
    """A rebuild that dies leaves the old index in service; the next one completes."""

    class DeathError(Exception):
        pass

    def die(done: int, total: int) -> None:
        if done:
            raise DeathError

    fill(path, "one", "two")
    with chatledger.open(path) as ledger:
        before = snapshot(ledger, ["c"])
        for _ in range(3):
            with pytest.raises(DeathError):
                ledger.rebuild(progress=die)
            assert snapshot(ledger, ["c"]) == before
        ledger.append("c", [text("three")])
        ledger.rebuild()
        assert texts(ledger, "c") == ["one", "two", "three"]
        check_chat(ledger, "c")
    assert len([folder for folder in (path / "index").iterdir() if folder.is_dir()]) == 1


# An index that lags behind


@pytest.fixture
def pair(path: Path) -> Iterator[tuple[Ledger, Ledger]]:
    """Two ledgers with indexes of their own; the second one takes nothing in by itself."""
    with (
        chatledger.open(path, durability="fast") as ahead,
        chatledger.open(path, index=path.with_name("behind"), durability="fast") as behind,
        lagging(behind),
    ):
        ahead.create_chat("c", "u")
        ahead.append("c", [text("a", id="a")])
        behind.sync()
        yield ahead, behind
        ahead.sync()
        behind.sync()
        check_chat(behind, "c")
        assert snapshot(ahead, ["c"]) == snapshot(behind, ["c"])


def test_refusals_are_decided_at_the_end_of_the_log(pair: tuple[Ledger, Ledger]) -> None:
    """What only the old state refuses is done; what the new one refuses is refused, whatever the index knew."""
    ahead, behind = pair
    ahead.create_chat("new", "u")
    assert behind.append("new", [text("x", id="x")])[0].parent_id is None
    ahead.sync()
    ahead.create_branch("c", "b", "a")
    behind.set_active_branch("c", "b")
    ahead.sync()
    ahead.append("c", [text("b", id="b")], branch="main")
    behind.set_checkpoint("c", "k", "b")
    ahead.sync()
    ahead.append("c", [text("d", id="d")], branch="main")
    behind.append("c", [text("e", id="e")], branch="main", expected_head="d")
    ahead.sync()
    ahead.create_branch("c", "z", None)
    with pytest.raises(BranchExistsError):
        behind.create_branch("c", "z", None)
    ahead.delete_checkpoint("c", "k")
    assert behind.delete_checkpoint("c", "k") is False
    ahead.append("c", [text("f", id="f")], branch="main")
    with pytest.raises(HeadConflictError):
        behind.append("c", [text("g")], branch="main", expected_head="e")
    ahead.delete_chat("new")
    assert behind.delete_chat("new") is False


def test_an_explicit_parent_that_the_index_has_not_seen(pair: tuple[Ledger, Ledger]) -> None:
    """A message that names the present head as its parent is appended, also when the index did not know that head."""
    ahead, behind = pair
    ahead.append("c", [text("b", id="b")])

    (message,) = behind.append("c", [NewMessage("user", "x", id="x", parent_id="b")])
    assert message.parent_id == "b"


def test_a_no_op_is_decided_at_the_end_of_the_log(pair: tuple[Ledger, Ledger]) -> None:
    """What changes nothing in the old state, and something in the new one, is done."""
    ahead, behind = pair
    ahead.update_chat("c", title="new")
    behind.update_chat("c", title=None)
    ahead.sync()
    chat = ahead.get_chat("c")
    assert chat is not None
    assert chat.title is None
    ahead.create_branch("c", "b", None, activate=True)
    behind.set_active_branch("c", "main")
    ahead.sync()
    active = ahead.get_active_branch("c")
    assert active is not None
    assert active.name == "main"


def test_the_same_message_of_two_writers(pair: tuple[Ledger, Ledger]) -> None:
    """A message that another writer stored already is not stored again."""
    ahead, behind = pair
    ahead.append("c", [text("b", id="b")])
    behind.append("c", [text("b", id="b")])
    behind.add_messages("c", [text("b", id="b", parent_id="a")])
    assert length(ahead, "c") == 3


def test_a_chat_that_was_deleted_and_made_anew(pair: tuple[Ledger, Ledger]) -> None:
    """An index that slept through deletion and rebirth of a chat does not mix the two (PS-14)."""
    ahead, behind = pair
    ahead.delete_chat("c")
    ahead.create_chat("c", "other")
    ahead.append("c", [text("new", id="new")])
    behind.append("c", [text("newer", id="newer")])
    assert texts(behind, "c") == ["new", "newer"]
    ahead.sync()
    for _ in range(3):
        ahead.delete_chat("c")
        ahead.create_chat("c", "other")
    ahead.append("c", [text("a", id="a")])


def test_position_waits_for_another_client(pair: tuple[Ledger, Ledger]) -> None:
    """`sync` to the position of another client's write makes it readable; a position that does not come is an error."""
    ahead, behind = pair
    ahead.append("c", [text("b", id="b")])
    assert behind.get_message("b") is None
    assert behind.sync(ahead.position) >= ahead.position
    assert behind.get_message("b") is not None
    with pytest.raises(chatledger.LogUnavailableError, match="did not come"):
        behind.sync(ahead.position + 1, timeout_s=0.1)


@pytest.mark.parametrize("has_store", [True, False], ids=["no stream", "no log"])
def test_a_directory_whose_log_is_gone(path: Path, *, has_store: bool) -> None:
    """It is not begun anew, and nobody is told to create it."""
    fill(path, "one")
    (path / "log").rename(path.with_name("kept"))
    if has_store:
        (path / "log").mkdir()
    for _ in range(2):
        with pytest.raises(ChainIntegrityError, match=r"is gone.*chatledger restore") as caught:
            chatledger.open(path)
        assert "create" not in str(caught.value)
    shutil.rmtree(path / "log", ignore_errors=True)
    path.with_name("kept").rename(path / "log")
    with chatledger.open(path) as ledger:
        assert texts(ledger, "c") == ["one"]


def test_a_stream_that_the_server_does_not_read(path: Path) -> None:
    """Its description is damaged: the server passes over it, and what helps is named."""
    fill(path, "one")
    (meta,) = (path / "log").rglob("streams/*/meta.inf")
    kept = meta.read_bytes()
    meta.write_bytes(b"{" + kept)
    with pytest.raises(ChainIntegrityError, match="chatledger doctor"):
        chatledger.open(path)
    meta.write_bytes(kept)
    with chatledger.open(path) as ledger:
        assert texts(ledger, "c") == ["one"]
