"""Subscriptions: everything above a position, in order, across restarts of the server."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition

from eventsourcing.persistence import ApplicationRecorder, Notification, PersistenceError, Subscription
from nats.aio.msg import Msg

from .client import JetStreamClient
from .errors import NOT_FOUND, TRANSIENT, ApiError, translate
from .pull import PullConsumer, position_of
from .reading import LogMessage

log = logging.getLogger("chatledger.jetstream")

MAX_WANTED = 500
FIRST_WANTED = 8
# What may be under way at once; the server drops a client that has 64 MB waiting for it.
WANTED_BYTES = 16 * 1024 * 1024
RETRY_S = 0.1

Decode = Callable[[LogMessage], Notification | None]


class JetStreamSubscription(Subscription[ApplicationRecorder]):
    """
    Yields the notifications above a position and then waits for new ones.

    A task on the client's loop fetches ahead. It survives restarts of the server and goes on above the last position it
    has seen; the log is the memory, nothing is acknowledged. Errors that a retry cannot cure are raised by `__next__`.
    """

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
        self._position = gt or 0
        self._ready: deque[LogMessage] = deque()
        self._changed = Condition()
        self._error: BaseException | None = None
        self._task: Future[None] | None = None
        self._room: asyncio.Event | None = None

    def __next__(self) -> Notification:
        """
        The next notification; blocks until there is one.

        Raises:
            StopIteration: `stop` was called.
            PersistenceError: The log refuses the subscription.
        """
        while True:
            if self._has_been_stopped:
                raise StopIteration
            if self._task is None:
                self._start()
            message = self._take()
            if message is None:
                continue
            notification = self._decode(message)
            if notification is not None and (not self._topics or notification.topic in self._topics):
                self._last_notification_id = notification.id
                return notification

    def stop(self) -> None:
        """End the subscription, from any thread; a blocked `__next__` raises StopIteration."""
        super().stop()
        with self._changed:
            self._changed.notify_all()
            task, self._ready = self._task, deque()
        if task is not None:
            task.cancel()

    def _take(self) -> LogMessage | None:
        with self._changed:
            while not self._ready and self._error is None and not self._has_been_stopped:
                self._changed.wait()
            if self._has_been_stopped:
                return None
            if not self._ready:
                assert self._error is not None
                raise self._error
            message = self._ready.popleft()
            has_room = len(self._ready) == MAX_WANTED // 2
        if has_room and self._room is not None:
            self._client.signal(self._room.set)
        return message

    def _start(self) -> None:
        with self._changed:
            if self._task is not None or self._has_been_stopped:
                return
            self._task = self._client.start(self._follow)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "Future[None]") -> None:
        with self._changed:
            if self._error is None:
                self._error = (
                    PersistenceError("the connection was closed") if task.cancelled() else task.exception()
                ) or PersistenceError("the subscription ended")
            self._changed.notify_all()

    async def _follow(self) -> None:
        self._room = asyncio.Event()
        while True:
            try:
                await self._follow_connected()
            except ApiError as error:
                if error.fault.err_code == NOT_FOUND or not error.is_transient:
                    raise translate(error.fault, doing=f"subscribing to {self._stream}") from error
            except PersistenceError:
                raise
            except TRANSIENT as error:
                log.info("subscription to %s above %d interrupted: %r", self._stream, self._position, error)
            await asyncio.sleep(RETRY_S)

    async def _follow_connected(self) -> None:
        deadline = self._client.deadline()
        connection = await self._client.connection(deadline)
        consumer = await PullConsumer.open(connection, self._stream, deadline, after=self._position)
        wanted = FIRST_WANTED
        try:
            while True:
                await self._wait_for_room()
                if consumer.outstanding <= wanted // 2:
                    await consumer.want(wanted - consumer.outstanding)
                messages = await consumer.receive()
                if messages:
                    self._hand_over(messages)
                    size = sum(len(message.data) for message in messages) // len(messages)
                    wanted = max(1, min(MAX_WANTED, WANTED_BYTES // (size + 1)))
        finally:
            await consumer.close()

    async def _wait_for_room(self) -> None:
        assert self._room is not None
        while len(self._ready) > MAX_WANTED:
            self._room.clear()
            if len(self._ready) > MAX_WANTED:
                await self._room.wait()

    def _hand_over(self, messages: Sequence[Msg]) -> None:
        arrived: list[LogMessage] = []
        for message in messages:
            position = position_of(message)
            # A request that was answered twice, by an old and a new leader, must not move us back.
            if position > self._position:
                self._position = position
                arrived.append(LogMessage(position, message.subject, message.headers or {}, message.data))
        with self._changed:
            if not self._has_been_stopped:
                self._ready.extend(arrived)
                self._changed.notify_all()
