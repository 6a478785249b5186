"""The messages that were found last, as they are stored, for who finds them again."""

from collections.abc import Mapping
from typing import Final

from .search.rows import Record

MAX_MESSAGES: Final = 512
_MAX_BYTES: Final = 4096
"""Of a message that is kept."""

StoredMessage = tuple[bytes, str | None]
"""A message as msgpack, without the id of its parent, and that id."""

MAX_RECORDS: Final = 4 * MAX_MESSAGES

_Key = tuple[int, tuple[int, int]]


class RecentMessages:
    """
    Messages by their chat and place. They were found and checked before; each reader decodes one of its own.

    And the records of the documents that matched, by their chat and number; there are more of them than are answered.
    """

    def __init__(self) -> None:
        self._messages: dict[_Key, StoredMessage] = {}
        self._records: dict[tuple[int, int], Record] = {}
        self.get = self._messages.get
        self.record = self._records.get

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self._messages) >= MAX_MESSAGES

    def keep(self, key: _Key, message: StoredMessage) -> None:
        """Keep a message, if there is room and it is not long."""
        if len(message[0]) <= _MAX_BYTES and not self.is_full:
            self._messages[key] = message

    def keep_records(self, records: Mapping[tuple[int, int], Record]) -> None:
        """Keep records, if there is room."""
        if len(self._records) + len(records) <= MAX_RECORDS:
            self._records.update(records)


class Recent:
    """
    The recent messages of one snapshot of an environment at a time, in which nothing changes.

    A search that is repeated, or asked for its next page, comes to the same messages. Any write begins another snapshot.
    """

    def __init__(self) -> None:
        self._snapshot = -1, RecentMessages()

    def of(self, snapshot_id: int) -> RecentMessages:
        """Those of a snapshot. Each has its own, as threads may read different ones at the same time."""
        known_id, messages = self._snapshot
        if known_id != snapshot_id or messages.is_full:
            messages = RecentMessages()
            self._snapshot = snapshot_id, messages
        return messages
