"""`AsyncLedgerView`: a ledger as it stood at an earlier moment, for asyncio and trio."""

import functools
import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

import anyio
import anyio.to_thread

from .ledger import Ledger
from .ledger.view import LedgerView

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK_EVENTS: Final = 500


class Runner(Protocol):
    """What runs a function of a ledger in a worker thread."""

    async def run(self, call: Callable[[Ledger], T]) -> T:
        """The answer of a function of the ledger."""
        ...


def _awaited(
    method: Callable[Concatenate[LedgerView, P], T],
) -> Callable[Concatenate["AsyncLedgerView", P], Coroutine[Any, Any, T]]:
    """The same method, awaited."""

    async def call(self: "AsyncLedgerView", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda view: method(view, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _iterated(
    method: Callable[Concatenate[LedgerView, P], Iterator[T]],
) -> Callable[Concatenate["AsyncLedgerView", P], AsyncGenerator[T]]:
    """The same method, whose iterator is asynchronous."""

    async def iterate(self: "AsyncLedgerView", /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        iterator = await self.run(lambda view: method(view, *args, **kwargs))
        while chunk := await self.run(lambda _: list(itertools.islice(iterator, _CHUNK_EVENTS))):
            for one in chunk:
                yield one

    functools.update_wrapper(iterate, method)
    return iterate


class AsyncLedgerView:
    """
    A `LedgerView` whose methods are awaited. Made by `AsyncLedger.as_of`; use it with `async with`, or close it.

    Example:
        async with await ledger.as_of(120) as view:
            chat = await view.get_chat("trip")
    """

    def __init__(self, ledger: Runner, view: LedgerView) -> None:
        self._ledger, self._view = ledger, view

    get_chat = _awaited(LedgerView.get_chat)
    list_chats = _awaited(LedgerView.list_chats)

    get_message = _awaited(LedgerView.get_message)
    get_messages = _awaited(LedgerView.get_messages)
    get_chain = _awaited(LedgerView.get_chain)
    has_children = _awaited(LedgerView.has_children)
    children = _awaited(LedgerView.children)
    siblings = _awaited(LedgerView.siblings)
    common_ancestor = _awaited(LedgerView.common_ancestor)
    diff = _awaited(LedgerView.diff)

    get_branch = _awaited(LedgerView.get_branch)
    get_active_branch = _awaited(LedgerView.get_active_branch)
    list_branches = _awaited(LedgerView.list_branches)

    get_checkpoint = _awaited(LedgerView.get_checkpoint)
    list_checkpoints = _awaited(LedgerView.list_checkpoints)

    get_annotations = _awaited(LedgerView.get_annotations)
    get_run = _awaited(LedgerView.get_run)
    runs = _awaited(LedgerView.runs)
    get_context = _awaited(LedgerView.get_context)
    plan_regeneration = _awaited(LedgerView.plan_regeneration)
    get_regeneration = _awaited(LedgerView.get_regeneration)
    regenerations = _awaited(LedgerView.regenerations)
    forks = _awaited(LedgerView.forks)

    search = _awaited(LedgerView.search)

    export_chat = _awaited(LedgerView.export_chat)
    graph = _awaited(LedgerView.graph)
    owner_of = _awaited(LedgerView.owner_of)
    get_position = _awaited(LedgerView.get_position)

    history = _iterated(LedgerView.history)

    async def run(self, call: Callable[[LedgerView], T]) -> T:
        """The answer of a function of the view that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(lambda _: call(self._view))

    async def close(self) -> None:
        """Close the view; calling it again does nothing. The ledger stays open."""
        await anyio.to_thread.run_sync(self._view.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._view)[1:]}"
