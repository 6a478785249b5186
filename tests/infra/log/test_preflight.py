"""Before a server starts: a store with damage is refused and left as it is, and a sound one never is."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.matrix import ANOTHER_BOOT, adopt, bytes_of_log, make_template
from tests.support.backup_world import block, changed, rot

import chatledger
from chatledger import ChainIntegrityError, CorruptStateError, admin, user
from chatledger.errors import LogRegressedError
from chatledger.infra.log.nats_server import preflight
from chatledger.infra.log.nats_server.blocks import read_frames
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.preflight import check_store
from chatledger.infra.log.nats_server.seals import read_seals
from chatledger.infra.store.opening import STREAM

COUNT = 40


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose writer and server were killed."""
    return make_template(tmp_path_factory.mktemp("preflight"), "both killed", "encrypted", "preflight")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A ledger that was closed: one chat, an event at each position from 1 to `COUNT`."""
    with chatledger.open(tmp_path / "data", compression="none") as ledger:
        ledger.create_chat("c", "u")
        for number in range(1, COUNT):
            ledger.append("c", [user(f"number {number}")])
    return tmp_path / "data"


def restart_machine(data: Path) -> None:
    """Restart the machine: everything is as it was, of another boot."""
    adopt(data, boot=ANOTHER_BOOT)
    for note in data.glob("index/*/in-use"):
        note.write_bytes(ANOTHER_BOOT)


def restart_unclean(data: Path) -> None:
    restart_machine(data)
    forget_stop(data)


def forget_stop(data: Path) -> None:
    """Let it look as if nobody had closed it."""
    (data / "seals").unlink()


def remove_index(data: Path) -> None:
    shutil.rmtree(data / "index")


UNVOUCHED: dict[str, Callable[[Path], None]] = {
    "another boot": restart_machine,
    "another boot, not closed": restart_unclean,
    "no index": remove_index,
    "not closed": forget_stop,
}


def flip(data: Path, position: int, offset: int, bit: int = 1) -> None:
    """Flip a bit in a record, at an offset from its beginning, or its end."""
    with changed(block(data)) as raw:
        span = next(span for span in read_frames(bytes(raw))[0] if span.position == position)
        raw[span.offset + offset % span.length] ^= bit


def refused(data: Path, error: type[Exception], match: str) -> None:
    """It is refused twice, and not one byte is changed."""
    before = bytes_of_log(data)
    for _ in range(2):
        with pytest.raises(error, match=match):
            chatledger.open(data)
    assert bytes_of_log(data) == before


def texts(data: Path) -> list[str]:
    with chatledger.open(data) as ledger:
        ledger.verify()
        return [message.text for message in ledger.get_messages("c")]


ALL = [f"number {number}" for number in range(1, COUNT)]


@pytest.mark.matrix
@pytest.mark.parametrize("state", UNVOUCHED)
@pytest.mark.parametrize(("offset", "bit"), [(-30, 1), (1, 4), (4, 8), (9, 2)], ids=["text", "length", "low", "high"])
def test_one_bit(data: Path, state: str, offset: int, bit: int) -> None:
    """In a text, the length of a record, its position: the record is named, and what saves the most."""
    UNVOUCHED[state](data)
    flip(data, COUNT // 4, offset, bit)
    refused(
        data,
        CorruptStateError,
        r"1\.blk: the record at byte [\d,]+.* damaged\. Nothing was changed\. 'chatledger doctor",
    )
    assert not admin.diagnose(data).is_healthy


@pytest.mark.parametrize("state", UNVOUCHED)
def test_the_last_record(data: Path, state: str) -> None:
    """What was acknowledged is no write that was interrupted, though nothing follows it."""
    UNVOUCHED[state](data)
    flip(data, COUNT, -20)
    refused(data, CorruptStateError, "the record at byte")


@pytest.mark.matrix
@pytest.mark.parametrize("state", UNVOUCHED)
@pytest.mark.parametrize("end", ["at a record", "inside a record"])
def test_a_lost_end(data: Path, state: str, end: str) -> None:
    """The witness has seen how far the log went."""
    UNVOUCHED[state](data)
    span = read_frames(block(data).read_bytes())[0][-3]
    os.truncate(block(data), span.offset + (0 if end == "at a record" else span.length // 2))
    if end == "at a record":
        refused(data, LogRegressedError, "ends at position 37, but position 40 was already seen")
    else:
        refused(data, CorruptStateError, "the record at byte")


@pytest.mark.parametrize("state", UNVOUCHED)
def test_records_that_are_gone_without_damage(data: Path, state: str) -> None:
    """No deletion accounts for the positions."""
    UNVOUCHED[state](data)
    raw = block(data).read_bytes()
    span = read_frames(raw)[0][COUNT // 2]
    block(data).write_bytes(raw[: span.offset] + raw[span.offset + span.length :])
    refused(data, ChainIntegrityError, "1 positions up to 40 .* hold no event, but deletions account for 0 only")


@pytest.mark.parametrize("state", UNVOUCHED)
def test_a_dropped_block(data: Path, state: str) -> None:
    """The only one that there was."""
    UNVOUCHED[state](data)
    block(data).unlink()
    refused(data, LogRegressedError, "position 40 was already seen")


def test_a_lost_log(data: Path) -> None:
    """Nothing is made in its place, also when the index is gone with it."""
    shutil.rmtree(data / "log")
    shutil.rmtree(data / "index")
    with pytest.raises(ChainIntegrityError, match="is gone"):
        chatledger.open(data)


@pytest.mark.parametrize("state", UNVOUCHED)
@pytest.mark.matrix
def test_a_sound_ledger_opens(data: Path, state: str) -> None:
    """Whatever does not vouch for it."""
    UNVOUCHED[state](data)
    assert texts(data) == ALL
    assert texts(data) == ALL


def test_a_disk_that_rots(data: Path) -> None:
    """A file that nobody wrote to, as far as the file system knows, is read all the same."""
    raw = bytearray(block(data).read_bytes())
    raw[len(raw) // 2] ^= 1
    rot(block(data), bytes(raw))
    refused(data, CorruptStateError, "damaged")


def test_an_old_block_of_a_large_log(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a clean close, in the same run of the machine, it is not read; the next time that it is, the damage is found."""
    raw = bytearray(block(data).read_bytes())
    raw[raw.index(b"number 20")] ^= 1
    with monkeypatch.context() as patch:
        patch.setattr(preflight, "ALWAYS_READ_BYTES", 0)
        rot(block(data), bytes(raw))
        with chatledger.open(data) as ledger, pytest.raises(ChainIntegrityError):
            ledger.verify()
        restart_machine(data)
        refused(data, CorruptStateError, "damaged")


