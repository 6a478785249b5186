"""From a class that blocks to its twin for asyncio and trio, method by method."""

import asyncio
import contextlib
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

try:
    from sniffio import current_async_library_cvar as _library
except ImportError:  # it comes with Trio
    _library = None  # type: ignore[assignment]

T = TypeVar("T")

_THREADS: Final = 64
_threads: Final = RunVar[tuple[asyncio.Semaphore, ThreadPoolExecutor]]("chatledger_threads")
"""The threads that run the calls of an event loop of asyncio, and how many are free. They end when the loop is forgotten."""


async def in_thread(call: Callable[[], T]) -> T:
    """Return the answer of a call in a worker thread. A cancelled task also waits for the end of a call that has begun."""
    try:
        # Trio may run as a guest of asyncio's loop: then there is a loop, and no task of it.
        is_on_trio = asyncio.current_task() is None
    except RuntimeError:
        is_on_trio = True
    if is_on_trio:
        return await anyio.to_thread.run_sync(call)
    # AnyIO's way to a thread takes the loop three rounds more, which is most of the time of reading a few messages.
    await checkpoint_if_cancelled()
    threads = _threads.get(None)
    if threads is None:
        threads = asyncio.Semaphore(_THREADS), ThreadPoolExecutor(_THREADS, "chatledger")
        _threads.set(threads)
    free, pool = threads
    async with (
        free
    ):  # tasks wait for a thread here, and not in the queue of the pool, where they could not be cancelled
        future = pool.submit(copy_context().run, _answer, call)
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # AnyIO's shield does not hold off `Task.cancel` of asyncio
            end = asyncio.wrap_future(future)
            await ended(end)
            end.exception()  # or asyncio reports that nobody asked for it
            raise
        return future.result()


def _answer(call: Callable[[], T]) -> T:
    if _library is not None:
        _library.set(None)  # or AnyIO takes this thread for that of the loop, and refuses to run another in it
    try:
        return call()
    except StopIteration as error:  # which a future does not take
        msg = "a call in a worker thread raised StopIteration"
        raise RuntimeError(msg) from error


async def ended(waiting: "asyncio.Future[Any]") -> None:
    """Wait until a future is done, however often the task is cancelled meanwhile."""
    with anyio.CancelScope(shield=True):
        while not waiting.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([waiting])


P = ParamSpec("P")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

_CHUNK: Final = 500


class Runner(Protocol[R_co]):
    """Runs a function of a blocking object in a worker thread."""

    async def run(self, call: Callable[[R_co], T]) -> T:
        """The answer of a function of that object."""
        ...


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Runner[S], P], Coroutine[Any, Any, T]]:
    async def call(self: Runner[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda blocking: method(blocking, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def threaded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the asynchronous version of a method that may be called from any thread: the same in a worker thread."""
    name = method.__name__

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await in_thread(lambda: getattr(self, name)(*args, **kwargs))
        return answer

    functools.update_wrapper(call, method)
    call.__name__, call.__qualname__ = f"a{name}", method.__qualname__.replace(name, f"a{name}")
    call.__doc__ = f"Asynchronous version of `{name}`."
    return call


def iterated(
    method: Callable[Concatenate[S, P], Iterator[T]], *, chunk: int = _CHUNK
) -> Callable[Concatenate[Runner[S], P], AsyncGenerator[T]]:
    """Return a version of a method whose iterator is asynchronous, and takes `chunk` elements for each hop to a thread."""

    async def iterate(self: Runner[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        iterator = await self.run(lambda blocking: method(blocking, *args, **kwargs))
        while taken := await self.run(lambda _: list(itertools.islice(iterator, chunk))):
            for element in taken:
                yield element

    functools.update_wrapper(iterate, method)
    return iterate


class DeferredAnswer(Generic[T]):
    """An answer that is asked for when it is awaited, and not before."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, Any, T]:
        return self._ask().__await__()


class AsyncClosing(ABC):
    """The base of what `async with` closes, also where the task was cancelled."""

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


C = TypeVar("C", bound=AsyncClosing)


class Opening(DeferredAnswer[C]):
    """A thing that is opened when this is awaited, or by `async with`, which closes it."""

    _opened: C

    async def __aenter__(self) -> C:
        self._opened = await self
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)
