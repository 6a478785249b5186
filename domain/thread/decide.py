"""Decisions on threads: which events an operation on the checkpoints of agents takes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ..chat.events import Body
from ..content import Missing, Piece, Serial, Tree, size_of, tree_of
from ..errors import (
    AlreadyExistsError,
    CheckpointConflictError,
    CheckpointExistsError,
    InvalidValueError,
    NotFoundError,
)
from ..limits import check_id
from ..log.codec import MAX_EVENT_BYTES
from ..log.tombstones import owner_digest
from .events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentThreadCopied,
    AgentThreadDeleted,
    AgentWritesPut,
    CheckpointKey,
    Serialized,
    Skeleton,
    TaskWrites,
    WriteSlot,
)
from .namespaces import is_within
from .record import CheckpointRecord, ThreadRecord, ThreadState, ancestors


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
_SLOT_BYTES: Final = 32


def task_batches(tasks: Iterable[TaskWrites], most_bytes: int = MAX_EVENT_BYTES // 8) -> list[tuple[TaskWrites, ...]]:
    """
    Split writes into batches, each of which has room in an event beside 512 KiB of pieces; at least one batch.

    What may replace a write comes last: what that held goes with its event, and later ones of the commit may need it.
    """
    batches: list[list[TaskWrites]] = [[]]
    used = 0
    for task in sorted(tasks, key=lambda task: any(slot.index < 0 for slot in task.slots)):
        for at in range(0, len(task.slots), _MOST_SLOTS):
            slots = task.slots[at : at + _MOST_SLOTS]
            size = len(task.task_id) + len(task.task_path) + sum(_SLOT_BYTES + len(slot.channel) for slot in slots)
            if used and used + size > most_bytes:
                batches.append([])
                used = 0
            batches[-1].append(msgspec.structs.replace(task, slots=slots))
            used += size
    return [tuple(batch) for batch in batches]


MAX_CHECKPOINT_ID_BYTES: Final = 200
"""Checkpoint ids are part of keys, in whose order they are listed."""
_MAX_STEPS_BACK: Final = 100


class CheckpointPut(msgspec.Struct, frozen=True, kw_only=True):
    """
    A checkpoint to be stored.

    Args:
        values: Of each channel that changed, its value.
        unchanged: Given the parent, the other channels: None for one with the parent's value, else its own value.
        not_given: The channels whose values the writer does not have; whichever they have is right when it is put again.
        runtime: What writes it, and alone can resume it.
        expected_latest: The newest checkpoint of the namespace that the writer knows of; UNSET when that does not matter.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Serialized
    metadata: Serialized
    values: Mapping[str, Tree | Serial]
    unchanged: Callable[[CheckpointRecord | None], Mapping[str, Tree | Serial | None]] = lambda _parent: {}
    not_given: Sequence[str] = ()
    runtime: str = "python"
    run_id: str | None = None
    expected_latest: str | msgspec.UnsetType | None = msgspec.UNSET


class TaskPut(NamedTuple):
    """The writes of a task to be stored, as (index, channel, value); `written_at` is when it handed them over, in ms."""

    task_id: str
    task_path: str
    written_at: int
    writes: Sequence[tuple[int, str, Tree | Serial]]


