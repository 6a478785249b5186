"""The library's recorders on JetStream."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import msgspec
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    Notification,
    ProcessRecorder,
    ProgrammingError,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from .append import MAX_BATCH, Message
from .blocking_appends import NOT_SENT, BlockingAppends, SendOutcome
from .blocking_reading import read_blocking
from .client import Deadline
from .erase import erase
from .errors import OutcomeUnknownError
from .reading import PAGE, LogMessage, Pages, at, last_on_subject
from .recorder_base import StreamRecorder
from .records import NOTHING, Head, event_version
from .stream import event_prefix
from .subscription import JetStreamSubscription


class JetStreamAggregateRecorder(StreamRecorder, AggregateRecorder):
    """Events of aggregates, or snapshots, in a stream of their own."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """
        Store events, all or none; see `JetStreamApplicationRecorder.insert_events`.

        Returns:
            None, as the library asks of aggregate recorders.
        """
        self._insert_events(stored_events, **kwargs)
        return None

    def _insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        expected_position: int | None = None,
        message_ids: Sequence[str] | None = None,
        tracking: Tracking | None = None,
        **_: Any,
    ) -> list[int]:
        del tracking
        return self._insert_messages(self._records.messages(stored_events, message_ids), expected_position)

    def _insert_messages(self, messages: list[Message], expected_position: int | None) -> list[int]:
        if not messages:
            return []
        if expected_position is None:
            last = self._client.call(self._insert, messages)
        elif all(message.subject == messages[0].subject for message in messages):
            last = self._insert_expected(messages, expected_position)
        else:
            msg = "expected_position belongs to one originator, but the events are of several"
            raise ProgrammingError(msg)
        return list(range(last - len(messages) + 1, last + 1))

    def _insert_expected(self, messages: list[Message], position: int) -> int:
        """Append after a position: a single message over the appends, if there is one and nothing is in the way."""
        deadline, outcome = self._client.deadline(), NOT_SENT
        appends = self.begin_blocking_appends() if len(messages) == 1 else None
        if appends is not None:
            messages[0].expected = position
            appends.send(messages[0])
            (outcome,) = appends.finish()
            if outcome.position is not None:
                return outcome.position
        return self._insert_settled(messages, position, deadline, outcome)

    def begin_blocking_appends(self) -> BlockingAppends | None:
        """Begin to append messages, each on a subject of its own, at the same time; None when that is not possible now."""
        return BlockingAppends.begin(self._client) if self._replicas == 1 else None

    def message_of(self, event: StoredEvent, message_id: str, expected_position: int) -> Message:
        """The message of an event that is to follow a position."""
        (message,) = self._records.messages([event], [message_id])
        message.expected = expected_position
        return message

    def start_insert(self, message: Message) -> "Future[int]":
        """Begin to append a message to where it expects to be, on the shared connection; gives its position later."""

        async def insert() -> int:
            assert message.expected is not None, "it is sent with an expectation"
            deadline = self._client.deadline()
            return await self._insert_at([message], message.expected, deadline, is_uncertain=False)

        return self._client.start(insert)

    def settle(self, message: Message, outcome: SendOutcome) -> int:
        """Append a message that may be stored already, and tell its position; raises as `insert_events`."""
        assert message.expected is not None, "it was sent with an expectation"
        return self._insert_settled([message], message.expected, self._client.deadline(), outcome)

    def _insert_settled(self, messages: list[Message], position: int, deadline: Deadline, before: SendOutcome) -> int:
        """Append after a position, and find out about what an attempt before may have stored."""

        async def insert() -> int:
            return await self._insert_at(messages, position, deadline, is_uncertain=before.is_uncertain)

        try:
            return self._client.call(insert)
        except ProgrammingError as error:
            if not before.is_uncertain:
                raise
            msg = f"appending to {self._stream}: {error}. The append may be stored; repeating it with the same ids is safe"
            raise OutcomeUnknownError(msg) from error

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
        after_position: int = 0,
    ) -> Sequence[StoredEvent]:
        """
        Events of an originator, by version.

        `after_position` is ours: look above this position only; knowing it spares the server a search.

        Raises:
            OperationalError: No answer within the budget.
        """
        if limit is not None and limit <= 0:
            return []
        window = _Window(gt=gt, lte=lte, limit=limit, after_position=after_position, is_descending=desc)
        messages = self._client.call(self._select, self._records.subject(originator_id), window)
        return [self._records.event(message) for message in messages]

    async def _select(self, subject: str, window: "_Window") -> list[LogMessage]:
        deadline = self._client.deadline()
        until = 0
        is_last_wanted = window.is_descending and window.limit == 1
        if self._replicas > 1 or is_last_wanted:
            last = await last_on_subject(self._client, self._stream, subject, deadline)
            if last is None:
                return []
            until = last.position
            if is_last_wanted and (window.lte is None or event_version(last) <= window.lte):
                return [last] if window.holds(last) else []
        pages = Pages(self._client, self._stream, deadline, after=window.after_position, subject=subject, until=until)
        found: list[LogMessage] = []
        enough = None if window.is_descending else window.limit
        while not pages.is_complete and (enough is None or len(found) < enough):
            page = await pages.read(PAGE if enough is None or window.gt is not None else enough - len(found))
            found += filter(window.holds, page)
            if page and window.lte is not None and event_version(page[-1]) >= window.lte:
                break
        if window.is_descending:
            found.reverse()
        return found[: window.limit]


class _Window(msgspec.Struct):
    gt: int | None
    lte: int | None
    limit: int | None
    after_position: int
    is_descending: bool

    def holds(self, message: LogMessage) -> bool:
        version = event_version(message)
        return (self.gt is None or version > self.gt) and (self.lte is None or version <= self.lte)


class StreamApplicationRecorder(JetStreamAggregateRecorder, ApplicationRecorder):
    """The events of an application, in the order of its stream: what application and process recorders share."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """
        Store events, all or none, and return their positions.

        Args:
            stored_events: At most 1000. Several events are one atomic batch, which takes 3 ms or more with one replica.
            **kwargs: As below; others are ignored.
            expected_position: The position of the originator's last event, 0 when it has none; for events of one
                originator. Without it the last event is looked up, or remembered, and versions must be above its.
            message_ids: An id per event. A call with the ids and the expected position of an earlier one stores nothing
                twice, and returns the positions of the first.

        Raises:
            IntegrityError: Somebody else appended to an originator, or a version exists. Nothing was written.
            OutcomeUnknownError: No answer came; the events may be stored, once.
            OperationalError, StorageFullError, DataError, ProgrammingError: Nothing was written.
            DamagedLogError: The log lacks `expected_position`.
        """
        return self._insert_events(stored_events, **kwargs)

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """
        Notifications from `start` to `stop`, ascending, at most `limit` of them.

        Raises:
            OperationalError: No answer within the budget.
        """
        if limit <= 0:
            return []
        after = 0 if start is None else start - 1 if inclusive_of_start else start
        if stop is None and not topics:
            page = self._read_blocking(after, limit)
            if page is not None:
                return page
        return self._client.call(self._notifications, after, limit, stop, frozenset(topics))

    def select_page(self, after: int, limit: int) -> Sequence[Notification]:
        """Notifications above a position, ascending: one answer of the server, where that is possible, so maybe fewer."""
        page = self._read_blocking(after, limit, is_one_answer=True)
        return self.select_notifications(after, limit, inclusive_of_start=False) if page is None else page

    def _read_blocking(self, after: int, limit: int, *, is_one_answer: bool = False) -> list[Notification] | None:
        """Notifications above a position; None when they are to be read otherwise."""
        if self._replicas > 1:
            return None
        read = read_blocking(self._client, self._stream, after=after, limit=limit, is_one_answer=is_one_answer)
        if read is None:
            return None
        found = [self._records.notification(message) for message in read]
        page = [notification for notification in found if notification is not None]
        return page if page or not read else None

    async def _notifications(
        self, after: int, limit: int, stop: int | None, topics: frozenset[str]
    ) -> list[Notification]:
        deadline = self._client.deadline()
        until = (await self._state()).last if self._replicas > 1 else 0
        pages = Pages(self._client, self._stream, deadline, after=after, until=min(until, stop or until))
        found: list[Notification] = []
        while not pages.is_complete and len(found) < limit:
            for message in await pages.read(PAGE if topics else limit - len(found)):
                if stop is not None and message.position > stop:
                    return found
                notification = self._records.notification(message)
                if notification is not None and (not topics or notification.topic in topics):
                    found.append(notification)
                    if len(found) == limit:
                        return found
        return found

    def max_notification_id(self) -> int | None:
        """The position of the newest event, None when there is none."""
        return self._client.call(self._max_notification_id)

    async def _max_notification_id(self) -> int | None:
        state = await self._state()
        if state.messages == 0:
            return None
        deadline = self._client.deadline()
        prefix = event_prefix(self._stream)
        tail = await at(self._client, self._stream, state.last, deadline)
        if tail is None or not tail.subject.startswith(prefix):
            # Rare, and slow among many subjects: the tail was erased, or is a tracking record.
            tail = await last_on_subject(self._client, self._stream, prefix + ">", deadline)
        return None if tail is None else tail.position

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """All notifications above `gt`, also those to come; see `JetStreamSubscription`."""
        return JetStreamSubscription(
            self, gt, topics, client=self._client, stream=self._stream, decode=self._records.notification
        )

    def erase_events(self, originator_id: UUID | str, *, after: int = 0, before: int) -> int:
        """
        Overwrite and delete the originator's events between two positions, both exclusive, newest first.

        What a crash leaves is the older part, so repeating the call completes it.

        Returns:
            How many were erased by this call.

        Raises:
            OperationalError: Not all were erased within the budget; call again.
        """
        subject = self._records.subject(originator_id)
        with self._client.erasing():
            return self._client.call(self._erase, subject, after, before)

    async def _erase(self, subject: str, after: int, before: int) -> int:
        self._heads.drop(subject)
        try:
            return await erase(self._client, self._stream, subject, after=after, before=before)
        finally:
            self._heads.drop(subject)


class JetStreamApplicationRecorder(StreamApplicationRecorder):
    """The events of an application, and a way to wait for more of them."""

    def wait(self, after: int, timeout_s: float) -> bool:
        """Whether the stream has a message above `after`, now or within `timeout_s`; False after `close`."""
        return self._watcher.wait(after, timeout_s)


class JetStreamTrackingRecorder(StreamRecorder, TrackingRecorder):
    """Tracking records, one message each, on a subject per application."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """
        Store a tracking record.

        Raises:
            IntegrityError: Its position is not above the last one of that application.
        """
        self._client.call(self._insert, [self._records.tracking_message(tracking)])

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last tracked position of that application, None when there is none."""
        head = self._client.call(self._tracked, self._records.tracking_subject(application_name))
        return None if head is NOTHING else head.version

    async def _tracked(self, subject: str) -> Head:
        return await self._read_head(subject, self._client.deadline())


class JetStreamProcessRecorder(JetStreamTrackingRecorder, StreamApplicationRecorder, ProcessRecorder):
    """Events and the tracking record of what caused them, all or none."""

    def _insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        expected_position: int | None = None,
        message_ids: Sequence[str] | None = None,
        tracking: Tracking | None = None,
        **_: Any,
    ) -> list[int]:
        messages = self._records.messages(stored_events, message_ids)
        if tracking is None:
            return self._insert_messages(messages, expected_position)
        if expected_position is not None:
            msg = "expected_position and tracking exclude each other"
            raise ProgrammingError(msg)
        if len(messages) >= MAX_BATCH:
            msg = f"{len(messages)} events and a tracking record in one insert; the server takes {MAX_BATCH}"
            raise ProgrammingError(msg)
        # First, so that the events keep contiguous positions.
        return self._insert_messages([self._records.tracking_message(tracking), *messages], None)[1:]
