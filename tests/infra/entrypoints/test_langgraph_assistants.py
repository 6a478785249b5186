"""One saver for many assistants: what the config names as `assistant_id` has a namespace of its own, as `for_assistant` gives it."""

# Graphs take functions of states that pyright knows nothing of.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

import asyncio
import copy
import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from tests.support.langgraph_programs import PROGRAMS, Log, Program, asking, fan_out, nested, react
from tests.support.soak import examples

import chatledger
from chatledger.domain.errors import InvalidValueError, NamespaceError
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver

LOGGER = "chatledger.infra.entrypoints.langgraph.bound"
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def of(assistant_id: Any, thread_id: str = "t") -> Any:
    return {"configurable": {"thread_id": thread_id, "assistant_id": assistant_id}}


@pytest.mark.matrix
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_finds_what_it_finds_in_memory(ledger: chatledger.Ledger, program: Program) -> None:
    """With another assistant's checkpoints on the same thread: loops, interrupts, time travel, subgraphs."""
    saver = LedgerSaver(ledger, by_assistant=True)
    expected = [program(InMemorySaver(), of(name)) for name in "ab"]

    found = [program(saver, of(name)) for name in "ab"]
    assert without_ids(found) == without_ids(expected)


def without_ids(found: Any) -> str:
    import re

    return re.sub(r"id='[0-9a-f]{32}'", "", repr(found))


@pytest.mark.parametrize("make", [asking, nested])
def test_two_assistants_on_one_thread_are_apart(ledger: chatledger.Ledger, make: Callable[[Any], Any]) -> None:
    """NS-7, NS-8: one compiled graph, sync and async; what is stored is what the savers bound to each of them see."""
    saver = LedgerSaver(ledger, by_assistant=True)
    graph = make(saver)
    alone = {name: make(InMemorySaver()) for name in "ab"}
    for name in "ab":
        expected = alone[name].invoke({"log": [name]}, CONFIG)
        assert without_ids(graph.invoke({"log": [name]}, of(name))) == without_ids(expected)
    for name in "ba":
        expected = alone[name].invoke(Command(resume=name), CONFIG)
        found = asyncio.run(graph.ainvoke(Command(resume=name), of(name)))
        assert without_ids(found) == without_ids(expected)

    for name in "ab":
        bound = make(LedgerSaver(ledger).for_assistant(name))
        values = [one.values for one in graph.get_state_history(of(name))]
        assert values == [one.values for one in alone[name].get_state_history(CONFIG)]
        assert values == [one.values for one in bound.get_state_history(CONFIG)]
        assert graph.get_state(of(name)).config["configurable"]["assistant_id"] == name
    assert {one.partition("|")[0] for one in saver.threads()[0].namespaces} == {"assistant:a", "assistant:b"}


def test_a_bound_saver_lists_nothing_of_other_assistants(ledger: chatledger.Ledger) -> None:
    """NS-14."""
    graph = asking(LedgerSaver(ledger, by_assistant=True))
    for name in "ab":
        graph.invoke({"log": [name]}, of(name))
    graph.invoke(Command(resume="b"), of("b"))

    (info,) = LedgerSaver(ledger).for_assistant("a").threads()
    assert info.namespaces == ["assistant:a"]
    assert info.checkpoint_count == len(list(LedgerSaver(ledger).for_assistant("a").list(CONFIG)))
    assert LedgerSaver(ledger).for_assistant("c").threads() == []


