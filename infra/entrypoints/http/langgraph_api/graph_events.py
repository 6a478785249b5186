"""Executing a graph: its stream as events in the forms that LangGraph's clients read."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from .graphs import Graph, Runner

Mode = Literal[
    "values",
    "updates",
    "messages",
    "messages-tuple",
    "custom",
    "checkpoints",
    "tasks",
    "debug",
    "events",
    "text",
]
"""A kind of events that a run yields; `text` is what assistants say, as `{"content": ..., "type": "text"}`."""
Named = tuple[str, Any]

_IN_GRAPH: Final = {"messages-tuple": "messages", "text": "messages"}
_OWN: Final = frozenset({"events"})
_KNOWN_KEYS: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map", "assistant_id", "graph_id")


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a graph is to do.

    Args:
        input: Its input; None to go on where the thread is.
        command: Instead, `resume`, `update` and `goto`.
        context: What the graph is given as its context.
        modes: What is to be yielded.
        has_subgraphs: Whether also of subgraphs.
        interrupt_before, interrupt_after: Nodes to stop at, or `*`.
        durability: When checkpoints are written.
    """

    input: Any = None
    command: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    modes: tuple[Mode, ...] = ("values",)
    has_subgraphs: bool = False
    interrupt_before: str | list[str] | None = None
    interrupt_after: str | list[str] | None = None
    durability: Literal["sync", "async", "exit"] | None = None

    @property
    def given(self) -> Any:
        """The input or the command that the graph is called with."""
        return self.input if self.command is None else command_of(self.command)

    @property
    def graph_modes(self) -> list[str]:
        """The modes in the words of the graph."""
        return list(dict.fromkeys(_IN_GRAPH.get(mode, mode) for mode in self.modes if mode not in _OWN)) or ["values"]


async def events_of(graph: Graph, wanted: Execution, config: RunnableConfig) -> AsyncGenerator[Named]:
    """Execute a graph, and yield its events as name and data. Raises what the graph raises."""
    options: dict[str, Any] = {
        "context": wanted.context,
        "stream_mode": wanted.graph_modes,
        "subgraphs": wanted.has_subgraphs,
        "interrupt_before": wanted.interrupt_before,
        "interrupt_after": wanted.interrupt_after,
        "durability": wanted.durability,
    }
    forms = _Forms(wanted.modes)
    async for part in _parts(graph, wanted, config, options):
        if isinstance(part, dict):
            yield "events", part
            continue
        namespace, mode, data = part if wanted.has_subgraphs else ((), *part)
        suffix = "".join(f"|{one}" for one in namespace)
        for name, value in forms.of(mode, data):
            yield name + suffix, value


async def events_of_runner(runner: Runner, wanted: Execution, config: RunnableConfig) -> AsyncGenerator[Named]:
    """
    Call an async generator function, and yield its events.

    It yields pairs of a name and data; a text is a piece of the answer, anything else a `custom` event.
    """
    async for part in runner(wanted.given, config):
        if isinstance(part, str):
            yield "data", {"content": part, "type": "text"}
        elif isinstance(part, tuple) and len(cast("tuple[Any, ...]", part)) == 2 and isinstance(part[0], str):
            yield part[0], part[1]
        else:
            yield "custom", part


async def _parts(
    graph: Graph, wanted: Execution, config: RunnableConfig, options: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Yield the parts of the graph's stream as tuples, and what callbacks tell as objects, where that is wanted."""
    runnable: Any = graph
    if "events" not in wanted.modes:
        async for part in runnable.astream(wanted.given, config, **options):
            yield part
        return
    root = str(config.get("run_id"))
    async for event in runnable.astream_events(wanted.given, config, version="v2", **options):
        yield dict(event)
        if event["event"] == "on_chain_stream" and event["run_id"] == root:
            yield event["data"].get("chunk")


class _Forms:
    """The forms in which clients get what a graph streams."""

    def __init__(self, modes: Sequence[Mode]) -> None:
        self._modes = frozenset(modes)
        self._said: dict[str, BaseMessage] = {}

    def of(self, mode: str, data: Any) -> list[Named]:
        """Return the events of a part of the graph's stream."""
        if mode == "messages":
            message, metadata = data
            return self._message(message, metadata)
        if mode not in self._modes:
            return []
        if mode in {"checkpoints", "debug"}:
            return [(mode, _without_internals(data))]
        return [(mode, data)]

    def _message(self, message: BaseMessage, metadata: Mapping[str, Any]) -> list[Named]:
        found: list[Named] = []
        if "messages-tuple" in self._modes:
            found.append(("messages", [message, metadata]))
        if "messages" in self._modes:
            found += self._accumulated(message, metadata)
        if "text" in self._modes and isinstance(message, AIMessage) and message.text:
            found.append(("data", {"content": str(message.text), "type": "text"}))
        return found

    def _accumulated(self, message: BaseMessage, metadata: Mapping[str, Any]) -> list[Named]:
        found: list[Named] = []
        known_id = message.id or ""
        before = self._said.get(known_id)
        if before is None:
            found.append(("messages/metadata", {known_id: {"metadata": metadata}}))
        whole: BaseMessage = message
        if isinstance(before, AIMessageChunk) and isinstance(message, AIMessageChunk):
            whole = before + message
        self._said[known_id] = whole
        is_part = isinstance(message, AIMessageChunk)
        shown = message_chunk_to_message(whole) if isinstance(whole, AIMessageChunk) else whole
        found.append(("messages/partial" if is_part else "messages/complete", [shown]))
        return found


def _without_internals(data: Any) -> Any:
    """Leave only what clients need of the configs in an event of checkpoints: the rest are objects of the graph."""
    if not isinstance(data, Mapping):
        return data
    found: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", data).items():
        if key in {"config", "parent_config"} and isinstance(value, Mapping):
            configurable = cast("Mapping[str, Any]", value).get("configurable", {})
            found[key] = {"configurable": {name: configurable[name] for name in _KNOWN_KEYS if name in configurable}}
        elif key == "payload":
            found[key] = _without_internals(value)
        else:
            found[key] = value
    return found


def command_of(given: Mapping[str, Any]) -> Command[Any]:
    """Return a command of LangGraph: `update`, `resume`, and `goto` a node, or nodes with their input."""
    goto: Any = given.get("goto") or ()
    steps: list[Any] = [goto] if isinstance(goto, str | Mapping) else list(goto)
    sends = [step if isinstance(step, str) else Send(step["node"], step.get("input")) for step in steps]
    return Command(update=given.get("update"), resume=given.get("resume"), goto=sends)
