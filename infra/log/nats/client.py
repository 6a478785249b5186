"""
The shared client of a process: a connection that is made anew whenever it is lost.

The event loop and nats-py are imported when they are needed first. That is at once for a server elsewhere; for an embedded one, whose
blocking connections do without, it is when two threads ask at the same time, or the server went away.
"""

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from eventsourcing.persistence import OperationalError, PersistenceError, ProgrammingError

from chatledger.domain.errors import LogUnavailableError

from .blocking_connection import BlockingConnection, ConnectionPool
from .endpoint import Endpoint
from .errors import CLOSED, FORKED, ApiError, ConnectionLostError, NoAnswerError, OutcomeUnknownError, translate
from .transport import TRANSIENT, Pipeline, Transport, ask_api

if TYPE_CHECKING:
    import asyncio

    from .connection import Connection
    from .loop_thread import LoopThread

T = TypeVar("T")
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
        erasable: Returns how many messages of a stream there is room to erase at the same time, at most so many.
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
        erasable: Callable[[str, int], int] = lambda _stream, most: most,
        sync_stream: Callable[[str], object] = lambda name: None,
        sync_messages: Callable[[str], object] = lambda name: None,
    ) -> None:
        self.timeout_s, self.why_full, self.erasable = timeout_s, why_full, erasable
        self.sync_stream, self.sync_messages = sync_stream, sync_messages
        self.erasing = erasing or contextlib.nullcontext[None]
        self.finishes_erasures = erasing is not None
        self._connect = connect
        self._guard, self._looking = Lock(), Lock()
        self._loop: LoopThread | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock | None = None
        self._is_closing = self._is_looked_up = False
        self._embedded: Endpoint | None = None
        self._pid: int | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.pool = ConnectionPool()
        self._closed = Event()

    @property
    def loop(self) -> "LoopThread":
        """The thread of the event loop, which its first call starts."""
        with self._guard:
            if self._loop is None:
                if self._closed.is_set():
                    raise ProgrammingError(CLOSED)
                from .loop_thread import LoopThread

                self._loop = LoopThread()
            return self._loop

    def check(self) -> None:
        """
        Refuse a thread that cannot wait for an answer.

        Raises:
            ProgrammingError: The client was closed, or see `LoopThread.check`.
        """
        if self._closed.is_set():
            raise ProgrammingError(CLOSED)
        if self._pid not in {None, os.getpid()}:
            raise ProgrammingError(FORKED)
        if self._loop is not None:
            self._loop.check()

    @property
    def embedded(self) -> Endpoint | None:
        """The endpoint for blocking connections to an embedded server; None where there are none. The first look may start the server."""
        shared = self._connection
        if shared is not None:
            return shared.endpoint
        with self._looking:
            if not self._is_looked_up and not self._closed.is_set():
                self._pid = os.getpid()
                try:
                    endpoint = self._connect()
                except TRANSIENT:  # the event loop's connection tries again, and says what is wrong
                    return None
                self._is_looked_up = True
                self._embedded = endpoint if BlockingConnection.is_possible(endpoint) else None
            return self._embedded

    def acquire(self) -> Transport | None:
        """
        Return the quickest transport that is free now, to be released soon; None when there is no connection.

        Raises:
            ProgrammingError: See `check`.
        """
        endpoint = self.embedded
        if endpoint is None:
            return None
        blocking = self.pool.acquire(endpoint)
        if blocking is None:
            self.check()
        return blocking or self._connection

    def pipeline(self) -> Pipeline:
        """Return a pipeline over the quickest transport; one that sends nothing where there is none."""
        transport = None
        with contextlib.suppress(ProgrammingError):  # who sends by other means is told why there is none
            transport = self.acquire()
        return Pipeline(transport, min(ATTEMPT_S, self.timeout_s))

    def max_payload(self) -> int:
        """Return the largest message in bytes, headers included. Raises what `retry` does."""
        return self.retry(lambda transport, _: transport.max_payload, self.deadline(), doing="connecting")

    def background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task beside the operations; `close` cancels it and waits for its end. On the loop's thread only."""
        import asyncio

        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        # The loop itself keeps weak references to its tasks only.
        task.add_done_callback(self._background.discard)
        return task

    def close(self) -> None:
        """End the connection and the loop. Idempotent; operations under way raise, later ones are refused."""
        self._closed.set()
        self.pool.close()
        with self._guard:  # a loop that is about to be made is not made any more
            loop = self._loop
        if loop is not None:
            loop.close(self._disconnect)

    def __del__(self) -> None:
        # `ProjectionRunner` never closes the factory of its view, and an open socket must not outlive its loop.
        if not sys.is_finalizing():
            with contextlib.suppress(Exception):
                self.close()

    def deadline(self, budget_s: float | None = None) -> Deadline:
        """A fresh budget for one operation: `timeout_s`, unless another one is given."""
        return Deadline(self.timeout_s if budget_s is None else budget_s, self._closed)

    def connection(self, deadline: Deadline) -> "Connection":
        """
        Return the live shared connection, made if there is none. One attempt.

        Raises:
            ProgrammingError: See `LoopThread.check`.
            InterfaceError: The login was refused.
            ConnectionLostError: There is no connection now.
        """
        self.check()
        if self._connection is None or self._connection.is_lost:
            return self.loop.call(self.connected, deadline)
        return self._connection

    async def connected(self, deadline: Deadline) -> "Connection":
        """Return what `connection` does, on the loop's thread."""
        import asyncio

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
                if self._is_closing:  # `close` came meanwhile, and found none
                    await self._connection.close()
            return self._connection

    async def _open(self, deadline: Deadline) -> "Connection":
        import anyio.to_thread

        from .connection import Connection

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
            import asyncio

            # Their consumers are given back while there is a connection.
            await asyncio.wait(self._background)
        if self._connection is not None:
            await self._connection.close()

    def retry(self, operation: Callable[[Transport, float], T], deadline: Deadline, *, doing: str) -> T:
        """
        Repeat an operation that changes nothing, or the same each time, until it succeeds.

        `operation`: called with a transport and the end of the attempt. `deadline`: the budget of all attempts.

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
                msg = f"{doing}: no answer within {self.timeout_s:g} s; last of all: {str(reason) or type(reason).__name__}"
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


_PORT: Final = 4222
PATIENCE_S: Final = 2.0


def require_jetstream(connect: Callable[[], Endpoint], stream: str, *, timeout_s: float = PATIENCE_S) -> None:
    """
    Return as soon as one of the servers greets, and its JetStream says anything of a stream, also that there is none.

    `timeout_s`: how long to wait for both together; a server that greets late gets half of it more.

    Raises:
        LogUnavailableError: No server greets, or JetStream does not answer. Refusals are left to whoever opens the log.
    """
    # Imported at first use, nats-py would take a second of the two on a busy machine, and a sound server would be called silent.
    from . import connection, loop_thread  # noqa: F401 # pyright: ignore[reportUnusedImport]

    ends_at = time.monotonic() + timeout_s
    endpoint = connect()
    require_answer(endpoint, timeout_s=timeout_s)
    # A server may greet, and have no JetStream, or one that is frozen: both would look like a slow log.
    client = JetStreamClient(connect, timeout_s=max(timeout_s / 2, ends_at - time.monotonic()))
    try:
        client.api(f"STREAM.INFO.{stream}", None, dict[str, Any], client.deadline())
    except OperationalError as error:
        # JetStream has answered, if only that there is no such stream.
        if error.__cause__ is None or isinstance(error.__cause__, ApiError):
            return
        server = ", ".join(url.partition("://")[2] for url in endpoint.urls)
        if isinstance(error.__cause__, NoAnswerError):
            msg = f"the NATS server at {server} has no JetStream, which keeps the log: start it with --jetstream"
        else:
            msg = f"the NATS server at {server} greets, but its JetStream does not answer. Try again, and look at the server's log"
        raise LogUnavailableError(msg) from error
    except PersistenceError:
        return
    finally:
        client.close()


def require_answer(endpoint: Endpoint, *, timeout_s: float = PATIENCE_S) -> None:
    """
    Return as soon as one of the servers greets as NATS servers do. Nothing is sent, and nobody logs in.

    `timeout_s`: how long to wait for all of them together.

    Raises:
        LogUnavailableError: None does. It says of each why, as far as that is known.
    """
    ends_at = time.monotonic() + timeout_s
    faults = dict.fromkeys(endpoint.urls, f"no answer within {timeout_s:g} s")
    answers: SimpleQueue[tuple[str, str | None]] = SimpleQueue()

    def look(url: str) -> None:
        answers.put((url, _fault(url, ends_at, is_silent=endpoint.tls_first)))

    for url in endpoint.urls:
        # Looking up a name has no timeout of its own, so each server has a thread, for which nobody waits in the end.
        Thread(target=look, args=(url,), daemon=True).start()
    for _ in endpoint.urls:
        try:
            url, fault = answers.get(timeout=max(ends_at - time.monotonic(), 0.001) + 0.1)
        except Empty:
            break
        if fault is None:
            return
        faults[url] = fault
    what = "; ".join(f"{url.partition('://')[2]}: {fault}" for url, fault in faults.items())
    msg = f"no NATS server answers at {what}. Start it, or correct the location"
    raise LogUnavailableError(msg)


def _fault(url: str, ends_at: float, *, is_silent: bool) -> str | None:
    """Why a server cannot be used; None when it greets, or is to be silent until TLS is set up."""
    parts = urlsplit(url)
    is_taken = False
    try:
        with socket.create_connection((parts.hostname, parts.port or _PORT), timeout=_left(ends_at)) as connection:
            if is_silent:
                return None
            is_taken = True
            connection.settimeout(_left(ends_at))
            return None if connection.recv(1) == b"I" else "what listens there is no NATS server"
    except TimeoutError:
        return "it takes the connection, and then says nothing" if is_taken else "no answer in time"
    except ConnectionRefusedError:
        return "nobody listens there"
    except socket.gaierror:
        return "the name of the host is not known"
    except OSError as error:
        return error.strerror or str(error)


def _left(ends_at: float) -> float:
    return max(ends_at - time.monotonic(), 0.001)
