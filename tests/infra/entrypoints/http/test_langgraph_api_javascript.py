"""LangGraph's API by LangGraph's client for JavaScript."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from tests.support import langgraph_client
from tests.support.http_world import serving
from tests.support.langgraph_client import echo
from tests.support.node_world import installed, needs_node, run_node
from tests.support.run_graphs import State, agent

import chatledger
from chatledger.server import create_app

PROGRAM = Path(langgraph_client.__file__).with_suffix(".mjs")
PACKAGES = ("@langchain/langgraph-sdk@1.15.0", "@langchain/core@1")
REACT = ("@langchain/react@1.1.0", "@langchain/core@1", "react@19", "react-test-renderer@19")


async def talk(state: State, config: RunnableConfig) -> State:
    """Say three words, one after the other."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    return {"messages": [await model.ainvoke(state.get("messages", []), config)]}


def talking() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("talk", talk)
    builder.add_edge(START, "talk")
    return builder


@needs_node
@pytest.mark.soak
def test_the_javascript_client_finds_what_it_expects() -> None:
    with serving(create_app(chatledger.open_async("memory:"), graphs={"agent": echo()})) as url:
        told = run_node(installed(*PACKAGES), PROGRAM.read_text(), url)
    assert told == [
        ["agent"],
        ["two", "one"],
        "one",
        "1",
        ["__start__", "work", "__end__"],
        ["agent", {}],
        [[2, [], True], [1, [], True], [None, ["work"], False]],
        ["work"],
        {"status": "idle", "extracted": {"last": "hi"}},
        1,
        2,
        1,
        404,
        {"text": "likes tea"},
        [["k", True]],
        [["a", "b"]],
        None,
    ]


@needs_node
@pytest.mark.soak
def test_the_javascript_client_runs_graphs() -> None:
    """Streams that go on after lost connections, waiting, interrupts and commands, branches, cancelling, batches."""
    with serving(create_app(chatledger.open_async("memory:"), graphs={"agent": agent})) as url:
        told = run_node(installed(*PACKAGES), PROGRAM.with_name("langgraph_runs.mjs").read_text(), url)
    assert told == {
        "streamed": ["custom", "end", "messages", "metadata", "updates", "values"],
        "last": ["tick 2", "echo: tick 2"],
        "joined": told["whole"],
        "whole": told["whole"],
        "lost": list(range(40)),
        "cutsLeft": 0,
        "interrupt": {"question": "go on?"},
        "status": "interrupted",
        "resumed": "echo: ask -> yes",
        "failed": "ValueError: boom happened",
        "fork": ["one", "echo: one", "other", "echo: other"],
        "forkByConfig": ["one", "echo: one", "third", "echo: third"],
        "branches": 3,
        "cancelled": "interrupted",
        "listed": ["success"] * 4,
        "batch": 1,
        "stateless": ["hi", "echo: hi"],
        "thread": "metadata",
    }


@needs_node
@pytest.mark.soak
def test_use_stream_shows_a_thread() -> None:
    """`@langchain/react`: a new thread, an edit on a branch, an interrupt, lost connections, a reload, another's run, tokens."""
    graphs = {"agent": agent, "talk": talking()}
    with serving(create_app(chatledger.open_async("memory:"), graphs=graphs)) as url:
        told = run_node(installed(*REACT), PROGRAM.with_name("use_stream.mjs").read_text(), url)
    assert told == {
        "first": ["one", "echo: one"],
        "second": ["one", "echo: one", "two", "echo: two"],
        "branch": ["one", "echo: one", "other", "echo: other"],
        "ends": ["echo: other", "echo: two", "echo: one"],
        "edited": ["first edited", "echo: first edited"],
        "asked": {"question": "go on?"},
        "answered": "echo: ask -> yes",
        "lost": 3,
        "afterLoss": "echo: tick 300",
        "reloaded": 8,
        "joined": "echo: tick 1000",
        "tokens": ["hi", "one two three"],
        "failed": told["failed"],
    }
    assert "boom happened" in told["failed"]
