"""Runs that end at once, wait, or share a state: what each way of checkpointing keeps and what it can lose."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import chatledger
from chatledger.domain.errors import (
    AccessDeniedError,
    InvalidValueError,
    LedgerClosedError,
    LogUnavailableError,
    StateConflictError,
)
from chatledger.domain.versioned.numbered import StateDraft
from chatledger.graph_state import AsyncStateStore, StateStore, state_id
from chatledger.infra.ledger.graph.stored import StoredStates

ID = state_id("ada", "trip")
NODES = [f"node-{number}" for number in range(1, 11)]

RUN = """
import sys
import chatledger
from chatledger.graph_state import StateStore

location, checkpointing = sys.argv[1:]
nodes = [f"node-{number}" for number in range(1, 11)]
store = StateStore(chatledger.open(location), nodes=nodes, checkpointing=checkpointing)
point = store.resume("chat:ada:trip")
print("next", None if point is None else point.next, flush=True)
for node in nodes[0 if point is None else nodes.index(point.next) :]:
    # Of even nodes the diff is empty.
    number = int(node.removeprefix("node-"))
    changes = {"docs": [{"id": f"d{number}"}]} if number % 2 else {}
    store.update("chat:ada:trip", {**changes, f"by-{number}": "x" * 500}, node=node)
    print(node, flush=True)
    sys.stdin.readline()
store.close()
"""


def run_until(location: str, checkpointing: str, node: str) -> str:
    """Run the graph in a process of its own, kill it with signal 9 after a node; what it said first."""
    command = [sys.executable, "-c", RUN, location, checkpointing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        for line in process.stdout:
            if line.strip() == node:
                os.kill(process.pid, signal.SIGKILL)
                break
            process.stdin.write("go on\n")
            process.stdin.flush()
        process.wait()
    return first


@pytest.mark.soak
def test_a_killed_run_goes_on_after_its_last_node(tmp_path: Path) -> None:
    """Acceptance 4: 10 nodes, killed after node 6: the next is node 7 with the state of node 6, and 6 versions are there."""
    location = f"sqlite:///{tmp_path}/log.db"
    assert run_until(location, "every", "node-6") == "next None"
    with chatledger.open(location) as ledger:
        store = StateStore(ledger, nodes=NODES)
        point = store.resume(ID)
        assert point is not None
        assert (point.next, point.version, point.node) == ("node-7", 6, "node-6")
        assert [one["id"] for one in point.state["docs"]] == ["d1", "d3", "d5"]
        for version in range(1, 7):
            assert f"by-{version}" in (store.get(ID, version) or {})
            assert f"by-{version + 1}" not in (store.get(ID, version) or {})
    assert run_until(location, "every", "no such node") == "next node-7"
    with chatledger.open(location) as ledger:
        store = StateStore(ledger, nodes=NODES)
        assert [one.node for one in reversed(store.history(ID))] == NODES
        assert (store.get(ID) or {}).keys() == {"docs", "metadata", *(f"by-{number}" for number in range(1, 11))}


@pytest.mark.soak
def test_checkpoints_of_what_is_significant_lose_what_came_after(tmp_path: Path) -> None:
    """GS-15: node 6 changes nothing of significance, so a run that is killed there goes on after node 5."""
    location = f"sqlite:///{tmp_path}/log.db"
    run_until(location, "significant", "node-6")
    assert run_until(location, "significant", "no such node") == "next node-6"
    with chatledger.open(location) as ledger:
        nodes = [one.node for one in reversed(StateStore(ledger).history(ID))]
    assert nodes == ["node-1", "node-3", "node-5", "node-7", "node-9", "node-10"]


class Gate:
    """Holds the thread that writes in the background until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.entered = threading.Event(), threading.Semaphore(0)
        put = StoredStates.put

        def held(stored: StoredStates, draft: StateDraft) -> Any:
            if threading.current_thread() is not threading.main_thread():
                self.entered.release()
                assert self.opened.wait(30)
            return put(stored, draft)

        monkeypatch.setattr(StoredStates, "put", held)


