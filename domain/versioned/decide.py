"""Decisions on versioned values: which events an operation takes, whatever family the value is of."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from ..chat.events import Body
from ..errors import (
    AlreadyExistsError,
    CheckpointConflictError,
    CheckpointExistsError,
    CorruptStateError,
    InvalidValueError,
    NotFoundError,
)
from ..limits import check_id
from ..log.codec import MAX_EVENT_BYTES
from ..log.tombstones import owner_digest
from .content import Content, Missing, Piece, Tree, size_of, tree_of
from .events import (
    Begins,
    FieldRef,
    Skeleton,
    TaskWrites,
    VersionContentPut,
    VersionKey,
    VersionPut,
    VersionsCopied,
    VersionsDeleted,
    VersionsExpirySet,
    VersionsRemoved,
    VersionWritesPut,
    WriteSlot,
    begun,
)
from .keys import check_checkpoint_id, check_namespace, family_of_stream, is_within
from .record import (
    PutVersion,
    StoredWrite,
    TaskPut,
    VersionedRecord,
    VersionedState,
    VersionRecord,
    ancestors,
    digests_of,
    is_expired,
)


def batches_of(pieces: Sequence[Piece], most_bytes: int = MAX_EVENT_BYTES // 2) -> Iterator[tuple[Piece, ...]]:
    """Split pieces into batches, each as large as one event holds; at least one batch."""
    batch: list[Piece] = []
    used = 0
    for piece in pieces:
        size = size_of([piece])
        if batch and used + size > most_bytes:
            yield tuple(batch)
            batch, used = [], 0
        batch.append(piece)
        used += size
    yield tuple(batch)


_MOST_SLOTS: Final = 100
"""A task may write to thousands of channels, which fit into no event together."""
_SLOT_BYTES: Final = 32  # a digest of 20, an index, and what MessagePack puts around them


def task_batches(tasks: Iterable[TaskWrites], most_bytes: int = MAX_EVENT_BYTES // 8) -> list[tuple[TaskWrites, ...]]:
    """Split writes into batches, each of which has room in an event beside 512 KiB of pieces; at least one batch."""
    batches: list[list[TaskWrites]] = [[]]
    used = 0
    for task in tasks:
        for at in range(0, len(task.slots), _MOST_SLOTS):
            slots = task.slots[at : at + _MOST_SLOTS]
            size = len(task.task_id) + len(task.task_path) + sum(_SLOT_BYTES + len(slot.channel) for slot in slots)
            if used and used + size > most_bytes:
                batches.append([])
                used = 0
            batches[-1].append(msgspec.structs.replace(task, slots=slots))
            used += size
    return [tuple(batch) for batch in batches]


_MAX_STEPS_BACK: Final = 100
"""So far back the latest version is sought among ancestors: clocks that differ move it by a few steps, not by a thread's length."""
_LEAST_GAIN: Final = 1 / 20
"""An end that would be later by less than this share of the time is not written: else each reading would write an event."""


def living(state: VersionedState, now: int) -> tuple[list[Body], VersionedState]:
    """
    Return the state that a change of a value is decided on, and what is to be written before it.

    Nothing on the log says that a value has expired: its end is written first, and a new life begins.
    """
    record = state.record
    if record is None or not is_expired(record, now):
        return [], state
    return [_tombstone(state, record, "expired")], state.absent()


