"""`LiveReader`: the chunks of a live stream, as they come."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from chatledger.domain.chat.live import SILENCE_S, LiveChunk, LiveEntry, LiveStatus, unpacked_chunks
from chatledger.domain.errors import LedgerClosedError, LiveStreamNotFoundError

from ...log.live import FoundLive, LiveStreams
from ...log.live_storage import LiveAbsentError

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
