"""`AsyncLedger`: the same ledger for asyncio and trio, each call in a worker thread."""

import asyncio
import inspect
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial, update_wrapper
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.live import KEEP_S, LiveStream
from chatledger.domain.chat.members import User, check_roles
from chatledger.domain.errors import AccessDeniedError, InvalidValueError, LedgerClosedError
from chatledger.domain.limits import check_id
from chatledger.domain.moments import Moment
from chatledger.domain.values import MemberRole, Message
from chatledger.projections.custom.rows import ProjectionView

from ...store.commands import RETRY_S
from ..drafts import Messages
from ..feed import AsyncFeed, Cursor
from ..ledger import Ledger
from ..live import LiveAnswer
from ..log import begin_view
from ..messages import Appending, OnExisting, begin_append
from ..port import store_of
from ..view import LedgerMethods, LedgerView, methods_then
from .awaiting import AsyncClosing, DeferredAnswer, Opening, Runner, awaited, ended, in_thread, iterated
from .live import AsyncLiveAnswer, AsyncLiveReader


class Waiting:
    """
    The tasks of one event loop that wait for appends of another thread.

    Waking a loop from a thread takes some 65 µs, so those whose appends ended together are woken together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._ended: list[asyncio.Future[None]] = []

    def end(self, future: "asyncio.Future[None]") -> None:
        """Wake the task that awaits this future, soon; from any thread."""
        with self._lock:
            self._ended.append(future)
            is_first = len(self._ended) == 1
        if is_first:
            try:
                self.loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop was closed: nobody waits
                self._ended.clear()

    def _wake(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for future in ended:
            if not future.done():
                future.set_result(None)


async def append(
    self: "AsyncLedger",
    chat_id: str,
    messages: Messages,
    *,
    form: str | None = None,
    branch: str | None = None,
    expected_head: str | UnsetType | None = UNSET,
    on_existing: OnExisting = "raise",
    chat_metadata: dict[str, Any] | None = None,
) -> list[Message]:
    """Append messages; see `Ledger.append`."""

    def append_now(ledger: Ledger) -> list[Message]:
        return ledger.append(
            chat_id,
            messages,
            form=form,
            branch=branch,
            expected_head=expected_head,
            on_existing=on_existing,
            chat_metadata=chat_metadata,
        )

    waiting = self.waiting()
    ledger = self.opened
    if waiting is None or ledger is None:
        return await self.run(append_now)
    check_id(chat_id, "chat_id")
    appending = Appending.of(
        messages,
        form=form,
        branch=branch,
        expected_head=expected_head,
        on_existing=on_existing,
        chat_metadata=chat_metadata,
        redactor=store_of(ledger).redactor,
    )
    messages = appending.drafts  # with the ids that they have now: repeated below, they must not get others
    future: asyncio.Future[None] = waiting.loop.create_future()
    end = begin_append(ledger, chat_id, appending, on_end=partial(waiting.end, future))
    with anyio.CancelScope(shield=True):  # a cancelled task learns the outcome too: its message may be on the log
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:  # by `Task.cancel`, which no scope holds off
            await ended(future)
            raise
    stored = end()
    return await self.run(append_now) if stored is None else stored


update_wrapper(append, Ledger.append)


P = ParamSpec("P")
T = TypeVar("T")


def read(
    method: Callable[Concatenate[LedgerMethods, P], T],
) -> Callable[Concatenate["AwaitedReads", P], Coroutine[Any, Any, T]]:
    """Return an awaitable version of a method that only reads chats."""

    async def call(self: "AwaitedReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read_by(  # pyright: ignore[reportPrivateUsage]  # a method of that class
            lambda ledger: method(ledger, *args, **kwargs)
        )

    update_wrapper(call, method)
    return call


class AwaitedReads(AsyncClosing):
    """The reads that an `AsyncLedger` and its views of earlier moments have alike, awaited; `LedgerView` has the same ones."""

    @abstractmethod
    def _read_by(self, call: Callable[[LedgerMethods], T]) -> Awaitable[T]:
        """The answer of a function of the ledger, or of what stands for it at that moment, in a worker thread."""

    get_chat = read(LedgerMethods.get_chat)
    list_chats = read(LedgerMethods.list_chats)
    count_chats = read(LedgerMethods.count_chats)

    get_message = read(LedgerMethods.get_message)
    get_messages = read(LedgerMethods.get_messages)
    get_chain = read(LedgerMethods.get_chain)
    compare = read(LedgerMethods.compare)
    bisect = read(LedgerMethods.bisect)
    has_children = read(LedgerMethods.has_children)
    children = read(LedgerMethods.children)
    siblings = read(LedgerMethods.siblings)
    common_ancestor = read(LedgerMethods.common_ancestor)
    merge_base = read(LedgerMethods.merge_base)
    diff = read(LedgerMethods.diff)

    get_branch = read(LedgerMethods.get_branch)
    get_active_branch = read(LedgerMethods.get_active_branch)
    list_branches = read(LedgerMethods.list_branches)

    get_page = read(LedgerMethods.get_page)
    versions = read(LedgerMethods.versions)
    branches_of = read(LedgerMethods.branches_of)

    get_checkpoint = read(LedgerMethods.get_checkpoint)
    list_checkpoints = read(LedgerMethods.list_checkpoints)

    members = read(LedgerMethods.members)

    get_annotations = read(LedgerMethods.get_annotations)
    get_run = read(LedgerMethods.get_run)
    runs = read(LedgerMethods.runs)
    get_context = read(LedgerMethods.get_context)
    plan_regeneration = read(LedgerMethods.plan_regeneration)
    get_regeneration = read(LedgerMethods.get_regeneration)
    regenerations = read(LedgerMethods.regenerations)
    forks = read(LedgerMethods.forks)

    search = read(LedgerMethods.search)
    count_hits = read(LedgerMethods.count_hits)

    get_rows = read(LedgerMethods.get_rows)
    list_bundled_lines = read(LedgerMethods.list_bundled_lines)
    list_branch_points = read(LedgerMethods.list_branch_points)
    get_row_numbers = read(LedgerMethods.get_row_numbers)
    get_row_strip = read(LedgerMethods.get_row_strip)
    get_row_line = read(LedgerMethods.get_row_line)

    export_chat = read(LedgerMethods.export_chat)
    graph = read(LedgerMethods.graph)
    owner_of = read(LedgerMethods.owner_of)


class AsyncLedgerView(AwaitedReads):
    """
    A `LedgerView` whose methods are awaited. Made by `AsyncLedger.as_of`; use it with `async with`, or close it.

    Example:
        async with ledger.as_of(120) as view:
            chat = await view.get_chat("trip")
    """

    def __init__(self, ledger: Runner[Ledger], view: LedgerView) -> None:
        self._ledger, self._view = ledger, view

    get_position = awaited(LedgerView.get_position)
    history = iterated(LedgerView.history)

    async def __aenter__(self) -> Self:
        self._view.__enter__()
        return self

    @property
    def position(self) -> DeferredAnswer[int]:
        """The position of the last event up to then: `await view.position`."""
        return DeferredAnswer(self.get_position)

    def _read_by(self, call: Callable[[LedgerMethods], T]) -> Awaitable[T]:
        return self._ledger.run(lambda _: call(methods_then(self._view)))

    async def run(self, call: Callable[[LedgerView], T]) -> T:
        """The answer of a function of the view that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(lambda _: call(self._view))

    async def close(self) -> None:
        """Close the view; calling it again does nothing. The ledger stays open."""
        await anyio.to_thread.run_sync(self._view.close)

    def __repr__(self) -> str:
        return f"<Async{repr(self._view)[1:]}"


