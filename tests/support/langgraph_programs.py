"""Graphs with fake models, and programs that run them: what they return must not depend on the saver."""

# Graphs take functions of states that pyright knows nothing of.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

import dataclasses
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

Program = Callable[[Any, Any], Any]
"""(saver, config) to what it found out."""


@dataclasses.dataclass
class Point:
    """A class of the user's."""

    x: int


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


class CountingModel(BaseChatModel):
    """Calls a tool when it is asked something, and says the answer then; its messages depend on the history only."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        number = len(messages)
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "look_up", "args": {"query": messages[-1].text, "tags": [number]}, "id": f"call-{number}"}
            answer = AIMessage("", tool_calls=[call], id=f"ai-{number}")
        else:
            answer = AIMessage(f"answer {number} to {messages[-1].text}", id=f"ai-{number}")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def react(saver: Any) -> Any:
    """A model and its tool, in a loop."""
    model = CountingModel()

    def call_model(state: Chat) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def use_tools(state: Chat) -> dict[str, Any]:
        last = state["messages"][-1]
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        return {
            "messages": [
                ToolMessage(f"found {call['args']['query']}", tool_call_id=call["id"], id=f"tool-{call['id']}")
                for call in calls
            ]
        }

    def route(state: Chat) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph: Any = StateGraph(Chat)
    graph.add_node("model", call_model)
    graph.add_node("tools", use_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def asking(saver: Any, name: str = "it") -> Any:
    """Asks twice before it goes on."""

    def ask(state: Log) -> dict[str, Any]:
        first = interrupt(f"{name}: first?")
        second = interrupt(f"{name}: second?")
        return {"log": [f"{name} heard {first} and {second}"]}

    graph: Any = StateGraph(Log)
    graph.add_node("ask", ask)
    graph.add_node("end", lambda state: {"log": [f"{name} ended after {len(state['log'])}"]})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "end")
    return graph.compile(checkpointer=saver)


def nested(saver: Any, *, is_stateful: bool = False) -> Any:
    """A subgraph that asks, inside of a graph."""
    inner: Any = StateGraph(Log)
    inner.add_node("prepare", lambda state: {"log": [f"prepared {len(state['log'])}"]})
    inner.add_node("ask", lambda state: {"log": [f"inner heard {interrupt('inner?')}"]})
    inner.add_edge(START, "prepare")
    inner.add_edge("prepare", "ask")
    outer: Any = StateGraph(Log)
    outer.add_node("before", lambda state: {"log": ["before"]})
    outer.add_node("inner", inner.compile(checkpointer=True if is_stateful else None))
    outer.add_node("after", lambda state: {"log": ["after"]})
    outer.add_edge(START, "before")
    outer.add_edge("before", "inner")
    outer.add_edge("inner", "after")
    return outer.compile(checkpointer=saver)


def fan_out(saver: Any) -> Any:
    """Packets to one node, and what it made of them in their order."""
    graph: Any = StateGraph(Log)
    graph.add_node("split", lambda state: {"log": ["split"]})
    graph.add_node("work", lambda packet: {"log": [f"worked on {packet['n']}"]})
    graph.add_edge(START, "split")
    graph.add_conditional_edges(
        "split", lambda _: [Send("work", {"n": n, "load": "x" * 2000}) for n in range(5)], ["work"]
    )
    return graph.compile(checkpointer=saver)


def run_loop(saver: Any, config: Any) -> Any:
    """Three turns of the loop."""
    graph = react(saver)
    return [graph.invoke({"messages": [HumanMessage(f"q{n}", id=f"h{n}")]}, config) for n in range(3)] + history(
        graph, config
    )


def run_interrupts(saver: Any, config: Any) -> Any:
    """Interrupted twice, and resumed."""
    graph = asking(saver)
    found = [graph.invoke({"log": ["start"]}, config), state(graph, config)]
    found += [graph.invoke(Command(resume="one"), config), state(graph, config)]
    return [*found, graph.invoke(Command(resume="two"), config), *history(graph, config)]


def run_time_travel(saver: Any, config: Any) -> Any:
    """Back to a step, on from there unchanged, and with another input; the former line stays."""
    graph = react(saver)
    graph.invoke({"messages": [HumanMessage("one", id="h1")]}, config)
    graph.invoke({"messages": [HumanMessage("two", id="h2")]}, config)
    past = [one for one in graph.get_state_history(config) if one.next == ("tools",)][-1]
    replayed = graph.invoke(None, past.config)
    forked = graph.update_state(past.config, {"messages": [HumanMessage("other", id="h3")]}, as_node="tools")
    on = graph.invoke(None, forked)
    later = graph.invoke({"messages": [HumanMessage("later", id="h4")]}, config)
    again = graph.invoke({"messages": [HumanMessage("again", id="h5")]}, past.config)
    return [replayed, on, later, again, *history(graph, config)]


def run_update(saver: Any, config: Any) -> Any:
    """The state is edited, at the head and on an empty thread."""
    graph = fan_out(saver)
    graph.update_state(config, {"log": ["by hand"]}, as_node="__start__")
    found = [state(graph, config), graph.invoke(None, config)]
    graph.update_state(config, {"log": ["more"]})
    return [*found, state(graph, config), graph.invoke({"log": ["on"]}, config), *history(graph, config)]


def run_nested(saver: Any, config: Any) -> Any:
    """A subgraph is interrupted and resumed, twice, and seen from outside."""
    graph = nested(saver)
    found: list[Any] = []
    for turn in range(2):
        found.append(graph.invoke({"log": [f"turn {turn}"]}, config))
        seen = graph.get_state(config, subgraphs=True)
        found += [seen.tasks[0].state.values, seen.tasks[0].state.next, seen.next]
        found.append(graph.invoke(Command(resume=f"r{turn}"), config))
    return [*found, *history(graph, config)]


def run_stateful(saver: Any, config: Any) -> Any:
    """A subgraph with a memory of its own, over two turns, and back to before the first."""
    graph = nested(saver, is_stateful=True)
    found: list[Any] = []
    for turn in range(2):
        found.append(graph.invoke({"log": [f"turn {turn}"]}, config))
        found.append(graph.invoke(Command(resume=f"r{turn}"), config))
    for past in [one for one in graph.get_state_history(config) if one.next in {("inner",), ("before",)}]:
        found.append(graph.invoke(None, past.config))
        found.append(graph.invoke(Command(resume="once more"), config))
    return [*found, *history(graph, config)]


def run_fan_out(saver: Any, config: Any) -> Any:
    """Packets."""
    graph = fan_out(saver)
    return [graph.invoke({"log": []}, config), graph.invoke({"log": ["again"]}, config), *history(graph, config)]


PROGRAMS: tuple[Program, ...] = (
    run_loop,
    run_interrupts,
    run_time_travel,
    run_update,
    run_nested,
    run_stateful,
    run_fan_out,
)


def state(graph: Any, config: Any) -> Any:
    """The visible part of the present state, without ids and times."""
    return _seen(graph.get_state(config))


def history(graph: Any, config: Any) -> list[Any]:
    """The same of all states."""
    return [_seen(one) for one in graph.get_state_history(config)]


def _seen(one: Any) -> Any:
    tasks = [(task.name, task.error, [pending.value for pending in task.interrupts], task.result) for task in one.tasks]
    return one.values, one.next, tasks, one.metadata["source"], one.metadata["step"]
