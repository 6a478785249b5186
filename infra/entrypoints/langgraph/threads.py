"""Questions about threads that LangGraph's interface does not have, and what is done to whole namespaces."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count
from chatledger.domain.values import SearchHit
from chatledger.domain.versioned.pruning import Migration, plan_migration
from chatledger.domain.versioned.record import StoredWrite
from chatledger.domain.versioned.standing import BRANCH, ERROR, INTERRUPT, JOIN, OF_GRAPH, SENDS, START
from chatledger.domain.wire import Value

from ...ledger.aio.awaiting import threaded
from ...ledger.threads import StoredCheckpoint, ThreadInfo
from .bound import BoundSaver

_PULL, _PUSH = "~__pregel_pull, ", "~__pregel_push, "


class ThreadTask(Value, frozen=True):
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


class ThreadState(Value, frozen=True):
    """
    The state of a thread at a checkpoint.

    Args:
        values: The values of the channels of the state at the checkpoint, without pending writes. A delta channel is there
            only at its snapshots.
        next: The nodes that are to run; packets to nodes first, and then by name. As LangGraph has it: of the newest
            checkpoint without those that have run already, of one that was named and in a history with them.
        tasks: Their tasks, with those that are done.
        checkpoint: `thread_id`, `checkpoint_ns` as it is stored, and `checkpoint_id`.
        metadata: The metadata of the checkpoint.
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
    checkpoint_tuple: CheckpointTuple,
    writes: Sequence[StoredWrite],
    *,
    place: Mapping[str, str],
    parent_id: str | None,
    stored_at: int,
    is_live: bool,
) -> ThreadState:
    """The state at a checkpoint; `writes` are its pending writes as they are stored, which count for what is live."""
    checkpoint, values = checkpoint_tuple.checkpoint, checkpoint_tuple.checkpoint["channel_values"]
    tasks = _tasks(_due(checkpoint, values), writes, checkpoint_tuple.pending_writes or [])
    try:
        created_at = round(datetime.fromisoformat(checkpoint["ts"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError):  # a checkpoint of another runtime may have no time of its own
        created_at = stored_at
    return ThreadState(
        values={
            name: value.value if isinstance(value, _DeltaSnapshot) else value
            for name, value in values.items()
            if not name.startswith(OF_GRAPH)
        },
        next=[task.name for task in tasks if task.name and not (is_live and task.is_done)],
        tasks=tasks,
        checkpoint=dict(place),
        metadata=dict(checkpoint_tuple.metadata),
        created_at=created_at,
        parent_checkpoint=None if parent_id is None else {**place, "checkpoint_id": parent_id},
        interrupts=[interrupt for task in tasks for interrupt in task.interrupts],
    )


def _due(checkpoint: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """The tasks of the next step: what their path begins with, to the node. As LangGraph finds them, from the versions."""
    versions, seen = checkpoint.get("channel_versions", {}), checkpoint.get("versions_seen", {})

    def is_new(channel: str, node: str) -> bool:
        before = seen.get(node, {}).get(channel)
        return channel in values and (before is None or versions[channel] > before)

    packets: list[Any] = values.get(SENDS) or []
    due = {f"{_PUSH}{number:010d}": str(packet.node) for number, packet in enumerate(packets)}
    nodes: set[str] = set()
    for channel in versions:
        if channel == START and is_new(channel, START):
            nodes.add(START)
        elif channel.startswith(BRANCH) and is_new(channel, channel.removeprefix(BRANCH)):
            nodes.add(channel.removeprefix(BRANCH))
        elif channel.startswith(JOIN):
            awaited, _, node = channel.removeprefix(JOIN).rpartition(":")
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
    names = {**due} | {start: "" for start in ids if start not in due and start != _PULL + START}
    return [_task(name, ids.get(start), done, pending) for start, name in names.items()]


def _task(name: str, task_id: str | None, done: set[str], pending: Sequence[tuple[str, str, Any]]) -> ThreadTask:
    if task_id is None:
        return ThreadTask(name)
    own = [(channel, value) for owner, channel, value in pending if owner == task_id]
    return ThreadTask(
        name=name,
        id=task_id,
        interrupts=[interrupt for channel, value in own if channel == INTERRUPT for interrupt in value],
        error=next((value for channel, value in own if channel == ERROR), None),
        is_done=task_id in done,
    )


class ThreadQueries(BoundSaver):
    """
    The part of a saver that is about threads as a whole.

    Namespaces are here those that are stored: `assistant:<id>`, and `assistant:<id>|<sub>` below it.
    """

    def threads(self) -> list[ThreadInfo]:
        """The threads that have something of this saver's, the oldest first, with the namespaces and checkpoints that are its own."""
        return self._threads.infos(within=self._root)

    athreads = threaded(threads)

    def get_thread_state(
        self, thread_id: str, checkpoint_ns: str | None = None, checkpoint_id: str | None = None
    ) -> ThreadState | None:
        """
        The state of an agent on a thread; None when there is none. Also of checkpoints that another runtime wrote, without values.

        Args:
            thread_id: The thread.
            checkpoint_ns: The namespace, as it is stored. None: that of the saver's assistant; of a saver of all, the only one.
            checkpoint_id: The checkpoint; the newest when None.

        Raises:
            InvalidValueError: There are several assistants, and none is named.
        """
        namespace = self._root if checkpoint_ns is None else checkpoint_ns
        if namespace is None:
            namespace = self._only_root(thread_id)
        if namespace is None or not self._is_ours(namespace):
            return None
        stored = self._threads.get(thread_id, namespace, checkpoint_id)
        return None if stored is None else self._thread_state(stored, is_live=checkpoint_id is None)

    aget_thread_state = threaded(get_thread_state)

    def get_thread_history(
        self, thread_id: str, checkpoint_ns: str | None = None, limit: int | None = 10, before: str | None = None
    ) -> list[ThreadState]:
        """
        The states of a thread, newest first; none of an unknown one.

        Args:
            thread_id: The thread.
            checkpoint_ns: Only of this namespace, as it is stored; of all when None.
            limit: At most so many; all when None.
            before: A checkpoint id; only those before it.
        """
        if limit is not None:
            check_count(limit, "limit")
        stored = self._threads.checkpoints(thread_id, checkpoint_ns, within=self._root, before=before, limit=limit)
        return list(map(self._thread_state, stored)) if limit != 0 else []

    aget_thread_history = threaded(get_thread_history)

    def search(self, query: str, *, thread_id: str | None = None, limit: int | None = 20) -> list[SearchHit]:
        """
        Find messages of the saver's threads by their words, or of one of them; see `Ledger.search`, which this asks.

        Of an assistant's saver those in its namespaces: for them all hits of the ledger are looked at.

        Raises:
            InvalidValueError: An argument breaks a rule.
        """
        most = limit if self._root is None else None
        hits = self._threads.ledger.search(query, thread_id=thread_id, where="threads", limit=most)
        own = (hit for hit in hits if hit.place is not None and self._is_ours(hit.place.namespace))
        return list(islice(own, limit))

    asearch = threaded(search)

    def delete_namespace(self, thread_id: str, checkpoint_ns: str) -> None:
        """
        Remove a namespace of a thread with those below it, for when an assistant is replaced.

        Raises:
            InvalidValueError: It is another assistant's than the saver's.
        """
        if not self._is_ours(checkpoint_ns):
            msg = f"this saver has {self._root!r} only, not {checkpoint_ns!r}; use the one that it was made from"
            raise InvalidValueError(msg)
        self._threads.delete(str(thread_id), within=checkpoint_ns)

    adelete_namespace = threaded(delete_namespace)

    def migrate_namespace(self, thread_id: str) -> Migration:
        """
        Copy checkpoints outside of assistants' namespaces to that of the assistant which their metadata name (`assistant_id`).

        Their writes come too, and the line of each assistant: the parent of a copy is the nearest ancestor of the same
        assistant. What is there already stays, and so do the originals; repeating copies nothing again.
        """
        with self._threads.reading(thread_id) as thread:
            moves, migration = plan_migration(thread, self._metadata, self._is_ours)
        self._threads.migrate(thread_id, moves)
        return migration

    amigrate_namespace = threaded(migrate_namespace)

    def _thread_state(self, stored: StoredCheckpoint, *, is_live: bool = False) -> ThreadState:
        record = stored.record
        place = {
            "thread_id": stored.thread_id,
            "checkpoint_ns": record.line,
            "checkpoint_id": record.id,
        }
        return state_of(
            self._tuple(stored, self._reader()),
            stored.writes if record.runtime == self._runtime else [],
            place=place,
            parent_id=stored.parent_id,
            stored_at=record.stored_at,
            is_live=is_live,
        )
