"""Executing a graph: its stream as events in the forms that LangGraph's clients read."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, cast

import msgspec
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.runnables import RunnableConfig
from langgraph.constants import TAG_HIDDEN
from langgraph.types import Command, Overwrite, Send

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
"""A kind of events that a run yields; `text` is what assistants say, as `{"content": ..., "type": "ai"}`."""
Named = tuple[str, Any]

_OF_GRAPH: Final[Mapping[Mode, tuple[str, ...]]] = {
    "messages-tuple": ("messages",),
    "text": ("messages", "tasks"),
    "events": ("messages", "tasks"),
}
"""The modes of the graph that ours are made of; the others are the graph's own."""
_SPEAKERS: Final = frozenset({"ai", "assistant", "tool"})
"""Roles and types of those whose texts are `data`, as plain messages name them."""
_OF_CHECKPOINT: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
_KNOWN_KEYS: Final = (*_OF_CHECKPOINT, "assistant_id", "graph_id")


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """
    A call of a graph.

    Args:
        input: Its input; None to go on where the thread is.
        interrupt_before, interrupt_after: Nodes to stop at, or `*`.
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
        return self.input if self.command is None else command_of(self.command)

    @property
    def graph_modes(self) -> list[str]:
        return list(dict.fromkeys(own for mode in self.modes for own in _OF_GRAPH.get(mode, (mode,))))


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
        suffix = "".join(f"|{step}" for step in namespace)
        for name, value in forms.of(mode, data, namespace):
            yield name + suffix, value


async def events_of_runner(runner: Runner, wanted: Execution, config: RunnableConfig) -> AsyncGenerator[Named]:
    """
    Call an async generator function, and yield its events.

    It yields pairs of a name and data; a text is a piece of the answer, anything else a `custom` event.
    """
    async for part in runner(wanted.given, config):
        if isinstance(part, str):
            yield "data", {"content": part, "type": "ai"}
        elif isinstance(part, tuple) and len(cast("tuple[Any, ...]", part)) == 2 and isinstance(part[0], str):
            yield part[0], part[1]
        else:
            yield "custom", part


async def _parts(
    graph: Graph, wanted: Execution, config: RunnableConfig, options: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Yield the parts of the graph's stream as tuples, and events of callbacks, where these are wanted, as objects."""
    runnable: Any = graph
    if "events" not in wanted.modes:
        async for part in runnable.astream(wanted.given, config, **options):
            yield part
        return
    root = str(config.get("run_id"))
    async for event in runnable.astream_events(wanted.given, config, version="v2", **options):
        if event["event"] == "on_chain_stream" and event["run_id"] == root:
            # What the graph streams has modes of its own: as an event it would come twice.
            yield event["data"].get("chunk")
        elif TAG_HIDDEN not in event.get("tags", ()):
            yield dict(event)


class _Forms:
    """The forms in which clients get what a graph streams."""

    def __init__(self, modes: Sequence[Mode]) -> None:
        self._modes = frozenset(modes)
        self._said: dict[str, BaseMessage] = {}
        speakers = {"ai", "tool"} if "events" in modes else {"ai"} if "text" in modes else set[str]()
        self._speech = _Speech(speakers) if speakers else None

    def of(self, mode: str, data: Any, namespace: Sequence[str]) -> list[Named]:
        """Return the events of a part of the graph's stream, or of the subgraph in a namespace."""
        if mode == "messages":
            message, metadata = data
            events: list[Named] = []
            if "messages-tuple" in self._modes:
                events.append(("messages", [message, metadata]))
            if "messages" in self._modes:
                events += self._accumulated(message, metadata)
            if self._speech is not None and isinstance(message, AIMessageChunk):
                events += self._speech.of_chunk(message, metadata)
            return events
        events = self._speech.of_task(data, namespace) if mode == "tasks" and self._speech else []
        if mode in self._modes:
            events.append((mode, _without_internals(data) if mode in {"checkpoints", "debug"} else data))
        return events

    def _accumulated(self, message: BaseMessage, metadata: Mapping[str, Any]) -> list[Named]:
        events: list[Named] = []
        message_id = message.id or ""
        before = self._said.get(message_id)
        if before is None:
            events.append(("messages/metadata", {message_id: {"metadata": metadata}}))
        whole: BaseMessage = message
        if isinstance(before, AIMessageChunk) and isinstance(message, AIMessageChunk):
            whole = before + message
        self._said[message_id] = whole
        is_part = isinstance(message, AIMessageChunk)
        shown = message_chunk_to_message(whole) if isinstance(whole, AIMessageChunk) else whole
        events.append(("messages/partial" if is_part else "messages/complete", [shown]))
        return events


