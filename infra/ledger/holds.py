"""Legal holds of a ledger: put, released and listed."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from chatledger.domain.chat.events import Body
from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.holds import HOLD_KINDS, HOLDS, LEDGER_OWNER, SETTING, hold_key
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.limits import check_choice, check_id
from chatledger.domain.versioned.numbered import LINE, VALUE, StateDraft, decide_end_item, decide_put_state, has_value
from chatledger.domain.versioned.serials import encoded
from chatledger.projections.log.holds import find_hold, goes_along, own_value
from chatledger.projections.log.kinds import CHATS, ITEMS, KIND_OF_FAMILY, StoredStream, StreamKind
from chatledger.projections.versioned.lists import living_items
from chatledger.projections.versioned.reader import IndexedVersioned

from ..log.envelope import clock_ms, current
from .persons import owned_by
from .port import LedgerPart, LedgerSnapshot, StorePort
from .retention import begin_again

_CATCH_UP_S = 30.0


class HoldMethods(LedgerPart):
    """The part of a ledger that is about legal holds."""

    def hold(self, kind: HoldKind, held_id: str, *, reason: str | None = None) -> LegalHold:
        """
        Put a legal hold on a chat, a thread, a state, an item or a user: nothing of it is deleted, erased or redacted, nor expires, until `release`.

        A chat is held with its thread and the states of its conversation, a user with all that is theirs, also what begins later. It can
        be read and written to as before. When this returns the hold is in force: what was deleted before is gone, and nothing
        is deleted after. Put again it changes nothing but the reason.

        Args:
            kind: `chat`, `thread`, `state`, `item` or `user`.
            held_id: The id of that. A user may be one who has nothing yet.
            reason: Why. Whoever may read what is held may read this.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            NotFoundError: There is no such chat, thread, state or item.
            InvalidValueError: There is no such kind, or the id or the reason breaks a rule.

        Source: index and log. Costs an event for each stream that it covers.
        """
        store = self._store.whole("hold")
        hold_key(kind, held_id)  # refuses what can be none
        if reason is not None:
            check_id(reason, "reason")
        store.catch_up(None, _CATCH_UP_S)
        with store.snapshot() as snapshot:
            if kind != "user" and not [*_covered(snapshot, kind, held_id)]:
                absent = NotFoundError(f"no {kind} {held_id!r} to hold; check the id")
                raise ChatNotFoundError(held_id) if kind == "chat" else absent
            before = find_hold(snapshot.txn, snapshot.tables, kind, held_id)
        if before is not None and before.reason == reason:
            hold = before
        else:
            hold = LegalHold(kind=kind, id=held_id, held_at=clock_ms(), held_by=current().actor, reason=reason)
        put_hold(store, hold)
        return hold

    def release(self, kind: HoldKind, held_id: str) -> bool:
        """
        Release a legal hold. Who put it when, and who released it, stays in the history; what was due meanwhile goes with the next sweep.

        Args:
            kind: As it was given to `hold`.
            held_id: As it was given to `hold`.

        Returns:
            Whether there was one. What is covered by another hold stays held.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            InvalidValueError: There is no such kind, or the id breaks a rule.
        """
        store = self._store.whole("release")
        key = hold_key(kind, held_id)
        store.catch_up(None, _CATCH_UP_S)
        released = store.execute(ITEMS, key, lambda state, now: decide_end_item(state, key, now))
        # Also where there was none: a call that was interrupted here left marks.
        _mark(store, LegalHold(kind=kind, id=held_id, held_at=0), is_held=False)
        begin_again(store)
        return bool(released)

    def holds(self, kind: HoldKind | None = None) -> list[LegalHold]:
        """
        The legal holds that are in force, the last put first.

        Args:
            kind: Only those on chats, threads, states, items or users.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            InvalidValueError: There is no such kind.

        Source: the LMDB index. Costs O(holds).
        """
        labels = (HOLDS,) if kind is None else (HOLDS, check_choice(kind, HOLD_KINDS, "the kind of a hold"))
        store = self._store.whole("holds")
        with store.snapshot() as snapshot:
            listed = living_items(snapshot.txn, snapshot.tables, LEDGER_OWNER, labels)
            holds = [own_value(snapshot.stream(ITEMS, record.key), LegalHold) for record in listed]
        return [hold for hold in holds if hold is not None]


def put_hold(store: StorePort, hold: LegalHold) -> None:
    """Put a hold on what is there, as it is; when this returns it is in force."""
    # First what begins meanwhile finds it, then what is there is marked; only then it is in force, and `verify` counts from there.
    key = hold_key(hold.kind, hold.id)
    store.execute(ITEMS, key, partial(_decide_put, hold, SETTING))
    _mark(store, hold, is_held=True)
    store.execute(ITEMS, key, partial(_decide_put, hold, None))


def take_holds(store: StorePort, holds: Sequence[LegalHold]) -> list[LegalHold]:
    """
    Put the holds of another ledger that are not in force here, as they are there; return those that were put.

    One that was released here after it was put there stays released, and one on what is not here waits until it is.
    """
    put: list[LegalHold] = []
    for hold in holds:
        with store.snapshot() as snapshot:
            if hold.kind != "user" and not [*_covered(snapshot, hold.kind, hold.id)]:
                continue
            item = snapshot.stream(ITEMS, hold_key(hold.kind, hold.id))
            newest = (
                None if item.record is None or item.record.newest is None else item.version(LINE, item.record.newest)
            )
            ended = item.tombstone.deleted_at if item.tombstone is not None else 0
            if newest is not None:
                # One that is being set is put again, as whoever began it may not have come to its end.
                is_settled = has_value(newest) and newest.node != SETTING
                ended = sys.maxsize if is_settled else ended if has_value(newest) else newest.stored_at
        if hold.held_at > ended:
            put_hold(store, hold)
            put.append(hold)
    return put


def _decide_put(hold: LegalHold, node: str | None, state: IndexedVersioned, now: int) -> list[Body]:
    newest = None if state.record is None or state.record.newest is None else state.version("", state.record.newest)
    if own_value(state, LegalHold) == hold and newest is not None and newest.node in {node, None}:
        return []
    draft = StateDraft(state_id=hold_key(hold.kind, hold.id), values={VALUE: encoded(hold.to_dict())}, node=node)
    return decide_put_state(state, draft, now)


def _covered(snapshot: LedgerSnapshot, kind: HoldKind, some_id: str) -> Iterator[tuple[StreamKind[Any], str]]:
    """Yield kinds and keys of the streams that a hold covers."""
    txn, tables = snapshot.txn, snapshot.tables
    if kind == "user":
        for each in owned_by(snapshot, some_id):
            yield (CHATS if each.family is None else KIND_OF_FAMILY[each.family.name]), each.key
        return
    streams: StreamKind[Any] = CHATS if kind == "chat" else KIND_OF_FAMILY[kind]
    stream = snapshot.stream(streams, some_id)
    if stream.record is None:
        return
    yield streams, some_id
    for along in goes_along(txn, tables, some_id, stream.owner) if kind == "chat" else ():
        yield KIND_OF_FAMILY[along.family.name], along.key


def _mark(store: StorePort, hold: LegalHold, *, is_held: bool) -> None:
    """Mark the streams that a hold covers, or take the mark off; also those that others made meanwhile."""

    def decide(state: StoredStream, _now: int) -> list[Body]:
        others = [other for other in state.holds if other.kind != hold.kind]
        holds = [hold, *others] if is_held else others
        return state.mark(sorted(holds, key=lambda hold: hold.kind == "user"))

    while True:
        with store.snapshot() as snapshot:
            covered = [*_covered(snapshot, hold.kind, hold.id)]
        if not sum(bool(store.execute(kind, key, decide)) for kind, key in covered):
            return
