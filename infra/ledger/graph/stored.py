"""States of graphs on a ledger, as they are written and read; whose they are is not asked here."""

import contextlib
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final

import msgspec

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.graph.decide import (
    GraphStateRecord,
    StateDraft,
    VersionRecord,
    decide_delete_state,
    decide_put_state,
    is_expired,
)
from chatledger.domain.graph.events import StateDeleted, StatePut, owner_of_state
from chatledger.domain.graph.pieces import join
from chatledger.projections.graph.reader import IndexedGraphState, listed_states, named_state, ordered_states
from chatledger.projections.log.kinds import STATES, Decision

from ...log.envelope import clock_ms
from ...store.commands import ChatsToRead
from ..ledger import Ledger
from ..parts import Shown, no_place, take_part
from ..port import LedgerStore, store_of
from ..scopes.as_of import AsOfPoint, find_point
from ..sweeper import sweep_states

_PLACE_BYTES: Final = 16


def _owned(state_id: str) -> ChatsToRead:
    return ChatsToRead(user_id=owner_of_state(state_id))


def _place_of(cursor: str) -> bytes:
    """The place in an order that a part ended with."""
    with contextlib.suppress(ValueError):
        place = bytes.fromhex(cursor)
        if len(place) <= _PLACE_BYTES:
            return place
    raise no_place(cursor)


class ReadState(msgspec.Struct, frozen=True):
    """A version with the values of its fields."""

    version: VersionRecord
    values: dict[str, Any]


class StoredStates:
    """
    The states on a ledger, which is closed by who opened it.

    Args:
        ledger: Gives the ledger, whenever it is needed.
    """

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger

    @property
    def _store(self) -> LedgerStore:
        return store_of(self._ledger())

    def read(
        self, state_id: str, version: int | None = None, *, only: Collection[str] | None = None
    ) -> ReadState | None:
        """
        A version, or the newest; None when there is none, or the state has expired. With `only` not all of its fields.

        Raises:
            CorruptStateError: It is damaged. Other versions may not be.
        """
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(STATES, state_id)
            with named_state(state_id, version):
                if not _is_there(state, is_tolerant=version is not None):
                    return None
            number = state.newest_version() if version is None else version
            with named_state(state_id, number):
                found = state.version(number)
                if found is None:
                    return None
                fields = {name: ref for name, ref in found.fields.items() if only is None or name in only}
                values = {name: join(ref.digest, state.need_content) for name, ref in fields.items()}
        return ReadState(found, values)

    def version_at(self, state_id: str, point: AsOfPoint) -> VersionRecord | None:
        """The newest version as of a point; None when there was none, or the state is absent now."""
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(STATES, state_id)
            with named_state(state_id, None):
                return version_at(state, point) if _is_there(state, is_tolerant=False) else None

    def versions(self, state_id: str, *, limit: int, before: int | None) -> list[VersionRecord]:
        """The versions of a state, the newest first, without content."""
        found: list[VersionRecord] = []
        with self._store.snapshot(_owned(state_id)) as snapshot:
            state = snapshot.stream(STATES, state_id)
            with named_state(state_id, None):
                if not _is_there(state, is_tolerant=False):
                    return []
            for number in state.version_numbers(before=before):
                if len(found) == limit:
                    break
                with named_state(state_id, number):
                    version = state.version(number)
                    assert version is not None, "a listed version is there"
                    found.append(version)
        return found

    def put(self, draft: StateDraft) -> StatePut:
        """Store a version; see `decide_put_state`."""
        with self._store.snapshot() as snapshot:
            snapshot.stream(STATES, draft.state_id)  # refused when it is in quarantine
        recorded = self._execute(draft.state_id, lambda state, now: decide_put_state(state, draft, now))
        if any(isinstance(one.body, StateDeleted) for one in recorded):
            self._store.erase_deleted()
        put = recorded[-1].body
        assert isinstance(put, StatePut), "what was decided"
        return put

    def delete(self, state_id: str, *, reason: str = "deleted") -> bool:
        """Remove a state and erase its events. Returns whether it was there, and had not expired."""
        was_there: list[bool] = []

        def decide(state: IndexedGraphState, now: int) -> list[Body]:
            was_there[:] = [state.record is not None and not is_expired(state.record, now)]
            return decide_delete_state(state, reason=reason)

        if self._execute(state_id, decide):
            self._store.erase_deleted()
        return was_there == [True]

    def records(self, *, user_id: str | None = None, conversation_id: str | None = None) -> list[GraphStateRecord]:
        """The states that have not expired, the last changed first; of a user, or of a conversation."""
        moment = clock_ms()
        with self._store.snapshot(ChatsToRead(user_id=user_id)) as snapshot:
            listed = listed_states(snapshot.txn, snapshot.tables, user_id=user_id, conversation_id=conversation_id)
            found = [record for record in listed if not is_expired(record, moment)]
        return sorted(found, key=lambda record: (-record.updated_at, record.state_id))

    def part(
        self,
        *,
        user_id: str | None,
        limit: int,
        is_by_update: bool,
        is_ascending: bool,
        after: str | None,
        wanted: Callable[[GraphStateRecord], Shown | None],
    ) -> tuple[list[Shown], str | None]:
        """A part of the states (of a user) that have not expired and are wanted, and where the next one begins; see `take_part`."""
        moment = clock_ms()
        with self._store.snapshot(ChatsToRead(user_id=user_id)) as snapshot:
            listed = ordered_states(
                snapshot.txn,
                snapshot.tables,
                user_id=user_id,
                is_by_update=is_by_update,
                is_ascending=is_ascending,
                after=None if after is None else _place_of(after),
            )
            found, last = take_part(
                listed, lambda record: None if is_expired(record, moment) else wanted(record), limit
            )
        return found, None if last is None else last.hex()

    def point(self, moment: int | datetime) -> AsOfPoint:
        """Return the as-of point of a position or a time; see `Ledger.as_of`."""
        return find_point(self._store, moment)

    def clean(self, *, updated_before: int | None, user_id: str | None = None) -> int:
        """Erase the states and items (of a user) that have expired or have no version since a moment, in ms; returns how many."""
        return sweep_states(self._store, expired_at=clock_ms(), updated_before=updated_before, user_id=user_id)

    def _execute(self, state_id: str, decide: Decision[IndexedGraphState]) -> list[Recorded]:
        def decide_named(state: IndexedGraphState, now: int) -> list[Body]:
            with named_state(state_id, None):
                return decide(state, now)

        return self._store.execute(STATES, state_id, decide_named)


def _is_there(state: IndexedGraphState, *, is_tolerant: bool) -> bool:
    """Whether there is a state that has not expired. If `is_tolerant`, one of which that cannot be told is there."""
    try:
        record = state.record
    except CorruptStateError:
        if is_tolerant:
            return True
        raise
    return record is not None and not is_expired(record, clock_ms())


def version_at(state: IndexedGraphState, point: AsOfPoint) -> VersionRecord | None:
    """Return the newest version of a state as of a point; None when there was none. Costs the versions since."""
    for number in state.version_numbers():
        version = state.version(number)
        assert version is not None, "a listed version is there"
        if version.position <= point.position and (point.time is None or version.stored_at <= point.time):
            return version
    return None
