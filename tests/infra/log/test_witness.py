"""The witness beside a log: it knows how far the log went, is never ahead of it, and is believed only where it may be."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.deaths import kill, server_pid
from tests.faults.matrix import ANOTHER_BOOT
from tests.support.jetstream_world import TOKEN, running
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import user
from chatledger.errors import LogRegressedError
from chatledger.infra.log import witness as module
from chatledger.infra.log.nats_server.blocks import read_frames
from chatledger.infra.log.witness import LastSeen, SharedWitness, Witness, boot_id, read_last_seen

HASHES = [bytes([number]) * 32 for number in range(256)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "witness"


def another_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boot").write_bytes(ANOTHER_BOOT)
    monkeypatch.setattr(module, "_BOOT_ID", tmp_path / "boot")


def test_the_last_note_counts(folder: Path) -> None:
    """Of whoever wrote it, also when they ended; what is older changes nothing."""
    first, second = (Witness(folder, identity="log", is_synced=True) for _ in range(2))
    assert first.last_seen() == []
    first.note(3, HASHES[3])
    second.note(5, HASHES[5])
    first.note(2, HASHES[2])
    assert second.last_seen() == first.last_seen() == [LastSeen(5, HASHES[5])]
    second.close()
    first.note(7, HASHES[7])
    first.close()
    first.close()
    first.note(9, HASHES[9])
    assert read_last_seen(folder) == read_last_seen(folder, identity="log") == LastSeen(7, HASHES[7])
    assert read_last_seen(folder, identity="other") is None


def test_files_are_used_again(folder: Path) -> None:
    """There are as many as processes at a time, and a new owner goes on from what the last one noted."""
    for number in range(1, 6):
        witness = Witness(folder, identity="log", is_synced=True)
        witness.note(number, HASHES[number])
        witness.close()
    assert [path.name for path in folder.iterdir()] == ["1"]
    assert read_last_seen(folder) == LastSeen(5, HASHES[5])


def test_another_log_in_its_place(folder: Path) -> None:
    """Begins anew."""
    for identity, position in (("old", 100), ("new", 3)):
        witness = Witness(folder, identity=identity, is_synced=True)
        witness.note(position, HASHES[position])
        witness.close()
    assert read_last_seen(folder) == LastSeen(3, HASHES[3])


def test_a_copy_is_not_believed(folder: Path) -> None:
    """The log may have been copied before."""
    witness = Witness(folder, identity="log", is_synced=True)
    witness.note(3, HASHES[3])
    witness.close()
    shutil.copytree(folder, folder.with_name("copy"))
    assert read_last_seen(folder.with_name("copy")) is None
    folder.rename(folder.with_name("moved"))
    assert read_last_seen(folder.with_name("moved")) == LastSeen(3, HASHES[3])


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_machine_that_went_down(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_synced: bool
) -> None:
    """Of a log that acknowledges before it syncs, only what is settled counts."""
    witness = Witness(folder, identity="log", is_synced=is_synced)
    witness.note(3, HASHES[3])
    witness.settle()
    witness.note(4, HASHES[4])
    assert witness.last_seen() == [LastSeen(4, HASHES[4])]
    another_boot(monkeypatch, tmp_path)
    assert witness.last_seen() == [LastSeen(4, HASHES[4]) if is_synced else LastSeen(3, b"")]
    witness.close()
    later = Witness(folder, identity="log", is_synced=is_synced)
    assert later.last_seen() == [read_last_seen(folder)]
    later.note(5, HASHES[5])
    assert later.last_seen() == [LastSeen(5, HASHES[5])]
    later.close()


def test_what_settles_by_itself(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server syncs within a second what it acknowledged."""
    monkeypatch.setattr(module, "_SYNC_S", 0.01)
    monkeypatch.setattr(module, "_SETTLED_S", 0.1)
    witness = Witness(folder, identity="log", is_synced=False)
    witness.note(3, HASHES[3])
    boot, before = module._BOOT_ID, time.monotonic()  # pyright: ignore[reportPrivateUsage]
    another_boot(monkeypatch, tmp_path)
    while read_last_seen(folder) is None:
        assert time.monotonic() < before + 30
        time.sleep(0.01)
    assert time.monotonic() - before >= 0.1
    assert read_last_seen(folder) == LastSeen(3, HASHES[3])
    monkeypatch.setattr(module, "_BOOT_ID", boot)
    witness.close()


@given(positions=st.lists(st.integers(1, 255), min_size=1), torn=st.binary(min_size=1, max_size=128))
def test_a_torn_write_leaves_the_note_before(
    tmp_path_factory: pytest.TempPathFactory, positions: list[int], torn: bytes
) -> None:
    """Whatever the half that was being written holds."""
    folder = tmp_path_factory.mktemp("torn")
    witness = Witness(folder, identity="log", is_synced=True)
    notes = sorted(set(positions))
    for position in notes:
        witness.note(position, HASHES[position])
    number = len(notes)
    witness.close()
    with (folder / "1").open("r+b") as file:
        file.seek(128 * (number & 1))
        file.write(bytes(128))
        file.seek(128 * (number & 1))
        file.write(torn)
    before = LastSeen(notes[-2], HASHES[notes[-2]]) if number > 1 else None
    assert read_last_seen(folder) == before


