"""Events of runs in the form of LangGraph's thread protocol: numbered per thread, before anybody's filter."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from .run_events import END, ERROR, METADATA, RunEvent
from .run_streams import ThreadEventPlace

RUN_NUMBERS: Final = 10**9
"""The numbers that a run has: that of an event is made of the run's place in the thread, and of the place in its stream."""
EVENT_NUMBERS: Final = 64
"""The numbers that an event of a run has, which may become several of the protocol."""
MODES: Final = ("values", "updates", "messages-tuple", "custom", "checkpoints", "tasks")
"""The kinds of events that a run yields for the protocol to follow."""
_LIFECYCLE: Final = {"completed": "completed", "waiting": "interrupted", "error": "failed"}


class ProtocolEvent(NamedTuple):
    """An event of the protocol. `method`: such as `values`, `messages`, `lifecycle` or `input.requested`."""

    method: str
    namespace: list[str]
    data: Any
    more: Mapping[str, Any] = {}

    @property
    def channel(self) -> str:
        """The channel that clients subscribe to for it."""
        if self.method == "input.requested":
            return "input"
        name = cast("dict[str, Any]", self.data).get("name") if self.method == "custom" else None
        return f"custom:{name}" if name else self.method


class Subscription(msgspec.Struct):
    """The events that a client wants."""

    channels: list[str]
    namespaces: list[list[str]] | None = None
    depth: int | None = None
    since: int | None = None

    def fits(self, event: ProtocolEvent) -> bool:
        channel = event.channel
        if channel not in self.channels and not (channel.startswith("custom:") and "custom" in self.channels):
            return False
        return not self.namespaces or any(_is_within(event.namespace, prefix, self.depth) for prefix in self.namespaces)


def _is_within(namespace: Sequence[str], prefix: Sequence[str], depth: int | None) -> bool:
    if len(prefix) > len(namespace) or (depth is not None and len(namespace) - len(prefix) > depth):
        return False
    return all(
        # A name without an id, such as `review`, stands for all calls of that node: `review:1a2b`.
        own == wanted or (":" not in wanted and own.partition(":")[0] == wanted)
        for own, wanted in zip(namespace, prefix, strict=False)
    )


def number_of(place: ThreadEventPlace, part: int) -> int:
    """Return the number of the event that a part of a run's event has become."""
    return place.run * RUN_NUMBERS + place.number * EVENT_NUMBERS + min(part, EVENT_NUMBERS - 1)


