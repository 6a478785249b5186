"""LangGraph graphs of an `AgentState` that are observed: marks in the state, callbacks and differences, however they run."""

# Graphs take functions of states that pyright knows nothing of.
# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false

import asyncio
import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt
from pydantic import BaseModel

import chatledger
from chatledger.errors import InvalidValueError
from chatledger.graph_state import AgentState, StateObservers, initial_state
from chatledger.langgraph import LedgerSaver, observe

CONFIG: Any = {"configurable": {"thread_id": "t"}}
DOCUMENT: Any = {"id": "1", "title": "Riga", "body": "On the Daugava.", "metadata": {"source": "atlas"}}


def research() -> Any:
    """A graph of three nodes in a line, of which the last one jumps."""
    builder: Any = StateGraph(AgentState)
    builder.add_node("search", lambda _: {"docs": [DOCUMENT], "metadata": {"node_timings": {"search": 1.0}}})
    builder.add_node("rest", lambda _: None)
    builder.add_node("answer", lambda _: Command(update={"generated_text": "By the river."}, goto=END))
    builder.add_edge(START, "search")
    builder.add_edge("search", "rest")
    builder.add_edge("rest", "answer")
    builder.add_edge("answer", END)
    return builder


def seen_by(observers: StateObservers) -> list[tuple[Any, Any, str, Any]]:
    """A list to which each transition is added."""
    seen: list[tuple[Any, Any, str, Any]] = []
    observers.on_state_change(lambda old, new, node, diff: seen.append((old, new, node, diff)))
    return seen


def run(graph: Any, state: Any, config: Any, *, is_async: bool) -> Any:
    return asyncio.run(graph.ainvoke(state, config)) if is_async else graph.invoke(state, config)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_is_observed_is_what_is_stored(ledger: chatledger.Ledger, *, is_async: bool) -> None:
    """The state after each transition is that of the next checkpoint, which says who wrote last (GS-17)."""
    builder = research()
    seen = seen_by(observe(builder))
    graph = builder.compile(checkpointer=LedgerSaver(ledger))
    start = initial_state("ada", "Where?")
    final = run(graph, start, CONFIG, is_async=is_async)

    assert [("search", {"docs_count": {"from": 0, "to": 1}}), ("rest", {}), ("answer", {"generated_text": True})] == [
        (node, diff) for _, _, node, diff in seen
    ]
    stored = [state.values for state in graph.get_state_history(CONFIG)][::-1][2:]
    assert stored == [new for _, new, _, _ in seen]
    assert [old for old, _, _, _ in seen[1:]] == stored[:-1]
    assert [("search", False), ("rest", False), ("answer", True)] == [
        (values["metadata"]["current_node"], values["metadata"]["is_final_state"]) for values in stored
    ]
    assert final == stored[-1]
    plain = research().compile().invoke({**start, "metadata": final["metadata"]})
    assert plain == final


def test_coroutine_functions_are_awaited_and_failures_stop_nothing(
    ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    builder, nodes = research(), list[str]()
    observers = StateObservers()
    assert observe(builder, observers, ends=["rest"]) is observers

    async def note(_old: Any, new: Any, node: str, _diff: Any) -> None:
        await asyncio.sleep(0)
        new.clear()
        nodes.append(node)

    def fail(*_: Any) -> None:
        msg = "secret"
        raise RuntimeError(msg)

    observers.on_state_change(fail)
    observers.on_state_change(note)
    graph = builder.compile(checkpointer=LedgerSaver(ledger))
    final = asyncio.run(graph.ainvoke(initial_state("ada", "Where?"), CONFIG))

    assert ["search", "rest", "answer"] == nodes
    assert final["generated_text"] == "By the river."
    assert final["metadata"]["is_final_state"] is False
    assert "secret" not in caplog.text
    assert caplog.text.count("RuntimeError") == 3


def _extend(state: list[str] | None, writes: Any) -> list[str]:
    return [*(state or []), *(one for write in writes for one in write)]


class Wide(TypedDict):
    log: Annotated[list[str], operator.add]
    deltas: Annotated[list[str], DeltaChannel(_extend)]
    metadata: dict[str, Any]


def test_whatever_a_node_may_return(ledger: chatledger.Ledger) -> None:
    builder: Any = StateGraph(Wide)
    returned: dict[str, Any] = {
        "a": [Command(update={"log": ["a"]}), {"deltas": ["a"]}],
        "b": Command(update=[("log", ["b"]), ("log", ["c"]), ("deltas", ["b"])]),
        "c": {"log": Overwrite(["d"])},
        "d": Command(goto="e"),
        "e": {},
    }
    for name, value in returned.items():
        builder.add_node(name, lambda _, value=value: value, destinations=("e",) if name == "d" else None)
    for before, after in ((START, "a"), ("a", "b"), ("b", "c"), ("c", "d")):
        builder.add_edge(before, after)
    seen = seen_by(observe(builder))
    graph = builder.compile(checkpointer=LedgerSaver(ledger))
    graph.invoke({"log": [], "deltas": []}, CONFIG)

    assert list("abcde") == [node for _, _, node, _ in seen]
    assert [["a"], ["a", "b", "c"], ["d"], ["d"], ["d"]] == [new["log"] for _, new, _, _ in seen]
    assert [new for _, new, _, _ in seen] == [state.values for state in graph.get_state_history(CONFIG)][::-1][2:]


@dataclasses.dataclass
class Record:
    log: Annotated[list[str], operator.add]
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])


