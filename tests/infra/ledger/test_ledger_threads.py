"""Threads, forks, and the end of a ledger."""

# pyright: reportPrivateUsage=false

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent
from tests.contracts.store_world import together
from tests.support.ledger_world import check_chat, ids, is_owner, store_behind, text, texts

import chatledger
from chatledger import ANY, Ledger, LedgerClosedError
from chatledger.errors import MessageConflictError
from chatledger.infra.log.nats.errors import ConnectionLostError

THREADS, TURNS = 8, 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        yield ledger


@pytest.mark.soak
def test_eight_threads_on_one_chat(ledger: Ledger) -> None:
    """Every message is there once, and those of a thread in their order."""
    together(THREADS, lambda number: [ledger.append("c", [text(f"{number} {turn}")]) for turn in range(TURNS)])
    found = texts(ledger, "c")

    assert len(found) == THREADS * TURNS
    for number in range(THREADS):
        assert [one for one in found if one.split()[0] == str(number)] == [f"{number} {turn}" for turn in range(TURNS)]
    check_chat(ledger, "c")


@pytest.mark.soak
def test_eight_threads_on_many_chats(ledger: Ledger) -> None:
    """Threads on chats of their own do not disturb each other; readers among them never see a broken chat."""

    def work(number: int) -> None:
        chat = f"chat {number}"
        ledger.create_chat(chat, "u")
        for turn in range(TURNS):
            (message,) = ledger.append(chat, [text(str(turn))])
            assert ledger.get_messages(chat)[-1] == message
            if turn % 10 == 5:
                ledger.fork(chat, message.id)

    together(THREADS, work)

    for number in range(THREADS):
        assert texts(ledger, f"chat {number}") == [str(turn) for turn in range(TURNS)]
        check_chat(ledger, f"chat {number}")


@pytest.mark.soak
def test_all_kinds_of_commands_at_once(ledger: Ledger) -> None:
    """Whatever threads do at once to one chat, all promises hold and nothing hangs."""
    ledger.append("c", [text("root", id="root")])

    def work(number: int) -> None:
        for turn in range(10):
            (message,) = ledger.append("c", [text(f"{number} {turn}")])
            ledger.fork("c", message.id, activate=turn % 2 == 0)
            ledger.set_active_branch("c", "main")
            ledger.set_checkpoint("c", f"c{turn % 3}", message.id)
            ledger.delete_checkpoint("c", f"c{number % 3}")
            ledger.move_head("c", "main-v2", "root", expected=ANY) if ledger.get_branch("c", "main-v2") else None
            ledger.add_messages("c", [text("side", parent_id="root")])
            ledger.update_chat("c", title=f"{number} {turn}")
            ledger.list_branches("c")
            ledger.list_chats(user_id="u")

    together(4, work)
    check_chat(ledger, "c")


@pytest.mark.soak
def test_rebuilds_among_writers(ledger: Ledger) -> None:
    """Writers and readers do not notice rebuilds: nothing is lost, and every write is read at once."""
    is_done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(10):
                ledger.rebuild()
            is_done.set()
            return
        turn = 0
        while not is_done.is_set() or turn < 10:
            (message,) = ledger.append("c", [text(f"{number} {turn}")], branch="main")
            assert ledger.get_message(message.id) == message
            turn += 1

    together(4, work)
    check_chat(ledger, "c")


def test_the_same_new_id_in_one_chat(ledger: Ledger) -> None:
    """Of threads that add different messages under one id one wins; the others are told."""
    for turn in range(10):

        def add(number: int, turn: int = turn) -> bool:
            try:
                ledger.add_messages("c", [text(str(number), id=f"m{turn}")])
            except MessageConflictError:
                return False
            return True

        assert together(3, add).count(True) == 1
    check_chat(ledger, "c")


