"""Deletions whose server was killed before it had overwritten what it had noted as deleted."""

import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from eventsourcing.persistence import OperationalError
from tests.support.jetstream_world import TOKEN, Relay, Server

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.infra.admin.doctor.diagnosing import diagnose
from chatledger.infra.log.nats_server.blocks import block_key, scan_block
from chatledger.infra.log.nats_server.directory import CHECKED, DataDirectory
from chatledger.infra.log.nats_server.erasures import (
    MARK,
    erasing,
    find_unfinished,
    finish_interrupted_erasures,
    interrupted,
)

SECRET = "the password is swordfish"
LENGTH = struct.Struct("<I")


def fill(ledger: Ledger) -> None:
    """Two chats whose messages alternate."""
    for name in ("doomed", "other"):
        ledger.create_chat(name, "ada")
    for number in range(6):
        ledger.append("doomed", [NewMessage("user", f"{SECRET} {number}")])
        ledger.append("other", [NewMessage("user", f"kept {number}")])


def block(path: Path) -> Path:
    return path / "log" / "jetstream" / "$G" / "streams" / "chatledger" / "msgs" / "1.blk"


def records(raw: bytes) -> list[tuple[int, bytes]]:
    """(offset, record) of each."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(raw):
        length = LENGTH.unpack_from(raw, at)[0] & 0x7FFFFFFF
        found.append((at, raw[at : at + length]))
        at += length
    return found


def deleted_but_readable(path: Path, *, count: int = 1) -> list[tuple[int, bytes]]:
    """
    A closed ledger as a server leaves it that is killed between the two steps of a deletion.

    The chat is deleted; some of its records stand where they stood. Returns them with their offsets.
    """
    with chatledger.open(path, compression="none") as ledger:
        fill(ledger)
    before = block(path).read_bytes()
    with chatledger.open(path) as ledger:
        ledger.delete_chat("doomed")
    again = [(at, record) for at, record in records(before) if SECRET.encode() in record][:count]
    raw = bytearray(block(path).read_bytes())
    for at, record in again:
        raw[at : at + len(record)] = record
    block(path).write_bytes(raw)
    (path / f"{MARK}killed").touch()
    return again


def kinds(path: Path) -> set[str]:
    return {finding.kind for finding in diagnose(path).findings if finding.severity != "note"}


def check(path: Path) -> None:
    """The chat that stays is whole, also when the index is built anew."""
    with chatledger.open(path) as ledger:
        assert [f"kept {number}" for number in range(6)] == [message.text for message in ledger.get_messages("other")]
        assert ledger.get_chat("doomed") is None
        ledger.verify()
        ledger.rebuild()
        assert ledger.append("other", [NewMessage("user", "more")])


@pytest.mark.guard
@pytest.mark.parametrize("count", [1, 3])
def test_the_next_open_overwrites_it(tmp_path: Path, count: int) -> None:
    """nats-server takes the message for deleted and never looks at it again; its bytes go before it starts."""
    deleted_but_readable(tmp_path, count=count)
    assert {"erasure-unfinished"} == kinds(tmp_path)
    assert not diagnose(tmp_path).is_healthy

    with chatledger.open(tmp_path) as ledger:
        assert SECRET.encode() not in block(tmp_path).read_bytes()
        assert ledger.delete_chat("doomed") is False
    assert set() == kinds(tmp_path)
    assert list(tmp_path.glob(f"{MARK}*")) == []
    check(tmp_path)


@pytest.mark.guard
@pytest.mark.parametrize("name", ["index.db", "CURRENT"])
def test_whatever_else_was_lost(tmp_path: Path, name: str) -> None:
    """Neither our index nor the server's is needed to know what was deleted."""
    deleted_but_readable(tmp_path)
    for file in tmp_path.rglob(name):
        file.unlink()
    check(tmp_path)
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_what_an_earlier_version_left(tmp_path: Path) -> None:
    """Its deletions were not noted, so the files of a directory are looked through once."""
    deleted_but_readable(tmp_path)
    (tmp_path / f"{MARK}killed").unlink()
    (tmp_path / CHECKED).unlink()
    assert {"erasure-unfinished"} == kinds(tmp_path)
    check(tmp_path)
    assert SECRET.encode() not in block(tmp_path).read_bytes()
    assert (tmp_path / CHECKED).exists()


