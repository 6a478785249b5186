"""Times as people write them."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger import InvalidValueError
from chatledger.domain.moments import read_time

NOW = datetime(2026, 3, 4, 15, 30, 10, 250_000, tzinfo=UTC)
"""A Wednesday."""


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", NOW),
        ("today", datetime(2026, 3, 4, tzinfo=UTC)),
        ("yesterday", datetime(2026, 3, 3, tzinfo=UTC)),
        ("Tuesday", datetime(2026, 3, 3, tzinfo=UTC)),
        ("wednesday", datetime(2026, 2, 25, tzinfo=UTC)),
        ("thursday", datetime(2026, 2, 26, tzinfo=UTC)),
        (" 7d ", NOW - timedelta(days=7)),
        ("30m", NOW - timedelta(minutes=30)),
        ("24h", NOW - timedelta(hours=24)),
        ("2w", NOW - timedelta(weeks=2)),
        ("90s", NOW - timedelta(seconds=90)),
        ("2026-02-07", datetime(2026, 2, 7, tzinfo=UTC)),
        ("2026-02-07T17:29:24", datetime(2026, 2, 7, 17, 29, 24, tzinfo=UTC)),
        ("2026-02-07T17:29:24+02:00", datetime(2026, 2, 7, 15, 29, 24, tzinfo=UTC)),
    ],
)
def test_a_time_that_is_written(text: str, time: datetime) -> None:
    assert read_time(text, NOW) == time


def test_days_are_those_of_utc_wherever_the_clock_is() -> None:
    """Late in the evening in New York the day in UTC is the next one already."""
    evening = datetime(2026, 3, 3, 22, tzinfo=timezone(timedelta(hours=-5)))
    assert read_time("today", evening) == datetime(2026, 3, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "soon", "120", "7 d", "7y", "-7d", "9999999w", "2026-13-01", "tomorrow", "7d\x00"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidValueError, match="no time"):
        read_time(text, NOW)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidValueError):
        assert read_time(text, NOW).tzinfo is not None
