"""Cascades: the values that go with a deleted chat, and the copies that outlive a deleted value."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, cast

from chatledger.domain.chat.events import Body
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.holds import decide_forget_hold, hold_key
from chatledger.domain.legal_hold import HoldKind
from chatledger.domain.limits import COMMIT_EVENTS
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.versioned.content import Piece, add_missing
from chatledger.domain.versioned.decide import batches_of, decide_delete
from chatledger.domain.versioned.decide_import import reemitted
from chatledger.domain.versioned.events import (
    SOURCE_DELETED,
    VersionContentPut,
    VersionKey,
    VersionsRemoved,
    VersionWritesPut,
)
from chatledger.domain.versioned.keys import ITEM, THREAD

from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .lists import states_of_conversation
from .reader import IndexedVersioned
from .rows import all_copies

_TOGETHER: Final = 20
"""Versions that are written in one commit, where their events fit into one."""
CHAT: Final = "chat"
DecideOnValue = Callable[[IndexedVersioned, int], list[Body]]


def deletions_of_threads(
    txn: Transaction, tables: Tables, of: str, chat_id: str, before: int
) -> list[tuple[str, DecideOnValue]]:
    """Return the thread with the id of a deleted chat, with the decision that deletes it, if it began earlier, for its owner."""
    if of != CHAT:
        return []
    record = IndexedVersioned(tables, txn, THREAD.stream_of(chat_id)).record
    if record is None or record.first_position >= before:
        return []
    tombstone = tables.tombstone(txn, chat_id)
    digest = None if tombstone is None else tombstone.owner_digest
    if record.owner is not None and digest is not None and digest != owner_digest(chat_id, record.owner):
        return []
    return [(chat_id, partial(_delete, before=before, reason="deleted"))]


def deletions_of_states(
    txn: Transaction, tables: Tables, of: str, conversation_id: str, before: int
) -> list[tuple[str, DecideOnValue]]:
    """Return the states of a conversation that began before its chat was deleted: ids, with the decisions that delete them."""
    if of != CHAT:
        return []
    records = states_of_conversation(txn, tables, conversation_id)
    decide = partial(_delete, before=before, reason="chat_deleted")
    return [(record.key, decide) for record in records if record.first_position < before]


def deletions_of_holds(
    txn: Transaction, tables: Tables, of: str, held_id: str, before: int
) -> list[tuple[str, DecideOnValue]]:
    """Return the hold that was on something deleted until it was released, with the decision that deletes it."""
    try:
        key = hold_key(cast("HoldKind", of), held_id)
    except InvalidValueError:
        return []  # too long an id for a hold, or not known any more
    record = IndexedVersioned(tables, txn, ITEM.stream_of(key)).record
    return [] if record is None or record.first_position >= before else [(key, decide_forget_hold)]


def _delete(state: IndexedVersioned, _now: int, *, before: int, reason: str) -> list[Body]:
    is_due = state.record is not None and state.record.first_position < before
    return decide_delete(state, reason=reason) if is_due else []


def reemissions(txn: Transaction, tables: Tables, stream_no: int) -> list[tuple[str, Iterator[DecideOnValue]]]:
    """
    Return what makes the copies of a deleted value independent of it, and the copies of those, whose events come too late.

    Each one's decisions write what it has to its own stream, each piece once. Carry one out before asking for the next.
    """
    return [
        (key, _reemissions(_version_keys(IndexedVersioned(tables, txn, THREAD.stream_of(key)), copy_no), copy_no))
        for copy_no, key in all_copies(txn, tables, stream_no).items()
    ]


def _version_keys(state: IndexedVersioned, copy_no: int) -> list[VersionKey]:
    """The versions of a copy; none when another value has its key by now."""
    if state.stream_no != copy_no:
        return []
    return [(line, version_id) for line in state.lines() for version_id in state.ids_with_writes(line)]


def _reemissions(keys: list[VersionKey], copy_no: int) -> Iterator[DecideOnValue]:
    digests: set[bytes] = set()
    for at in range(0, len(keys), _TOGETHER):
        writes: set[Body] = set()
        new: list[Body] = []
        is_whole = False
        while not is_whole:
            yield partial(_reemit, keys=keys[at : at + _TOGETHER], copy_no=copy_no, done=(digests, writes), new=new)
            digests |= _digests(new)
            writes |= {body for body in new if isinstance(body, VersionWritesPut)}
            is_whole = len(new) < COMMIT_EVENTS
    is_complete = not keys
    while not is_complete:
        new = []
        yield partial(_complete, copy_no=copy_no, digests=digests, new=new)
        digests |= _digests(new)
        is_complete = not new


def _complete(state: IndexedVersioned, _now: int, *, copy_no: int, digests: set[bytes], new: list[Body]) -> list[Body]:
    """
    Write the pieces of what was put meanwhile, which may be edits of what only the source has; where there are none, end it.

    What nothing reaches was not written again. An index that is made anew without the source has it as an edit of what is gone, or
    not at all, and would differ from this one.
    """
    new.clear()
    if state.stream_no != copy_no:
        return []
    pieces: dict[bytes, Piece] = {}
    add_missing(state.roots(state.lines()), state.content, digests.__contains__, pieces)
    new += [VersionContentPut(batch) for batch in batches_of([*pieces.values()]) if batch][:COMMIT_EVENTS]
    return [*new] or [VersionsRemoved(SOURCE_DELETED)]


def _reemit(
    state: IndexedVersioned,
    _now: int,
    *,
    keys: list[VersionKey],
    copy_no: int,
    done: tuple[set[bytes], set[Body]],
    new: list[Body],
) -> list[Body]:
    """The events of some versions without the pieces and writes that are `done`, as many as fit into a commit."""
    new.clear()  # it is asked again when another writer was faster
    digests, writes = done
    fresh: set[bytes] = set()
    for line, version_id in keys if state.stream_no == copy_no else ():
        more = reemitted(state, line, version_id, lambda digest: digest in digests or digest in fresh)
        fresh.update(_digests(more))
        new += (body for body in more if not (isinstance(body, VersionWritesPut) and body in writes))
    del new[COMMIT_EVENTS:]
    return [*new]


def _digests(bodies: Iterable[Body]) -> set[bytes]:
    return {piece.digest for body in bodies if isinstance(body, VersionContentPut) for piece in body.pieces}