def decide_put(
    state: VersionedState,
    put: PutVersion,
    now: int,
    *,
    may_branch: Callable[[str], bool] = lambda _latest_id: False,
    tasks: Sequence[TaskPut] = (),
) -> list[Body]:
    """
    The version with what the value does not have of it; nothing when it is stored already, equal in all.

    `may_branch` says beside which latest versions it may begin a branch, whatever the writer expects. With it come writes of
    `tasks` of its parent.

    Raises:
        CheckpointConflictError: Another version came meanwhile.
        CheckpointExistsError: It is stored already, and differs.
        InvalidValueError: An id breaks a rule, or the version would be its own ancestor.
    """
    check_namespace(put.line)
    for version_id in (put.id,) if put.parent is None else (put.id, put.parent):
        check_checkpoint_id(version_id)
    ending, alive = living(state, now)
    key, content = put.key or state.key, _intact(alive.content)
    is_fenced = put.expected_latest is not msgspec.UNSET
    # Nearly always the parent is the newest one, and the version newer than that: then one row says it all.
    newest = next(iter(alive.versions(put.line)), None) if is_fenced else None
    find = partial(_named, alive, put.line, newest) if is_fenced else partial(alive.version, put.line)
    parent = None if put.parent is None else find(put.parent)
    before = digests_of({} if parent is None else parent.fields) if put.before is None else digests_of(put.before)
    trees, fields = _new_fields(put, parent, before, content)
    stored = find(put.id)
    if stored is not None:
        if not _is_equal(stored, put, fields):
            raise CheckpointExistsError(key, put.line, put.id)
        if stored.skeleton is None:
            return decide_writes(state, put.line, put.parent, tasks, now) if put.parent and tasks else []
    else:
        _check_acyclic(alive, put, parent)
        _check_latest(alive, put, newest, may_branch)
    pieces = Missing(alive.has_content, content)
    new = [] if put.parent is None else _new_writes(alive, (put.line, put.parent), tasks, before, pieces)
    *more, writes = task_batches(new)
    for name, tree in trees.items():
        pieces.add(tree, before.get(name))
    *earlier, last = batches_of(pieces.found)
    body = _version_of(put, fields, pieces=last, writes=writes, now=now)
    bodies = [
        *map(VersionContentPut, earlier),
        *(VersionWritesPut(put.line, put.parent or "", task) for task in more),
        body,
    ]
    return [*ending, *beginning(alive, state, key, bodies)]


def _version_of(
    put: PutVersion,
    fields: dict[str, FieldRef],
    *,
    pieces: tuple[Piece, ...],
    writes: tuple[TaskWrites, ...],
    now: int,
) -> VersionPut:
    return VersionPut(
        line=put.line,
        id=put.id,
        parent=put.parent,
        fields=fields,
        pieces=pieces,
        frames=put.frames,
        runtime=put.runtime,
        run_id=put.run_id,
        node=put.node,
        is_final=put.is_final,
        writes=writes or None,
        expires_at=None if put.ttl_ms is None else now + put.ttl_ms,
    )


def _new_fields(
    put: PutVersion,
    parent: VersionRecord | None,
    before: Mapping[str, bytes],
    content: Callable[[bytes], Content | None],
) -> tuple[dict[str, Tree], dict[str, FieldRef]]:
    """Return the values in pieces that a version does not have from its parent, and all of its fields."""
    unchanged = put.unchanged(parent)
    own = {**put.values, **{name: value for name, value in unchanged.items() if value is not None}}
    trees = {name: tree_of(value, before.get(name), content) for name, value in own.items()}
    inherited = {} if parent is None else parent.fields
    fields = {name: inherited[name] for name, value in unchanged.items() if value is None}
    fields |= {name: FieldRef(tree.digest, put.sizes.get(name, 0)) for name, tree in trees.items()}
    return trees, fields if put.order is None else {name: fields[name] for name in put.order}


def beginning(alive: VersionedState, state: VersionedState, key: str, bodies: Sequence[Body]) -> list[Body]:
    """Return events of a value, of which the first says what its stream begins with; a new life has the owner of the one before."""
    if alive.record is not None:
        return [*bodies]
    return begun(bodies, Begins(key, None if state.record is None else state.record.owner))


def _intact(read: Callable[[bytes], Content | None]) -> Callable[[bytes], Content | None]:
    """The stored pieces. A damaged one counts as missing, and is stored again; nothing comes out of it."""

    def read_intact(digest: bytes) -> Content | None:
        try:
            return read(digest)
        except CorruptStateError:
            return None

    return read_intact


def _named(state: VersionedState, line: str, newest: VersionRecord | None, version_id: str) -> VersionRecord | None:
    """A version of a line whose newest one, skeleton or not, is this."""
    if newest is None or version_id > newest.id:
        return None
    return newest if version_id == newest.id else state.version(line, version_id)


def _is_equal(stored: VersionRecord, put: PutVersion, fields: Mapping[str, FieldRef]) -> bool:
    """Whether it is put again as it is stored; of a skeleton as far as it is there."""
    if (stored.parent, stored.frames, stored.runtime, stored.run_id) != (
        put.parent,
        put.frames,
        put.runtime,
        put.run_id,
    ):
        return False
    named = stored.fields.keys() if stored.skeleton is not None else stored.fields.keys() | fields.keys()
    return all(stored.fields.get(name) == fields.get(name) for name in named if name not in put.not_given)