CALLS: dict[str, Callable[[Ledger], Any]] = {
    "create_chat": lambda ledger: ledger.create_chat("x", "u"),
    "upsert_chat": lambda ledger: ledger.upsert_chat("x", "u"),
    "get_chat": lambda ledger: ledger.get_chat("c"),
    "update_chat": lambda ledger: ledger.update_chat("c", title="t"),
    "updater": lambda ledger: ledger.update_chat("c", updater=lambda _: {"title": "t"}),
    "list_chats": lambda ledger: ledger.list_chats(),
    "delete_chat": lambda ledger: ledger.delete_chat("c"),
    "append": lambda ledger: ledger.append("c", [text("x")]),
    "add_messages": lambda ledger: ledger.add_messages("c", [text("x")]),
    "get_message": lambda ledger: ledger.get_message("m"),
    "get_messages": lambda ledger: ledger.get_messages("c"),
    "get_chain": lambda ledger: ledger.get_chain("m"),
    "has_children": lambda ledger: ledger.has_children("m"),
    "children": lambda ledger: ledger.children("m"),
    "siblings": lambda ledger: ledger.siblings("m"),
    "common_ancestor": lambda ledger: ledger.common_ancestor("m", "m"),
    "merge_base": lambda ledger: ledger.merge_base("m", "m"),
    "diff": lambda ledger: ledger.diff("m", "m"),
    "create_branch": lambda ledger: ledger.create_branch("c", "b", None),
    "fork": lambda ledger: ledger.fork("c", "m"),
    "get_branch": lambda ledger: ledger.get_branch("c", "main"),
    "get_active_branch": lambda ledger: ledger.get_active_branch("c"),
    "set_active_branch": lambda ledger: ledger.set_active_branch("c", "main"),
    "move_head": lambda ledger: ledger.move_head("c", "main", None, expected=ANY),
    "list_branches": lambda ledger: ledger.list_branches("c"),
    "set_checkpoint": lambda ledger: ledger.set_checkpoint("c", "k", "m"),
    "get_checkpoint": lambda ledger: ledger.get_checkpoint("c", "k"),
    "list_checkpoints": lambda ledger: ledger.list_checkpoints("c"),
    "delete_checkpoint": lambda ledger: ledger.delete_checkpoint("c", "k"),
    "graph": lambda ledger: ledger.graph("c"),
    "history": lambda ledger: list(ledger.history()),
    "history of a chat": lambda ledger: list(ledger.history("c")),
    "feed": lambda ledger: list(ledger.feed(0)),
    "position": lambda ledger: ledger.position,
    "last_position": lambda ledger: ledger.last_position(),
    "wait": lambda ledger: ledger.wait(0),
    "sync": lambda ledger: ledger.sync(),
    "rebuild": lambda ledger: ledger.rebuild(),
    "export_chat": lambda ledger: ledger.export_chat("c"),
    "search": lambda ledger: ledger.search("cat"),
}


@pytest.mark.parametrize("location", ["path", "memory:"])
def test_every_method_of_a_closed_ledger(path: Path, location: str) -> None:
    """After `close` each method raises `LedgerClosedError`; closing again does nothing."""
    ledger = chatledger.open(path if location == "path" else location)
    ledger.close()
    ledger.close()
    for name, call in CALLS.items():
        with pytest.raises(LedgerClosedError):
            print(name, call(ledger))
    assert "closed" in repr(ledger)


def test_every_method_on_a_closed_handle(ledger: Ledger, path: Path) -> None:
    """A closed handle stays closed while another one on the same place is open."""
    second = chatledger.open(path, durability="fast")
    second.close()
    for name, call in CALLS.items():
        with pytest.raises(LedgerClosedError):
            print(name, call(second))
    assert ledger.get_chat("c") is not None


@pytest.mark.guard
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of every fork with threads
def test_a_forked_child_is_told(ledger: Ledger, path: Path) -> None:
    """In a forked child each method raises `LedgerClosedError`; the child can open anew, and the parent goes on."""
    ledger.append("c", [text("before", id="m")])
    child = os.fork()
    if not child:
        try:
            for call in CALLS.values():
                with pytest.raises(LedgerClosedError):
                    call(ledger)
            ledger.close()
            with chatledger.open(path, durability="fast") as own:
                own.append("c", [text("child")])
                assert not is_owner(own)
        except BaseException:  # noqa: BLE001 - a child of a test must not run the other tests
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    ledger.append("c", [text("parent")])
    assert texts(ledger, "c") == ["before", "child", "parent"]


def test_closing_while_others_work(path: Path) -> None:
    """Threads that are at work when the ledger is closed get a clear error; what was acknowledged is there afterwards."""
    ledger = chatledger.open(path, durability="fast")
    ledger.create_chat("c", "u")
    acknowledged: list[str] = []
    begun = threading.Barrier(5)

    def work(number: int) -> None:
        begun.wait()
        if not number:
            ledger.close()
            return
        try:
            while True:
                acknowledged.extend(ids(ledger.append("c", [text("x")])))
        except (LedgerClosedError, chatledger.LogUnavailableError):
            return

    together(5, work)
    with chatledger.open(path, durability="fast") as again:
        assert set(acknowledged) <= set(ids(again.get_messages("c")))
        check_chat(again, "c")


def test_an_append_that_closing_cancelled(path: Path) -> None:
    """Its outcome is unknown, and that is what the caller is told."""
    with chatledger.open(path, durability="fast") as ledger:
        log: Any = store_behind(ledger).log
        appends = log.begin_appends()
        appends.finish()
        message = log._stream_recorder.records.message(StoredEvent("c", 1, "t", b""), "id")
        message.expected = 0
        log._client.close()
        outcome = appends._outcome(("c", (), 0), [message], ConnectionLostError())

    assert isinstance(outcome, chatledger.LogUnavailableError)
    assert "unknown" in str(outcome)


def test_no_threads_are_left_behind(path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with chatledger.open(path, durability="fast") as ledger:
            ledger.upsert_chat("c", "u")
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("chatledger")]

    assert left == []
