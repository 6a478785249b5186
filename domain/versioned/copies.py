"""Re-emit versions that are in the index as new events: for copies whose source is erased, and for other lines."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..chat.events import Body
from .content import Piece, add_missing
from .decide import batches_of, task_batches, written_slots
from .events import TaskWrites, VersionContentPut, VersionPut, VersionWritesPut, WriteSlot
from .record import StoredWrite, VersionedState, VersionRecord


class Reemission(msgspec.Struct, frozen=True):
    """
    A version to be re-emitted in another line.

    Args:
        line, id: Where it is.
        to_line: Where it shall be.
        to_parent: The id of its parent there.
    """

    line: str
    id: str
    to_line: str
    to_parent: str | None


def decide_reemit(state: VersionedState, moves: Sequence[Reemission], *, limit: int) -> list[Body]:
    """
    Re-emit versions with their writes in other lines of the same value; those already there stay unchanged.

    Where that takes more than `limit` events, these are the first of them, and repeating it goes on.
    """
    bodies: list[Body] = []
    for move in moves:
        record = state.version(move.line, move.id)
        if record is None:
            continue
        if state.version(move.to_line, move.id) is None:
            there = msgspec.structs.replace(
                record, line=move.to_line, parent=move.to_parent, is_orphan=False, skeleton=None
            )
            bodies.append(version_put(there, expires_at=None if state.record is None else state.record.expires_at))
        taken = written_slots(state.writes(move.to_line, move.id))
        missing = [write for write in state.writes(move.line, move.id) if (write.task_id, write.index) not in taken]
        bodies += writes_put(move.to_line, move.id, missing)
    return bodies[:limit]


def reemitted(state: VersionedState, line: str, version_id: str, is_written: Callable[[bytes], bool]) -> list[Body]:
    """
    Return a version and its writes as events that need no other value, for a copy whose source is to be erased.

    `is_written` says of a piece, by its digest, whether such events before these ones hold it.
    """
    record, writes = state.version(line, version_id), state.writes(line, version_id)
    pieces: dict[bytes, Piece] = {}
    fields = [] if record is None else record.digests
    add_missing([*fields, *(write.digest for write in writes)], state.content, is_written, pieces)
    bodies: list[Body] = [VersionContentPut(batch) for batch in batches_of([*pieces.values()]) if batch]
    if record is not None:
        bodies.append(version_put(record, expires_at=None if state.record is None else state.record.expires_at))
    return [*bodies, *writes_put(line, version_id, writes)]


def writes_put(line: str, version_id: str, writes: Sequence[StoredWrite]) -> Iterator[Body]:
    """Yield the events that put writes, whose content is there."""
    by_call: dict[tuple[str, str, int], list[WriteSlot]] = {}
    for write in writes:
        slot = WriteSlot(write.index, write.channel, write.digest)
        by_call.setdefault((write.task_id, write.task_path, write.written_at), []).append(slot)
    for tasks in task_batches([TaskWrites(*call, tuple(slots)) for call, slots in by_call.items()]):
        if tasks:
            yield VersionWritesPut(line, version_id, tasks)


def version_put(record: VersionRecord, pieces: tuple[Piece, ...] = (), *, expires_at: int | None = None) -> VersionPut:
    """Return the event that puts a version with its time, whose content is there but for these pieces."""
    return VersionPut(
        line=record.line,
        id=record.id,
        parent=record.parent,
        fields=record.fields,
        pieces=pieces,
        frames=record.frames,
        runtime=record.runtime,
        run_id=record.run_id,
        node=record.node,
        is_final=record.is_final,
        expires_at=expires_at,
        stored_at=record.stored_at or None,
        is_orphan=record.is_orphan,
        skeleton=record.skeleton,
    )