def decide_put_checkpoint(
    state: ThreadState,
    put: CheckpointPut,
    *,
    may_branch: Callable[[str], bool] = lambda _latest_id: False,
    tasks: Sequence[TaskPut] = (),
) -> list[Body]:
    """
    The checkpoint with what the thread does not have of it; nothing when it is stored already, equal in all.

    `may_branch` says beside which latest checkpoints it may begin a branch, whatever the writer expects. With it come writes of
    `tasks` of its parent.

    Raises:
        CheckpointConflictError: Another checkpoint came meanwhile.
        CheckpointExistsError: It is stored already, and differs.
        InvalidValueError: An id breaks a rule, or the checkpoint would be its own ancestor.
    """
    check_namespace(put.namespace)
    check_checkpoint_id(put.checkpoint_id)
    if put.parent_id is not None:
        check_checkpoint_id(put.parent_id)
    # Nearly always the parent is the newest one, and the checkpoint newer than that: then one row says it all.
    newest = next(iter(state.checkpoints(put.namespace)), None)
    parent = _named(state, put.namespace, put.parent_id, newest)
    before = {} if parent is None else parent.channels
    unchanged = put.unchanged(parent)
    own = {**put.values, **{name: value for name, value in unchanged.items() if value is not None}}
    values = {name: tree_of(value, before.get(name), state.content) for name, value in own.items()}
    channels = {name: before[name] for name, value in unchanged.items() if value is None}
    channels |= {name: tree.digest for name, tree in values.items()}
    known = _named(state, put.namespace, put.checkpoint_id, newest)
    if known is not None:
        if not _is_equal(known, put, channels):
            raise CheckpointExistsError(state.thread_id, put.namespace, put.checkpoint_id)
        if known.skeleton is None:
            return decide_put_writes(state, put.namespace, put.parent_id, tasks) if put.parent_id and tasks else []
    else:
        _check_acyclic(state, put, parent)
        if put.expected_latest is not msgspec.UNSET:
            _check_latest(state, put, newest, may_branch)
    pieces = Missing(state.has_content, state.content)
    new = [] if put.parent_id is None else _new_writes(state, put.namespace, put.parent_id, tasks, before, pieces)
    *more, writes = task_batches(new)
    for name, tree in values.items():
        pieces.add(tree, before.get(name))
    *earlier, last = batches_of(pieces.found)
    body = AgentCheckpointPut(
        namespace=put.namespace,
        checkpoint_id=put.checkpoint_id,
        parent_id=put.parent_id,
        checkpoint=put.checkpoint,
        metadata=put.metadata,
        channels=channels,
        pieces=last,
        runtime=put.runtime,
        run_id=put.run_id,
        writes=writes or None,
    )
    before_it = [AgentWritesPut(put.namespace, put.parent_id or "", batch, ()) for batch in more]
    return [*map(AgentContentPut, earlier), *before_it, body]


def _named(
    state: ThreadState, namespace: str, checkpoint_id: str | None, newest: CheckpointRecord | None
) -> CheckpointRecord | None:
    """A checkpoint of a namespace whose newest one, skeleton or not, is this."""
    if checkpoint_id is None or newest is None or checkpoint_id > newest.checkpoint_id:
        return None
    return newest if checkpoint_id == newest.checkpoint_id else state.checkpoint(namespace, checkpoint_id)


def _is_equal(known: CheckpointRecord, put: CheckpointPut, channels: dict[str, bytes]) -> bool:
    """Whether it is put again as it is stored; of a skeleton as far as it is there."""
    if (known.parent_id, known.checkpoint, known.metadata, known.runtime, known.run_id) != (
        put.parent_id,
        put.checkpoint,
        put.metadata,
        put.runtime,
        put.run_id,
    ):
        return False
    named = known.channels.keys() if known.skeleton is not None else known.channels.keys() | channels.keys()
    return all(known.channels.get(name) == channels.get(name) for name in named if name not in put.not_given)


def _check_acyclic(state: ThreadState, put: CheckpointPut, parent: CheckpointRecord | None) -> None:
    """Only a checkpoint that comes after its children can be its own ancestor: others have none."""
    is_ancestor = put.parent_id == put.checkpoint_id
    if parent is not None and state.is_awaited(put.namespace, put.checkpoint_id):
        line = (parent, *ancestors(parent, lambda checkpoint_id: state.checkpoint(put.namespace, checkpoint_id)))
        is_ancestor |= any(one.parent_id == put.checkpoint_id and not one.is_orphan for one in line)
    if is_ancestor:
        msg = (
            f"checkpoint {put.checkpoint_id!r} of thread {state.thread_id!r} (namespace {put.namespace!r}) cannot be below "
            f"{put.parent_id!r}: it would be its own ancestor"
        )
        raise InvalidValueError(msg)


