"""Forks by copy, as Studio and the SDK make them: what is next in the copy is what was next in the checkpoint."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false

import asyncio
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt
from tests.support.langgraph_programs import Log, asking, fan_out, nested

import chatledger
from chatledger.infra.testing.savers import Calls, config
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def _extend(state: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(entry for write in writes for entry in write)]


class Delta(TypedDict):
    log: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=2)]
    plain: Annotated[list[str], operator.add]


def in_line(saver: Any) -> Any:
    """Three steps, one after the other."""
    graph: Any = StateGraph(Log)
    for name in "abc":
        graph.add_node(name, lambda _state, name=name: {"log": [name]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "c")
    return graph.compile(checkpointer=saver)


def in_deltas(saver: Any) -> Any:
    """Four steps; a channel that is stored as its writes, and beside it a plain one with the same content."""
    graph: Any = StateGraph(Delta)
    for name in "abcd":
        graph.add_node(name, lambda _state, name=name: {"log": [name], "plain": [name]})
    for before, after in zip((START, "a", "b", "c"), "abcd", strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def asks_between(saver: Any) -> Any:
    """A step, a question, a step."""
    graph: Any = StateGraph(Log)
    graph.add_node("a", lambda _state: {"log": ["a"]})
    graph.add_node("ask", lambda _state: {"log": [f"heard {interrupt('what?')}"]})
    graph.add_node("b", lambda _state: {"log": ["b"]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "ask")
    graph.add_edge("ask", "b")
    return graph.compile(checkpointer=saver)


Make = Callable[[Any], Any]
GRAPHS: tuple[Make, ...] = (in_line, in_deltas, asks_between, asking, nested, fan_out)


def _tried(call: Callable[[], Any]) -> Any:
    """The state that a run ends with, and what it asks."""
    found = dict(call())
    return {key: [one.value for one in value] if key == "__interrupt__" else value for key, value in found.items()}


def copies(make: Make, saver: Any) -> list[Any]:
    """Every past state is copied, also the input, and gone on from; then the copy is copied again with an update."""
    graph = make(saver)
    graph.invoke({"log": ["in"]}, CONFIG)
    graph.invoke(Command(resume="one"), CONFIG)
    graph.invoke(Command(resume="two"), CONFIG)
    found: list[Any] = []
    for past in list(graph.get_state_history(CONFIG)):
        copy = graph.update_state(past.config, None, as_node="__copy__")
        found.append((past.next, graph.get_state(copy).next, graph.get_state(copy).values == past.values))
        found.append(_tried(partial(graph.invoke, None, copy)))
        found.append(_tried(partial(graph.invoke, Command(resume="again"), CONFIG)))
        again = graph.update_state(copy, None, as_node="__copy__")
        found.append((graph.get_state(again).next, graph.get_state(again).values == past.values))
    return found


@pytest.mark.matrix
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "not fenced"])
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "unbound"])
def test_a_copy_goes_on_as_in_memory(ledger: chatledger.Ledger, make: Make, *, is_fenced: bool, is_bound: bool) -> None:
    saver = LedgerSaver(ledger, is_fenced=is_fenced)

    assert copies(make, saver.for_assistant("a") if is_bound else saver) == copies(make, InMemorySaver())


@pytest.mark.parametrize("make", [in_line, in_deltas], ids=lambda make: make.__name__)
@pytest.mark.parametrize("how", ["copied thread", "rebuilt"])
def test_a_copy_is_right_wherever_its_thread_comes_from(ledger: chatledger.Ledger, make: Make, how: str) -> None:
    found: list[Any] = []
    for saver in (LedgerSaver(ledger), InMemorySaver()):
        graph = make(saver)
        graph.invoke({"log": ["in"]}, CONFIG)
        past = next(one for one in graph.get_state_history(CONFIG) if one.next == ("b",))
        place = past.config
        if isinstance(saver, LedgerSaver) and how == "copied thread":
            saver.copy_thread("t", "other")
            saver.delete_thread("t")
            place = {"configurable": {**place["configurable"], "thread_id": "other"}}
        elif isinstance(saver, LedgerSaver):
            ledger.rebuild()
        copy = graph.update_state(place, None, as_node="__copy__")
        found.append((graph.get_state(copy).next, graph.invoke(None, copy)))

    assert found[0] == found[1]


@pytest.mark.parametrize("make", [in_line, in_deltas], ids=lambda make: make.__name__)
def test_a_copy_of_what_pruning_left_goes_on(ledger: chatledger.Ledger, make: Make) -> None:
    """Its parent is gone, or there for what delta channels are made of."""
    found: list[Any] = []
    for saver in (LedgerSaver(ledger), InMemorySaver()):
        graph = make(saver)
        graph.invoke({"log": ["in"]}, CONFIG)
        if isinstance(saver, LedgerSaver):
            saver.prune(["t"])
        copy = graph.update_state(graph.get_state(CONFIG).config, None, as_node="__copy__")
        found.append((graph.get_state(copy).values, graph.get_state(copy).next, graph.invoke({"log": ["on"]}, CONFIG)))

    assert found[0] == found[1]


def test_a_bulk_update_that_begins_with_a_copy_is_not_refused(ledger: chatledger.Ledger) -> None:
    """Of the input checkpoint too, whose copy has no parent either."""
    found: list[Any] = []
    for saver in (LedgerSaver(ledger), InMemorySaver()):
        graph = in_line(saver)
        graph.invoke({"log": ["in"]}, CONFIG)
        for past in list(graph.get_state_history(CONFIG)):
            steps = [[StateUpdate(None, "__copy__")], [StateUpdate({"log": ["edit"]}, "a")]]
            forked = graph.bulk_update_state(past.config, steps)
            found.append((graph.get_state(forked).next, graph.invoke(None, forked)["log"]))

    assert found[:5] == found[5:]
    assert len(found) == 10


def test_copies_in_tasks_of_their_own_are_not_refused(ledger: chatledger.Ledger) -> None:
    """As a server makes them: each request is a task, and the thread was run in another one."""
    graph = in_line(LedgerSaver(ledger))

    async def serve() -> list[Any]:
        await asyncio.create_task(graph.ainvoke({"log": ["in"]}, CONFIG))
        states = [one async for one in graph.aget_state_history(CONFIG)]
        return [await asyncio.create_task(graph.aupdate_state(one.config, None, as_node="__copy__")) for one in states]

    assert len(asyncio.run(serve())) == 5


def test_a_channel_is_inherited_at_the_same_version_only(saver: Calls) -> None:
    """What the parent has of it at another version is no value of the checkpoint, named as changed or not."""
    root = saver.put("t", {"a": 1, "b": 1}, versions={"a": 1, "b": 1})
    changed = saver.put("t", {}, parent=root, versions={"a": 1, "b": 2}, changed=[])

    assert saver.at("t", changed).checkpoint["channel_values"] == {"a": 1}


def test_an_old_snapshot_of_a_delta_channel_does_not_come_back(anyones: Calls) -> None:
    """A version grew without being among the new ones: all writes since the snapshot count."""
    seed = anyones.put("t", {"log": ["seed"]}, versions={"log": 1})
    anyones.writes("t", seed, [("log", "w1")])
    second = anyones.put("t", {}, parent=seed, versions={"log": 2}, changed=[])
    anyones.writes("t", second, [("log", "w2")])
    tip = anyones.put("t", {}, parent=second, versions={"log": 3}, changed=[])

    history = anyones("get_delta_channel_history", config=config("t", tip), channels=["log"])["log"]
    assert [value for *_, value in history["writes"]] == ["w1", "w2"]
    assert history["seed"] == ["seed"]
