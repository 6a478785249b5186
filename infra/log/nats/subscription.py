"""Subscriptions: everything above a position, in order, across restarts of the server."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from threading import Condition, Lock

import anyio
from eventsourcing.persistence import ApplicationRecorder, Notification, PersistenceError, Subscription

from .client import Deadline, JetStreamClient
from .connection import Connection, Inbox
from .consumer import INACTIVE_S, SILENCE_S, WANTED_BYTES, ConsumerInfo, Pulled, consumer_request, next_request
from .errors import ApiError, translate
from .reading import LogMessage
from .transport import TRANSIENT, Delivery, decode_api

CLOSE_S = 1.0
RETRY_S = 0.1
log = logging.getLogger("chatledger.jetstream")


async def create_consumer(
    connection: Connection,
    stream: str,
    deadline: Deadline,
    *,
    after: int,
    inactive_s: int = INACTIVE_S,
    subject: str | None = None,
) -> ConsumerInfo:
    """Make a consumer of everything above `after`, or of one subject, which one server keeps in memory."""
    request = consumer_request(stream, after=after, inactive_s=inactive_s, subject=subject)
    reply = await connection.request(f"$JS.API.CONSUMER.CREATE.{stream}", request, timeout_s=deadline.attempt_s)
    return decode_api(reply, ConsumerInfo)


class PullConsumer(Pulled):
    """
    A consumer on the event loop's connection. It dies with its server or connection; then make another one.

    Made with `open`. Nothing arrives unless `want` asks for it.
    """

    def __init__(self, connection: Connection, stream: str, take: Callable[[LogMessage], None]) -> None:
        super().__init__(take)
        self._connection, self._stream = connection, stream
        self._name = ""
        self._inbox: Inbox | None = None
        self._something = asyncio.Event()

    @classmethod
    async def open(
        cls,
        connection: Connection,
        stream: str,
        deadline: Deadline,
        take: Callable[[LogMessage], None],
        *,
        after: int,
        subject: str | None = None,
    ) -> "PullConsumer":
        """Return a consumer of everything above `after`, or of one subject; `take` is called on the loop's thread."""
        consumer = cls(connection, stream, take)
        consumer._inbox = await connection.listen(consumer.deliver, lambda: consumer._die("the connection ended"))
        try:
            created = await create_consumer(connection, stream, deadline, after=after, subject=subject)
        except BaseException:
            await consumer._inbox.end()
            raise
        consumer._name = created.name
        return consumer

    async def want(self, count: int) -> None:
        """Ask for that many more messages."""
        assert self._inbox is not None
        self.outstanding += count
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._connection.publish(subject, next_request(count), reply=self._inbox.subject)

    async def wait(self) -> None:
        """
        Wait until something has arrived since the last wait, if only a heartbeat; `want` may be due again then.

        Raises:
            ConnectionLostError: The consumer is gone.
        """
        try:
            async with asyncio.timeout(SILENCE_S):
                await self._something.wait()
        except TimeoutError:
            self._die("no heartbeat")
        self._something.clear()
        self.refuse_lost()

    async def close(self) -> None:
        """Stop listening. The server forgets the consumer by itself, a request makes it do so now."""
        if self._inbox is None:
            return
        # Shielded, for this runs when the task that used the consumer was cancelled.
        with anyio.move_on_after(CLOSE_S, shield=True), contextlib.suppress(*TRANSIENT):
            await self._inbox.end()
            await self._connection.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"")

    def deliver(self, delivery: Delivery) -> None:
        super().deliver(delivery)
        self._something.set()

    def _die(self, reason: str) -> None:
        self.lost = reason
        self._something.set()


async def keep_following(follow: Callable[[], Awaitable[None]], *, doing: str) -> None:
    """Repeat `follow` for ever, or until an error that a retry does not cure, which is raised as a `PersistenceError`."""
    while True:
        try:
            await follow()
        except ApiError as error:
            if not error.is_transient:
                raise translate(error.fault, doing=doing) from error
        except PersistenceError:
            raise
        except TRANSIENT as error:
            log.info("%s was interrupted: %r", doing, error)
        else:
            continue
        # Not at once: while a server restarts, each attempt fails within a millisecond.
        await asyncio.sleep(RETRY_S)


MAX_WANTED = 500
FIRST_WANTED = 8

Decode = Callable[[LogMessage], Notification | None]


