"""The doctor: real damage on real directories, named without changing a byte; and the repair of it."""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.backup_world import block, changed, content, fill, reopened, word
from tests.support.block_world import read_blocks
from tests.support.cli_world import run
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import ConfigurationError, Encryption, admin, user
from chatledger.admin import Diagnosis
from chatledger.errors import LedgerLockedError, LogRegressedError, QuarantinedError
from chatledger.infra.admin.doctor.removing import DOCTOR, LOST
from chatledger.infra.log.nats_server.blocks import BlockRecord, DamagedBytes, DeletedRecord, read_frames
from chatledger.infra.store.opening import STREAM


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three chats, one of them deleted and erased, closed cleanly."""
    path = tmp_path_factory.mktemp("data") / "data"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        fill(ledger)
        ledger.delete_chat("b")
        ledger.append("c", [user("the end of c")])
        ledger.update_chat("a", title="the newest title")
    return path


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy of it for a test."""
    return shutil.copytree(filled, tmp_path / "data")


def kinds(found: Diagnosis) -> set[str]:
    return {finding.kind for finding in found.findings if finding.severity != "note"}


def diagnosed(data: Path, **options: Any) -> Diagnosis:
    """Diagnose; it changes no file of the log."""
    log = content(data / "log")
    found = admin.diagnose(data, **options)
    assert content(data / "log") == log
    return found


def flip(file: Path, text: bytes, *, last: bool = False) -> None:
    """Flip two bits of a text in a file: one would be corrected."""
    with changed(file) as raw:
        raw[(raw.rindex if last else raw.index)(text) + 2] ^= 6


# Diagnosis


def test_a_healthy_directory(data: Path) -> None:
    """Nothing is found, and what was read is counted."""
    found = diagnosed(data)

    assert (found.findings, found.is_healthy) == ((), True)
    assert (found.event_count, found.stream_count, found.position) == (17, 3, 24)


def test_the_files_say_what_the_server_says(data: Path) -> None:
    """Read from its blocks, the log has the records that the server gives, and none that was erased."""
    with chatledger.open(data) as ledger:
        log = store_behind(ledger).log
        served = {record.id: record.state for record in log.stored(0)}
    entries = list(read_blocks(data / "log" / "jetstream" / "$G" / "streams" / STREAM, STREAM))
    gone = {entry.position for entry in entries if isinstance(entry, DeletedRecord)}
    there = {entry.position: entry.payload for entry in entries if isinstance(entry, BlockRecord)}

    assert {position: there[position] for position in there.keys() - gone} == served
    assert not [entry for entry in entries if isinstance(entry, DamagedBytes)]


def damage_payload(data: Path) -> None:
    flip(block(data), word("a", 1).encode())


def damage_length(data: Path) -> None:
    with changed(block(data)) as raw:
        raw[raw.index(b"chatledger.e.bYw") - 21] ^= 0x30


def damage_end(data: Path) -> None:
    with changed(block(data)) as raw:
        del raw[raw.index(word("c", 1).encode()) :]


def damage_by_zeros(data: Path) -> None:
    with changed(block(data)) as raw:
        start = raw.index(word("c", 0).encode())
        raw[start : start + 600] = bytes(600)


def damage_all(data: Path) -> None:
    for file in data.glob("log/jetstream/$G/streams/chatledger/msgs/*"):
        file.unlink()


