"""Deleting what has expired, chats, threads, states and items: once, or again and again in the background."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from chatledger.domain.chat.decide_chats import decide_delete_chat, decide_expire_chat
from chatledger.domain.chat.events import Body, ChatDeleted
from chatledger.domain.errors import AccessDeniedError, ChatledgerError, HeldError, InvalidValueError
from chatledger.domain.retention import RetentionRule
from chatledger.domain.values import Swept
from chatledger.domain.versioned.decide import decide_delete
from chatledger.domain.versioned.keys import STATE, Family
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.projections.chat.lists import due_chats
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY, StreamKind
from chatledger.projections.versioned.lists import due_values, listed_values
from chatledger.projections.versioned.reader import IndexedVersioned, named_damage

from ..log.envelope import acting_unless_named
from .part_sweep import PartSweep
from .port import LedgerSnapshot, StorePort
from .retention import Due, Place, is_assistant, is_chat_over, is_value_over, over_by_rules, rules_in

SWEEPER: Final = "chatledger:sweeper"
"""The actor of deletions by sweeps, unless the caller has one."""
_PAGE: Final = 100
_logger = logging.getLogger(__name__)


def sweep(store: StorePort, *, until: int, limit: int | None = None, dry_run: bool = False) -> Swept:
    """
    Delete what is over at `until`, in ms, at most `limit`: chats that ended, the longest due first, and those that a rule keeps no longer,
    then threads, states and items.

    Large data whose writer died before it referred to them are erased too. Each is looked at again when it is deleted: one that was given
    more time meanwhile stays, and so does what is held. Returns what this call deleted, not what another process was faster with; with
    `dry_run` what it would.
    """
    chats: list[str] = []
    versioned = 0
    passed: set[Due] = set()
    # A thread goes with its chat, and would begin anew with writes that are stored after the tombstone.
    store.task_writes.settle()
    with store.snapshot() as snapshot:
        rules = rules_in(snapshot)
        looked = [*islice(dict.fromkeys(_due(snapshot, until, rules, {})), limit)] if dry_run else []
    if dry_run:
        chats = [key for kind, key in looked if kind == CHATS.name]
        parts = _sweep_parts(store, rules, until, limit, dry_run=True)
        return Swept(chats=chats, versioned=len(looked) - len(chats), messages=parts.messages, versions=parts.versions)
    places: dict[str, Place] = {}
    with acting_unless_named(SWEEPER):
        while limit is None or len(chats) + versioned < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - len(chats) - versioned)
            with store.snapshot() as snapshot:
                # What was tried is passed over, also where this call deleted nothing: another process was faster.
                unseen = (each for each in _due(snapshot, until, rules, places, len(passed)) if each not in passed)
                due = list(islice(unseen, room))
            if not due:
                break
            for kind, key in due:
                passed.add((kind, key))
                # What is held itself is not due: this is for a hold on what goes along, or one that came since.
                with suppress(HeldError):
                    if kind == CHATS.name:
                        decide = partial(_decide_chat, until, rules)
                        chats += [key] if store.execute(CHATS, key, decide, kind=ChatDeleted) else []
                    else:
                        versioned += _erase(store, KIND_OF_FAMILY[kind], key, expired_at=until, rules=rules)
            # One scrub of the index for a page of deletions.
            store.erase_deleted()
        parts = _sweep_parts(store, rules, until, limit)
    store.sweep_large()
    return Swept(chats=chats, versioned=versioned, messages=parts.messages, versions=parts.versions)


def _sweep_parts(
    store: StorePort, rules: Sequence[RetentionRule], until: int, limit: int | None, *, dry_run: bool = False
) -> PartSweep:
    sweep = PartSweep(store, rules, until, limit=limit, is_dry_run=dry_run)
    try:
        store.whole("retention")
    except AccessDeniedError:  # one user's part, or a share: how far a rule came is noted for the log as a whole
        return sweep
    sweep.run()
    return sweep


def _decide_chat(until: int, rules: Sequence[RetentionRule], state: IndexedChat, _now: int) -> list[Body]:
    chat = state.chat
    is_kept = chat is None or chat.hold is not None or not is_chat_over(rules, chat, until)
    return decide_expire_chat(state, until=until) if is_kept else decide_delete_chat(state, user_id=None)


def _due(
    snapshot: LedgerSnapshot,
    until: int,
    rules: Sequence[RetentionRule],
    places: dict[str, Place],
    more: int | None = None,
) -> Iterator[Due]:
    """
    Yield the kinds and keys of what is over at `until`; `more` chats that ended beyond a page are looked at, all when None.

    `places` are where the lists of rules go on. It is changed.
    """
    txn, tables, user_id = snapshot.txn, snapshot.tables, snapshot.user_id
    # Chats come first, as with each goes what belongs to it.
    limit = None if more is None else _PAGE + more
    chats = due_chats(txn, tables, until=until, limit=limit, user_id=user_id)
    yield from ((CHATS.name, chat_id) for chat_id in chats)
    yield from over_by_rules(snapshot, until, rules, places, of_chats=True)
    for family, record in due_values(txn, tables, until=until):
        owner = family.owner_of(record.key) if record.owner is None else record.owner
        if user_id in {None, owner} and not is_assistant(family, record.key):
            yield family.name, record.key
    yield from over_by_rules(snapshot, until, rules, places, of_chats=False)


def count_due(store: StorePort, until: int) -> int:
    """Return how many chats, threads, states, items, messages and versions a sweep would delete or redact at a moment, in ms."""
    with store.snapshot() as snapshot:
        count, rules = sum(1 for _ in list_due(snapshot, until)), rules_in(snapshot)
    parts = _sweep_parts(store, rules, until, None, dry_run=True)
    return count + parts.messages + parts.versions


def list_due(snapshot: LedgerSnapshot, until: int) -> Iterator[Due]:
    """Yield the kinds and keys of what a sweep would delete at a moment, in ms, each once."""
    yield from dict.fromkeys(_due(snapshot, until, rules_in(snapshot), {}))


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
            listed = ((record.key, family) for family, record in due(snapshot) if not is_assistant(family, record.key))
            page = dict(islice(listed, _PAGE))
        for key, family in page.items():
            with suppress(HeldError):  # it began before its writer knew that its owner is held
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
    rules: Sequence[RetentionRule] = (),
) -> bool:
    """Write the end of a value that has expired, is too old, or is over by a rule; returns whether it had."""

    def decide(state: IndexedVersioned, _now: int) -> list[Body]:
        with named_damage(state, key):
            if rules and state.record is not None and is_value_over(rules, state, state.record, expired_at):
                return decide_delete(state, reason="too_old")
            return decide_delete(state, reason="", updated_before=updated_before, expired_at=expired_at)

    return bool(store.execute(kind, key, decide))


def check_pause(every_s: Any) -> None:
    """Raise `InvalidValueError` unless it is a number of seconds above 0."""
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not 0 < every_s < threading.TIMEOUT_MAX:
        msg = f"sweep_every_s must be a number of seconds above 0, not {every_s!r}"
        raise InvalidValueError(msg)


class Sweeper:
    """
    A thread that sweeps at intervals until it is closed. A failure is logged, and the next sweep tries again.

    `every_s`: the pause between sweeps; see `check_pause`.
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
