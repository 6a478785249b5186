"""Two writers on one thread: both are in one line, or the second one is told; forks are made on purpose only."""

# White-box: what savers keep is looked at, and some of their methods are replaced.
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false, reportUnknownLambdaType=false

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from tests.contracts.store_world import together
from tests.support.langgraph_programs import Log, asking, history, nested

import chatledger
from chatledger.domain.errors import CheckpointConflictError
from chatledger.domain.versioned.record import METADATA
from chatledger.infra.testing.savers import Calls, config, thread
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


STEPS = 5


def in_steps(saver: Any) -> Any:
    """Steps that take a moment."""
    graph: Any = StateGraph(Log)
    for number in range(STEPS):
        graph.add_node(f"n{number}", _step(number))
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    return graph.compile(checkpointer=saver)


def _step(number: int) -> RunnableLambda[Any, Any]:
    answer = {"log": [f"step {number}"]}

    def work(_state: Any) -> Any:
        time.sleep(0.001)
        return answer

    async def awork(_state: Any) -> Any:
        await asyncio.sleep(0.001)
        return answer

    return RunnableLambda(work, awork)


def calls(ledger: chatledger.Ledger, **options: Any) -> Calls:
    return Calls(LedgerSaver(ledger, **options), is_async=False)


def test_the_second_of_two_writers_is_refused(ledger: chatledger.Ledger) -> None:
    one, other = calls(ledger), calls(ledger)
    root = one.put("t", {"a": 0})
    assert one.at("t").checkpoint["id"] == other.at("t").checkpoint["id"] == root
    first = one.put("t", {"a": 1}, parent=root)
    with pytest.raises(CheckpointConflictError, match=first) as caught:
        other.put("t", {"a": 2}, parent=root)

    assert caught.value.latest_id == first
    assert "by another writer" in str(caught.value)
    assert one.ids(thread("t")) == [first, root]


def test_of_two_first_checkpoints_one_is_refused(ledger: chatledger.Ledger) -> None:
    one, other = calls(ledger), calls(ledger)
    assert one.get("t") is None
    assert other.get("t") is None
    one.put("t", {})
    with pytest.raises(CheckpointConflictError):
        other.put("t", {})


def test_a_writer_in_the_middle_of_a_run_notices_another_one(ledger: chatledger.Ledger) -> None:
    """It read nothing since its last put, and is refused all the same."""
    one, other = calls(ledger), calls(ledger)
    root = one.put("t", {})
    other.at("t")
    other.put("t", {}, parent=root)
    with pytest.raises(CheckpointConflictError):
        one.put("t", {}, parent=root)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "tasks"])
def test_two_runs_of_one_saver_do_not_fork_either(ledger: chatledger.Ledger, *, is_async: bool) -> None:
    """Double texting: both read the same checkpoint as the latest one. The error does not blame another writer."""
    graph = in_steps(LedgerSaver(ledger))
    graph.invoke({"log": []}, CONFIG)

    async def both_as_tasks() -> list[Any]:
        runs = (graph.ainvoke({"log": ["again"]}, CONFIG, durability="sync") for _ in range(2))
        return await asyncio.gather(*runs, return_exceptions=True)

    def one() -> Any:
        try:
            return graph.invoke({"log": ["again"]}, CONFIG, durability="sync")
        except CheckpointConflictError as error:
            return error

    def both_in_threads() -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return [run.result() for run in [pool.submit(one), pool.submit(one)]]

    outcomes = asyncio.run(both_as_tasks()) if is_async else both_in_threads()
    (refused,) = [outcome for outcome in outcomes if isinstance(outcome, CheckpointConflictError)]
    assert refused.is_own
    assert "another run of this saver" in str(refused)
    assert "another writer" not in str(refused)
    # Not a number of steps: the second may have begun in the middle of the first, which is refused then.
    parents = [str(state.parent_config) for state in graph.get_state_history(CONFIG)]
    assert len(parents) == len({*parents})