def place_before(number: int) -> ThreadEventPlace:
    """Return the place to read from for what follows an event: the beginning of its run, as messages need their beginnings."""
    return ThreadEventPlace(number // RUN_NUMBERS)


def envelope(run_id: str, place: ThreadEventPlace, part: int, event: ProtocolEvent, time_ms: int) -> dict[str, Any]:
    return {
        "type": "event",
        "event_id": f"{run_id}:{place.number}.{part}",
        "seq": number_of(place, part),
        "method": event.method,
        "params": {"namespace": event.namespace, "timestamp": time_ms, "data": event.data, **event.more},
    }


class Translating:
    """Makes events of the protocol of those of one run, which are to be given from the first."""

    def __init__(self, graph_name: str | None) -> None:
        self._graph_name = graph_name
        self._asked: set[str] = set()
        self._failed: str | None = None
        self._open: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}
        self._held: list[ProtocolEvent] = []

    def of(self, event: RunEvent) -> list[ProtocolEvent]:
        """
        Return what may be sent now that an event of the run has come.

        A graph tells values before their checkpoint, and the protocol after it: values wait for the event that follows.
        """
        held, translated = self._held, self._translated(event)
        self._held = translated if event.base == "values" else []
        if held and event.base == "checkpoints" and event.namespace == held[0].namespace:
            return [*translated, *held]
        return held if self._held else [*held, *translated]

    def _translated(self, event: RunEvent) -> list[ProtocolEvent]:
        name, namespace = event.base, event.namespace
        data: Any = msgspec.json.decode(event.data)
        if name == METADATA:
            return [ProtocolEvent("lifecycle", [], {"event": "running", "graph_name": self._graph_name})]
        if name == ERROR:
            self._failed = str(data.get("message", ""))
            return []
        if name == END:
            return [*self._finished(), ProtocolEvent("lifecycle", [], self._end(data))]
        if name == "values":
            values: dict[str, Any] = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
            requests = self._requests(namespace, values.pop("__interrupt__", None) or [])
            return [ProtocolEvent(name, namespace, data), *requests]
        if name == "updates":
            events: list[ProtocolEvent] = []
            for node, update in data.items():
                if node == "__interrupt__":
                    events += self._requests(namespace, update or [])
                else:
                    events.append(ProtocolEvent(name, namespace, update, {"node": node}))
            return events
        if name == "messages":
            return self._message(namespace, data[0], data[1])
        if name == "checkpoints":
            return [ProtocolEvent(name, namespace, _checkpoint(data))]
        if name == "custom":
            return [ProtocolEvent(name, namespace, {"payload": data})]
        return [ProtocolEvent(name, namespace, data)] if name == "tasks" else []

    def _end(self, data: Mapping[str, Any]) -> dict[str, Any]:
        end: dict[str, Any] = {"event": _LIFECYCLE.get(data["status"], "failed"), "graph_name": self._graph_name}
        if self._asked:
            end["event"] = "interrupted"
        if end["event"] == "failed":
            end["error"] = self._failed or "the run was ended"
        if data.get("checkpoint_id"):
            end["checkpoint"] = {"id": data["checkpoint_id"]}
        return end

    def _requests(self, namespace: list[str], interrupts: Sequence[Mapping[str, Any]]) -> list[ProtocolEvent]:
        events: list[ProtocolEvent] = []
        for interrupt in interrupts:
            interrupt_id, value = interrupt.get("id"), interrupt.get("value")
            if interrupt_id not in self._asked:
                # `value` is what langgraph-sdk reads, `payload` what the protocol says.
                data = {"interrupt_id": interrupt_id, "payload": value, "value": value}
                events.append(ProtocolEvent("input.requested", namespace, data))
        self._asked.update(str(interrupt.get("id")) for interrupt in interrupts)
        return events

    def _message(
        self, namespace: list[str], message: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> list[ProtocolEvent]:
        message_id, kind = str(message.get("id")), str(message.get("type", ""))
        parts: list[dict[str, Any]] = []
        if message_id not in self._open:
            self._open[message_id], self._texts[message_id] = namespace, ""
            role = "ai" if kind.startswith("AI") or kind == "ai" else kind if kind in {"human", "system"} else "ai"
            origin = {name: metadata[name] for name in ("langgraph_node", "run_id", "thread_id") if name in metadata}
            parts.append({"event": "message-start", "role": role, "id": message_id, "metadata": origin})
            parts.append({"event": "content-block-start", "index": 0, "content": {"type": "text", "text": ""}})
        text = _text(message.get("content"))
        if text:
            self._texts[message_id] += text
            delta = {"type": "text-delta", "text": text}
            parts.append({"event": "content-block-delta", "index": 0, "delta": delta})
        if not kind.endswith("Chunk") or message.get("chunk_position") == "last":
            parts += self._closed(message_id, message)
        return [ProtocolEvent("messages", namespace, {**part, "message_id": message_id}) for part in parts]

    def _closed(self, message_id: str, message: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        del self._open[message_id]
        content = {"type": "text", "text": self._texts.pop(message_id)}
        parts: list[dict[str, Any]] = [{"event": "content-block-finish", "index": 0, "content": content}]
        calls: Sequence[Mapping[str, Any]] = (message or {}).get("tool_calls") or []
        for index, call in enumerate(calls, 1):
            shown = {"type": "tool_call", **{name: call.get(name) for name in ("id", "name", "args")}}
            parts.append({"event": "content-block-start", "index": index, "content": shown})
            parts.append({"event": "content-block-finish", "index": index, "content": shown})
        usage = (message or {}).get("usage_metadata")
        parts.append({"event": "message-finish"} | ({"usage": usage} if usage else {}))
        return parts

    def _finished(self) -> list[ProtocolEvent]:
        """Return the ends of messages whose last chunk did not say that it was."""
        return [
            ProtocolEvent("messages", namespace, {**part, "message_id": message_id})
            for message_id, namespace in list(self._open.items())
            for part in self._closed(message_id)
        ]


def _checkpoint(data: Mapping[str, Any]) -> dict[str, Any]:
    metadata: Mapping[str, Any] = data.get("metadata") or {}
    # No `step`: useStream takes values of a lower step than the highest it saw for a replay, and only adds from them. A run
    # from an earlier checkpoint counts from a lower step, so the page would show the new branch with the old one behind it.
    shown = {"id": _checkpoint_id(data.get("config")), "source": metadata.get("source")}
    parent_id = _checkpoint_id(data.get("parent_config"))
    return shown | ({} if parent_id is None else {"parent_id": parent_id})


def _checkpoint_id(config: Any) -> Any:
    return None if config is None else config["configurable"].get("checkpoint_id")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = cast("list[Any]", content)
    return "".join(
        str(cast("dict[str, Any]", part).get("text", "")) if isinstance(part, dict) else str(part) for part in parts
    )
