"""Wait for new messages of a log without polling."""

import contextlib
import logging
import threading
import time
from typing import Protocol

from eventsourcing.persistence import PersistenceError, ProgrammingError

from .blocking_connection import BlockingConnection
from .client import ATTEMPT_S, JetStreamClient
from .consumer import SILENCE_S, ConsumerInfo, Pulled, consumer_request, next_request
from .endpoint import Endpoint
from .errors import ApiError, ConnectionLostError
from .transport import TRANSIENT, ask_api
from .watching import StreamWatch, Waiter

log = logging.getLogger("chatledger.jetstream")


class StreamFollower(Protocol):
    """The follower of a stream, for a `LogWatcher`, as long as somebody waits."""

    @property
    def is_running(self) -> bool: ...

    def begin(self, after: int) -> None:
        """Begin to follow above a position; anew where it follows what is above a higher one."""

    def wake(self) -> None:
        """Look again who waits."""

    def close(self) -> None:
        """End, soon."""


class LogWatcher(StreamWatch):
    """
    Knows whether a stream has a message above a position, on a subject or any, and waits until it has.

    All waiters share one consumer, which a `StreamFollower` has while somebody waits. A request for the next message lies at the
    server meanwhile, so an idle wait sends nothing. What comes is in `news` for a moment: the follower of an index and feeds take
    it from there, where each of them would ask the server for it, one request after the other.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, subject: str | None = None) -> None:
        super().__init__(client, stream, subject)
        self._follower: StreamFollower | None = None

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
        if self.is_closed:
            return False
        self.client.check()
        waiter = Waiter(after)
        with self._changed:
            # Before the follower is looked at: it sees the waiter at its next round, or is started by it.
            self._waiters.add(waiter)
            is_asked_for = self._is_asking and after >= self.floor
        try:
            if not is_asked_for:
                self._wake(after)
            with self._changed:
                self._changed.wait_for(lambda: self._latest > after or waiter.is_over or self.is_closed, timeout_s)
        finally:
            with self._changed:
                self._waiters.discard(waiter)
        if waiter.error is not None:
            raise waiter.error
        return self._latest > after

    def _wake(self, after: int) -> None:
        """Have the follower ask for messages after a position. Not awaited: the way there and back takes as long as an event."""
        with self._changed:
            if self._follower is None:
                endpoint = self.client.embedded
                self._follower = (
                    SocketFollower(self, endpoint)
                    if endpoint is not None and BlockingConnection.is_possible(endpoint)
                    else self._over_loop()
                )
            follower = self._follower
        if not follower.is_running or after < self.floor:
            follower.begin(after)
        else:
            follower.wake()

    def _over_loop(self) -> StreamFollower:
        from .loop_follower import LoopFollower

        return LoopFollower(self)

    def go_over(self) -> None:
        """Go over to the event loop's connection, which rides through restarts of the server."""
        with self._changed:
            if self.is_closed:
                return
            self._follower, self._is_asking = self._over_loop(), False
            lowest = min((waiter.after for waiter in self._waiters), default=None)
        if lowest is not None:
            with contextlib.suppress(ProgrammingError):  # the client was closed
                self._follower.begin(lowest)

    def forget(self) -> None:
        """Forget the known position, after the stream was deleted."""
        self._latest = 0
        self.news.forget()

    def close(self) -> None:
        """Wake all waiters, from any thread; they and later ones get False."""
        self.is_closed = True
        with self._changed:
            self._changed.notify_all()
            follower = self._follower
        if follower is not None:
            follower.close()


class SocketFollower:
    """
    A `StreamFollower` of an embedded server, on a socket and a thread of its own: no event loop has to be imported and started for it.

    Where anything goes wrong the event loop's connection takes its place.
    """

    def __init__(self, watcher: LogWatcher, endpoint: Endpoint) -> None:
        self._watcher, self._endpoint = watcher, endpoint
        self._is_wanted = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: BlockingConnection | None = None
        self._begins_anew = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, after: int) -> None:
        del after  # the waiters say it
        with self._lock:
            if self.is_running:
                self._begins_anew = True
                self._interrupt()
                return
            # It is a daemon: a process that ends without closing its ledger does not wait for it.
            self._thread = threading.Thread(target=self._run, name="chatledger-watch", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        self._is_wanted.set()

    def close(self) -> None:
        with self._lock:
            self._interrupt()

    def _interrupt(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()
        self._is_wanted.set()

    def _run(self) -> None:
        while not self._watcher.is_closed:
            with self._lock:
                self._begins_anew = False
            try:
                self._follow()
            except (ApiError, PersistenceError, *TRANSIENT) as error:
                if not self._begins_anew:
                    log.info("watching %s over a socket was interrupted: %r", self._watcher.stream, error)
                    self._watcher.go_over()
                    return

    def _follow(self) -> None:
        """Follow above what is waited for, until a new consumer gets there faster."""
        watcher = self._watcher
        after = self._somebody_waits(begins=True)
        with contextlib.closing(
            BlockingConnection(self._endpoint, threading.Lock(), timeout_s=ATTEMPT_S)
        ) as connection:
            try:
                with self._lock:
                    self._connection = connection
                consumer = Pulled(watcher.take)
                inbox = connection.listen(consumer.deliver)
                request = consumer_request(watcher.stream, after=after, subject=watcher.subject)
                subject, ends_at = f"CONSUMER.CREATE.{watcher.stream}", time.monotonic() + ATTEMPT_S
                name = ask_api(connection, subject, request, ConsumerInfo, ends_at).name
                while count := watcher.wanted(self._somebody_waits()):
                    if consumer.outstanding == 0:
                        consumer.outstanding = count
                        subject = f"$JS.API.CONSUMER.MSG.NEXT.{watcher.stream}.{name}"
                        connection.publish(subject, next_request(count), reply=inbox)
                    connection.receive(time.monotonic() + SILENCE_S)
                    consumer.refuse_lost()
                connection.publish(f"$JS.API.CONSUMER.DELETE.{watcher.stream}.{name}", b"")
            finally:
                with self._lock:
                    self._connection = None
                watcher.news.forget()

    def _somebody_waits(self, *, begins: bool = False) -> int:
        """Wait until somebody waits, and return the lowest position. Raises `ConnectionLostError` after `close` or `begin`."""
        while True:
            # Lowered before the look: who comes after that raises it again, and is not missed.
            self._is_wanted.clear()
            if self._watcher.is_closed or self._begins_anew:
                raise ConnectionLostError
            lowest = self._watcher.awaited(begins=begins)
            if lowest is not None:
                return lowest
            self._is_wanted.wait()