def _check_latest(
    state: ThreadState, put: CheckpointPut, newest: CheckpointRecord | None, may_branch: Callable[[str], bool]
) -> None:
    latest = newest if newest is None or newest.skeleton is None else state.latest(put.namespace)
    if latest is None or may_branch(latest.checkpoint_id):
        return
    if not _is_on_path(state, put.namespace, latest.checkpoint_id, put.expected_latest):
        raise CheckpointConflictError(
            state.thread_id, put.namespace, parent_id=put.parent_id, latest_id=latest.checkpoint_id
        )


def _is_on_path(state: ThreadState, namespace: str, checkpoint_id: str, tip_id: object) -> bool:
    """
    Whether a checkpoint is the tip, or an ancestor of it.

    An ancestor is the latest when the clocks of two machines differ: ids are made of times.
    """
    for _ in range(_MAX_STEPS_BACK):
        if tip_id == checkpoint_id:
            return True
        tip = state.checkpoint(namespace, tip_id) if isinstance(tip_id, str) else None
        if tip is None:
            return False
        tip_id = tip.parent_id
    return False


def decide_put_writes(state: ThreadState, namespace: str, checkpoint_id: str, tasks: Sequence[TaskPut]) -> list[Body]:
    """Writes of tasks of a checkpoint, without those whose slots are taken; nothing when none is left."""
    for task in tasks:
        check_task(namespace, checkpoint_id, task.task_id)
    record = state.checkpoint(namespace, checkpoint_id)
    pieces = Missing(state.has_content, state.content)
    new = _new_writes(state, namespace, checkpoint_id, tasks, {} if record is None else record.channels, pieces)
    if not new:
        return []
    *earlier, last = batches_of(pieces.found)
    # Each may name pieces that come with a later one, as nobody sees parts of a commit.
    *before, batch = task_batches(new)
    more = [AgentWritesPut(namespace, checkpoint_id, each, ()) for each in before]
    return [*map(AgentContentPut, earlier), *more, AgentWritesPut(namespace, checkpoint_id, batch, last)]


def _new_writes(
    state: ThreadState,
    namespace: str,
    checkpoint_id: str,
    tasks: Sequence[TaskPut],
    before: Mapping[str, bytes],
    pieces: Missing,
) -> list[TaskWrites]:
    """
    Return the writes of tasks whose slots are free, or below 0 and hold something else, and add to `pieces` what is missing of them.

    `before` are the channels of their checkpoint: what the next checkpoint's value is cut by, which mostly is what was written.
    """
    taken: dict[str, dict[int, tuple[str, bytes]]] = {}
    new: list[TaskWrites] = []
    for task in tasks:
        if task.task_id not in taken:
            stored = state.writes_of_task(namespace, checkpoint_id, task.task_id)
            taken[task.task_id] = {write.index: (write.channel, write.digest) for write in stored}
        slots = taken[task.task_id]
        fresh: dict[int, WriteSlot] = {}
        for index, channel, value in task.writes:
            if index >= 0 and index in slots:
                continue
            tree = tree_of(value, before.get(channel), state.content)
            if slots.get(index) == (channel, tree.digest):
                continue
            slots[index] = (channel, tree.digest)
            fresh[index] = WriteSlot(index, channel, tree.digest)
            pieces.add(tree, before.get(channel))
        if fresh:
            new.append(TaskWrites(task.task_id, task.task_path, task.written_at, tuple(fresh.values())))
    return new


def check_task(namespace: str, checkpoint_id: str, task_id: str) -> None:
    """Check the names of where writes go. Raises `InvalidValueError`."""
    check_namespace(namespace)
    check_checkpoint_id(checkpoint_id)
    check_id(task_id, "task_id", empty=True)


