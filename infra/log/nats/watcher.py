"""Wait for new messages of a log without polling."""

import asyncio

from eventsourcing.persistence import PersistenceError

from .client import JetStreamClient
from .subscription import PullConsumer, keep_following, position_of

# Beyond this it is cheaper to make a new consumer than to fetch the headers in between.
MAX_CATCH_UP = 200


class LogWatcher:
    """
    Knows whether a stream has a message above a position, and waits until it has.

    All waiters of a recorder share one consumer that delivers headers only, and one task that runs while somebody waits.
    A request for the next message lies at the server meanwhile, so an idle wait sends nothing.
    """

    def __init__(self, client: JetStreamClient, stream: str) -> None:
        self._client, self._stream = client, stream
        self._known = 0
        self._floor = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._changed: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def wait(self, after: int, timeout_s: float) -> bool:
        """
        Whether the stream has a message above `after`, now or within `timeout_s`. False at once after `close`.

        A server that is away counts as one that has nothing new.

        Raises:
            PersistenceError: The stream is gone, or the login was refused.
        """
        if self._known > after:
            return True
        if self._is_closed:
            return False
        return self._client.call(self._wait, after, timeout_s)

    def advance(self, position: int) -> None:
        """Note that the stream has a message at a position."""
        if position > self._known:
            self._known = position
            if self._waiters:
                self._client.signal(self._wake)

    def forget(self) -> None:
        """Forget the known position, after the stream was deleted."""
        self._known = 0

    def close(self) -> None:
        """Wake all waiters, from any thread; they and later ones get False."""
        self._is_closed = True
        self._client.signal(self._end)

    async def _wait(self, after: int, timeout_s: float) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = after
        self._start(after)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            del self._waiters[waiter]
        return self._known > after

    def _start(self, after: int) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.set()
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
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _wake(self) -> None:
        for waiter, after in self._waiters.items():
            if self._known > after and not waiter.done():
                waiter.set_result(None)

    def _lowest(self) -> int | None:
        return min((after for waiter, after in self._waiters.items() if not waiter.done()), default=None)

    async def _follow(self) -> None:
        try:
            await keep_following(self._follow_connected, doing=f"waiting for {self._stream}")
        except PersistenceError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    async def _follow_connected(self) -> None:
        cursor = self._floor = await self._somebody_waits()
        deadline = self._client.deadline()
        connection = await self._client.connected(deadline)
        consumer = await PullConsumer.open(connection, self._stream, deadline, after=cursor, headers_only=True)
        try:
            while True:
                lowest = await self._somebody_waits()
                if lowest - cursor > MAX_CATCH_UP:
                    return
                if consumer.outstanding == 0:
                    await consumer.want(max(1, lowest - cursor + 1))
                messages = await consumer.receive()
                if messages:
                    cursor = position_of(messages[-1])
                    self._known = max(self._known, cursor)
                    self._wake()
        finally:
            await consumer.close()

    async def _somebody_waits(self) -> int:
        assert self._changed is not None
        while True:
            self._changed.clear()
            lowest = self._lowest()
            if lowest is not None:
                return lowest
            await self._changed.wait()
