"""Which checkpoints may be removed, and of which a skeleton must stay because later ones are made from them."""

from collections.abc import Callable, Iterable
from typing import Any

from chatledger.domain.agents.events import CheckpointKey, Skeleton
from chatledger.domain.agents.record import CheckpointRecord, ancestors
from chatledger.projections.agents.indexed_thread import IndexedThread

from ..agents.threads import Removal

_COUNTERS = "counters_since_delta_snapshot"
MetadataOf = Callable[[CheckpointRecord], Any]


def plan_prune(thread: IndexedThread, is_ours: Callable[[str], bool], metadata_of: MetadataOf) -> Removal:
    """
    All but the newest checkpoint of each namespace.

    The namespace of a call of a subgraph (`node:task_id`) goes as a whole when the root checkpoint that it started from does:
    nothing will resume it.
    """
    names = [name for name in thread.namespaces() if is_ours(name)]
    records = {name: list(thread.checkpoints(name)) for name in names}
    kept: dict[str, CheckpointRecord] = {}
    for name in names:
        newest = next((record for record in records[name] if record.skeleton is None), None)
        if newest is not None:
            kept[name] = newest
    gone = {
        (name, record.checkpoint_id)
        for name in names
        for record in records[name]
        if name not in kept or record.checkpoint_id != kept[name].checkpoint_id
    }
    for name, newest in list(kept.items()):
        if _is_over(name, newest, gone, names, metadata_of):
            gone.add((name, newest.checkpoint_id))
            del kept[name]
    return _with_skeletons(thread, gone, metadata_of)


def _is_over(
    name: str, newest: CheckpointRecord, gone: set[CheckpointKey], names: list[str], metadata_of: MetadataOf
) -> bool:
    """Whether a namespace belongs to a call that began at a checkpoint which is removed."""
    if ":" not in name.rpartition("|")[2] or (name.startswith("assistant:") and "|" not in name):
        return False
    parents: dict[str, str] = metadata_of(newest).get("parents") or {}
    # The root of a bound saver is stored under its assistant.
    roots = [other for other in names if other == "" or (name.startswith(f"{other}|") and "|" not in other)]
    return any((root, parents.get("")) in gone for root in roots)


def plan_removal(thread: IndexedThread, keys: Iterable[CheckpointKey], metadata_of: MetadataOf) -> Removal:
    """These checkpoints."""
    return _with_skeletons(thread, set(keys), metadata_of)


def _with_skeletons(thread: IndexedThread, gone: set[CheckpointKey], metadata_of: MetadataOf) -> Removal:
    needed: dict[CheckpointKey, set[str]] = {}
    for namespace in dict.fromkeys(namespace for namespace, _ in gone):
        records = {record.checkpoint_id: record for record in thread.checkpoints(namespace)}
        for record in records.values():
            if (namespace, record.checkpoint_id) not in gone and record.skeleton is None:
                _note_needs(record, records, needed, metadata_of)
    skeletons = [Skeleton(*key, tuple(sorted(needed[key]))) for key in sorted(gone) if key in needed]
    return Removal([key for key in sorted(gone) if key not in needed], skeletons)


def _note_needs(
    record: CheckpointRecord,
    records: dict[str, CheckpointRecord],
    needed: dict[CheckpointKey, set[str]],
    metadata_of: MetadataOf,
) -> None:
    """Note which ancestors a checkpoint needs for its delta channels: each up to the one that has a value."""
    missing = delta_channels(record, metadata_of(record))
    for ancestor in ancestors(record, records.get):
        if not missing:
            return
        needed.setdefault((record.namespace, ancestor.checkpoint_id), set()).update(missing)
        missing = {channel for channel in missing if channel not in ancestor.channels}


def delta_channels(record: CheckpointRecord, metadata: Any) -> set[str]:
    """The channels whose values a checkpoint has not itself: they are made from its ancestors."""
    counters: dict[str, Any] = metadata.get(_COUNTERS) or {}
    return {channel for channel in counters if channel not in record.channels}
