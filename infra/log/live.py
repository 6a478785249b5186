"""The live streams of a log: entries sealed, in order, and bound to their places."""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chatledger.domain.chat.live import (
    MAX_LIVE_AGE_S,
    LiveEntry,
    LiveKey,
    LiveStart,
    LiveStream,
    chat_key,
    decode_live,
    describe_live,
    encode_live,
    follows,
    is_due,
    live_key,
)
from chatledger.domain.errors import CorruptStateError

from .blobs import Packer
from .live_storage import LiveAbsentError, LiveReading, LiveStorage, StoredEntry

_HEAD: Final = struct.Struct(">Q8s")
"""The number of an entry, and a random token, so that no two records are equal."""
_PLACE: Final = "chatledger.live"
_EMPTY_S: Final = 60.0
"""A stream without entries is dropped after this time: its writer died while it was made, or all of them are too old."""


class LiveTail(NamedTuple):
    """The end of a stream: the position of the last entry, and its number, which is 1 for the first."""

    position: int
    number: int


class FoundLive(NamedTuple):
    """A live stream that was looked up."""

    key: LiveKey
    start: LiveStart
    last: LiveEntry
    tail: LiveTail
    stream: LiveStream


class LiveEntries:
    """A reader's place in a stream, from its beginning on. It raises `CorruptStateError` where entries are missing."""

    def __init__(self, streams: "LiveStreams", key: LiveKey, reading: LiveReading) -> None:
        self._streams, self._key, self._reading = streams, key, reading
        self._number = self._count = 0

    def next(self, timeout_s: float) -> list[LiveEntry]:
        """Return the next entries; none when the time is over. Raises `LiveAbsentError` when the stream is gone."""
        entries: list[LiveEntry] = []
        for stored in self._reading.next(timeout_s):
            number, entry = self._streams.unseal(self._key, stored)
            # A place that jumps is loss; a new beginning is none, and saying so would send a reader to the doctor for nothing.
            if number == 1 and self._number:  # it was dropped, and begun anew under the same id
                raise LiveAbsentError
            if number != self._number + 1 or not follows(entry, self._count):
                msg = f"a live stream lacks entries: after number {self._number} comes number {number}"
                raise CorruptStateError(msg)
            self._number, self._count = number, entry.count
            entries.append(entry)
        return entries

    def close(self) -> None:
        """End the reading, from any thread."""
        self._reading.close()


class LiveStreams:
    """The live streams of a log. `packer`: compresses and encrypts them, as the events of the log."""

    def __init__(self, storage: LiveStorage, packer: Packer) -> None:
        self.storage, self._packer = storage, packer

    def seal(self, key: LiveKey, number: int, entry: LiveEntry) -> bytes:
        return _HEAD.pack(number, os.urandom(8)) + self._packer.pack(encode_live(entry), (key.text, number, _PLACE))

    def unseal(self, key: LiveKey, stored: StoredEntry) -> tuple[int, LiveEntry]:
        """Return the number and the entry in a record. Raises `CorruptStateError` when it cannot be read."""
        if len(stored.record) < _HEAD.size:
            msg = "an entry of a live stream is too short"
            raise CorruptStateError(msg)
        number: int = _HEAD.unpack_from(stored.record)[0]
        body = self._packer.unpack(stored.record[_HEAD.size :], (key.text, number, _PLACE))
        return number, decode_live(body)

    def begin(self, start: LiveStart) -> tuple[LiveKey, LiveTail]:
        """Make a stream. Raises `LiveChangedError` when there is one of that id."""
        key = live_key(start.chat_id, start.id)
        record = self.seal(key, 1, LiveEntry("start", 1, start=start))
        return key, LiveTail(self.storage.create(key, record), 1)

    def add(self, key: LiveKey, tail: LiveTail, record: bytes) -> LiveTail:
        """
        Append a sealed record behind `tail`, and return the new end. Adding the same record again is safe.

        Raises:
            LiveChangedError: Another entry is there.
            LiveAbsentError: The stream is gone.
        """
        return LiveTail(self.storage.add(key, record, expected=tail.position), tail.number + 1)

    def find(self, key: LiveKey) -> FoundLive | None:
        """Return a stream as it stands; None when there is none."""
        ends = self.storage.ends(key)
        if ends is None or ends.first is None or ends.last is None:
            return None
        _, first = self.unseal(key, ends.first)
        number, last = self.unseal(key, ends.last)
        if first.start is None:  # the beginning is too old
            return None
        stream = describe_live(first.start, last, ends.idle_s)
        return FoundLive(key, first.start, last, LiveTail(ends.last.position, number), stream)

    def keys(self, chat_id: str | None = None) -> list[LiveKey]:
        return self.storage.list_keys(None if chat_id is None else chat_key(chat_id))

    def all(self, chat_id: str | None = None) -> Iterator[FoundLive]:
        """Yield all streams, or those of a chat; without those that cannot be read."""
        for key in self.keys(chat_id):
            live = self._find_readable(key)
            if live is not None:
                yield live

    def _find_readable(self, key: LiveKey) -> FoundLive | None:
        """Return what `find` does; None also for a stream that is damaged, or of a newer version, or under an unknown key."""
        try:
            return self.find(key)
        except CorruptStateError:
            return None

    def read(self, key: LiveKey) -> LiveEntries:
        """Read a stream from its beginning, and wait for more."""
        return LiveEntries(self, key, self.storage.open(key, after=0))

    def drop(self, keys: Sequence[LiveKey]) -> None:
        """Remove streams and their bytes."""
        for key in keys:
            self.storage.drop(key)

    def drop_begun(self, keys: Sequence[LiveKey], *, before: int) -> None:
        """Remove the streams of a deleted chat, which began before a position: those of a new chat under the same id stay."""
        for key in keys:
            live = self._find_readable(key)
            # Of what cannot be read nothing says that it is of the new chat, and the deletion was promised.
            if live is None or live.start.born < before:
                self.storage.drop(key)

    def drop_due(self, is_gone: Callable[[LiveStart], bool]) -> None:
        """Remove the streams whose time is over, and those whose chat is gone."""
        for key in self.keys():
            live = self._find_readable(key)
            if live is not None:
                is_over = is_due(live.stream) or is_gone(live.start)
            else:  # it has no beginning, or cannot be read: only how long nobody has written to it is known
                ends = self.storage.ends(key)
                is_over = ends is not None and ends.idle_s > (_EMPTY_S if ends.first is None else MAX_LIVE_AGE_S)
            if is_over:
                self.storage.drop(key)
