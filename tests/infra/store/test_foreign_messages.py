"""Foreign messages in a ledger's stream are reported and passed over; they stop one chat at most."""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.cli_world import run
from tests.support.foreign_world import STREAM, World, by_hand, of, worlds
from tests.support.jetstream_world import eventually

import chatledger
from chatledger import ChainIntegrityError, Ledger, admin, user
from chatledger.admin import Diagnosis
from chatledger.errors import QuarantinedError
from chatledger.infra.log.cipher import new_key
from chatledger.infra.log.nats.event_log import JetStreamLog
from chatledger.infra.log.nats.subjects import token

OURS = {"Cl-Topic": "chatledger.message_appended/2", "Cl-Version": "3"}

NOWHERE = {
    "no id": (f"{STREAM}.e.zzz", b"x", None),
    "several tokens": (f"{STREAM}.e.zzz.yyy", b"x", None),
    "no event": (f"{STREAM}.t.somebody", b"x", None),
    "nearly an id": (of("c") + "=", b"x", None),
    "empty": (f"{STREAM}.e.zzz", b"", None),
    "our headers": (f"{STREAM}.e.zzz", b"x", OURS),
    "of a hash": (f"{STREAM}.e.h" + "0" * 64, b"x", OURS),
}
HERE = {
    "garbage": (b"x", None),
    "empty": (b"", None),
    "other headers": (b"x", {"Cl-Topic": "\x07%", "Cl-Version": "many"}),
    "our headers": (b"x", OURS),
    "our headers, empty": (b"", OURS),
    "no version": (b"x", {"Cl-Topic": "chatledger.message_appended/2"}),
    "huge version": (b"x", {**OURS, "Cl-Version": "9" * 5000}),
    "negative version": (b"x", {**OURS, "Cl-Version": "-1"}),
    "later type": (b"x", {**OURS, "Cl-Topic": "chatledger.message_appended/99"}),
    "huge id": (b"x", {"Nats-Msg-Id": "x" * 30_000}),
    "headers of the server": (b"x", {"Nats-Sequence": "1", "Nats-Subject": of("d"), "Nats-Stream": "other"}),
    "like an encrypted one": (b"\xc1E\x01k" + b"x" * 60, OURS),
    "like a compressed one": (b"\xc1Z" + b"x" * 60, OURS),
    "like one with large data": (b"\xc1L" + b"x" * 60, OURS),
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A ledger with the chats `c` and `d`, of two events each."""
    for world in worlds(tmp_path):
        with world.open() as ledger:
            fill(ledger)
        yield world


def fill(ledger: Ledger) -> None:
    for chat_id in "cd":
        ledger.create_chat(chat_id, "ada")
        ledger.append(chat_id, [user(f"hello {chat_id}")])


def texts(ledger: Ledger, chat_id: str) -> list[str]:
    return [message.text for message in ledger.get_messages(chat_id)]


def check(ledger: Ledger, *, count: int, refused: str = "") -> None:
    """All but the refused chats is served, written and read; the history has so many events of chats and one more of each write."""
    for chat_id in "cd":
        if chat_id in refused:
            for ask in (
                lambda: ledger.get_messages(chat_id),  # noqa: B023 - called at once
                lambda: ledger.append(chat_id, [user("more")]),  # noqa: B023
                lambda: ledger.get_chat(chat_id),  # noqa: B023
                lambda: ledger.delete_chat(chat_id),  # noqa: B023
                lambda: ledger.as_of(2).get_messages(chat_id),  # noqa: B023
            ):
                with pytest.raises(QuarantinedError, match="not of it"):
                    ask()
            continue
        before = texts(ledger, chat_id)
        ledger.append(chat_id, [user("more")])
        count += 1
        assert texts(ledger, chat_id) == [*before, "more"]
    ledger.create_chat(f"new {ledger.position}", "ada")
    count += 1
    ledger.sync()
    history = [recorded.position for recorded in ledger.history()]
    assert [recorded.position for recorded in ledger.feed(0, follow=False)] == history
    assert len([recorded for recorded in ledger.history() if recorded.type != "chat_deleted"]) == count
    assert len(list(ledger.for_user("ada").history())) == count


@pytest.mark.matrix
@pytest.mark.parametrize("case", NOWHERE)
def test_a_message_of_no_chat(world: World, case: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and passed over: everything is served, from the old index, from a new one, and after a rebuild."""
    caplog.set_level(logging.WARNING)
    position = world.publish(*NOWHERE[case])
    with world.open() as ledger:
        check(ledger, count=4)
        ledger.rebuild()
        found = ledger.verify()
        assert [(one.position, one.chat_id) for one in found.foreign] == [(position, None)]
        assert found.event_count == 7
    with world.fresh() as ledger:
        check(ledger, count=7)

    assert f"position {position} of the log holds a message that is no event" in caplog.text


@pytest.mark.matrix
@pytest.mark.parametrize("case", HERE)
def test_a_message_on_the_subject_of_a_chat(world: World, case: str) -> None:
    """That chat is refused, and no other."""
    position = world.publish(of("c"), *HERE[case])
    with world.open() as ledger:
        check(ledger, count=4, refused="c")
        ledger.rebuild()
        assert [(one.position, one.chat_id) for one in ledger.verify().foreign] == [(position, "c")]
    with world.fresh() as ledger:
        check(ledger, count=6, refused="c")


@pytest.mark.parametrize(
    ("copied", "changed"),
    [(1, {}), (2, {}), (4, {}), (2, {"Cl-Version": "3"}), (2, {"Cl-Version": "9"})],
    ids=["first event", "last event", "of another chat", "wrong version", "far version"],
)
def test_a_copy_of_an_event(world: World, copied: int, changed: dict[str, str]) -> None:
    """An event that is published again is not taken for one of the chat."""
    world.copy(copied, of("c"), **changed)
    with world.open() as ledger:
        check(ledger, count=4, refused="c")
        ledger.verify()
    with world.fresh() as ledger:
        check(ledger, count=6, refused="c")


@pytest.mark.parametrize("kind", ["garbage", "copy"])
def test_the_past(world: World, kind: str) -> None:
    """What is asked about all chats at an earlier moment is answered for all of them, whichever is refused now."""
    with world.open() as ledger:
        ledger.append("c", [user("second c")])
        ledger.append("d", [user("second d")])
        if kind == "garbage":
            world.publish(of("c"))
        else:
            world.copy(2, of("c"))
        ledger.append("d", [user("third d")])
        then = ledger.as_of(4)
        assert {chat.id: chat.message_count for chat in then.list_chats()} == {"c": 1, "d": 1}
        assert len(then.search("hello")) == 2
        assert then.get_messages("d")[-1].text == "hello d"
        assert [recorded.position for recorded in then.history()] == [1, 2, 3, 4]


def test_a_message_where_no_chat_is_yet(world: World) -> None:
    """On the subject of a chat that does not exist, it keeps that id from being used, with an error that says so."""
    world.publish(of("new"))
    with world.open() as ledger:
        with pytest.raises(QuarantinedError, match="'new'"):
            ledger.create_chat("new", "ada")
        check(ledger, count=4)


def test_at_the_very_beginning(tmp_path: Path) -> None:
    """A message that comes before the first event is passed over, too."""
    for world in worlds(tmp_path):
        world.open().close()
        world.publish(f"{STREAM}.e.zzz")
        world.publish(of("x"))
        with world.open() as ledger:
            fill(ledger)
            check(ledger, count=4)
        with world.fresh() as ledger:
            check(ledger, count=7)


def test_while_others_are_at_work(world: World) -> None:
    """Writers, feeds and followers that are at work go on; the append that meets it is written once."""
    seen: list[int] = []

    def follow() -> None:
        for recorded in reader.feed(0):
            seen.append(recorded.position)  # noqa: PERF401 - they are looked at meanwhile

    with world.open() as writer, world.fresh() as reader:
        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(5):
            world.publish(f"{STREAM}.e.zzz")
            writer.append("d", [user(f"number {number}")])
        world.publish(of("c"))
        writer.append("d", [user("last")])
        with pytest.raises(QuarantinedError):
            writer.append("c", [user("no")])
        eventually(lambda: len(seen) == 10 or None)
        reader.sync()
        with pytest.raises(QuarantinedError):
            reader.get_messages("c")
        assert texts(reader, "d")[1:] == [*(f"number {number}" for number in range(5)), "last"]
        reader.close()
        thread.join(20)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["encrypted", "zstd"])