@pytest.mark.soak
def test_what_erases_and_shrinks_is_no_damage(tmp_path: Path) -> None:
    """Many deletions, so that the server writes blocks anew or removes them; killed, and with another boot."""
    data = tmp_path / "data"
    with chatledger.open(data, durability="fast") as ledger:
        for number in range(30):
            ledger.create_chat(f"chat {number}", "u")
            for _ in range(4):
                ledger.append(f"chat {number}", [user("x" * 150_000)])
        ledger.create_chat("c", "u")
        ledger.append("c", [user("stays")])
        for number in range(25):
            ledger.delete_chat(f"chat {number}")
        ledger.create_chat("chat 1", "u")
        ledger.append("chat 1", [user("anew")])
        ledger.delete_chat("chat 1")
    seals = read_seals(DataDirectory(data))
    assert seals is not None
    assert sum(seal.accounted for seal in seals.streams[STREAM].values()) >= 25 * 5
    assert texts(data) == ["stays"]
    for change in UNVOUCHED.values():
        change(data)
        assert texts(data) == ["stays"]


def test_a_write_that_was_interrupted(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server was killed inside a write: what stands behind the last acknowledged event is cut off, and said."""
    raw = block(data).read_bytes()
    forget_stop(data)
    block(data).write_bytes(raw + raw[:100])
    assert texts(data) == ALL
    assert "was not written to its end" in caplog.text


def test_a_sector_behind_the_end(data: Path) -> None:
    """After a power cut, anything may stand behind what was acknowledged; after a death of processes, only half a record."""
    raw = block(data).read_bytes()
    block(data).write_bytes(raw + bytes(512))
    restart_unclean(data)
    assert texts(data) == ALL


def test_a_ledger_from_before(data: Path) -> None:
    """One that was written without a witness and seals opens, and has them afterwards."""
    shutil.rmtree(data / "witness")
    forget_stop(data)
    assert texts(data) == ALL
    assert read_seals(DataDirectory(data)) is not None
    assert list((data / "witness").iterdir())


def test_a_copy_of_a_running_ledger(data: Path, tmp_path: Path) -> None:
    """Its witness is of the original, and may have seen more than was copied."""
    with chatledger.open(data) as ledger:
        shutil.copytree(data / "log", tmp_path / "early")
        ledger.append("c", [user("later")])
        shutil.copytree(data, tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "*.ports", "endpoint.json"))
    shutil.rmtree(tmp_path / "copy" / "log")
    shutil.rmtree(tmp_path / "copy" / "index")
    shutil.copytree(tmp_path / "early", tmp_path / "copy" / "log")
    assert texts(tmp_path / "copy") == ALL


def test_checksums_of_another_kind(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that writes its blocks in another way is not taken for damage; what cannot be checked is said."""
    with changed(block(data)) as raw:
        for span in read_frames(bytes(raw))[0]:
            raw[span.offset + span.length - 1] ^= 0x55
    forget_stop(data)
    with caplog.at_level(logging.WARNING):
        check_store(DataDirectory(data), STREAM)
    assert "not checked" in caplog.text


@pytest.mark.soak
def test_a_killed_server(killed: Path, tmp_path: Path) -> None:
    """Nothing is sealed, and everything is there."""
    shutil.copytree(killed, tmp_path / "data", ignore=shutil.ignore_patterns("lock", "*.ports", "endpoint.json"))
    adopt(tmp_path / "data")
    found = check_store(DataDirectory(tmp_path / "data"), STREAM)
    assert sum(seal.message_count for seal in found.streams[STREAM].values()) > 100


@pytest.mark.soak
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_large_data_that_are_gone(tmp_path: Path, how: str) -> None:
    """After a clean stop, files beside the log are as long as they were."""
    data = tmp_path / "data"
    with chatledger.open(data) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [user("x" * 600_000)])
    (file,) = data.glob("log/jetstream/$G/streams/chatledger-blobs/msgs/*.blk")
    if how == "gone":
        file.unlink()
    else:
        os.truncate(file, read_frames(file.read_bytes())[0][1].offset)
    refused(data, CorruptStateError, "bytes are left of")
