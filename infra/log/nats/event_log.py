"""A log on a JetStream stream: one subject per chat, appends compared with the chat's last position by the server."""

import contextlib
import copy
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Final, NoReturn

from eventsourcing.domain import EventSourcingError
from eventsourcing.persistence import IntegrityError, JSONTranscoder, Notification, StoredEvent

from chatledger.domain.chat.events import StreamDeleted
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatExistsError,
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    LogUnavailableError,
)
from chatledger.domain.log.codec import EncodedEvent
from chatledger.domain.log.parts import is_without
from chatledger.domain.log.shares import UNSHARED, Share, bucket_of, owner_named
from chatledger.projections.projector import find_tombstone

from ..bookmarks import Bookmark, decode_bookmark, decode_bookmarks, encode_bookmark
from ..errors import ledger_error
from ..mapper import StructMapper
from ..port import Appends, EventLog, LostRaceError, Outcome, refuse_unless_empty
from .append import EXPECTED_ON, FirstAttempts, OutgoingMessage, append_messages
from .auxiliary import JetStreamBlobStorage, KeyValue, bucket_stream
from .client import JetStreamClient
from .erase import erase_all
from .errors import NotPermittedError, special_error, translated
from .live import JetStreamLiveStorage
from .reading import Barrier, StreamPages, last_on_subject
from .reading import at as message_at
from .recorders import HEADS, JetStreamApplicationRecorder
from .records import NOTHING
from .restoring import finish_restore, restore_with_gaps, source_of_partial
from .rewritten import REDACTED, RewrittenRecords
from .stream import delete_stream
from .subjects import ANY_PLACE, bucket_at, place_of, places_in

_QUICK_BYTES: Final = 64 * 1024
_BATCH_EVENTS: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
_FEWEST: Final = 2
"""So few commits make a batch, which holds so many events and bytes of them at most."""


