"""As-of points: a position or a time in the past of a log."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import MAX_COMMIT_EVENTS, check_count
from chatledger.domain.log.tombstones import is_foreign

from ....store.commands import RETRY_S
from ...port import LedgerLog, StorePort

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class AsOfPoint(msgspec.Struct, frozen=True):
    """
    A point in the past of a log: it includes the events up to `position`.

    With `time` (ms since the epoch) it includes of each chat only those before its first later event. `position` is the end
    of a commit, and of the log that was read when the point was named: events that are written afterwards never belong to
    it, whatever their times are.
    """

    position: int
    time: int | None = None

    def includes(self, recorded: Recorded) -> bool:
        """Whether an event belongs to the point, if those before it in its chat do."""
        return recorded.position <= self.position and (self.time is None or recorded.occurred_at <= self.time)

    def covers(self, other: "AsOfPoint") -> bool:
        """Whether every event that belongs to another point belongs to this one."""
        is_in_time = self.time is None or (other.time is not None and other.time <= self.time)
        return is_in_time and other.position <= self.position

    def is_after(self, head: StreamHead) -> bool:
        """Whether a chat with this head has not changed since. In one chat, no event is older than the one before."""
        return head.position <= self.position and (self.time is None or head.occurred_at <= self.time)


def find_point(store: StorePort, at: int | datetime) -> AsOfPoint:
    """
    Return the as-of point of a position or of a time.

    Raises:
        InvalidValueError: There is no such position on the log, or the time has no time zone.
        LogUnavailableError: The log did not answer.
    """
    store.check_open()
    if isinstance(at, datetime):
        if at.tzinfo is None:
            msg = "a moment needs a time zone, e.g. datetime.now(timezone.utc)"
            raise InvalidValueError(msg)
        return AsOfPoint(store.catch_up(None, RETRY_S), (at - _EPOCH) // _MILLISECOND)
    position = check_count(at, "a position, unless it is a datetime with a time zone,")
    with store.snapshot() as snapshot:
        reached = snapshot.state.position
    if position > reached:
        # As a majority of a cluster has it: that a position is beyond the end is an error, which a server that lags must not cause.
        last = store.log.settled_position(position)
        if position > last:
            msg = f"position {position} is beyond the end of the log, whose last event is at {last}"
            raise InvalidValueError(msg)
        store.catch_up(None, RETRY_S)
    if position == reached:
        return AsOfPoint(position)  # an index takes in whole commits only, so it ends with one
    return AsOfPoint(_end_of_commit(store.log, position))


def position_of_point(store: StorePort, point: AsOfPoint) -> int:
    """
    Return the position of the last event up to a point. For a time it is found by binary search in the log.

    Where the clocks of writers differ, it is the position of some event after which a later one follows.
    """
    if point.time is None:
        return point.position
    low, high = 0, point.position
    while low < high:
        middle = (low + high) // 2
        # Erased events leave holes, and a foreign message has no time of ours: the next event that has one decides.
        page = store.log.read(middle, 1)
        while page and is_foreign(page[0]):
            page = store.log.read(page[0].position, 1)
        if page and page[0].position <= high and page[0].occurred_at <= point.time:
            low = page[0].position
        else:
            high = middle
    return low


def _end_of_commit(log: LedgerLog, position: int) -> int:
    """Return the position, or, inside a commit, the one before that commit: nobody ever saw half of one."""
    recorded = log.event_at(position) if position else None
    if recorded is None or not recorded.event.rest:
        return position
    before: list[Recorded] = []
    after = max(0, position - MAX_COMMIT_EVENTS)
    while after < position and (page := log.read(after, position - after)):
        before += page
        after = page[-1].position
    first = position
    for recorded in reversed([event for event in before if event.position < position]):
        if not recorded.event.rest:  # the last event of the commit before
            break
        first = recorded.position
    return first - 1
