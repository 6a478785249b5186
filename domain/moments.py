"""Times as people write them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from .errors import InvalidValueError

Moment = int | datetime | str
"""A position on the log or milliseconds since the epoch, as the method says; a time with a zone; or a text, see `read_time`."""

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"([0-9]{1,7})([smhdw])")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_BACK: Final = {"today": 0, "yesterday": 1}


def read_time(text: str, now: datetime) -> datetime:
    """
    A time from a text: ISO 8601, UTC unless it has an offset; `now`, `today`, `yesterday`, or a weekday; or how long ago, `30m`, `24h`, `7d`, `2w`.

    A day is its beginning in UTC. A weekday is the last one before today, so that `tuesday` on a Tuesday is a week ago.

    Raises:
        InvalidValueError: It is none of these, or before year 1.
    """
    word = text.strip().lower()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if word == "now":
            return now
        if word in _DAYS_BACK:
            return midnight - timedelta(days=_DAYS_BACK[word])
        if word in _WEEKDAYS:
            return midnight - timedelta(days=(midnight.weekday() - _WEEKDAYS.index(word) - 1) % 7 + 1)
        if (ago := _AGO.fullmatch(word)) is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        msg = f"{text[:100]!r} is no time: give ISO 8601 such as 2026-03-01T09:30:00Z, yesterday, a weekday, or how long ago, such as 7d"
        raise InvalidValueError(msg) from None
