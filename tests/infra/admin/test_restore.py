"""Restoring: the same positions, the same answers, only into an empty place, and again after a crash."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from eventsourcing.persistence import Notification
from msgspec import structs
from tests.support.backup_world import answers, content, fill, reopened, run_and_kill, word
from tests.support.cli_world import ask, fails, run
from tests.support.files_in_clear import files_with
from tests.support.proof_world import KEY, pem_of, public_pem_of

import chatledger
from chatledger import ChainIntegrityError, ConfigurationError, CorruptStateError, Encryption, admin, user
from chatledger.errors import LedgerLockedError
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.server import EmbeddedServer
from chatledger.infra.log.port import EventLog
from chatledger.infra.store.backup.manifest import BackupFolder
from chatledger.infra.store.opening import STREAM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup of a log with holes: at the start, in the middle, of a chat made anew, before the last event."""
    made = tmp_path / "backup"
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        fill(ledger)
        ledger.delete_chat("a")
        ledger.create_chat("a", "bo")
        ledger.append("a", [user("second life")])
        ledger.append("c", [user("x" * 400_000) for _ in range(4)])
        fill(ledger, chats="d")
        ledger.delete_chat("d")
        ledger.backup(made)
    return made


@pytest.fixture
def before(folder: Path, tmp_path: Path) -> dict[str, object]:
    assert folder.exists()
    return reopened(tmp_path / "data")


@contextlib.contextmanager
def server_at(path: Path) -> Generator[str]:
    server = EmbeddedServer.acquire(DataDirectory(path), durability="fast", stream=STREAM)
    with server:
        yield server.endpoint.urls[0].replace("nats://", f"nats://{server.endpoint.token}@")


