"""From a class that blocks to its twin for asyncio and trio, method by method."""

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

import anyio

P = ParamSpec("P")
T = TypeVar("T")
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
