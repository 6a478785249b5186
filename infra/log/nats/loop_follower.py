"""Following a stream over the event loop's connection."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from eventsourcing.persistence import OperationalError, PersistenceError

from .subscription import PullConsumer, keep_following
from .watching import StreamWatch


class LoopFollower:
    """A `StreamFollower` in a task on the loop of the client, which survives restarts of the server."""

    def __init__(self, watcher: StreamWatch) -> None:
        self._watcher = watcher
        self._is_wanted: asyncio.Event | None = None
        self._wake_task: Callable[[], object] | None = None
        """Sets the event, from any thread; a task for it on the loop would cost as much as the rest of a wait."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._wake_task is not None and self._task is not None and not self._task.done()

    def begin(self, after: int) -> None:
        self._watcher.client.loop.start(self._start, after)

    def wake(self) -> None:
        # Of a task that ends meanwhile the waiters are told so.
        if self._wake_task is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._wake_task()

    def close(self) -> None:
        self._watcher.client.loop.signal(self._end)

    async def _start(self, after: int) -> None:
        if self._is_wanted is None:
            self._is_wanted = asyncio.Event()
            self._wake_task = partial(asyncio.get_running_loop().call_soon_threadsafe, self._is_wanted.set)
        self._is_wanted.set()
        if self._task is not None and after < self._watcher.floor:
            # The consumer began above what this waiter asks for.
            self._task.cancel()
            self._task = None
        if self._task is None or self._task.done():
            self._watcher.floor = after
            self._task = self._watcher.client.background(self._follow())

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        error: PersistenceError | None = None
        try:
            await keep_following(self._follow_connected, doing=f"waiting for {self._watcher.stream}")
        except PersistenceError as raised:
            error = raised
        except asyncio.CancelledError:
            is_closed = self._watcher.is_closed
            error = None if is_closed else OperationalError("the connection was closed while it was waited on")
            raise
        finally:
            if self._task is asyncio.current_task():
                self._watcher.end(error)

    async def _follow_connected(self) -> None:
        watcher = self._watcher
        after = await self._somebody_waits(begins=True)
        deadline = watcher.client.deadline()
        connection = await watcher.client.connected(deadline)
        consumer = await PullConsumer.open(
            connection, watcher.stream, deadline, watcher.take, after=after, subject=watcher.subject
        )
        try:
            while count := watcher.wanted(await self._somebody_waits()):
                if consumer.outstanding == 0:
                    await consumer.want(count)
                await consumer.wait()
        finally:
            watcher.news.forget()
            await consumer.close()

    async def _somebody_waits(self, *, begins: bool = False) -> int:
        """Wait until somebody waits, and return the lowest position."""
        assert self._is_wanted is not None
        while True:
            # Lowered before the look: who comes after that raises it again, and is not missed.
            self._is_wanted.clear()
            lowest = self._watcher.awaited(begins=begins)
            if lowest is not None:
                return lowest
            await self._is_wanted.wait()
