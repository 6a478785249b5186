"""Legal holds in the index: what covers a stream, and what a decision may write under it."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from chatledger.domain.chat.events import Body, ChatDeleted
from chatledger.domain.errors import HeldError, InvalidValueError
from chatledger.domain.holds import HOLDS, LEDGER_OWNER, begun_under, hold_key, is_destroying, is_in_force
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.log.shares import owner_named
from chatledger.domain.versioned.events import BeginningBody
from chatledger.domain.versioned.keys import ITEM, item_id, parse_state_id
from chatledger.domain.versioned.numbered import LINE, VALUE, has_value
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.domain.versioned.serials import join

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..snapshot import Snapshot
from ..versioned.lists import listed_namespaces, states_of_conversation
from ..versioned.reader import IndexedVersioned
from .kinds import CHATS, STATES, THREADS, StoredStream, kind_of

T = TypeVar("T")
_OWN_ITEMS: Final = item_id(LEDGER_OWNER, ("x",), "x").removesuffix("x:x")
"""How the ids of the ledger's own items begin."""


def own_value(state: IndexedVersioned, kind: type[T]) -> T | None:
    """Return what an item of the ledger's own is, a hold or a rule; None where it was ended, or never put."""
    record = state.record
    version = None if record is None or record.newest is None else state.version(LINE, record.newest)
    if version is None or not has_value(version):
        return None
    return msgspec.convert(join(version.fields[VALUE].digest, state.need_content), kind)


def find_hold(txn: Transaction, tables: Tables, kind: HoldKind, some_id: str) -> LegalHold | None:
    """Return the hold that was put on something; None for none, as of what has too long an id for one."""
    try:
        key = hold_key(kind, some_id)
    except InvalidValueError:
        return None
    return own_value(IndexedVersioned(tables, txn, ITEM.stream_of(key)), LegalHold)


def goes_along(txn: Transaction, tables: Tables, chat_id: str, owner: str | None) -> Iterator[IndexedVersioned]:
    """Yield what a deletion of a chat would take along: its thread, and the states of its conversation."""
    thread = THREADS.read(tables, txn, THREADS.stream_of(chat_id))
    if thread.record is not None and thread.record.owner in {None, owner}:
        yield thread
    for record in states_of_conversation(txn, tables, chat_id):
        yield STATES.read(tables, txn, STATES.stream_of(record.key))


def _covering(snapshot: Snapshot, stream_id: str, key: str, owner: str | None) -> Iterator[LegalHold]:
    """Yield the holds on a stream, on the chat that it goes with and on its owner, be it marked with them or not."""
    txn, tables, kind = snapshot.txn, snapshot.tables, kind_of(stream_id)
    targets: dict[HoldKind, str | None] = {kind.name: key, "user": owner}  # type: ignore[dict-item]  # kinds of streams are kinds of holds
    if kind is STATES:
        targets["chat"] = parse_state_id(key).conversation_id
    elif kind is THREADS and CHATS.read(tables, txn, key).owner in {None, owner}:
        targets["chat"] = key
    for target, some_id in targets.items():
        hold = find_hold(txn, tables, target, some_id) if some_id else None
        # What it is on itself is there when it is put, and marked before it is in force.
        if hold is None and some_id and snapshot.hold_elsewhere is not None and target in {"user", "chat"}:
            hold = snapshot.hold_elsewhere(target, some_id)
        if hold is not None:
            yield hold


def under_holds(snapshot: Snapshot, state: StoredStream, key: str, bodies: list[Body]) -> list[Body]:
    """
    Return the events of a decision on a stream as they may be written: what begins under a hold is marked with it.

    Raises:
        HeldError: They would destroy what is held, or take it along.
        InvalidValueError: They would destroy a hold itself, or a retention rule, that is in force.
    """
    txn, tables = snapshot.txn, snapshot.tables
    is_first, destroys = state.record is None, any(map(is_destroying, bodies))
    if not (bodies and (is_first or destroys)):
        return bodies
    if destroys and key.startswith(_OWN_ITEMS) and isinstance(state, IndexedVersioned) and is_in_force(state):
        msg = "what is the ledger's own is not deleted: release the hold, or remove the retention rule"
        raise InvalidValueError(msg)
    if is_first:
        has_all = snapshot.hold_elsewhere is None
        if has_all and next(listed_namespaces(txn, tables, LEDGER_OWNER, (HOLDS,)), None) is None:
            return bodies  # asked first, as each chat would wait for the look-ups below: there are no holds
        begins = next((body.begins for body in bodies if isinstance(body, BeginningBody) and body.begins), None)
        named = [owner_named(state.stream_id, body) for body in bodies]
        owner = next(filter(None, named), None) or (begins and begins.owner) or state.owner
        # A repair knows a value by its stream alone, and its first event says the key.
        named_key = begins.key if begins is not None else key
        holds = [*_covering(snapshot, state.stream_id, named_key, owner)]
        return begun_under(bodies, holds) if holds else bodies
    if isinstance(state.record, VersionedRecord):
        key = state.record.key or key  # a repair knows it by its stream alone
    holds = [*state.holds] or [*_covering(snapshot, state.stream_id, key, state.owner)]
    if not holds and any(isinstance(body, ChatDeleted) for body in bodies):
        holds = [hold for along in goes_along(txn, tables, key, state.owner) for hold in along.holds]
        # The thread of a chat is in no share, and would go with the chat where all is held.
        elsewhere = snapshot.hold_elsewhere and snapshot.hold_elsewhere("thread", key)
        holds += [elsewhere] if elsewhere else []
    if holds:
        raise HeldError(state.name, holds[0])
    return bodies
