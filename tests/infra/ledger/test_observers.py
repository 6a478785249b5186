"""Those who watch the state of a graph, and what the program log says of it."""

import asyncio
import copy
import functools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chatledger.graph_state as facade
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import Transition, transition
from chatledger.infra.ledger.graph.observers import StateObservers
from chatledger.infra.ledger.graph.state_store import initial_state

SECRET = "s3cret"
STATE: dict[str, Any] = {"user_id": f"{SECRET}-user", "docs": [], "messages": [{"role": "user", "content": SECRET}]}
CHANGE: Transition[dict[str, Any]] = transition(
    STATE, {"docs": [{"id": f"{SECRET}-id", "body": SECRET}], "generated_text": SECRET}, "search"
)
LOGGER = "chatledger.graph_state"


def notify(observers: StateObservers, change: Transition[Any]) -> None:
    observers.notify(change)


def notify_async(observers: StateObservers, change: Transition[Any]) -> None:
    asyncio.run(observers.notify_async(change))


both = pytest.mark.parametrize("tell", [notify, notify_async], ids=["sync", "async"])
Tell = Callable[[StateObservers, Transition[Any]], None]


class Witness:
    """An observer that remembers what it was told."""

    def __init__(self, name: str = "witness", told: list[tuple[Any, ...]] | None = None) -> None:
        self.name = name
        self.told: list[tuple[Any, ...]] = [] if told is None else told

    def __call__(self, *change: Any) -> None:
        self.told.append((self.name, *change))

    @property
    def nodes(self) -> list[str]:
        """The nodes that it was told of."""
        return [change[3] for change in self.told]


class Failing:
    """An object that is called, whose text says too much."""

    def __call__(self, *_: Any) -> None:
        raise KeyError(SECRET)

    def __repr__(self) -> str:
        return SECRET


class TooSecretError(Exception):
    """An error whose text is content."""


def fails(error: BaseException) -> Callable[..., None]:
    def failing(*_: Any) -> None:
        raise error

    return failing


@both
def test_observers_are_told(tell: Tell) -> None:
    """Each gets (old, new, node, diff), in the order in which they came (GS-17)."""
    told: list[tuple[Any, ...]] = []
    observers = StateObservers()
    for name in ("first", "second"):
        observers.on_state_change(Witness(name, told))
    tell(observers, CHANGE)

    diff = {"docs_count": {"from": 0, "to": 1}, "generated_text": True}
    assert [(name, STATE, CHANGE.new, "search", diff) for name in ("first", "second")] == told


@both
def test_the_marks_are_there_before_anybody_is_told(tell: Tell) -> None:
    """The transition sets them, not a listener: without observers the state is the same (GS-17)."""
    witness = Witness()
    observers = StateObservers()
    observers.on_state_change(witness)
    before = copy.deepcopy(CHANGE.new)
    tell(observers, CHANGE)

    assert {"current_node": "search", "is_final_state": False} == before["metadata"]
    assert before == CHANGE.new == witness.told[0][2]


@both
def test_observers_get_copies(tell: Tell) -> None:
    """What one does to its copies reaches neither the state nor the next observer (GS-17)."""
    before = copy.deepcopy(CHANGE)
    witness = Witness()

    def spoil(old: Any, new: Any, node: str, diff: Any) -> None:
        old["messages"][0]["content"] = "spoilt"
        new["docs"][0]["body"] = "spoilt"
        new["docs"].clear()
        diff["docs_count"]["to"] = 99

    observers = StateObservers()
    observers.on_state_change(spoil)
    observers.on_state_change(witness)
    tell(observers, CHANGE)

    assert before == CHANGE
    assert [("witness", before.old, before.new, before.node, before.diff)] == witness.told


