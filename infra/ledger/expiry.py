"""Moments, and when a chat ends: what callers may say, in milliseconds."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, UnsetType

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_time
from chatledger.domain.moments import Moment, read_time

from ..clock import clock_ms

_EPOCH = datetime.fromtimestamp(0, UTC)
_ALLOWED = "a datetime with a time zone, a text, or whole milliseconds since the epoch"


def time_of_text(text: str) -> datetime:
    """The time that a text names, as of now; see `read_time`."""
    return read_time(text, _EPOCH + timedelta(milliseconds=clock_ms()))


def bound_ms(moment: Any, what: str, *, up: bool = False) -> int:
    """A bound of times, in ms, rounded down or `up`; see `moment_ms`. As a number it may be any integer."""
    # Times are stored in ms. Of a bound that lies between two of them, the later one is the first that is not before it.
    moment = _read(moment, what)
    if isinstance(moment, datetime):
        ms = moment_ms(moment, what)
        return ms + 1 if up and moment.microsecond % 1000 else ms
    return moment if isinstance(moment, int) and not isinstance(moment, bool) else check_time(moment, what, _ALLOWED)


def moment_ms(moment: Any, what: str) -> int:
    """Milliseconds since the epoch, given as such, as a `datetime` with a time zone, or as a text, see `read_time`."""
    moment = _read(moment, what)
    if not isinstance(moment, datetime):
        return check_time(moment, what, _ALLOWED)
    if moment.tzinfo is None:
        msg = f"{what} must have a time zone, such as datetime.now(UTC); {moment.isoformat()} has none"
        raise InvalidValueError(msg)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def ending_ms(moment: Any) -> int:
    """When something ends, in ms, from what `moment_ms` takes; a text is ISO 8601, UTC unless it has an offset."""
    if isinstance(moment, str):
        # No words: `7d` of `since` is a week ago, and a chat that ended then would be deleted at once.
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            msg = f"expires_at: {moment[:100]!r} is no time in ISO 8601, such as 2031-01-01T09:30:00Z; ttl_seconds counts from now on"
            raise InvalidValueError(msg) from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment_ms(moment, "expires_at")


def _read(moment: Any, what: str) -> Any:
    try:
        return time_of_text(moment) if isinstance(moment, str) else moment
    except InvalidValueError as error:
        msg = f"{what}: {error}"
        raise InvalidValueError(msg) from None


class Ending:
    """
    The end of a chat as a caller says it: a moment, some seconds after the command is carried out, or never.

    Args:
        expires_at: See `ending_ms`; None for never, or UNSET.
        ttl_seconds: Seconds from the command on; None when it is not given so.

    Raises:
        InvalidValueError: Both are given, or a value is none of these.
    """

    def __init__(self, expires_at: Moment | UnsetType | None, ttl_seconds: float | None) -> None:
        if ttl_seconds is None:
            is_moment = expires_at is not UNSET and expires_at is not None
            self._at = ending_ms(expires_at) if is_moment else expires_at
            self._after_ms: int | None = None
            return
        if expires_at is not UNSET and expires_at is not None:
            msg = "give either expires_at or ttl_seconds, not both"
            raise InvalidValueError(msg)
        is_number = isinstance(ttl_seconds, int | float) and not isinstance(ttl_seconds, bool)
        if not is_number or not 0 < ttl_seconds < 2**40:
            msg = f"ttl_seconds must be a number of seconds above 0, not {ttl_seconds!r}"
            raise InvalidValueError(msg)
        self._at, self._after_ms = None, max(1, round(ttl_seconds * 1000))  # with 0 it would end before it is made

    def at(self, now: int) -> int | UnsetType | None:
        """In ms, for a command that is carried out at `now`."""
        return self._at if self._after_ms is None else now + self._after_ms  # type: ignore[return-value]  # ending_ms or as given

    def of_new(self, now: int) -> int | None:
        """Return the expiry of a new chat: never, unless one was given."""
        at = self.at(now)
        return None if at is UNSET else at
