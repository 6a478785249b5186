"""Caches: what a process keeps in memory beside the tables of an index."""

import threading
from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_COUNT: Final = 1 << 16
_LISTS_BYTES: Final = 4 * 1024 * 1024
_ROWS_BYTES: Final = 64 * 1024 * 1024

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """
    Values by key, at most so many bytes.

    It has two halves: when the young one is full it becomes the old one, and what was not asked for since is forgotten. Threads
    share it without a lock: each step is atomic, and when two meet a value may be forgotten early.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES, max_count: int = _MAX_COUNT) -> None:
        self._half_bytes, self._half_count = max_bytes // 2, max_count // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._bytes = 0

    def get(self, key: K) -> V | None:
        sized = self._young.get(key)
        if sized is not None:
            return sized[0]
        sized = self._old.get(key)
        if sized is None:
            return None
        self.put(key, *sized)
        return sized[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value that takes about so many bytes."""
        if self._bytes + size > self._half_bytes or len(self._young) >= self._half_count:
            self._old, self._young = self._young, {}
            self._bytes = 0
        self._young[key] = value, size
        self._bytes += size


MAX_MESSAGES: Final = 512
_MAX_MESSAGE_BYTES: Final = 4096
"""The most bytes of a message that is kept."""

StoredMessage = tuple[bytes, str | None]
"""A message as msgpack, without the id of its parent, and that id."""

_Key = tuple[int, tuple[int, int]]


class RecentMessages:
    """Messages by their chat and place, found and checked before. Each reader decodes its own, as callers may change the data."""

    def __init__(self) -> None:
        self._messages: dict[_Key, StoredMessage] = {}
        self.get = self._messages.get

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self._messages) >= MAX_MESSAGES

    def keep(self, key: _Key, message: StoredMessage) -> None:
        """Keep a message, if there is room and it is not long."""
        if len(message[0]) <= _MAX_MESSAGE_BYTES and not self.is_full:
            self._messages[key] = message


class Recent:
    """
    The recent messages of one snapshot of an environment at a time, in which nothing changes.

    A search that is repeated, or asked for its next page, comes to the same messages. Any write begins another snapshot.
    """

    def __init__(self) -> None:
        self._snapshot = -1, RecentMessages()

    def of(self, snapshot_id: int) -> RecentMessages:
        """Return the recent messages of a snapshot. Each has its own, as threads may read different ones at the same time."""
        newest_id, messages = self._snapshot
        if newest_id != snapshot_id or messages.is_full:
            messages = RecentMessages()
            self._snapshot = snapshot_id, messages
        return messages


class MessageSink(Protocol):
    """Takes in the messages that are added while the whole index is built: `Intake` of the search index."""

    def add(self, chat_no: int, number: int, place: tuple[int, int], bodies: Iterable[bytes]) -> None:
        """Take in messages of a chat that follow each other, as they are stored."""

    def drop(self, chat_no: int) -> None:
        """Leave out the messages of a chat."""

    def replace(self, chat_no: int, number: int, body: bytes) -> None:
        """Take a message in as it is stored now, without its content."""


class Caches:
    """
    Caches of one environment.

    Attributes:
        recent: Messages that a search came to.
        searched: Parts of the search index, by segment, version and kind.
        lists: The digests of all elements of a list of agents, by the digest of the list, which stands for just these and so for ever.
        rows: Rows and lanes of the chats that were drawn, by the number of the chat. Written under `rows_lock`.
        flushed: How many segments of the search index this process wrote since it last looked whether they are too many.
        is_segment_due: Whether so many messages wait, in this transaction or an earlier one of this process, that they are to become a segment.
        sink: Where messages go that are added while the whole index is built.
        is_search_deferred: Whether transactions of this process leave messages to whoever fills the search index.
    """

    def __init__(self) -> None:
        self.recent = Recent()
        self.searched: Remembered[tuple[int, int, int], object] = Remembered()
        self.lists: Remembered[bytes, bytes] = Remembered(_LISTS_BYTES)
        self.rows: Remembered[int, Any] = Remembered(_ROWS_BYTES)
        self.rows_lock = threading.Lock()
        self.flushed = 0
        self.is_segment_due = False
        self.sink: MessageSink | None = None
        self.is_search_deferred = False
