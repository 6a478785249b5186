"""What somebody else publishes into a ledger's stream is reported and passed over; it stops one chat at most."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.infra.foreign_world import STREAM, World, of, worlds
from tests.infra.test_jetstream_world import eventually

import chatledger
from chatledger import Ledger, QuarantinedError, user
from chatledger.infra.log.keys import new_key

OURS = {"Cl-Topic": "chatledger.message_appended/1", "Cl-Version": "3"}

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
    "no version": (b"x", {"Cl-Topic": "chatledger.message_appended/1"}),
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
    """All but the refused chats is served, written and read; the history has so many events and one more of each write."""
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
    assert len(history) == count
    assert [recorded.position for recorded in ledger.feed(0, follow=False)] == history
    assert len(list(ledger.for_user("ada").history())) == count


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
            seen.append(recorded.position)

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


@pytest.mark.parametrize("kind", ["encrypted", "zstd"])
@pytest.mark.parametrize("case", [case for case in HERE if case != "huge id"])  # an id is stored once
def test_other_kinds_of_ledgers(tmp_path: Path, kind: str, case: str) -> None:
    """The same on ledgers that are encrypted or compressed."""
    options = (
        {"encryption": chatledger.Encryption(new_key())} if kind == "encrypted" else {"compression": "zstd"}
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
