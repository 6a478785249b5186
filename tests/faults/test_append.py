"""
Faults inside one append: whatever dies at whichever step, what was acknowledged is there once, and a retry adds nothing.

The steps are the places where an append touches something outside: before and after the publish, before and inside the
index's transaction. The n-th of them dies for all n.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.faults.deaths import kill_server
from tests.support.files_in_clear import files_with
from tests.support.ledger_world import check_chat, ids, internals, lagging, length, text

import chatledger
from chatledger import ChatledgerError, Ledger, NewMessage
from chatledger.infra.log.nats.errors import ConnectionLostError
from chatledger.infra.store.group_commit import Command
from chatledger.projections import index as index_module
from chatledger.projections.chat.writer import ChatWriter


class DeathError(Exception):
    """Stands for the end of the process at that point."""


class Fault:
    """Lets the n-th passage through some steps die, or lets something happen there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.count = 0
        self.at: int | None = None
        self.action: Callable[[], None] = self._die

    def _die(self) -> None:
        raise DeathError

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.action()

    def around(self, owner: Any, name: str, *, before: bool = True, after: bool = True) -> None:
        original = getattr(owner, name)

        def faulty(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.step()
            answer = original(*args, **kwargs)
            if after:
                self.step()
            return answer

        self._patch.setattr(owner, name, faulty)

    def arm(self, at: int | None) -> None:
        self.count, self.at = 0, at


STEPS = 12


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(monkeypatch)


@pytest.fixture(params=["memory:", "path", "sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(tmp_path / "data") if request.param == "path" else "memory:"


@pytest.fixture
def ledger(location: str) -> Iterator[Ledger]:
    # The follower would apply what the dying thread did not, at a moment of its own choice.
    with chatledger.open(location, durability="fast") as ledger, lagging(ledger):
        ledger.create_chat("c", "u")
        ledger.append("c", [text("before", id="before")])
        yield ledger


MESSAGES: dict[str, list[NewMessage]] = {
    "one event": [text("x", id="x")],
    "two events": [text("x" * 600_000, id="x"), text("y" * 600_000, id="y")],
}


def install(fault: Fault, ledger: Ledger) -> None:
    """Steps around deciding, publishing and applying."""
    store = internals(ledger)
    fault.around(store.log, "append")
    fault.around(store.projector, "take")
    fault.around(Command, "decided")
    fault.around(index_module, "apply_events")
    fault.around(ChatWriter, "apply")
    fault.around(ChatWriter, "flush")


@pytest.mark.matrix
@pytest.mark.parametrize("messages", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_a_retry_after_a_death_adds_nothing(ledger: Ledger, fault: Fault, at: int, messages: list[NewMessage]) -> None:
    """The n-th step of an append dies; the index is whole, and the repeated call leaves the messages there once."""
    install(fault, ledger)
    fault.arm(at)
    with contextlib.suppress(DeathError):
        ledger.append("c", messages)
    fault.arm(None)
    ledger.sync()
    check_chat(ledger, "c")
    assert ids(ledger.get_messages("c")) in (["before"], ["before", *ids_of(messages)])

    ledger.append("c", messages)
    assert ids(ledger.get_messages("c")) == ["before", *ids_of(messages)]
    assert length(ledger, "c") == 2 + len(messages)
    ledger.rebuild()
    assert ids(ledger.get_messages("c")) == ["before", *ids_of(messages)]
    check_chat(ledger, "c")


def ids_of(messages: list[NewMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def test_all_steps_are_passed(ledger: Ledger, fault: Fault) -> None:
    """An append passes all the steps at which the test above lets it die."""
    install(fault, ledger)
    fault.arm(None)
    ledger.append("c", MESSAGES["one event"])

    assert fault.count == STEPS


@pytest.mark.soak
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_the_server_dies_during_an_append(tmp_path: Path, fault: Fault, at: int) -> None:
    """Kill -9 of the embedded server at the n-th step of an append: the call goes through, once, without the caller's help."""
    path = tmp_path / "data"
    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "u")
        install(fault, ledger)
        fault.action = lambda: kill_server(path)
        fault.arm(at)
        stored = ledger.append("c", MESSAGES["two events"])
        fault.arm(None)
        again = ledger.append("c", MESSAGES["two events"])

        assert ids(stored) == ids(again) == ["x", "y"]
        assert length(ledger, "c") == 3
        check_chat(ledger, "c")
    with chatledger.open(path, index=tmp_path / "fresh") as ledger:
        assert ids(ledger.get_messages("c")) == ["x", "y"]


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before the publish", "after the publish", "after two publishes"])
def test_the_server_dies_around_the_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The server dies with the message on its way, or its ack: the append is resolved by looking, not by guessing."""
    from chatledger.infra.log.nats import append as module

    path = tmp_path / "data"
    send = cast("Any", module)._exchange
    attempts = 0

    def dying(*args: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts > (2 if when == "after two publishes" else 1):
            return send(*args)
        if when != "before the publish":
            answer = send(*args)
            assert answer.error is None or attempts > 1
        kill_server(path)
        if when != "before the publish":
            raise ConnectionLostError(when)
        return send(*args)

    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "u")
        monkeypatch.setattr(module, "_exchange", dying)
        ledger.append("c", MESSAGES["two events"])
        monkeypatch.undo()
        ledger.append("c", [text("after", id="after")])

        assert attempts > 1
        assert ids(ledger.get_messages("c")) == ["x", "y", "after"]
        assert length(ledger, "c") == 4
        check_chat(ledger, "c")


@pytest.mark.parametrize("method", ["update_chat", "fork", "set_checkpoint", "delete_chat", "create_chat"])
def test_a_command_is_repeated_after_a_death(ledger: Ledger, fault: Fault, method: str) -> None:
    """A command with an id that dies after the log took it has its answer when it is repeated (PS-22)."""
    calls: dict[str, Callable[[], Any]] = {
        "update_chat": lambda: ledger.update_chat("c", title="t").title,
        "fork": lambda: ledger.fork("c", "before").name,
        "set_checkpoint": lambda: ledger.set_checkpoint("c", "k", "before").message_id,
        "delete_chat": lambda: ledger.delete_chat("c"),
        "create_chat": lambda: ledger.create_chat("new", "u").id,
    }
    expected = {
        "update_chat": "t",
        "fork": "main-v2",
        "set_checkpoint": "before",
        "delete_chat": True,
        "create_chat": "new",
    }
    events = length(ledger)
    fault.around(internals(ledger).log, "append", before=False)
    fault.arm(1)
    with ledger.context(command_id="command"), pytest.raises(DeathError):
        calls[method]()
    fault.arm(None)
    with ledger.context(command_id="command"):
        assert calls[method]() == expected[method]
    chats = ["c", "new"]
    for chat in chats:
        check_chat(ledger, chat)
    assert length(ledger) == (1 if method == "delete_chat" else events + 1)


def test_an_erasure_that_dies_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that dies before the erasure is a deletion; the next open erases what is left (PS-13)."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("velocipede")])
        monkeypatch.setattr(internals(ledger).log, "erase", _dying_erase)
        with pytest.raises(DeathError):
            ledger.delete_chat("c")
        monkeypatch.undo()
        assert ledger.get_chat("c") is None
        assert ledger.delete_chat("c") is False
    with chatledger.open(path, durability="fast") as ledger:
        assert [event.type for event in ledger.history("c")] == ["chat_deleted"]
        ledger.create_chat("c", "u")
        check_chat(ledger, "c")
    assert [] == files_with(path / "log", b"velocipede")


def _dying_erase(*args: Any, **kwargs: Any) -> None:
    raise DeathError


def test_a_full_disk_is_an_error(ledger: Ledger, fault: Fault) -> None:
    """When the index cannot be written the append fails as it is, and goes through when there is room again."""

    def full() -> None:
        raise OSError(28, "No space left on device")

    fault.around(index_module, "apply_events", before=False)
    fault.action = full
    fault.arm(1)
    with pytest.raises((OSError, ChatledgerError)):
        ledger.append("c", MESSAGES["one event"])
    fault.arm(None)
    ledger.append("c", MESSAGES["one event"])

    assert ids(ledger.get_messages("c")) == ["before", "x"]
    assert length(ledger, "c") == 3
    check_chat(ledger, "c")