def test_an_unfinished_copy_of_a_block(tmp_path: Path) -> None:
    """A server that is killed while it writes a block anew leaves a file that no server looks at."""
    with chatledger.open(tmp_path) as ledger:
        fill(ledger)
    copy = block(tmp_path).with_name("1.blk.tmp")
    copy.write_bytes(block(tmp_path).read_bytes()[:400])
    with chatledger.open(tmp_path) as ledger:
        ledger.delete_chat("doomed")
    copy.write_bytes(SECRET.encode())
    (tmp_path / f"{MARK}killed").touch()
    assert {"erasure-unfinished"} == kinds(tmp_path)
    check(tmp_path)
    assert not copy.exists()


def _flip(at: int) -> Callable[[bytearray], None]:
    def flip(raw: bytearray) -> None:
        raw[at] ^= 1

    return flip


def test_damage_is_not_taken_for_a_deletion(tmp_path: Path) -> None:
    """A record whose checksum is wrong, or that only a damaged record calls deleted, is left as it is."""
    ((at, record),) = deleted_but_readable(tmp_path)
    whole = block(tmp_path).read_bytes()
    noted = next(offset for offset, one in records(whole) if one[4:12] == record[4:11] + bytes([record[11] | 0x40]))
    directory = DataDirectory(tmp_path)
    for offset in (at + len(record) - 20, at + len(record) - 1, noted + 15, noted + 29):
        raw = bytearray(whole)
        _flip(offset)(raw)
        block(tmp_path).write_bytes(raw)
        assert list(find_unfinished(directory)) == []
        finish_interrupted_erasures(directory)
        assert block(tmp_path).read_bytes() == raw


def test_nothing_else_is_changed(tmp_path: Path) -> None:
    """The block has the same length, and all other records their bytes; a second time changes nothing."""
    again = deleted_but_readable(tmp_path, count=2)
    before = block(tmp_path).read_bytes()
    finish_interrupted_erasures(DataDirectory(tmp_path))
    after = block(tmp_path).read_bytes()

    assert len(before) == len(after)
    changed = {at for at, record in records(before) if after[at : at + len(record)] != record}
    assert {at for at, _ in again} == changed
    assert not scan_block(after, block_key("chatledger", 1), b"chatledger.").damages
    (tmp_path / f"{MARK}killed").touch()
    finish_interrupted_erasures(DataDirectory(tmp_path))
    assert block(tmp_path).read_bytes() == after


def test_the_note_of_an_erasure(tmp_path: Path) -> None:
    """It is there while messages are erased, stays when that fails, and one under way is not taken for interrupted."""
    with chatledger.open(tmp_path) as ledger:
        fill(ledger)
    directory = DataDirectory(tmp_path)
    with erasing(directory):
        assert 1 == len(list(tmp_path.glob(f"{MARK}*")))
        assert interrupted(directory) == []
        finish_interrupted_erasures(directory)
        assert 1 == len(list(tmp_path.glob(f"{MARK}*")))
    assert list(tmp_path.glob(f"{MARK}*")) == []

    with pytest.raises(OperationalError), erasing(directory):
        raise OperationalError
    assert 1 == len(interrupted(directory))
    with chatledger.open(tmp_path):
        assert interrupted(directory) == []


class Cut(Relay):
    """Ends the connection instead of passing on that the first message was deleted."""

    is_armed = True

    def transfer(self, data: bytes, to: socket.socket, *, is_reply: bool) -> bool:
        if self.is_armed and is_reply and b'"success":true' in data:
            self.is_armed = False
            return False
        return super().transfer(data, to, is_reply=is_reply)


def test_a_server_of_others_may_keep_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its files are out of reach. When the answer to a deletion is lost, a warning names the position."""
    server = Server(tmp_path / "server").start()
    relay = Cut(lambda: server.port)
    location = f"nats://{TOKEN}@127.0.0.1:{relay.port}/chats"
    try:
        with chatledger.open(location, index=tmp_path / "index", create=True) as ledger:
            fill(ledger)
            ledger.delete_chat("doomed")
            assert ledger.get_chat("doomed") is None
    finally:
        relay.close()
        server.stop()

    assert not relay.is_armed
    doubts = [record for record in caplog.records if "may still be in the server's block files" in record.getMessage()]
    assert "chats" in doubts[0].getMessage()
