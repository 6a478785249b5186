"""A whole thread of agents as exports hand it out and imports hand it in, and the decision that takes it in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ..chat.events import Body
from ..errors import AlreadyExistsError, InvalidValueError, NotFoundError
from ..limits import check_id, check_time
from ..wire import Value
from .content import Piece, size_of
from .copies import version_put, writes_put
from .decide import batches_of, check_checkpoint_id, check_namespace, living, written_slots
from .events import Begins, FieldRef, VersionContentPut, VersionKey, begun
from .exported_pieces import ImportedPiece, PieceExport, Pieces, from_base64, from_digest, to_base64
from .record import CHECKPOINT, METADATA, StoredWrite, VersionedState, VersionRecord, digests_of, is_expired

_MOST_COMMIT_BYTES: Final = 4 * 1024 * 1024
_MAX_INDEX: Final = 2**31


class ImportedWrite(Value, frozen=True, kw_only=True):
    """
    A pending write in an export: its task, its place there, its channel, and the digest of its value in base64.

    `written_at` is when the task handed it over, in ms since the epoch; None where nobody knows.
    """

    task_id: str
    index: int
    channel: str
    digest: str
    task_path: str = ""
    written_at: int | None = None


class ImportedStep(Value, frozen=True, kw_only=True):
    """
    A checkpoint of a thread in an export, with its pending writes. Digests and other binary content are base64 text.

    Args:
        namespace: Its namespace: an assistant's (`assistant:<id>`), a subgraph's, or empty.
        checkpoint_id: Its id.
        parent_id: The id of the checkpoint before it.
        checkpoint: The name of a serialization, and what it made of the checkpoint without values; None where only writes
            have come yet.
        metadata: The same of the metadata.
        channels: Of each channel the digest of its value.
        runtime: What wrote it, e.g. `python`.
        stored_at: When it was stored, in ms since the epoch.
        run_id: The run that made it.
        is_orphan: Whether its parent was removed.
        skeleton: The channels that are left of a pruned one.
        writes: Its pending writes.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None = None
    checkpoint: tuple[str, str] | None = None
    metadata: tuple[str, str] | None = None
    channels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    runtime: str = "python"
    stored_at: int | None = None
    run_id: str | None = None
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None
    writes: tuple[ImportedWrite, ...] = ()


class ImportedThread(Value, frozen=True, kw_only=True):
    """
    A whole thread of agents: all its checkpoints in all namespaces, in the order in which they were recorded.

    Args:
        id: Its id.
        owner: The user whose it is; None where that follows from the chat of the same id, or it is nobody's.
        pieces: The values of its channels and writes, in pieces that checkpoints share.
        steps: The checkpoints with their pending writes.
        expires_at: From when on it counts as absent, in ms since the epoch; None when it does not expire.
    """

    id: str
    owner: str | None = None
    pieces: tuple[ImportedPiece, ...] = ()
    steps: tuple[ImportedStep, ...] = ()
    expires_at: int | None = None


class ThreadImportResult(Value, frozen=True, kw_only=True):
    """The changes that importing a thread made; a repeated import changes nothing."""

    thread_id: str
    is_new: bool = False
    checkpoints_added: int = 0
    writes_added: int = 0


class ListedValue(VersionedState, Protocol):
    """A thread that lists all that it has."""

    def ids_with_writes(self, line: str) -> list[str]:
        """Return the ids of all versions of a line, and of those that only have writes yet; ascending."""
        ...


def no_thread(thread_id: str) -> NotFoundError:
    """The error when there is no such thread."""
    return NotFoundError(f"no thread {thread_id!r}")


def exported_thread(state: ListedValue, now: int) -> ImportedThread:
    """Return a whole thread. Raises `NotFoundError` when there is none, or it has expired."""
    record = state.record
    if record is None or is_expired(record, now):
        raise no_thread(state.key)
    pieces = PieceExport(state.content, f"thread {state.key!r}")
    before: dict[tuple[str, str], bytes] = {}
    steps: list[ImportedStep] = []
    for namespace, checkpoint_id in _in_order(state):
        stored = state.version(namespace, checkpoint_id)
        writes = state.writes(namespace, checkpoint_id)
        channels: dict[str, str] = {}
        for channel, digest in () if stored is None else digests_of(stored.fields).items():
            channels[channel] = pieces.add(digest, before.get((namespace, channel)))
            before[namespace, channel] = digest
        steps.append(_step(namespace, checkpoint_id, stored, channels, [_write(one, pieces) for one in writes]))
    return ImportedThread(
        id=record.key,
        owner=record.owner,
        pieces=tuple(pieces.found),
        steps=tuple(steps),
        expires_at=record.expires_at,
    )