def test_what_was_read_is_enough_to_go_on(ledger: chatledger.Ledger) -> None:
    """The configs of states name the assistant: forks, updates and copies stay with it."""
    graph = fan_out(LedgerSaver(ledger, by_assistant=True))
    for name in "ab":
        graph.invoke({"log": [name]}, of(name))
    first = [*graph.get_state_history(of("a"))][-1]
    fork = graph.update_state(first.config, {"log": ["u"]}, as_node="__start__")

    assert graph.get_state(fork).values["log"][-1] == "u"
    assert graph.invoke(None, fork)["log"][0] == "u"
    assert graph.get_state(of("b")).values["log"][0] == "b"
    assert graph.get_state(first.config).parent_config is None
    states = [*graph.get_state_history(of("a"))]
    assert all(one.parent_config["configurable"]["assistant_id"] == "a" for one in states if one.parent_config)


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "per call"])
def test_states_of_subgraphs_are_those_of_the_assistant(ledger: chatledger.Ledger, *, is_kept: bool) -> None:
    """LangGraph asks for them with the id of the thread alone. A subgraph that keeps its state has one namespace in each."""
    inner: Any = StateGraph(Log)
    inner.add_node("ask", lambda state: {"log": [f"{state['log'][0]} heard {interrupt('?')}"]})
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(Log)
    outer.add_node("sub", inner.compile(checkpointer=True if is_kept else None))
    outer.add_edge(START, "sub")
    graph = outer.compile(checkpointer=LedgerSaver(ledger, by_assistant=True))
    for name in "ab":
        graph.invoke({"log": [name]}, of(name))

    for name in "ab":
        (task,) = graph.get_state(of(name), subgraphs=True).tasks
        assert task.state.values == {"log": [name]}
        assert asyncio.run(graph.aget_state(of(name), subgraphs=True)).tasks[0].state.values == {"log": [name]}
        named = graph.get_state(of(name)).tasks[0].state
        assert graph.get_state(copy.deepcopy(named)).values == {"log": [name]}
        as_json = json.loads(json.dumps(named))
        if is_kept:
            with pytest.raises(InvalidValueError, match="assistant_id"):
                graph.get_state(as_json)
        else:
            assert graph.get_state(as_json).values == {"log": [name]}
        graph.update_state(task.state.config, {"log": [f"{name} told"]})
        assert graph.invoke(Command(resume="1"), of(name))["log"][-2:] == [f"{name} told", f"{name} heard 1"]


def test_without_an_assistant_the_only_one_is_meant(ledger: chatledger.Ledger) -> None:
    """As NS-23 has it for states. A server asks so, which knows the thread only."""
    graph = asking(LedgerSaver(ledger, by_assistant=True))
    with pytest.raises(InvalidValueError, match="assistant_id"):
        graph.invoke({"log": ["x"]}, CONFIG)
    assert ledger.last_position() == 0
    graph.invoke({"log": ["a"]}, of("a"))
    assert graph.get_state(CONFIG).values["log"] == ["a"]
    graph.update_state(CONFIG, {"log": ["u"]})
    assert graph.get_state(of("a")).values["log"] == ["a", "u"]
    graph.invoke({"log": ["b"]}, of("b"))

    with pytest.raises(InvalidValueError, match="'assistant:a', 'assistant:b'"):
        graph.get_state(CONFIG)
    found = [(one.config["configurable"]["assistant_id"], one.values["log"]) for one in graph.get_state_history(CONFIG)]
    assert [log for name, log in found if name == "a"] == [
        one.values["log"] for one in graph.get_state_history(of("a"))
    ]
    assert {name for name, _ in found} == {"a", "b"}
    assert len([*graph.get_state_history(CONFIG, limit=2)]) == 2


def test_threads_are_copied_and_deleted_as_a_whole(ledger: chatledger.Ledger) -> None:
    saver = LedgerSaver(ledger, by_assistant=True)
    graph = asking(saver)
    for name in "ab":
        graph.invoke({"log": [name]}, of(name))
    saver.copy_thread("t", "copy")
    saver.prune(["copy"])
    saver.delete_thread("t")

    assert [graph.invoke(Command(resume="1"), of(name, "copy"))["log"] for name in "ab"] == [["a"], ["b"]]
    assert [graph.get_state(of(name)).values for name in "ab"] == [{}, {}]
    saver.for_assistant("a").delete_thread("copy")
    assert [graph.get_state(of(name, "copy")).values for name in "ab"] == [{}, {"log": ["b"]}]


def test_what_is_the_id_of_an_assistant(ledger: chatledger.Ledger) -> None:
    """NS-5; a server gives UUIDs."""
    saver = LedgerSaver(ledger, by_assistant=True)
    with pytest.raises(NamespaceError):
        saver.get_tuple(of("a|b"))
    Calls(saver, is_async=False).saver.put(
        {"configurable": {**of(UUID(int=1))["configurable"], "checkpoint_ns": ""}}, first(), {}, {}
    )
    assert saver.threads()[0].namespaces == [f"assistant:{UUID(int=1)}"]
    assert saver.get_tuple(of(str(UUID(int=1)))) is not None


def first() -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    return empty_checkpoint()


