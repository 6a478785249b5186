"""Backups: online, whole commits, incremental, without what was deleted, and checked."""

import asyncio
import json
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.backup_world import answers, changed, content, fill, run_and_kill, word
from tests.support.files_in_clear import in_clear
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import (
    AccessDeniedError,
    ChainIntegrityError,
    ConfigurationError,
    CorruptStateError,
    Encryption,
    Ledger,
    admin,
    user,
)
from chatledger.admin import Backup
from chatledger.errors import LedgerLockedError, LogRegressedError, UnsupportedFormatError
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.server import EmbeddedServer
from chatledger.infra.store.backup import manifest
from chatledger.infra.store.backup.manifest import BackupFolder
from chatledger.infra.store.backup.writing import write_backup
from chatledger.infra.store.opening import STREAM

PLACES = ["directory", "server", "sqlite", "postgresql", "memory"]


@pytest.fixture(params=PLACES)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger on each kind of log."""
    if request.param == "server":
        server = EmbeddedServer.acquire(DataDirectory(tmp_path / "server"), durability="always", stream=STREAM)
        with server:
            url = server.endpoint.urls[0].replace("nats://", f"nats://{server.endpoint.token}@")
            with chatledger.open(f"{url}/logs", create=True, index=tmp_path / "index") as opened:
                yield opened
        return
    if request.param == "postgresql":
        location = request.getfixturevalue("new_postgres_database")()
    else:
        location = {"directory": str(tmp_path / "data"), "sqlite": f"sqlite:///{tmp_path}/a.db"}.get(
            request.param, "memory:"
        )
    index = tmp_path / "index" if request.param == "postgresql" else None
    with chatledger.open(location, index=index) as opened:
        yield opened


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Ledger]:
    with chatledger.open(f"sqlite:///{tmp_path}/a.db", compression="none") as opened:
        fill(opened)
        yield opened


def checked(folder: Path) -> Backup:
    return admin.check_backup(folder)


def test_every_kind_of_log(ledger: Ledger, tmp_path: Path) -> None:
    """A backup has all events of any log, and reads back whole."""
    fill(ledger)
    made = ledger.backup(tmp_path / "backup")

    assert (made.position, made.event_count, made.added_count) == (ledger.position, 21, 21)
    assert made.stream_count == 3
    found = checked(tmp_path / "backup")
    assert (found.position, found.hash, found.event_count) == (made.position, made.hash, 21)
    assert made.hash == [recorded.hash.hex() for recorded in ledger.history()][-1]


def test_a_second_run_adds_and_removes(ledger: Ledger, tmp_path: Path) -> None:
    """What is new is added; what was deleted since is gone from all files, also of a chat made anew (PS-13, PS-14)."""
    folder = tmp_path / "backup"
    fill(ledger)
    ledger.backup(folder)
    assert word("b", 1).encode() in in_clear(content(folder))
    ledger.delete_chat("b")
    ledger.create_chat("b", "bo")
    ledger.append("b", [user("a new life")])
    ledger.append("c", [user("and more")])
    made = ledger.backup(folder)

    assert (made.added_count, made.erased_count, made.event_count) == (4, 7, 18)
    raw = in_clear(content(folder))
    assert b"word-b-" not in raw
    assert b"about b" not in raw
    assert all(text in raw for text in (b"word-a-1", b"a new life", b"and more"))
    assert checked(folder).event_count == 18
    again = ledger.backup(folder)
    assert (again.added_count, again.erased_count, again.hash) == (0, 0, made.hash)


def test_a_deletion_within_one_run(local: Ledger, tmp_path: Path) -> None:
    """A chat that was deleted before the first backup leaves its tombstone only; deleted twice, two."""
    local.delete_chat("a")
    local.create_chat("a", "ada")
    local.append("a", [user("second life")])
    local.delete_chat("a")
    local.backup(tmp_path / "backup")

    assert b"second life" not in content(tmp_path / "backup")
    assert checked(tmp_path / "backup").event_count == 16


def test_an_empty_log(tmp_path: Path) -> None:
    """Nothing is a backup too, and goes on."""
    with chatledger.open(tmp_path / "data") as ledger:
        assert ledger.backup(tmp_path / "backup").position == 0
        assert checked(tmp_path / "backup").event_count == 0
        fill(ledger)
        assert ledger.backup(tmp_path / "backup").added_count == 21
    assert checked(tmp_path / "backup").event_count == 21


@pytest.mark.soak
def test_others_write_meanwhile(tmp_path: Path) -> None:
    """Each of many backups beside writers, batches and deletions is whole commits up to one position."""
    stop = threading.Event()
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:

        def write(name: str) -> None:
            for number in range(10_000):
                chat_id = f"{name}{number % 3}"
                ledger.upsert_chat(chat_id, "u")
                # More than fits into one event: a commit of several.
                ledger.append(chat_id, [user("x" * 400_000) for _ in range(3)] if number % 7 == 0 else [user("y")])
                if number % 5 == 4:
                    ledger.delete_chat(chat_id)
                if stop.is_set():
                    return

        writers = [threading.Thread(target=write, args=(name,)) for name in "pqr"]
        for writer in writers:
            writer.start()
        try:
            positions: list[int] = []
            for _ in range(8):
                positions.append(ledger.backup(tmp_path / "backup").position)
                assert checked(tmp_path / "backup").position == positions[-1]
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert positions == sorted(positions)
        assert positions[-1] > positions[0]
        made = ledger.backup(tmp_path / "backup")
    assert checked(tmp_path / "backup").hash == made.hash


def test_segments_are_bounded(local: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large logs take several files; many small runs do not make many files; full ones are not touched again."""
    monkeypatch.setattr("chatledger.infra.store.backup.writing.SEGMENT_BYTES", 2000)
    folder = tmp_path / "backup"
    local.backup(folder)
    before = {path.name: path.read_bytes() for path in folder.glob("*.segment")}
    assert len(before) >= 3
    for number in range(6):
        local.append("a", [user(f"small {number}")])
        local.backup(folder)
    after = {path.name: path.read_bytes() for path in folder.glob("*.segment")}
    assert len(after) <= len(before) + 2
    assert len(set(before.items()) & set(after.items())) >= len(before) - 1
    assert checked(folder).event_count == 27
    local.delete_chat("b")
    local.backup(folder)
    assert checked(folder).event_count == 21


