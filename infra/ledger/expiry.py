"""Moments, and when a chat ends: what callers may say, in milliseconds."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, UnsetType

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_time
from chatledger.domain.moments import read_time

from ..clock import clock_ms

_EPOCH = datetime.fromtimestamp(0, UTC)
_ALLOWED = "a datetime with a time zone, or whole milliseconds since the epoch"


def time_of_text(text: str) -> datetime:
    """The time that a text names, as of now; see `read_time`."""
    return read_time(text, _EPOCH + timedelta(milliseconds=clock_ms()))


def bound_ms(moment: Any, what: str, *, up: bool = False) -> int:
    """A bound of times, in ms, rounded down or `up`; see `moment_ms`. As a number it may be any integer."""
    # Times are stored in ms. Of a bound that lies between two of them, the later one is the first that is not before it.
    if isinstance(moment, str):
        try:
            moment = time_of_text(moment)
        except InvalidValueError as error:
            msg = f"{what}: {error}"
            raise InvalidValueError(msg) from None
    if isinstance(moment, datetime):
        ms = moment_ms(moment, what)
        return ms + 1 if up and moment.microsecond % 1000 else ms
    return moment if isinstance(moment, int) and not isinstance(moment, bool) else check_time(moment, what, _ALLOWED)


def moment_ms(moment: Any, what: str) -> int:
    """Milliseconds since the epoch, given as such or as a `datetime` with a time zone."""
    if not isinstance(moment, datetime):
        return check_time(moment, what, _ALLOWED)
    if moment.tzinfo is None:
        msg = f"{what} must have a time zone, such as datetime.now(UTC); {moment.isoformat()} has none"
        raise InvalidValueError(msg)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class Ending:
    """
    The end of a chat as a caller says it: a moment, some seconds after the command is carried out, or never.

    Args:
        expires_at: ms since the epoch, a `datetime`, None for never, or UNSET.
        ttl_seconds: Seconds from the command on; None when it is not given so.

    Raises:
        InvalidValueError: Both are given, or a value is none of these.
    """

    def __init__(self, expires_at: int | datetime | UnsetType | None, ttl_seconds: float | None) -> None:
        if ttl_seconds is None:
            is_moment = expires_at is not UNSET and expires_at is not None
            self._at = moment_ms(expires_at, "expires_at") if is_moment else expires_at
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
        return self._at if self._after_ms is None else now + self._after_ms  # type: ignore[return-value]  # moment_ms or as given

    def of_new(self, now: int) -> int | None:
        """Return the expiry of a new chat: never, unless one was given."""
        at = self.at(now)
        return None if at is UNSET else at
