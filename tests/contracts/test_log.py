"""The contract of a log on every kind of log, and that it notices logs which break it."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.support.alchemy_world import ALCHEMY_KINDS, new_alchemy_location
from tests.support.jetstream_world import TOKEN, running

from chatledger.domain.chat.events import Recorded
from chatledger.domain.log.codec import EncodedEvent
from chatledger.infra.log.bookmarks import Bookmark
from chatledger.infra.store.opening.locations import log_at
from chatledger.infra.store.opening.options import LogOnly
from chatledger.testing import EventLog, MemoryLog, check_log


def memory() -> AbstractContextManager[EventLog]:
    return contextlib.closing(MemoryLog())


@pytest.fixture(params=["embedded", "sqlite", "nats", "postgresql", *ALCHEMY_KINDS])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes places for new logs of one kind."""
    numbers = itertools.count()
    if request.param in ALCHEMY_KINDS:
        yield new_alchemy_location(request, request.param, tmp_path)
    elif request.param == "postgresql":
        yield request.getfixturevalue("new_postgres_database")
    elif request.param == "nats":
        with running(tmp_path / "server") as server:
            yield lambda: f"nats://{TOKEN}@127.0.0.1:{server.port}/log{next(numbers)}"
    elif request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
    else:
        yield lambda: str(tmp_path / f"data{next(numbers)}")


def test_memory_keeps_the_contract() -> None:
    check_log(memory)


@pytest.mark.timeout(120)
@pytest.mark.matrix
def test_every_kind_of_log_keeps_the_contract(location: Callable[[], str]) -> None:
    places: list[str] = []

    def opened() -> AbstractContextManager[EventLog]:
        place = places[-1]
        return log_at(LogOnly(place, create=True if place.startswith("nats") else None, durability="fast"))

    def make_log() -> AbstractContextManager[EventLog]:
        places.append(location())
        return opened()

    check_log(make_log, open_again=opened)


class Careless(MemoryLog):
    """Writes whatever is expected of the chat."""

    def append(self, stream_id: str, events: Sequence[EncodedEvent], **_expected: Any) -> list[int]:
        with contextlib.suppress(Exception):
            return super().append(stream_id, events, expected_position=0)
        return [self.last_position()]


class Unsorted(MemoryLog):
    """Gives the newest event first."""

    def read(self, after: int, limit: int = 1000) -> list[Recorded]:
        return super().read(after, limit)[::-1]


class Deaf(MemoryLog):
    """Finds no event by waiting."""

    def wait(self, after: int, timeout_s: float) -> bool:
        return False


class Keeping(MemoryLog):
    """Erases nothing."""

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        pass


class Overwriting(MemoryLog):
    """Saves a bookmark over any other one."""

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        self.drop_bookmark(bookmark.key)
        return super().save_bookmark(bookmark.saved_as(0))


class Hasty(MemoryLog):
    """Shows an event before those with lower positions that are being written, as databases that count do."""

    _shown = 0

    def read(self, after: int, limit: int = 1000) -> list[Recorded]:
        page = super().read(after, limit)
        late = {at for at in range(35, 80, 5) if at > self._shown}  # of those that are written at the same time
        page = [recorded for recorded in page if recorded.position not in late]
        self._shown = max(self._shown, *(recorded.position for recorded in page), 0)
        return page


class Forgetful(MemoryLog):
    """Gives one identity to all logs."""

    def __init__(self) -> None:
        super().__init__()
        self.identity = "memory:"


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Careless, "a commit on what is not the chat's end is refused"),
        (Unsorted, "events are read in order"),
        (Deaf, "an event ends a wait"),
        (Keeping, "what was erased is gone"),
        (Overwriting, "a bookmark is not made twice"),
        (Hasty, "a writer in flight hides none behind it"),
        (Forgetful, "each log has an identity of its own"),
    ],
)
def test_a_log_that_breaks_a_rule_is_noticed(kind: type[MemoryLog], rule: str) -> None:
    @contextlib.contextmanager
    def make_log() -> Generator[EventLog]:
        with contextlib.closing(kind()) as log:
            yield log

    with pytest.raises(AssertionError, match=rule):
        check_log(make_log)
