"""A log in memory: the library's plain-objects recorder, for tests and scratch ledgers."""

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from eventsourcing.persistence import IntegrityError, JSONTranscoder, Notification, StoredEvent
from eventsourcing.popo import POPOApplicationRecorder

from .blob_storage import CHUNK_BYTES, MemoryBlobStorage
from .bookmarks import Bookmark
from .mapper import StructMapper
from .port import EventLog, LostRaceError, refuse_unless_empty


class ErasableRecorder(POPOApplicationRecorder):
    """The library's recorder in memory, from which events can be erased; their ids are not used again."""

    def __init__(self) -> None:
        super().__init__()
        self._erased: set[int] = set()
        self.appended = threading.Condition()
        """Notified of what is inserted."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Insert events of one originator; a version below its last is not given again, though its event may be erased."""
        first = stored_events[0]
        with self._database_lock:
            # The library refuses a version twice, and the erased one is gone from its index: a late append would stand behind the tombstone.
            newest = next(reversed(self._stored_events_index[str(first.originator_id)]), 0)
            if first.originator_version < newest:
                msg = f"version {first.originator_version} was erased"
                raise IntegrityError(msg)
            positions = super().insert_events(stored_events, **kwargs)
        with self.appended:
            self.appended.notify_all()
        return positions

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Select notifications, without those that were erased."""
        standing: list[Notification] = []
        while len(standing) < limit:
            page = super().select_notifications(start, limit, stop, topics, inclusive_of_start=inclusive_of_start)
            if not page:
                break
            standing.extend(notification for notification in page if notification.id not in self._erased)
            start, inclusive_of_start = page[-1].id, False
        return standing[:limit]

    def put(self, record: Notification) -> None:
        """Put an event at its position, which is above all others; those in between are as if they were erased."""
        with self._database_lock:
            while len(self._stored_events) < record.id - 1:
                self._stored_events.append(StoredEvent(record.originator_id, 0, "", b""))
                self._erased.add(len(self._stored_events))
        super().insert_events(
            [StoredEvent(record.originator_id, record.originator_version, record.topic, record.state)]
        )

    def positions(self, originator_id: str) -> dict[int, int]:
        """The ids of an originator's events by version."""
        with self._database_lock:
            index = self._stored_events_index[originator_id]
            return {version: place + 1 for version, place in index.items()}

    def forget(self, positions: Sequence[int]) -> None:
        """Pass over the events of these ids from now on."""
        with self._database_lock:
            self._erased.update(positions)

    def replace(self, record: Notification, state: bytes) -> bool:
        """Put a state in the place of that of a record; False when there is another one by now."""
        with self._database_lock:
            place = record.id - 1
            if self._stored_events[place].state != record.state:
                return False
            self._stored_events[place] = StoredEvent(
                record.originator_id, record.originator_version, record.topic, state
            )
            return True

    def erase(self, originator_id: str, *, first: int, before: int) -> None:
        """Forget the events of an originator with ids from `first` to before `before`."""
        with self._database_lock:
            index = self._stored_events_index[originator_id]
            for version, place in list(index.items()):
                if first <= place + 1 < before:
                    self._stored_events[place] = StoredEvent(originator_id, version, "", b"")
                    self._erased.add(place + 1)
                    del index[version]


class MemoryLog(EventLog):
    """A log that lives as long as its ledger."""

    is_dense = True

    def __init__(self, mapper: StructMapper | None = None) -> None:
        self._events = ErasableRecorder()
        blob_storage = MemoryBlobStorage(chunk_bytes=CHUNK_BYTES)
        super().__init__(self._events, mapper or StructMapper(JSONTranscoder()), blob_storage)
        self.identity = f"memory:{uuid.uuid4()}"
        self._is_closed = False
        self._bookmarks: dict[str, Bookmark] = {}
        self._revision = 0

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        positions = self._events.positions(stream_id)
        return [
            Notification(stored.originator_id, stored.originator_version, stored.topic, stored.state, position)
            for stored in self._events.select_events(stream_id, gt=after_version)
            if (position := positions[stored.originator_version]) > after
        ][:limit]

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        self._events.erase(stream_id, first=first_position, before=before)

    def _replace(self, record: Notification, rewritten: Notification) -> bool:
        return self._events.replace(record, rewritten.state)

    def remove(self, positions: Sequence[int]) -> None:
        self._events.forget(positions)

    def restore(self, pages: Iterable[Sequence[Notification]], *, source: str | None = None) -> None:
        del source
        refuse_unless_empty(self.last_position())
        for page in pages:
            for record in page:
                self._events.put(record)

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._events.appended:
            while self.last_position() <= after and not self._is_closed:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._events.appended.wait(rest):
                    break
        return self.last_position() > after

    def load_bookmark(self, key: str) -> Bookmark | None:
        return self._bookmarks.get(key)

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        with self._events.appended:
            before = self._bookmarks.get(bookmark.key)
            if (0 if before is None else before.revision) != bookmark.revision:
                raise LostRaceError
            self._revision += 1
            saved = self._bookmarks[bookmark.key] = bookmark.saved_as(self._revision)
            return saved

    def bookmarks(self) -> list[Bookmark]:
        with self._events.appended:
            return list(self._bookmarks.values())

    def drop_bookmark(self, key: str) -> None:
        with self._events.appended:
            self._bookmarks.pop(key, None)

    def close(self) -> None:
        with self._events.appended:
            self._is_closed = True
            self._events.appended.notify_all()
