"""A flipped bit in the position of a record: one record is lost by it, not all that follow, and no server eats all memory."""

import json
from pathlib import Path
from struct import Struct

import pytest
from tests.support.backup_world import block

import chatledger
from chatledger import ChainIntegrityError, NewMessage, admin
from chatledger.infra.admin.doctor.store_files import StoreFiles
from chatledger.infra.log.nats_server import launcher, server
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.seals import Seals

_SEQUENCE = Struct("<Q")
COUNT = 12


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One chat, closed cleanly: an event at each position from 1 to `COUNT`."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        for number in range(1, COUNT):
            ledger.append("c", [NewMessage("user", f"number {number}")])
    return path


def flip_position(data: Path, position: int, *bits: int) -> None:
    """Flip bits of the position in its record."""
    raw = bytearray(block(data).read_bytes())
    at = 0
    while (found := raw.index(b"chatledger.e.", at) - 18) >= 0:
        if _SEQUENCE.unpack_from(raw, found)[0] == position:
            break
        at = found + 19
    _SEQUENCE.pack_into(raw, found, position ^ sum(1 << bit for bit in bits))
    block(data).write_bytes(raw)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("position", "bit"),
    [
        *((position, bit) for position in (1, 5, 6, COUNT - 1) for bit in (0, 2, 7, 33, 47)),
        *((COUNT, bit) for bit in (33, 40, 47)),
    ],
)
def test_one_record_is_lost(data: Path, position: int, bit: int) -> None:
    """
    Whatever the position becomes: lower or higher than that of its neighbours, or one that no log comes to.

    With one flipped bit it is corrected, and nothing is lost.
    """
    before = StoreFiles(DataDirectory(data)).records
    assert len(before) == COUNT
    sound = block(data).read_bytes()
    flip_position(data, position, bit)
    files = StoreFiles(DataDirectory(data))
    assert (files.records, files.last, files.damages) == (before, COUNT, [])
    assert [one.position for one in files.corrected] == [position]
    block(data).write_bytes(sound)
    flip_position(data, position, bit, bit + 1)
    files = StoreFiles(DataDirectory(data))
    others = before.keys() - {position}

    assert {at: record for at, record in files.records.items() if at in others} == {at: before[at] for at in others}
    assert files.last == max(others | files.records.keys())
    assert files.last <= COUNT
    assert files.damages


@pytest.mark.soak
def test_a_server_that_would_take_all_memory_is_killed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It notes each position up to a trillion as deleted. The error names the doctor, who repairs what the server cannot read."""

    def refuse_nothing(*_: object) -> Seals:
        return Seals(log_inode=0, boot=b"")

    monkeypatch.setattr(server, "check_store", refuse_nothing)
    flip_position(data, 6, 40, 41)
    monkeypatch.setattr(launcher, "FLOOR_BYTES", 150_000_000)
    with pytest.raises(ChainIntegrityError, match="chatledger doctor"):
        chatledger.open(data, durability="fast").close()

    assert not admin.diagnose(data).is_healthy
    done = admin.repair(data)
    assert done.lost_count <= COUNT
    with chatledger.open(data, durability="fast") as ledger:
        ledger.verify()
        assert [message.text for message in ledger.get_messages("c")] == [f"number {n}" for n in range(1, COUNT)]


def test_ordinary_logs_are_left_alone(data: Path) -> None:
    """A server that runs is far from what any log may take."""
    with chatledger.open(data, durability="fast"):
        pid = json.loads((data / "endpoint.json").read_bytes())["server_pid"]
        assert launcher.excess_of(pid, data / "log") is None
    assert launcher.excess_of(pid, data / "log") is None
