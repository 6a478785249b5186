"""Bringing a custom projection to the position of the index: page by page, with everybody else reading and writing."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.errors import ChainIntegrityError, ProjectionError
from chatledger.domain.values import Progress, no_progress

from ..generations import Generation
from ..index import Index, ReadLog
from ..lmdb.environment import Transaction
from ..snapshot import Snapshot
from .records import (
    BUILDING,
    SERVING,
    Entry,
    ProjectionRecord,
    apply_events,
    drop_record,
    forget_record,
    is_deleted,
    load_record,
    new_record,
    save_record,
)

_MAX_STREAMS: Final = 65_536


class Links:
    """
    Finds events that are missing, repeated or altered, between those that are read.

    What it remembers is bounded: of streams beyond the 65,536 that were seen last only `verify` tells.
    """

    def __init__(self) -> None:
        self._position = 0
        self._hashes: dict[str, bytes] = {}
        self._is_whole = True

    def check(self, after: int, events: Iterable[Recorded], *, end: int) -> "Links":
        """
        Check the links of the next events, those of the log from position `after` up to `end`, and note them.

        Raises:
            ChainIntegrityError: They do not follow what was seen before.
        """
        found = Links()
        if after == self._position:
            found._hashes, found._is_whole = dict(self._hashes) if self._hashes else {}, self._is_whole
        else:
            found._is_whole = False
        found._position = end
        for recorded in events:
            found._take(recorded)
        return found

    def _take(self, recorded: Recorded) -> None:
        before = self._hashes.pop(recorded.chat_id, None)
        self._hashes[recorded.chat_id] = recorded.hash
        if len(self._hashes) > _MAX_STREAMS:
            del self._hashes[next(iter(self._hashes))]
            self._is_whole = False
        if isinstance(recorded.body, StreamDeleted):
            return
        follows = recorded.event.previous_hash == before if before is not None else recorded.version == 1
        if not follows and (before is not None or self._is_whole):
            msg = (
                f"position {recorded.position} is version {recorded.version} of chat {recorded.chat_id!r}, which does not "
                "follow the event before it: events are missing or altered. Restore the log from a backup"
            )
            raise ChainIntegrityError(
                msg, chat_id=recorded.chat_id, position=recorded.position, version=recorded.version
            )


class CatchingUp:
    """
    One projection on its way to where the index is.

    Each page is one transaction with the position, so processes that do the same help each other, and one that is killed
    leaves what the next goes on from. A new version is built beside the rows that serve, and takes over in one transaction.

    Args:
        wanted: The least number of a set of rows that will do; for building anew.
    """

    def __init__(self, index: Index, entry: Entry, read: ReadLog, *, wanted: int = 0) -> None:
        self._index, self._entry, self._read = index, entry, read
        self._wanted = wanted
        self._links = Links()

    def run(self, *, can_build: bool, report: Progress = no_progress) -> ProjectionRecord | None:
        """
        Catch up. Returns the record of the rows that serve now, or are broken.

        None when they have to be built first, and `can_build` is False. Building is for one process at a time, in
        `Index.building`.

        Raises:
            ProjectionError: Another version serves, and its process is still at work; or a rebuild failed.
            ChainIntegrityError: Events on the log are missing or altered.
        """
        while True:
            with self._index.snapshot() as snapshot:
                target = snapshot.state.position
                found = self._choose(snapshot)
            if found is None:
                if not can_build:
                    return None
                self._index.update(self._begin)
                continue
            slot, record = found
            if record.error or (slot == SERVING and record.position >= target):
                self._entry.has_served = self._entry.has_served or not record.error
                return record
            if slot == BUILDING and not can_build:
                return None
            self._step(slot, record)
            report(min(record.position, target), target)

    def _choose(self, snapshot: Snapshot) -> tuple[bytes, ProjectionRecord] | None:
        """Return the rows to go on with, and their slot; None when there are none yet."""
        entry = self._entry
        serving = load_record(snapshot.txn, snapshot.tables, SERVING, entry.name)
        building = load_record(snapshot.txn, snapshot.tables, BUILDING, entry.name)
        if serving is not None and serving.version == entry.version and serving.number >= self._wanted:
            return SERVING, serving
        if serving is not None and serving.version != entry.version and entry.has_served:
            entry.is_replaced = True
            raise ProjectionError(
                entry.name,
                f"was built anew as version {serving.version} by another process, and this one has version {entry.version}; "
                "restart it with the same version",
                position=serving.position,
            )
        if building is not None and building.version == entry.version and building.number >= self._wanted:
            return BUILDING, building
        return None

    def _begin(self, generation: Generation, txn: Transaction) -> None:
        """Begin new rows beside those that serve."""
        building = load_record(txn, generation.tables, BUILDING, self._entry.name)
        is_usable = building is not None and building.version == self._entry.version
        if is_usable and building is not None and building.number >= self._wanted:
            return  # another process was faster
        drop_record(txn, generation.tables, BUILDING, self._entry.name)
        save_record(
            txn, generation.tables, BUILDING, new_record(txn, generation.tables, self._entry.name, self._entry.version)
        )

    def _step(self, slot: bytes, record: ProjectionRecord) -> None:
        page = self._read(record.position)

        def change(generation: Generation, txn: Transaction) -> Links | str | None:
            if load_record(txn, generation.tables, slot, record.name) != record:
                return None  # another process was faster
            return self._apply(generation, txn, slot, record, page)

        outcome = self._index.update(change)
        if isinstance(outcome, str):
            raise ProjectionError(
                record.name, f"failed again while it was built anew: {outcome}; the old rows stay", position=None
            )
        if outcome is not None:
            self._links = outcome

    def _apply(
        self, generation: Generation, txn: Transaction, slot: bytes, record: ProjectionRecord, page: Sequence[Recorded]
    ) -> Links | str:
        """Apply a page; returns what is known of the streams then, or why a rebuild failed."""
        tables, target = generation.tables, generation.state(txn).position
        events = [recorded for recorded in page if recorded.position <= target]
        end = target if not page or len(events) < len(page) else page[-1].position
        living = [recorded for recorded in events if not is_deleted(txn, tables, recorded)]
        links = self._links.check(record.position, living, end=end)
        reached = apply_events(txn, tables, self._entry.projection, record, living)
        if reached.error:
            return self._fail(txn, generation, slot, reached) or links
        reached = msgspec.structs.replace(reached, position=end)
        if reached.dirty_until and end >= reached.dirty_until:
            reached = msgspec.structs.replace(reached, dirty_until=0)
            generation.note_dirty(txn)  # what was deleted leaves these rows only now
        if slot == BUILDING and end >= target:
            drop_record(txn, tables, SERVING, record.name)
            forget_record(txn, tables, BUILDING, record.name)
            slot = SERVING
        save_record(txn, tables, slot, reached)
        return links

    def _fail(self, txn: Transaction, generation: Generation, slot: bytes, broken: ProjectionRecord) -> str | None:
        serving = load_record(txn, generation.tables, SERVING, broken.name)
        if slot == BUILDING and serving is not None and serving.version == broken.version:
            drop_record(txn, generation.tables, BUILDING, broken.name)
            return f"{broken.error}, at position {broken.error_position}"
        save_record(txn, generation.tables, slot, broken)
        return None
