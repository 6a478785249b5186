"""Live streams: starting, listing, reading and taking them over."""

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Self

from chatledger.domain.chat.live import (
    KEEP_S,
    MAX_LIVE_AGE_S,
    SILENCE_S,
    LiveChunk,
    LiveEntry,
    LiveStart,
    LiveStatus,
    LiveStream,
    describe_live,
    is_due,
    live_key,
    unpacked_chunks,
)
from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BranchNotFoundError,
    ChainIntegrityError,
    ChatledgerError,
    ChatNotFoundError,
    CorruptStateError,
    InvalidValueError,
    LedgerClosedError,
    LiveConflictError,
    LiveStreamNotFoundError,
    LogUnavailableError,
    OtherShareError,
)
from chatledger.domain.limits import check_id, check_optional_id, check_position, sought_id

from ...log.envelope import clock_ms
from ...log.live import FoundLive, LiveStreams, LiveTail
from ...log.live_storage import LiveAbsentError, LiveChangedError
from ...store.commands import ChatsToRead
from ..drafts import new_id
from ..members import check_may_write
from ..messages import branch_at
from ..port import LedgerPart, StorePort
from .pump import LivePump
from .writer import LiveAnswer, complete

_LOOK_UP_S: Final = 0.25
_STATUS: Final[dict[str, LiveStatus]] = {"leave": "interrupted", "committing": "committing"}