@pytest.mark.parametrize("case", [case for case in HERE if case != "huge id"])  # an id is stored once
def test_other_kinds_of_ledgers(tmp_path: Path, kind: str, case: str) -> None:
    """The same on ledgers that are encrypted or compressed."""
    if (kind, case) == ("encrypted", "like an encrypted one"):
        pytest.skip("it may be one of a key that was not given, which is not passed over")
    options = (
        {"encryption": chatledger.Encryption(new_key(), index_at_rest="plain")}
        if kind == "encrypted"
        else {"compression": "zstd"}
    )
    for world in worlds(tmp_path, **options):
        world.open().close()
        world.publish(f"{STREAM}.e.zzz", *HERE[case])
        with world.open() as ledger:
            fill(ledger)
            world.publish(of("c"), *HERE[case])
            world.publish(f"{STREAM}.e.zzz", *HERE[case])
        with world.fresh() as ledger:
            check(ledger, count=4, refused="c")
            assert len(ledger.verify().foreign) == 3


# What removes them


def kinds(found: Diagnosis) -> list[tuple[str, str]]:
    return [(one.severity, one.kind) for one in found.findings if one.kind == "foreign-message"]


def test_the_doctor_removes_them(world: World) -> None:
    """The doctor names them, and removes them while the ledger is in use; the chat is served again, everywhere."""
    with world.open() as ledger:
        world.publish(f"{STREAM}.e.zzz")
        world.publish(of("c"))
        ledger.append("d", [user("between")])
        world.copy(2, of("c"))
        check(ledger, count=5, refused="c")
        found = admin.diagnose(world.location, index=world.base / "index")
        assert kinds(found) == [
            ("error", "foreign-message"),
            ("error", "foreign-message"),
            ("warning", "foreign-message"),
        ]
        consequences = [one.what.rpartition(". ")[2] for one in found.findings if one.kind == "foreign-message"]
        assert sorted(consequences) == ["It is passed over", *["The chat is refused because of it"] * 2]

        done = admin.repair(world.location)
        assert (done.removed_count, done.released) == (3, ("c",))
        assert done.describe()[0].startswith("Removed 3 foreign messages from nats://")
        ledger.sync()
        check(ledger, count=7)
        ledger.rebuild()
        assert ledger.verify().foreign == ()
        assert admin.repair(world.location).removed_count == 0
    with world.fresh() as ledger:
        check(ledger, count=10)
    assert kinds(admin.diagnose(world.location, index=world.base / "index")) == []