def _in_order(state: ListedValue) -> list[VersionKey]:
    """
    List the checkpoints by the time when they were stored, and by id where that is the same.

    A namespace begins after those that came up before it, whatever the times of what was copied into it.
    """
    placed: list[tuple[int, int, str, str]] = []
    begin = 0
    for number, namespace in enumerate(state.lines()):
        times: dict[str, int | None] = {}
        for checkpoint_id in state.ids_with_writes(namespace):
            stored = state.version(namespace, checkpoint_id)
            times[checkpoint_id] = None if stored is None else stored.stored_at
        begin = max(begin, min((time for time in times.values() if time is not None), default=begin))
        placed += [
            (max(begin, time or begin), number, checkpoint_id, namespace) for checkpoint_id, time in times.items()
        ]
    return [(namespace, checkpoint_id) for _, _, checkpoint_id, namespace in sorted(placed)]


def _step(
    namespace: str,
    checkpoint_id: str,
    stored: VersionRecord | None,
    channels: dict[str, str],
    writes: list[ImportedWrite],
) -> ImportedStep:
    if stored is None:
        return ImportedStep(namespace=namespace, checkpoint_id=checkpoint_id, writes=tuple(writes))
    return ImportedStep(
        namespace=namespace,
        checkpoint_id=checkpoint_id,
        parent_id=stored.parent,
        checkpoint=_exported_frame(stored, CHECKPOINT),
        metadata=_exported_frame(stored, METADATA),
        channels=channels,
        runtime=stored.runtime,
        stored_at=stored.stored_at,
        run_id=stored.run_id,
        is_orphan=stored.is_orphan,
        skeleton=stored.skeleton,
        writes=tuple(writes),
    )


def _exported_frame(version: VersionRecord, number: int) -> tuple[str, str]:
    form, data = version.frames[number]
    return form, to_base64(data)


def _write(write: StoredWrite, pieces: PieceExport) -> ImportedWrite:
    return ImportedWrite(
        task_id=write.task_id,
        index=write.index,
        channel=write.channel,
        digest=pieces.add(write.digest),
        task_path=write.task_path,
        written_at=write.written_at or None,
    )


class CheckedStep(msgspec.Struct, frozen=True):
    """A step of an export as it is stored."""

    namespace: str
    checkpoint_id: str
    record: VersionRecord | None
    writes: tuple[StoredWrite, ...]

    @property
    def roots(self) -> list[bytes]:
        """The digests of its values."""
        fields = () if self.record is None else self.record.digests
        return [*fields, *(write.digest for write in self.writes)]


class CheckedThread(msgspec.Struct, frozen=True):
    """A thread of an export, which was checked."""

    id: str
    owner: str | None
    pieces: Pieces
    steps: dict[VersionKey, CheckedStep]
    expires_at: int | None = None


def check_thread(thread: ImportedThread) -> CheckedThread:
    """Return a thread as it is stored. Raises `InvalidValueError` when it is damaged, or a value breaks a rule."""
    if not isinstance(thread, ImportedThread):
        msg = f"expected an ImportedThread, not {type(thread).__name__}; export_thread returns one"
        raise InvalidValueError(msg)
    check_id(thread.id, "the id of a thread")
    if thread.owner is not None:
        check_id(thread.owner, "the owner of a thread", empty=True)
    pieces = Pieces(thread.pieces)
    steps: dict[VersionKey, CheckedStep] = {}
    for step in thread.steps:
        checked = _checked(step)
        key = (step.namespace, step.checkpoint_id)
        if key in steps:
            msg = f"checkpoint {step.checkpoint_id!r} (namespace {step.namespace!r}) is there twice"
            raise InvalidValueError(msg)
        if not all(digest in pieces for digest in checked.roots):
            msg = f"checkpoint {step.checkpoint_id!r} (namespace {step.namespace!r}) lacks a value"
            raise InvalidValueError(msg)
        steps[key] = checked
    _check_acyclic(steps)
    expires_at = None if thread.expires_at is None else check_time(thread.expires_at, "expires_at")
    return CheckedThread(thread.id, thread.owner, pieces, steps, expires_at)