def decide_delete_namespaces(state: ThreadState, *, within: str | None, reason: str) -> list[Body]:
    """All checkpoints and writes of a namespace and those below it; with None the whole thread and its stream."""
    record = state.record
    if record is None:
        return []
    if within is None:
        return [
            AgentThreadDeleted(
                first_position=record.first_position,
                event_count=record.head.version - record.first_version + 1,
                checkpoint_count=record.checkpoint_count,
                owner_digest=None if record.owner is None else owner_digest(state.stream_id, record.owner),
            )
        ]
    found = tuple(name for name in state.namespaces() if is_within(name, within))
    return [AgentCheckpointsDeleted(reason, namespaces=found)] if found else []


def decide_delete_checkpoints(
    state: ThreadState,
    *,
    reason: str,
    checkpoints: Iterable[CheckpointKey] = (),
    skeletons: Iterable[Skeleton] = (),
) -> list[Body]:
    """Checkpoints with their writes; those that stay below a removed one become orphans."""
    gone = {key: None for key in checkpoints if state.checkpoint(*key) is not None or state.writes(*key)}
    bare = list(skeletons)
    if not (gone or bare):
        return []
    removed = gone.keys() | {(skeleton.namespace, skeleton.checkpoint_id) for skeleton in bare}
    orphans = [
        (one.namespace, one.checkpoint_id)
        for namespace in dict.fromkeys(namespace for namespace, _ in removed)
        for one in state.checkpoints(namespace)
        if one.parent_id is not None
        and not one.is_orphan
        and (namespace, one.checkpoint_id) not in removed
        and (namespace, one.parent_id) in removed
    ]
    body = AgentCheckpointsDeleted(reason, checkpoints=tuple(gone), skeletons=tuple(bare), orphans=tuple(orphans))
    return _split_deletion(body)


def _split_deletion(body: AgentCheckpointsDeleted, most: int = 1_000) -> list[Body]:
    """The same, where long ids of many checkpoints would not fit into one event."""
    keys: list[Body] = [
        AgentCheckpointsDeleted(body.reason, checkpoints=body.checkpoints[at : at + most])
        for at in range(most, len(body.checkpoints), most)
    ]
    bare: list[Body] = [
        AgentCheckpointsDeleted(body.reason, skeletons=body.skeletons[at : at + most])
        for at in range(0, len(body.skeletons), most)
    ]
    return [
        AgentCheckpointsDeleted(body.reason, checkpoints=body.checkpoints[:most], orphans=body.orphans),
        *keys,
        *bare,
    ]


def decide_copy(state: ThreadState, source: ThreadState, *, within: str | None = None) -> list[Body]:
    """
    The thread takes over what the source has.

    Raises:
        NotFoundError: There is no source.
        AlreadyExistsError: The target has checkpoints already, within that namespace.
    """
    record = check_source(state, source)
    if any(within is None or is_within(name, within) for name in state.namespaces()):
        msg = f"thread {state.thread_id!r} is not empty: thread {source.thread_id!r} cannot be copied to it"
        raise AlreadyExistsError(msg)
    return [AgentThreadCopied(source.thread_id, within, record.owner)]


def check_source(state: ThreadState, source: ThreadState) -> ThreadRecord:
    """The thread to copy from. Raises `NotFoundError` when there is none."""
    record = source.record
    if record is None:
        msg = f"no thread {source.thread_id!r} to copy to {state.thread_id!r}"
        raise NotFoundError(msg)
    return record


def check_namespace(namespace: str) -> str:
    """A namespace: any text of up to 2,048 bytes, empty too."""
    return check_id(namespace, "checkpoint_ns", empty=True)


def check_checkpoint_id(checkpoint_id: str) -> str:
    """An id of a checkpoint."""
    check_id(checkpoint_id, "checkpoint_id")
    size = len(checkpoint_id.encode())
    if size > MAX_CHECKPOINT_ID_BYTES:
        msg = f"checkpoint_id takes {size:,} bytes, at most {MAX_CHECKPOINT_ID_BYTES} are allowed"
        raise InvalidValueError(msg)
    return checkpoint_id
