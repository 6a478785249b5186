"""Re-emit checkpoints that are in the index as new events: for copies whose source is erased, and for other namespaces."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ..chat.events import Body
from ..content import Content, Piece, references_of
from .decide import batches_of, task_batches
from .events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentWritesPut,
    Skeleton,
    TaskWrites,
    WriteSlot,
)
from .record import CheckpointRecord, StoredWrite, ThreadState


class Reemission(msgspec.Struct, frozen=True):
    """
    A checkpoint to be re-emitted in another namespace.

    Args:
        namespace, checkpoint_id: Where it is.
        to_namespace: Where it shall be.
        to_parent: The id of its parent there.
    """

    namespace: str
    checkpoint_id: str
    to_namespace: str
    to_parent: str | None


def decide_reemit(state: ThreadState, moves: Sequence[Reemission], *, limit: int) -> list[Body]:
    """
    Re-emit checkpoints with their writes in other namespaces of the same thread; those already there stay unchanged.

    Where that takes more than `limit` events, these are the first of them, and repeating it goes on.
    """
    bodies: list[Body] = []
    for move in moves:
        record = state.checkpoint(move.namespace, move.checkpoint_id)
        if record is None:
            continue
        if state.checkpoint(move.to_namespace, move.checkpoint_id) is None:
            there = msgspec.structs.replace(record, namespace=move.to_namespace, parent_id=move.to_parent)
            bodies.append(checkpoint_put(there))
        taken = {(write.task_id, write.index) for write in state.writes(move.to_namespace, move.checkpoint_id)}
        writes = state.writes(move.namespace, move.checkpoint_id)
        missing = [write for write in writes if (write.task_id, write.index) not in taken]
        bodies += writes_put(move.to_namespace, move.checkpoint_id, missing)
    return bodies[:limit]


def reemitted(
    state: ThreadState, namespace: str, checkpoint_id: str, is_written: Callable[[bytes], bool]
) -> list[Body]:
    """
    Return a checkpoint and its writes as events that need no other thread, for a copy whose source is to be erased.

    `is_written` says of a piece, by its digest, whether such events before these ones hold it.
    """
    record, writes = state.checkpoint(namespace, checkpoint_id), state.writes(namespace, checkpoint_id)
    found: dict[bytes, Content] = {}
    channels = {} if record is None else record.channels
    _collect(state.content, [*channels.values(), *(write.digest for write in writes)], found, is_written)
    bodies: list[Body] = [
        AgentContentPut(batch) for batch in batches_of([Piece(*item) for item in found.items()]) if batch
    ]
    if record is not None:
        bodies.append(checkpoint_put(record))
    bodies += writes_put(namespace, checkpoint_id, writes)
    if record is not None and (record.is_orphan or record.skeleton is not None):
        bare = () if record.skeleton is None else (Skeleton(namespace, checkpoint_id, record.skeleton),)
        orphans = ((namespace, checkpoint_id),) if record.is_orphan else ()
        bodies.append(AgentCheckpointsDeleted("pruned", skeletons=bare, orphans=orphans))
    return bodies


def writes_put(namespace: str, checkpoint_id: str, writes: Sequence[StoredWrite]) -> Iterator[Body]:
    """Yield the events that put writes, whose content is there."""
    by_call: dict[tuple[str, str, int], list[WriteSlot]] = {}
    for write in writes:
        slot = WriteSlot(write.index, write.channel, write.digest)
        by_call.setdefault((write.task_id, write.task_path, write.written_at), []).append(slot)
    for tasks in task_batches([TaskWrites(*call, tuple(slots)) for call, slots in by_call.items()]):
        if tasks:
            yield AgentWritesPut(namespace, checkpoint_id, tasks, pieces=())


def _collect(
    content_of: Callable[[bytes], Content | None],
    roots: Iterable[bytes],
    found: dict[bytes, Content],
    is_written: Callable[[bytes], bool],
) -> None:
    stack = [(digest, False) for digest in roots]
    while stack:
        digest, is_done = stack.pop()
        if digest in found or is_written(digest):
            continue
        content = content_of(digest)
        if content is None:
            continue
        if is_done:
            found[digest] = content
        else:
            stack.append((digest, True))
            stack.extend((child, False) for child in references_of(content))


def checkpoint_put(record: CheckpointRecord) -> AgentCheckpointPut:
    """Return the event that puts a checkpoint with its time, whose content is there."""
    return AgentCheckpointPut(
        namespace=record.namespace,
        checkpoint_id=record.checkpoint_id,
        parent_id=record.parent_id,
        checkpoint=record.checkpoint,
        metadata=record.metadata,
        channels=record.channels,
        pieces=(),
        runtime=record.runtime,
        run_id=record.run_id,
        stored_at=record.stored_at or None,
    )
