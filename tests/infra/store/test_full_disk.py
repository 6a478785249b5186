"""A disk without room: writes are refused at once and in words, and go on when there is room again."""

import contextlib
import os
import random
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.surroundings import fill_up, free, small_disk

import chatledger
from chatledger import Ledger, LogUnavailableError, user
from chatledger.errors import IndexFullError, LogFullError, MessageConflictError

DISK_BYTES = 48 * 1024 * 1024
AT_ONCE_S = 5.0  # the budget of an operation is three times as long


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as folder:
        if folder is None:
            pytest.skip("nothing can be mounted here, which takes root")
        yield folder


@pytest.fixture
def ledger(disk: Path) -> Iterator[Ledger]:
    with chatledger.open(disk / "data", compression="none") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("before")])
        yield ledger


def texts(ledger: Ledger) -> list[str]:
    return [message.text for message in ledger.get_messages("c")]


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_an_append_on_a_full_disk_is_refused_at_once(ledger: Ledger, disk: Path, size: int) -> None:
    """nats-server answers nothing on a full disk. Nothing is written, and what was stored can be read."""
    fill_up(disk)
    began_s = time.monotonic()
    with pytest.raises(LogFullError, match=f"{disk}.*free space"):
        ledger.append("c", [user("x" * size)])
    assert time.monotonic() - began_s < AT_ONCE_S
    assert texts(ledger) == ["before"]

    free(disk)
    ledger.append("c", [user("after")])
    assert texts(ledger) == ["before", "after"]
    assert ledger.verify().message_count == 2