@pytest.mark.soak
@pytest.mark.parametrize("place", ["directory", "empty directory", "sqlite", "postgresql", "server"])
def test_the_same_answers_everywhere(
    folder: Path, before: dict[str, object], tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    """History with positions and hashes, chats, graphs, search: as before, on any kind of log; and it goes on."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        location = str(tmp_path / "restored")
        if place == "empty directory":
            Path(location).mkdir()
        elif place == "sqlite":
            location = f"sqlite:///{tmp_path}/restored.db"
        elif place == "postgresql":
            location = request.getfixturevalue("new_postgres_database")()
        elif place == "server":
            location = f"{stack.enter_context(server_at(tmp_path / 'server'))}/restored"
        found = admin.restore(folder, location)

        assert found.position == before["position"]
        assert reopened(location) == before
        with chatledger.open(location) as ledger:
            position = ledger.position
            ledger.append("b", [user("after the restore")])
            assert ledger.position == position + 1
            ledger.rebuild()
            ledger.verify()


def test_from_one_kind_to_another(tmp_path: Path) -> None:
    """A log in SQLite moves to a directory and back, with all positions."""
    with chatledger.open(f"sqlite:///{tmp_path}/a.db") as ledger:
        fill(ledger)
        ledger.delete_chat("b")
        ledger.backup(tmp_path / "one")
        before = answers(ledger)
    admin.restore(tmp_path / "one", tmp_path / "data")
    with chatledger.open(tmp_path / "data") as ledger:
        assert answers(ledger) == before
        ledger.backup(tmp_path / "two")
    admin.restore(tmp_path / "two", f"sqlite:///{tmp_path}/b.db")
    assert reopened(f"sqlite:///{tmp_path}/b.db") == before


@pytest.mark.soak
def test_holes_stay_after_a_crash_of_the_server(folder: Path, before: dict[str, object], tmp_path: Path) -> None:
    """The placeholders in the gaps do not come back, however the server ends."""
    path = tmp_path / "restored"
    admin.restore(folder, path)
    for _ in range(2):
        with EmbeddedServer.acquire(DataDirectory(path), durability="fast", stream=STREAM) as server:
            os.kill(server.server_pid, signal.SIGKILL)
        assert reopened(path) == before
    assert b"chatledger.filler" not in content(path)


def test_anchors_feeds_and_commands_hold(tmp_path: Path) -> None:
    """What was signed before passes, a named feed goes on where it was, and a command is not carried out twice (PS-22)."""
    with chatledger.open(tmp_path / "data") as ledger:
        fill(ledger)
        with ledger.context(command_id="once"):
            ledger.append("b", [user("exactly once")])
        anchor = ledger.anchor(pem_of(KEY))
        feed = ledger.feed(name="mailer", follow=False)
        handled = [next(feed).position for _ in range(5)]
        feed.ack()
        feed.close()
        ledger.delete_chat("a")
        ledger.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as ledger:
        found = ledger.verify(anchor=anchor, public_key=public_pem_of(KEY))
        assert found.erased_since_anchor == ("a",)
        rest = [recorded.position for recorded in ledger.feed(name="mailer", follow=False)]
        assert rest[0] > handled[-1]
        assert rest[-1] == ledger.position
        with ledger.context(command_id="once"):
            ledger.append("b", [user("exactly once")])
        assert [message.text for message in ledger.get_messages("b")].count("exactly once") == 1


def test_the_backup_goes_on_with_the_restored_log(folder: Path, tmp_path: Path) -> None:
    """After a restore the same folder is brought up to date, though the log has a new identity."""
    admin.restore(folder, tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as ledger:
        ledger.append("b", [user("more")])
        assert ledger.backup(folder).added_count == 1
        assert ledger.backup(folder).added_count == 0
    admin.check_backup(folder)


def make_directory(tmp_path: Path) -> str:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "something").touch()
    return str(tmp_path / "there")


def make_ledger(tmp_path: Path) -> str:
    with chatledger.open(tmp_path / "there") as ledger:
        return ledger.location


def make_file(tmp_path: Path) -> str:
    (tmp_path / "there").touch()
    return str(tmp_path / "there")


def make_sqlite(tmp_path: Path) -> str:
    with chatledger.open(f"sqlite:///{tmp_path}/there.db") as ledger:
        ledger.create_chat("here", "ada")
    return f"sqlite:///{tmp_path}/there.db"


def make_memory(_: Path) -> str:
    return "memory:"


def make_unknown(_: Path) -> str:
    return "ftp://x"


@pytest.mark.matrix
@pytest.mark.parametrize(
    "make",
    [make_directory, make_ledger, make_file, make_sqlite, make_memory, make_unknown],
    ids=["a directory", "a ledger", "a file", "sqlite", "memory", "unknown"],
)
def test_only_into_an_empty_place(folder: Path, tmp_path: Path, make: Callable[[Path], str]) -> None:
    """Where something is, nothing is touched."""
    location = make(tmp_path)
    shown = content(tmp_path / "there") if (tmp_path / "there").is_dir() else b""
    with pytest.raises(ConfigurationError):
        admin.restore(folder, location)
    assert shown == (content(tmp_path / "there") if (tmp_path / "there").is_dir() else b"")
    if location.startswith("sqlite"):
        with chatledger.open(location) as ledger:
            assert [chat.id for chat in ledger.list_chats()] == ["here"]


def test_a_stream_with_events_is_refused(folder: Path, tmp_path: Path) -> None:
    """A stream that somebody uses is neither filled nor deleted."""
    with server_at(tmp_path / "server") as url:
        with chatledger.open(f"{url}/used", create=True, index=tmp_path / "index") as ledger:
            ledger.create_chat("here", "ada")
        with pytest.raises(ConfigurationError, match="not empty"):
            admin.restore(folder, f"{url}/used")
        with chatledger.open(f"{url}/used", index=tmp_path / "index") as ledger:
            assert [chat.id for chat in ledger.list_chats()] == ["here"]


@pytest.mark.soak
def test_a_damaged_backup_restores_nothing(folder: Path, tmp_path: Path) -> None:
    """The place stays empty, for a sound backup."""
    (segment,) = folder.glob("*.segment")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    for location in (str(tmp_path / "restored"), f"sqlite:///{tmp_path}/restored.db"):
        with pytest.raises(CorruptStateError):
            admin.restore(folder, location)
    assert not (tmp_path / "restored").exists()
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    admin.restore(folder, tmp_path / "restored")
    admin.restore(folder, f"sqlite:///{tmp_path}/restored.db")


RESTORE = """
import sys
from chatledger import Encryption, admin
admin.restore(sys.argv[1], sys.argv[2], rekey=Encryption(sys.argv[3]) if sys.argv[3:] else None)
"""


@pytest.mark.soak
@pytest.mark.parametrize("point", ["begun", "log", "index", "done"])
def test_killed_in_the_middle(folder: Path, before: dict[str, object], tmp_path: Path, point: str) -> None:
    """Kill -9 while a directory is restored: nothing opens as if it were whole, and the next restore completes."""
    target = tmp_path / "restored"
    draft = tmp_path / "restored.restoring"
    signs = {"begun": "lock", "log": "data/log", "index": "data/index/CURRENT", "done": "never"}
    code = run_and_kill(RESTORE, folder, target, when=(draft / signs[point]).exists)
    if point == "done":
        assert code == 0
        assert reopened(target) == before
        return
    if not target.exists():
        admin.restore(folder, target)
    assert reopened(target) == before
    assert not draft.exists()


@pytest.mark.soak
@pytest.mark.parametrize("sign", ["lock", "data/log"])
def test_killed_while_a_key_is_retired(folder: Path, before: dict[str, object], tmp_path: Path, sign: str) -> None:
    """The next call completes it, says how far it came, and leaves nothing under another key."""
    target, draft, new = tmp_path / "rekeyed", tmp_path / "rekeyed.restoring", Encryption.new_key("new")
    run_and_kill(RESTORE, folder, target, new, when=(draft / sign).exists)
    assert not target.exists()
    steps: list[tuple[int, int]] = []
    admin.restore(folder, target, rekey=Encryption(new), progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    with chatledger.open(target, encryption=Encryption(new)) as ledger:
        ledger.verify()
        assert answers(ledger) == before
    assert admin.diagnose(target, encryption=Encryption(new)).key_ids == ("new",)
    assert not draft.exists()


DIE = """
import os, signal, sys
from chatledger import Encryption, admin
from chatledger.infra.admin import backups
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.log.nats import event_log, restoring
from chatledger.infra.log.nats.recorders import StreamRecorder
from chatledger.infra.log.sql import SqliteLog

folder, target, key, point = sys.argv[1:]
restoring.MAX_BATCH = 7
backups._PAGE = 3 if target.startswith("sqlite") else 250

def dying(owner, name, count=0):
    carried_out, calls = getattr(owner, name), iter(range(1000))
    def call(*args, **kwargs):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return carried_out(*args, **kwargs)
    setattr(owner, name, call)

places = {
    "purge": (restoring, "_purge_placeholders"),
    "note": (backups, "note_backup"),
    "mark": (SqliteLog if target.startswith("sqlite") else event_log, "finish_restore"),
    "index": (backups, "open_shared"),
    "verify": (Ledger, "verify"),
}
if point.isdigit():
    dying(StreamRecorder, "insert", int(point))
    dying(SqliteLog, "_insert", int(point))
else:
    dying(*places[point])
admin.restore(folder, target, rekey=Encryption(key))
"""


def rekeyed_and_killed(folder: Path, target: object, key: str, point: str) -> None:
    assert run_and_kill(DIE, folder, target, key, point, when=lambda: False) == -signal.SIGKILL


class Packed:
    """The positions whose records were encrypted anew."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.positions: list[int] = []
        packed = EventLog.packed

        def noted(log: EventLog, record: Notification, plain: bytes | None) -> Notification:
            self.positions.append(record.id)
            return packed(log, record, plain)

        patched.setattr(EventLog, "packed", noted)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["directory", "sqlite", "server"])