KILLED = """
import sys, chatledger
with chatledger.open(sys.argv[1]) as ledger:
    ledger.backup(sys.argv[2])
"""


@pytest.mark.soak
@pytest.mark.parametrize("point", ["first segment", "second segment", "heads", "manifest"])
def test_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Kill -9 while files are written leaves the earlier backup or the later one, and the next run completes it."""
    location, folder = f"sqlite:///{tmp_path}/a.db", tmp_path / "backup"
    with chatledger.open(location) as ledger:
        fill(ledger, messages=30)
        ledger.backup(folder)
        earlier = ledger.position
        ledger.delete_chat("a")
        fill(ledger, chats="de", messages=60)
        later = ledger.position
    before = set(folder.iterdir())

    def is_there() -> bool:
        new = sorted(path.name for path in set(folder.iterdir()) - before)
        kinds = {"first segment": 1, "second segment": 2}
        if point in kinds:
            return sum(".segment" in name for name in new) >= kinds[point]
        return any((".heads" if point == "heads" else "manifest.json.") in name for name in new)

    run_and_kill(KILLED, location, folder, when=is_there)
    assert checked(folder).position in {earlier, later}
    with chatledger.open(location) as ledger:
        ledger.backup(folder)
        assert checked(folder).position == later
    named = {"lock", "manifest.json"}
    strays = [path.name for path in folder.iterdir() if path.name not in named]
    manifest = BackupFolder(folder).require()
    assert sorted(strays) == sorted([manifest.heads.file, *(segment.file for segment in manifest.segments)])
    assert b"word-a-" not in content(folder)


@pytest.mark.parametrize("failing", range(7))
def test_the_disk_is_full(local: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """The n-th sync to the disk fails, for every n: the error says so, and the earlier backup stands (PS-39)."""
    import os

    folder = tmp_path / "backup"
    made = local.backup(folder)
    local.delete_chat("a")
    sync, calls = os.fsync, iter(range(100))

    def full(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ConfigurationError, match="No space left"):
            local.backup(folder)
    # The seventh is the one after the manifest was replaced.
    assert checked(folder).position == (made.position if failing < 6 else local.position)
    local.backup(folder)
    assert checked(folder).position == local.position
    assert b"word-a-" not in content(folder)


@pytest.mark.parametrize("where", ["segment", "heads", "manifest"])
def test_a_flipped_bit_anywhere(local: Ledger, tmp_path: Path, where: str) -> None:
    """Whatever bit of the backup is flipped, `check_backup` says that it is damaged."""
    folder = tmp_path / "backup"
    local.backup(folder)
    (file,) = folder.glob(f"*{where}*")
    sound = file.read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 40)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises((CorruptStateError, UnsupportedFormatError)):
            checked(folder)
    file.write_bytes(sound[:-1])
    with pytest.raises(CorruptStateError):
        checked(folder)
    file.unlink()
    with pytest.raises((CorruptStateError, ConfigurationError)):
        checked(folder)


def test_a_damaged_segment_names_its_place(local: Ledger, tmp_path: Path) -> None:
    """The error says after which position the file is damaged."""
    local.backup(tmp_path / "backup")
    (file,) = (tmp_path / "backup").glob("*.segment")
    with changed(file) as raw:
        raw[raw.index(b"word-a-2")] ^= 1
    with pytest.raises(CorruptStateError, match=r"damaged after position 3"):
        checked(tmp_path / "backup")


def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    """A log behind the backup, or with other events at its end, is refused, and the backup stays (PS-24)."""
    data, folder = tmp_path / "data", tmp_path / "backup"
    with chatledger.open(data) as ledger:
        fill(ledger)
    shutil.copytree(data, tmp_path / "older")
    with chatledger.open(data) as ledger:
        ledger.append("a", [user("acknowledged")])
        made = ledger.backup(folder)
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "older", data)
    with chatledger.open(data) as ledger:
        with pytest.raises(LogRegressedError):
            ledger.backup(folder)
        ledger.append("a", [user("another")])
        with pytest.raises(LogRegressedError):
            ledger.backup(folder)
    assert checked(folder).hash == made.hash


def test_the_last_event_of_the_backup_was_deleted(local: Ledger, tmp_path: Path) -> None:
    """The seam may be gone from the log when its chat was deleted; without a deletion it is a loss."""
    import sqlite3

    local.append("c", [user("the seam")])
    local.backup(tmp_path / "backup")
    local.delete_chat("c")
    assert local.backup(tmp_path / "backup").erased_count == 8
    local.append("a", [user("the next seam")])
    seam = local.backup(tmp_path / "backup").position
    local.create_chat("z", "ada")
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM stored_events WHERE rowid = ?", (seam,))
    connection.close()
    with pytest.raises(ChainIntegrityError, match="gone without a deletion"):
        local.backup(tmp_path / "backup")


def test_an_altered_event_is_not_backed_up(local: Ledger, tmp_path: Path) -> None:
    """Every event is checked before it counts: hash chain and decoding (PS-24)."""
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute(
            "UPDATE stored_events SET state = CAST(replace(state, ?, ?) AS BLOB) WHERE rowid = 3",
            ("word-a-1", "xxxx-a-1"),
        )
    connection.close()
    with pytest.raises((ChainIntegrityError, CorruptStateError)):
        local.backup(tmp_path / "backup")
    with pytest.raises(ConfigurationError, match="no backup"):
        checked(tmp_path / "backup")


def test_folders_that_are_refused(local: Ledger, tmp_path: Path) -> None:
    """A folder with something else, the backup of another log, a newer format, a file, two at the same time."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    with pytest.raises(ConfigurationError, match="not empty"):
        local.backup(tmp_path / "other")
    with pytest.raises(ConfigurationError):
        local.backup(tmp_path / "other" / "precious")
    local.backup(tmp_path / "backup")
    with chatledger.open("memory:") as another:
        fill(another)
        with pytest.raises(ConfigurationError, match="another log"):
            another.backup(tmp_path / "backup")
    with BackupFolder(tmp_path / "backup").writing(), pytest.raises(LedgerLockedError):
        local.backup(tmp_path / "backup")
    manifest = tmp_path / "backup" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 2}))
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        local.backup(tmp_path / "backup")
    with pytest.raises(UnsupportedFormatError):
        checked(tmp_path / "backup")


