"""
Pruning and migration: which versions may go, and which checkpoints go into the namespace of their assistant.

Of states and items it knows what it knows of threads: they have one line, and no version that another one is made from.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ..chat.events import Body
from ..errors import NamespaceError
from ..log.codec import MAX_EVENT_BYTES
from ..wire import Value
from .decide_import import Reemission
from .events import THINNED, Skeleton, VersionKey, VersionsRemoved
from .keys import ASSISTANT, assistant_namespace, root_of
from .record import VersionedState, VersionRecord, ancestors

_COUNTERS = "counters_since_delta_snapshot"
MetadataOf = Callable[[VersionRecord], Any]


class Removal(NamedTuple):
    """Checkpoints that go, and skeletons that stay of some."""

    removed: list[VersionKey]
    skeletons: list[Skeleton]


def plan_thinning(value: VersionedState, metadata_of: MetadataOf, *, keep_last: int, until: int) -> list[Skeleton]:
    """
    The versions that lose their content, so that at `until`, in ms, each line had only its `keep_last` newest ones; each stays in its place.

    What was stored later stays whole: until now one can go back to every moment since. What has no content any more is not among them,
    and not looked at, but where it lies between what has.
    """
    lines = {name: list(value.unpruned(name)) for name in value.lines()}
    removal = _planned(value, lines, metadata_of, keep_last=keep_last, until=until)
    bare = {(record.line, record.id) for records in lines.values() for record in records if record.skeleton == ()}
    return [*removal.skeletons, *(Skeleton(*key, ()) for key in removal.removed if key not in bare)]


def decide_thin(skeletons: Sequence[Skeleton]) -> list[Body]:
    """These versions lose their content, in as few events as have room for them: each costs a look at all that the value still has."""
    batches: list[list[Skeleton]] = []
    room = 0
    for skeleton in skeletons:
        size = (
            16
            + len(skeleton.line.encode())
            + len(skeleton.id)
            + sum(4 + len(name.encode()) for name in skeleton.channels)
        )
        if size > room:
            batches.append([])
            room = MAX_EVENT_BYTES // 2
        batches[-1].append(skeleton)
        room -= size
    return [VersionsRemoved(THINNED, skeletons=tuple(batch)) for batch in batches]


def plan_prune(
    thread: VersionedState,
    is_ours: Callable[[str], bool],
    metadata_of: MetadataOf,
    *,
    keep_last: int = 1,
) -> Removal:
    """
    All but the newest checkpoints of each namespace, `keep_last` of them.

    The checkpoints of a call of a subgraph (`node:task_id`) go with the root checkpoint that the call started from: nothing
    will resume it. Of a subgraph with a memory, what it had before each root checkpoint that stays but the newest stays
    too, as going back to that checkpoint reads it.
    """
    records = {name: list(thread.versions(name)) for name in thread.lines() if is_ours(name)}
    return _planned(thread, records, metadata_of, keep_last=keep_last)


def _planned(
    thread: VersionedState,
    records: Mapping[str, Sequence[VersionRecord]],
    metadata_of: MetadataOf,
    *,
    keep_last: int,
    until: int | None = None,
) -> Removal:
    """The removal of all but the newest of each line, and those that were stored after `until`, in ms."""
    readable = {name: [record for record in line if record.skeleton is None] for name, line in records.items()}
    # A skeleton has no values, so it is none of the newest that stay.
    stay = dict.fromkeys(records, keep_last)
    if until is not None:
        stay = {name: keep_last + sum(record.stored_at > until for record in line) for name, line in readable.items()}
    staying = {(name, record.id) for name, line in readable.items() for record in line[: stay[name]]}
    for name in records:
        root = root_of(name)
        if name == root or root not in records:
            continue
        if ":" in name[len(root) :]:
            for record in readable[name]:
                parents: dict[str, str] = metadata_of(record).get("parents") or {}
                started_from = parents.get("")
                if started_from is None or (root, started_from) in staying:
                    continue
                if thread.version(root, started_from) is not None:
                    staying.discard((name, record.id))
        else:
            for past in readable[root][1 : stay[root]]:
                before = (record for record in readable[name] if record.id < past.id)
                staying |= {(name, record.id) for record in islice(before, 1)}
    gone = {(name, record.id) for name, line in records.items() for record in line} - staying
    return _with_skeletons(gone, records.__getitem__, metadata_of)


def plan_removal(thread: VersionedState, keys: Iterable[VersionKey], metadata_of: MetadataOf) -> Removal:
    """Return the removal of these checkpoints."""
    return _with_skeletons(set(keys), thread.versions, metadata_of)


def _with_skeletons(
    gone: set[VersionKey], versions: Callable[[str], Iterable[VersionRecord]], metadata_of: MetadataOf
) -> Removal:
    """Return the removal of these checkpoints. Skeletons stay where later checkpoints need them; what is a skeleton stays so."""
    needed: dict[VersionKey, set[str]] = {}
    bare: dict[VersionKey, tuple[str, ...]] = {}
    for namespace in dict.fromkeys(namespace for namespace, _ in gone):
        records = {record.id: record for record in versions(namespace)}
        for record in records.values():
            if record.skeleton is not None:
                bare[namespace, record.id] = record.skeleton
            elif (namespace, record.id) not in gone:
                _note_needs(record, records, needed, metadata_of)
    skeletons = [Skeleton(*key, tuple(sorted(needed[key]))) for key in sorted(gone) if key in needed]
    return Removal(
        [key for key in sorted(gone) if key not in needed],
        [skeleton for skeleton in skeletons if bare.get((skeleton.line, skeleton.id)) != skeleton.channels],
    )


def _note_needs(
    record: VersionRecord,
    records: dict[str, VersionRecord],
    needed: dict[VersionKey, set[str]],
    metadata_of: MetadataOf,
) -> None:
    """Note which ancestors a checkpoint needs for its delta channels: each up to the ancestor that has a value."""
    missing = delta_channels(record, metadata_of(record))
    for ancestor in ancestors(record, records.get):
        if not missing:
            return
        needed.setdefault((record.line, ancestor.id), set()).update(missing)
        missing = {channel for channel in missing if channel not in ancestor.fields}


def delta_channels(record: VersionRecord, metadata: Any) -> set[str]:
    """The channels whose values a checkpoint has not itself: they are made from its ancestors."""
    counters: dict[str, Any] = metadata.get(_COUNTERS) or {}
    return {channel for channel in counters if channel not in record.fields}


class Migration(Value, frozen=True):
    """
    The result of `migrate_namespace`.

    Args:
        migrated: Of each assistant, how many checkpoints are in its namespace that came from elsewhere.
        left: The others: their namespaces and ids. They name no assistant, or need a delta channel's writes of another one, or of a pruned one.
    """

    migrated: dict[str, int]
    left: list[VersionKey]


def plan_migration(
    thread: VersionedState, metadata_of: MetadataOf, is_wanted: Callable[[str], bool]
) -> tuple[list[Reemission], Migration]:
    """Return the moves of a migration, for the assistants whose namespaces are wanted."""
    moves: list[Reemission] = []
    migration = Migration({}, [])
    roots: dict[str, str] = {}
    names = [name for name in thread.lines() if not name.startswith(ASSISTANT)]
    for name in sorted(names, key=bool):  # the root first: calls of subgraphs name its checkpoints
        records = {record.id: record for record in thread.versions(name) if record.skeleton is None}
        metadata = {checkpoint_id: metadata_of(record) for checkpoint_id, record in records.items()}
        owners = {checkpoint_id: _assistant(fields, roots) for checkpoint_id, fields in metadata.items()}
        if not name:
            roots.update({checkpoint_id: owner for checkpoint_id, owner in owners.items() if owner is not None})
        left: set[str | None] = set()
        for checkpoint_id in sorted(records):
            owner = owners[checkpoint_id]
            if owner is not None and not is_wanted(assistant_namespace(owner)):
                continue
            parent_id, is_near = _own_parent(records[checkpoint_id], records, owners)
            is_cut = not is_near or parent_id in left
            # A delta channel is made from the writes of all ancestors, and these would not come along.
            if owner is None or (is_cut and delta_channels(records[checkpoint_id], metadata[checkpoint_id])):
                left.add(checkpoint_id)
                migration.left.append((name, checkpoint_id))
                continue
            root = assistant_namespace(owner)
            moves.append(Reemission(name, checkpoint_id, f"{root}|{name}" if name else root, parent_id))
            migration.migrated[owner] = migration.migrated.get(owner, 0) + 1
    return moves, migration


def _assistant(metadata: Any, roots: dict[str, str]) -> str | None:
    parents: dict[str, str] = metadata.get("parents") or {}
    assistant_id: Any = metadata.get("assistant_id") or roots.get(parents.get("", ""))
    try:
        assistant_namespace(assistant_id)
    except NamespaceError:
        return None
    return str(assistant_id)


def _own_parent(
    record: VersionRecord, records: dict[str, VersionRecord], owners: dict[str, str | None]
) -> tuple[str | None, bool]:
    """The nearest ancestor of the same assistant, and whether nothing lies between: neither another one's, nor what was pruned."""
    is_near = True
    for ancestor in ancestors(record, records.get):
        if owners.get(ancestor.id) == owners[record.id]:
            return ancestor.id, is_near
        is_near = False
    return None, record.parent is None