def test_the_background_holds_no_more_than_it_says(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """GS-15: the queue is bounded: `update` waits when it is full, and what can be lost is what waits and one more."""
    gate = Gate(monkeypatch)
    store, other = StateStore(ledger, checkpointing="background", queue_size=2), StateStore(ledger)
    for number in range(3):
        assert store.update(ID, {"number": number}, node="n").version == number + 1
        if not number:
            gate.entered.acquire()  # the first one is being written
    assert other.get(ID) is None
    assert (store.get(ID) or {})["number"] == 2
    late = threading.Thread(target=store.update, args=(ID, {"number": 3}), kwargs={"node": "n"})
    late.start()
    late.join(0.1)
    assert late.is_alive()
    gate.opened.set()
    late.join()
    store.close()
    assert [(other.get(ID, version) or {})["number"] for version in range(1, 5)] == [0, 1, 2, 3]


@pytest.mark.parametrize("moment", ["is_end", "is_interrupt", "flush", "close"])
@pytest.mark.parametrize("checkpointing", ["significant", "background"])
def test_what_waits_is_stored_in_time(ledger: chatledger.Ledger, checkpointing: Any, moment: str) -> None:
    """GS-15: at the final state, at an interrupt, when flushed and on close."""
    store = StateStore(ledger, checkpointing=checkpointing)
    for number in range(5):
        store.update(ID, {"number": number}, node="n")
    last = 5 if moment.startswith("is_") else 4
    if moment in {"is_end", "is_interrupt"}:
        store.update(ID, {"number": 5}, node="n", **{moment: True})
    else:
        getattr(store, moment)()
    assert (StateStore(ledger).get(ID) or {})["number"] == last
    store.close()
    store.close()
    with pytest.raises(LedgerClosedError):
        store.update(ID, {}, node="n")


@pytest.mark.parametrize("checkpointing", ["significant", "background"])
def test_another_process_is_not_overwritten(ledger: chatledger.Ledger, checkpointing: Any) -> None:
    """What another one stored meanwhile makes the next checkpoint a conflict, which is told, and after it all goes on."""
    store, other = StateStore(ledger, checkpointing=checkpointing), StateStore(ledger)
    store.update(ID, {"by": "us"}, node="n")
    store._steps.settle()  # pyright: ignore[reportPrivateUsage]
    other.put(ID, {"by": "them"})
    with pytest.raises(StateConflictError):
        store.update(ID, {"by": "us again", "docs": [{"id": "d"}]}, node="n", is_interrupt=True)
    assert (store.get(ID) or {})["by"] == "them"
    store.update(ID, {"more": 1}, node="n", is_end=True)
    assert (other.get(ID) or {}).keys() == {"by", "more", "metadata"}


def test_a_failure_in_the_background_is_told_once(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next call for that state; what waited behind it is not written, as it builds on what is not there."""
    put, failures = StoredStates.put, [LogUnavailableError("no answer")]

    def failing(stored: StoredStates, draft: StateDraft) -> Any:
        if failures and draft.state_id == ID:
            raise failures.pop()
        return put(stored, draft)

    monkeypatch.setattr(StoredStates, "put", failing)
    with StateStore(ledger, checkpointing="background") as store:
        store.update(ID, {"number": 1}, node="n")
        store.update(state_id("ada", "other"), {"number": 1}, node="n")
        with pytest.raises(LogUnavailableError):
            store.flush()
        assert store.get(ID) is None
        store.update(ID, {"number": 3}, node="n")
        store.flush()
        assert [one.version for one in store.history(ID)] == [1]
        assert store.get(state_id("ada", "other")) is not None


def test_a_refused_update_leaves_what_is_kept(ledger: chatledger.Ledger) -> None:
    for checkpointing in ("every", "significant", "background"):
        key = state_id("ada", checkpointing)
        with StateStore(ledger, checkpointing=checkpointing) as store:
            store.update(key, {"docs": [{"id": "d1"}]}, node="n")
            refused: list[dict[str, Any]] = [{"docs": [{"title": "no id"}]}, {"number": float("inf")}, {"metadata": []}]
            for wrong in refused:
                with pytest.raises(InvalidValueError):
                    store.update(key, wrong, node="n")
            with pytest.raises(AccessDeniedError):
                store.update(key, {"user_id": "bob"}, node="n")
            assert (store.get(key) or {})["docs"] == [{"id": "d1"}]
            assert (store.get(key) or {}).keys() == {"docs", "metadata"}


@pytest.mark.anyio
async def test_the_asynchronous_store(tmp_path: Path) -> None:
    """The same methods, awaited; observers may be coroutine functions; views and ledgers of users are limited."""
    seen: list[tuple[str, Any]] = []

    async def watch(old: Any, new: Any, node: str, diff: Any) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append((node, diff))

    async with (
        chatledger.open_async(f"sqlite:///{tmp_path}/log.db") as ledger,
        AsyncStateStore(ledger, nodes=NODES, checkpointing="background") as store,
    ):
        stop = store.on_state_change(watch)
        await store.put(ID, {"a": 1})
        await store.update(ID, {"docs": [{"id": "d"}]}, node="node-1")
        stop()
        await store.update(ID, {}, node="node-2")
        assert seen == [("node-1", {"docs_count": {"from": 0, "to": 1}})]
        point = await store.resume(ID)
        assert point is not None
        assert point.next == "node-3"
        assert [one.version for one in await store.history(ID)] == [3, 2, 1]
        assert (await store.get_stats())["total_checkpoints"] == 3
        view = store.for_identity("bob")
        with pytest.raises(AccessDeniedError):
            await view.get(ID)
        assert await view.list() == []
        limited = AsyncStateStore(ledger.for_user("ada"))
        assert (await limited.get(ID) or {})["a"] == 1
        with pytest.raises(AccessDeniedError):
            await AsyncStateStore(ledger.for_user("bob")).delete(ID)
        assert await store.run(lambda plain: plain.get(ID)) == await store.get(ID)
        assert await store.delete(ID)
        assert await store.cleanup() == 0
        await store.flush()


def test_the_asynchronous_store_has_all_methods() -> None:
    public = {name for name in vars(StateStore) if not name.startswith("_")}
    assert public | {"run"} == {name for name in vars(AsyncStateStore) if not name.startswith("_")}