def test_a_rekeying_goes_on_where_it_was_killed(
    folder: Path, before: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Killed at one place after the other, and again: each record is encrypted once, and positions, hashes and history are those of before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    new = Encryption.new_key("new")
    with contextlib.ExitStack() as stack:
        target = str(tmp_path / "rekeyed")
        if place == "server":
            target = f"{stack.enter_context(server_at(tmp_path / 'server'))}/rekeyed"
        if place == "sqlite":
            target = f"sqlite:///{target}"
        points = ["0", "2", "1", *([] if place == "sqlite" else ["purge"]), "note", "mark"]
        for point in points if place == "server" else [*points, "index", "verify"]:
            rekeyed_and_killed(folder, target, new, point)
            assert not (tmp_path / "rekeyed").exists()
            if place == "server":
                with pytest.raises(ConfigurationError, match="being restored"):
                    chatledger.open(target, encryption=Encryption(new))
        packed = Packed(monkeypatch)
        admin.restore(folder, target, rekey=Encryption(new))

        assert packed.positions == []  # all of it was on the log
        with chatledger.open(target, encryption=Encryption(new)) as ledger:
            ledger.verify()
            assert answers(ledger) == before
        if place != "server":
            assert admin.diagnose(target, encryption=Encryption(new)).key_ids == ("new",)
            assert not (tmp_path / "rekeyed.restoring").exists()


@pytest.mark.guard
@pytest.mark.parametrize(("scheme", "page"), [("", 7), ("sqlite:///", 3)], ids=["directory", "sqlite"])
def test_a_rekeying_says_from_where_it_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, page: int
) -> None:
    new, target = Encryption.new_key("new"), f"{scheme}{tmp_path / 'rekeyed'}"
    rekeyed_and_killed(folder, target, new, "3")
    packed, steps = Packed(monkeypatch), list[tuple[int, int]]()
    admin.restore(folder, target, rekey=Encryption(new), progress=lambda done, total: steps.append((done, total)))

    assert min(packed.positions) > 3 * page
    assert steps == sorted(steps)
    assert steps[0][0] > 3 * page
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.guard
@pytest.mark.parametrize("point", ["3", "index"])
def test_a_rekeying_from_another_backup_or_under_another_key_begins_anew(
    folder: Path, tmp_path: Path, point: str
) -> None:
    """What was written from a backup that has changed since, or under another key, is no part of it."""
    first, second = Encryption.new_key("one"), Encryption.new_key("one")
    target, draft = tmp_path / "rekeyed", tmp_path / "rekeyed.restoring"
    rekeyed_and_killed(folder, target, first, point)
    rekeyed_and_killed(folder, target, second, point)
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.delete_chat("c")
        ledger.append("b", [user("more")])
        ledger.wait_erased()
        ledger.backup(folder)
        after = answers(ledger)
    rekeyed_and_killed(folder, target, second, point)
    assert draft.exists()
    admin.restore(folder, target, rekey=Encryption(second))
    with chatledger.open(target, encryption=Encryption(second)) as ledger:
        ledger.verify()
        assert answers(ledger) == after
    assert not draft.exists()


