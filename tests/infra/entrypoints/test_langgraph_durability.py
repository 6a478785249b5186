"""LangGraph's `durability`: which writes of tasks a killed process may lose, and which never."""

# White-box: a process is ended between two steps inside the saver.
# pyright: reportPrivateUsage=false

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from tests.support import killed_graph

import chatledger
from chatledger.domain.errors import AccessDeniedError, AlreadyExistsError, CheckpointExistsError, LogUnavailableError
from chatledger.domain.versioned.events import VersionPut, VersionWritesPut
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.store import task_writes
from chatledger.langgraph import LedgerSaver

KILLED = [
    ("sync", "before 1"),
    ("sync", "before 2"),
    ("sync", "after 1"),
    ("async", "before 2"),
    ("async", "after 1"),
    ("async", "after 2"),
    ("exit", "before 2"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Where each of the processes was that ran a graph until it was killed."""
    folders = {case: tmp_path_factory.mktemp("killed") for case in KILLED}
    arguments = [text for case, folder in folders.items() for text in (str(folder), *case)]
    command = [sys.executable, killed_graph.__file__, *arguments]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ["9"] * len(KILLED) == killed.stdout.split(), killed.stderr
    return folders


@pytest.mark.guard
@pytest.mark.parametrize(("durability", "die_at"), KILLED)
def test_a_killed_run_resumes_to_the_right_end(
    folders: dict[tuple[str, str], Path], durability: Any, die_at: str
) -> None:
    """
    A step that was lost runs again, whatever the durability.

    Under `sync` a checkpoint is never there without the writes that led to it, and no node runs again whose step was over, though
    LangGraph waits for the checkpoint only (langgraph#8039): the checkpoint waits for the writes of the tasks before it, so they
    are there when the process ends as it is to be stored.
    """
    folder = folders[durability, die_at]
    with chatledger.open(folder / "ledger") as ledger:
        stored = list(Threads(ledger).checkpoints("t"))
        parents = {checkpoint.record.parent for checkpoint in stored}
        led_to = [one for one in stored if one.record.id in parents and len(one.record.fields) > 1]
        assert durability != "sync" or all(one.writes for one in led_to)
        seen = killed_graph.run(LedgerSaver(ledger), folder, durability)

    assert ["a", "b", "c", "in"] == sorted(seen)
    if durability == "sync":
        assert ["a", "b", "c"] == sorted((folder / "ran").read_text().split())


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A ledger on which writes ride as long as nobody reads them."""
    # Not a longer RIDE_S: the thread would sleep that long, and the process wait for it at its end.
    monkeypatch.setattr(task_writes.TaskWriteBuffer, "_watch", lambda _buffer: None)
    with chatledger.open("memory:") as opened:
        yield opened


def config(durability: str | None = None, *, checkpoint_id: str | None = None, thread_id: str = "t") -> Any:
    configurable: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": ""}
    if durability is not None:
        configurable["__pregel_durability"] = durability
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def checkpoint(number: int, **seen: int) -> Any:
    return {
        "v": 4,
        "id": f"{number:04}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"a": number},
        "channel_versions": {"a": number},
        "versions_seen": {name: {"a": version} for name, version in seen.items()},
        "updated_channels": None,
    }


def put(saver: LedgerSaver, number: int, durability: str | None = None, **seen: int) -> None:
    parent = None if number == 0 else f"{number - 1:04}"
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    saver.put(config(durability, checkpoint_id=parent), checkpoint(number, **seen), metadata, {"a": number})


def events(ledger: Ledger) -> list[tuple[type, int]]:
    """The events that are stored, with how many tasks have writes in them."""
    bodies = [recorded.body for recorded in ledger.history()]
    return [
        (type(body), len((body.tasks if isinstance(body, VersionWritesPut) else body.writes) or ()))
        for body in bodies
        if isinstance(body, VersionWritesPut | VersionPut)
    ]


@pytest.mark.parametrize("durability", [None, "async", "exit"])
def test_writes_ride_with_the_next_checkpoint(ledger: Ledger, durability: str | None) -> None:
    """Those of all tasks below the same checkpoint, in its event; those below others go on waiting."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    for task in ("x", "y"):
        saver.put_writes(config(durability, checkpoint_id="0000"), [("a", task)], task)
    saver.put_writes(config(durability, checkpoint_id="0001"), [("a", "z")], "z")
    assert [(VersionPut, 0)] == events(ledger)
    put(saver, 1, durability)

    assert [(VersionPut, 0), (VersionPut, 2)] == events(ledger)
    found = saver.get_tuple(config(checkpoint_id="0001"))
    assert found is not None
    assert [("z", "a", "z")] == found.pending_writes
    assert (VersionWritesPut, 1) == events(ledger)[-1]


@pytest.mark.parametrize("durability", ["sync", "later"])
def test_writes_of_sync_are_stored_when_the_call_returns(ledger: Ledger, durability: str) -> None:
    """So are those of a durability that this version does not know."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(durability, checkpoint_id="0000"), [("a", 1)], "x")

    assert [(VersionPut, 0), (VersionWritesPut, 1)] == events(ledger)


@pytest.mark.parametrize("channel", ["__error__", "__interrupt__", "__resume__"])
def test_what_stops_a_run_is_stored_at_once_with_all_that_waits(ledger: Ledger, channel: str) -> None:
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    saver.put_writes(config(checkpoint_id="0000"), [(channel, "stop")], "y")

    assert [(VersionPut, 0), (VersionWritesPut, 2)] == events(ledger)


READS: dict[str, Callable[[LedgerSaver], object]] = {
    "get": lambda saver: saver.get_tuple(config()),
    "list": lambda saver: list(saver.list(config())),
    "list all": lambda saver: list(saver.list(None)),
    "history": lambda saver: saver.get_delta_channel_history(config=config(checkpoint_id="0000"), channels=["a"]),
    "export": lambda saver: saver.ledger.export_thread("t"),
    "copy": lambda saver: saver.copy_thread("t", "u"),
    "other saver": lambda saver: LedgerSaver(saver.ledger).for_assistant("a").get_thread_state("t"),
    "ledger of a user": lambda saver: LedgerSaver(saver.ledger.for_user("ada")).get_tuple(config()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_writes_that_wait_are_stored_before_the_thread_is_read(
    ledger: Ledger, read: Callable[[LedgerSaver], object]
) -> None:
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    read(saver)

    assert (VersionWritesPut, 1) == events(ledger)[1]


def test_writes_that_wait_go_with_a_deleted_thread(ledger: Ledger) -> None:
    """They do not begin it anew; nor do they where the chat of its id is deleted."""
    saver = LedgerSaver(ledger)
    ledger.create_chat("t", "ada")
    for delete in (lambda: saver.delete_thread("t"), lambda: ledger.delete_chat("t")):
        put(saver, 0)
        saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
        delete()
        ledger._store.task_writes.settle()

        assert [] == saver.threads()


def test_writes_that_nothing_follows_are_stored_in_a_moment_and_at_the_end(tmp_path: Path) -> None:
    """By a thread of the ledger, those of several tasks as one event; and when it is closed."""
    with chatledger.open(tmp_path) as ledger:
        saver = LedgerSaver(ledger)
        put(saver, 0)
        for task in ("x", "y"):
            saver.put_writes(config(checkpoint_id="0000"), [("a", task)], task)
        for thread in threading.enumerate():
            if thread.name == "chatledger-task-writes":
                thread.join()
        assert 2 == sum(count for _, count in events(ledger))
        saver.put_writes(config(checkpoint_id="0000"), [("a", 3)], "z")
    with chatledger.open(tmp_path) as ledger:
        assert 3 == sum(count for _, count in events(ledger))


def test_what_goes_wrong_in_the_background_is_raised_by_the_next_call(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one call on that thread, and by no other one's."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    with monkeypatch.context() as patched:
        patched.setattr(task_writes.StepWrites, "store", _failing(task_writes.StepWrites.store))
        ledger._store.task_writes.settle()
    assert saver.get_tuple(config(thread_id="other")) is None
    with pytest.raises(LogUnavailableError):
        saver.put_writes(config(checkpoint_id="0000"), [("a", 2)], "y")

    saver.put_writes(config(checkpoint_id="0000"), [("a", 2)], "y")
    found = saver.get_tuple(config())
    assert found is not None
    assert [("y", "a", 2)] == found.pending_writes


def test_an_interrupt_ends_the_call_that_it_came_in(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes nothing along: whoever wrote is told that the outcome is unknown, and writes of other steps are stored later."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    for checkpoint_id in ("0000", "0001"):
        saver.put_writes(config(checkpoint_id=checkpoint_id), [("a", 1)], "x")
    with monkeypatch.context() as patched:
        patched.setattr(task_writes.StepWrites, "store", _failing(task_writes.StepWrites.store, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            saver.get_tuple(config())
    with pytest.raises(LogUnavailableError, match="interrupted"):
        saver.get_tuple(config())
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    assert saver.get_tuple(config()) is not None
    assert 2 == sum(count for _, count in events(ledger))


def test_a_user_who_may_not_write_is_refused_when_the_writes_are_handed_over(ledger: Ledger) -> None:
    """Not when they are stored, where another user's call would be refused for it."""
    ledger.create_chat("t", "ada")
    ledger.set_member("t", "bob", role="reader")
    ada, bob, eve = (LedgerSaver(ledger.for_user(user)) for user in ("ada", "bob", "eve"))
    put(ada, 0)
    with pytest.raises(AccessDeniedError):
        bob.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    with pytest.raises(AlreadyExistsError):
        eve.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    ada.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    put(ada, 1)

    assert [(VersionPut, 0), (VersionPut, 1)] == events(ledger)


def test_the_error_of_a_user_is_raised_by_none_of_another_one(ledger: Ledger) -> None:
    """Such as one who lost the right to write after the writes were handed over."""
    ledger.create_chat("t", "ada")
    ledger.set_member("t", "bob", role="writer")
    ada, bob = (LedgerSaver(ledger.for_user(user)) for user in ("ada", "bob"))
    put(ada, 0)
    bob.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    ledger.set_member("t", "bob", role="reader")
    put(ada, 1)
    found = ada.get_tuple(config())
    assert found is not None
    assert "0001" == found.checkpoint["id"]
    with pytest.raises(AccessDeniedError):
        bob.get_tuple(config())
    assert bob.get_tuple(config()) == found


_UNAVAILABLE = LogUnavailableError("the log does not answer")


def _failing(store: Callable[[Any], None], failure: BaseException = _UNAVAILABLE) -> Callable[[Any], None]:
    def fail(step: Any) -> None:
        def refuse(_tasks: object) -> None:
            raise failure

        step._store = refuse
        store(step)

    return fail


def test_a_refused_checkpoint_leaves_the_writes(ledger: Ledger) -> None:
    """They were taken before it, and are stored without it."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    other: Any = {**checkpoint(1), "id": "0000"}
    with pytest.raises(CheckpointExistsError):
        saver.put(config(checkpoint_id="0000"), other, {"source": "loop", "step": 1}, {})

    assert [(VersionPut, 0), (VersionWritesPut, 1)] == events(ledger)


def test_calls_at_once_become_few_events(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while another call stores its writes is one event after it."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    begun, release = threading.Event(), threading.Event()
    store = task_writes.StepWrites.store

    def slow(step: task_writes.StepWrites) -> None:
        begun.set()
        assert release.wait(30)
        store(step)

    monkeypatch.setattr(task_writes.StepWrites, "store", slow)

    def write(task: str) -> threading.Thread:
        given = config("sync", checkpoint_id="0000"), [("a", task)], task
        thread = threading.Thread(target=saver.put_writes, args=given)
        thread.start()
        return thread

    threads = [write("first")]
    assert begun.wait(30)
    threads += [write(f"task {number}") for number in range(7)]
    waiting = ledger._store.task_writes._threads["t"]
    while waiting.users < len(threads):
        threading.Event().wait(0.001)
    release.set()
    for thread in threads:
        thread.join()

    assert [(VersionPut, 0), (VersionWritesPut, 1), (VersionWritesPut, 7)] == events(ledger)


def test_a_checkpoint_of_sync_waits_for_the_writes_before_it(ledger: Ledger) -> None:
    """As many tasks as nodes ran, from those that the checkpoint before had seen."""
    saver = LedgerSaver(ledger)
    put(saver, 0, a=1, __input__=1)
    waiting = threading.Thread(target=put, args=(saver, 1, "sync"), kwargs={"a": 2, "b": 1, "__interrupt__": 3})
    waiting.start()
    saver.put_writes(config("sync", checkpoint_id="0000"), [("a", 1)], "x")
    saver.put_writes(config("sync", checkpoint_id="0000"), [("__interrupt__", 1)], "z")
    waiting.join(0.1)
    assert waiting.is_alive()
    saver.put_writes(config("sync", checkpoint_id="0000"), [("a", 1)], "y")
    waiting.join(30)

    assert (VersionPut, 0) == events(ledger)[-1]
    assert not waiting.is_alive()


@pytest.mark.anyio
async def test_a_checkpoint_waits_for_some_time_only(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then it is stored, and a line in the log says so."""
    from chatledger.infra.entrypoints.langgraph import saver as module

    monkeypatch.setattr(module, "_MOST_WAIT_S", 0.01)
    saver = LedgerSaver(ledger)
    put(saver, 0)
    with caplog.at_level(logging.WARNING):
        put(saver, 1, "sync", b=1)
        given = config("sync", checkpoint_id="0001"), checkpoint(2, b=2), {"source": "loop", "step": 2}
        await saver.aput(*given, {"a": 2})  # type: ignore[arg-type]

    assert 2 == sum("without the writes of 1 tasks" in record.getMessage() for record in caplog.records)
    assert 3 == len(events(ledger))


@pytest.mark.parametrize("source", ["input", "fork", "update"])
def test_what_no_task_wrote_is_not_waited_for(ledger: Ledger, source: Any) -> None:
    saver = LedgerSaver(ledger)
    put(saver, 0)
    given = config("sync", checkpoint_id="0000"), checkpoint(1, b=1)

    assert [] == list(saver._pauses(*given, {"source": source, "step": 1}))
    assert [] != [next(saver._pauses(*given, {"source": "loop", "step": 1}))]


def test_a_forked_child_has_none_of_the_writes_that_wait(ledger: Ledger) -> None:
    """They are its parent's to store."""
    saver = LedgerSaver(ledger)
    put(saver, 0)
    saver.put_writes(config(checkpoint_id="0000"), [("a", 1)], "x")
    buffer = ledger._store.task_writes
    assert buffer._threads
    waiting = dict(buffer._threads)
    task_writes._forget_all()  # as `os.register_at_fork` calls it

    assert not buffer._threads
    buffer._threads.update(waiting)


def test_langgraph_says_the_durability_in_the_config(ledger: Ledger) -> None:
    """The key is private to LangGraph: each version that is supported has it, in the configs of both calls."""
    noted: list[Any] = []

    class Noting(LedgerSaver):
        def put(self, config: Any, *args: Any) -> Any:
            noted.append(config["configurable"].get("__pregel_durability"))
            return super().put(config, *args)

        def put_writes(self, config: Any, *args: Any) -> None:
            noted.append(config["configurable"].get("__pregel_durability"))
            super().put_writes(config, *args)

    builder: Any = StateGraph(dict)
    builder.add_node("a", lambda _state: {"a": 1})
    builder.add_edge(START, "a")
    graph = builder.compile(checkpointer=Noting(ledger))
    for durability in ("sync", "async", None):
        noted.clear()
        options = {} if durability is None else {"durability": durability}
        graph.invoke({"a": 0}, {"configurable": {"thread_id": f"thread {durability}"}}, **options)
        assert {durability or "async"} >= {one for one in noted if one is not None}
        assert durability != "sync" or {"sync"} == set(noted)