def _checked(step: ImportedStep) -> CheckedStep:
    check_namespace(step.namespace)
    check_checkpoint_id(step.checkpoint_id)
    if step.parent_id is not None:
        check_checkpoint_id(step.parent_id)
    writes = tuple(map(_checked_write, step.writes))
    if len({(write.task_id, write.index) for write in writes}) < len(writes):
        msg = f"checkpoint {step.checkpoint_id!r} has two writes in one slot"
        raise InvalidValueError(msg)
    if step.checkpoint is None or step.metadata is None:
        return CheckedStep(step.namespace, step.checkpoint_id, None, writes)
    if step.skeleton is not None and not {*step.channels, *(one.channel for one in writes)} <= {*step.skeleton}:
        msg = (
            f"checkpoint {step.checkpoint_id!r} was pruned, and has values of channels that its skeleton does not name"
        )
        raise InvalidValueError(msg)
    if step.run_id is not None:
        check_id(step.run_id, "run_id", empty=True)
    record = VersionRecord(
        step.namespace,
        step.checkpoint_id,
        step.parent_id,
        {channel: FieldRef(from_digest(digest)) for channel, digest in step.channels.items()},
        (
            (step.checkpoint[0], from_base64(step.checkpoint[1], "a checkpoint")),
            (step.metadata[0], from_base64(step.metadata[1], "the metadata of a checkpoint")),
        ),
        step.runtime,
        0 if step.stored_at is None else check_time(step.stored_at, "stored_at"),
        step.run_id,
        is_orphan=step.is_orphan,
        skeleton=step.skeleton,
    )
    return CheckedStep(step.namespace, step.checkpoint_id, record, writes)


def _checked_write(write: ImportedWrite) -> StoredWrite:
    check_id(write.task_id, "task_id", empty=True)
    if not -_MAX_INDEX <= write.index < _MAX_INDEX:
        msg = f"the index of a write is {write.index}"
        raise InvalidValueError(msg)
    written_at = 0 if write.written_at is None else check_time(write.written_at, "written_at")
    return StoredWrite(
        write.task_id, write.index, write.task_path, write.channel, from_digest(write.digest), written_at
    )


def _check_acyclic(steps: dict[VersionKey, CheckedStep]) -> None:
    """Raise `InvalidValueError` when a checkpoint is its own ancestor."""
    sound: set[VersionKey] = set()
    for key in steps:
        path: set[VersionKey] = set()
        at: VersionKey | None = key
        while at is not None and at in steps and at not in sound:
            if at in path:
                msg = f"checkpoint {at[1]!r} (namespace {at[0]!r}) is its own ancestor"
                raise InvalidValueError(msg)
            path.add(at)
            record = steps[at].record
            at = None if record is None or record.parent is None or record.is_orphan else (at[0], record.parent)
        sound |= path


WriteKey = tuple[VersionKey, str, int]
"""A pending write: its checkpoint, its task, and its place there."""


