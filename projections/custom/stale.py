"""Projections that lag behind a deletion: they may have something of what was deleted, and nobody may come to remove it."""

import time
from typing import TYPE_CHECKING, Final

import msgspec

from ..lmdb.environment import Transaction
from .records import drop_record, drop_rows, load_records, save_record

if TYPE_CHECKING:
    from ..generations import Generation

GRACE_S: Final = 15.0
"""The time that a process with such a projection is given to catch up; it looks every 5 seconds."""


def wipe_stale(generation: "Generation") -> bool:
    """
    Remove the rows of projections that lag behind a deletion. Returns whether there are none (any more).

    Those that are not broken get some time first. Nobody may be building: see `Index.building`.
    """
    with generation.env.reading() as txn:
        stale = [record for _, record in load_records(txn, generation.tables) if record.dirty_until]
    if not stale:
        generation.stale_since_s = None
        return True
    now_s = time.monotonic()
    if generation.stale_since_s is None:
        generation.stale_since_s = now_s
    has_time = now_s - generation.stale_since_s < GRACE_S

    def wipe(txn: Transaction) -> bool:
        is_clean = True
        for slot, record in load_records(txn, generation.tables):
            if not record.dirty_until:
                continue
            if record.error:
                drop_rows(txn, generation.tables, record)
                save_record(txn, generation.tables, slot, msgspec.structs.replace(record, dirty_until=0))
            elif has_time:
                is_clean = False
                continue
            else:
                drop_record(txn, generation.tables, slot, record.name)
            generation.note_dirty(txn)
        return is_clean

    return generation.env.update(wipe)