def _check_acyclic(state: VersionedState, put: PutVersion, parent: VersionRecord | None) -> None:
    """Only a version that comes after its children can be its own ancestor: others have none."""
    is_ancestor = put.parent == put.id
    if parent is not None and state.is_awaited(put.line, put.id):
        path = (parent, *ancestors(parent, partial(state.version, put.line)))
        is_ancestor |= any(record.parent == put.id and not record.is_orphan for record in path)
    if is_ancestor:
        msg = (
            f"checkpoint {put.id!r} of thread {state.key!r} (namespace {put.line!r}) cannot be below {put.parent!r}: it would be its own "
            "ancestor"
        )
        raise InvalidValueError(msg)


def _check_latest(
    state: VersionedState, put: PutVersion, newest: VersionRecord | None, may_branch: Callable[[str], bool]
) -> None:
    """Check that a fenced version follows the latest one of its line."""
    latest = newest if newest is None or newest.skeleton is None else state.newest(put.line)
    if latest is None or put.expected_latest is msgspec.UNSET or may_branch(latest.id):
        return
    if not _is_on_path(state, put.line, latest.id, put.expected_latest):
        raise CheckpointConflictError(state.key, put.line, parent_id=put.parent, latest_id=latest.id)


def _is_on_path(state: VersionedState, line: str, version_id: str, tip_id: object) -> bool:
    """
    Whether a version is the tip, or an ancestor of it.

    An ancestor is the latest when the clocks of two machines differ: ids are made of times.
    """
    for _ in range(_MAX_STEPS_BACK):
        if tip_id == version_id:
            return True
        tip = state.version(line, tip_id) if isinstance(tip_id, str) else None
        if tip is None:
            return False
        tip_id = tip.parent
    return False


def decide_writes(state: VersionedState, line: str, version_id: str, tasks: Sequence[TaskPut], now: int) -> list[Body]:
    """Writes of tasks of a version, without those whose slots are taken; nothing when none is left."""
    for task in tasks:
        check_task(line, version_id, task.task_id)
    ending, alive = living(state, now)
    content = _intact(alive.content)
    record = alive.version(line, version_id)
    pieces = Missing(alive.has_content, content)
    before = {} if record is None else digests_of(record.fields)
    new = _new_writes(alive, (line, version_id), tasks, before, pieces)
    if not new:
        return []
    *earlier, last = batches_of(pieces.found)
    # Each may name pieces that come with a later one, as nobody sees parts of a commit.
    *more, batch = task_batches(new)
    bodies = [
        *map(VersionContentPut, earlier),
        *(VersionWritesPut(line, version_id, each) for each in more),
        VersionWritesPut(line, version_id, batch, last),
    ]
    return [*ending, *beginning(alive, state, state.key, bodies)]


def _new_writes(
    state: VersionedState,
    place: VersionKey,
    tasks: Sequence[TaskPut],
    before: Mapping[str, bytes],
    pieces: Missing,
) -> list[TaskWrites]:
    """
    Return the writes of tasks whose slots are free, or below 0 and hold something else, and add to `pieces` what is missing of them.

    `before` are the fields of their version: what the next version's value is cut by, which mostly is what was written.
    """
    taken: dict[str, dict[int, tuple[str, bytes]]] = {}
    new: list[TaskWrites] = []
    for task in tasks:
        if task.task_id not in taken:
            stored = state.writes_of_task(*place, task.task_id)
            taken[task.task_id] = {write.index: (write.channel, write.digest) for write in stored}
        slots = taken[task.task_id]
        fresh: dict[int, WriteSlot] = {}
        for index, channel, value in task.writes:
            if index >= 0 and index in slots:
                continue
            tree = tree_of(value, before.get(channel), _intact(state.content))
            if slots.get(index) == (channel, tree.digest):
                continue
            slots[index] = (channel, tree.digest)
            fresh[index] = WriteSlot(index, channel, tree.digest)
            pieces.add(tree, before.get(channel))
        if fresh:
            new.append(TaskWrites(task.task_id, task.task_path, task.written_at, tuple(fresh.values())))
    return new


def check_task(line: str, version_id: str, task_id: str) -> None:
    """Check the names of where writes go. Raises `InvalidValueError`."""
    check_namespace(line)
    check_checkpoint_id(version_id)
    check_id(task_id, "task_id", empty=True)


