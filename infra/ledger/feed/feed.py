"""`Feed` and `AsyncFeed`: events as they come."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError, LedgerClosedError

from .cursor import Cursor


class Feed:
    """
    An iterator over the events of a log, in order and without holes. Made by `Ledger.feed`.

    An event counts as handled when the next one is asked for, or when `ack` says so. Under a name, what was handled is kept
    in the log's server: by `ack` at once, else after 100 events or a quarter of a second, at the end of `with`, and when the
    ledger is closed. An error does not end it: asked again, it goes on where it was. One thread at a time may iterate;
    `ack` and `close` may be called from any.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    @property
    def position(self) -> int:
        """The position up to which everything was handled; `feed(after=position)` goes on from there."""
        return self.cursor.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Recorded:
        """
        The next event. Waits for it, unless `follow` was False.

        Raises:
            ConflictError: Another reader took the name.
            LogUnavailableError: The log did not answer for long; asking again is safe.
        """
        cursor = self.cursor
        cursor.ask()
        while True:
            try:
                if cursor.is_due:
                    cursor.save()
                recorded = cursor.pop()
                if recorded is not None:
                    return recorded
                if cursor.is_over and cursor.is_following:
                    raise StopIteration
                if cursor.read():
                    continue
                if not cursor.is_following:
                    cursor.save()
                    raise StopIteration
                cursor.note(has_more=cursor.wait())
            except ChatledgerError as error:
                if cursor.is_following and cursor.is_over:
                    raise StopIteration from error
                raise

    def ack(self, position: int | None = None) -> None:
        """
        Say that everything given up to a position was handled. Under a name it is kept before this returns.

        Args:
            position: Of an event that was given; the last one when None. An earlier one than before changes nothing.

        Raises:
            InvalidValueError: No event at so late a position was given.
            ConflictError: Another reader took the name, or it was forgotten.
            LogUnavailableError: No answer; whether it is kept is unknown, and trying again is safe.
        """
        self.cursor.ack(position)

    def close(self) -> None:
        """
        End the feed; calling it again does nothing. What was handled is kept, the event given last only after `ack`.

        Raises:
            ConflictError, LogUnavailableError: As `ack`; the feed is closed nevertheless.
        """
        self.cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.cursor.close()
        else:
            self.cursor.close_quietly()


T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a function in a worker thread."""

    def __call__(self, call: Callable[[Any], T], *, abandon_on_cancel: bool = False) -> Awaitable[T]:
        """The answer of the function, which is given the ledger."""
        ...


class AsyncFeed:
    """
    A `Feed` whose events are awaited. Made by `AsyncLedger.feed`.

    It begins, and takes its name, when the first event is asked for or `async with` is entered. `async for` may be cancelled
    at any event and begun again: none is lost.
    """

    def __init__(self, run: RunInThread, begin: Callable[[Any], Cursor], *, is_following: bool) -> None:
        self._run, self._begin, self._is_following = run, begin, is_following
        import anyio

        self._beginning = anyio.Lock()
        self._cursor: Cursor | None = None

    @property
    def position(self) -> int | None:
        """The position up to which everything was handled; None before it has begun."""
        return None if self._cursor is None else self._cursor.position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Recorded:
        """
        The next event; see `Feed`.

        Raises:
            ConflictError: Another reader took the name.
            LogUnavailableError: The log did not answer for long; asking again is safe.
        """
        try:
            cursor = await self._begun()
            cursor.ask()
            recorded = await self._next(cursor)
        except ChatledgerError as error:
            # A ledger that is being closed refuses calls before its feeds know that they are over.
            is_over = isinstance(error, LedgerClosedError) or (self._cursor is not None and self._cursor.is_over)
            if self._is_following and self._cursor is not None and is_over:
                raise StopAsyncIteration from error
            raise
        if recorded is None:
            raise StopAsyncIteration
        return recorded

    async def _next(self, cursor: Cursor) -> Recorded | None:
        while True:
            if cursor.is_due:
                await self._run(lambda _: cursor.save())
            # Nothing is awaited between this and the return: a cancelled task must not take an event with it.
            recorded = cursor.pop()
            if recorded is not None:
                return recorded
            if cursor.is_over and cursor.is_following:
                return None
            if await self._run(lambda _: cursor.read()):
                continue
            if not cursor.is_following:
                await self._run(lambda _: cursor.save())
                return None
            cursor.note(has_more=await self._run(lambda _: cursor.wait(), abandon_on_cancel=True))

    async def _begun(self) -> Cursor:
        async with self._beginning:
            if self._cursor is None:
                # Shielded by the thread; a cursor that was made is kept, so that its name is not taken a second time.
                await self._run(self._keep)
            assert self._cursor is not None
            return self._cursor

    def _keep(self, ledger: Any) -> None:
        self._cursor = self._begin(ledger)

    async def ack(self, position: int | None = None) -> None:
        """Say that everything given up to a position was handled; see `Feed.ack`."""
        cursor = await self._begun()
        await self._run(lambda _: cursor.ack(position))

    async def close(self) -> None:
        """End the feed; see `Feed.close`."""
        cursor = self._cursor
        if cursor is not None and not cursor.is_over:
            await self._run(lambda _: cursor.close())

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cursor = self._cursor
        if cursor is None or cursor.is_over:
            return
        import anyio

        with anyio.CancelScope(shield=True):
            if error is None:
                await self._run(lambda _: cursor.close())
            else:
                await self._run(lambda _: cursor.close_quietly())