@both
@pytest.mark.parametrize(
    ("failing", "name"),
    [
        (fails(TooSecretError(SECRET)), "fails.<locals>.failing"),
        (fails(StopIteration(SECRET)), "fails.<locals>.failing"),
        (fails(RecursionError(SECRET)), "fails.<locals>.failing"),
        (Failing(), "Failing"),
        (functools.partial(Failing(), SECRET), "partial"),
    ],
    ids=["error", "stop", "recursion", "object", "partial"],
)
def test_a_failing_observer_changes_nothing(
    tell: Tell, failing: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are told, the state stays, and the log says which observer failed where, without content (GS-17, GS-20)."""
    before = copy.deepcopy(CHANGE)
    witness = Witness()
    observers = StateObservers()
    observers.on_state_change(failing)
    observers.on_state_change(witness)
    tell(observers, CHANGE)

    [record] = caplog.records
    assert before == CHANGE
    assert ["search"] == witness.nodes
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"An observer of state changes failed: {name} raised ")
    assert f" at {__name__}:" in record.getMessage()
    assert SECRET not in str(vars(record))


@both
def test_a_state_that_cannot_be_copied(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    """A state that holds what is no JSON cannot be shown, and the run goes on all the same."""
    witness = Witness()
    observers = StateObservers()
    observers.on_state_change(witness)
    tell(observers, transition({"lock": threading.Lock()}, {}, "search"))

    assert [] == witness.told
    assert "An observer of state changes failed: Witness raised TypeError" in caplog.text


@both
@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_the_program_can_be_ended(tell: Tell, leaving: type[BaseException]) -> None:
    observers = StateObservers()
    observers.on_state_change(fails(leaving()))
    with pytest.raises(leaving):
        tell(observers, CHANGE)


@both
def test_an_observer_can_leave(tell: Tell) -> None:
    """What `on_state_change` returns ends it, once and for that registration only; others may leave meanwhile."""
    told: list[str] = []
    observers = StateObservers()

    def watch(*_: Any) -> None:
        told.append("watch")

    stop_first = observers.on_state_change(watch)
    observers.on_state_change(watch)

    def watch_once(*_: Any) -> None:
        told.append("once")
        stop_own()

    stop_own = observers.on_state_change(watch_once)
    tell(observers, CHANGE)
    stop_first()
    stop_first()
    tell(observers, CHANGE)

    assert ["watch", "watch", "once", "watch"] == told


@pytest.mark.parametrize("bad", [None, "print", 5], ids=repr)
def test_observers_are_functions(bad: Any) -> None:
    with pytest.raises(InvalidValueError, match="callback must be a function"):
        StateObservers().on_state_change(bad)


# Coroutine functions


def test_coroutine_functions_are_awaited() -> None:
    """In order with the others, to their end (GS-17)."""
    told: list[tuple[Any, ...]] = []

    async def slow(old: Any, new: Any, node: str, diff: Any) -> None:
        await asyncio.sleep(0)
        told.append(("slow", old, new, node, diff))

    async def failing(*_: Any) -> None:
        await asyncio.sleep(0)
        raise TooSecretError(SECRET)

    observers = StateObservers()
    observers.on_state_change(failing)
    observers.on_state_change(slow)
    observers.on_state_change(Witness("quick", told))
    notify_async(observers, CHANGE)

    change = (CHANGE.old, CHANGE.new, CHANGE.node, CHANGE.diff)
    assert [("slow", *change), ("quick", *change)] == told


def test_a_coroutine_function_needs_notify_async(caplog: pytest.LogCaptureFixture) -> None:
    """Without an event loop it is not run; the log says what to do, and no coroutine is left behind."""
    slow_was_run = False
    witness = Witness()

    async def slow(*_: Any) -> None:
        nonlocal slow_was_run
        slow_was_run = True

    observers = StateObservers()
    observers.on_state_change(slow)
    observers.on_state_change(witness)
    notify(observers, CHANGE)

    assert not slow_was_run
    assert ["search"] == witness.nodes
    assert "notify_async" in caplog.text
    assert SECRET not in caplog.text


def test_a_cancelled_run_is_cancelled() -> None:
    """Cancellation while an observer waits is not a failure of the observer."""
    witness = Witness()

    async def main() -> None:
        waiting = asyncio.Event()

        async def wait(*_: Any) -> None:
            waiting.set()
            await asyncio.Event().wait()

        observers = StateObservers()
        observers.on_state_change(wait)
        observers.on_state_change(witness)
        task = asyncio.create_task(observers.notify_async(CHANGE))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert [] == witness.told


# The program log


@both
def test_each_transition_is_logged(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    """One debug line with node and diff, whether or not anybody watches (GS-19)."""
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    tell(StateObservers(), CHANGE)

    [record] = caplog.records
    assert (LOGGER, logging.DEBUG, "State transition") == (record.name, record.levelno, record.getMessage())
    assert {"node": "search", "state_changes": {"docs_count": {"from": 0, "to": 1}, "generated_text": True}} == {
        name: vars(record)[name] for name in ("node", "state_changes")
    }


# The facade


def test_the_clock_is_asked() -> None:
    """The time of the call, in ms, is in the message and in the metadata (GS-3)."""
    before = time.time_ns() // 1_000_000
    state = initial_state("ada", "Why?", trace_id="t", options={"max_tokens": 7})
    after = time.time_ns() // 1_000_000

    metadata = state.get("metadata")
    assert metadata is not None
    assert before <= metadata["start_time"] <= after
    assert metadata["start_time"] == state["messages"][0].get("timestamp")
    assert (7, "t") == (state["options"]["max_tokens"], metadata.get("trace_id"))


def test_the_facade_is_complete() -> None:
    """`__all__` is what the facade binds; `initial_state` is the one that asks the clock."""
    bound = {name for name in vars(facade) if not name.startswith(("_", "@"))}  # pytest adds `@py_builtins`

    assert bound == set(facade.__all__)
    assert facade.initial_state is initial_state


def test_every_name_is_in_the_reference() -> None:
    """The page of the reference names whatever the facade offers."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "graph-state.md").read_text(encoding="utf-8")

    assert [name for name in facade.__all__ if f"`{name}" not in page] == []