class Model(BaseModel):
    log: Annotated[list[str], operator.add]
    metadata: dict[str, Any] = {}


@pytest.mark.parametrize("schema", [Wide, Record, Model])
def test_states_of_any_kind_keep_their_metadata(ledger: chatledger.Ledger, schema: Any) -> None:
    builder: Any = StateGraph(schema)
    builder.add_node("a", lambda _: {"log": ["a"]})
    builder.add_node("b", lambda _: {"metadata": {"by": "b"}})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    seen = seen_by(observe(builder))
    graph = builder.compile(checkpointer=LedgerSaver(ledger))
    graph.invoke({"log": [], "metadata": {"by": "ada"}}, CONFIG)

    stored = [state.values for state in graph.get_state_history(CONFIG)][::-1][2:]
    assert ["ada", "b"] == [values["metadata"]["by"] for values in stored]
    assert stored == [new for _, new, _, _ in seen]


def test_a_subgraph_is_a_node_and_its_interrupts_are_found(ledger: chatledger.Ledger) -> None:
    inner: Any = StateGraph(AgentState)
    inner.add_node("ask", lambda _: {"generated_text": interrupt("Which?")})
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(AgentState)
    outer.add_node("child", inner.compile())
    outer.add_edge(START, "child")
    outer.add_edge("child", END)
    seen = seen_by(observe(outer))
    graph = outer.compile(checkpointer=LedgerSaver(ledger))
    graph.invoke(initial_state("ada", "Where?"), CONFIG)

    state = graph.get_state(CONFIG, subgraphs=True)
    assert ("Which?", ("child",)) == (state.interrupts[0].value, state.next)
    assert state.tasks[0].state.next == ("ask",)
    assert seen == []
    final = graph.invoke(Command(resume="this one"), CONFIG)
    assert [("child", {"generated_text": True})] == [(node, diff) for _, _, node, diff in seen]
    assert final["metadata"]["current_node"] == "child"


def test_nodes_beside_each_other_are_observed_each_by_itself(ledger: chatledger.Ledger) -> None:
    builder: Any = StateGraph(AgentState)
    for name in "ab":
        builder.add_node(name, lambda _, name=name: {"docs": [{**DOCUMENT, "id": name}]})
        builder.add_edge(START, name)
    seen = seen_by(observe(builder))
    final = builder.compile(checkpointer=LedgerSaver(ledger)).invoke(initial_state("ada", "Where?"), CONFIG)

    assert {"a", "b"} == {node for _, _, node, _ in seen}
    assert all(diff == {"docs_count": {"from": 0, "to": 1}} for _, _, _, diff in seen)
    assert len(final["docs"]) == 2
    assert final["metadata"]["current_node"] == "b"


def test_what_is_no_graph_is_refused() -> None:
    for wrong in (None, StateGraph(AgentState), research().compile()):
        with pytest.raises(InvalidValueError, match="before compile"):
            observe(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of it


def test_an_update_of_another_kind_is_refused() -> None:
    builder: Any = StateGraph(AgentState)
    builder.add_node("node", lambda _: 7)
    builder.add_edge(START, "node")
    observe(builder)
    with pytest.raises(InvalidValueError, match="node 'node' returned int"):
        builder.compile().invoke(initial_state("ada", "Where?"))
