"""Deleting what has expired, chats, threads, states and items: once, or again and again in the background."""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from chatledger.domain.chat.decide_chats import decide_expire_chat
from chatledger.domain.chat.events import Body, ChatDeleted
from chatledger.domain.errors import ChatledgerError, InvalidValueError
from chatledger.domain.values import Swept
from chatledger.domain.versioned.decide import decide_delete
from chatledger.domain.versioned.keys import ASSISTANT_STATES, STATE, Family, parse_state_id
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.projections.chat.lists import due_chats
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY, StreamKind
from chatledger.projections.versioned.lists import due_values, listed_values
from chatledger.projections.versioned.reader import IndexedVersioned, named_damage

from ..log.envelope import acting_unless_named
from .port import LedgerSnapshot, StorePort

SWEEPER: Final = "chatledger:sweeper"
"""The actor of deletions by sweeps, unless the caller has one."""
_PAGE: Final = 100
_logger = logging.getLogger(__name__)


def sweep(store: StorePort, *, until: int, limit: int | None = None) -> Swept:
    """
    Delete the chats that ended at `until`, in ms, or before, and then the threads, states and items; the longest due first, at most `limit`.

    Large data whose writer died before it referred to them are erased too. Each is looked at again when it is deleted: one that was given
    more time meanwhile stays. Returns what this call deleted, not what another process was faster with.
    """
    chats: list[str] = []
    versioned = 0
    passed: set[tuple[str, str]] = set()
    # A thread goes with its chat, and would begin anew with writes that are stored after the tombstone.
    store.task_writes.settle()
    with acting_unless_named(SWEEPER):
        while limit is None or len(chats) + versioned < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - len(chats) - versioned)
            with store.snapshot() as snapshot:
                # What was tried is passed over, also where this call deleted nothing: another process was faster.
                due = list(islice((each for each in _due(snapshot, until, len(passed)) if each not in passed), room))
            if not due:
                break
            for kind, key in due:
                passed.add((kind, key))
                if kind == CHATS.name:
                    recorded = store.execute(
                        CHATS, key, lambda state, now: decide_expire_chat(state, until=until), kind=ChatDeleted
                    )
                    chats += [key] if recorded else []
                else:
                    versioned += _erase(store, KIND_OF_FAMILY[kind], key, expired_at=until)
            # One scrub of the index for a page of deletions.
            store.erase_deleted()
    store.sweep_large()
    return Swept(chats=chats, versioned=versioned)


def _due(snapshot: LedgerSnapshot, until: int, more: int) -> Iterator[tuple[str, str]]:
    """Yield the kinds and keys of what ended at `until` or before; `more` chats beyond a page are looked at."""
    txn, tables, user_id = snapshot.txn, snapshot.tables, snapshot.user_id
    # Chats come first, as with each goes what belongs to it.
    chats = due_chats(txn, tables, until=until, limit=_PAGE + more, user_id=user_id)
    yield from ((CHATS.name, chat_id) for chat_id in chats)
    for family, record in due_values(txn, tables, until=until):
        owner = family.owner_of(record.key) if record.owner is None else record.owner
        if user_id in {None, owner} and not _is_assistant(family, record.key):
            yield family.name, record.key


def sweep_states(store: StorePort, *, expired_at: int, updated_before: int | None, user_id: str | None) -> int:
    """
    Erase the states and items (of a user) that have expired at a moment, in ms, and the states that have no version since another one.

    Each is looked at again: one that was written meanwhile stays. So do assistants, however old they are. Returns how many this call
    erased. Costs what it finds.
    """

    def due(snapshot: LedgerSnapshot) -> Iterator[tuple[Family, VersionedRecord]]:
        txn, tables, owner = snapshot.txn, snapshot.tables, user_id or snapshot.user_id
        for family, record in due_values(txn, tables, until=expired_at):
            if family.owner_of(record.key) is not None and owner in {None, family.owner_of(record.key)}:
                yield family, record
        if updated_before is None:
            return
        for _, record in listed_values(txn, tables, STATE, user_id=owner, is_by_change=True):
            if record.updated_at >= updated_before:
                return
            yield STATE, record

    count = 0
    while True:
        with store.snapshot() as snapshot:
            listed = ((record.key, family) for family, record in due(snapshot) if not _is_assistant(family, record.key))
            page = dict(islice(listed, _PAGE))
        for key, family in page.items():
            count += _erase(
                store, KIND_OF_FAMILY[family.name], key, expired_at=expired_at, updated_before=updated_before
            )
        store.erase_deleted()
        if len(page) < _PAGE:
            return count


def _erase(
    store: StorePort,
    kind: StreamKind[IndexedVersioned],
    key: str,
    *,
    expired_at: int,
    updated_before: int | None = None,
) -> bool:
    """Write the end of a value that has expired, or is too old; returns whether it had."""

    def decide(state: IndexedVersioned, _now: int) -> list[Body]:
        with named_damage(state, key):
            return decide_delete(state, reason="", updated_before=updated_before, expired_at=expired_at)

    return bool(store.execute(kind, key, decide))


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
