"""Waiters for messages of a log, and what came."""

import threading
import time

from eventsourcing.persistence import PersistenceError

from .client import JetStreamClient
from .consumer import WANTED_BYTES
from .reading import LogMessage

# Beyond this it is cheaper to make a new consumer than to fetch the messages in between.
MAX_CATCH_UP = 200
# So many are fetched of messages that may be the largest: the server drops a client that has 64 MB waiting for it.
FEWEST_CATCH_UP = 8
KEPT_MESSAGES = 64
KEPT_BYTES = 1024 * 1024
KEPT_S = 0.1
"""Seconds after which what arrived may be erased, and is read again."""


class News:
    """The messages that arrived last, for a moment: who waited for them need not ask for them again."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[float, LogMessage]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, message: LogMessage) -> None:
        """Keep a message; the oldest ones make room."""
        with self._lock:
            if message.position not in self._messages:
                self._messages[message.position] = time.monotonic(), message
                self._bytes += len(message.payload)
            # One of any size stays: it is what somebody waits for.
            while len(self._messages) > KEPT_MESSAGES or (self._bytes > KEPT_BYTES and len(self._messages) > 1):
                _, oldest = self._messages.pop(next(iter(self._messages)))
                self._bytes -= len(oldest.payload)

    def after(self, position: int) -> list[LogMessage]:
        """Return the messages that follow a position without a gap and have just arrived."""
        fresh: list[LogMessage] = []
        since = time.monotonic() - KEPT_S
        with self._lock:
            while (arrived := self._messages.get(position + len(fresh) + 1)) is not None and arrived[0] >= since:
                fresh.append(arrived[1])
        return fresh

    def forget(self) -> None:
        """Forget all of them, as messages were erased, or there may be others at their positions."""
        with self._lock:
            self._messages.clear()
            self._bytes = 0


class Waiter:
    """A thread that waits for a message above a position."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.error: PersistenceError | None = None
        self.is_over = False


class StreamWatch:
    """Waiters for messages of a stream above positions, and what came. `floor`: what comes is above this position."""

    def __init__(self, client: JetStreamClient, stream: str, subject: str | None) -> None:
        self.client, self.stream, self.subject = client, stream, subject
        self.news = News()
        self.floor = self._cursor = self._largest = self._latest = 0
        self._waiters: set[Waiter] = set()
        self._changed = threading.Condition()
        self._is_asking = self.is_closed = False

    def awaited(self, *, begins: bool = False) -> int | None:
        """Return the lowest position that is waited for, None for none; what comes is above it where a consumer `begins`."""
        with self._changed:
            lowest = min((waiter.after for waiter in self._waiters if self._latest <= waiter.after), default=None)
            self._is_asking = lowest is not None
            if begins and lowest is not None:
                self.floor, self._cursor, self._largest = lowest, lowest, 0
            return lowest

    def wanted(self, lowest: int) -> int:
        """Return how many messages to ask for where that position is waited for; 0 where a new consumer gets there faster."""
        # Others appended much while nobody waited. A consumer that begins at the end skips it.
        most = WANTED_BYTES // self._largest if self._largest else FEWEST_CATCH_UP
        if lowest - self._cursor > max(1, min(most, MAX_CATCH_UP)):
            return 0
        # All up to what is waited for, which has arrived already, and the next one.
        return max(1, lowest - self._cursor + 1)

    def take(self, message: LogMessage) -> None:
        self._cursor, self._largest = message.position, max(self._largest, len(message.payload) or 1)
        # Before the waiters are woken, who look for it at once.
        self.news.keep(message)
        self.advance(message.position)

    def end(self, error: PersistenceError | None) -> None:
        """Tell who waits that nothing follows the stream any more, and why."""
        with self._changed:
            self._is_asking = False
            for waiter in self._waiters:
                waiter.error, waiter.is_over = error, True
            self._changed.notify_all()

    def advance(self, position: int) -> None:
        """Note that the stream has a message at a position."""
        if position > self._latest:
            with self._changed:
                self._latest = max(position, self._latest)
                self._changed.notify_all()
