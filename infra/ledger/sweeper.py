"""Deleting the chats and the states of graphs that are due: once, or again and again in the background."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from chatledger.domain.chat.decide_chats import decide_expire_chat
from chatledger.domain.chat.events import Body, ChatDeleted
from chatledger.domain.errors import ChatledgerError, InvalidValueError
from chatledger.domain.graph.decide import decide_delete_state
from chatledger.projections.chat.lists import due_chats
from chatledger.projections.graph.reader import IndexedGraphState, named_state, outdated_states
from chatledger.projections.log.kinds import CHATS, STATES

from ..log.envelope import acting_unless_named
from .port import LedgerStore

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
        sweep_states(store, expired_at=until, limit=None if limit is None else limit - len(deleted))
    store.sweep_large()
    return deleted


def sweep_states(
    store: LedgerStore,
    *,
    expired_at: int,
    updated_before: int | None = None,
    user_id: str | None = None,
    limit: int | None = None,
) -> int:
    """
    Erase the states and items (of a user) that have expired at a moment, in ms, or have no version since another one: at most
    `limit`. Each is looked at again: one that was written meanwhile stays. Returns how many this call erased. Costs what it finds.
    """

    def decide(state: IndexedGraphState, now: int) -> list[Body]:
        del now
        return decide_delete_state(state, reason="", before=updated_before, expired_at=expired_at)

    count = 0
    while True:
        room = _PAGE if limit is None else min(_PAGE, limit - count)
        with store.snapshot() as snapshot:
            due = outdated_states(
                snapshot.txn,
                snapshot.tables,
                expired_at=expired_at,
                updated_before=updated_before,
                user_id=snapshot.user_id if user_id is None else user_id,
                limit=room,
            )
        for state_id in due:
            with named_state(state_id, None):
                count += bool(store.execute(STATES, state_id, decide))
        # One scrub of the index for a page of deletions.
        store.erase_deleted()
        if len(due) < room or count == limit:
            return count


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