@pytest.mark.soak
def test_killed_while_a_stream_is_filled(folder: Path, before: dict[str, object], tmp_path: Path) -> None:
    """A stream that is half filled says so and does not open; restoring again goes on."""
    with server_at(tmp_path / "server") as url, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        location = f"{url}/restored"

        class KilledError(Exception):
            pass

        def die(*_: object) -> None:
            raise KilledError

        with patched.context() as dying:
            dying.setattr("chatledger.infra.log.nats.restoring._purge_placeholders", die)
            with pytest.raises(KilledError):
                admin.restore(folder, location)
        with pytest.raises(ConfigurationError, match="being restored"):
            chatledger.open(location)
        admin.restore(folder, location)
        assert reopened(location) == before


def test_two_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    """The second one is refused."""
    draft = tmp_path / "restored.restoring"
    draft.mkdir()
    with (draft / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LedgerLockedError, match="another process"):
            admin.restore(folder, tmp_path / "restored")
    admin.restore(folder, tmp_path / "restored")


def test_gaps_of_a_database(tmp_path: Path) -> None:
    """Positions that a database never used would be losses on a NATS server: refused there, kept in a database."""
    with chatledger.open(f"sqlite:///{tmp_path}/a.db") as ledger:
        fill(ledger)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE stored_events SET rowid = rowid + 10 WHERE rowid = 21")
    connection.close()
    shutil.rmtree(tmp_path / "a.db-index")
    with chatledger.open(f"sqlite:///{tmp_path}/a.db") as ledger:
        ledger.backup(tmp_path / "backup")
    with pytest.raises(ConfigurationError, match="never held an event"):
        admin.restore(tmp_path / "backup", tmp_path / "restored")
    admin.restore(tmp_path / "backup", f"sqlite:///{tmp_path}/b.db")
    assert reopened(f"sqlite:///{tmp_path}/b.db") == reopened(f"sqlite:///{tmp_path}/a.db")