def test_a_cancelled_run_that_stores_its_last_checkpoint_late_is_not_another_writer(
    ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop button while a checkpoint is on its way: it comes after the next run has read the thread."""
    saver = LedgerSaver(ledger)
    graph = in_steps(saver)
    on_its_way, may_go_on = threading.Event(), threading.Event()
    store = saver._threads.put_checkpoint

    def slow(*arguments: Any, **options: Any) -> None:
        if not on_its_way.is_set() and graph_is_at(arguments[1], step=STEPS):
            on_its_way.set()
            assert may_go_on.wait(20)
        store(*arguments, **options)

    def graph_is_at(put: Any, *, step: int) -> bool:
        metadata: Any = saver.serde.loads_typed(put.frames[METADATA])
        return bool(metadata["step"] == step)

    async def run() -> Any:
        cancelled = asyncio.create_task(graph.ainvoke({"log": ["in"]}, CONFIG))
        assert await asyncio.to_thread(on_its_way.wait, 20)
        await asyncio.sleep(0.05)  # it only waits for that one
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        stream = graph.astream(None, CONFIG, stream_mode="values")
        await anext(stream)
        may_go_on.set()
        return [value["log"] async for value in stream][-1]

    monkeypatch.setattr(saver._threads, "put_checkpoint", slow)

    assert asyncio.run(run()) == ["in", *(f"step {number}" for number in range(STEPS))]


@pytest.mark.soak
def test_a_run_goes_on_right_after_the_one_before_was_cancelled(ledger: chatledger.Ledger) -> None:
    """60 of 60, at whatever moment."""
    graph = in_steps(LedgerSaver(ledger))
    random = Random(4)

    async def run(number: int) -> Any:
        where: Any = {"configurable": {"thread_id": f"t{number}"}}
        cancelled = asyncio.create_task(graph.ainvoke({"log": []}, where))
        await asyncio.sleep(random.uniform(0, 0.04))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        return await graph.ainvoke({"log": []}, where)

    async def run_all() -> list[Any]:
        return [await run(number) for number in range(60)]

    assert all(len(found["log"]) >= STEPS for found in asyncio.run(run_all()))


def test_a_named_checkpoint_is_forked(ledger: chatledger.Ledger) -> None:
    one, other = calls(ledger), calls(ledger)
    root = one.put("t", {})
    first = one.put("t", {}, parent=root)
    other.at("t", root)
    fork = other.put("t", {}, parent=root)

    assert one.at("t", fork).parent_config == config("t", root)
    assert one.ids(thread("t")) == [fork, first, root]


def test_what_was_found_before_another_checkpoint_is_forked(ledger: chatledger.Ledger) -> None:
    """So a subgraph with a memory is replayed: from what it had then, or from nothing."""
    saver = calls(ledger)
    assert saver.get("t", ns="sub") is None
    first = saver.put("t", {}, ns="sub", id="1")
    assert saver.at("t", ns="sub").checkpoint["id"] == first
    saver.put("t", {}, ns="sub", id="2", parent=first)

    assert saver.ids(config("t", ns="sub"), before=thread("t") | config("t", "1"), limit=1) == []
    saver.put("t", {}, ns="sub", id="3")
    assert saver.ids(config("t", ns="sub"), before=config("t", "2"), limit=1) == ["1"]
    saver.put("t", {}, ns="sub", id="4", parent=first)


def test_clocks_that_differ_are_no_other_writer(ledger: chatledger.Ledger) -> None:
    """The next checkpoint may have a smaller id than its parent; the line goes on."""
    one, other = calls(ledger), calls(ledger)
    one.put("t", {}, id="5")
    other.at("t")
    other.put("t", {}, id="3", parent="5")
    other.put("t", {}, id="4", parent="3")
    other.put("t", {}, id="6", parent="4")

    assert one.at("t").checkpoint["id"] == "6"


def test_a_retry_is_no_second_writer(ledger: chatledger.Ledger) -> None:
    saver = calls(ledger)
    root = saver.put("t", {})
    saver.at("t")
    saver.put("t", {"a": 1}, id="f", parent=root, versions={"a": 1})
    before = ledger.last_position()
    saver._count -= 1
    saver.put("t", {"a": 1}, id="f", parent=root, versions={"a": 1})

    assert ledger.last_position() == before


def test_without_fencing_both_are_stored(ledger: chatledger.Ledger) -> None:
    one, other = calls(ledger, is_fenced=False), calls(ledger, is_fenced=False)
    root = one.put("t", {})
    one.at("t")
    other.at("t")
    assert one.put("t", {}, parent=root) != other.put("t", {}, parent=root)
    assert len(one.ids(thread("t"))) == 3


@pytest.mark.parametrize("remove", ["delete_thread", "delete_for_runs"])
def test_no_value_is_lost_when_the_parent_is_removed_meanwhile(
    ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch, remove: str
) -> None:
    """At any moment before the checkpoint is stored, which may then not refer to what the parent had."""
    saver = LedgerSaver(ledger)
    writer = Calls(saver, is_async=False)
    root = writer.put("t", {"a": ["kept"], "b": 1}, versions={"a": 1, "b": 1}, metadata={"run_id": "r"})
    store = saver._threads.put_checkpoint

    def remove_and_store(*arguments: Any, **options: Any) -> None:
        getattr(LedgerSaver(ledger), remove)("t" if remove == "delete_thread" else ["r"])
        store(*arguments, **options)

    monkeypatch.setattr(saver._threads, "put_checkpoint", remove_and_store)
    writer.put("t", {"a": ["kept"], "b": 2}, parent=root, versions={"a": 1, "b": 2}, changed=["b"])

    assert writer.at("t").checkpoint["channel_values"] == {"a": ["kept"], "b": 2}


def test_of_many_threads_one_goes_on(ledger: chatledger.Ledger) -> None:
    savers = [calls(ledger) for _ in range(6)]
    root = savers[0].put("t", {})
    barrier = threading.Barrier(len(savers))

    def go_on(number: int) -> bool:
        savers[number].at("t")
        barrier.wait(60)
        try:
            savers[number].put("t", {"by": number}, parent=root)
        except CheckpointConflictError:
            return False
        return True

    assert sum(together(len(savers), go_on)) == 1


RACE = """
    import sys
    import chatledger
    from chatledger.domain.errors import CheckpointConflictError
    from chatledger.langgraph import LedgerSaver
    from chatledger.infra.testing.savers import Calls

    with chatledger.open(sys.argv[1]) as ledger:
        saver = Calls(LedgerSaver(ledger), is_async=False)
        root = saver.at("t").checkpoint["id"]
        print("read", flush=True)
        sys.stdin.readline()
        try:
            saver.put("t", {"by": sys.argv[2]}, parent=root)
            print("stored")
        except CheckpointConflictError:
            print("refused")
"""


@pytest.mark.soak
def test_of_two_processes_one_goes_on(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    with chatledger.open(place) as ledger:
        calls(ledger).put("t", {})
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(RACE), place, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"},
            )
            for name in "ab"
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
        outcomes = [process.communicate("go\n")[0].strip() for process in processes]

        assert sorted(outcomes) == ["refused", "stored"]
        ledger.sync()
        assert len(calls(ledger).ids(thread("t"))) == 2


def test_a_run_that_was_overtaken_ends_with_the_error(ledger: chatledger.Ledger) -> None:
    """Double texting: the second answer to one interrupt does not hide the first."""
    slow, quick = (asking(LedgerSaver(ledger)) for _ in range(2))
    slow.invoke({"log": []}, CONFIG)
    slow.invoke(Command(resume="1"), CONFIG)
    stream = slow.stream(Command(resume="2"), CONFIG, stream_mode="updates", durability="sync")
    next(stream)
    quick.update_state(CONFIG, {"log": ["by another"]}, as_node="end")
    with pytest.raises(CheckpointConflictError):
        list(stream)

    assert quick.get_state(CONFIG).values["log"][-1] == "by another"


def test_going_back_in_time_with_one_saver_in_all_orders(ledger: chatledger.Ledger) -> None:
    """Every past state of a graph with a subgraph that has a memory is gone on from, as in memory."""
    found: list[Any] = []
    for saver in (LedgerSaver(ledger).for_assistant("a"), InMemorySaver()):
        graph = nested(saver, is_stateful=True)
        graph.invoke({"log": ["one"]}, CONFIG)
        graph.invoke(Command(resume="r"), CONFIG)
        answers: list[Any] = []
        for past in list(graph.get_state_history(CONFIG)):
            answers.append(repr(graph.invoke({"log": ["again"]}, past.config)["log"]))
            answers.append(graph.invoke(Command(resume="s"), CONFIG)["log"])
            answers.append(graph.update_state(past.config, {"log": ["edit"]}, as_node="after") is not None)
        found.append((answers, [one[0] for one in history(graph, CONFIG)]))

    assert found[0] == found[1]