def write_until_full(ledger: Ledger, size: int) -> int:
    """Write messages of about so many bytes to a chat of its own until the disk has only what is held back; how many there are."""
    texts = [os.urandom(size // 2).hex() for _ in range(16)]
    ledger.create_chat("large", "ada")
    with pytest.raises(LogFullError):  # noqa: PT012 - which of them it is cannot be known
        while True:
            ledger.append("large", [user(random.choice(texts) + os.urandom(8).hex()) for _ in range(600_000 // size)])
    return len(ledger.get_messages("large"))


@pytest.mark.guard
@pytest.mark.parametrize("size", [3_000, 300_000], ids=["small", "large"])
def test_deleting_on_a_full_disk(ledger: Ledger, disk: Path, size: int) -> None:
    """What is held back is for deletions, which make room: for as much as was deleted. Large data lie in a stream of their own."""
    written = write_until_full(ledger, size)
    before = shutil.disk_usage(disk).free

    assert ledger.delete_chat("large")
    assert ledger.verify().erasure_pending == ()
    assert shutil.disk_usage(disk).free > before + written * size // 2
    ledger.append("c", [user("x" * size * 5)])


@pytest.mark.guard
def test_deleting_on_a_full_disk_while_somebody_copies_the_log(ledger: Ledger, disk: Path) -> None:
    """A block that was written anew keeps its room as long as somebody has it open: for a moment, that is waited for."""
    write_until_full(ledger, 300_000)
    with contextlib.ExitStack() as copying:
        for block in disk.rglob("*.blk"):
            copying.enter_context(block.open("rb"))
        ends = threading.Timer(0.5, copying.close)
        ends.start()
        assert ledger.delete_chat("large")
        ends.join()
    assert ledger.verify().erasure_pending == ()


@pytest.mark.guard
@pytest.mark.parametrize("is_reopened", [True, False], ids=["reopened", "open"])
def test_deleting_on_a_disk_that_others_filled(ledger: Ledger, disk: Path, *, is_reopened: bool) -> None:
    """The chat is gone from all answers, with an error that says what is still to be done; when there is room, that is done."""
    for _ in range(16):
        ledger.append("c", [user(os.urandom(100_000).hex())])
    fill_up(disk, leave_bytes=1_500_000)
    with pytest.raises(LogUnavailableError, match=r"'c' was deleted, and is in no answer.*next open"):
        ledger.delete_chat("c")
    assert ledger.get_chat("c") is None
    assert [recorded.type for recorded in ledger.history()] == ["chat_deleted"]
    assert ledger.verify().erasure_pending == ("c",)

    free(disk)
    if is_reopened:
        ledger.close()
    with chatledger.open(disk / "data") as again:
        again.wait_erased()
        assert again.verify().erasure_pending == ()


@pytest.mark.soak
def test_writing_until_the_disk_is_full(ledger: Ledger) -> None:
    """The log and the index stop before they take the last of it: nothing that was acknowledged is lost, nothing else is there."""
    written = ["before"]
    with pytest.raises(LogFullError):  # noqa: PT012 - which of them it is cannot be known
        for number in range(100_000):
            text = f"{number} " + "x" * 50_000
            ledger.append("c", [user(text)])
            written.append(text)

    assert texts(ledger) == written


def test_an_append_whose_answer_is_missing_when_the_disk_fills_up(
    ledger: Ledger, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the room between the look and the write: it is not waited for that which cannot come."""
    monkeypatch.setattr("chatledger.infra.log.nats_server.directory.RESERVE_BYTES", 0)
    fill_up(disk)
    began_s = time.monotonic()
    with pytest.raises(LogUnavailableError, match="full"):
        ledger.append("c", [user("x" * 10_000)])

    assert time.monotonic() - began_s < AT_ONCE_S
    assert texts(ledger) == ["before"]


def check_index_full(location: str, index: Path, make_room: Callable[[], object]) -> None:
    """An append that the index has no room for is written, as its error says, and repeated it is not written twice."""
    with chatledger.open(location, index=index, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        number = 0
        with pytest.raises(IndexFullError, match=r"is on the log.*same ids") as caught:  # noqa: PT012 - it is not known which
            for number in range(100_000):
                ledger.append("c", [user(os.urandom(8_000).hex(), id=f"m{number}")])
        assert caught.value.position == ledger.last_position() == number + 2
        assert caught.value.path.startswith(str(index))
        with pytest.raises(IndexFullError):
            ledger.append("c", [user("again", id=f"m{number}")])
        assert len(ledger.get_messages("c")) == number

        make_room()
        with pytest.raises(MessageConflictError):
            ledger.append("c", [user("again", id=f"m{number}")])
        ledger.append("c", [user("after", id="last")])
        assert ledger.last_position() == number + 3
        assert ledger.verify().message_count == number + 2


@pytest.mark.guard
def test_an_index_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """The log is elsewhere, and takes what the index cannot take in."""
    with (disk / "filler").open("wb") as file:
        file.write(bytes(DISK_BYTES - 8 * 1024 * 1024))
    check_index_full(f"sqlite:///{tmp_path}/log.db", disk / "index", lambda: free(disk))


@pytest.mark.guard
def test_an_index_that_may_not_grow(tmp_path: Path) -> None:
    """The same under `ulimit -f`; nats-server is started before, and so is not limited."""
    with chatledger.open(tmp_path / "data", durability="fast"):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 1024 * 1024, limits[1]))
            check_index_full(
                str(tmp_path / "data"), tmp_path / "index", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_rebuild_on_a_full_disk(ledger: Ledger, disk: Path) -> None:
    """The old index stays and goes on serving, and what was begun takes no room."""
    index = disk / "data" / "index"
    before = {path.name for path in index.iterdir()}
    fill_up(disk)
    with pytest.raises(LogFullError, match="free space"):
        ledger.rebuild()
    assert texts(ledger) == ["before"]
    assert {path.name for path in index.iterdir()} <= before

    free(disk)
    ledger.rebuild()
    assert texts(ledger) == ["before"]


@pytest.mark.parametrize("is_indexed", [True, False], ids=["index", "no index"])
def test_opening_on_a_full_disk(disk: Path, *, is_indexed: bool) -> None:
    """It says what is missing, and a later try finds everything."""
    with chatledger.open(disk / "data") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("before")])
    if not is_indexed:
        shutil.rmtree(disk / "data" / "index")
    fill_up(disk)
    with pytest.raises(LogFullError, match="free space"):
        chatledger.open(disk / "data").close()

    free(disk)
    with chatledger.open(disk / "data") as ledger:
        assert texts(ledger) == ["before"]


def test_a_new_ledger_on_a_full_disk(disk: Path) -> None:
    """The same where there is nothing yet."""
    fill_up(disk)
    with pytest.raises(LogFullError, match="free space"):
        chatledger.open(disk / "new").close()


def test_a_log_in_sqlite_on_a_full_disk(disk: Path) -> None:
    """SQLite says so itself."""
    with chatledger.open(f"sqlite:///{disk}/log.db") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("before")])
        fill_up(disk)
        with pytest.raises(LogFullError, match="free space"):
            ledger.append("c", [user("x" * 100_000)])

        free(disk)
        ledger.append("c", [user("after")])
        assert texts(ledger) == ["before", "after"]


@pytest.mark.guard
def test_deleting_in_sqlite_on_a_full_disk(disk: Path) -> None:
    """The room of small events comes free when the file is written anew, for which there is none; the next deletion does it."""
    file = disk / "log.db"
    with chatledger.open(f"sqlite:///{file}", compression="none") as ledger:
        for number in range(800):
            if number < 20:
                ledger.create_chat(f"c{number}", "ada")
            ledger.append(f"c{number % 20}", [user("x" * 3_500)])
        ledger.append("c19", [user("last")])
        ledger.delete_chat("c0")
        size = file.stat().st_size
        fill_up(disk, leave_bytes=900_000)
        for number in range(1, 13):
            assert ledger.delete_chat(f"c{number}")
        assert ledger.verify().erasure_pending == ()
        assert file.stat().st_size == size

        free(disk)
        ledger.delete_chat("c13")
        assert file.stat().st_size < size / 2
        assert ledger.verify().message_count == 6 * 40 + 1
