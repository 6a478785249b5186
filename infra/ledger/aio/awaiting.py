"""From a class that blocks to its twin for asyncio and trio, method by method."""

import asyncio
import functools
import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

_THREADS: Final = 40


async def in_thread(call: Callable[[], T]) -> T:
    """The answer of a call in a worker thread; what it writes is waited for, also when the task is cancelled."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio
        return await anyio.to_thread.run_sync(call)
    work = _Work(loop, call)
    _workers.submit(work)
    return await work.answer()


class _Work(Generic[T]):
    """One call, between a task and a worker: 35 us there and back, where anyio takes 58."""

    __slots__ = ("_answer", "_call", "_context", "_error", "_is_over", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], T]) -> None:
        self._loop, self._call, self._context = loop, call, copy_context()
        self._waiting: asyncio.Future[None] = loop.create_future()
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._is_over = False

    def run(self) -> None:
        """In the worker: call."""
        try:
            self._answer.append(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - it is raised in the task
            self._error = error

    def end(self) -> None:
        """In the worker, afterwards: let the task go on."""
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody waits

    def _settle(self) -> None:
        self._is_over = True
        if not self._waiting.done():  # else it was cancelled, and its task has not noticed yet
            self._waiting.set_result(None)

    async def answer(self) -> T:
        """In the task: what came of it, after the end of the call. A cancellation waits for that too."""
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await self._waiting
            except asyncio.CancelledError as error:
                cancelled = error
            if self._is_over:
                break
            self._waiting = self._loop.create_future()
        failure, self._error = cancelled or self._error, None
        if failure is None:
            return self._answer[0]
        try:
            raise failure
        finally:
            del failure, cancelled  # they refer to this frame


class _Workers:
    """
    The threads, which a forked process has to start anew.

    A call gets the one that was busy last, as what it used is still in the processor's cache: calls that follow each other
    take 0.1 to 0.3 ms longer where all threads have a turn, as in a pool. Each is a pool of one, and so waited for at exit.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with no thread."""
        self._lock = threading.Lock()
        self._idle: list[ThreadPoolExecutor] = []
        self._waiting: deque[_Work[Any]] = deque()
        self._count = 0

    def submit(self, work: _Work[Any]) -> None:
        """Let a thread do it: at once, or when one of them is free."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is None and self._count == _THREADS:
                self._waiting.append(work)
                return
            if worker is None:
                self._count += 1
        try:
            worker = worker or ThreadPoolExecutor(1, thread_name_prefix="chatledger-call")
            worker.submit(self._serve, worker, work)
        except BaseException:  # no thread could be started, or the interpreter is about to end
            with self._lock:
                self._count -= 1
            raise

    def _serve(self, worker: ThreadPoolExecutor, work: _Work[Any]) -> None:
        """In the worker: do it, and then what waits."""
        following: _Work[Any] | None = work
        while following is not None:
            work = following
            work.run()
            with self._lock:
                following = self._waiting.popleft() if self._waiting else None
                if following is None:
                    self._idle.append(worker)  # before the task goes on, as that may call again at once
            work.end()


_workers: Final = _Workers()
os.register_at_fork(after_in_child=_workers.renew)


P = ParamSpec("P")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

_CHUNK: Final = 500


class Runner(Protocol[R_co]):
    """What runs a function of a blocking object in a worker thread."""

    async def run(self, call: Callable[[R_co], T]) -> T:
        """The answer of a function of that object."""
        ...


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Runner[S], P], Coroutine[Any, Any, T]]:
    """The same method, awaited."""

    async def call(self: Runner[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda blocking: method(blocking, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def iterated(
    method: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[Runner[S], P], AsyncGenerator[T]]:
    """The same method, whose iterator is asynchronous."""

    async def iterate(self: Runner[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        iterator = await self.run(lambda blocking: method(blocking, *args, **kwargs))
        while chunk := await self.run(lambda _: list(itertools.islice(iterator, _CHUNK))):
            for one in chunk:
                yield one

    functools.update_wrapper(iterate, method)
    return iterate


class AsyncClosing(ABC):
    """Is closed after an `async with`, also where the task was cancelled."""

    @abstractmethod
    async def close(self) -> None:
        """End it; calling it again does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()
