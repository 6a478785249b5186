"""`AsyncLedger`: the same ledger for asyncio and trio, each call in a worker thread."""

import functools
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread

from chatledger.domain.errors import AccessDeniedError, LedgerClosedError
from chatledger.domain.events import Recorded
from chatledger.domain.rules import check_id
from chatledger.projections.custom.rows import ProjectionView

from .async_view import AsyncLedgerView
from .feed import AsyncFeed, Cursor
from .ledger import Ledger
from .ledger.projections import begin_view

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 64
_CHUNK_EVENTS: Final = 500


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
    sweep = _awaited(Ledger.sweep)
    due_chats = _awaited(Ledger.due_chats)

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

    annotate = _awaited(Ledger.annotate)
    get_annotations = _awaited(Ledger.get_annotations)

    record_run = _awaited(Ledger.record_run)
    start_run = _awaited(Ledger.start_run)
    complete_run = _awaited(Ledger.complete_run)
    fail_run = _awaited(Ledger.fail_run)
    get_run = _awaited(Ledger.get_run)
    runs = _awaited(Ledger.runs)
    get_context = _awaited(Ledger.get_context)

    plan_regeneration = _awaited(Ledger.plan_regeneration)
    mark_stale = _awaited(Ledger.mark_stale)
    begin_regeneration = _awaited(Ledger.begin_regeneration)
    approve_regeneration = _awaited(Ledger.approve_regeneration)
    repeat_run = _awaited(Ledger.repeat_run)
    get_regeneration = _awaited(Ledger.get_regeneration)
    regenerations = _awaited(Ledger.regenerations)

    fork_chat = _awaited(Ledger.fork_chat)
    forks = _awaited(Ledger.forks)

    save = _awaited(Ledger.save)
    preview_save = _awaited(Ledger.preview_save)

    search = _awaited(Ledger.search)

    import_chat = _awaited(Ledger.import_chat)
    export_chat = _awaited(Ledger.export_chat)
    graph = _awaited(Ledger.graph)
    get_position = _awaited(Ledger.get_position)
    feeds = _awaited(Ledger.feeds)
    forget_feed = _awaited(Ledger.forget_feed)
    owner_of = _awaited(Ledger.owner_of)
    sync = _awaited(Ledger.sync)
    rebuild = _awaited(Ledger.rebuild)
    projections = _awaited(Ledger.projections)
    drop_projection = _awaited(Ledger.drop_projection)
    verify = _awaited(Ledger.verify)
    anchor = _awaited(Ledger.anchor)
    backup = _awaited(Ledger.backup)

    context = staticmethod(Ledger.context)

    def for_user(self, user_id: str) -> "AsyncLedger":
        """This ledger, limited to what one user owns; see `Ledger.for_user`. Not awaited, for nothing is read."""
        return OwnedAsyncLedger(self, check_id(user_id, "user_id", empty=True))

    async def history(
        self,
        chat_id: str | None = None,
        *,
        after: int = 0,
        until: int | datetime | None = None,
        since: datetime | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        actor: str | None = None,
    ) -> AsyncGenerator[Recorded]:
        """What happened, event by event; see `Ledger.history`."""
        iterator = await self.run(
            lambda ledger: ledger.history(
                chat_id, after=after, until=until, since=since, user_id=user_id, topics=topics, actor=actor
            )
        )
        async for recorded in self._iterate(iterator):
            yield recorded

    def feed(
        self,
        after: int | None = None,
        *,
        name: str | None = None,
        share: tuple[int, int] | None = None,
        chat_id: str | None = None,
        user_id: str | None = None,
        topics: Collection[str] | None = None,
        follow: bool = True,
        auto_ack: bool = True,
    ) -> AsyncFeed:
        """Changes in order and without holes, as they happen; see `Ledger.feed`. Ends when the ledger is closed."""

        def begin(ledger: Ledger) -> Cursor:
            return ledger.feed(
                after,
                name=name,
                share=share,
                chat_id=chat_id,
                user_id=user_id,
                topics=topics,
                follow=follow,
                auto_ack=auto_ack,
            ).cursor

        return AsyncFeed(self.run, begin, is_following=follow)

    async def _iterate(self, iterator: Iterator[Recorded]) -> AsyncGenerator[Recorded]:
        def take(_: Ledger) -> list[Recorded]:
            return list(itertools.islice(iterator, _CHUNK_EVENTS))

        while chunk := await self.run(take):
            for recorded in chunk:
                yield recorded

    async def as_of(self, moment: int | datetime) -> AsyncLedgerView:
        """A read-only view of the ledger as it stood at an earlier moment; see `Ledger.as_of`."""
        return AsyncLedgerView(self, await self.run(lambda ledger: ledger.as_of(moment)))

    @asynccontextmanager
    async def projection(self, name: str) -> AsyncGenerator[ProjectionView]:
        """
        The rows of a projection, see `Ledger.projection`; use it with `async with`.

        Inside, they are read without `await`, as they lie in memory that is mapped. To go through very many, use `run`.
        """
        view, end, inside = await self.run(lambda ledger: begin_view(ledger, name))
        try:
            with inside():
                yield view
        finally:
            end()

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


class OwnedAsyncLedger(AsyncLedger):
    """An `AsyncLedger` that is limited to what one user owns, in the threads of the whole one."""

    def __init__(self, whole: AsyncLedger, user_id: str) -> None:
        super().__init__(lambda: whole._open().for_user(user_id), whole._location)  # noqa: SLF001 - it opens with it
        self._whole, self._user_id = whole, user_id

    def for_user(self, user_id: str) -> AsyncLedger:
        """The same for the same user; refused for another one."""
        if check_id(user_id, "user_id", empty=True) != self._user_id:
            msg = "this ledger is limited to another user; use the ledger that it was made from"
            raise AccessDeniedError(msg)
        return OwnedAsyncLedger(self._whole, user_id)

    async def run(self, call: Callable[[Ledger], T], *, abandon_on_cancel: bool = False) -> T:
        """The answer of a function of the ledger, limited to the user's, that runs in a worker thread."""
        return await self._whole.run(lambda _: call(self._open()), abandon_on_cancel=abandon_on_cancel)