def test_nobody_else_may_read_it(local: Ledger, tmp_path: Path) -> None:
    """Mode 0700, and 0600 for what is replaced."""
    local.backup(tmp_path / "backup")
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o700
    with pytest.raises(AccessDeniedError):
        local.for_user("ada").backup(tmp_path / "of ada")


def test_encrypted_and_compressed_records_stay_so(tmp_path: Path) -> None:
    """Records are copied as they are: no clear text and no key gets into a backup (GS-24)."""
    key = Encryption.new_key("k1")
    location = f"sqlite:///{tmp_path}/a.db"
    with chatledger.open(location, encryption=Encryption(key), compression="zstd") as ledger:
        fill(ledger)
        ledger.append("a", [user("wordy " * 1000)])
        ledger.backup(tmp_path / "backup")
        before = answers(ledger)
    raw = content(tmp_path / "backup")
    assert b"word" not in raw
    assert b"about a" not in raw
    assert key.partition(":")[2].encode() not in raw
    assert len(raw) < 12_000

    with pytest.raises(ConfigurationError, match="keys"):
        checked(tmp_path / "backup")
    assert admin.check_backup(tmp_path / "backup", files_only=True).event_count == 22
    assert admin.check_backup(tmp_path / "backup", encryption=Encryption(key)).event_count == 22
    with pytest.raises(CorruptStateError):
        admin.check_backup(tmp_path / "backup", encryption=Encryption(Encryption.new_key("k1")))
    admin.restore(tmp_path / "backup", tmp_path / "again", encryption=Encryption(key))
    with chatledger.open(tmp_path / "again", encryption=Encryption(key)) as ledger:
        assert answers(ledger) == before


