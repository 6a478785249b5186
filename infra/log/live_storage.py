"""Storage of live streams beside a log: entries by key, one in memory, and reading those of tables."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from chatledger.domain.chat.live import LiveKey

MAX_ENTRY_BYTES: Final = 8 * 1024 * 1024
LIVE_PAGE: Final = 64


class LiveChangedError(Exception):
    """The stream has another last entry than was expected; nothing was written."""


class LiveAbsentError(Exception):
    """There is no such stream, or no more; nothing was written."""


class StoredEntry(NamedTuple):
    """The record of an entry and its position, which grows from entry to entry."""

    position: int
    record: bytes


class StoredEnds(NamedTuple):
    """The first and the last entry of a stream, None where it has none, and the seconds since the last, by the storage's clock."""

    first: StoredEntry | None
    last: StoredEntry | None
    idle_s: float


class LiveReading(Protocol):
    """A reader's place in a stream. For one thread at a time, but for `close`."""

    def next(self, timeout_s: float) -> Sequence[StoredEntry]:
        """Return the next entries, in order; none when the time is over. Raises `LiveAbsentError` when the stream is gone."""
        ...

    def close(self) -> None:
        """End the reading, from any thread; `next` returns nothing any more."""


class LiveStorage(Protocol):
    """Live streams by key, each a sequence of entries that end with an expectation. All errors are ledger errors but those named."""

    max_entry_bytes: int
    """The size limit of a record."""

    def make(self) -> None:
        """Create now what is created on first use otherwise, when a login may not be allowed to."""

    def create(self, key: LiveKey, record: bytes) -> int:
        """Make a stream with its first entry, and return the position of that. Raises `LiveChangedError` when there is such a stream."""
        ...

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        """
        Append an entry after the one at `expected`, and return its position. Adding it again after a lost answer is safe.

        Raises:
            LiveChangedError: The last entry is another one.
            LiveAbsentError: There is no such stream.
        """
        ...

    def ends(self, key: LiveKey) -> StoredEnds | None:
        """Return the first and the last entry, never stale ones; None when there is no such stream."""
        ...

    def open(self, key: LiveKey, *, after: int) -> LiveReading:
        """Read the entries above a position, and wait for more."""
        ...

    def list_keys(self, chat: str | None = None) -> list[LiveKey]: ...

    def drop(self, key: LiveKey) -> None:
        """Remove a stream and its bytes; nothing happens when there is none."""


class _MemoryStream:
    def __init__(self, record: bytes) -> None:
        self.records = [record]
        self.at_s = time.monotonic()


class MemoryLiveStorage:
    """Implements `LiveStorage` in the memory of a process."""

    max_entry_bytes = MAX_ENTRY_BYTES

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.streams: dict[LiveKey, _MemoryStream] = {}

    def make(self) -> None:
        """Implement `LiveStorage.make`."""

    def create(self, key: LiveKey, record: bytes) -> int:
        with self.changed:
            if key in self.streams:
                raise LiveChangedError
            self.streams[key] = _MemoryStream(record)
            return 1

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        with self.changed:
            stream = self.streams.get(key)
            if stream is None:
                raise LiveAbsentError
            if len(stream.records) != expected:
                raise LiveChangedError
            stream.records.append(record)
            stream.at_s = time.monotonic()
            self.changed.notify_all()
            return expected + 1

    def ends(self, key: LiveKey) -> StoredEnds | None:
        with self.changed:
            stream = self.streams.get(key)
            if stream is None:
                return None
            records = stream.records
            last = StoredEntry(len(records), records[-1])
            return StoredEnds(StoredEntry(1, records[0]), last, time.monotonic() - stream.at_s)

    def open(self, key: LiveKey, *, after: int) -> LiveReading:
        return _MemoryReading(self, key, after)

    def list_keys(self, chat: str | None = None) -> list[LiveKey]:
        with self.changed:
            return [key for key in self.streams if chat in {None, key.chat}]

    def drop(self, key: LiveKey) -> None:
        with self.changed:
            self.streams.pop(key, None)
            self.changed.notify_all()


class _MemoryReading:
    def __init__(self, storage: MemoryLiveStorage, key: LiveKey, after: int) -> None:
        self._storage, self._key, self._after = storage, key, after
        self._stream = storage.streams.get(key)
        self._is_closed = False

    def next(self, timeout_s: float) -> Sequence[StoredEntry]:
        ends_at = time.monotonic() + timeout_s
        changed = self._storage.changed
        with changed:
            while not self._is_closed:
                stream = self._storage.streams.get(self._key)
                # The same key may have another stream by now, whose positions are not those of this one.
                if stream is None or stream is not self._stream:
                    raise LiveAbsentError
                records = stream.records[self._after : self._after + LIVE_PAGE]
                if records:
                    first = self._after + 1
                    self._after += len(records)
                    return [StoredEntry(position, record) for position, record in enumerate(records, first)]
                if not changed.wait(max(0.0, ends_at - time.monotonic())):
                    break
        return []

    def close(self) -> None:
        with self._storage.changed:
            self._is_closed = True
            self._storage.changed.notify_all()


_QUICK_S: Final = 0.002
_SLOW_S: Final = 0.05
_QUIET_S: Final = 1.0


class PolledReading:
    """Implements `LiveReading` in a stream of a table, which is asked for news."""

    def __init__(self, read: Callable[[int], list[StoredEntry]], is_gone: Callable[[], bool], after: int) -> None:
        self._read, self._is_gone, self._after = read, is_gone, after
        self._closing = threading.Event()
        self._news_s = time.monotonic()

    def next(self, timeout_s: float) -> Sequence[StoredEntry]:
        ends_at = time.monotonic() + timeout_s
        while not self._closing.is_set():
            entries = self._read(self._after)
            now_s = time.monotonic()
            if entries:
                if entries[0].position != self._after + 1:  # it was dropped, and made anew
                    raise LiveAbsentError
                self._after, self._news_s = entries[-1].position, now_s
                return entries
            if now_s >= ends_at:
                # Only when there is nothing else to do: one more query for each round would double what a reader costs.
                if self._is_gone():
                    raise LiveAbsentError
                break
            # A token comes every few ms while a model writes; a reader of a silent stream must not keep the database busy.
            pause_s = _QUICK_S if now_s - self._news_s < _QUIET_S else _SLOW_S
            self._closing.wait(min(pause_s, ends_at - now_s))
        return []

    def close(self) -> None:
        self._closing.set()