DAMAGES: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "payload": (damage_payload, {"chain-broken", "events-lost"}),
    "headers": (lambda data: flip(block(data), b"Cl-Version: 3"), {"chain-broken", "events-lost"}),
    "subject": (lambda data: flip(block(data), b"chatledger.e.bYw"), {"file-damaged"}),
    "length": (damage_length, {"file-damaged"}),
    "zeros": (damage_by_zeros, {"file-damaged", "chain-broken", "events-lost"}),
    "end": (damage_end, {"file-damaged", "log-regressed", "chat-differs"}),
    "all": (damage_all, {"log-regressed", "chat-differs"}),
    "last": (
        lambda data: flip(block(data), b"the newest title", last=True),
        {"file-damaged", "chain-broken", "position-reused"},
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(data: Path, name: str) -> None:
    """Flipped bits, cut and deleted files are found without a server, which would cut more; the remedy is there."""
    damage, expected = DAMAGES[name]
    damage(data)
    found = diagnosed(data)

    assert expected <= kinds(found)
    assert not found.is_healthy
    assert all("--repair" in finding.remedy for finding in found.findings if finding.severity == "error")


def test_what_follows_damage_is_found_again(data: Path) -> None:
    """A server drops the rest of a damaged block; read from the file, only the damaged records are missing."""
    damage_length(data)
    found = diagnosed(data)
    assert found.event_count >= 8
    assert [finding.where for finding in found.findings if finding.kind == "file-damaged"] == [str(block(data))]


def test_the_rest_of_a_block_was_dropped_already(data: Path) -> None:
    """As a server does that meets damage: the index and the witness have seen more, and the ledger does not open."""
    raw = block(data).read_bytes()
    end = raw.index(word("a", 1).encode())
    spans, _ = read_frames(raw)
    block(data).write_bytes(raw[: next(span.offset for span in spans if span.offset + span.length > end)])
    with pytest.raises(LogRegressedError):
        chatledger.open(data).close()
    assert {"log-regressed", "chat-differs"} <= kinds(diagnosed(data))


def test_no_index_and_old_ones(data: Path, tmp_path: Path) -> None:
    """An index that is missing is a note; one of another log, or damaged, a warning; the log is read all the same."""
    shutil.move(data / "index", tmp_path / "index")
    found = diagnosed(data)
    assert ([finding.kind for finding in found.findings], found.is_healthy) == (["index-missing"], True)
    with chatledger.open(tmp_path / "other") as ledger:
        fill(ledger)
    shutil.copytree(tmp_path / "other" / "index", data / "index")
    assert kinds(diagnosed(data)) == {"index-foreign"}
    next((data / "index").rglob("data.mdb")).write_bytes(b"not LMDB" * 4096)
    assert kinds(diagnosed(data)) == {"index-damaged"}
    (data / "index" / "CURRENT").write_text("77\n")
    assert kinds(diagnosed(data)) == {"index-damaged"}


def test_an_unclean_index_is_a_note(data: Path) -> None:
    """The machine went down: the index is built anew by itself."""
    next((data / "index").rglob("in-use")).write_text("another boot")
    found = diagnosed(data)
    assert ([finding.kind for finding in found.findings], found.is_healthy) == (["index-unclean"], True)


@pytest.mark.soak
def test_a_live_ledger(data: Path) -> None:
    """Beside a ledger that is open, the log is read through its server; the owner is named."""
    with chatledger.open(data) as ledger:
        ledger.append("a", [user("now")])
        found = admin.diagnose(data)
        assert found.is_healthy
        assert found.event_count == 18
        assert {finding.kind for finding in found.findings} == {"in-use", "index-in-use"}
        assert any(f"process {os.getpid()} " in finding.what for finding in found.findings)
        result = subprocess.run(
            [sys.executable, "-m", "chatledger", "--location", str(data), "doctor"], capture_output=True, check=False
        )
        assert (result.returncode, b"Healthy" in result.stdout) == (0, True)


def test_a_lock_without_a_server(data: Path) -> None:
    """Somebody holds the lock and answers nobody."""
    with (data / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert kinds(diagnosed(data)) == {"locked"}


@pytest.mark.soak
def test_an_unclean_stop(data: Path) -> None:
    """Kill -9 of the owner leaves traces, which are a note."""
    code = (
        "import os, sys, chatledger; l = chatledger.open(sys.argv[1]); l.create_chat('z', 'u'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(data)], check=False)
    lock = (data / "lock").open("r+")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # its server ends a moment later
    found = diagnosed(data)
    assert found.is_healthy
    assert "unclean-stop" in {finding.kind for finding in found.findings}
    assert found.event_count == 18


def test_permissions_and_format(data: Path) -> None:
    """A directory that others may enter, a format that is not ours, and places where nothing is."""
    data.chmod(0o755)
    assert kinds(diagnosed(data)) == {"readable-by-others"}
    data.chmod(0o700)
    (data / "format.json").write_text('{"format": 99}')
    assert kinds(diagnosed(data)) == {"format-newer"}
    (data / "format.json").write_text('{"format": 3}')
    assert kinds(diagnosed(data)) == {"format-older"}
    (data / "format.json").write_text("{")
    assert kinds(diagnosed(data)) == {"format-damaged"}
    (data / "format.json").unlink()
    assert kinds(diagnosed(data)) == {"not-a-ledger"}
    for place in (str(data / "nowhere"), "memory:", f"sqlite:///{data}/none.db"):
        with pytest.raises(ConfigurationError):
            admin.diagnose(place)


def usage_with(free: int, path: Path) -> SimpleNamespace:
    assert path.is_dir()
    return SimpleNamespace(free=free)


def test_a_full_disk(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little room is a warning, none an error."""
    for free, severity in ((500 * 1024**2, "warning"), (1024, "error")):
        monkeypatch.setattr("shutil.disk_usage", partial(usage_with, free))
        (finding,) = admin.diagnose(data).findings
        assert (finding.kind, finding.severity) == ("disk-full", severity)


def test_a_lost_log(data: Path) -> None:
    """The folder of the log is gone, and an index is there."""
    shutil.rmtree(data / "log")
    assert {finding.kind for finding in admin.diagnose(data).findings} == {"log-missing"}


def test_a_feed_that_is_ahead(data: Path, tmp_path: Path) -> None:
    """A named feed that handled what the log does not have any more is named."""
    shutil.copytree(data / "log", tmp_path / "older")
    with chatledger.open(data) as ledger:
        ledger.append("a", [user("handled")])
        feed = ledger.feed(name="mailer", follow=False)
        assert list(feed)
        feed.close()
    feeds = tmp_path / "feeds"
    shutil.copytree(data / "log" / "jetstream" / "$G" / "streams" / f"KV_{STREAM}-feeds", feeds)
    shutil.rmtree(data / "log")
    shutil.copytree(tmp_path / "older", data / "log")
    shutil.copytree(feeds, data / "log" / "jetstream" / "$G" / "streams" / f"KV_{STREAM}-feeds", dirs_exist_ok=True)
    assert {"feed-ahead", "log-regressed"} <= kinds(diagnosed(data))


def test_other_places(tmp_path: Path) -> None:
    """A log in a database is read through the library."""
    location = f"sqlite:///{tmp_path}/a.db"
    with chatledger.open(location) as ledger:
        fill(ledger)
    assert admin.diagnose(location).is_healthy
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM stored_events WHERE rowid = 3")
    connection.close()
    assert "chain-broken" in kinds(admin.diagnose(location))
    found = admin.diagnose("nats://127.0.0.1:1/none", timeout_s=0.3)
    assert kinds(found) == {"log-refused"}


@pytest.mark.guard
def test_an_encrypted_log(tmp_path: Path) -> None:
    """Its key is needed to look at chains; damage is named with it."""
    key = Encryption(Encryption.new_key())
    with chatledger.open(tmp_path / "data", encryption=key) as ledger:
        fill(ledger)
    with pytest.raises(ConfigurationError, match="encrypted"):
        admin.diagnose(tmp_path / "data")
    assert diagnosed(tmp_path / "data", encryption=key).is_healthy
    with changed(block(tmp_path / "data")) as raw:
        raw[len(raw) // 2] ^= 1
    assert kinds(diagnosed(tmp_path / "data", encryption=key)) == {"bit-flipped"}
    with changed(block(tmp_path / "data")) as raw:
        raw[len(raw) // 2] ^= 2
    assert kinds(diagnosed(tmp_path / "data", encryption=key)) & {"event-unreadable", "file-damaged", "chain-broken"}


def test_the_command(data: Path) -> None:
    """Exit code 0 when healthy, 1 with findings; JSON for programs."""
    result = run("--location", str(data), "doctor")
    assert (result.exit_code, "Healthy" in result.stdout) == (0, True)
    damage_payload(data)
    result = run("--location", str(data), "doctor", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"]) == (1, False)
    assert {finding["severity"] for finding in found["findings"]} == {"error"}
    result = run("--location", str(data), "doctor")
    assert (result.exit_code, "chat 'a'" in result.stdout) == (1, True)
    assert run("--location", str(data), "doctor", "--backup", "x").exit_code == 2


# Repair


def test_nothing_to_repair(data: Path) -> None:
    """A sound directory stays as it is."""
    before = content(data / "log")
    done = admin.repair(data)
    assert (done.kept_as, done.event_count) == (None, 17)
    assert content(data / "log") == before
    assert sorted(path.name for path in data.parent.iterdir()) == ["data"]


@pytest.mark.soak
@pytest.mark.parametrize("name", DAMAGES)
def test_repair_from_the_index(data: Path, name: str) -> None:
    """
    Chats say what they said; the rest of the log keeps its positions; the history says who wrote anew, and why.

    The damaged directory is kept as it was.
    """
    before = reopened(data)
    DAMAGES[name][0](data)
    damaged = content(data / "log")
    done = admin.repair(data)
    after = reopened(data)

    assert done.kept_as is not None
    assert content(Path(done.kept_as) / "log") == damaged
    assert [message_facts(graph) for graph in by_id(after)] == [message_facts(graph) for graph in by_id(before)]
    assert titles(after) == titles(before) == {"a": "the newest title", "c": "about c"}
    known = {event["event_id"]: event for event in before["history"]}
    kept = [event for event in after["history"] if event["event_id"] in known]
    assert kept == [known[event["event_id"]] for event in kept]
    assert len(kept) == done.event_count
    new = [event for event in after["history"] if event["event_id"] not in known]
    assert new
    assert {event["actor"] for event in new} == {DOCTOR}
    assert {event["correlation_id"] for event in new} == {done.correlation_id}
    assert all(event["position"] > before["position"] for event in new)
    assert new[0]["chat_id"].startswith(LOST)
    assert admin.diagnose(data).is_healthy


@pytest.mark.soak
@pytest.mark.parametrize("name", DAMAGES)
def test_repair_from_a_backup(data: Path, tmp_path: Path, name: str) -> None:
    """With a backup that has everything, the log is what it was: every event at its position, nothing added."""
    with chatledger.open(data) as ledger:
        ledger.backup(tmp_path / "backup")
    before = reopened(data)
    DAMAGES[name][0](data)
    done = admin.repair(data, backup=tmp_path / "backup")

    assert (done.lost_count, done.recreated, done.cut) == (0, (), ())
    assert done.from_backup > 0
    assert reopened(data) == before


@pytest.mark.soak
def test_repair_from_an_older_backup_and_the_index(data: Path, tmp_path: Path) -> None:
    """The backup gives the history that it has, the index what came after it."""
    with chatledger.open(data) as ledger:
        ledger.backup(tmp_path / "backup")
        ledger.append("a", [user("only the index has this")])
        ledger.create_branch("a", "side", ledger.get_messages("a")[0].id, activate=True)
        ledger.set_checkpoint("a", "here", ledger.get_messages("a")[0].id)
    before = reopened(data)
    damage_all(data)
    done = admin.repair(data, backup=tmp_path / "backup")

    assert (done.event_count, done.lost_count, done.recreated) == (17, 3, ("a",))
    after = reopened(data)
    assert [message_facts(graph) for graph in by_id(after)] == [message_facts(graph) for graph in by_id(before)]
    assert after["history"][:17] == before["history"][:17]


@pytest.mark.soak
def test_without_index_and_backup(data: Path) -> None:
    """A chat with a hole is refused until it is given up, with what is behind the hole; the other chats are whole."""
    before = reopened(data)
    damage_payload(data)
    shutil.rmtree(data / "index")
    done = admin.repair(data)

    assert (done.cut, done.recreated) == (("a",), ())
    with chatledger.open(data) as ledger, pytest.raises(QuarantinedError):
        ledger.get_messages("a")
    admin.give_up(data, "a")
    after = reopened(data)
    assert by_id(after)[1] == by_id(before)[1]
    texts = [node.content for node in by_id(before)[0].nodes]
    assert [node.content for node in by_id(after)[0].nodes if node.role != "lost"] == [texts[0], *texts[2:]]
    assert [branch.name for branch in by_id(after)[0].branches] == [branch.name for branch in by_id(before)[0].branches]
    assert by_id(after)[0].checkpoints == by_id(before)[0].checkpoints


def test_what_was_deleted_stays_deleted(data: Path) -> None:
    """A chat that is erased does not come back by a repair."""
    damage_by_zeros(data)
    admin.repair(data)
    assert b"word-b-" not in content(data)
    with chatledger.open(data) as ledger:
        assert ledger.get_chat("b") is None


@pytest.mark.soak
def test_an_interrupted_repair_begins_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that dies before the exchange leaves the damaged directory where it was."""
    before = reopened(data)
    damage_payload(data)

    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("chatledger.infra.admin.doctor.repairing.put_in_place", die)
        with pytest.raises(KilledError):
            admin.repair(data)
    assert "leftover" in {finding.kind for finding in admin.diagnose(data).findings}
    admin.repair(data)
    after = reopened(data)
    assert [message_facts(graph) for graph in by_id(after)] == [message_facts(graph) for graph in by_id(before)]
    assert not (data.parent / "data.repairing").exists()


def test_what_can_not_be_repaired(data: Path, tmp_path: Path) -> None:
    """A ledger that is open, another place, the backup of another log."""
    with chatledger.open(data), pytest.raises(LedgerLockedError, match="close it"):
        admin.repair(data)
    with pytest.raises(ConfigurationError, match="there is no ledger"):
        admin.repair(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(ConfigurationError, match="only directories"):
        admin.repair("memory:")
    assert not (tmp_path / "a.db").exists()
    with chatledger.open("memory:") as other:
        fill(other)
        other.backup(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="another log"):
        admin.repair(data, backup=tmp_path / "other")
    with pytest.raises(ConfigurationError):
        admin.repair(tmp_path / "other")


@pytest.mark.guard
def test_the_repair_command(data: Path) -> None:
    """`chatledger doctor --repair` says where the damaged directory is, and what was brought back."""
    damage_payload(data)
    result = run("--location", str(data), "doctor", "--repair")
    assert (result.exit_code, "data.damaged-" in result.stdout, "chat 'a'" in result.stdout) == (0, True, True)
    result = run("--location", str(data), "doctor", "--repair", "--json")
    assert json.loads(result.stdout)["kept_as"] is None


def by_id(facts: dict[str, Any]) -> list[Any]:
    return sorted(facts["graphs"], key=lambda graph: graph.chat_id)


def titles(facts: dict[str, Any]) -> dict[str, str]:
    return {chat.id: chat.title for chat in facts["chats"]}


def message_facts(graph: Any) -> Any:
    """All of a graph; branches in no order."""
    return (
        graph.chat_id,
        sorted((node.id, node.parent_id, node.role, node.content, node.created_at) for node in graph.nodes),
        sorted((branch.name, branch.head_message_id, branch.is_active) for branch in graph.branches),
        sorted((checkpoint.name, checkpoint.message_id) for checkpoint in graph.checkpoints),
    )
