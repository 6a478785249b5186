"""A server that was killed while it created a stream leaves one that every later start passes over."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.ledger_world import check_chat, text, texts

import chatledger
from chatledger import ChainIntegrityError
from chatledger.infra.log.nats_server.directory import DataDirectory

LARGE = "x" * 2_000_000


def streams(data: Path) -> Path:
    return data / "log" / "jetstream" / "$G" / "streams"


def unmake(stream: Path) -> None:
    """The state between the first and the second file of its description."""
    (stream / "meta.sum").unlink()
    shutil.rmtree(stream / "msgs")
    (stream / "msgs").mkdir()


@pytest.mark.soak
def test_the_stream_of_large_data(tmp_path: Path) -> None:
    """Large messages that are written after such a death are there after the next starts (seed 7/kills/2 of the soak)."""
    data = tmp_path / "data"
    with chatledger.open(data, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text(LARGE)])
        ledger.delete_chat("c")
    assert (streams(data) / "chatledger-blobs").is_dir()
    (data / "seals").unlink()  # they know that the names of large data have their secret there
    unmake(streams(data) / "chatledger-blobs")
    for number in range(3):
        with chatledger.open(data, durability="fast") as ledger:
            ledger.upsert_chat("d", "u")
            ledger.append("d", [text(f"{number} {LARGE}")])
            assert texts(ledger, "d") == [f"{earlier} {LARGE}" for earlier in range(number + 1)]
            ledger.verify()
            check_chat(ledger, "d")


def empty(stream: Path) -> None:
    """The state after a power cut: the second file was on the disk, of the first one only its name."""
    (stream / "meta.inf").write_bytes(b"")


@pytest.mark.parametrize("harm", [unmake, empty])
def test_the_stream_of_the_log(harm: Callable[[Path], None], tmp_path: Path) -> None:
    """A ledger whose creation was cut short is created by the next open."""
    data = tmp_path / "data"
    chatledger.open(data, durability="fast").close()
    shutil.rmtree(data / "index")
    harm(streams(data) / "chatledger")
    with chatledger.open(data, durability="fast") as ledger:
        ledger.create_chat("c", "u")
    with chatledger.open(data, durability="fast") as ledger:
        check_chat(ledger, "c")


def test_a_stream_with_events_is_not_thrown_away(tmp_path: Path) -> None:
    """When only the description is lost, opening fails, and the events stay in their files."""
    data = tmp_path / "data"
    with chatledger.open(data, durability="fast") as ledger:
        ledger.create_chat("c", "u")
    (streams(data) / "chatledger" / "meta.sum").unlink()
    shutil.rmtree(data / "index")
    before = sorted(path.read_bytes() for path in streams(data).rglob("*.blk"))
    with pytest.raises(ChainIntegrityError, match="chatledger doctor"):
        chatledger.open(data, durability="fast")

    assert sorted(path.read_bytes() for path in streams(data).rglob("*.blk")) == before
    assert DataDirectory(data).has_stream("chatledger")
