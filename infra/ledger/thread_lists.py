"""Lists of the threads of agents, by how they stand, and what there is to say about each."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeVar

from chatledger.domain.errors import CorruptStateError, InvalidValueError
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.versioned.keys import THREAD
from chatledger.domain.versioned.record import StatusName, VersionedRecord, is_expired
from chatledger.domain.versioned.standing import ThreadStatus, words_of
from chatledger.domain.wire import Value
from chatledger.projections.log.kinds import THREADS
from chatledger.projections.versioned.lists import due_values, listed_values, others_threads, thread_counts
from chatledger.projections.versioned.reader import IndexedVersioned, PlainReader

from ..log.envelope import clock_ms
from .port import LedgerPart, LedgerSnapshot

Place = TypeVar("Place")
Listed = TypeVar("Listed")
Shown = TypeVar("Shown")

ListOrder = Literal["updated", "created"]
_PLACE_BYTES: Final = 16
LOOKED_AT: Final = 2_000
"""So many things are looked at for one part, however few of them are wanted."""


def take_part(
    listed: Iterable[tuple[Place, Listed]], wanted: Callable[[Listed], Shown | None], limit: int
) -> tuple[list[Shown], Place | None]:
    """
    Take what is wanted of a list, at most `limit` things, one at least.

    Args:
        listed: Each thing with its place in the order.
        wanted: Returns the thing as it is shown; None where it is left out.
        limit: At most so many.

    Returns:
        The things, and the place after which others follow; None where none do.
    """
    part: list[Shown] = []
    last: Place | None = None
    for looked_at, (place, candidate) in enumerate(listed):
        if len(part) >= limit or looked_at >= LOOKED_AT:
            return part, last
        last = place
        shown = wanted(candidate)
        if shown is not None:
            part.append(shown)
    return part, None


def place_of(cursor: str) -> bytes:
    """Return the place in an order that a part ended with. Raises `InvalidValueError` when it is none."""
    with contextlib.suppress(ValueError):
        place = bytes.fromhex(cursor)
        if len(place) <= _PLACE_BYTES:
            return place
    msg = f"{cursor!r} is where no list ended: `after` is the `next` of the part before"
    raise InvalidValueError(msg)


class ThreadInfo(Value, frozen=True):
    """
    A thread of agents.

    Args:
        thread_id: Its id.
        namespaces: In the order in which they came up.
        checkpoint_count: How many checkpoints there are, in all namespaces.
        created_at: The time of its first event, in ms since the epoch.
        updated_at: That of the last one.
        owner: The user whose it is; None when it is nobody's.
        status: How it stands.
        hold: The legal hold that keeps it; None for none.
    """

    thread_id: str
    namespaces: list[str]
    checkpoint_count: int
    created_at: int
    updated_at: int
    owner: str | None
    status: ThreadStatus
    hold: LegalHold | None = None


class ThreadPart(NamedTuple):
    """
    A part of a list of threads.

    Args:
        threads: The threads.
        next: To be given as `after` for those that follow; None where there are none.
    """

    threads: list[ThreadInfo]
    next: str | None


def thread_info(thread: IndexedVersioned, record: VersionedRecord) -> ThreadInfo:
    """Return the metadata of a living thread."""
    return ThreadInfo(
        thread_id=thread.key,
        namespaces=thread.lines(),
        checkpoint_count=record.version_count,
        created_at=record.created_at,
        updated_at=record.updated_at,
        owner=thread.owner,
        status=thread_status(thread, record),
        hold=record.hold,
    )


def thread_status(thread: IndexedVersioned, record: VersionedRecord) -> ThreadStatus:
    """Return how a living thread stands. The words are decoded here: the last message alone, where messages are stored one by one."""
    standing, words = record.standing, ""
    if standing is not None and standing.digest:
        reader = PlainReader(thread)
        is_said = standing.status in {"finished", "stopped"}
        try:
            value = reader.last(standing.digest) if is_said else reader.value(standing.digest)
            words = words_of(standing.status, value)
        except CorruptStateError:
            words = ""  # the thread is listed all the same; who opens it is told what is damaged
    return ThreadStatus(
        status=record.status,
        node="" if standing is None else standing.node,
        words=words,
        steps=record.version_count,
        work_ms=record.work_ms,
        since=record.created_at if standing is None else standing.since,
    )


def thread_in(snapshot: LedgerSnapshot, thread_id: str, *, even_quarantined: bool = False) -> IndexedVersioned:
    """Return a thread, without a record where it has expired."""
    thread = snapshot.stream(THREADS, thread_id, even_quarantined=even_quarantined)
    record = thread.record
    return thread.absent() if record is not None and is_expired(record, clock_ms()) else thread


class ThreadMethods(LedgerPart):
    """Lists of threads."""

    def list_threads(
        self,
        *,
        status: StatusName | None = None,
        user_id: str | None = None,
        limit: int = 50,
        order: ListOrder = "updated",
        ascending: bool = False,
        after: str | None = None,
        is_named: Callable[[str], bool] = lambda _thread_id: True,
        keep: Callable[[ThreadInfo], bool] = lambda _info: True,
    ) -> ThreadPart:
        """
        List threads of agents in the order of their last changes or of their beginnings.

        It costs what is looked at: at most 2,000 threads, so that a part may have few that `keep` wants, or none, though others
        follow.

        Args:
            status: Only those that stand so: `waits`, `running`, `failed`, `stopped` or `finished`; always by their last changes.
            user_id: Only those of this user.
            limit: At most so many.
            order: `updated` or `created`.
            ascending: Whether the earliest come first.
            after: The `next` of the part before.
            is_named: Whether a thread of this id is wanted; asked first, as nothing is read for it.
            keep: Whether a thread is wanted.

        Raises:
            InvalidValueError: `after` is no `next`.
        """
        check_count(limit, "limit")
        user_id = None if user_id is None else sought_id(user_id, "user_id", empty=True)
        store = self._store
        store.task_writes.settle(None)
        with store.snapshot() as snapshot:

            def wanted(listed: VersionedRecord) -> ThreadInfo | None:
                if not is_named(listed.key):
                    return None
                thread = thread_in(snapshot, listed.key, even_quarantined=True)
                info = None if thread.record is None else thread_info(thread, thread.record)
                return info if info is not None and user_id in {None, info.owner} and keep(info) else None

            listed = listed_values(
                snapshot.txn,
                snapshot.tables,
                THREAD,
                user_id=snapshot.user_id if user_id is None else user_id,
                is_by_change=order == "updated",
                is_ascending=ascending,
                after=None if after is None else place_of(after),
                status=status,
            )
            infos, last = take_part(listed, wanted, limit)
        return ThreadPart(infos, None if last is None else last.hex())

    def count_threads(self, *, user_id: str | None = None) -> dict[StatusName, int]:
        """
        Count the threads of agents by how they stand: `{"waits": 2, "running": 0, "failed": 1, "stopped": 0, "finished": 507}`.

        The numbers are kept in the index. Where a user is named, or the ledger is limited to one, the threads that name no owner, and
        those of chats that the user is a member of, are looked at, at most 2,000 of them.
        """
        user_id = None if user_id is None else sought_id(user_id, "user_id", empty=True)
        store = self._store
        store.task_writes.settle(None)
        with store.snapshot() as snapshot:
            owner = snapshot.user_id if user_id is None else user_id
            counts = thread_counts(snapshot.txn, snapshot.tables, owner)
            for family, record in due_values(snapshot.txn, snapshot.tables, until=clock_ms()):
                if family is THREAD and owner in {None, record.owner or ""}:
                    counts[record.status] -= 1  # it has expired, and waits for being removed
            if owner is not None:
                others = others_threads(snapshot.txn, snapshot.tables, owner)
                for _, record in zip(range(LOOKED_AT), others, strict=False):
                    thread = thread_in(snapshot, record.key, even_quarantined=True)
                    if thread.record is not None and user_id in {None, thread.owner}:
                        counts[record.status] += 1
        return counts
