"""`AsyncLedger`: the same ledger for asyncio and trio, each call in a worker thread."""

import functools
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread

from chatledger.domain.errors import LedgerClosedError
from chatledger.domain.events import Recorded

from .feed import FeedFilter
from .ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 64
_CHUNK_EVENTS: Final = 500
_WAIT_S: Final = 1.0


def _awaited(
    method: Callable[Concatenate[Ledger, P], T],
) -> Callable[Concatenate["AsyncLedger", P], Coroutine[Any, Any, T]]:
    """The same method, awaited."""

    async def call(self: "AsyncLedger", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda ledger: method(ledger, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class AsyncLedger:
    """
    A ledger whose methods are awaited and whose iterators are asynchronous. Made by `chatledger.open_async`.

    It opens on first use, or on entering `async with`. Safe for tasks and threads. A call that is cancelled while it
    writes is waited for, so that its outcome is known.
    """

    def __init__(self, opener: Callable[[], Ledger], location: str) -> None:
        self._opener, self._location = opener, location
        self._opening = threading.Lock()
        self._ledger: Ledger | None = None
        self._is_closed = False
        self._limiter: anyio.CapacityLimiter | None = None

    create_chat = _awaited(Ledger.create_chat)
    upsert_chat = _awaited(Ledger.upsert_chat)
    get_chat = _awaited(Ledger.get_chat)
    update_chat = _awaited(Ledger.update_chat)
    list_chats = _awaited(Ledger.list_chats)
    delete_chat = _awaited(Ledger.delete_chat)

    append = _awaited(Ledger.append)
    add_messages = _awaited(Ledger.add_messages)
    get_message = _awaited(Ledger.get_message)
    get_messages = _awaited(Ledger.get_messages)
    get_chain = _awaited(Ledger.get_chain)
    has_children = _awaited(Ledger.has_children)
    children = _awaited(Ledger.children)
    siblings = _awaited(Ledger.siblings)
    common_ancestor = _awaited(Ledger.common_ancestor)
    diff = _awaited(Ledger.diff)

    create_branch = _awaited(Ledger.create_branch)
    fork = _awaited(Ledger.fork)
    get_branch = _awaited(Ledger.get_branch)
    get_active_branch = _awaited(Ledger.get_active_branch)
    set_active_branch = _awaited(Ledger.set_active_branch)
    move_head = _awaited(Ledger.move_head)
    list_branches = _awaited(Ledger.list_branches)

    set_checkpoint = _awaited(Ledger.set_checkpoint)
    get_checkpoint = _awaited(Ledger.get_checkpoint)
    list_checkpoints = _awaited(Ledger.list_checkpoints)
    delete_checkpoint = _awaited(Ledger.delete_checkpoint)

    save = _awaited(Ledger.save)
    preview_save = _awaited(Ledger.preview_save)

    search = _awaited(Ledger.search)

    import_chat = _awaited(Ledger.import_chat)
    export_chat = _awaited(Ledger.export_chat)
    graph = _awaited(Ledger.graph)
    get_position = _awaited(Ledger.get_position)
    owner_of = _awaited(Ledger.owner_of)
    sync = _awaited(Ledger.sync)
    rebuild = _awaited(Ledger.rebuild)

    context = staticmethod(Ledger.context)

    async def history(
        self, chat_id: str | None = None, *, after: int = 0, until: int | datetime | None = None
    ) -> AsyncGenerator[Recorded]:
        """What happened, event by event; see `Ledger.history`."""
        iterator = await self.run(lambda ledger: ledger.history(chat_id, after=after, until=until))
        async for recorded in self._iterate(iterator):
            yield recorded

    async def feed(
        self,
        after: int | None = None,
        *,
        chat_id: str | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[Recorded]:
        """Changes in order and without holes, as they happen; see `Ledger.feed`. Ends when the ledger is closed."""
        keep = await self.run(
            lambda ledger: FeedFilter(ledger.owner_of, chat_id=chat_id, user_id=user_id, topics=topics)
        )
        position = await self.run(lambda ledger: ledger.last_position() if after is None else after)
        try:
            while True:
                end = await self.run(Ledger.last_position)
                found = await self.run(functools.partial(Ledger.feed, after=position, follow=False))
                async for recorded in self._iterate(filter(keep, found)):
                    yield recorded
                    position = recorded.position
                position = max(position, end)
                if not follow:
                    return
                await self._wait(position)
        except LedgerClosedError:
            if not self._is_closed:
                raise

    async def _iterate(self, iterator: Iterator[Recorded]) -> AsyncGenerator[Recorded]:
        def take(_: Ledger) -> list[Recorded]:
            return list(itertools.islice(iterator, _CHUNK_EVENTS))

        while chunk := await self.run(take):
            for recorded in chunk:
                yield recorded

    async def _wait(self, position: int) -> None:
        """Wait for more on the log; a cancelled task does not wait for this thread."""

        def wait(ledger: Ledger) -> bool:
            return ledger.wait(position, timeout_s=_WAIT_S)

        while not await self.run(wait, abandon_on_cancel=True):
            pass

    async def run(self, call: Callable[[Ledger], T], *, abandon_on_cancel: bool = False) -> T:
        """
        The answer of a function of the ledger that runs in a worker thread: several calls for the price of one hop.

        Example:
            chat, branches = await ledger.run(lambda l: (l.get_chat("trip"), l.list_branches("trip")))
        """
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(
            lambda: call(self._open()), abandon_on_cancel=abandon_on_cancel, limiter=self._limiter
        )

    def _open(self) -> Ledger:
        with self._opening:
            if self._is_closed:
                msg = "the ledger is closed; open it again"
                raise LedgerClosedError(msg)
            if self._ledger is None:
                self._ledger = self._opener()
            return self._ledger

    async def close(self) -> None:
        """Close the ledger; calling it again does nothing. What was written stays."""
        with self._opening:
            self._is_closed = True
            ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await anyio.to_thread.run_sync(ledger.close)

    async def __aenter__(self) -> Self:
        await self.run(repr)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    def __repr__(self) -> str:
        return f"<AsyncLedger {self._location}{' (closed)' if self._is_closed else ''}>"
