"""Predicates that hold when the calendar or the clock has moved on since the last real user message."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

# zoneinfo reads the system's table of time zones: constant data as those of unicodedata, which happen to be in files. The
# same time and zone give the same answer, so decisions stay repeatable.
from zoneinfo import ZoneInfo

from ..errors import InvalidValueError
from .predicates import Predicate, ReminderContext, condition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def hour_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if an hour has begun since; see `day_changed`."""
    # `fold` tells the two hours of the same name apart when clocks are set back.
    return _changed("hour_changed", tz, lambda time: (time.date(), time.hour, time.fold))


def day_changed(tz: str | None = None) -> Predicate:
    """
    Return a predicate that holds if the last real user message is of another day, or there is none.

    Args:
        tz: The time zone, as `Europe/Riga`. Else that of the message is taken, `metadata.locale.time_zone`, else UTC.

    Raises:
        InvalidValueError: There is no such time zone.
    """
    return _changed("day_changed", tz, lambda time: time.date())


def week_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a week (ISO, from Monday) has begun since; see `day_changed`."""
    return _changed("week_changed", tz, lambda time: time.isocalendar()[:2])


def month_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a month has begun since; see `day_changed`."""
    return _changed("month_changed", tz, lambda time: (time.year, time.month))


def season_changed(tz: str | None = None) -> Predicate:
    """
    Return a predicate that holds if a season has begun since; see `day_changed`.

    Seasons are the meteorological ones, which begin with March, June, September and December. They change on the same days
    in both hemispheres. A whole year later is another season.
    """
    # Months since December, by threes: winter belongs to the year of its January.
    return _changed("season_changed", tz, lambda time: (time.year * 12 + time.month) // 3)


def year_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a year has begun since; see `day_changed`."""
    return _changed("year_changed", tz, lambda time: time.year)


def _changed(name: str, tz: str | None, period: Callable[[datetime], Any]) -> Predicate:
    """Return a predicate that holds if the message is of another period, in local time, than the last one."""
    fixed = None if tz is None else _zone(tz, f"tz of {name}")

    def test(context: ReminderContext) -> bool:
        if context.chain.last_message_at is None:
            return True
        zone = fixed or _zone(context.time_zone or "UTC", "the time zone in the metadata of the message")
        return bool(period(_local(context.now_ms, zone)) != period(_local(context.chain.last_message_at, zone)))

    return condition(name, () if tz is None else (tz,), test)


def _local(time_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(zone)


def _zone(name: Any, what: str) -> tzinfo:
    if name == "UTC":
        return UTC  # there is one even where the system has no table of time zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
        msg = (
            f"{what} is no time zone that this system knows; names are as Europe/Riga, see "
            "zoneinfo.available_timezones(), and the package tzdata brings them where the system has none"
        )
        raise InvalidValueError(msg) from error
