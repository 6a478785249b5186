"""Deleting the chats and the states of graphs that are due: once, or again and again in the background."""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from chatledger.domain.chat.decide_chats import decide_expire_chat
from chatledger.domain.chat.events import Body, ChatDeleted
from chatledger.domain.errors import ChatledgerError, InvalidValueError
from chatledger.domain.versioned.decide import decide_delete
from chatledger.domain.versioned.keys import ASSISTANT_STATES, STATE, Family, parse_state_id
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.projections.chat.lists import due_chats
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY
from chatledger.projections.versioned.lists import due_values, listed_values
from chatledger.projections.versioned.reader import IndexedVersioned, named_damage

from ..log.envelope import acting_unless_named
from .port import LedgerSnapshot, LedgerStore

SWEEPER: Final = "chatledger:sweeper"
"""The actor of deletions by sweeps, unless the caller has one."""
_PAGE: Final = 100
_logger = logging.getLogger(__name__)


def sweep(store: LedgerStore, *, until: int, limit: int | None = None) -> list[str]:
    """
    Delete the chats that ended at `until`, in ms, or before; the longest due first, at most `limit`. Then the states that
    expired by then, as many as the limit leaves.

    Large data whose writer died before it referred to them are erased too. Each chat is looked at again when it is deleted: one
    that was given more time meanwhile stays. Returns the ids of the chats that this call deleted, not those that another process
    was faster with.
    """
    deleted: list[str] = []
    passed: set[str] = set()
    # A thread goes with its chat, and would begin anew with writes that are stored after the tombstone.
    store.task_writes.settle()
    with acting_unless_named(SWEEPER):
        while limit is None or len(deleted) < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - len(deleted))
            with store.snapshot() as snapshot:
                found = due_chats(
                    snapshot.txn,
                    snapshot.tables,
                    until=until,
                    limit=room + len(passed),
                    user_id=snapshot.user_id,
                )
            due = [chat_id for chat_id in found if chat_id not in passed][:room]
            if not due:
                break
            for chat_id in due:
                recorded = store.execute(
                    CHATS, chat_id, lambda state, now: decide_expire_chat(state, until=until), kind=ChatDeleted
                )
                passed.add(chat_id)
                if recorded:
                    deleted.append(chat_id)
            # One scrub of the index for a page of deletions.
            store.erase_deleted()
        _sweep_values(store, until=until, limit=None if limit is None else limit - len(deleted))
    store.sweep_large()
    return deleted


def sweep_states(store: LedgerStore, *, expired_at: int, updated_before: int | None, user_id: str | None) -> int:
    """
    Erase the states and items (of a user) that have expired at a moment, in ms, and the states that have no version since another one.

    Returns how many this call erased. Costs what it finds.
    """

    def due(snapshot: LedgerSnapshot) -> Iterator[tuple[Family, VersionedRecord]]:
        txn, tables, owner = snapshot.txn, snapshot.tables, user_id or snapshot.user_id
        for family, record in due_values(txn, tables, until=expired_at):
            if family.owner_of(record.key) is not None and owner in {None, family.owner_of(record.key)}:
                yield family, record
        outdated = listed_values(txn, tables, STATE, user_id=owner, is_by_change=True) if updated_before else ()
        for _, record in outdated:
            if record.updated_at >= (updated_before or 0):
                return
            yield STATE, record

    return _erase_due(store, due, expired_at=expired_at, updated_before=updated_before)


def _sweep_values(store: LedgerStore, *, until: int, limit: int | None) -> int:
    """Erase the values of all families that expired at a moment, in ms, or before: at most `limit`. Returns how many this call erased."""

    def due(snapshot: LedgerSnapshot) -> Iterator[tuple[Family, VersionedRecord]]:
        for family, record in due_values(snapshot.txn, snapshot.tables, until=until):
            owner = family.owner_of(record.key) if record.owner is None else record.owner
            if snapshot.user_id in {None, owner}:
                yield family, record

    return _erase_due(store, due, expired_at=until, updated_before=None, limit=limit)


def _erase_due(
    store: LedgerStore,
    due: Callable[[LedgerSnapshot], Iterator[tuple[Family, VersionedRecord]]],
    *,
    expired_at: int,
    updated_before: int | None,
    limit: int | None = None,
) -> int:
    """Erase what is due, a page at a time. Each is looked at again: one that was written meanwhile stays. So do assistants."""

    def decide(state: IndexedVersioned, _now: int) -> list[Body]:
        with named_damage(state, state.key):
            return decide_delete(state, reason="", updated_before=updated_before, expired_at=expired_at)

    count = 0
    while True:
        room = _PAGE if limit is None else min(_PAGE, limit - count)
        with store.snapshot() as snapshot:
            listed = ((record.key, family) for family, record in due(snapshot) if not _is_assistant(family, record.key))
            page = dict(islice(listed, room))
        for key, family in page.items():
            count += bool(store.execute(KIND_OF_FAMILY[family.name], key, decide))
        # One scrub of the index for a page of deletions.
        store.erase_deleted()
        if len(page) < room or count == limit:
            return count


def _is_assistant(family: Family, key: str) -> bool:
    return family is STATE and parse_state_id(key).conversation_id.startswith(ASSISTANT_STATES)


def check_pause(every_s: Any) -> None:
    """Raise `InvalidValueError` unless it is a number of seconds above 0."""
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not 0 < every_s < threading.TIMEOUT_MAX:
        msg = f"sweep_every_s must be a number of seconds above 0, not {every_s!r}"
        raise InvalidValueError(msg)


class Sweeper:
    """
    A thread that sweeps at intervals until it is closed. A failure is logged, and the next sweep tries again.

    Args:
        work: Sweeps once.
        every_s: The pause between sweeps; see `check_pause`.
    """

    def __init__(self, work: Callable[[], object], *, every_s: float) -> None:
        self._work, self._every_s = work, every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chatledger-sweeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._work()
            except ChatledgerError as error:
                if not self._closing.is_set():
                    _logger.warning("sweeping: %s; the next sweep tries again in %s s", error, self._every_s)
            self._closing.wait(self._every_s)

    def close(self) -> None:
        """Wait for a sweep under way to end, and stop."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