def test_garbage_beside_it(folder: Path) -> None:
    """Is passed over."""
    witness = Witness(folder, identity="log", is_synced=True)
    witness.note(3, HASHES[3])
    (folder / "2").write_bytes(b"\xff" * 300)
    (folder / "3").write_bytes(b"")
    (folder / "notes.txt").write_text("mine")
    assert witness.last_seen() == [LastSeen(3, HASHES[3])]
    witness.close()


def test_an_unknown_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing tells one run of the machine from another, each may be a new one."""
    monkeypatch.setattr(module, "_BOOT_ID", tmp_path / "absent")
    assert boot_id() == b""


# With ledgers


WRITER = """
import sys
import chatledger
with chatledger.open(sys.argv[1], durability=sys.argv[2]) as ledger:
    ledger.upsert_chat(sys.argv[3], "u")
    while True:
        ledger.append(sys.argv[3], [chatledger.user("x")])
        print(ledger.position, flush=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["always", "fast"])
def test_it_is_never_ahead_of_the_log(tmp_path: Path, durability: str) -> None:
    """Writers and their server are killed: what was acknowledged was noted, and what was noted is there."""
    data = tmp_path / "data"
    acknowledged = 0
    for life in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(data), durability, f"c{number}"], stdout=subprocess.PIPE
            )
            for number in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(10 + life):
                acknowledged = max(acknowledged, int(writer.stdout.readline()))
        kill(server_pid(data))
        for writer in writers:
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
            assert writer.stdout is not None
            lines = writer.stdout.read().splitlines()
            acknowledged = max([acknowledged, *map(int, lines)])
            writer.stdout.close()
        seen = read_last_seen(data / "witness")
        assert seen is not None
        assert seen.position >= acknowledged
        with chatledger.open(data) as ledger:
            assert ledger.position >= seen.position


def test_an_sqlite_file_that_lost_rows(tmp_path: Path) -> None:
    """Also without its index. Both removed, the loss is accepted."""
    location = f"sqlite:///{tmp_path}/ledger.db"
    with chatledger.open(location) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [user("one"), user("two")])
        ledger.append("c", [user("three")])
        position = ledger.position
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        (table,) = database.execute("SELECT name FROM sqlite_master WHERE name LIKE '%events'").fetchone()
        database.execute(f"DELETE FROM {table} WHERE rowid = {position}")
    database.close()
    shutil.rmtree(tmp_path / "ledger.db-index")
    for _ in range(2):
        with pytest.raises(LogRegressedError, match=f"position {position} was already seen"):
            chatledger.open(location)
    shutil.rmtree(tmp_path / "ledger.db-witness")
    with chatledger.open(location) as ledger:
        assert [message.text for message in ledger.get_messages("c")] == ["one", "two"]


def test_a_stream_that_lost_its_end(tmp_path: Path) -> None:
    """On a server elsewhere: each node knows, also when its index is gone."""
    with running(tmp_path / "server") as server:
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/log"
        with chatledger.open(location, index=tmp_path / "index", create=True) as ledger:
            ledger.create_chat("c", "u")
            ledger.append("c", [user("one")])
            position = ledger.position

        async def delete() -> bool:
            client = await cast("Any", nats).connect(f"nats://{TOKEN}@127.0.0.1:{server.port}")
            try:
                return bool(await client.jetstream().delete_msg("log", position))
            finally:
                await client.close()

        assert asyncio.run(delete())
        for seen in ("index", "index-witness"):
            shutil.rmtree(tmp_path / seen)
            with pytest.raises(chatledger.ChainIntegrityError):
                chatledger.open(location, index=tmp_path / "index")


def test_nodes_share_what_they_have_seen(tmp_path: Path) -> None:
    """One that never saw the end of the log knows of it from the server; no feed shows it, and no backup takes it along."""
    with running(tmp_path / "server") as server:
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/log"
        with chatledger.open(location, index=tmp_path / "one" / "index", create=True) as ledger:
            ledger.create_chat("c", "u")
            ledger.append("c", [user("one")])
            last = next(iter(ledger.history(after=1)))
        with chatledger.open(location, index=tmp_path / "two" / "index") as ledger:
            log = store_behind(ledger).log
            assert SharedWitness(log).read() == LastSeen(last.position, last.hash)
            assert (log.bookmarks(), ledger.feeds()) == ([], [])
            SharedWitness(log).write(LastSeen(1, HASHES[1]))
            assert SharedWitness(log).read() == LastSeen(2, last.hash)
            SharedWitness(log).write(LastSeen(77, HASHES[77]))
        with pytest.raises(LogRegressedError, match="position 77 was already seen"):
            chatledger.open(location, index=tmp_path / "three" / "index")


def test_the_index_testifies_before_it_goes(tmp_path: Path) -> None:
    """A ledger from before there was a witness, after the machine went down: its index knows how far the log was."""
    data = tmp_path / "data"
    with chatledger.open(data) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [user("one")])
        shutil.copytree(data / "index", tmp_path / "index")
        position = ledger.position
    shutil.rmtree(data / "index")
    shutil.rmtree(data / "witness")
    shutil.copytree(tmp_path / "index", data / "index")
    for note in (data / "index").glob("*/in-use"):
        note.write_bytes(ANOTHER_BOOT)
    block = next(data.glob("log/jetstream/$G/streams/chatledger/msgs/*.blk"))
    os.truncate(block, read_frames(block.read_bytes())[0][-1].offset)
    with pytest.raises(LogRegressedError, match=f"position {position} "):
        chatledger.open(data)
