"""Taking a whole versioned value in: whether it goes on where the one here ends, and the events that it takes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..chat.events import Body
from ..errors import AlreadyExistsError
from .content import Piece, add_missing, size_of
from .decide import batches_of, living, task_batches, written_slots
from .events import Begins, TaskWrites, VersionContentPut, VersionKey, VersionPut, VersionWritesPut, WriteSlot, begun
from .interchange import CheckedValue, CheckedVersion, ListedValue, name_of, version_name
from .record import StoredWrite, VersionedState, VersionRecord, is_expired


class Reemission(msgspec.Struct, frozen=True):
    """A version to be re-emitted in another line. `to_line`: where it shall be."""

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


_MOST_COMMIT_BYTES: Final = 4 * 1024 * 1024
WriteKey = tuple[VersionKey, str, int]
"""A pending write: its version, its task, and its place there."""


def check_same(state: ListedValue, value: CheckedValue, now: int) -> dict[WriteKey, StoredWrite]:
    """
    Check that a value can be taken in: there is none of its id, or one of the two goes on where the other one ends.

    Writes below slot 0, such as interrupts and answers to them, are replaced when an agent goes on, so the longer one has the
    newer ones.

    Returns:
        The writes that are here, and that the export replaces.

    Raises:
        AlreadyExistsError: There is one with other content, or each has what the other lacks.
    """
    if state.record is None or is_expired(state.record, now):
        return {}
    replaced: dict[WriteKey, StoredWrite] = {}
    here = [(line, version_id) for line in state.lines() for version_id in state.ids_with_writes(line)]
    only_here: VersionKey | None = next((key for key in here if key not in value.versions), None)
    only_there: VersionKey | None = None
    for key, version in value.versions.items():
        stored, writes = state.version(*key), state.writes(*key)
        if _differs(version, stored, writes):
            raise _other_content(value, f"{version_name(value.family, key[1], key[0])} differs")
        by_slot = _by_slot(version.writes)
        replaced |= {
            (key, write.task_id, write.index): write
            for write in writes
            if write.index < 0 and _is_other(by_slot.get((write.task_id, write.index), write), write)
        }
        common = len(written_slots(version.writes) & written_slots(writes))
        if common < len(writes) or (stored is not None and version.record is None):
            only_here = only_here or key
        if common < len(version.writes) or (stored is None and version.record is not None):
            only_there = only_there or key
    if only_here is not None and only_there is not None:
        mine, theirs = (version_name(value.family, key[1]) for key in (only_here, only_there))
        why = f"it has {mine}, and the export has {theirs}, which the other lacks"
        if only_here == only_there:
            why = f"each has writes at {mine} that the other lacks"
        raise _other_content(value, why)
    if replaced and only_here is None and only_there is None:
        (_, version_id), _, _ = next(iter(replaced))
        where = version_name(value.family, version_id)
        raise _other_content(value, f"both end at {where} with other writes, and nothing says which are newer")
    return replaced if only_there is not None else {}


def _is_other(write: StoredWrite, other: StoredWrite) -> bool:
    """Whether two writes in one slot differ. When they were made does not matter, which other savers do not keep."""
    return msgspec.structs.replace(write, written_at=other.written_at) != other


def _by_slot(writes: Sequence[StoredWrite]) -> dict[tuple[str, int], StoredWrite]:
    return {(write.task_id, write.index): write for write in writes}


def _differs(version: CheckedVersion, stored: VersionRecord | None, writes: Sequence[StoredWrite]) -> bool:
    """
    Whether what both have of a version and its lasting writes, from slot 0 on, is not the same. When and where it was stored does
    not matter.
    """
    if version.record is not None and stored is not None:
        record = msgspec.structs.replace(version.record, stored_at=stored.stored_at, position=stored.position)
        if record != stored:
            return True
    by_slot = _by_slot(writes)
    return any(
        _is_other(by_slot.get((write.task_id, write.index), write), write)
        for write in version.writes
        if write.index >= 0
    )


def _other_content(value: CheckedValue, why: str) -> AlreadyExistsError:
    msg = (
        f"{name_of(value.family, value.key)} is here with other content: {why}. Nothing of it was written; import it into another "
        f"ledger, or delete the {value.family.name} that is here first"
    )
    return AlreadyExistsError(msg)


def decide_import_value(
    state: VersionedState,
    value: CheckedValue,
    versions: Sequence[CheckedVersion],
    now: int,
    *,
    is_begun: bool,
    replaced: Mapping[WriteKey, StoredWrite],
    limit: int,
) -> tuple[list[Body], int]:
    """
    Return what the value lacks of the first of some versions, in up to `limit` events, and how many of them are done with that.

    It is 0 where a single version takes more, and the next events go on with it. Only the first commit ends what has expired: once
    that is begun, the later ones go on with the new life. Of writes that are there with other content, those of `replaced` are
    written anew, as long as they are what it says.

    Raises:
        AlreadyExistsError: One of them is there and differs.
    """
    ending, alive = ([], state) if is_begun else living(state, now)
    bodies: list[Body] = [] if value.versions or alive.record is not None else [VersionContentPut(())]
    written: dict[bytes, Piece] = {}
    done = used_bytes = 0
    for version in versions:
        missing = list(_added(alive, value, version, written, replaced))
        size = sum(size_of(getattr(body, "pieces", ())) for body in missing)
        if bodies and (len(bodies) + len(missing) > limit or used_bytes + size > _MOST_COMMIT_BYTES):
            break
        bodies += missing
        used_bytes += size
        if len(bodies) > limit:
            del bodies[limit:]
            break
        done += 1
    if alive.record is not None:
        return bodies, done
    return [*ending, *begun(bodies, Begins(value.key, value.owner, value.created_at))], done


def _added(
    state: VersionedState,
    value: CheckedValue,
    version: CheckedVersion,
    written: dict[bytes, Piece],
    replaced: Mapping[WriteKey, StoredWrite],
) -> Iterator[Body]:
    """
    Yield what the value lacks of a version: itself after its writes, so that no agent finds it without them.

    `written` are the pieces that came in the same commit.
    """
    key = version.line, version.id
    stored, writes = state.version(*key), state.writes(*key)
    if _differs(version, stored, writes):
        msg = (
            f"another writer stored {version_name(value.family, version.id, version.line)} of {name_of(value.family, value.key)} with "
            "other content during the import. The parts that were imported before stay; import it into another ledger, or delete "
            "what is here first"
        )
        raise AlreadyExistsError(msg)
    record = version.record if stored is None else None
    here = _by_slot(writes)
    new = [write for write in version.writes if _is_new(write, here, replaced.get((key, write.task_id, write.index)))]
    pieces: dict[bytes, Piece] = {}
    roots = [*(() if record is None else record.digests), *(write.digest for write in new)]
    add_missing(reversed(roots), value.pieces.contents.get, lambda at: at in written or state.has_content(at), pieces)
    written |= pieces
    *earlier, last = batches_of([*pieces.values()])
    if record is None or new:  # a commit may end behind the writes, which name pieces that must be there then
        earlier, last = [*earlier, last], ()
    yield from (VersionContentPut(batch) for batch in earlier if batch)
    yield from writes_put(*key, new)
    if record is not None:
        yield version_put(record, last, expires_at=value.expires_at)


def _is_new(write: StoredWrite, here: Mapping[tuple[str, int], StoredWrite], replaced: StoredWrite | None) -> bool:
    stored = here.get((write.task_id, write.index))
    return stored is None or (stored == replaced and _is_other(stored, write))