class Prefetch:
    """
    Fetches the messages above a position ahead, in a task on the client's loop, which pauses while many wait to be taken.

    It survives restarts of the server and goes on above the last position it has seen; the log is the memory, nothing is
    acknowledged.

    `subject`: only messages on this subject; on all when None.
    """

    def __init__(
        self, client: JetStreamClient, stream: str, *, after: int, subject: str | None = None, doing: str
    ) -> None:
        self._client, self._stream, self._subject, self._doing = client, stream, subject, doing
        self._position = after
        self._ready: list[LogMessage] = []
        self._ready_bytes = 0
        self._size: int | None = None
        self._changed = Condition()
        self._error: BaseException | None = None
        self._room: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_stopped = False
        self._task = client.loop.start(self._follow)
        self._task.add_done_callback(self._ended)

    def take(self, timeout_s: float | None = None) -> Sequence[LogMessage]:
        """
        Return what has arrived, in order, and wait for it; nothing when the time is over, or after `stop`.

        Raises:
            PersistenceError: The log refuses it, or the connection was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error or self.is_stopped, timeout_s)
            if not self._ready and self._error is not None and not self.is_stopped:
                raise self._error
            taken, self._ready, was_full = self._ready, [], self._is_full
            self._ready_bytes = 0
        if was_full and self._room is not None:
            self._soon(self._room.set)
        return taken

    def stop(self) -> None:
        """End it, from any thread; a blocked `take` returns."""
        with self._changed:
            self.is_stopped, self._ready = True, []
            self._changed.notify_all()
        self._soon(self._task.cancel)

    def _soon(self, function: Callable[[], object]) -> None:
        """Run a function on the loop, without waiting for it: finalisers run in threads that may have what it waits for."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(function)

    @property
    def _is_full(self) -> bool:
        return len(self._ready) > MAX_WANTED or self._ready_bytes > WANTED_BYTES

    def _ended(self, task: "Future[None]") -> None:
        with self._changed:
            error = PersistenceError("the connection was closed") if task.cancelled() else task.exception()
            self._error = error or PersistenceError("the subscription ended")
            self._changed.notify_all()

    async def _follow(self) -> None:
        self._room, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if not self.is_stopped:
            await keep_following(self._follow_connected, doing=self._doing)

    async def _follow_connected(self) -> None:
        deadline = self._client.deadline()
        connection = await self._client.connected(deadline)
        consumer = await PullConsumer.open(
            connection, self._stream, deadline, self._hand_over, after=self._position, subject=self._subject
        )
        assert self._room is not None, "`_follow` made it"
        try:
            while True:
                while self._is_full:
                    self._room.clear()
                    # Once more: `take` may have made room before the event was cleared.
                    if self._is_full:
                        await self._room.wait()
                # How large messages are is not known at first: 500 of 8 MB would be more than the server lets wait for a client.
                wanted = (
                    FIRST_WANTED if self._size is None else max(1, min(MAX_WANTED, WANTED_BYTES // (self._size + 1)))
                )
                if consumer.outstanding <= wanted // 2:
                    await consumer.want(wanted - consumer.outstanding)
                await consumer.wait()
        finally:
            await consumer.close()

    def _hand_over(self, message: LogMessage) -> None:
        # A request that was answered twice, by an old and a new leader, must not move us back.
        if message.position <= self._position:
            return
        self._position, size = message.position, len(message.payload)
        # The mean of the last ones, in which a large one counts at once.
        self._size = size if self._size is None else max(size, (7 * self._size + size) // 8)
        with self._changed:
            if not self.is_stopped:
                self._ready.append(message)
                self._ready_bytes += size
                self._changed.notify_all()


class JetStreamSubscription(Subscription[ApplicationRecorder]):
    """Yields the notifications above a position and then waits for new ones. Errors are raised by `__next__`."""

    def __init__(
        self,
        recorder: ApplicationRecorder,
        gt: int | None,
        topics: Sequence[str],
        *,
        client: JetStreamClient,
        stream: str,
        decode: Decode,
    ) -> None:
        super().__init__(recorder, gt, topics)
        self._client, self._stream, self._decode = client, stream, decode
        self._after = gt or 0
        self._taken: deque[LogMessage] = deque()
        self._starting = Lock()
        self._prefetch: Prefetch | None = None

    def __next__(self) -> Notification:
        """
        The next notification; blocks until there is one.

        Raises:
            StopIteration: `stop` was called.
            PersistenceError: The log refuses the subscription.
        """
        while not self._has_been_stopped:
            if not self._taken:
                self._taken.extend(self._take())
                continue
            notification = self._decode(self._taken.popleft())
            if notification is not None and (not self._topics or notification.topic in self._topics):
                self._last_notification_id = notification.id
                return notification
        raise StopIteration

    def _take(self) -> Sequence[LogMessage]:
        # `stop` may come meanwhile, from any thread: it finds what was started, or keeps it from being started.
        with self._starting:
            if self._prefetch is None:
                if self._has_been_stopped:
                    return []
                doing = f"subscribing to {self._stream}"
                self._prefetch = Prefetch(self._client, self._stream, after=self._after, doing=doing)
        return self._prefetch.take()

    def stop(self) -> None:
        """End the subscription, from any thread; a blocked `__next__` raises StopIteration."""
        super().stop()
        with self._starting:
            if self._prefetch is not None:
                self._prefetch.stop()