def test_checkpoints_of_no_assistant_stay_readable(ledger: chatledger.Ledger) -> None:
    """NS-28: what was stored before is under none, until `migrate_namespace` brings it to its assistant."""
    asking(LedgerSaver(ledger)).invoke({"log": ["old"]}, of("a"))
    saver = LedgerSaver(ledger, by_assistant=True)
    graph = asking(saver)
    assert graph.get_state(CONFIG).values["log"] == ["old"]
    assert graph.get_state(of("a")).values == {}
    saver.migrate_namespace("t")

    assert graph.get_state(of("a")).values["log"] == ["old"]
    assert len(graph.invoke(Command(resume="1"), of("a"))["__interrupt__"]) == 1


@pytest.mark.guard
@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("tu"), st.integers(0, 1)), max_size=8))
def test_any_order_of_runs_is_that_of_savers_of_their_own(runs: list[tuple[str, str, int]]) -> None:
    """Of each assistant on each thread, through one graph, the messages are those of a graph of its own."""
    alone = {name: react(InMemorySaver()) for name in "abc"}
    with chatledger.open("memory:") as ledger:
        shared = react(LedgerSaver(ledger, by_assistant=True))
        for number, (name, thread_id, is_async) in enumerate(runs):
            message: Any = {"messages": [HumanMessage(f"{number}", id=f"h{number}")]}
            expected = alone[name].invoke(message, of(name, thread_id))
            call = shared.ainvoke(message, of(name, thread_id)) if is_async else None
            found = shared.invoke(message, of(name, thread_id)) if call is None else asyncio.run(call)
            assert repr(found) == repr(expected)


class TestMixing:
    """Without `by_assistant`, assistants that share a thread share one state, as with any other saver; the log says so."""

    def test_it_is_told_once_of_each_thread(self, ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture) -> None:
        graph = fan_out(LedgerSaver(ledger))
        with caplog.at_level(logging.WARNING):
            for thread_id in ("t", "t", "u"):
                for name in "aab":
                    graph.invoke({"log": [name]}, of(name, thread_id))

        assert [record.name for record in caplog.records] == [LOGGER, LOGGER]
        for message, thread_id in zip(caplog.messages, "tu", strict=True):
            assert message.startswith(f"the assistants 'a' and 'b' share one state on thread '{thread_id}'")
            assert "by_assistant=True" in message

    @pytest.mark.parametrize("options", [{"by_assistant": True}, {}])
    def test_what_does_not_mix_is_not_told(
        self, ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
    ) -> None:
        saver = LedgerSaver(ledger, **options)
        with caplog.at_level(logging.WARNING):
            for name in "ab":
                for _ in range(2):
                    fan_out(saver if options else saver.for_assistant(name)).invoke({"log": [name]}, of(name))
                    fan_out(saver if options else saver.for_assistant(name)).invoke(
                        {"log": [name]}, of(name, f"own {name}")
                    )

        assert caplog.messages == []


@pytest.mark.parametrize("namespace", ["run:1", "a|b", "no colon", "assistant:x|part"])
def test_a_saver_is_bound_to_any_namespace(ledger: chatledger.Ledger, namespace: str) -> None:
    """NS-7: LangGraph resets the `checkpoint_ns` of a root graph, so the namespace that is asked for is bound to the saver."""
    saver = LedgerSaver(ledger)
    bound = saver.for_namespace(namespace)
    assert without_ids(nested(InMemorySaver()).invoke({"log": ["x"]}, CONFIG)) == without_ids(
        nested(bound).invoke({"log": ["x"]}, CONFIG)
    )
    nested(saver.for_assistant("x")).invoke({"log": ["y"]}, CONFIG)

    assert namespace == bound.namespace
    state = bound.get_thread_state("t")
    assert state is not None
    assert (namespace, "t") == (state.checkpoint["checkpoint_ns"], state.checkpoint["thread_id"])
    own = {one.checkpoint["checkpoint_ns"] for one in bound.get_thread_history("t", limit=None)}
    assert all(one == namespace or one.startswith(f"{namespace}|") for one in own)
    bound.delete_thread("t")
    assert bound.get_thread_state("t") is None
    assert saver.for_assistant("x").get_thread_state("t") is not None
    assert saver.for_namespace("").namespace is None
    with pytest.raises(InvalidValueError, match="checkpoint_ns"):
        saver.for_namespace("x" * 3_000)