def check_same_thread(state: ListedValue, thread: CheckedThread, now: int) -> dict[WriteKey, StoredWrite]:
    """
    Check that a thread can be taken in: there is none of its id, or one of the two goes on where the other one ends.

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
    here = [(name, version_id) for name in state.lines() for version_id in state.ids_with_writes(name)]
    only_here: VersionKey | None = next((key for key in here if key not in thread.steps), None)
    only_there: VersionKey | None = None
    for key, step in thread.steps.items():
        stored, writes = state.version(*key), state.writes(*key)
        if _differs(step, stored, writes):
            raise _other_content(state.key, f"checkpoint {key[1]!r} (namespace {key[0]!r}) differs")
        replaced |= _replaced(key, step.writes, writes)
        imported_count, stored_count = len(step.writes), len(writes)
        common = len(written_slots(step.writes) & written_slots(writes))
        if common < stored_count or (stored is not None and step.record is None):
            only_here = only_here or key
        if common < imported_count or (stored is None and step.record is not None):
            only_there = only_there or key
    if only_here is not None and only_there is not None:
        why = f"it has checkpoint {only_here[1]!r}, and the export has {only_there[1]!r}, which the other lacks"
        if only_here == only_there:
            why = f"each has writes at checkpoint {only_here[1]!r} that the other lacks"
        raise _other_content(state.key, why)
    if replaced and only_here is None and only_there is None:
        (_, checkpoint_id), _, _ = next(iter(replaced))
        why = f"both end at checkpoint {checkpoint_id!r} with other writes, and nothing says which are newer"
        raise _other_content(state.key, why)
    return replaced if only_there is not None else {}


def _replaced(
    key: VersionKey, writes: Sequence[StoredWrite], stored: Sequence[StoredWrite]
) -> dict[WriteKey, StoredWrite]:
    """The stored writes below slot 0 in whose places others stand."""
    by_slot = _by_slot(writes)
    return {
        (key, write.task_id, write.index): write
        for write in stored
        if write.index < 0 and _is_other(by_slot.get((write.task_id, write.index), write), write)
    }


def _is_other(write: StoredWrite, other: StoredWrite) -> bool:
    """Whether two writes in one slot differ. When they were made does not matter, which other savers do not keep."""
    return msgspec.structs.replace(write, written_at=other.written_at) != other


def _by_slot(writes: Sequence[StoredWrite]) -> dict[tuple[str, int], StoredWrite]:
    return {(write.task_id, write.index): write for write in writes}


def _differs(step: CheckedStep, stored: VersionRecord | None, writes: Sequence[StoredWrite]) -> bool:
    """
    Whether what both have of a checkpoint and its lasting writes, from slot 0 on, is not the same. When it was stored does not
    matter.
    """
    if step.record is not None and stored is not None:
        record = msgspec.structs.replace(step.record, stored_at=stored.stored_at, position=stored.position)
        if record != stored:
            return True
    by_slot = _by_slot(writes)
    return any(
        _is_other(by_slot.get((write.task_id, write.index), write), write) for write in step.writes if write.index >= 0
    )


def _other_content(thread_id: str, why: str) -> AlreadyExistsError:
    msg = (
        f"thread {thread_id!r} is here with other content: {why}. Nothing of it was written; import it into another ledger, "
        "or delete the thread that is here first"
    )
    return AlreadyExistsError(msg)


def changed_meanwhile(what: str) -> AlreadyExistsError:
    """The error when another writer stored something else between the commits of an import."""
    msg = (
        f"another writer stored {what} with other content during the import. The parts that were imported before stay; import "
        "it into another ledger, or delete what is here first"
    )
    return AlreadyExistsError(msg)


def decide_import_thread(
    state: VersionedState,
    thread: CheckedThread,
    steps: Sequence[CheckedStep],
    now: int,
    *,
    replaced: Mapping[WriteKey, StoredWrite],
    limit: int,
) -> tuple[list[Body], int]:
    """
    Return what the thread lacks of the first of some steps, in up to `limit` events, and how many of them are done with that.

    It is 0 where a single step takes more, and the next events go on with it. Of writes that are there with other content, those of `replaced` are written anew, as long as they are what it says.

    Raises:
        AlreadyExistsError: One of them is there and differs.
    """
    ending, alive = living(state, now)
    bodies: list[Body] = [] if thread.steps else [VersionContentPut(())]
    written: dict[bytes, Piece] = {}
    done = used_bytes = 0
    for step in steps:
        missing = list(_added(alive, thread, step, written, replaced))
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
        return (bodies if thread.steps else []), done
    began = [
        step.record.stored_at for step in thread.steps.values() if step.record is not None and step.record.stored_at
    ]
    begins = Begins(thread.id, thread.owner, min(began, default=None))
    return [*ending, *begun(bodies, begins)], done


def _added(
    state: VersionedState,
    thread: CheckedThread,
    step: CheckedStep,
    written: dict[bytes, Piece],
    replaced: Mapping[WriteKey, StoredWrite],
) -> Iterator[Body]:
    """
    Yield what the thread lacks of a step: the checkpoint after its writes, so that no agent finds it without them.

    `written` are the pieces that came in the same commit.
    """
    key = step.namespace, step.checkpoint_id
    stored, writes = state.version(*key), state.writes(*key)
    if _differs(step, stored, writes):
        what = f"checkpoint {key[1]!r} of thread {thread.id!r} (namespace {key[0]!r})"
        raise changed_meanwhile(what)
    record = step.record if stored is None else None
    here = _by_slot(writes)
    new = [write for write in step.writes if _is_new(write, here, replaced.get((key, write.task_id, write.index)))]
    pieces: dict[bytes, Piece] = {}
    for digest in [*(() if record is None else record.digests), *(write.digest for write in new)]:
        thread.pieces.missing(digest, lambda at: at in written or state.has_content(at), pieces)
    written |= pieces
    yield from (VersionContentPut(batch) for batch in batches_of([*pieces.values()]) if batch)
    yield from writes_put(*key, new)
    if record is not None:
        yield version_put(record, expires_at=thread.expires_at)


def _is_new(write: StoredWrite, here: Mapping[tuple[str, int], StoredWrite], replaced: StoredWrite | None) -> bool:
    stored = here.get((write.task_id, write.index))
    return stored is None or (stored == replaced and _is_other(stored, write))
