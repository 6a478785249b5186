"""Graphs for servers in tests: what they do follows from the last message, and waits for gates that a test opens."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import StreamWriter, interrupt

GATES: defaultdict[str, threading.Event] = defaultdict(threading.Event)
"""By name; a message `wait <name>` waits until its gate is set."""
BEGUN: defaultdict[str, threading.Event] = defaultdict(threading.Event)
"""By name; set when something waits for the gate."""


class State(TypedDict, total=False):
    """Messages, and how many were answered."""

    messages: Annotated[list[AnyMessage], add_messages]
    n: int


async def work(state: State, writer: StreamWriter) -> State:
    """Answer the last message."""
    text = str(state.get("messages", [])[-1].content)
    word, _, name = text.partition(" ")
    if word == "boom":
        msg = "boom happened"
        raise ValueError(msg)
    if word == "ask":
        text = f"{text} -> {interrupt({'question': 'go on?'})}"
    if word == "wait":
        BEGUN[name].set()
        while not GATES[name].is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
    if word == "tick":
        for number in range(int(name)):
            writer({"tick": number})
            await asyncio.sleep(0.002)
    if word == "large":
        writer("x" * int(name))
    return {"messages": [AIMessage(f"echo: {text}")], "n": state.get("n", 0) + 1}


async def check(state: State) -> State:
    """Do nothing more."""
    del state
    return {}


def build() -> Any:
    """Return a new graph, to be compiled."""
    builder: Any = StateGraph(State)
    builder.add_node("work", work)
    builder.add_node("check", check)
    builder.add_edge(START, "work")
    builder.add_edge("work", "check")
    return builder


agent = build().compile()


def last_text(state: State) -> str:
    """Return the last text of a human."""
    return next(str(one.content) for one in reversed(state.get("messages", [])) if one.type == "human")


async def think(state: State) -> State:
    """Say something before it asks, if it is to plan."""
    return {"messages": [AIMessage("let me see")]} if last_text(state).startswith("plan") else {}


async def act(state: State) -> State:
    """Ask as often as the message has `ask`; an answer may make it wait for a gate, or fail as long as that is closed."""
    text = last_text(state)
    answers: list[str] = []
    for number in range(text.count("ask")):
        answers.append(interrupt(f"question {number}"))
        word, _, name = answers[-1].partition(" ")
        if word == "boom" and not GATES[name].is_set():
            msg = "boom happened"
            raise ValueError(msg)
        if word == "wait":
            BEGUN[name].set()
            while not GATES[name].is_set():  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.01)
    return {} if text.startswith("plan") else {"messages": [AIMessage(" / ".join([text, *answers]))]}


def asking() -> Any:
    """Return a new graph that asks, to be compiled."""
    builder: Any = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("act", act)
    builder.add_edge(START, "think")
    builder.add_edge("think", "act")
    return builder


async def recall(state: State) -> State:
    """Say all that it was given and has said."""
    return {"messages": [AIMessage(f"<{' | '.join(str(one.content) for one in state.get('messages', []))}>")]}


def recalling() -> Any:
    """Return a new graph that says what it remembers, to be compiled."""
    builder: Any = StateGraph(State)
    builder.add_node("recall", recall)
    builder.add_edge(START, "recall")
    return builder


async def said(given: Any, config: Any) -> AsyncIterator[Any]:
    """Yield what an async generator function may."""
    del config
    yield "Hel"
    yield "lo"
    yield "values", {"given": given}


def say(text: str) -> dict[str, Any]:
    """Return the input of a run."""
    return {"messages": [{"role": "user", "content": text}]}