class _Speech:
    """
    Texts of assistants and tools, each once: in pieces while a model streams it, else whole when its node is done.

    LangGraph's `messages` mode passes over messages that are plain dictionaries, so what nodes return is taken from the
    results of their tasks.
    """

    def __init__(self, speakers: set[str]) -> None:
        self._speakers = speakers
        self._ids: set[str] = set()
        """Ids of messages that were sent, or that a node got as input."""
        self._inputs: dict[str, Mapping[str, Any]] = {}
        """Inputs by the ids of tasks."""
        self._texts: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Texts that were sent, by tasks as namespaces name them; a node may return one again without its id."""

    def of_chunk(self, chunk: AIMessageChunk, metadata: Mapping[str, Any]) -> list[Named]:
        """Return the piece of a text that a model streams."""
        text, message_id = str(chunk.text), chunk.id or ""
        self._ids.add(message_id)
        for task in str(metadata.get("langgraph_checkpoint_ns", "")).split("|"):
            self._texts[task][message_id] = self._texts[task].get(message_id, "") + text
        return [("data", {"content": text, "type": "ai"})] if text else []

    def of_task(self, task: Mapping[str, Any], namespace: Sequence[str]) -> list[Named]:
        """Return what the result of a task says that was not said yet; nothing where it begins."""
        if "result" not in task:
            state: Any = task["input"]
            fields = cast("Mapping[str, Any]", state if isinstance(state, Mapping) else getattr(state, "__dict__", {}))
            self._inputs[task["id"]] = fields
            self._ids.update(message.id for value in fields.values() for message in _messages(value) if message.id)
            return []
        texts = [*self._texts.pop(f"{task['name']}:{task['id']}", {}).values()]
        before = self._inputs.pop(task["id"], {})
        events: list[Named] = []
        result: Mapping[str, Any] = task["result"] or {}
        for channel, value in result.items():
            for message in _messages(value, before.get(channel)):
                text, kind = str(message.text), "tool" if isinstance(message, ToolMessage) else "ai"
                was_said = message.id in self._ids or text in texts
                if message.id:
                    self._ids.add(message.id)
                if text in texts:
                    texts.remove(text)
                if was_said or not text or kind not in self._speakers:
                    continue
                events.append(("data", {"content": text, "type": kind}))
                # The node that has the subgraph returns the text once more, maybe under no id.
                for outer in namespace:
                    self._texts[outer][f"{task['id']} {len(events)}"] = text
        return events


def _messages(value: Any, before: Any = None) -> list[AIMessage | ToolMessage]:
    """Return the messages of assistants and tools in what a node returns for a channel, without those that it had `before`."""
    if isinstance(value, Overwrite):
        return _messages(cast("Any", value).value, before)
    if isinstance(value, Mapping) and "$writes" in value:  # several writes of one task
        return [message for write in cast("list[Any]", value["$writes"]) for message in _messages(write, before)]
    several: Sequence[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    if isinstance(before, list) and several[: len(cast("list[Any]", before))] == before:
        several = several[len(cast("list[Any]", before)) :]  # it returns the whole state, with what is new at the end
    messages: list[AIMessage | ToolMessage] = []
    for item in several:
        role: Any = None
        if isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            role = fields.get("role") or fields.get("type")
        elif isinstance(item, tuple) and len(cast("tuple[Any, ...]", item)) == 2:
            role = cast("tuple[Any, ...]", item)[0]
        if isinstance(role, str) and role in _SPEAKERS:
            with suppress(ValueError, TypeError, KeyError):  # it only looks like a message
                messages += cast("Any", convert_to_messages([cast("Any", item)]))
        elif isinstance(item, AIMessage | ToolMessage):
            messages.append(item)
    return messages


def _without_internals(data: Any) -> Any:
    """Leave only what clients need of the configs in an event of checkpoints: the rest are objects of the graph."""
    if not isinstance(data, Mapping):
        return data
    public: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", data).items():
        if key in {"config", "parent_config"} and isinstance(value, Mapping):
            configurable = cast("Mapping[str, Any]", value).get("configurable", {})
            public[key] = {"configurable": {name: configurable[name] for name in _KNOWN_KEYS if name in configurable}}
        elif key == "payload":
            public[key] = payload = _without_internals(value)
            for own, shown_name in (("config", "checkpoint"), ("parent_config", "parent_checkpoint")):
                if own in payload:  # clients of LangGraph's server read them in `debug`
                    place = cast("Mapping[str, Any]", cast("Any", payload[own] or {}).get("configurable", {}))
                    payload[shown_name] = {name: place[name] for name in _OF_CHECKPOINT if name in place} or None
        else:
            public[key] = value
    return public


def command_of(fields: Mapping[str, Any]) -> Command[Any]:
    """Return a command of LangGraph: `update`, `resume`, and `goto` a node, or nodes with their input."""
    goto: Any = fields.get("goto") or ()
    steps: list[Any] = [goto] if isinstance(goto, str | Mapping) else list(goto)
    sends = [step if isinstance(step, str) else Send(step["node"], step.get("input")) for step in steps]
    return Command(update=fields.get("update"), resume=fields.get("resume"), goto=sends)
