"""The port of a log: the operations that a ledger needs."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

from eventsourcing.persistence import ApplicationRecorder, IntegrityError, Notification

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChatledgerError, ConfigurationError, CorruptStateError, LogUnavailableError
from chatledger.domain.log.codec import EncodedEvent
from chatledger.domain.log.shares import Share

from .blob_storage import BlobStorage
from .blobs import Blobs, MissingBlobError
from .bookmarks import Bookmark
from .cipher import RecordCipher, is_encrypted, key_named
from .errors import translated
from .live import LiveStreams
from .live_storage import LiveStorage, MemoryLiveStorage
from .mapper import StructMapper

Outcome = list[int] | Exception
"""The positions of the events of a commit, or what `EventLog.append` raises."""


class Appends:
    """Commits that any log can write: one after the other, when all are there."""

    def __init__(self, log: "EventLog") -> None:
        self._log = log
        self._commits: list[tuple[str, Sequence[EncodedEvent], int]] = []
        self._is_silent = False

    def add(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> None:
        """Take a commit in; see `EventLog.append`. Never waits."""
        self._commits.append((stream_id, events, expected_position))

    def finish(self) -> list[Outcome]:
        """Wait for all of them: what became of each. To be called in any case, and by the same thread."""
        return [self._write(*commit) for commit in self._commits]

    def _write(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> Outcome:
        return self._tried(stream_id, lambda: self._log.append(stream_id, events, expected_position=expected_position))

    def _tried(self, stream_id: str, write: Callable[[], list[int]]) -> Outcome:
        """Return the outcome of a commit. After one without an answer, the others are not waited for."""
        if self._is_silent:
            msg = f"chat {stream_id!r}: the log did not answer. The outcome is unknown; retrying is safe"
            return LogUnavailableError(msg)
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - it is raised where that commit comes from
            # Each of the others would wait for its whole time too, while all callers wait for the slowest.
            self._is_silent = isinstance(error, LogUnavailableError)
            return error


T = TypeVar("T")

READ_PAGE: Final = 1000
NEAR: Final = 4
"""The distance within which events are read together, with what is between them."""
READ_PAGE_BYTES: Final = 32 * 1024 * 1024
"""A page ends with the event by which it exceeds this, so that large data do not restore the memory."""
GONE_TRIES: Final = 5
GONE_PAUSE_S: Final = 0.05


class LostRaceError(Exception):
    """Another writer appended to the chat since it was read; nothing was written."""


class EventLog(ABC):
    """
    An append-only log of the events of chats, on a recorder of the eventsourcing library.

    `identity` tells one log from another at the same location; `is_dense` says that positions have no gaps but those of
    erased events, `is_checked` that it does not give what was damaged. What others wrote to it is given as a `ForeignMessage`. Errors of the library are raised as `ChatledgerError`.
    """

    is_dense = False
    is_checked = False
    share: Share | None = None
    """The share of the chats that is followed: `read`, `last_position` and `wait` know no others. None for all."""
    identity: str
    max_event_bytes: int | None = None
    """The size limit of the log for an event, where that is less than a ledger's own."""

    def __init__(
        self,
        recorder: ApplicationRecorder,
        mapper: StructMapper,
        blob_storage: BlobStorage,
        live_storage: LiveStorage | None = None,
    ) -> None:
        self._recorder, self._mapper = recorder, mapper
        self.blobs = mapper.blobs = Blobs(blob_storage, mapper)
        self.live = LiveStreams(live_storage or MemoryLiveStorage(), mapper)

    def append(self, stream_id: str, events: Sequence[EncodedEvent], *, expected_position: int) -> list[int]:
        """
        Write the events of one commit, all or none, and return their positions.

        Raises:
            LostRaceError: The chat's last event is not at `expected_position` any more.
            LogUnavailableError: No answer; the outcome is unknown, trying again is safe.
        """
        large = [(part.digest, memoryview(part.data)) for encoded in events for part in encoded.large]
        if not large:
            return self._append(stream_id, events, expected_position)
        return self.blobs.referring(large, lambda: self._append(stream_id, events, expected_position))

    def begin_appends(self) -> Appends:
        """Begin to write several commits at the same time, each of another chat."""
        return Appends(self)

    def _append(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> list[int]:
        del expected_position  # these recorders go by the versions alone
        # Under a fresh nonce: an attempt that is repeated has other bytes. Whose event it is says the id, see `_find`.
        stored = [self._mapper.store_encoded(encoded) for encoded in events]
        # Not by `except` alone: logs in databases count in it who uses a connection, which must not be closed meanwhile.
        with self.translated(f"chat {stream_id!r}", is_write=True):
            try:
                positions = self._recorder.insert_events(stored)
            except IntegrityError as error:
                # A refusal may be about an attempt of our own whose answer was lost: taken for a conflict, the command would happen twice.
                positions = self._find(stream_id, events)
                if positions is None:
                    raise LostRaceError from error
        assert positions is not None, "an application recorder returns positions"
        return list(positions)

    def _find(self, stream_id: str, events: Sequence[EncodedEvent]) -> list[int] | None:
        """The positions of these very events, when an earlier attempt of ours did store them."""
        first = events[0].event
        ours = [
            recorded
            for recorded in self.read_stream(
                stream_id, after=0, limit=len(events), after_version=first.originator_version - 1
            )
            if recorded.event_id in {encoded.event.event_id for encoded in events}
        ]
        return [recorded.position for recorded in ours] if len(ours) == len(events) else None

    def read(self, after: int, limit: int = READ_PAGE) -> list[Recorded]:
        """The next events after a position, in order, not always as many as there are; none at the end of the log."""
        return self._next_of("the log", after, partial(self._select_page, limit=limit), self._mapper.read)

    def _next_of(
        self,
        what: str,
        after: int,
        select: Callable[[int], Sequence[Notification]],
        read: Callable[[Notification], tuple[T, int]],
    ) -> list[T]:
        """Read the next page of which anything is there: all events of a page may have been erased. None at the end."""
        while True:
            with self.translated(what):
                page = select(after)
            taken = self._taken(page, read)
            if taken or not page:
                return taken
            after = page[-1].id

    def news(self, after: int) -> list[Recorded]:
        """
        Return the next events after a position, without a gap, that `wait` brought just now; often none, or not all.

        They were on the log a moment ago. Whoever shows them looks whether their stream was deleted since.
        """
        return self._taken(self._select_news(after), self._mapper.read)

    def _select_news(self, after: int) -> Sequence[Notification]:
        """The stored events after a position that came by themselves."""
        del after
        return ()

    def _select_page(self, after: int, limit: int) -> Sequence[Notification]:
        """The stored events after a position, in order: not always as many as there are, but none only at the end."""
        return self._recorder.select_notifications(after, limit, inclusive_of_start=False)

    def read_stream(
        self, stream_id: str, *, after: int, limit: int = READ_PAGE, after_version: int = 0
    ) -> list[Recorded]:
        """Return the next events of a stream (a chat, thread or state) after a position (and a version), as `read` does."""
        return self._next_of(
            f"chat {stream_id!r}",
            after,
            lambda position: self._select_stream(stream_id, after=position, after_version=after_version, limit=limit),
            self._mapper.read,
        )

    def _taken(self, page: Sequence[Notification], read: Callable[[Notification], tuple[T, int]]) -> list[T]:
        """The events of a page, as `read` gives them, without those that were erased meanwhile, until it is large enough."""
        taken: list[T] = []
        size = 0
        with self.translated("large data"):
            for notification in page:
                try:
                    event, event_bytes = read(notification)
                except MissingBlobError:
                    again = self._if_there(notification, read)
                    if again is None:
                        continue
                    event, event_bytes = again
                taken.append(event)
                size += event_bytes
                if size > READ_PAGE_BYTES:
                    break
        return taken

    def _if_there(self, notification: Notification, read: Callable[[Notification], T]) -> T | None:
        """Return the result of `read` for a notification; None when the event was erased after that was read."""
        # That an event has no data is no damage yet: it may be erased just now, or the answer came from a replica that is behind.
        for attempt in range(GONE_TRIES):
            try:
                with self.translated("large data"):
                    return read(notification)
            except MissingBlobError as error:
                # Large data are erased after the events, so what lacks its data may be gone itself.
                with self.translated("the log"):
                    stored = self._recorder.select_notifications(notification.id, 1, stop=notification.id)
                if not stored:
                    return None
                if attempt == GONE_TRIES - 1:
                    raise self._mapper.located(notification, error) from error
                # Its content may have been redacted since, and the data with it: then another record stands there.
                notification = stored[0]
            time.sleep(GONE_PAUSE_S)  # a replica may have answered that is behind
        raise AssertionError

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position; None where it was erased, or beyond the end."""
        with self.translated("the log"):
            page = self._recorder.select_notifications(position, 1, stop=position)
        read = self._if_there(page[0], self._mapper.read) if page else None
        return None if read is None else read[0]

    def event_bytes(self, position: int) -> bytes | None:
        """The bytes of the event at a position, which its hash is over; None where it was erased."""
        return self.bytes_at([position]).get(position)

    def bytes_at(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The bytes of the events at ascending positions, without those that were erased; what stands together is read together."""
        bytes_by_position: dict[int, bytes] = {}
        start = 0
        for end in range(1, len(positions) + 1):
            if end < len(positions) and positions[end] - positions[end - 1] <= NEAR:
                continue
            first, last = positions[start], positions[end - 1]
            with self.translated("the log"):
                page = self._recorder.select_notifications(first, last - first + 1, stop=last)
            wanted = set(positions[start:end])
            for notification in page:
                state = self._if_there(notification, self._mapper.event_bytes) if notification.id in wanted else None
                if state is not None:
                    bytes_by_position[notification.id] = state
            start = end
        return bytes_by_position

    def stored(self, after: int, limit: int = READ_PAGE) -> list[Notification]:
        """The records of the next events after a position, as `read` gives the events: whole, with their large data."""

        def whole(notification: Notification) -> tuple[Notification, int]:
            record = self._mapper.whole(notification)
            return record, len(record.state)

        select = self._recorder.select_notifications
        return self._next_of(
            "the log", after, lambda position: select(position, limit, inclusive_of_start=False), whole
        )

    def packed(self, record: Notification, plain: bytes | None) -> Notification:
        """Return a record with these bytes in it as this log stores them; as it is where they are None."""
        return record if plain is None else self._mapper.packed(record, plain)

    def without(self, record: Notification, slots: Collection[int]) -> Notification:
        """Return a record without the content of these slots, as this log stores it; as it is where they have none."""
        return self._mapper.without(record, slots)

    def decode(self, record: Notification) -> Recorded:
        """The event in a record. Raises `CorruptStateError` and the like when it cannot be read."""
        return self._mapper.recorded(record)

    def last_position(self) -> int:
        """
        The position of the last event; 0 for an empty log.

        Never ahead of the log. It may be behind for some seconds where several servers keep it; see `committed_position`.
        """
        with self.translated("the log"):
            return self._recorder.max_notification_id() or 0

    def committed_position(self) -> int:
        """`last_position`, behind all that was acknowledged before this call, to whomever; what `Ledger.sync` waits for."""
        return self.last_position()

    def settled_position(self, seen: int) -> int:
        """Where the log ends, whatever part of it is held. That it ends before a position that was seen is certain."""
        del seen
        return self.committed_position()

    def count(self) -> int | None:
        """Return how many events the log has (of its share), whether or not they can be read; None where that takes long to know."""
        return None

    def bucket(self, stream_id: str) -> int | None:
        """The bucket that a stream of a log with shares is in, `UNSHARED` for none; None where there is no such stream."""
        raise NotImplementedError(stream_id)

    def stream_alone(self, stream_id: str) -> "EventLog":
        """Return a log with shares as one with the events of this stream only. It ends with this one."""
        raise NotImplementedError(stream_id)

    @property
    def cipher(self) -> RecordCipher | None:
        """The cipher of the log's events; None when they are in clear."""
        cipher = self._mapper.cipher
        return cipher if isinstance(cipher, RecordCipher) else None

    def check_keys(self) -> None:
        """
        Read the first and the last event, before anything is derived from the log or written to it.

        Raises:
            ConfigurationError: The log is encrypted and no key was given, or the other way round.
            CorruptStateError: The keys are not those of this log.
        """
        first = self._first_event()
        if first is None:
            return
        # The keys are looked at before anything is written: an event under a wrong key, behind those of the right one, helps nobody.
        if is_encrypted(first.state):
            self._if_there(first, self._mapper.read_strictly)
            last = self.last_position()
            try:
                self.event_at(last)
            except CorruptStateError:
                # A damaged end must not be reported as a wrong key: whoever believes it looks for keys that were never lost.
                if not self._is_key_proven(last, first):
                    raise
        elif self.cipher is None:
            # From now on an encrypted record is foreign or damaged; until then it may be one whose key is missing.
            self._mapper.is_in_clear = True
        else:
            msg = (
                "this log is not encrypted, and with a key clear text is not accepted. Open it without encryption, or "
                "export its chats and import them into a new, encrypted ledger"
            )
            raise ConfigurationError(msg)

    def _is_key_proven(self, position: int, first: Notification) -> bool:
        """Whether the key that the event at a position names opens another one, so that it is the event that is damaged."""
        with self.translated("the log"):
            page = self._recorder.select_notifications(
                max(position - READ_PAGE, 0), READ_PAGE, inclusive_of_start=False
            )
        if not page or page[-1].id != position:
            return False
        named = key_named(page[-1].state)
        for other in (first, *page[-2::-1]):
            if named is not None and other.id != position and key_named(other.state) == named:
                try:
                    self._mapper.read_strictly(other)
                except (ChatledgerError, MissingBlobError):
                    continue
                return True
        return False

    def _first_event(self) -> Notification | None:
        """The first record that is not plainly a foreign message."""
        after = 0
        while True:
            with self.translated("the log"):
                # One is enough in nearly all logs: others' messages may come first only where others may write.
                page = self._recorder.select_notifications(after, READ_PAGE if after else 1, inclusive_of_start=False)
            for notification in page:
                if self._mapper.may_be_event(notification):
                    return notification
            if not page:
                return None
            after = page[-1].id

    def translated(self, what: str, *, is_write: bool = False) -> AbstractContextManager[None]:
        """Translate the recorder's errors into ours."""
        return translated(what, is_write=is_write, special=self.special_error)

    @staticmethod
    def special_error(error: Exception, what: str) -> ChatledgerError | None:
        """Return our error for one that only this kind of log has; None for those of the library."""
        del error, what
        return None

    @abstractmethod
    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        """Return the stored events of a stream after a position and a version, in order."""

    @abstractmethod
    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        """Remove the content of a stream's events from the files of the log. Idempotent."""

    def rewrite(self, position: int, slots: Collection[int]) -> bool:
        """
        Take the content of slots of an event out of the files of the log. Its hash stays, and whatever was taken away before.

        Slots are numbered as in `RawEvent`; those without content stay as they are. Idempotent: after an error, call it again. Large
        data beside the log are not touched. An event that says what was redacted has to follow in the stream: by that hole others
        notice what was rewritten, and never by one at the end.

        Returns:
            Whether there is such an event; False where it was erased.

        Raises:
            ValueError: Nothing follows it in its stream.
            CorruptStateError: It cannot be read, or could not be without that content; or what stands there is no event.
            AccessDeniedError: The login may not do that.
            LogUnavailableError: No answer; call it again.
        """
        while True:
            with self.translated("the log"):
                record = self._newest_at(position)
            if record is None:
                return False
            rewritten = self._mapper.without(record, slots)
            with self.translated("the log"):
                following = self._select_stream(
                    str(record.originator_id), after=position, after_version=record.originator_version, limit=1
                )
            if not following:
                msg = f"the event at position {position} is the last of its stream: an event that says what is redacted comes first"
                raise ValueError(msg)
            with self.translated("the log"):
                if self._replace(record, rewritten):
                    return True

    def _newest_at(self, position: int) -> Notification | None:
        """The record at a position, of which nothing was taken away that is not missing in it."""
        page = self._recorder.select_notifications(position, 1, stop=position)
        return page[0] if page else None

    @abstractmethod
    def _replace(self, record: Notification, rewritten: Notification) -> bool:
        """
        Put a record in the place of one that was read, and leave nothing of that in the files of the log; whether it was still there.

        They may be the same: an earlier call may have been interrupted before the files were cleaned.
        """

    def erasing(self) -> AbstractContextManager[None]:
        """
        Entered while events and large data are erased, by one call after another.

        A log whose files may keep what was erased, if its server dies meanwhile, leaves a note for the next one to start.
        """
        return nullcontext()

    @abstractmethod
    def remove(self, positions: Sequence[int]) -> None:
        """Delete what stands at these positions, which is nothing of ours."""

    def restored_position(self, source: str) -> int | None:
        """
        The position up to which an interrupted restore from a source came, to go on behind it: 0 where none was interrupted.

        None where one from another source was, such as from a backup that has changed since, or under another key: see `drop_partial`.
        """
        del source
        return 0

    def drop_partial(self) -> None:
        """Delete the log, as a restore into it was interrupted. It cannot be used after it."""
        raise NotImplementedError

    @abstractmethod
    def restore(self, pages: Iterable[Sequence[Notification]], *, source: str | None = None) -> None:
        """
        Write the records of a backup, with their positions, into this log, which is empty.

        With the name of a `source`, a log that does not write all of them at once is refused by whoever opens it until `finish_restore`,
        and takes those behind `restored_position`.

        Raises:
            ConfigurationError: It is not empty.
        """

    def finish_restore(self) -> None:  # noqa: B027 - a log that is restored in one transaction has nothing to do
        """Let a log be opened that was restored from a named source."""

    @abstractmethod
    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until the log has an event after a position; False when the time is over or the log closed."""

    @abstractmethod
    def load_bookmark(self, key: str) -> Bookmark | None:
        """Return the bookmark of a member of a named feed; None when there is none under that key."""

    @abstractmethod
    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """
        Keep a bookmark in place of the one with its revision, as durably as events are; returns it with the new revision.

        Raises:
            LostRaceError: Another one is there, or none any more; nothing was changed.
            LogUnavailableError: No answer; the outcome is unknown.
        """

    @abstractmethod
    def bookmarks(self) -> list[Bookmark]:
        """All bookmarks of feeds and backups, in no order."""

    @abstractmethod
    def drop_bookmark(self, key: str) -> None:
        """Forget a bookmark; nothing happens when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Release what the log holds; calling it again does nothing."""


def refuse_unless_empty(count: int) -> None:
    """Raise `ConfigurationError` when a log to restore into has events."""
    if count:
        msg = "the log is not empty, and a backup is restored into an empty place only; give another one"
        raise ConfigurationError(msg)