class LiveReader:
    """
    An iterator over the chunks of a live stream, in order and without holes. Made by `Ledger.read_live`.

    It waits for more until the stream ends or is interrupted; `status` says which. After an interruption it may be asked again:
    it goes on where it was, when somebody took the stream over. An error does not end it either. One thread at a time may
    iterate; `close` may be called from any.
    """

    def __init__(
        self,
        streams: LiveStreams,
        live: FoundLive,
        *,
        after: int,
        is_following: bool,
        is_closed: Callable[[], bool],
        is_visible: Callable[[], bool],
    ) -> None:
        self._streams, self._live, self._is_ledger_closed = streams, live, is_closed
        self._is_visible = is_visible
        self._until = None if is_following else live.tail.number
        self._last_number = live.tail.number
        self._entries = streams.read(live.key)
        weakref.finalize(self, self._entries.close)  # a loop that is left early closes nothing
        self._reading = threading.Lock()
        self._ready: deque[LiveChunk] = deque()
        self._after = self._given = after
        self._read_count = 0
        self._status: LiveStatus = live.stream.status
        self._last: LiveEntry | None = None
        self._news_s = time.monotonic()
        self._is_paused = self._is_over = self._is_closed = False

    @property
    def message_id(self) -> str:
        """The id of the message that the text of the stream becomes; `commit` may be given another message."""
        return self._live.start.message_id

    @property
    def position(self) -> int:
        """The number of the last chunk that was given; `read_live(..., after=position)` goes on behind it."""
        return self._given

    @property
    def status(self) -> LiveStatus:
        """How the stream stands, as far as it was read."""
        return self._status

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to wait for now."""
        return self._is_closed or self._is_over or self._is_paused

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LiveChunk:
        """
        The next chunk. Waits for it, unless `follow` was False.

        Raises:
            StopIteration: The stream has ended, or is interrupted; see `status`.
            LiveStreamNotFoundError: It was dropped, or its chat deleted, before it was read to its end.
            CorruptStateError: Entries are missing, or cannot be read.
            LogUnavailableError: The log did not answer for long; asking again is safe.
            LedgerClosedError: The ledger was closed.
        """
        self.resume()
        while (chunk := self.pop()) is None and not self.is_done:
            self.fill()
        if chunk is None:
            raise StopIteration
        return chunk

    def resume(self) -> None:
        """Go on after an interruption."""
        self._is_paused = False

    def pop(self) -> LiveChunk | None:
        """Return the next chunk of those that were read; None when `fill` is due."""
        if self._is_closed or not self._ready:
            return None
        chunk = self._ready.popleft()
        self._given = chunk.number
        return chunk

    def fill(self) -> None:
        """Read on, and wait a moment for more."""
        with self._reading:
            if self._ready or self.is_done:
                return
            if self._is_ledger_closed():
                msg = "the ledger is closed; open it again, and go on after `position`"
                raise LedgerClosedError(msg)
            try:
                entries = self._entries.next(0.0 if self._is_left else _LOOK_UP_S)
            except LiveAbsentError:
                raise self._gone() from None
            if entries and not self._is_visible():  # its chat was deleted, and it is still to be erased
                raise self._gone()
            for entry in entries:
                self._last, self._read_count = entry, self._read_count + 1
                self._ready += [chunk for chunk in unpacked_chunks(entry) if chunk.number > self._after]
                if entry.kind == "end":
                    self._status = "dropped" if entry.commit is None else "committed"
                    self._is_over = True
                else:
                    self._status = _STATUS.get(entry.kind, "writing")
                if self._until is not None and self._read_count >= self._until:
                    self._is_over = True
                    if self._status == "writing":
                        self._status = self._live.stream.status
            if self._is_over:
                self._entries.close()
            elif entries:
                self._news_s = time.monotonic()
            elif self._is_left or time.monotonic() - self._news_s > SILENCE_S:
                live = self._streams.find(self._live.key)
                if live is None:
                    raise self._gone()
                # It ends only where nothing more is on its way: behind a slow network a writer that goes on looks like one that went.
                self._last_number = live.tail.number
                if self._last_number <= self._read_count:
                    self._status = live.stream.status
                    self._is_paused = self._is_left or live.stream.idle_s > SILENCE_S
                if not self._is_paused:
                    self._news_s = time.monotonic()

    def _gone(self) -> LiveStreamNotFoundError:
        return LiveStreamNotFoundError(self._live.stream.chat_id, self._live.stream.id)

    @property
    def _is_left(self) -> bool:
        """Whether the last entry that is known says that its writer went."""
        return self._last is not None and self._last.kind == "leave" and self._read_count >= self._last_number

    def close(self) -> None:
        """End the reading; calling it again does nothing."""
        self._is_closed = True
        self._entries.close()

    close_quietly = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_ROLE: Final = "assistant"
_logger = logging.getLogger(__name__)


class LiveMethods(LedgerPart):
    """The part of a ledger that is about live streams."""

    def live(
        self,
        chat_id: str,
        *,
        name: str = _ROLE,
        id: str | None = None,  # noqa: A002 - the field's name everywhere else
        branch: str | None = None,
        keep_s: float = KEEP_S,
    ) -> LiveAnswer:
        """
        Start a live stream: what is being written now, such as the tokens of an answer, readable by all from the first chunk.

        It is not on the log, nor in backups, until `commit` makes it one message. Its size is limited to 64 MiB, its age to a
        day. It is erased with its chat, and encrypted where the log is.

        Args:
            chat_id: The chat.
            name: The role or name of the message that it is to become.
            id: Its id in the chat; a new one when None.
            branch: Where the message is to go; when None, the branch that is active at the commit.
            keep_s: Drop it when it was interrupted for so many seconds, at most a day.

        Returns:
            Its writer; use it with `with`.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            AlreadyExistsError: The chat has a live stream of that id.
            InvalidValueError: A value breaks a rule.
        """
        check_id(name, "name")
        stream_id = new_id() if id is None else check_id(id, "id")
        check_optional_id(branch, "branch")
        is_number = isinstance(keep_s, int | float) and not isinstance(keep_s, bool)  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
        if not is_number or not 0 < keep_s <= MAX_LIVE_AGE_S:
            msg = f"keep_s must be a number of seconds above 0, and at most {MAX_LIVE_AGE_S:,}, not {keep_s!r}"
            raise InvalidValueError(msg)
        store = self._store
        chat_id = check_id(chat_id, "chat_id")
        with store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            if branch is None:
                branch_at(chat, None, chat_id=chat_id)
            elif chat.record is not None and chat.branch_record(branch) is None:
                raise BranchNotFoundError(chat_id, branch)
            if chat.record is None or chat.stream_no is None:
                raise ChatNotFoundError(chat_id)
            chat.check_may_write()
            born = chat.stream_no
        # With the id of the message that it becomes: readers are given it now, and would take a later one for another answer.
        start = LiveStart(chat_id, stream_id, name, branch, clock_ms(), keep_s, born, new_id())
        try:
            key, tail = store.live.begin(start)
        except LiveChangedError:
            msg = f"chat {chat_id!r} has a live stream {stream_id!r} already; choose another id"
            raise AlreadyExistsError(msg) from None
        try:
            # An erasure of the chat, or of the name of the branch, that came in between has not seen the stream, and this index not the erasure.
            store.catch_up(None, _CATCH_UP_S)
            if not _is_visible(store, start):
                raise ChatNotFoundError(chat_id)
            with store.snapshot(ChatsToRead(chat_id)) as snapshot:
                if branch is not None and snapshot.chat(chat_id).branch_record(branch) is None:
                    raise BranchNotFoundError(chat_id, branch)
        except ChatledgerError:
            with contextlib.suppress(ChatledgerError):
                store.live.drop([key])
            raise
        first = LiveEntry("start", 1, start=start)
        return self._writer(start, tail, first, store)

    def _writer(self, start: LiveStart, tail: LiveTail, last: LiveEntry, store: StorePort) -> LiveAnswer:
        stream = describe_live(start, last, 0.0)
        # A member may be removed while the answer is written, or become a reader: so the writer of a user's ledger is checked on.
        with store.snapshot() as snapshot:
            is_limited = snapshot.user_id is not None
        pump = LivePump(
            store.live,
            live_key(stream.chat_id, stream.id),
            chat_id=stream.chat_id,
            stream_id=stream.id,
            tail=tail,
            last=last,
            begun_s=time.monotonic() - max(0, clock_ms() - stream.started_at) / 1000,
            check=partial(check_may_write, store, stream.chat_id) if is_limited else lambda: None,
            redactor=store.redactor,
        )
        writer = LiveAnswer(store, stream, pump, message_id=start.message_id)
        self._cursors.add(writer)
        return writer

    def get_live(self, chat_id: str, id: str) -> LiveStream | None:  # noqa: A002 - as above
        """
        Return a live stream as it stands; None when the chat has none of that id, or no more.

        Source: the log's server, never stale.
        """
        live = self._found_live(sought_id(chat_id, "chat_id"), sought_id(id, "id"))
        return None if live is None else live.stream

    def list_live(self, chat_id: str | None = None) -> list[LiveStream]:
        """
        Return the live streams of a chat, or of all chats, the oldest first; also those that have just ended.

        Source: the log's server; some requests for each.
        """
        store = self._store
        store.check_open()
        sought = None if chat_id is None else sought_id(chat_id, "chat_id")
        # Streams of other shares are left to their nodes; where a chat is named, the error says which share has it.
        is_shown = _is_held if sought is None else _is_visible
        shown = [live.stream for live in store.live.all(sought) if is_shown(store, live.start)]
        return sorted(shown, key=lambda stream: (stream.started_at, stream.id))

    def read_live(self, chat_id: str, id: str, *, after: int = 0, follow: bool = True) -> LiveReader:  # noqa: A002 - as above
        """
        Read the chunks of a live stream, in order and without holes, and wait for more until it ends.

        Any number of readers may read it, in any process that has the ledger, also after it ended, for half a minute.

        Args:
            chat_id: The chat.
            id: The id of the stream.
            after: Only chunks with larger numbers: 0 for all, or the `position` of an earlier reader.
            follow: Whether to wait for more; else only what is there now is read.

        Returns:
            An iterator of `LiveChunk`. It stops when the stream ends or is interrupted; its `status` says which.

        Raises:
            LiveStreamNotFoundError: The chat has no such live stream, or no more.
        """
        check_position(after, "after")
        live = self._found_live(sought_id(chat_id, "chat_id"), sought_id(id, "id"))
        if live is None:
            raise LiveStreamNotFoundError(chat_id, id)
        store = self._store
        reader = LiveReader(
            store.live,
            live,
            after=after,
            is_following=follow,
            is_closed=self._is_over,
            is_visible=lambda: _is_visible(store, live.start),
        )
        self._cursors.add(reader)
        return reader

    def take_over_live(self, stream: LiveStream) -> LiveAnswer:
        """
        Go on with a live stream whose writer died or went: write more, `commit` it as it is, or `discard` it.

        Of several callers one succeeds. The earlier writer, if it is still alive, gets a `LiveConflictError` at its next chunk.

        Args:
            stream: The interrupted stream, from `get_live` or `list_live`. Its `epoch` counts: somebody who took it over
                since is not robbed of it.

        Raises:
            LiveConflictError: It is being written, has ended, or somebody else was faster.
            LiveStreamNotFoundError: It is gone.
            LogUnavailableError: No answer; look at the stream again.
        """
        if not isinstance(stream, LiveStream):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
            msg = f"expected a stream from get_live or list_live, not {type(stream).__name__}"
            raise InvalidValueError(msg)
        store = self._store
        live = self._found_live(stream.chat_id, stream.id)
        if live is None:
            raise LiveStreamNotFoundError(stream.chat_id, stream.id)
        check_may_write(store, stream.chat_id)
        if complete(store, live):
            raise LiveConflictError(stream.chat_id, stream.id, status="committed")
        if live.stream.status != "interrupted" or live.stream.epoch != stream.epoch:
            status = "taken over" if live.stream.epoch != stream.epoch else live.stream.status
            raise LiveConflictError(stream.chat_id, stream.id, status=status)
        last = live.last
        entry = LiveEntry("take", last.epoch + 1, last.count, last.size)
        try:
            tail = store.live.add(live.key, live.tail, store.live.seal(live.key, live.tail.number + 1, entry))
        except LiveChangedError:
            raise LiveConflictError(stream.chat_id, stream.id, status="taken over") from None
        except LiveAbsentError:
            raise LiveStreamNotFoundError(stream.chat_id, stream.id) from None
        return self._writer(live.start, tail, entry, store)

    def _found_live(self, chat_id: str, stream_id: str) -> FoundLive | None:
        store = self._store
        store.check_open()
        live = store.live.find(live_key(chat_id, stream_id))
        return None if live is None or not _is_visible(store, live.start) else live


def sweep_live(store: StorePort) -> None:
    """Finish what dead writers were about to commit, and drop the streams whose time is over, where the login may."""
    try:
        for live in list(store.live.all()):
            try:
                if _is_held(store, live.start) and _may_write(store, live.stream.chat_id):
                    complete(store, live)
                    if is_due(live.stream):
                        store.live.drop([live.key])
            except (ChainIntegrityError, CorruptStateError) as error:  # one chat in quarantine must not stop the others
                _logger.warning("live stream %r of chat %r: %s", live.stream.id, live.stream.chat_id, error)
    except AccessDeniedError as error:  # a sweep of chats needs no rights to live streams
        _logger.info("live streams are left to those who may finish and drop them: %s", error)


def drop_live_of_sender(store: StorePort, user_id: str) -> None:
    """
    Drop the streams that were to become messages of a user, in chats that nothing holds, where the login may.

    What dead writers were about to commit is finished before: it is on the log then, where the name is found.
    """
    try:
        for live in list(store.live.all()):
            with store.snapshot() as snapshot:
                chat = snapshot.chat(live.start.chat_id, even_quarantined=True).chat
            if chat is None or chat.hold is not None or not _has_draft_of(store, live, user_id):
                continue
            with contextlib.suppress(ChainIntegrityError):  # in quarantine nothing is appended
                complete(store, live)
            store.live.drop([live.key])
    except AccessDeniedError as error:
        _logger.info("live streams that name a user are left to those who may drop them: %s", error)


def _has_draft_of(store: StorePort, live: FoundLive, user_id: str) -> bool:
    """Whether a stream was ever closed for a message of a user: also where that was refused, and where it is on the log by now."""
    reading, entries = store.live.read(live.key), list[LiveEntry]()
    try:
        while len(entries) < live.tail.number:
            page = reading.next(_CATCH_UP_S)
            if not page:
                msg = f"live stream {live.stream.id!r} of chat {live.stream.chat_id!r} did not arrive; trying again is safe"
                raise LogUnavailableError(msg)
            entries += page
    except (LiveAbsentError, CorruptStateError):
        return False  # what cannot be read goes when its time is over
    finally:
        reading.close()
    drafts = [entry.commit.draft for entry in entries if entry.commit is not None]
    return any(draft is not None and draft.sender_id == user_id for draft in drafts)


def _may_write(store: StorePort, chat_id: str) -> bool:
    try:
        check_may_write(store, chat_id)
    except AccessDeniedError:  # the user of this store only reads the chat: its writers see to its streams
        return False
    return True


def _is_held(store: StorePort, start: LiveStart) -> bool:
    """Whether the chat of a stream is there, as `_is_visible` says, and held by this ledger."""
    try:
        return _is_visible(store, start)
    except OtherShareError:
        return False


def _is_visible(store: StorePort, start: LiveStart) -> bool:
    """Whether the chat of a stream is there, for this user, and still the chat in which it was started."""
    # The writer's index may be ahead of this one: that a chat is not there is believed once this one knows its beginning.
    for may_lag in (True, False):
        with store.snapshot(ChatsToRead(start.chat_id)) as snapshot:
            chat = snapshot.chat(start.chat_id)
            if chat.record is not None and chat.stream_no == start.born:
                return True
            is_known = snapshot.state.position >= start.born
        if is_known or not may_lag:
            return False
        store.catch_up(None, _CATCH_UP_S)
    return False


_CATCH_UP_S: Final = 5.0
