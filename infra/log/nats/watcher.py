"""Wait for new messages of a log without polling."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from eventsourcing.persistence import OperationalError, PersistenceError

from .client import JetStreamClient
from .reading import LogMessage
from .subscription import WANTED_BYTES, PullConsumer, keep_following

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


class _Waiter:
    """A thread that waits for a message above a position."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.error: PersistenceError | None = None
        self.is_over = False


class LogWatcher:
    """
    Knows whether a stream has a message above a position, on a subject or any, and waits until it has.

    All waiters share one consumer and one task, which runs while somebody waits. A request for the next message lies at the
    server meanwhile, so an idle wait sends nothing. What comes is in `news` for a moment: the follower of an index and feeds take
    it from there, where each of them would ask the server for it, one request after the other.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, subject: str | None = None) -> None:
        self._client, self._stream, self._subject = client, stream, subject
        self.news = News()
        self._cursor = self._largest = self._latest = 0
        self._floor = 0
        self._waiters: set[_Waiter] = set()
        self._changed = threading.Condition()
        self._is_asking = False
        self._is_wanted: asyncio.Event | None = None
        self._wake_task: Callable[[], object] | None = None
        """Sets the event, from any thread; a task for it on the loop would cost as much as the rest of a wait."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def wait(self, after: int, timeout_s: float) -> bool:
        """
        Whether the stream has a message above `after`, now or within `timeout_s`. False at once after `close`.

        A server that is away counts as one that has nothing new.

        Raises:
            PersistenceError: The stream is gone, or the login was refused.
        """
        # Without the lock: the number only grows, and is looked at again under it.
        if self._latest > after:
            return True
        if self._is_closed:
            return False
        self._client.loop.check()
        waiter = _Waiter(after)
        with self._changed:
            # Before the task is looked at: it sees the waiter at its next round, or is started by it.
            self._waiters.add(waiter)
            is_asked_for = self._is_asking and after >= self._floor
        try:
            if not is_asked_for:
                self._wake(after)
            with self._changed:
                self._changed.wait_for(lambda: self._latest > after or waiter.is_over or self._is_closed, timeout_s)
        finally:
            with self._changed:
                self._waiters.discard(waiter)
        if waiter.error is not None:
            raise waiter.error
        return self._latest > after

    def _wake(self, after: int) -> None:
        """Have the task ask for messages after a position. Not awaited: the way to the loop and back takes as long as an event."""
        wake, task = self._wake_task, self._task
        if wake is None or task is None or task.done() or after < self._floor:
            self._client.loop.start(self._start, after)
            return
        # Of a task that ends meanwhile the waiters are told so.
        with contextlib.suppress(RuntimeError):  # the loop was closed
            wake()

    def advance(self, position: int) -> None:
        """Note that the stream has a message at a position."""
        if position > self._latest:
            with self._changed:
                self._latest = max(position, self._latest)
                self._changed.notify_all()

    def forget(self) -> None:
        """Forget the known position, after the stream was deleted."""
        self._latest = 0
        self.news.forget()

    def close(self) -> None:
        """Wake all waiters, from any thread; they and later ones get False."""
        self._is_closed = True
        with self._changed:
            self._changed.notify_all()
        self._client.loop.signal(self._end)

    async def _start(self, after: int) -> None:
        if self._is_wanted is None:
            self._is_wanted = asyncio.Event()
            self._wake_task = partial(asyncio.get_running_loop().call_soon_threadsafe, self._is_wanted.set)
        self._is_wanted.set()
        if self._task is not None and after < self._floor:
            # The consumer began above what this waiter asks for.
            self._task.cancel()
            self._task = None
        if self._task is None or self._task.done():
            self._floor = after
            self._task = self._client.background(self._follow())

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        error: PersistenceError | None = None
        try:
            await keep_following(self._follow_connected, doing=f"waiting for {self._stream}")
        except PersistenceError as raised:
            error = raised
        except asyncio.CancelledError:
            error = None if self._is_closed else OperationalError("the connection was closed while it was waited on")
            raise
        finally:
            if self._task is asyncio.current_task():
                with self._changed:
                    self._is_asking = False
                    for waiter in self._waiters:
                        waiter.error, waiter.is_over = error, True
                    self._changed.notify_all()

    async def _follow_connected(self) -> None:
        self._cursor, self._largest = await self._somebody_waits(begins=True), 0
        deadline = self._client.deadline()
        connection = await self._client.connected(deadline)
        consumer = await PullConsumer.open(
            connection, self._stream, deadline, self._take, after=self._cursor, subject=self._subject
        )
        try:
            while True:
                lowest = await self._somebody_waits()
                # Others appended much while nobody waited. A consumer that begins at the end skips it.
                most = WANTED_BYTES // self._largest if self._largest else FEWEST_CATCH_UP
                if lowest - self._cursor > max(1, min(most, MAX_CATCH_UP)):
                    return
                if consumer.outstanding == 0:
                    # All up to what is waited for, which has arrived already, and the next one.
                    await consumer.want(max(1, lowest - self._cursor + 1))
                await consumer.wait()
        finally:
            self.news.forget()
            await consumer.close()

    def _take(self, message: LogMessage) -> None:
        self._cursor, self._largest = message.position, max(self._largest, len(message.payload) or 1)
        # Before the waiters are woken, who look for it at once.
        self.news.keep(message)
        self.advance(message.position)

    async def _somebody_waits(self, *, begins: bool = False) -> int:
        """Wait until somebody waits. The lowest position that is waited for, where a consumer `begins`."""
        assert self._is_wanted is not None
        while True:
            # Lowered before the look: who comes after that raises it again, and is not missed.
            self._is_wanted.clear()
            with self._changed:
                lowest = min((waiter.after for waiter in self._waiters if self._latest <= waiter.after), default=None)
                self._is_asking = lowest is not None
                if lowest is not None:
                    self._floor = lowest if begins else self._floor
                    return lowest
            await self._is_wanted.wait()
