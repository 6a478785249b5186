"""`Feed` and `AsyncFeed`: events as they come, and the cursor that both share: the next events, and the position handled so far."""

import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError, ConflictError, InvalidValueError, LedgerClosedError
from chatledger.domain.limits import check_position

from ..port import StorePort
from .filter import is_gone
from .members import FeedMember

SAVE_EVENTS: Final = 100
SAVE_S: Final = 0.25
"""A position is kept after so many events, or this long after it was kept last, whatever comes first."""
FIRST_PAGE: Final = 16
LONGEST_PAGE: Final = 1000
PAGE_BYTES: Final = 8 * 1024 * 1024
_SAMPLE: Final = 16
_LOOK_UP_S: Final = 0.25
_PROBE_S: Final = 5.0
_logger = logging.getLogger(__name__)


class Cursor:
    """
    A place on a log, from which one reader goes on.

    What blocks is `read`, `wait`, `save` and `close`; `pop` gives what is at hand. Not for several threads at once, but
    for `close` and `ack`.

    Args:
        store: The log, with its index.
        keep: Which events to give.
        after: Where to begin, unless `member` knows.
        chat_id: Only this chat is read.
        is_following: Whether to wait for more at the end of the log.
        is_auto: Whether asking for the next event means that the last one was handled.
        is_closed: Whether the ledger was closed that the feed came from.
        member: Keeps the position under a name; None for a feed without one.
    """

    def __init__(
        self,
        store: StorePort,
        keep: Callable[[Recorded], bool],
        *,
        after: int,
        chat_id: str | None,
        is_following: bool,
        is_auto: bool,
        is_closed: Callable[[], bool],
        member: FeedMember | None,
    ) -> None:
        self._store, self._keep, self._chat_id, self._member = store, keep, chat_id, member
        self.is_following, self._is_auto = is_following, is_auto
        self._is_ledger_closed = is_closed
        self._is_closed = False
        self._lock = threading.RLock()
        start = after if member is None else member.position
        self._page: deque[Recorded] = deque()
        self._limit = FIRST_PAGE
        self._read = self._given = self._handled = start
        self._unsaved = 0
        self._saved_s = self._read_s = time.monotonic()
        self._may_have_more = True
        self._was_woken = False
        self._is_sparse = chat_id is not None

    @property
    def position(self) -> int:
        """Everything up to here was handled."""
        return self._handled

    @property
    def is_over(self) -> bool:
        if self._is_closed or self._is_ledger_closed():
            return True
        try:
            self._store.check_open()
        except LedgerClosedError:
            return True
        return False

    # What was handled

    def ask(self) -> None:
        if self._is_auto:
            self._set_handled(self._given)

    def ack(self, position: int | None) -> None:
        """
        Everything given up to `position` was handled, all when None; kept before this returns.

        Raises:
            InvalidValueError: Nothing at so late a position was given.
            LedgerClosedError: The feed is closed.
        """
        wanted = self._given if position is None else check_position(position, "position")
        if wanted > self._given:
            msg = f"position {wanted} cannot be acknowledged: the last event that was given is at {self._given}"
            raise InvalidValueError(msg)
        if self.is_over:
            msg = "the feed is closed; open it again, it goes on after what was acknowledged"
            raise LedgerClosedError(msg)
        self._set_handled(wanted)
        self.save()

    def _set_handled(self, position: int) -> None:
        if position > self._handled:
            self._handled = position
            self._unsaved += 1

    def _pass(self, position: int) -> None:
        """Nothing up to `position` is to be given; if all before it was handled, so is that."""
        if self._handled == self._given:
            self._handled = self._given = max(position, self._given)

    @property
    def is_due(self) -> bool:
        """Whether it is time to keep the position."""
        if self._member is None or self._handled <= self._member.position:
            return False
        return self._unsaved >= SAVE_EVENTS or time.monotonic() - self._saved_s >= SAVE_S

    def save(self) -> None:
        """
        Keep the position, if there is a name to keep it under.

        Raises:
            ConflictError: Somebody else took the name.
            LogUnavailableError: No answer; the feed goes on when it is asked again.
        """
        with self._lock:
            handled = self._handled
            if self._member is not None and handled > self._member.position:
                self._member.save(handled)
                self._unsaved = 0
                self._saved_s = time.monotonic()

    # Reading on

    def pop(self) -> Recorded | None:
        """The next event of those that were read; None when `read` is due."""
        while self._page:
            # Looked up when it is given, not when it was read: its chat may have been deleted since, or the user removed from it.
            recorded = self._page[0]
            is_hidden = is_gone(self._store, recorded)
            self._page.popleft()
            if not is_hidden:
                self._given = recorded.position
                return recorded
        self._pass(self._read)
        return None

    def read(self) -> bool:
        """
        Read on; False at the end of the log.

        Raises:
            LedgerClosedError: The ledger was closed before everything was read.
            LogUnavailableError: The log did not answer; asked again, it goes on from here.
        """
        if not self._may_have_more and time.monotonic() - self._read_s < _PROBE_S:
            return False
        if self._is_ledger_closed():
            msg = "the ledger is closed; open it again"
            raise LedgerClosedError(msg)
        # The end is looked up before the page: an event that came in between would be passed over for ever.
        end = self._store.log.last_position() if self._is_sparse else self._read
        page = self._store.page(self._read, stream_id=self._chat_id, limit=self._limit, is_woken=self._was_woken)
        wanted_events = [recorded for recorded in page if self._keep(recorded)]
        is_full = len(page) >= self._limit
        self._page.extend(wanted_events)
        self._read = page[-1].position if page else max(self._read, end)
        if not page:
            self._pass(self._read)
        if len(page) < self._limit:  # at the end of the log, or near it: what comes next may be of another size
            self._limit = min(self._limit, FIRST_PAGE)
        else:  # so many that a page holds a few megabytes, however large the events are
            sample = page[:: max(1, len(page) // _SAMPLE)]
            size = max(len(msgspec.msgpack.encode(recorded.event.body)) for recorded in sample)
            self._limit = max(1, min(self._limit * 4, LONGEST_PAGE, PAGE_BYTES // size))
        self._read_s = time.monotonic()
        # `wait` said that there is more, but it is not for us: read past it from now on.
        self._is_sparse = self._is_sparse or (self._was_woken and not page)
        self._was_woken = False
        # At the end of what is there, `wait` knows whether there is more; a feed that does not follow reads until nothing comes.
        self._may_have_more = bool(page) if not self.is_following else is_full
        return bool(page)

    def wait(self) -> bool:
        """Wait a moment for more; True when there is something. Changes nothing, so it may be abandoned."""
        left_s = _LOOK_UP_S
        if self._member is not None and self._handled > self._member.position:
            left_s = min(left_s, max(0.0, self._saved_s + SAVE_S - time.monotonic()))
        return self._store.log.wait(self._read, left_s)

    def note(self, *, has_more: bool) -> None:
        """Note the result of `wait`; without news, the next `read` asks the log only now and then, to learn that it does not answer."""
        self._may_have_more = self._was_woken = has_more

    def close(self) -> None:
        """Keep what was handled, and end; calling it again does nothing. The event given last is handled if `ack` said so."""
        with self._lock:
            if self._is_closed:
                return
            try:
                if not self.is_over:
                    self.save()
            finally:
                self._is_closed = True

    def close_quietly(self) -> None:
        """Close, when there is something more important to report than a position that could not be kept."""
        try:
            self.close()
        except ConflictError as error:
            _logger.warning("closing a feed: %s", error)
        except ChatledgerError as error:
            position = 0 if self._member is None else self._member.position
            _logger.warning("closing a feed: %s What it handled since position %d is given again", error, position)


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
