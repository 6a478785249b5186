"""Reading pages ahead: the same pages, also of a log that grows, fails, or is read again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stories import Story

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import LogUnavailableError
from chatledger.infra.store.reading import ReadAhead

EVENTS = Story().chain(*(f"m{number}" for number in range(9))).events


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=6), st.integers(1, len(EVENTS)))
def test_the_same_pages(size: int, growths: list[int], length: int) -> None:
    """Whenever the log grows, each event is read once and in order, and the end is the end."""
    there = [length]

    def read(after: int) -> Sequence[Recorded]:
        return EVENTS[after : min(after + size, there[0])]

    found: list[Recorded] = []
    with ReadAhead(read) as ahead:
        for growth in [*growths, 0]:
            while page := ahead(found[-1].position if found else 0):
                found += page
            assert found == EVENTS[: there[0]]
            there[0] = min(there[0] + growth, len(EVENTS))


def test_from_another_place() -> None:
    """What was read ahead is left when something else is asked for."""
    with ReadAhead(lambda after: EVENTS[after : after + 2]) as ahead:
        assert ahead(0) == EVENTS[:2]
        assert ahead(5) == EVENTS[5:7]
        assert ahead(0) == EVENTS[:2]


def test_errors_come_where_they_belong() -> None:
    """With the page that could not be read, not with the one before."""

    def read(after: int) -> Sequence[Recorded]:
        if after:
            raise LogUnavailableError
        return EVENTS[:1]

    with ReadAhead(read) as ahead:
        assert ahead(0) == EVENTS[:1]
        with pytest.raises(LogUnavailableError):
            ahead(1)
        assert ahead(0) == EVENTS[:1]