class JetStreamAppends(Appends):
    """
    Commits of one small event are sent as they come, and acknowledged while the next ones are decided on. From the first of
    several events on they are written afterwards, in order: many in one atomic batch, which costs the server as much as one
    of them, and then one after the other those with large data and those of a batch that was refused.
    """

    def __init__(self, log: "JetStreamLog", attempts: FirstAttempts) -> None:
        super().__init__(log)
        self._jetstream_log, self._attempts = log, attempts
        self._sent: list[list[OutgoingMessage]] = []
        self._is_quick = True

    def add(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> None:
        super().add(stream_id, events, expected_position)
        log = self._jetstream_log
        messages: list[OutgoingMessage] = []
        is_small = len(events) == 1 and len(events[0].state) <= _QUICK_BYTES
        # What asks the server, or takes long to send, would hold up the decisions on the commits behind it.
        if self._is_quick and is_small and log.is_placed(stream_id, expected_position):
            with contextlib.suppress(ChatExistsError):  # raised again when it is written alone
                messages = log.messages(events, expected_position)
        # From the first that waits on, all wait: commits keep the order in which they were decided.
        self._is_quick = bool(messages)
        self._sent.append(messages)
        self._attempts.send(messages)

    def finish(self) -> list[Outcome]:
        attempts = self._attempts.finish()
        positions = self._write_batches([at for at, messages in enumerate(self._sent) if not messages])
        return [
            positions.get(at) or self._outcome(commit, self._sent[at], attempts[at])
            for at, commit in enumerate(self._commits)
        ]

    def _write_batches(self, places: Sequence[int]) -> dict[int, list[int]]:
        """Write commits in batches; by its place, the positions of each that was written."""
        written: dict[int, list[int]] = {}
        batch: list[int] = []
        count = size = 0
        for at in places:
            events = self._commits[at][1]
            event_bytes = sum(len(encoded.state) for encoded in events)
            if event_bytes > _BATCH_BYTES or any(encoded.large for encoded in events):
                continue
            if count + len(events) > _BATCH_EVENTS or size + event_bytes > _BATCH_BYTES:
                written |= self._write_batch(batch)
                batch, count, size = [], 0, 0
            batch.append(at)
            count, size = count + len(events), size + event_bytes
        return written | self._write_batch(batch)

    def _write_batch(self, places: Sequence[int]) -> dict[int, list[int]]:
        """Write commits together; none when they are to be written one by one, which tells what each is refused for."""
        # One alone is written as a message, in 0.3 to 0.6 ms: a batch takes 3 ms and more with one replica.
        if len(places) < _FEWEST or self._is_silent:
            return {}
        commits = [self._commits[at] for at in places]
        try:
            messages = [
                message for _, events, expected in commits for message in self._jetstream_log.messages(events, expected)
            ]
            positions = iter(self._jetstream_log.write(commits[0][0], messages))
        # Whether the batch is stored is unknown: none of its commits is sent again without saying so.
        except LogUnavailableError:
            self._is_silent = True
            return {}
        except Exception:  # noqa: BLE001 - who it concerns is told when that commit is written alone
            return {}
        return {at: list(islice(positions, len(events))) for at, (_, events, _) in zip(places, commits, strict=True)}

    def _outcome(
        self,
        commit: tuple[str, Sequence[EncodedEvent], int],
        messages: list[OutgoingMessage],
        attempt: int | Exception | None,
    ) -> Outcome:
        if isinstance(attempt, int):
            self._jetstream_log.note_place(commit[0], messages[0])
            return [attempt]
        if attempt is None:
            return self._write(*commit)
        return self._tried(commit[0], partial(self._jetstream_log.write, commit[0], messages, is_uncertain=True))


FEEDS: Final = "-feeds"
"""The suffix of the name of the bucket with the bookmarks of named feeds."""
BLOBS: Final = "-blobs"
"""The suffix of the name of the stream with large data."""
_HEADER_BYTES: Final = 16 * 1024
"""Room for the headers, which the server counts too: an id of 2,048 bytes may take three times that."""


def auxiliary_streams(stream: str) -> tuple[str, ...]:
    """Return the names of the lasting streams beside a log: bookmarks, large data, and redacted events."""
    return bucket_stream(stream + FEEDS), stream + BLOBS, stream + REDACTED


def _refused_to_erase(error: Exception, what: str) -> ChatledgerError | None:
    """Return the error for a login that may not erase what a tombstone, which is written, stands for."""
    if isinstance(error, NotPermittedError):
        return AccessDeniedError(
            f"{what}: {error}. It is deleted, and in no answer any more; its content stays on the log until a login that may "
            "erase opens the ledger"
        )
    return special_error(error, what)


class LogRecorder(JetStreamApplicationRecorder):
    """The recorder of a log, which gives the messages of others too, and what stands in for messages that were rewritten."""

    gives_foreign = may_be_shared = True

    def __init__(self, client: JetStreamClient, stream: str, **options: Any) -> None:
        super().__init__(client, stream, **options)
        log_id = self.identity.partition("@")[0]
        self.rewritten = RewrittenRecords(client, stream, log_id=log_id, replicas=self.replicas, records=self.records)
        self._ends: dict[str, tuple[int, int]] = {}
        """Position and version of the event that a stream was read up to, by subject."""

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
        """Return notifications, as the base does; those that were rewritten fill the holes that they left."""
        page = super().notifications(
            after,
            limit,
            stop=stop,
            topics=topics,
            subject=subject,
            after_version=after_version,
            is_one_answer=is_one_answer,
        )
        # Nothing is looked for behind the last one: what is the last of its stream is never rewritten.
        end = page[-1].id if page else 0
        if stop is not None and len(page) < limit:
            end = stop
        if self._has_holes(page, after, end, subject, after_version):
            self.rewritten.refresh()
            there = {notification.id for notification in page}
            missing = [position for position in self.rewritten.positions(after, end, subject) if position not in there]
            for message in self.rewritten.read(missing[:limit]):
                notification = self.records.notification(message)
                if notification is None or (topics and notification.topic not in topics):
                    continue
                if notification.originator_version > after_version:
                    page.append(notification)
            page = sorted(page, key=lambda notification: notification.id)[:limit]
        if subject is not None and page and page[-1].topic:
            if len(self._ends) >= HEADS:
                self._ends.clear()
            self._ends[subject] = page[-1].id, page[-1].originator_version
        return page

    def _has_holes(
        self, page: Sequence[Notification], after: int, end: int, subject: str | None, after_version: int
    ) -> bool:
        """Whether messages may be missing in what was read after a position up to `end`."""
        if subject is None:
            return end - after > len(page)
        if "*" in subject:
            # Those of others are in between, and the next version of a stream may be on a later page: nothing here tells.
            return end > after
        read_to, version = self._ends.get(subject, (0, 0))
        start = after_version if after_version > 0 else 0 if after == 0 else version if read_to == after else None
        versions = [notification.originator_version for notification in page if notification.topic]
        return bool(versions) and (start is None or versions != list(range(start + 1, start + 1 + len(versions))))


class JetStreamLog(EventLog):
    """
    A log that can be held in shares has the place of the owner among the shares in its subjects, before the chat:
    `<stream>.s.<place>.<chat>`. So the server filters what a share follows. A chat stays at its place for ever; the server
    refuses a chat of the same id at another place, since what is expected is said of all places.

    Args:
        client: The connection; closed with the log.
        stream: The name of the stream.
        create: Create the stream when it is absent. Never to get a lost one back.
        replicas: Of a stream that is created now.
        mapper: How events are stored; neither compressed nor encrypted by default.
        share: Follow this share of the chats only, and let a stream that is created now be held in shares. `(0, 1)` is all.
    """

    is_dense = is_checked = True
    _is_borrowed = False

    def __init__(
        self,
        client: JetStreamClient,
        stream: str,
        *,
        create: bool,
        replicas: int = 1,
        mapper: StructMapper | None = None,
        share: Share | None = None,
    ) -> None:
        self._client = client
        with translated(f"stream {stream!r}"):
            self._stream_recorder = LogRecorder(
                client, stream, id_type="text", create=create, replicas=replicas, is_shared=share is not None
            )
        # A chat keeps its place for ever, so what was read once stays right.
        self._places: dict[str, str] = {}
        self._filter: str | None = None
        if share is not None:
            self._follow_share(stream, share)
        self.max_event_bytes = client.max_payload() - _HEADER_BYTES
        self._stream, self._replicas = stream, self._stream_recorder.replicas
        blob_storage = JetStreamBlobStorage(
            client, stream + BLOBS, log=stream, replicas=self._replicas, max_bytes=self.max_event_bytes
        )
        live_storage = JetStreamLiveStorage(
            client,
            stream,
            replicas=self._replicas,
            is_shared=not client.finishes_erasures,
            max_bytes=self.max_event_bytes,
        )
        super().__init__(self._stream_recorder, mapper or StructMapper(JSONTranscoder()), blob_storage, live_storage)
        # nats-server leaves out records whose checksum is wrong.
        self._mapper.is_checked_below = True
        self._blob_storage = blob_storage
        self.identity = self._stream_recorder.identity
        self._barrier = Barrier(client, stream)
        self._bookmarks = KeyValue(client, stream + FEEDS, replicas=self._replicas)

    def _follow_share(self, stream: str, share: Share) -> None:
        records = self._stream_recorder.records
        if not records.is_shared:
            msg = (
                f"the stream {stream!r} was made without share=, and cannot be held in shares: export its chats, and import "
                "them into a stream that was made with it"
            )
            raise ConfigurationError(msg)
        # Positions between those of the share are others' chats, and no gaps.
        if share.total > 1:
            self.share, self.is_dense, self.is_checked = share, False, False
            self._filter = f"{records.prefix}{places_in(share)}.*"
            self._stream_recorder.follow(self._filter)

    def stream_alone(self, stream_id: str) -> "JetStreamLog":
        # With the same connection, which stays this log's to close.
        alone = copy.copy(self)
        alone._filter = self._subject(stream_id)  # noqa: SLF001 - it is of this class
        alone._is_borrowed = True  # noqa: SLF001 - as above
        return alone

    def count(self) -> int:
        rewritten = self._stream_recorder.rewritten
        with self.translated("the log"):
            if self._filter is None:
                state = self._stream_recorder.state()
                count, last = state.messages, state.last
            else:
                deadline = self._client.deadline()
                count = StreamPages(self._client, self._stream, deadline, after=0, subject=self._filter).count()
                last = self._stream_recorder.state().last
            # One that is being rewritten counts twice, for a moment.
            rewritten.refresh()
            return count + len(rewritten.positions(0, last, self._filter))

    def bucket(self, stream_id: str) -> int | None:
        place = self._place(stream_id)
        return None if place is None else bucket_at(place)

    def is_placed(self, stream_id: str, expected_position: int) -> bool:
        """Whether the subject of a commit is known without asking the server."""
        is_shared = self._stream_recorder.records.is_shared
        return not is_shared or not expected_position or stream_id in self._places

    def _place(self, stream_id: str) -> str | None:
        """Where the events of a stream are among the shares; None when there are none."""
        place = self._places.get(stream_id)
        if place is None:
            subject = self._stream_recorder.records.subject(stream_id, ANY_PLACE)
            with self.translated(f"chat {stream_id!r}"):
                last = last_on_subject(self._client, self._stream, subject, self._client.deadline())
            if last is not None:
                place = self._keep_place(stream_id, last.subject)
        return place

    def _keep_place(self, stream_id: str, subject: str) -> str:
        place = subject.removeprefix(self._stream_recorder.records.prefix).rpartition(".")[0]
        if len(self._places) >= HEADS:
            self._places.clear()
        self._places[stream_id] = place
        return place

    def note_place(self, stream_id: str, written: OutgoingMessage) -> None:
        if self._stream_recorder.records.is_shared:
            self._keep_place(stream_id, written.subject)

    def _subject(self, stream_id: str) -> str | None:
        """The subject of a stream's events; None when there are none yet, and nobody knows it."""
        records = self._stream_recorder.records
        if not records.is_shared:
            return records.subject(stream_id)
        place = self._place(stream_id)
        return None if place is None else records.subject(stream_id, place)

    special_error = staticmethod(special_error)

    def make_streams(self) -> None:
        """Create the auxiliary streams now. They are created on first use otherwise, when a login may not be allowed to."""
        with self.translated("the log"):
            self._bookmarks.make()
            self._blob_storage.make()
            self.live.storage.make()

    def require_replicas(self, count: int | None) -> None:
        """Raise `ConfigurationError` when fewer servers keep a copy than were asked for."""
        if count is not None and self._replicas < count:
            msg = (
                f"{self._replicas} of {count} replicas: the stream {self._stream!r} was made with "
                f"fewer; 'nats stream edit {self._stream} --replicas {count}' adds them"
            )
            raise ConfigurationError(msg)

    def _append(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> list[int]:
        return self.write(stream_id, self.messages(events, expected_position))

    def messages(self, events: Sequence[EncodedEvent], expected_position: int) -> list[OutgoingMessage]:
        """
        Return the events of a commit as they are sent.

        Raises:
            ChatExistsError: The id is that of a deleted chat of another owner, whose place in the shares it keeps.
        """
        store, records = self._mapper.store_encoded, self._stream_recorder.records
        place = self._place_for(events[0], expected_position) if records.is_shared else ""
        messages = [records.message(store(encoded), encoded.event.event_id, place) for encoded in events]
        messages[0].expected = expected_position
        messages[0].may_use_reserve = any(isinstance(encoded.event.body, StreamDeleted) for encoded in events)
        if records.is_shared and not expected_position:
            # That there is no such chat is to hold in all shares, not at one place only.
            messages[0].headers[EXPECTED_ON] = records.subject(events[0].event.originator_id, ANY_PLACE)
        return messages

    def _place_for(self, first: EncodedEvent, expected_position: int) -> str:
        stream_id = first.event.originator_id
        owner = owner_named(stream_id, first.event.body)
        named = place_of(UNSHARED if owner is None else bucket_of(owner))
        place = self._place(stream_id) if expected_position else None
        if place is None:
            return named
        # The place is part of the subject, by which the server compares: it cannot move.
        if owner is not None and named != place:
            raise ChatExistsError(stream_id)
        return place

    def write(self, stream_id: str, messages: Sequence[OutgoingMessage], *, is_uncertain: bool = False) -> list[int]:
        """Write the messages of a commit, which may be stored already if that `is_uncertain`; see `EventLog.append`."""
        try:
            last = append_messages(
                self._client,
                self._stream,
                messages,
                self._client.deadline(),
                replicas=self._replicas,
                is_uncertain=is_uncertain,
            ).last
        except IntegrityError as error:
            raise LostRaceError from error
        except (EventSourcingError, OSError) as error:
            raise ledger_error(error, f"chat {stream_id!r}", is_write=True, special=special_error) from error
        self.note_place(stream_id, messages[0])
        return list(range(last - len(messages) + 1, last + 1))

    def begin_appends(self) -> Appends:
        return JetStreamAppends(self, FirstAttempts(self._client))

    def last_position(self) -> int:
        with self.translated("the log"):
            if self._filter is None:
                return self._stream_recorder.last_position()
            last = last_on_subject(self._client, self._stream, self._filter, self._client.deadline())
        return 0 if last is None else last.position

    def committed_position(self) -> int:
        if self._replicas > 1:
            with self.translated("the log"):
                last = self._barrier.position()
            # Or a reader of this process, whose server is behind, would end before what was just promised.
            self._stream_recorder.reach(last)
            if self._filter is None:
                return last
        return self.last_position()  # of a share; a leader that is out of date has heard of the barrier, and resigns

    def settled_position(self, seen: int) -> int:
        with self.translated("the log"):
            last = self._stream_recorder.state().last
            # One server may lack the end for a moment; that a majority does is a loss.
            if last < seen and self._replicas > 1:
                last = self._barrier.position()
        self._stream_recorder.reach(last)
        return last

    def _select_page(self, after: int, limit: int) -> Sequence[Notification]:
        return self._stream_recorder.notifications(after, limit, subject=self._filter, is_one_answer=True)

    def _select_stream(self, stream_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        subject = self._subject(stream_id)
        if subject is None:
            return ()
        return self._stream_recorder.notifications(after, limit, subject=subject, after_version=after_version)

    def erase(self, stream_id: str, *, first_position: int, before: int) -> None:
        with translated(f"erasing {stream_id!r}", special=_refused_to_erase):
            # What waits there would be shown a moment after its deletion.
            self._stream_recorder.forget_news()
            subject = self._subject(stream_id)
            if subject is not None:
                self._stream_recorder.erase_subject(subject, after=first_position - 1, before=before)
                # Afterwards: who rewrites an event meanwhile looks whether it is still on the log, and takes it back.
                self._stream_recorder.rewritten.erase_subject(subject, first_position=first_position, before=before)

    def _newest_at(self, position: int) -> Notification | None:
        # From the leaders: on what a server says that is behind, content would come back that another process took away.
        recorder = self._stream_recorder
        recorder.rewritten.refresh()  # refuses what another log of that name has left
        message = recorder.rewritten.last(position)
        if message is None:
            logged = message_at(self._client, self._stream, position, self._client.deadline())
            if logged is not None:
                return recorder.records.notification(logged)
            # Somebody else may have rewritten it between the two questions: it would be taken for erased, and keep what is to go.
            message = recorder.rewritten.last(position)
        return None if message is None else recorder.records.notification(recorder.rewritten.as_logged(message))

    def _replace(self, record: Notification, rewritten: Notification) -> bool:
        """Implement `EventLog._replace`; at whatever step it is killed, the next call finishes it."""
        position, recorder = record.id, self._stream_recorder
        before = recorder.rewritten.last(position)
        if before is not None and before.payload != record.state:
            return False
        if rewritten.state != record.state:
            stored = StoredEvent(record.originator_id, record.originator_version, record.topic, rewritten.state)
            place = self._place(str(record.originator_id)) if recorder.records.is_shared else None
            message = recorder.records.message(stored, "", place or "")
            try:
                recorder.rewritten.put(position, message, expected=0 if before is None else before.position)
            except IntegrityError:
                return False
            if not self._is_put(position, rewritten):
                return False
        elif before is None:
            return True  # nothing was taken away
        recorder.forget_news()
        with self._client.erasing():
            count = erase_all(self._client, self._stream, [position])
            if before is not None:
                recorder.rewritten.erase_older(position)
        recorder.forget_news()  # it may have arrived again meanwhile
        # Nobody else could rewrite it before us: then its chat may have been erased before this record was there to be erased, too.
        if before is None and not count and find_tombstone(self, str(record.originator_id), position) is not None:
            recorder.rewritten.erase(position)
            return False
        return True

    def _is_put(self, position: int, rewritten: Notification) -> bool:
        """Whether a record is on the server, or one of which somebody took away more. Only then what it replaces may go."""
        recorder = self._stream_recorder
        message = recorder.rewritten.last(position)
        newest = None if message is None else recorder.records.notification(recorder.rewritten.as_logged(message))
        if newest is None:
            return False
        if is_without(self._mapper.event_bytes(newest), self._mapper.event_bytes(rewritten)):
            return True
        msg = f"what was written for position {position} is not what the server gives back, so nothing was taken away"
        raise CorruptStateError(msg)

    def erasing(self) -> AbstractContextManager[None]:
        return self._client.erasing()

    def remove(self, positions: Sequence[int]) -> None:
        with self.translated("the log"):
            self._stream_recorder.forget_news()
            erase_all(self._client, self._stream, positions)

    def check_keys(self) -> None:
        """Implement `EventLog.check_keys`; also refuses a stream that a backup was not restored into completely."""
        with self.translated("the log"):
            # A restore that was killed left the beginning of a log, which looks like a whole one.
            has_half = source_of_partial(self._client, self._stream) is not None
        if has_half:
            msg = "a backup is being restored here, or that was interrupted; wait for it, or run 'chatledger restore' again"
            raise ConfigurationError(msg)
        super().check_keys()

    def restored_position(self, source: str) -> int | None:
        """Implement `EventLog.restored_position`: the stream has the name of the source, and its last sequence."""
        with self.translated("the log"):
            interrupted = source_of_partial(self._client, self._stream)
            if interrupted is None:
                return 0
            return self._stream_recorder.last_position() if interrupted == source else None

    def drop_partial(self) -> None:
        with self.translated("the log"):
            self._stream_recorder.destroy()
            delete_stream(self._client, self._stream + REDACTED)

    def finish_restore(self) -> None:
        with self.translated("the log"):
            finish_restore(self._client, self._stream)

    def restore(self, pages: Iterable[Sequence[Notification]], *, source: str | None = None) -> None:
        """Implement `EventLog.restore`. What was written when it is interrupted stays, and the stream says from which source."""
        after = 0 if source is None else self.restored_position(source) or 0
        with self.translated("the log"):
            if self._stream_recorder.records.is_shared:
                msg = "a backup is restored into a stream that was made without share="
                raise ConfigurationError(msg)
            if not after:
                # By the last position, not by the count of messages: positions that were given once are not given again.
                refuse_unless_empty(self._stream_recorder.last_position())
            self._stream_recorder.rewritten.refresh()  # refuses what another log of that name has left
            records = ([self._mapper.referring(record) for record in page] for page in pages)
            restore_with_gaps(self._client, self._stream_recorder, records, after=after, source=source or "yes")
            if source is None:
                finish_restore(self._client, self._stream)

    def wait(self, after: int, timeout_s: float) -> bool:
        with self.translated("the log"):
            return self._stream_recorder.wait(after, timeout_s)

    def _select_news(self, after: int) -> Sequence[Notification]:
        return self._stream_recorder.news(after)

    def load_bookmark(self, key: str) -> Bookmark | None:
        with self.translated("the position of a feed"):
            stored = self._bookmarks.get(key)
        return None if stored is None else decode_bookmark(stored[1], stored[0])

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        with self.translated(f"the position of feed {bookmark.name!r}"):
            try:
                revision = self._bookmarks.update(bookmark.key, encode_bookmark(bookmark), last=bookmark.revision)
            except IntegrityError as error:
                raise LostRaceError from error
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        with self.translated("the positions of feeds"):
            stored = self._bookmarks.items()
        return decode_bookmarks((value, revision) for revision, value in stored)

    def drop_bookmark(self, key: str) -> None:
        with self.translated("the position of a feed"):
            self._bookmarks.delete(key)

    def close(self) -> None:
        if self._is_borrowed:
            return
        self._stream_recorder.close()
        self._client.close()


class CopiedLog(JetStreamLog):
    """The log in a private copy of a directory that cannot be written: what would be written to it is refused, as it would be lost."""

    def _append(self, stream_id: str, events: Sequence[EncodedEvent], expected_position: int) -> NoReturn:
        del events, expected_position
        self._refuse(f"chat {stream_id!r}")

    def begin_appends(self) -> Appends:
        return Appends(self)

    def erase(self, stream_id: str, *, first_position: int, before: int) -> NoReturn:
        """Raise `AccessDeniedError`."""
        del first_position, before
        self._refuse(f"erasing {stream_id!r}")

    def rewrite(self, position: int, slots: Collection[int]) -> NoReturn:
        """Raise `AccessDeniedError`."""
        del slots
        self._refuse(f"redacting the event at position {position}")

    def save_bookmark(self, bookmark: Bookmark) -> NoReturn:
        """Raise `AccessDeniedError`."""
        self._refuse(f"the position of feed {bookmark.name!r}")

    def drop_bookmark(self, key: str) -> NoReturn:
        """Raise `AccessDeniedError`."""
        self._refuse(f"the position of feed {key!r}")

    @staticmethod
    def _refuse(what: str) -> NoReturn:
        msg = (
            f"{what}: the ledger is on a read-only file system, and is read from a copy, so nothing was written; copy the directory "
            "to where it can be written, and open that"
        )
        raise AccessDeniedError(msg)
