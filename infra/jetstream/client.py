"""The shared client of a process: one event loop, one connection that is made anew whenever it is lost."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar, TypeVarTuple

import anyio.to_thread
import msgspec
from eventsourcing.persistence import OperationalError, PersistenceError

from .connection import Connection
from .endpoint import Endpoint
from .errors import TRANSIENT, ApiError, ApiFault, ConnectionLostError, OutcomeUnknownError, translate
from .line import Line, LineHolder
from .loop import LoopThread

log = logging.getLogger("chatledger.jetstream")

T = TypeVar("T")
Args = TypeVarTuple("Args")

# A request that the server swallowed (an election, a stalled disk) is repeated after this long.
ATTEMPT_S = 3.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class _Reply(msgspec.Struct):
    error: ApiFault | None = None


_reply_decoder = msgspec.json.Decoder(_Reply)


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
        """How long one attempt may take."""
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
            one starts; see `embedded.erasures`.
        why_full: Why the server can store nothing now, None while it can, as far as that can be known from here: it answers
            no append when its disk is full.
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
        self._lines = LineHolder()

    def borrow_line(self) -> Line | None:
        """A line for this thread alone, if there is one to be had at once; `give_back_line` must follow."""
        connection = self._connection
        endpoint = None if connection is None else connection.endpoint
        return None if endpoint is None else self._lines.borrow(connection, endpoint)

    def give_back_line(self, *, is_sound: bool = True) -> None:
        """End the loan of the line; see `LineHolder.give_back`."""
        self._lines.give_back(is_sound=is_sound)

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
        self._lines.close()
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
