"""The shared client of a process: one event loop, one connection that is made anew whenever it is lost."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from threading import Condition, Event, Thread, get_ident
from typing import Any, TypeVar, TypeVarTuple

import anyio.to_thread
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal
from eventsourcing.persistence import OperationalError, PersistenceError, ProgrammingError

from .blocking_connection import ConnectionPool
from .connection import Connection
from .endpoint import Endpoint
from .errors import TRANSIENT, ApiError, ConnectionLostError, OutcomeUnknownError, translate
from .transport import Pipeline, Transport, ask_api

T = TypeVar("T")
Args = TypeVarTuple("Args")
_CLOSED = "the connection was closed"


class LoopThread:
    """
    An event loop in a thread of its own, started by the first call.

    It starts late so that servers which fork their workers can build their objects before they fork.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._starting = 0
        self._manager: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._thread_id: int | None = None
        self._pid: int | None = None
        self._is_closed = False

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """
        Return the result of a coroutine function, run on the loop.

        Raises:
            ProgrammingError: See `check`.
            OutcomeUnknownError: `close` was called meanwhile.
        """
        future = self.start(function, *args)
        try:
            return future.result()
        except CancelledError as error:
            msg = "the connection was closed during the operation; what it was to write may be stored"
            raise OutcomeUnknownError(msg) from error
        except BaseException:
            # Ctrl-C interrupts the wait only; without this the operation would go on unobserved.
            future.cancel()
            raise

    def start(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> "Future[T]":
        """Like `call`, without waiting for the result."""
        self.check()
        with self._entered() as portal:
            return portal.start_task_soon(function, *args)

    def signal(self, function: Callable[[*Args], object], *args: *Args) -> None:
        """Run a plain function on the loop, soon; do nothing when the loop has ended."""
        if self._portal is None or self._pid != os.getpid():
            return
        with contextlib.suppress(ProgrammingError), self._entered() as portal:
            portal.start_task_soon(function, *args)

    def close(self, farewell: Callable[[], Awaitable[None]]) -> None:
        """Run `farewell` on the loop, cancel what is left, and end the thread. Further calls are refused."""
        with self._changed:
            portal, manager = self._portal, self._manager
            was_closed, self._is_closed = self._is_closed, True
        # The thread of the loop does not survive a fork: a child has nothing to end.
        if was_closed or portal is None or manager is None or self._pid != os.getpid():
            return
        if get_ident() == self._thread_id:
            # A finaliser ran on the loop's thread, which cannot wait for its own end.
            Thread(target=self._end, args=(portal, manager, farewell), daemon=True).start()
        else:
            self._end(portal, manager, farewell)

    def check(self) -> None:
        """
        Refuse a thread that cannot wait for the loop.

        Raises:
            ProgrammingError: This is the loop's own thread (it would wait for itself), `close` was called, or the process was forked from the one that started the loop.
        """
        if self._is_closed:
            raise ProgrammingError(_CLOSED)
        if self._pid not in {None, os.getpid()}:
            msg = "this process was forked from the one that opened the connection; open another one here"
            raise ProgrammingError(msg)
        if self._thread_id == get_ident():
            msg = "a blocking call on the event loop's own thread would never return"
            raise ProgrammingError(msg)

    @contextlib.contextmanager
    def _entered(self) -> Generator[BlockingPortal]:
        """The running loop, which does not end within; what is handed to a loop that ends is never answered."""
        with self._changed:
            if self._is_closed:
                raise ProgrammingError(_CLOSED)
            portal = self._portal or self._start()
            self._starting += 1
        try:
            yield portal
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _start(self) -> BlockingPortal:
        manager = start_blocking_portal("asyncio", name="chatledger-jetstream")
        portal = manager.__enter__()
        self._thread_id, self._pid = portal.call(get_ident), os.getpid()
        self._manager, self._portal = manager, portal
        return portal

    def _end(
        self,
        portal: BlockingPortal,
        manager: AbstractContextManager[BlockingPortal],
        farewell: Callable[[], Awaitable[None]],
    ) -> None:
        with self._changed:
            # What is handed to a loop that is ending is never answered, and its caller would hang.
            self._changed.wait_for(lambda: self._starting == 0)
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


class Deadline:
    """The end of an operation's budget, and the growing pauses between its attempts."""

    __slots__ = ("_closed", "_pause_s", "ends_at")

    def __init__(self, budget_s: float, closed: Event) -> None:
        self.ends_at = time.monotonic() + budget_s
        self._pause_s = FIRST_PAUSE_S
        self._closed = closed

    @property
    def left_s(self) -> float:
        """Seconds until the budget ends, 0 when it has ended."""
        return max(0.0, self.ends_at - time.monotonic())

    @property
    def attempt_s(self) -> float:
        """The time that one attempt may take."""
        return min(ATTEMPT_S, self.left_s)

    @property
    def attempt_ends_at(self) -> float:
        """The end of an attempt that begins now."""
        return min(self.ends_at, time.monotonic() + ATTEMPT_S)

    def pause(self) -> bool:
        """Wait before the next attempt, or until the client is closed; False when there is no time for another one."""
        if self._pause_s >= self.left_s:
            return False
        self._closed.wait(self._pause_s)
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
        why_full: Returns the reason why the server cannot store anything now, or, with `may_use_reserve=True`, what deletes; None
            while it can, or when nothing is known of its disk. A server answers no append when its disk is full.
        sync_stream: Called with the name of a stream that was made, or whose settings changed: brings its description to the disk,
            where that is within reach.
        sync_messages: Called with the name of a stream of which others refer to the messages, when some were stored: brings them to
            the disk, where that is within reach and the server does not do so itself.
    """

    def __init__(
        self,
        connect: Callable[[], Endpoint],
        *,
        timeout_s: float = 15.0,
        erasing: Callable[[], AbstractContextManager[None]] | None = None,
        why_full: Callable[..., str | None] = lambda *, may_use_reserve=False: None,
        sync_stream: Callable[[str], object] = lambda name: None,
        sync_messages: Callable[[str], object] = lambda name: None,
    ) -> None:
        self.timeout_s, self.why_full = timeout_s, why_full
        self.sync_stream, self.sync_messages = sync_stream, sync_messages
        self.erasing = erasing or contextlib.nullcontext[None]
        self.finishes_erasures = erasing is not None
        self._connect = connect
        self.loop = LoopThread()
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock | None = None
        self._is_closing = False
        self._background: set[asyncio.Task[None]] = set()
        self.pool = ConnectionPool()
        self._closed = Event()

    def acquire(self) -> Transport | None:
        """
        Return the quickest transport that is free now, to be released soon; None when there is no connection.

        Raises:
            ProgrammingError: See `LoopThread.check`.
        """
        shared = self._connection
        endpoint = None if shared is None else shared.endpoint
        if shared is None or endpoint is None:
            return None
        blocking = self.pool.acquire(shared, endpoint)
        if blocking is None:
            self.loop.check()
        return blocking or shared

    def pipeline(self) -> Pipeline:
        """Return a pipeline over the quickest transport; one that sends nothing where there is none."""
        transport = None
        with contextlib.suppress(ProgrammingError):  # who sends by other means is told why there is none
            transport = self.acquire()
        return Pipeline(transport, min(ATTEMPT_S, self.timeout_s))

    def background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task beside the operations; `close` cancels it and waits for its end. On the loop's thread only."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        # The loop itself keeps weak references to its tasks only.
        task.add_done_callback(self._background.discard)
        return task

    def close(self) -> None:
        """End the connection and the loop. Idempotent; operations under way raise, later ones are refused."""
        self._closed.set()
        self.pool.close()
        self.loop.close(self._disconnect)

    def __del__(self) -> None:
        # `ProjectionRunner` never closes the factory of its view, and an open socket must not outlive its loop.
        if not sys.is_finalizing():
            with contextlib.suppress(Exception):
                self.close()

    def deadline(self, budget_s: float | None = None) -> Deadline:
        """A fresh budget for one operation: `timeout_s`, unless another one is given."""
        return Deadline(self.timeout_s if budget_s is None else budget_s, self._closed)

    def connection(self, deadline: Deadline) -> Connection:
        """
        Return the live shared connection, made if there is none. One attempt.

        Raises:
            ProgrammingError: See `LoopThread.check`.
            InterfaceError: The login was refused.
            ConnectionLostError: There is no connection now.
        """
        if self._connection is None or self._connection.is_lost:
            return self.loop.call(self.connected, deadline)
        self.loop.check()
        return self._connection

    async def connected(self, deadline: Deadline) -> Connection:
        """Return what `connection` does, on the loop's thread."""
        if self._connection is not None:
            self._connection.notice()
            if not self._connection.is_lost:
                return self._connection
        if self._is_closing:
            msg = "the connection was closed during the operation; what it was to write may be stored"
            raise OutcomeUnknownError(msg)
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        # One connects for all: after a lost connection, every waiting thread comes here at once.
        async with asyncio.timeout(deadline.left_s), self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._open(deadline)
            return self._connection

    async def _open(self, deadline: Deadline) -> Connection:
        try:
            # It may start a server, which takes seconds on a large store; the loop has other work meanwhile.
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
            # Their consumers are given back while there is a connection.
            await asyncio.wait(self._background)
        if self._connection is not None:
            await self._connection.close()

    def retry(self, operation: Callable[[Transport, float], T], deadline: Deadline, *, doing: str) -> T:
        """
        Repeat an operation that changes nothing, or the same each time, until it succeeds.

        Args:
            operation: Called with a transport and the end of the attempt.
            deadline: The budget of all attempts.
            doing: The operation, for error messages.

        Raises:
            OperationalError: It did not succeed within the budget, or the server refused it.
            InterfaceError: The login was refused.
        """
        transport = self.acquire()
        while True:
            try:
                transport = transport or self.connection(deadline)
                try:
                    return operation(transport, deadline.attempt_ends_at)
                finally:
                    transport.release()
            except ApiError as error:
                # A refusal says what is wrong, and will say it again; only what passes is worth a second try.
                if not error.is_transient:
                    raise translate(error.fault, doing=doing) from error
                reason: Exception = error
            except PersistenceError:
                raise
            except TRANSIENT as error:
                reason = error
            transport = None
            if not deadline.pause():
                msg = f"{doing}: no answer within {self.timeout_s:g} s; the last reason was {reason!r}"
                raise OperationalError(msg) from reason

    def api(self, subject: str, request: Mapping[str, Any] | None, reply: type[T], deadline: Deadline) -> T:
        """
        Return the decoded reply of `$JS.API.<subject>`.

        Raises:
            OperationalError: No answer within the budget, or a refusal, with the server's words.
            InterfaceError: The login was refused.
        """
        payload = b"" if request is None else msgspec.json.encode(request)
        return self.retry(
            lambda transport, ends_at: ask_api(transport, subject, payload, reply, ends_at), deadline, doing=subject
        )