def test_losses_are_found_afterwards(world: World) -> None:
    """What was removed excuses no lost event: neither in an index that saw it, nor in a new one."""
    world.publish(f"{STREAM}.e.zzz")
    world.publish(of("c"))
    with world.open() as ledger:
        ledger.append("d", [user("later")])
        admin.repair(world.location)
        ledger.sync()
        world.delete(4)
        with pytest.raises(ChainIntegrityError):
            list(ledger.history())
        with pytest.raises(ChainIntegrityError):
            ledger.rebuild()
    with pytest.raises(ChainIntegrityError):
        world.fresh().close()


@pytest.mark.parametrize("step", ["before the deletion", "in the middle of it"])
def test_a_removal_that_is_interrupted(world: World, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Doing it again completes it, and counts nothing twice."""

    class DeathError(Exception):
        pass

    remove = JetStreamLog.remove

    def die(log: JetStreamLog, positions: Sequence[int]) -> None:
        if step == "in the middle of it":
            remove(log, positions[:1])
        raise DeathError

    for _ in range(3):
        world.publish(of("c"))
    with world.open() as ledger:
        ledger.append("d", [user("later")])
        monkeypatch.setattr(JetStreamLog, "remove", die)
        with pytest.raises(DeathError):
            admin.repair(world.location)
        monkeypatch.undo()
        world.publish(f"{STREAM}.e.zzz")
        admin.repair(world.location)
        ledger.sync()
        check(ledger, count=5)
    with world.fresh() as ledger:
        assert ledger.verify().foreign == ()
        world.delete(4)
        with pytest.raises(ChainIntegrityError):
            ledger.rebuild()


@pytest.mark.soak
def test_backups(world: World, tmp_path: Path) -> None:
    """A backup is taken beside foreign messages; what is restored from it has the same events at the same positions."""
    with world.open() as ledger:
        world.publish(f"{STREAM}.e.zzz")
        world.publish(of("c"))
        ledger.append("d", [user("one")])
        world.copy(2, of("c"))
        ledger.backup(tmp_path / "backup")
        ledger.append("d", [user("two")])
        world.publish(f"{STREAM}.e.zzz")
        ledger.backup(tmp_path / "backup")
        admin.check_backup(tmp_path / "backup")
        history = [recorded.to_dict() for recorded in ledger.history()]
    admin.restore(tmp_path / "backup", tmp_path / "restored")

    with chatledger.open(tmp_path / "restored") as restored:
        assert [recorded.to_dict() for recorded in restored.history()] == history
        assert restored.verify().foreign_count == 3
        assert texts(restored, "c") == ["hello c"]
        restored.append("c", [user("goes on")])
    admin.repair(tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as restored:
        assert restored.verify().foreign_count == 0
        assert texts(restored, "c") == ["hello c", "goes on"]


def test_the_command_line(world: World) -> None:
    """`doctor` and `verify` say it, and `doctor --repair` removes it."""
    world.publish(of("c"))
    world.open().close()
    found = run("doctor", at=cast("Path", world.location))
    assert found.exit_code == 1
    assert "foreign-message" in found.output or "no event of chatledger" in found.output
    said = run("verify", at=cast("Path", world.location))
    assert said.exit_code == 0
    assert "no event of chatledger, on the subject of chat 'c'" in said.output.replace("\n", " ")

    assert "Removed 1 foreign message" in run("doctor", "--repair", at=cast("Path", world.location)).output
    assert run("doctor", at=cast("Path", world.location)).exit_code == 0


# Other streams and logs


def test_the_positions_of_feeds(world: World) -> None:
    """What others publish into the stream of the positions of feeds keeps no feed from being read."""
    with world.open() as ledger:
        assert len(list(ledger.feed(name="mine", follow=False))) == 4
        world.publish(f"$KV.{STREAM}-feeds.zzz")
        world.publish(f"$KV.{STREAM}-feeds.0/1/other", b"\xff")
        assert [info.name for info in ledger.feeds()] == ["mine"]
        ledger.append("d", [user("more")])
        assert len(list(ledger.feed(name="mine", follow=False))) == 1
        assert len(list(ledger.feed(name="new", follow=False))) == 5
        ledger.backup(world.base / "backup")


@pytest.mark.soak
def test_large_data(world: World) -> None:
    """What others publish into the stream of large data harms nothing."""
    with world.open() as ledger:
        ledger.append("d", [user("large " * 100_000)])
        world.publish(f"{STREAM}-blobs.b.zzz")
        world.publish(f"{STREAM}-blobs.b." + "0" * 64)
        ledger.append("d", [user("other " * 100_000)])
        ledger.rebuild()
        ledger.verify()
        assert ledger.delete_chat("d")
    with world.fresh() as ledger:
        assert texts(ledger, "c") == ["hello c"]
        ledger.append("c", [user("large " * 100_000)])
        assert len(texts(ledger, "c")) == 2


@pytest.mark.soak
def test_a_directory(tmp_path: Path) -> None:
    """The same in a directory, whose doctor reads the files: it makes a log without them."""
    path = tmp_path / "data"
    with chatledger.open(path) as ledger:
        fill(ledger)

    async def publish(js: Any) -> None:
        await js.publish("chatledger.e.zzz", b"x")
        await js.publish(f"chatledger.e.{token('c')}", b"x")
        await js.publish("chatledger.t.zzz", b"x")

    by_hand(path, publish)
    with chatledger.open(path) as ledger:
        check(ledger, count=4, refused="c")
    assert len(kinds(admin.diagnose(path))) == 3
    assert admin.repair(path).removed_count == 3
    with chatledger.open(path) as ledger:
        check(ledger, count=6)
        assert ledger.verify().foreign_count == 0
    assert admin.diagnose(path).is_healthy


def test_a_row_of_a_database(tmp_path: Path) -> None:
    """A row that others put into the table of an SQLite log."""
    place = f"sqlite:///{tmp_path / 'file.db'}"
    with chatledger.open(place) as ledger:
        fill(ledger)
    with contextlib.closing(sqlite3.connect(tmp_path / "file.db")) as database, database:
        (table,) = next(
            row
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "stored_events" in row[0] or row[0].endswith("_events")
        )
        for chat_id, version in (("zzz", 1), ("c", 3)):
            database.execute(
                f"INSERT INTO {table} (originator_id, originator_version, topic, state) VALUES (?, ?, 'x', x'00')",
                (chat_id, version),
            )
    with chatledger.open(place) as ledger:
        check(ledger, count=4, refused="c")
        ledger.rebuild()
        assert ledger.verify().foreign_count == 2
    admin.repair(place)
    with chatledger.open(place) as ledger:
        check(ledger, count=6)
        assert ledger.verify().foreign_count == 0
