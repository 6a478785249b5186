"""Taking a whole versioned value in: whether it goes on where the one here ends, and the events that it takes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..chat.events import Body
from ..errors import AlreadyExistsError
from .content import Piece, add_missing, size_of
from .copies import version_put, writes_put
from .decide import batches_of, living, written_slots
from .events import Begins, VersionContentPut, VersionKey, begun
from .interchange import CheckedValue, CheckedVersion, ListedValue, name_of, version_name
from .record import StoredWrite, VersionedState, VersionRecord, is_expired

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