def decide_delete(
    state: VersionedState, *, reason: str = "deleted", updated_before: int | None = None, expired_at: int | None = None
) -> list[Body]:
    """
    The tombstone of a value; nothing when there is none.

    Args:
        state: The value.
        reason: Why it ends.
        updated_before: Only if its last version is from before this moment, in ms, and nobody holds it.
        expired_at: Or only if it has expired at this one.
    """
    record = state.record
    if record is None:
        return []
    if updated_before is not None and record.updated_at < updated_before and not record.holds:
        return [_tombstone(state, record, "too_old")]
    if expired_at is not None and is_expired(record, expired_at):
        return [_tombstone(state, record, "expired")]
    return [] if updated_before is not None or expired_at is not None else [_tombstone(state, record, reason)]


def _tombstone(state: VersionedState, record: VersionedRecord, reason: str) -> VersionsDeleted:
    owner = (
        family_of_stream(state.stream_id).owner_of(record.key) if record.owner is None and record.key else record.owner
    )
    return VersionsDeleted(
        first_position=record.first_position,
        event_count=record.head.version - record.first_version + 1,
        version_count=record.version_count,
        reason=reason,
        owner_digest=None if owner is None else owner_digest(state.stream_id, owner),
    )


def decide_remove_lines(state: VersionedState, *, within: str, reason: str) -> list[Body]:
    """All versions and writes of a line and those below it."""
    lines = tuple(name for name in state.lines() if is_within(name, within))
    return [VersionsRemoved(reason, lines)] if lines else []


def decide_remove(
    state: VersionedState,
    *,
    reason: str,
    versions: Iterable[VersionKey] = (),
    skeletons: Iterable[Skeleton] = (),
) -> list[Body]:
    """Versions with their writes; those that stay below a removed one become orphans."""
    gone = {key: None for key in versions if state.version(*key) is not None or state.writes(*key)}
    bare = list(skeletons)
    if not (gone or bare):
        return []
    removed = gone.keys() | {(skeleton.line, skeleton.id) for skeleton in bare}
    orphans = [
        (line, record.id)
        for line in dict.fromkeys(line for line, _ in removed)
        for record in state.versions(line)
        if record.parent is not None
        and not record.is_orphan
        and (line, record.id) not in removed
        and (line, record.parent) in removed
    ]
    body = VersionsRemoved(reason, versions=tuple(gone), skeletons=tuple(bare), orphans=tuple(orphans))
    return _split_removal(body)


def _split_removal(body: VersionsRemoved, most: int = 1_000) -> list[Body]:
    """The same, where long ids of many versions would not fit into one event."""
    keys: list[Body] = [
        VersionsRemoved(body.reason, versions=body.versions[at : at + most])
        for at in range(most, len(body.versions), most)
    ]
    bare: list[Body] = [
        VersionsRemoved(body.reason, skeletons=body.skeletons[at : at + most])
        for at in range(0, len(body.skeletons), most)
    ]
    return [VersionsRemoved(body.reason, versions=body.versions[:most], orphans=body.orphans), *keys, *bare]


def decide_set_expiry(state: VersionedState, ttl_ms: int, now: int) -> list[Body]:
    """The later end of a value that was read; nothing when there is none, it has none, or its end is nearly as late."""
    record = state.record
    if record is None or record.expires_at is None or is_expired(record, now):
        return []
    expires_at = now + ttl_ms
    return [VersionsExpirySet(expires_at)] if expires_at - record.expires_at > ttl_ms * _LEAST_GAIN else []


def decide_copy(state: VersionedState, source: VersionedState, now: int, *, within: str | None = None) -> list[Body]:
    """
    The value takes over what the source has, and its owner if it is new.

    Raises:
        NotFoundError: There is no source.
        AlreadyExistsError: The target has versions already, within that line.
    """
    record = check_source(state.key, source, now)
    ending, alive = living(state, now)
    if any(within is None or is_within(name, within) for name in alive.lines()):
        msg = f"thread {state.key!r} is not empty: thread {source.key!r} cannot be copied to it"
        raise AlreadyExistsError(msg)
    lines = tuple(name for name in source.lines() if within is None or is_within(name, within))
    copied = VersionsCopied(source.key, lines, within)
    if alive.record is not None:
        return [copied]
    return [*ending, *begun([copied], Begins(state.key, record.owner))]


def check_source(key: str, source: VersionedState, now: int) -> VersionedRecord:
    """The value to copy from. Raises `NotFoundError` when there is none."""
    record = source.record
    if record is None or is_expired(record, now):
        msg = f"no thread {source.key!r} to copy to {key!r}"
        raise NotFoundError(msg)
    return record


def written_slots(writes: Iterable[StoredWrite]) -> set[tuple[str, int]]:
    """Return the slots that writes take: task and index."""
    return {(write.task_id, write.index) for write in writes}
