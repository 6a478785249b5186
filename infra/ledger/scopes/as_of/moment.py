"""A moment in the past of a log, and finding it."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count
from chatledger.domain.log.tombstones import is_foreign

from ....store.commands import MAX_COMMIT_EVENTS
from ....store.store import RETRY_S
from ...port import LedgerLog, LedgerStore

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Moment(msgspec.Struct, frozen=True):
    """
    The events up to `position`; with `time` (ms since the epoch) of each chat only those before its first later event.

    `position` is the end of a commit, and of the log that was read when the moment was named: what is written
    afterwards never belongs to it, whatever its time is.
    """

    position: int
    time: int | None = None

    def includes(self, recorded: Recorded) -> bool:
        """Whether an event belongs to it, if those before it in its chat do."""
        return recorded.position <= self.position and (self.time is None or recorded.occurred_at <= self.time)

    def is_after(self, head: StreamHead) -> bool:
        """Whether a chat whose last event this is has not changed since. Of one chat, no event is older than the one before."""
        return head.position <= self.position and (self.time is None or head.occurred_at <= self.time)


def moment_at(store: LedgerStore, at: int | datetime) -> Moment:
    """
    The moment of a position, or of a time.

    Raises:
        InvalidValueError: There is no such position on the log, or the time has no time zone.
        LogUnavailableError: The log did not answer.
    """
    store.check_open()
    if isinstance(at, datetime):
        if at.tzinfo is None:
            msg = "a moment needs a time zone, e.g. datetime.now(timezone.utc)"
            raise InvalidValueError(msg)
        return Moment(store.catch_up(None, RETRY_S), (at - _EPOCH) // _MILLISECOND)
    position = check_count(at, "a position")
    with store.snapshot() as snapshot:
        known = snapshot.state.position
    if position > known:
        last = store.log.last_position()
        if position > last:
            msg = f"position {position} is beyond the end of the log, whose last event is at {last}"
            raise InvalidValueError(msg)
        store.catch_up(None, RETRY_S)
    if position == known:
        return Moment(position)  # whole commits only are ever taken in
    return Moment(_end_of_commit(store.log, position))


def position_of(store: LedgerStore, moment: Moment) -> int:
    """
    The position of the last event up to a moment. For a time it is found by halving the log.

    Where the clocks of writers differ, it is the position of some event after which a later one follows.
    """
    if moment.time is None:
        return moment.position
    low, high = 0, moment.position
    while low < high:
        middle = (low + high) // 2
        found = _next_event(store.log, middle)
        if found is not None and found.position <= high and found.occurred_at <= moment.time:
            low = found.position
        else:
            high = middle
    return low


def _next_event(log: LedgerLog, after: int) -> Recorded | None:
    while page := log.read(after, 1):
        if not is_foreign(page[0]):
            return page[0]
        after = page[0].position
    return None


def _end_of_commit(log: LedgerLog, position: int) -> int:
    """The same position, or the one before the commit of which the rest comes later: nobody ever saw half of one."""
    recorded = log.event_at(position) if position else None
    if recorded is None or not recorded.event.rest:
        return position
    before: list[Recorded] = []
    after = max(0, position - MAX_COMMIT_EVENTS)
    while after < position and (page := log.read(after, position - after)):
        before += page
        after = page[-1].position
    first = position
    for one in reversed([one for one in before if one.position < position]):
        if not one.event.rest:
            break
        first = one.position
    return first - 1
