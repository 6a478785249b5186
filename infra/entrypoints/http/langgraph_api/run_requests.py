"""Requests for runs, and what is made of them: records, configs and calls of graphs."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.versioned.keys import ASSISTANT, assistant_namespace, check_namespace

from ....clock import clock_ms
from ..problems import RequestError
from .assistants import TWO_CONTEXTS
from .graph_events import Execution, Mode
from .run_records import DUE_AT, KWARGS, NAMESPACE, STRATEGY, Strategy, own_metadata, recorded_kwargs

MAX_DELAY_S: Final = 24 * 60 * 60
_OF_CHECKPOINT: Final = ("checkpoint_id", "checkpoint_map")
_PLACE: Final = (*_OF_CHECKPOINT, "checkpoint_ns")
_OURS: Final = ("thread_id", "run_id", "assistant_id", "graph_id", *_PLACE)
TRIGGER, REFERENCES = "trigger_message_id", "reference_message_ids"
"""The keys of `configurable` for a run that a message of the chat sets off."""


class NewRun(msgspec.Struct, kw_only=True):
    """A run to be made. Other keys than these are ignored."""

    assistant_id: str
    input: Any = None
    command: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    checkpoint_id: str | None = None
    stream_mode: Mode | list[Mode] | None = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    interrupt_before: str | list[str] | None = None
    interrupt_after: str | list[str] | None = None
    webhook: str | None = None
    multitask_strategy: Strategy | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    after_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_DELAY_S)] | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None

    def __post_init__(self) -> None:
        # LangGraph's server takes the command where there are both, and clients send an empty input with each command.
        if self.command is not None:
            self.input = None

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The kinds of events that the run yields."""
        asked_modes = self.stream_mode
        return tuple(dict.fromkeys(asked_modes if isinstance(asked_modes, list) else [asked_modes or "values"])) or (
            "values",
        )

    @property
    def strategy(self) -> Strategy:
        """The way to go on when another run of the assistant is on the thread."""
        return self.multitask_strategy or "enqueue"

    @property
    def is_answer(self) -> bool:
        """Whether it goes on with what its assistant was at: a command, or neither an input nor a message."""
        return self.command is not None or (self.input is None and self.trigger_message_id is None)

    def check(self) -> None:
        """Refuse what the server cannot do: webhooks, and a context beside a configuration."""
        if self.webhook is not None:
            msg = "webhooks are not called by this server: follow the run with GET /threads/{thread_id}/runs/{run_id}/join"
            raise InvalidValueError(msg)
        _ = self.trigger_message_id, self.references
        if self.own_context and not self.configurable.keys() <= {TRIGGER, REFERENCES}:
            raise RequestError(400, TWO_CONTEXTS)

    def kwargs(self) -> dict[str, Any]:
        """Return the request in the words of LangGraph's server."""
        return {
            "input": self.input,
            "command": self.command,
            "config": self.config or {},
            "context": self.context or {},
            "checkpoint": self.checkpoint,
            "checkpoint_id": self.checkpoint_id,
            "stream_mode": list(self.modes),
            "subgraphs": bool(self.stream_subgraphs),
            # Whatever was asked: the events of each run are stored, and can be followed again from any of them.
            "resumable": True,
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
            "webhook": None,
            "durability": self.checkpointing,
        }

    def recorded(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of the run's record: those of clients, and those of this API."""
        kept_metadata = {**own_metadata(metadata), KWARGS: recorded_kwargs(self.kwargs()), STRATEGY: self.strategy}
        if self.namespace is not None:
            kept_metadata[NAMESPACE] = self.namespace
        if self.after_seconds:
            kept_metadata[DUE_AT] = clock_ms() + round(self.after_seconds * 1000)
        return kept_metadata

    @property
    def checkpointing(self) -> Literal["sync", "async", "exit"] | None:
        """The durability of checkpoints; None for the graph's own choice."""
        if self.durability is None and self.checkpoint_during is not None:
            return "async" if self.checkpoint_during else "exit"
        return self.durability

    def execution(self, context: Mapping[str, Any]) -> Execution:
        """Return the call of the graph; `context` is that of the assistant."""
        configured = {name: value for name, value in self.configurable.items() if name not in {TRIGGER, REFERENCES}}
        merged = {**context, **(self.own_context or configured)}
        return Execution(
            input=self.input,
            command=self.command,
            context=merged or None,
            modes=self.modes,
            has_subgraphs=bool(self.stream_subgraphs),
            interrupt_before=self.interrupt_before,
            interrupt_after=self.interrupt_after,
            durability=self.checkpointing,
        )

    @property
    def configurable(self) -> dict[str, Any]:
        """The `configurable` of this run, without what only the server and the graph may set."""
        return _without_ours(self._configured)

    @property
    def own_context(self) -> dict[str, Any]:
        """The context of this run, without what only the server and the graph may set."""
        return _without_ours(self.context or {})

    @property
    def _configured(self) -> dict[str, Any]:
        configurable: Any = (self.config or {}).get("configurable") or {}
        if not isinstance(configurable, dict):
            msg = "config.configurable must be an object"
            raise InvalidValueError(msg)
        return cast("dict[str, Any]", configurable)

    @property
    def trigger_message_id(self) -> str | None:
        """The message of the chat that sets the run off, by `config.configurable.trigger_message_id`."""
        message_id = self._configured.get(TRIGGER)
        if not isinstance(message_id, str | None):
            msg = f"config.configurable.{TRIGGER} must be text"
            raise InvalidValueError(msg)
        return message_id

    @property
    def references(self) -> list[str]:
        """Further messages that the run builds on, by `config.configurable.reference_message_ids`."""
        try:
            return msgspec.convert(self._configured.get(REFERENCES) or [], list[str])
        except msgspec.ValidationError as error:
            msg = f"config.configurable.{REFERENCES} must be a list of texts"
            raise InvalidValueError(msg) from error

    @property
    def namespace(self) -> str | None:
        """
        The namespace that the run asks for by `checkpoint_ns`; None for its assistant's own.

        With a `checkpoint_map`, `checkpoint_ns` is that of a subgraph instead, as LangGraph gives it.
        """
        place = self._place
        namespace = None if "checkpoint_map" in place else place.get("checkpoint_ns")
        return None if namespace is None else check_namespace(namespace)

    def namespace_for(self, assistant_id: str) -> str:
        """Return the namespace of the run, as it is stored; that of another assistant, or a part of its own, is refused."""
        own = assistant_namespace(assistant_id)
        namespace = self.namespace or own
        if namespace.startswith(ASSISTANT) and namespace != own:
            msg = (
                f"a run of assistant {assistant_id!r} cannot be in the namespace {namespace!r}: that is kept for another "
                f"assistant, or for a part of this one. Leave checkpoint_ns out for {own!r}, or name one that does not begin with {ASSISTANT!r}"
            )
            raise InvalidValueError(msg)
        return namespace

    @property
    def _place(self) -> dict[str, Any]:
        """The place where the request says that the run begins; a later source counts more, and an empty text names nothing."""
        place: dict[str, Any] = {}
        for source in (self._configured, self.checkpoint or {}, {"checkpoint_id": self.checkpoint_id}):
            place |= {name: source[name] for name in _PLACE if source.get(name)}
        return place

    def place(self, namespace: str) -> dict[str, Any]:
        """
        Return where the run begins, for `configurable`; nothing for the end of the thread.

        `checkpoint_id` counts most, then `checkpoint`, then `config.configurable`.
        """
        named = self._place
        place: dict[str, Any] = {name: named[name] for name in _OF_CHECKPOINT if name in named}
        inner = named.get("checkpoint_ns") or ""
        if not isinstance(inner, str) or not isinstance(place.get("checkpoint_id", ""), str):
            msg = "checkpoint_id and checkpoint_ns must be text"
            raise InvalidValueError(msg)
        if not isinstance(place.get("checkpoint_map", {}), dict):
            msg = "checkpoint_map must be an object"
            raise InvalidValueError(msg)
        inner = "" if inner == namespace else inner.removeprefix(f"{namespace}|")
        return {**place, "checkpoint_ns": inner} if place or inner else {}


def _without_ours(settings: Mapping[str, Any]) -> dict[str, Any]:
    # Names with `__` are LangGraph's own, such as `__pregel_checkpointer`: from a client they would take the place of the server's.
    return {name: value for name, value in settings.items() if not name.startswith("__") and name not in _OURS}
