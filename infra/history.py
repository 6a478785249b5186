"""Which events a history shows."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.events import Recorded
from chatledger.domain.rules import check_count, check_id

from .feed.filter import FeedFilter
from .owners import Owners

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class HistoryFilter:
    """
    Lets through events by owner, type, actor and time; each when given. To be asked of every event, in order.

    Args:
        owners: Tells whose chat an event belongs to.
        user_id, topics, actor, since, until: As in `Ledger.history`.

    Raises:
        InvalidValueError: A value breaks a rule, or there is no such topic.
    """

    def __init__(
        self,
        owners: Owners,
        *,
        user_id: str | None,
        topics: Collection[str] | None,
        actor: str | None,
        since: datetime | None,
        until: int | datetime | None,
    ) -> None:
        self._owners = owners
        self._user_id = None if user_id is None else check_id(user_id, "user_id", empty=True)
        self._has_topic = FeedFilter(owners.is_owner, chat_id=None, user_id=None, topics=topics)
        self._actor = None if actor is None else check_id(actor, "actor")
        self._since = None if since is None else -((_EPOCH - _time(since, "since")) // _MS)  # rounded up
        self._last_time: int | None = None
        self.last_position: int | None = None
        if isinstance(until, datetime):
            self._last_time = (_time(until, "until") - _EPOCH) // _MS
        elif until is not None:
            self.last_position = check_count(until, "until")
        self._ended: set[str] = set()

    def __call__(self, recorded: Recorded) -> bool:
        """Whether it is let through."""
        # Also what is left out for another reason is noted, or what follows would be judged wrongly.
        is_owned = self._user_id is None or self._owners.is_owner(self._user_id, recorded)
        is_in_time = self._is_in_time(recorded)
        return (
            is_owned
            and is_in_time
            and self._has_topic(recorded)
            and (self._actor is None or recorded.actor == self._actor)
        )

    def _is_in_time(self, recorded: Recorded) -> bool:
        if self._last_time is not None and recorded.occurred_at > self._last_time:
            self._ended.add(recorded.chat_id)  # clocks differ, but of no chat a later event follows a gap
        if recorded.chat_id in self._ended:
            return False
        return self._since is None or recorded.occurred_at >= self._since


def _time(value: object, what: str) -> datetime:
    if not isinstance(value, datetime):
        msg = f"{what} must be a datetime, not {type(value).__name__}; a position is given as after"
        raise InvalidValueError(msg)
    if value.tzinfo is None:
        msg = f"{what} needs a time zone, e.g. datetime.now(timezone.utc)"
        raise InvalidValueError(msg)
    return value
