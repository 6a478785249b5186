"""The shared client of a process: one event loop, one connection that is made anew whenever it is lost."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from threading import Lock, Thread, get_ident
from typing import Any, Generic, TypeVar, TypeVarTuple

import anyio.to_thread
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal
from eventsourcing.persistence import OperationalError, PersistenceError, ProgrammingError

from .blocking_connection import BlockingConnection, ConnectionPool
from .connection import Connection
from .endpoint import Endpoint
from .errors import TRANSIENT, ApiError, ApiFault, ConnectionLostError, OutcomeUnknownError, translate

T = TypeVar("T")
Args = TypeVarTuple("Args")


class LoopThread:
    """
    An event loop in a thread of its own, started by the first call.

    It starts late so that servers which fork their workers can build their objects before they fork.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._manager: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int | None = None
        self._pid: int | None = None
        self._is_closed = False

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """
        The result of a coroutine function, run on the loop.

        Raises:
            ProgrammingError: Called on the loop's own thread (it would wait for itself), after `close`, or in a process that was forked from the one that started the loop.
            OutcomeUnknownError: `close` was called meanwhile.
        """
        self._ready()
        assert self._loop is not None
        # Not through the portal, which waits for the task to begin before it waits for the result, nor through a chain of
        # futures, which goes round the loop once more at the end: 118, 85 and 60 us.
        call = _Call(lambda: function(*args))
        self._loop.call_soon_threadsafe(call.start)
        try:
            return call.wait()
        except asyncio.CancelledError as error:
            msg = "the connection was closed during the operation; what it was to write may be stored"
            raise OutcomeUnknownError(msg) from error
        except BaseException:
            # Ctrl-C interrupts the wait only; without this the operation would go on unobserved.
            if not call.is_done:
                self._loop.call_soon_threadsafe(call.cancel)
            raise

    def start(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> "Future[T]":
        """Like `call`, without waiting for the result."""
        return self._ready().start_task_soon(function, *args)

    def signal(self, function: Callable[[*Args], object], *args: *Args) -> None:
        """Run a plain function on the loop, soon; do nothing when the loop has ended."""
        if self._portal is None or self._pid != os.getpid():
            return
        try:
            self._portal.start_task_soon(function, *args)
        except RuntimeError:
            return

    def close(self, farewell: Callable[[], Awaitable[None]]) -> None:
        """Run `farewell` on the loop, cancel what is left, and end the thread. Further calls are refused."""
        with self._lock:
            portal, manager = self._portal, self._manager
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or portal is None or manager is None or self._pid != os.getpid():
            return
        if get_ident() == self._thread_id:
            # A finaliser ran on the loop's thread, which cannot wait for its own end.
            Thread(target=_end, args=(portal, manager, farewell), daemon=True).start()
        else:
            _end(portal, manager, farewell)

    def _ready(self) -> BlockingPortal:
        if self._portal is None or self._is_closed:
            self._start()
        if self._pid != os.getpid():
            msg = "this process was forked from the one that opened the connection; open another one here"
            raise ProgrammingError(msg)
        if self._thread_id == get_ident():
            msg = "a blocking call on the event loop's own thread would never return"
            raise ProgrammingError(msg)
        assert self._portal is not None
        return self._portal

    def _start(self) -> None:
        with self._lock:
            if self._is_closed:
                msg = "the connection was closed"
                raise ProgrammingError(msg)
            if self._portal is not None:
                return
            manager = start_blocking_portal("asyncio", name="chatledger-jetstream")
            portal = manager.__enter__()
            self._thread_id, self._pid = portal.call(get_ident), os.getpid()
            self._loop = portal.call(asyncio.get_running_loop)
            self._manager, self._portal = manager, portal


class _Call(Generic[T]):
    """The call that one thread waits for while it runs as a task on the loop's thread."""

    __slots__ = ("_begin", "_error", "_released", "_result", "_task", "is_done")

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        self._begin = begin
        self._released = Lock()
        self._released.acquire()
        self._task: asyncio.Task[None] | None = None
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.is_done = False

    def start(self) -> None:
        """Begin; on the loop's thread, as `cancel`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """End it early."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._result.append(await self._begin())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._error = error
        finally:
            self.is_done = True
            self._released.release()

    def wait(self) -> T:
        """The result, or what was raised; in the thread that waits."""
        self._released.acquire()
        error, self._error = self._error, None
        if error is None:
            return self._result[0]
        try:
            raise error
        finally:
            del error  # it refers to this frame


def _end(
    portal: BlockingPortal, manager: AbstractContextManager[BlockingPortal], farewell: Callable[[], Awaitable[None]]
) -> None:
    try:
        portal.call(farewell)
        portal.call(portal.stop, True)  # noqa: FBT003 (anyio passes arguments by position)
    finally:
        manager.__exit__(None, None, None)


log = logging.getLogger("chatledger.jetstream")


# A request that the server swallowed (an election, a stalled disk) is repeated after this long.
ATTEMPT_S = 3.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class _ApiReply(msgspec.Struct):
    error: ApiFault | None = None


_reply_decoder = msgspec.json.Decoder(_ApiReply)


class Deadline:
    """The end of an operation's budget, and the growing pauses between its attempts."""

    __slots__ = ("_pause_s", "ends_at")

    def __init__(self, budget_s: float) -> None:
        self.ends_at = time.monotonic() + budget_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        """Seconds until the budget ends, 0 when it has ended."""
        return max(0.0, self.ends_at - time.monotonic())

    @property
    def attempt_s(self) -> float:
        """The time that one attempt may take."""
        return min(ATTEMPT_S, self.left_s)

    async def pause(self) -> bool:
        """Wait before the next attempt; False when there is no time for another one."""
        if self._pause_s >= self.left_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return True


class JetStreamClient:
    """
    A connection to JetStream for blocking callers, shared by any number of threads and recorders.

    Nothing happens before the first operation. An operation rides through restarts of the server: on a lost connection
    it calls `connect` again, which may name another port, and repeats what is safe to repeat, all within `timeout_s`.

    Args:
        connect: Where to connect. Called before each connection, in a worker thread, so it may block, for instance to
            start a server. Worker threads end early: a child process must not depend on its parent thread.
        timeout_s: The budget of one operation, all its attempts and connections included.
        erasing: Entered while messages are erased, where what a server that dies meanwhile leaves is finished before the next
            one starts; see `nats_server.erasures`.
        why_full: Returns the reason why the server cannot store anything now; None while it can, or when nothing is known of its
            disk. A server answers no append when its disk is full.
    """

    def __init__(
        self,
        connect: Callable[[], Endpoint],
        *,
        timeout_s: float = 15.0,
        erasing: Callable[[], AbstractContextManager[None]] | None = None,
        why_full: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.timeout_s, self.why_full = timeout_s, why_full
        self.erasing = erasing or contextlib.nullcontext[None]
        self.finishes_erasures = erasing is not None
        self._connect = connect
        self._loop = LoopThread()
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock | None = None
        self._is_closing = False
        self._background: set[asyncio.Task[None]] = set()
        self._pool = ConnectionPool()

    def acquire_blocking_connection(self) -> BlockingConnection | None:
        """A line for this thread alone, if there is one to be had at once; `release_blocking_connection` must follow."""
        connection = self._connection
        endpoint = None if connection is None else connection.endpoint
        return None if endpoint is None else self._pool.acquire(connection, endpoint)

    def release_blocking_connection(self, *, is_sound: bool = True) -> None:
        """Return the blocking connection to the pool; see `ConnectionPool.release`."""
        self._pool.release(is_sound=is_sound)

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """
        The result of a coroutine function, run on the client's event loop.

        Raises:
            ProgrammingError: Called on that loop's own thread, after `close`, or in a forked process.
        """
        return self._loop.call(function, *args)

    def start(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> "Future[T]":
        """Start a coroutine function on the client's event loop; `close` cancels it."""
        return self._loop.start(function, *args)

    def signal(self, function: Callable[[*Args], object], *args: *Args) -> None:
        """Run a plain function on the client's event loop, soon; nothing happens after `close`."""
        self._loop.signal(function, *args)

    def background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task beside the operations; `close` cancels it and waits for its end. On the loop's thread only."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def close(self) -> None:
        """End the connection and the loop. Idempotent; operations under way raise, later ones are refused."""
        self._pool.close()
        self._loop.close(self._disconnect)

    def __del__(self) -> None:
        # `ProjectionRunner` never closes the factory of its view, and an open socket must not outlive its loop.
        if not sys.is_finalizing():
            with contextlib.suppress(Exception):
                self.close()

    def deadline(self) -> Deadline:
        """A fresh budget for one operation."""
        return Deadline(self.timeout_s)

    async def connection(self, deadline: Deadline) -> Connection:
        """
        The live connection, made if there is none. One attempt.

        Raises:
            InterfaceError: The login was refused.
            ConnectionLostError: There is no connection now.
        """
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        if self._is_closing:
            msg = "the connection was closed during the operation; what it was to write may be stored"
            raise OutcomeUnknownError(msg)
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with asyncio.timeout(deadline.left_s), self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._open(deadline)
            return self._connection

    async def _open(self, deadline: Deadline) -> Connection:
        try:
            endpoint = await anyio.to_thread.run_sync(self._connect, abandon_on_cancel=True)
        except TRANSIENT as error:
            msg = f"the address of the server is not known: {error!r}"
            raise ConnectionLostError(msg) from error
        connection = await Connection.open(endpoint, timeout_s=deadline.attempt_s)
        log.info("connected to %r", endpoint)
        return connection

    async def _disconnect(self) -> None:
        self._is_closing = True
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        if self._connection is not None:
            await self._connection.close()

    async def retry(
        self, operation: Callable[[Connection, Deadline], Awaitable[T]], deadline: Deadline, *, doing: str
    ) -> T:
        """
        Repeat an operation that changes nothing, or the same each time, until it succeeds.

        Raises:
            OperationalError: It did not succeed within the budget, or the server refused it.
            InterfaceError: The login was refused.
        """
        while True:
            try:
                return await operation(await self.connection(deadline), deadline)
            except ApiError as error:
                if not error.is_transient:
                    raise translate(error.fault, doing=doing) from error
                reason: Exception = error
            except PersistenceError:
                raise
            except TRANSIENT as error:
                reason = error
            if not await deadline.pause():
                msg = f"{doing}: no answer within {self.timeout_s:g} s; the last reason was {reason!r}"
                raise OperationalError(msg) from reason

    async def api(self, subject: str, request: Mapping[str, Any] | None, reply: type[T], deadline: Deadline) -> T:
        """
        The decoded reply of `$JS.API.<subject>`.

        Raises:
            OperationalError: No answer within the budget, or a refusal, with the server's words.
            InterfaceError: The login was refused.
        """
        payload = b"" if request is None else msgspec.json.encode(request)

        async def ask(connection: Connection, deadline: Deadline) -> T:
            return await ask_api(connection, subject, payload, reply, deadline)

        return await self.retry(ask, deadline, doing=subject)


async def ask_api(connection: Connection, subject: str, payload: bytes, reply: type[T], deadline: Deadline) -> T:
    """
    The decoded reply of `$JS.API.<subject>`; one attempt.

    Raises:
        ApiError: The server refused.
        NoAnswerError, ConnectionLostError, TimeoutError: There is no reply.
    """
    message = await connection.request("$JS.API." + subject, payload, timeout_s=deadline.attempt_s)
    # `error` comes first: the other fields of a refusal are zeros.
    fault = _reply_decoder.decode(message.data).error
    if fault is not None:
        raise ApiError(fault)
    return msgspec.json.decode(message.data, type=reply)
