"""The library's recorders on JetStream."""

import threading
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    IntegrityError,
    Notification,
    OperationalError,
    ProcessRecorder,
    ProgrammingError,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from .append import MAX_BATCH, Ack, OutgoingMessage, SlotEmptyError, SlotTakenError, append_messages
from .client import Deadline, JetStreamClient
from .erase import erase
from .reading import PAGE, VERSION, LogMessage, StreamPages, at, last_on_subject
from .records import NOTHING, IdType, Records, SubjectHead, check_id_type, event_version
from .stream import StreamState, delete_stream, open_stream, stream_info
from .stream import is_shared as is_stream_shared
from .watcher import LogWatcher

HEADS = 10_000


class StreamRecorder:
    """
    The base of all recorders: an open stream. Not a recorder of the library itself, so that those can be combined.

    Args:
        client: The connection, which may serve many recorders.
        stream: The name of the stream; one per application.
        id_type: What originator ids are, `uuid` or `text`.
        create: Create the stream when it is absent. Never do so to get a lost stream back: see `StreamAbsentError`.
        replicas: Of a stream that is created now; 1 or 3.
        is_shared: Whether a stream that is created now can be held in shares.

    Raises:
        StreamAbsentError: There is no such stream, and `create` is False.
        InterfaceError: The login was refused, or the stream's configuration would lose events.
        OperationalError: No server answered within the client's budget.
    """

    gives_foreign: ClassVar[bool] = False
    """Whether messages of others are given, see `Records`."""
    may_be_shared: ClassVar[bool] = False
    """Whether streams that can be held in shares are opened, too."""

    def __init__(
        self,
        client: JetStreamClient,
        stream: str,
        *,
        id_type: IdType = "uuid",
        create: bool = False,
        replicas: int = 1,
        is_shared: bool = False,
    ) -> None:
        check_id_type(id_type)
        self._client, self._stream = client, stream
        info = open_stream(
            client, stream, create=create, replicas=replicas, is_shared=is_shared, may_be_shared=self.may_be_shared
        )
        self.records = Records(
            stream, id_type, gives_foreign=self.gives_foreign, is_shared=is_stream_shared(stream, info.config)
        )
        self.identity, self.replicas = info.identity, info.config.num_replicas
        self._heads: dict[str, SubjectHead] = {}
        self._reached, self._reaching = 0, threading.Lock()
        self.follow(None)

    def follow(self, subject: str | None) -> None:
        """Wait for messages on this subject only, which may have wildcards; for all when None. To be said before the first wait."""
        self._watcher = LogWatcher(self._client, self._stream, subject=subject)

    @property
    def stream(self) -> str:
        return self._stream

    def state(self) -> StreamState:
        """Return the state of the stream, from its leader, or from one that does not know yet that it was replaced (not linearizable)."""
        return stream_info(self._client, self._stream).state

    def last_position(self) -> int:
        """
        The position of the newest message that was ever stored, 0 when there was none; see `state`.

        Where several servers answer it never goes back, so what is read after it was asked for reaches it.
        """
        last = self.state().last
        return self.reach(last) if self.replicas > 1 else last

    def reach(self, position: int) -> int:
        """Note that the stream has reached a position. Returns the highest one that was noted."""
        with self._reaching:
            self._reached = max(self._reached, position)
            return self._reached

    def destroy(self) -> None:
        """Delete the stream with all it holds, for tests."""
        delete_stream(self._client, self._stream)
        self._reached = 0
        self._heads.clear()
        self._watcher.forget()

    def close(self) -> None:
        """Wake everybody who waits; they learn that there is nothing new. The client stays open."""
        self._watcher.close()

    def insert(self, messages: Sequence[OutgoingMessage]) -> int:
        """
        Append after what is the last message of each subject now, if all versions are above it. The last position.

        Repeats when somebody else was faster, until the versions tell that they came too late.
        """
        deadline = self._client.deadline()
        while True:
            first = self._expect_heads(messages, deadline)
            try:
                ack = append_messages(self._client, self._stream, messages, deadline, replicas=self.replicas)
            except (SlotTakenError, SlotEmptyError) as error:
                # The remembered heads were wrong, or will be: the next attempt reads them.
                for subject in first:
                    self._heads.pop(subject, None)
                # A taken slot is progress of others, and most often the versions now tell that we came too late.
                if deadline.left_s == 0 or (isinstance(error, SlotEmptyError) and not deadline.pause()):
                    msg = f"the originators in {self._stream} kept changing: {error}"
                    raise OperationalError(msg) from error
                continue
            except BaseException:
                # What was stored is unknown, or will be in a moment.
                for subject in first:
                    self._heads.pop(subject, None)
                raise
            self._remember(messages, ack)
            return ack.last

    def _expect_heads(self, messages: Sequence[OutgoingMessage], deadline: Deadline) -> list[str]:
        expected: dict[str, None] = {}
        for message in messages:
            # A repetition of the insert has the expectations of the attempt before.
            message.expected = None
            if message.subject in expected:
                continue
            expected[message.subject] = None
            version = int(message.headers[VERSION])
            head = self._heads.get(message.subject)
            # What is remembered may be out of date: before a conflict is raised, the log is asked.
            if head is None or head.version >= version:
                head = self._read_head(message.subject, deadline)
            if head.version >= version:
                self._heads.pop(message.subject, None)
                msg = f"{message.subject} is at {head.version} already, so {version} cannot be added"
                raise IntegrityError(msg)
            message.expected = head.position
        return list(expected)

    def _read_head(self, subject: str, deadline: Deadline) -> SubjectHead:
        last = last_on_subject(self._client, self._stream, subject, deadline)
        head = NOTHING if last is None else SubjectHead(event_version(last), last.position)
        self._put_head(subject, head)
        return head

    def _put_head(self, subject: str, head: SubjectHead) -> None:
        if len(self._heads) >= HEADS:
            self._heads.clear()
        self._heads[subject] = head

    def _remember(self, messages: Sequence[OutgoingMessage], ack: Ack) -> None:
        self._watcher.advance(ack.last)
        first = ack.last - len(messages) + 1
        for index, message in enumerate(messages):
            if ack.is_duplicate:
                # The position is an old one, and others may have followed.
                self._heads.pop(message.subject, None)
            else:
                self._put_head(message.subject, SubjectHead(int(message.headers[VERSION]), first + index))


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
        return self._insert_messages(self.records.messages(stored_events, message_ids), expected_position)

    def _insert_messages(self, messages: list[OutgoingMessage], expected_position: int | None) -> list[int]:
        if not messages:
            return []
        if expected_position is None:
            last = self.insert(messages)
        elif all(message.subject == messages[0].subject for message in messages):
            messages[0].expected = expected_position
            client = self._client
            last = append_messages(client, self._stream, messages, client.deadline(), replicas=self.replicas).last
        else:
            msg = "expected_position belongs to one originator, but the events are of several"
            raise ProgrammingError(msg)
        return list(range(last - len(messages) + 1, last + 1))

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
        messages = self._select(self.records.subject(originator_id), window)
        return [self.records.event(message) for message in messages]

    def _select(self, subject: str, window: "_Window") -> list[LogMessage]:
        deadline = self._client.deadline()
        until = 0
        is_last_wanted = window.is_descending and window.limit == 1
        # By the leader's last message the pages know whether a replica is behind; with one replica nothing is.
        if self.replicas > 1 or is_last_wanted:
            last = last_on_subject(self._client, self._stream, subject, deadline)
            if last is None:
                return []
            until = last.position
            if is_last_wanted and (window.lte is None or event_version(last) <= window.lte):
                return [last] if window.holds(last) else []
        pages = StreamPages(
            self._client, self._stream, deadline, after=window.after_position, subject=subject, until=until
        )
        messages: list[LogMessage] = []
        enough = None if window.is_descending else window.limit
        while not pages.is_complete and (enough is None or len(messages) < enough):
            page = pages.read(PAGE if enough is None or window.gt is not None else enough - len(messages))
            messages += filter(window.holds, page)
            if page and window.lte is not None and event_version(page[-1]) >= window.lte:
                break
        if window.is_descending:
            messages.reverse()
        return messages[: window.limit]


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
        return self.notifications(after, limit, stop=stop, topics=frozenset(topics))

    def notifications(
        self,
        after: int,
        limit: int,
        *,
        stop: int | None = None,
        topics: frozenset[str] = frozenset(),
        subject: str | None = None,
        after_version: int = NOTHING.version,
        is_one_answer: bool = False,
    ) -> list[Notification]:
        """
        Return notifications above a position, ascending, at most `limit` of them.

        Args:
            after: The position.
            limit: The number.
            stop: The last position.
            topics: Only these, all when empty.
            subject: Only of this subject.
            after_version: Only events above this version, and what is no event.
            is_one_answer: Only those of one answer of the server: maybe fewer than there are, but none only at the end.

        Raises:
            OperationalError: No answer within the budget.
        """
        deadline, until = self._client.deadline(), 0
        if self.replicas > 1:  # one that is behind may answer
            last = None if subject is None else last_on_subject(self._client, self._stream, subject, deadline)
            until = self.last_position() if subject is None else 0 if last is None else last.position
            until = until if stop is None else min(until, stop)
        pages = StreamPages(self._client, self._stream, deadline, after=after, subject=subject, until=until)
        wanted: list[Notification] = []
        is_filtered = bool(topics) or after_version > 0
        while not pages.is_complete and len(wanted) < limit and not (wanted and is_one_answer):
            for message in pages.read(PAGE if is_filtered else limit - len(wanted)):
                if stop is not None and message.position > stop:
                    return wanted
                notification = self.records.notification(message)
                if notification is None or (topics and notification.topic not in topics):
                    continue
                if notification.originator_version > after_version or not notification.topic:
                    wanted.append(notification)
        return wanted[:limit]

    def max_notification_id(self) -> int | None:
        """The position of the newest event, None when there is none."""
        state = self.state()
        if state.messages == 0:
            return None
        deadline = self._client.deadline()
        prefix = self.records.prefix
        # One message is a fast question; the last one under a wildcard takes 48 ms among a million subjects.
        tail = at(self._client, self._stream, state.last, deadline)
        if tail is None or not tail.subject.startswith(prefix):
            # Rare, and slow among many subjects: the tail was erased, or is a tracking record.
            tail = last_on_subject(self._client, self._stream, prefix + ">", deadline)
        return None if tail is None else tail.position

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """All notifications above `gt`, also those to come; see `JetStreamSubscription`."""
        from .subscription import JetStreamSubscription

        return JetStreamSubscription(
            self, gt, topics, client=self._client, stream=self._stream, decode=self.records.notification
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
        return self.erase_subject(self.records.subject(originator_id), after=after, before=before)

    def erase_subject(self, subject: str, *, after: int, before: int) -> int:
        """Erase the events on a subject; see `erase_events`."""
        with self._client.erasing():
            self._heads.pop(subject, None)
            try:
                return erase(self._client, self._stream, subject, after=after, before=before)
            finally:
                self._heads.pop(subject, None)  # another thread may have read the old one meanwhile


class JetStreamApplicationRecorder(StreamApplicationRecorder):
    """The events of an application, and ways to wait for more of them."""

    def wait(self, after: int, timeout_s: float) -> bool:
        """Whether the stream has a message above `after`, now or within `timeout_s`; False after `close`."""
        return self._watcher.wait(after, timeout_s)

    def news(self, after: int) -> list[Notification]:
        """Return what follows a position and has just arrived; maybe not all, nor anything."""
        arrived = map(self.records.notification, self._watcher.news.after(after))
        return [notification for notification in arrived if notification is not None]

    def forget_news(self) -> None:
        """Forget what has arrived, as some of it may be erased."""
        self._watcher.news.forget()


class JetStreamTrackingRecorder(StreamRecorder, TrackingRecorder):
    """Tracking records, one message each, on a subject per application."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """
        Store a tracking record.

        Raises:
            IntegrityError: Its position is not above the last one of that application.
        """
        self.insert([self.records.tracking_message(tracking)])

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last tracked position of that application, None when there is none."""
        head = self._read_head(self.records.tracking_subject(application_name), self._client.deadline())
        return None if head is NOTHING else head.version


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
        messages = self.records.messages(stored_events, message_ids)
        if tracking is None:
            return self._insert_messages(messages, expected_position)
        if expected_position is not None:
            msg = "expected_position and tracking exclude each other"
            raise ProgrammingError(msg)
        if len(messages) >= MAX_BATCH:
            msg = f"{len(messages)} events and a tracking record in one insert; the server takes {MAX_BATCH}"
            raise ProgrammingError(msg)
        # First, so that the events keep contiguous positions.
        return self._insert_messages([self.records.tracking_message(tracking), *messages], None)[1:]
