"""An event loop in a thread of its own, for blocking callers."""

import contextlib
import os
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from threading import Condition, Thread, get_ident
from typing import TypeVar, TypeVarTuple

from anyio.from_thread import BlockingPortal, start_blocking_portal
from eventsourcing.persistence import ProgrammingError

from .errors import CLOSED, FORKED, OutcomeUnknownError

T = TypeVar("T")
Args = TypeVarTuple("Args")


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
            raise ProgrammingError(CLOSED)
        if self._pid not in {None, os.getpid()}:
            raise ProgrammingError(FORKED)
        if self._thread_id == get_ident():
            msg = "a blocking call on the event loop's own thread would never return"
            raise ProgrammingError(msg)

    @contextlib.contextmanager
    def _entered(self) -> Generator[BlockingPortal]:
        """The running loop, which does not end within; what is handed to a loop that ends is never answered."""
        with self._changed:
            if self._is_closed:
                raise ProgrammingError(CLOSED)
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