_ASYNCHRONOUS: Final = (
    "run takes an ordinary function, which gets the blocking Ledger in a worker thread; "
    "in an asynchronous one await the methods of this ledger instead"
)


class AsyncLedger(AwaitedReads):
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
        self._waiting: Waiting | None = None

    create_chat = awaited(Ledger.create_chat)
    upsert_chat = awaited(Ledger.upsert_chat)
    update_chat = awaited(Ledger.update_chat)
    delete_chat = awaited(Ledger.delete_chat)
    sweep = awaited(Ledger.sweep)
    due_chats = awaited(Ledger.due_chats)
    erasures = awaited(Ledger.erasures)
    wait_erased = awaited(Ledger.wait_erased)
    erase_user = awaited(Ledger.erase_user)
    hold = awaited(Ledger.hold)
    release = awaited(Ledger.release)
    holds = awaited(Ledger.holds)
    set_retention = awaited(Ledger.set_retention)
    remove_retention = awaited(Ledger.remove_retention)
    retention = awaited(Ledger.retention)
    add_remote = awaited(Ledger.add_remote)
    remove_remote = awaited(Ledger.remove_remote)
    remotes = awaited(Ledger.remotes)
    remote = awaited(Ledger.remote)

    append = append
    add_messages = awaited(Ledger.add_messages)

    create_branch = awaited(Ledger.create_branch)
    fork = awaited(Ledger.fork)
    set_active_branch = awaited(Ledger.set_active_branch)
    move_head = awaited(Ledger.move_head)
    merge = awaited(Ledger.merge)
    rename_branch = awaited(Ledger.rename_branch)
    delete_branch = awaited(Ledger.delete_branch)

    show = awaited(Ledger.show)

    set_checkpoint = awaited(Ledger.set_checkpoint)
    delete_checkpoint = awaited(Ledger.delete_checkpoint)

    set_member = awaited(Ledger.set_member)
    remove_member = awaited(Ledger.remove_member)
    set_members = awaited(Ledger.set_members)
    create_link = awaited(Ledger.create_link)
    revoke_link = awaited(Ledger.revoke_link)
    links = awaited(Ledger.links)
    get_link = awaited(Ledger.get_link)
    check_may_write = awaited(Ledger.check_may_write)

    annotate = awaited(Ledger.annotate)
    redact = awaited(Ledger.redact)
    redact_words = awaited(Ledger.redact_words)

    record_run = awaited(Ledger.record_run)
    start_run = awaited(Ledger.start_run)
    suspend_run = awaited(Ledger.suspend_run)
    complete_run = awaited(Ledger.complete_run)
    fail_run = awaited(Ledger.fail_run)
    update_run = awaited(Ledger.update_run)

    list_threads = awaited(Ledger.list_threads)
    count_threads = awaited(Ledger.count_threads)

    mark_stale = awaited(Ledger.mark_stale)
    begin_regeneration = awaited(Ledger.begin_regeneration)
    approve_regeneration = awaited(Ledger.approve_regeneration)
    repeat_run = awaited(Ledger.repeat_run)

    fork_chat = awaited(Ledger.fork_chat)

    save = awaited(Ledger.save)
    preview_save = awaited(Ledger.preview_save)

    get_live = awaited(Ledger.get_live)
    list_live = awaited(Ledger.list_live)

    embed_pending = awaited(Ledger.embed_pending)

    import_chat = awaited(Ledger.import_chat)
    import_value = awaited(Ledger.import_value)
    export_thread = awaited(Ledger.export_thread)
    export_state = awaited(Ledger.export_state)
    export_all = iterated(Ledger.export_all, chunk=1)
    export_user = iterated(Ledger.export_user, chunk=1)
    history = iterated(Ledger.history)
    get_position = awaited(Ledger.get_position)
    last_position = awaited(Ledger.last_position)
    feeds = awaited(Ledger.feeds)
    ack_feed = awaited(Ledger.ack_feed)
    forget_feed = awaited(Ledger.forget_feed)
    forget_backup = awaited(Ledger.forget_backup)
    sync = awaited(Ledger.sync)
    rebuild = awaited(Ledger.rebuild)
    projections = awaited(Ledger.projections)
    drop_projection = awaited(Ledger.drop_projection)
    verify = awaited(Ledger.verify)
    anchor = awaited(Ledger.anchor)
    prove = awaited(Ledger.prove)
    prove_growth = awaited(Ledger.prove_growth)
    replay = awaited(Ledger.replay)
    still_valid = awaited(Ledger.still_valid)
    bundle = awaited(Ledger.bundle)
    import_bundle = awaited(Ledger.import_bundle)
    pull = awaited(Ledger.pull)
    push = awaited(Ledger.push)
    backup = awaited(Ledger.backup)

    context = staticmethod(Ledger.context)

    @property
    def position(self) -> DeferredAnswer[int]:
        """The position on the log up to which reads know everything: `await ledger.position`."""
        return DeferredAnswer(self.get_position)

    @property
    def location(self) -> str:
        """The location of the log, without secrets."""
        return self._location

    async def wait(self, after: int, *, timeout_s: float = RETRY_S) -> bool:
        """Wait until the log has an event after a position; False when the time is over."""
        return await self.run(lambda ledger: ledger.wait(after, timeout_s=timeout_s), abandon_on_cancel=True)

    def for_user(self, user_id: str, *, grants: Mapping[str, MemberRole] | None = None) -> "AsyncLedger":
        """Return this ledger limited to what one user may read; see `Ledger.for_user`. Not awaited, for nothing is read."""
        return UserAsyncLedger(
            self, User(check_id(user_id, "user_id", empty=True), check_roles(grants, "grants", "chat_id"))
        )

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

    def live(
        self,
        chat_id: str,
        *,
        name: str = "assistant",
        id: str | None = None,  # noqa: A002 - the field's name everywhere else
        branch: str | None = None,
        keep_s: float = KEEP_S,
    ) -> Opening[AsyncLiveAnswer]:
        """Start a live stream, by `async with` or `await`; see `Ledger.live`."""
        return self._live(lambda ledger: ledger.live(chat_id, name=name, id=id, branch=branch, keep_s=keep_s))

    def take_over_live(self, stream: LiveStream) -> Opening[AsyncLiveAnswer]:
        """Go on with a live stream whose writer died or went, by `async with` or `await`; see `Ledger.take_over_live`."""
        return self._live(lambda ledger: ledger.take_over_live(stream))

    def _live(self, begin: Callable[[Ledger], LiveAnswer]) -> Opening[AsyncLiveAnswer]:
        async def start() -> AsyncLiveAnswer:
            return AsyncLiveAnswer(await self.run(begin))

        return Opening(start)

    def read_live(
        self,
        chat_id: str,
        id: str,  # noqa: A002 - as above
        *,
        after: int = 0,
        follow: bool = True,
    ) -> AsyncLiveReader:
        """Read the chunks of a live stream, by `async for`; see `Ledger.read_live`."""
        return AsyncLiveReader(self.run, lambda ledger: ledger.read_live(chat_id, id, after=after, follow=follow))

    def as_of(self, moment: Moment) -> Opening[AsyncLedgerView]:
        """A read-only view of the ledger as it stood at an earlier moment, by `async with` or `await`; see `Ledger.as_of`."""

        async def look_back() -> AsyncLedgerView:
            return AsyncLedgerView(self, await self.run(lambda ledger: ledger.as_of(moment)))

        return Opening(look_back)

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

        Raises:
            InvalidValueError: It is asynchronous, which a function for another thread cannot be.

        Example:
            chat, branches = await ledger.run(lambda l: (l.get_chat("trip"), l.list_branches("trip")))
        """
        if inspect.iscoroutinefunction(call):
            raise InvalidValueError(_ASYNCHRONOUS)

        def answer() -> T:
            answer = call(self._open())
            if inspect.iscoroutine(answer):
                answer.close()  # or Python warns that it was never awaited
                raise InvalidValueError(_ASYNCHRONOUS)
            return answer

        if abandon_on_cancel:
            # What may be abandoned waits. However many wait, other calls must not wait for them: each has a thread of its own.
            return await anyio.to_thread.run_sync(answer, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        return await in_thread(answer)

    def _read_by(self, call: Callable[[LedgerMethods], T]) -> Awaitable[T]:
        return self.run(call)

    @property
    def opened(self) -> Ledger | None:
        """The ledger, if it is open."""
        return self._ledger

    def blocking(self) -> Ledger:
        """
        The blocking ledger behind this one, for code that runs in other threads; it is opened now if it is not yet.

        It is the same ledger: closing either closes both.

        Raises:
            LedgerClosedError: This ledger was closed.
        """
        return self._open()

    def waiting(self) -> Waiting | None:
        """The tasks of this event loop that wait for other threads; None where the loop is not asyncio's."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        if self._waiting is None or self._waiting.loop is not loop:
            self._waiting = Waiting(loop)
        return self._waiting

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

    def __await__(self) -> Generator[Any, Any, Self]:
        """Open the ledger, if it is not open yet: `ledger = await chatledger.open_async(...)`, which is to be closed."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self.run(repr)  # any call opens the ledger
        return self

    def __repr__(self) -> str:
        return f"<AsyncLedger {self._location}{' (closed)' if self._is_closed else ''}>"


class UserAsyncLedger(AsyncLedger):
    """An `AsyncLedger` that is limited to what one user owns or is a member of, in the threads of the whole one."""

    def __init__(self, whole: AsyncLedger, user: User) -> None:
        super().__init__(lambda: whole._open().for_user(user.id, grants=user.grants), whole._location)  # noqa: SLF001 - it opens with it
        self._whole, self.user_id, self._user = whole, user.id, user

    append = awaited(Ledger.append)  # what the user may not see is looked at in the thread

    def for_user(self, user_id: str, *, grants: Mapping[str, MemberRole] | None = None) -> AsyncLedger:
        """Return this ledger for its own user, with the same grants; refused for another one, and for more grants."""
        if check_id(user_id, "user_id", empty=True) != self.user_id or grants:
            msg = "this ledger is limited to another user; use the ledger that it was made from"
            raise AccessDeniedError(msg)
        return UserAsyncLedger(self._whole, self._user)

    async def run(self, call: Callable[[Ledger], T], *, abandon_on_cancel: bool = False) -> T:
        """The answer of a function of the ledger, limited to the user's, that runs in a worker thread."""
        return await self._whole.run(lambda _: call(self._open()), abandon_on_cancel=abandon_on_cancel)
