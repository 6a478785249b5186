"""Updates that are computed from what is stored: none is lost, none is written twice, whatever others write meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_world import together
from tests.support.ledger_world import Worker, count_up, internals, text
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Chat, Ledger
from chatledger.events import ChatUpdated

COUNT = 10_000 if IS_SOAK else 80
"""The updates of a test, by all writers together."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Ledger]:
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u", metadata={"n": 0})
        yield ledger


def counts(ledger: Ledger) -> list[Any]:
    """The values that the counter of the chat was set to, one after the other."""
    updates = [one.body.changes for one in ledger.history("c") if isinstance(one.body, ChatUpdated)]
    return [changes["metadata"]["n"] for changes in updates]


def test_changes_of_a_chat_that_was_changed_are_not_written(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where others write to other chats just then, for which the decision is asked once more on the same state."""
    ledger.create_chat("c", "u", metadata={"n": 0})
    ledger.create_chat("other", "u")
    store, seen = internals(ledger), list[int]()
    catch_up = store.projector.catch_up

    def end_of_a_busy_log(*least: float) -> int:
        if threading.current_thread() is threading.main_thread():  # and not what follows the log
            monkeypatch.undo()
            ledger.append("other", [text("x")])
        position: int = catch_up(*least)
        return position

    def overtaken(chat: Chat) -> dict[str, Any]:
        number: int = (chat.metadata or {})["n"]
        seen.append(number)
        if len(seen) == 1:
            ledger.update_chat("c", metadata={"n": 10})
            monkeypatch.setattr(store.projector, "catch_up", end_of_a_busy_log)
        return {"metadata": {"n": number + 1}}

    assert ledger.update_chat("c", updater=overtaken).metadata == {"n": 11}
    assert seen == [0, 10]
    assert counts(ledger) == [10, 11]


def test_a_chat_that_looks_the_same_again_is_another_one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """An updater runs again when two others took the chat to another value and back, within the same millisecond."""
    monkeypatch.setattr("chatledger.infra.store.group_commit.clock_ms", lambda: 1_800_000_000_000)
    ledger.create_chat("c", "u", metadata={"n": 0})
    seen: list[Chat] = []

    def overtaken(chat: Chat) -> dict[str, Any]:
        seen.append(chat)
        if len(seen) == 1:
            ledger.update_chat("c", metadata={"n": 1})
            ledger.update_chat("c", metadata={"n": 0})
        return {"metadata": {"n": 10 * len(seen)}}

    ledger.update_chat("c", updater=overtaken)
    assert seen[0] == seen[1]
    assert counts(ledger) == [1, 0, 20]


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_count_up(directory: Ledger, threads: int) -> None:
    """Each acknowledged update counts once, while others append to other chats."""
    is_over = threading.Event()

    def write(number: int) -> None:
        try:
            if number < threads:
                count_up(directory, "c", COUNT // threads)
                return
            directory.create_chat(f"other {number}", "u")
            while not is_over.is_set():
                directory.append(f"other {number}", [text("x")])
        finally:
            if number == 0:
                is_over.set()

    together(threads + 2, write)
    assert counts(directory) == list(range(1, COUNT + 1))


@pytest.mark.guard
def test_processes_count_up(directory: Ledger, tmp_path: Path) -> None:
    """The same of two processes, of which one appends to another chat too."""
    directory.create_chat("other", "u")
    with Worker(tmp_path / "data", durability="fast") as worker:
        worker.ready().send("count_up", "c", COUNT // 2)

        def write(number: int) -> None:
            if number:
                count_up(directory, "c", COUNT // 2)
                return
            for _ in range(COUNT):
                directory.append("other", [text("x")])

        together(2, write)
        assert worker.receive() == ["ok", COUNT // 2]
    directory.sync()
    assert counts(directory) == list(range(1, COUNT + 1))
