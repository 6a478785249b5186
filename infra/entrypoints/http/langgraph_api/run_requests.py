"""Requests for runs: what clients ask for, and what a run is made of it."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from chatledger.domain.errors import InvalidValueError

from .graph_events import Execution, Mode
from .run_order import Strategy

MAX_DELAY_S: Final = 24 * 60 * 60
_OF_CHECKPOINT: Final = ("checkpoint_id", "checkpoint_map")
_OURS: Final = ("thread_id", "run_id", "assistant_id", "graph_id")


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

    @property
    def modes(self) -> tuple[Mode, ...]:
        """What the run yields."""
        given = self.stream_mode
        return tuple(dict.fromkeys(given if isinstance(given, list) else [given or "values"])) or ("values",)

    @property
    def strategy(self) -> Strategy:
        """What to do when another run is on the thread."""
        return self.multitask_strategy or "enqueue"

    def check(self) -> None:
        """
        Refuse what the server cannot do.

        Raises:
            InvalidValueError: There is a webhook, or both an input and a command; or what is configured is no object.
        """
        if self.webhook is not None:
            msg = "webhooks are not called by this server: follow the run with GET /threads/{thread_id}/runs/{run_id}/join"
            raise InvalidValueError(msg)
        if self.input is not None and self.command is not None:
            msg = "give either an input or a command, not both"
            raise InvalidValueError(msg)
        _ = self.configurable

    def kwargs(self) -> dict[str, Any]:
        """Return what the run is asked to do, in the words of LangGraph's server."""
        return {
            "input": self.input,
            "command": self.command,
            "config": self.config or {},
            "context": self.context or {},
            "checkpoint": self.checkpoint,
            "checkpoint_id": self.checkpoint_id,
            "stream_mode": list(self.modes),
            "subgraphs": bool(self.stream_subgraphs),
            "resumable": True,
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
            "webhook": None,
            "durability": self.kept,
        }

    @property
    def kept(self) -> Literal["sync", "async", "exit"] | None:
        """When checkpoints are written; None for the graph's own choice."""
        if self.durability is None and self.checkpoint_during is not None:
            return "async" if self.checkpoint_during else "exit"
        return self.durability

    def execution(self, context: Mapping[str, Any]) -> Execution:
        """Return what the graph is to do; `context` is that of the assistant."""
        merged = {**context, **(self.context or self.configurable)}
        return Execution(
            input=self.input,
            command=self.command,
            context=merged or None,
            modes=self.modes,
            has_subgraphs=bool(self.stream_subgraphs),
            interrupt_before=self.interrupt_before,
            interrupt_after=self.interrupt_after,
            durability=self.kept,
        )

    @property
    def configurable(self) -> dict[str, Any]:
        """What is configured for this run, without what only the server and the graph may set."""
        given: Any = (self.config or {}).get("configurable") or {}
        if not isinstance(given, dict):
            msg = "config.configurable must be an object"
            raise InvalidValueError(msg)
        entries = cast("dict[str, Any]", given).items()
        return {name: value for name, value in entries if not name.startswith("__") and name not in _OURS}

    def place(self, namespace: str) -> dict[str, Any]:
        """
        Return where the run begins, for `configurable`; nothing for the end of the thread.

        Args:
            namespace: That of the assistant, which the graph knows as `""`.

        Raises:
            InvalidValueError: The checkpoint is none.
        """
        given = {name: value for name, value in (self.checkpoint or {}).items() if value is not None}
        if self.checkpoint_id is not None:
            given["checkpoint_id"] = self.checkpoint_id
        found: dict[str, Any] = {name: given[name] for name in _OF_CHECKPOINT if name in given}
        inner = given.get("checkpoint_ns") or ""
        if not isinstance(inner, str) or not isinstance(found.get("checkpoint_id", ""), str):
            msg = "checkpoint_id and checkpoint_ns must be text"
            raise InvalidValueError(msg)
        inner = "" if inner == namespace else inner.removeprefix(f"{namespace}|")
        return {**found, "checkpoint_ns": inner} if found or inner else {}
