"""Which checkpoints that name an assistant, but lie in no assistant's namespace, go where."""

from collections.abc import Callable
from typing import Any

import msgspec

from chatledger.domain.agents.events import CheckpointKey
from chatledger.domain.agents.namespaces import ASSISTANT, assistant_namespace
from chatledger.domain.agents.record import CheckpointRecord, ancestors
from chatledger.domain.agents.restating import Restatement
from chatledger.domain.errors import NamespaceError
from chatledger.projections.agents.indexed_thread import IndexedThread

from .pruning import delta_channels

MetadataOf = Callable[[CheckpointRecord], Any]


class Migration(msgspec.Struct, frozen=True):
    """
    What `migrate_namespace` did.

    Args:
        migrated: Of each assistant, how many checkpoints are in its namespace that came from elsewhere.
        left: The others: their namespaces and ids. They name no assistant, or need a delta channel's writes of another one, or of a pruned one.
    """

    migrated: dict[str, int]
    left: list[CheckpointKey]


def plan_migration(
    thread: IndexedThread, metadata_of: MetadataOf, is_wanted: Callable[[str], bool]
) -> tuple[list[Restatement], Migration]:
    """What is to be done, for the assistants whose namespaces are wanted."""
    moves: list[Restatement] = []
    migration = Migration({}, [])
    roots: dict[str, str] = {}
    names = [name for name in thread.namespaces() if not name.startswith(ASSISTANT)]
    for name in sorted(names, key=bool):  # the root first: calls of subgraphs name its checkpoints
        records = {one.checkpoint_id: one for one in thread.checkpoints(name) if one.skeleton is None}
        metadata = {checkpoint_id: metadata_of(one) for checkpoint_id, one in records.items()}
        owners = {checkpoint_id: _assistant(one, roots) for checkpoint_id, one in metadata.items()}
        if not name:
            roots.update({checkpoint_id: owner for checkpoint_id, owner in owners.items() if owner is not None})
        left: set[str | None] = set()
        for checkpoint_id in sorted(records):
            owner = owners[checkpoint_id]
            if owner is not None and not is_wanted(assistant_namespace(owner)):
                continue
            parent_id, is_near = _own_parent(records[checkpoint_id], records, owners)
            is_cut = not is_near or parent_id in left
            if owner is None or (is_cut and delta_channels(records[checkpoint_id], metadata[checkpoint_id])):
                left.add(checkpoint_id)
                migration.left.append((name, checkpoint_id))
                continue
            root = assistant_namespace(owner)
            moves.append(Restatement(name, checkpoint_id, f"{root}|{name}" if name else root, parent_id))
            migration.migrated[owner] = migration.migrated.get(owner, 0) + 1
    return moves, migration


def _assistant(metadata: Any, roots: dict[str, str]) -> str | None:
    parents: dict[str, str] = metadata.get("parents") or {}
    found: Any = metadata.get("assistant_id") or roots.get(parents.get("", ""))
    try:
        assistant_namespace(found)
    except NamespaceError:
        return None
    return str(found)


def _own_parent(
    record: CheckpointRecord, records: dict[str, CheckpointRecord], owners: dict[str, str | None]
) -> tuple[str | None, bool]:
    """The nearest ancestor of the same assistant, and whether nothing lies between: neither another one's, nor what was pruned."""
    is_near = True
    for ancestor in ancestors(record, records.get):
        if owners.get(ancestor.checkpoint_id) == owners[record.checkpoint_id]:
            return ancestor.checkpoint_id, is_near
        is_near = False
    return None, record.parent_id is None
