"""Values with numbered versions on a ledger, states and items, as they are written and read; whose they are is not asked here."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.moments import Moment
from chatledger.domain.versioned.decide import decide_delete
from chatledger.domain.versioned.events import VersionPut, VersionsDeleted
from chatledger.domain.versioned.keys import STATE, owner_of_state
from chatledger.domain.versioned.numbered import LINE, StateDraft, decide_put_state
from chatledger.domain.versioned.record import VersionedRecord, VersionRecord, is_expired, number_id
from chatledger.domain.versioned.serials import join
from chatledger.projections.log.kinds import Decision, kind_of_id
from chatledger.projections.versioned.lists import listed_values, states_of_conversation
from chatledger.projections.versioned.reader import IndexedVersioned, named_damage

from ...log.envelope import clock_ms
from ...store.commands import ChatsToRead
from ..ledger import Ledger
from ..port import StorePort, store_of
from ..scopes.as_of import AsOfPoint, find_point
from ..sweeper import sweep_states
from ..thread_lists import Shown, place_of, take_part


def _owned(state_id: str) -> ChatsToRead:
    return ChatsToRead(user_id=owner_of_state(state_id))


def put_version(recorded: Sequence[Recorded]) -> int:
    """The number of the version that a change put. Of a value that begins under a legal hold the mark of that comes after it."""
    return next(int(event.body.id) for event in reversed(recorded) if isinstance(event.body, VersionPut))


class ReadState(msgspec.Struct, frozen=True):
    """A version with the values of its fields."""

    version: VersionRecord
    values: dict[str, Any]


class StoredStates:
    """The states on a ledger, which is closed by who opened it."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger

    @property
    def _store(self) -> StorePort:
        return store_of(self._ledger())

    def read(
        self, state_id: str, version: int | None = None, *, only: Collection[str] | None = None
    ) -> ReadState | None:
        """
        A version, or the newest; None when there is none, its content is gone, or the state has expired. With `only` not all of its fields.

        Raises:
            CorruptStateError: It is damaged. Other versions may not be.
        """
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(kind_of_id(state_id), state_id)
            named = None if version is None else number_id(version)
            with named_damage(state, state_id, named):
                if not _is_there(state, is_tolerant=version is not None):
                    return None
            version_id = next(state.version_ids(), None) if named is None else named
            with named_damage(state, state_id, version_id):
                record = None if version_id is None else state.version(LINE, version_id)
                if record is None or record.skeleton is not None:
                    return None
                fields = {name: ref for name, ref in record.fields.items() if only is None or name in only}
                values = {name: join(ref.digest, state.need_content) for name, ref in fields.items()}
        return ReadState(record, values)

    def version_at(self, state_id: str, point: AsOfPoint) -> VersionRecord | None:
        """The newest version as of a point; None when there was none, or the state is absent now."""
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(kind_of_id(state_id), state_id)
            with named_damage(state, state_id):
                return version_at(state, point) if _is_there(state, is_tolerant=False) else None

    def versions(self, state_id: str, *, limit: int, before: int | None) -> list[VersionRecord]:
        """The versions of a state, the newest first, without content."""
        records: list[VersionRecord] = []
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(kind_of_id(state_id), state_id)
            with named_damage(state, state_id):
                if not _is_there(state, is_tolerant=False):
                    return []
            for version_id in state.version_ids(before=None if before is None else number_id(before)):
                if len(records) == limit:
                    break
                with named_damage(state, state_id, version_id):
                    record = state.version(LINE, version_id)
                    assert record is not None, "a listed version is there"
                    records.append(record)
        return records

    def put(self, draft: StateDraft) -> int:
        """Store a version, and return its number; see `decide_put_state`."""
        if self._store.redactor is not None:
            draft = self._store.redactor.state(draft)
        recorded = self._execute(draft.state_id, lambda state, now: decide_put_state(state, draft, now))
        if any(isinstance(event.body, VersionsDeleted) for event in recorded):
            self._store.erase_deleted()
        return put_version(recorded)

    def delete(self, state_id: str, *, reason: str = "deleted") -> bool:
        """Remove a state and erase its events. Returns whether it was there, and had not expired."""
        was_there: list[bool] = []

        def decide(state: IndexedVersioned, now: int) -> list[Body]:
            was_there[:] = [state.record is not None and not is_expired(state.record, now)]
            return decide_delete(state, reason=reason)

        if self._execute(state_id, decide):
            self._store.erase_deleted()
        return was_there == [True]

    def records(self, *, user_id: str | None = None, conversation_id: str | None = None) -> list[VersionedRecord]:
        """The states that have not expired, the last changed first; of a user, or of a conversation."""
        moment = clock_ms()
        with self._store.snapshot(ChatsToRead(user_id=user_id)) as snapshot:
            if user_id is None and conversation_id is not None:
                listed = states_of_conversation(snapshot.txn, snapshot.tables, conversation_id)
            else:
                of_owner = listed_values(snapshot.txn, snapshot.tables, STATE, user_id=user_id)
                listed = (record for _, record in of_owner)
            records = [record for record in listed if record.newest is not None and not is_expired(record, moment)]
        return sorted(records, key=lambda record: (-record.updated_at, record.key))

    def part(
        self,
        *,
        user_id: str | None,
        limit: int,
        is_by_update: bool,
        is_ascending: bool,
        after: str | None,
        wanted: Callable[[VersionedRecord], Shown | None],
    ) -> tuple[list[Shown], str | None]:
        """A part of the states (of a user) that have not expired and are wanted, and where the next one begins; see `take_part`."""
        moment = clock_ms()
        with self._store.snapshot(ChatsToRead(user_id=user_id)) as snapshot:
            listed = listed_values(
                snapshot.txn,
                snapshot.tables,
                STATE,
                user_id=user_id,
                is_by_change=is_by_update,
                is_ascending=is_ascending,
                after=None if after is None else place_of(after),
            )

            def shown(record: VersionedRecord) -> Shown | None:
                return None if record.newest is None or is_expired(record, moment) else wanted(record)

            states, last = take_part(listed, shown, limit)
        return states, None if last is None else last.hex()

    def point(self, moment: Moment) -> AsOfPoint:
        """Return the as-of point of a position or a time; see `Ledger.as_of`."""
        return find_point(self._store, moment)

    def clean(self, *, updated_before: int | None, user_id: str | None = None) -> int:
        """Erase the states and items (of a user) that have expired or have no version since a moment, in ms; returns how many."""
        return sweep_states(self._store, expired_at=clock_ms(), updated_before=updated_before, user_id=user_id)

    def _execute(self, state_id: str, decide: Decision[IndexedVersioned]) -> list[Recorded]:
        def decide_named(state: IndexedVersioned, now: int) -> list[Body]:
            with named_damage(state, state_id):
                return decide(state, now)

        return self._store.execute(kind_of_id(state_id), state_id, decide_named)


def _is_there(state: IndexedVersioned, *, is_tolerant: bool) -> bool:
    """Whether there is a state that has not expired. If `is_tolerant`, one of which that cannot be told is there."""
    try:
        record = state.record
    except CorruptStateError:
        if is_tolerant:
            return True
        raise
    return record is not None and not is_expired(record, clock_ms())


def version_at(state: IndexedVersioned, point: AsOfPoint) -> VersionRecord | None:
    """Return the newest version of a state as of a point; None when there was none. Costs the versions since."""
    for version_id in state.version_ids():
        version = state.version(LINE, version_id)
        assert version is not None, "a listed version is there"
        if version.position <= point.position and (point.time is None or version.stored_at <= point.time):
            return version
    return None