def test_a_manifest_that_promises_more(folder: Path, tmp_path: Path) -> None:
    """What was restored is counted against the manifest."""
    home = BackupFolder(folder)
    manifest = home.require()
    home.publish(structs.replace(manifest, position=manifest.position + 1, hash=b"x" * 32))
    with pytest.raises(ChainIntegrityError):
        admin.restore(folder, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    assert word("a", 1).encode() not in content(folder)


@pytest.mark.soak
def test_the_commands(tmp_path: Path) -> None:
    """`backup`, `backup --check`, `restore`: for people and for programs, and mistakes on one line."""
    with chatledger.open(tmp_path / "data") as ledger:
        fill(ledger)
    place, folder = ("--location", tmp_path / "data"), tmp_path / "backup"
    made = run(*place, "backup", folder)
    assert (made.exit_code, "Added 21 events" in made.stdout) == (0, True)
    assert ask("backup", folder, at=tmp_path / "data")["added_count"] == 0
    found = run("backup", "--check", folder, "--json")
    assert (found.exit_code, json.loads(found.stdout)["event_count"]) == (0, 21)
    assert run("backup", "--check", "--files-only", folder).exit_code == 0
    done = run("restore", folder, tmp_path / "restored")
    assert (done.exit_code, "Restored and verified: 21 events" in done.stdout) == (0, True)
    assert reopened(tmp_path / "restored") == reopened(tmp_path / "data")

    assert "not empty" in fails(1, "restore", folder, tmp_path / "restored")
    assert "no backup" in fails(1, "restore", tmp_path / "none", tmp_path / "more")
    assert run("--location", tmp_path / "third", "restore", folder).exit_code == 0
    assert "no backup" in fails(1, "backup", "--check", tmp_path / "none")
    assert "--check" in fails(2, "backup", "--files-only", folder)
    assert "no ledger" in fails(1, "--location", tmp_path / "none", "backup", folder)
    (segment,) = folder.glob("*.segment")
    segment.write_bytes(segment.read_bytes()[:-1])
    assert "is damaged" in fails(1, "backup", "--check", folder)


@pytest.mark.parametrize("before", ["old", None], ids=["encrypted", "in clear"])
def test_a_leaked_key_is_retired(tmp_path: Path, before: str | None) -> None:
    """Under a new key all is as it was, large data, hashes and history included; the old one opens nothing any more."""
    old = None if before is None else Encryption(Encryption.new_key(before))
    new = Encryption(Encryption.new_key("new"))
    large = "leeks " * 100_000
    with chatledger.open(tmp_path / "ledger", encryption=old) as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user("A secret about leeks"), user(large)])
        ledger.create_chat("gone", "ada")
        ledger.delete_chat("gone")
        ledger.backup(tmp_path / "backup")
        hashes = [(recorded.position, recorded.hash) for recorded in ledger.history()]
    admin.restore(tmp_path / "backup", tmp_path / "rekeyed", encryption=old, rekey=new)
    with chatledger.open(tmp_path / "rekeyed", encryption=new) as ledger:
        assert [(recorded.position, recorded.hash) for recorded in ledger.history()] == hashes
        assert [message.text for message in ledger.get_messages("a")] == ["A secret about leeks", large]
        ledger.append("a", [user("And on")])
        ledger.verify()
    with pytest.raises((ConfigurationError, CorruptStateError)):
        chatledger.open(tmp_path / "rekeyed", encryption=old)
    diagnosis = admin.diagnose(tmp_path / "rekeyed", encryption=new)
    assert diagnosis.key_ids == ("new",)
    assert files_with(tmp_path / "rekeyed", b"leeks") == []


def test_keys_that_are_still_needed_are_named(tmp_path: Path) -> None:
    """By each event that is encrypted with one of them."""
    first, second = Encryption.new_key("first"), Encryption.new_key("second")
    with chatledger.open(tmp_path / "ledger", encryption=Encryption(first)) as ledger:
        ledger.create_chat("a", "ada")
    both = Encryption([second, first])
    with chatledger.open(tmp_path / "ledger", encryption=both) as ledger:
        ledger.append("a", [user("With the second key")])
    assert admin.diagnose(tmp_path / "ledger", encryption=both).key_ids == ("first", "second")
    with chatledger.open(tmp_path / "clear") as ledger:
        ledger.create_chat("a", "ada")
    assert admin.diagnose(tmp_path / "clear").key_ids == ()


def test_a_key_is_retired_on_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new key comes from the environment, and without it nothing is made."""
    monkeypatch.delenv("CHATLEDGER_NEW_ENCRYPTION_KEY", raising=False)
    assert "CHATLEDGER_NEW_ENCRYPTION_KEY is not set" in fails(1, "restore", folder, tmp_path / "rekeyed", "--rekey")
    assert not (tmp_path / "rekeyed").exists()
    new = Encryption.new_key("new")
    monkeypatch.setenv("CHATLEDGER_NEW_ENCRYPTION_KEY", new)
    assert "Restored and verified" in run("restore", folder, tmp_path / "rekeyed", "--rekey").output
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", new)
    assert "Encrypted with: new." in run("--location", tmp_path / "rekeyed", "doctor").output


@pytest.mark.guard
def test_backup_goes_on_when_its_last_event_was_erased(tmp_path: Path) -> None:
    """The restored ledger goes on with the folder that it came from, also when what the backup ended with is gone; no other ledger does."""
    with chatledger.open(tmp_path / "first") as ledger:
        ledger.create_chat("kept", "ada")
        ledger.create_chat("last", "ada")
        ledger.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", tmp_path / "second")
    with chatledger.open(tmp_path / "second") as ledger:
        ledger.delete_chat("last")
        ledger.wait_erased()
        ledger.backup(tmp_path / "backup")
    with chatledger.open(tmp_path / "other") as ledger:
        ledger.create_chat("kept", "ada")
        ledger.create_chat("last", "ada")
        ledger.delete_chat("last")
        ledger.wait_erased()
        with pytest.raises(ConfigurationError, match="another log"):
            ledger.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", tmp_path / "third")
    with chatledger.open(tmp_path / "third") as ledger:
        assert [chat.id for chat in ledger.list_chats()] == ["kept"]