def test_async_and_progress(tmp_path: Path) -> None:
    """The twin of `AsyncLedger`, and progress up to the end."""
    seen: list[tuple[int, int]] = []

    async def run() -> Backup:
        async with chatledger.open_async("memory:") as ledger:
            await ledger.create_chat("a", "ada")
            return await ledger.backup(tmp_path / "backup", progress=lambda done, total: seen.append((done, total)))

    assert asyncio.run(run()).event_count == 1
    assert seen[-1] == (1, 1)


def test_a_hole_without_an_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that hold nothing and that no tombstone accounts for stop the backup of a dense log."""
    with chatledger.open("memory:") as ledger:
        fill(ledger)
        log = store_behind(ledger).log
        log.erase("c", first_position=20, before=22)
        with pytest.raises(ChainIntegrityError, match=r"deleted chats account for 0 only|last event is at"):
            write_backup(log, tmp_path / "backup", progress=lambda _done, _total: None)
    assert BackupFolder(tmp_path / "backup").read() is None


@pytest.mark.parametrize(
    ("cut", "added"), [(3, b""), (0, b"\0\0\0\1\0\0\0\0x"), (0, b"\0")], ids=["cut", "longer", "odd"]
)
def test_frames_are_checked_one_by_one(tmp_path: Path, cut: int, added: bytes) -> None:
    """A frame that is not whole is an error of ours, also behind a digest that is right."""
    from hashlib import sha256

    from msgspec import structs

    writer = manifest.SegmentWriter(tmp_path / "1.segment")
    writer.add(manifest.Frame(1, "a", 1, "t", b"state"))
    made = writer.finish()
    assert made is not None
    assert [frame.position for frame in manifest.read_segment(tmp_path, made)] == [1]
    raw = (tmp_path / "1.segment").read_bytes()
    raw = raw[: len(raw) - cut] + added
    (tmp_path / "1.segment").write_bytes(raw)
    with pytest.raises(CorruptStateError, match="frame"):
        list(manifest.read_segment(tmp_path, structs.replace(made, sha256=sha256(raw).hexdigest())))
