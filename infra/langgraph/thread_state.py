"""The state of a thread as it can be told from a checkpoint alone, without the graph."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name

from chatledger.domain.agents.record import StoredWrite

_BRANCH, _JOIN, _HIDDEN = "branch:to:", "join:", "__"
_START, _SENDS = "__start__", "__pregel_tasks"
_PULL, _PUSH = "~__pregel_pull, ", "~__pregel_push, "
_INTERRUPT, _ERROR = "__interrupt__", "__error__"
_NEVER: Final = -1


class ThreadTask(msgspec.Struct, frozen=True):
    """
    A task of the next step.

    Args:
        name: The node; empty when it cannot be told.
        id: The id of the task; None while it has not written.
        interrupts: What it waits for.
        error: What it failed with.
        is_done: Whether it has written what it writes.
    """

    name: str
    id: str | None = None
    interrupts: list[Any] = msgspec.field(default_factory=list[Any])
    error: Any = None
    is_done: bool = False


class ThreadState(msgspec.Struct, frozen=True):
    """
    The state of a thread at a checkpoint.

    Args:
        values: Of each channel of the state its value at the checkpoint, without pending writes. A delta channel is there
            only at its snapshots.
        next: The nodes that are to run; packets to nodes first, and then by name. As LangGraph has it: of the newest
            checkpoint without those that have run already, of one that was named and in a history with them.
        tasks: Their tasks, with those that are done.
        checkpoint: `thread_id`, `checkpoint_ns` as it is stored, and `checkpoint_id`.
        metadata: That of the checkpoint.
        created_at: When it was made, in ms since the epoch.
        parent_checkpoint: As `checkpoint`; None at the first.
        interrupts: What the tasks wait for.
    """

    values: dict[str, Any]
    next: list[str]
    tasks: list[ThreadTask]
    checkpoint: dict[str, str]
    metadata: dict[str, Any]
    created_at: int
    parent_checkpoint: dict[str, str] | None
    interrupts: list[Any]


def state_of(
    found: CheckpointTuple,
    writes: Sequence[StoredWrite],
    *,
    place: Mapping[str, str],
    parent_id: str | None,
    stored_at: int,
    is_live: bool,
) -> ThreadState:
    """The state at a checkpoint; `writes` are its pending writes as they are stored, which count for what is live."""
    checkpoint, values = found.checkpoint, found.checkpoint["channel_values"]
    tasks = _tasks(_due(checkpoint, values), writes, found.pending_writes or [])
    return ThreadState(
        values={
            name: _plain(value) for name, value in values.items() if not name.startswith((_BRANCH, _JOIN, _HIDDEN))
        },
        next=[task.name for task in tasks if task.name and not (is_live and task.is_done)],
        tasks=tasks,
        checkpoint=dict(place),
        metadata=dict(found.metadata),
        created_at=_time_of(checkpoint.get("ts"), stored_at),
        parent_checkpoint=None if parent_id is None else {**place, "checkpoint_id": parent_id},
        interrupts=[interrupt for task in tasks for interrupt in task.interrupts],
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _time_of(text: Any, stored_at: int) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (TypeError, ValueError):
        return stored_at


def _due(checkpoint: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """The tasks of the next step: what their path begins with, to the node. As LangGraph finds them, from the versions."""
    versions, seen = checkpoint.get("channel_versions", {}), checkpoint.get("versions_seen", {})

    def is_new(channel: str, node: str) -> bool:
        before = seen.get(node, {}).get(channel)
        return channel in values and (before is None or versions[channel] > before)

    packets: list[Any] = values.get(_SENDS) or []
    due = {f"{_PUSH}{number:010d}": str(packet.node) for number, packet in enumerate(packets)}
    nodes: set[str] = set()
    for channel in versions:
        if channel == _START and is_new(channel, _START):
            nodes.add(_START)
        elif channel.startswith(_BRANCH) and is_new(channel, channel.removeprefix(_BRANCH)):
            nodes.add(channel.removeprefix(_BRANCH))
        elif channel.startswith(_JOIN):
            awaited, _, node = channel.removeprefix(_JOIN).rpartition(":")
            if is_new(channel, node) and set(values[channel]) >= set(awaited.split("+")):
                nodes.add(node)
    return due | {_PULL + node: node for node in sorted(nodes)}


def _tasks(
    due: Mapping[str, str], writes: Sequence[StoredWrite], pending: Sequence[tuple[str, str, Any]]
) -> list[ThreadTask]:
    ids: dict[str, str] = {}
    done: set[str] = set()
    for write in writes:
        if write.task_path:
            # After the number of a packet follows a sign of no importance here.
            start = ", ".join(write.task_path.split(", ")[:2])
            ids.setdefault(start, write.task_id)
        if write.index >= 0:
            done.add(write.task_id)
    names = {**due} | {start: "" for start in ids if start not in due and start != _PULL + _START}
    return [_task(name, ids.get(start), done, pending) for start, name in names.items()]


def _task(name: str, task_id: str | None, done: set[str], pending: Sequence[tuple[str, str, Any]]) -> ThreadTask:
    if task_id is None:
        return ThreadTask(name)
    own = [(channel, value) for owner, channel, value in pending if owner == task_id]
    return ThreadTask(
        name=name,
        id=task_id,
        interrupts=[one for channel, value in own if channel == _INTERRUPT for one in value],
        error=next((value for channel, value in own if channel == _ERROR), None),
        is_done=task_id in done,
    )
