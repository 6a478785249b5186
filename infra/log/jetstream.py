"""A log on a JetStream stream: one subject per chat, appends compared with the chat's last position by the server."""

from collections.abc import Sequence
from typing import Final

from eventsourcing.persistence import IntegrityError, JSONTranscoder, Notification

from chatledger.domain.codec import Sealed

from ..jetstream.bucket import Bucket
from ..jetstream.client import JetStreamClient
from ..jetstream.reading import PAGE, Pages, last_on_subject
from ..jetstream.recorders import JetStreamApplicationRecorder
from ..jetstream.records import version_of
from .bookmarks import Bookmark, decode_bookmark, encode_bookmark
from .mapper import StructMapper
from .port import EventLog, LostRaceError, translated

_BOOKMARKS: Final = "-feeds"
"""What the name of the stream with the positions of named feeds ends with."""
_HEADER_BYTES: Final = 16 * 1024
"""Room for the headers, which the server counts too: an id of 2,048 bytes may take three times that."""


class ChatRecorder(JetStreamApplicationRecorder):
    """The recorder, asked for one chat's events with their positions."""

    def bucket(self, suffix: str) -> Bucket:
        """Values by key in a stream beside this one, with as many replicas."""
        return Bucket(self._client, self._stream + suffix, replicas=self._replicas)

    def select_chat(self, chat_id: str, *, after: int, after_version: int, limit: int) -> list[Notification]:
        """The notifications of one chat above a position and a version, ascending, at most `limit`."""
        return self._client.call(self._select_chat, self._records.subject(chat_id), after, after_version, limit)

    async def _select_chat(self, subject: str, after: int, after_version: int, limit: int) -> list[Notification]:
        deadline = self._client.deadline()
        until = 0
        if self._replicas > 1:  # one that is behind may answer
            last = await last_on_subject(self._client, self._stream, subject, deadline)
            until = 0 if last is None else last.position
        pages = Pages(self._client, self._stream, deadline, after=after, subject=subject, until=until)
        found: list[Notification] = []
        while not pages.is_complete and len(found) < limit:
            for message in await pages.read(PAGE if after_version else limit - len(found)):
                notification = self._records.notification(message)
                if notification is not None and version_of(message) > after_version:
                    found.append(notification)
        return found[:limit]


class JetStreamLog(EventLog):
    """
    Args:
        client: The connection; closed with the log.
        stream: The name of the stream.
        create: Create the stream when it is absent. Never to get a lost one back.
        replicas: Of a stream that is created now.
        mapper: How events are stored; neither compressed nor encrypted by default.

    """

    is_dense = True

    def __init__(
        self,
        client: JetStreamClient,
        stream: str,
        *,
        create: bool,
        replicas: int = 1,
        mapper: StructMapper | None = None,
    ) -> None:
        self._client = client
        with translated(f"stream {stream!r}"):
            self._stream_recorder = ChatRecorder(client, stream, id_type="text", create=create, replicas=replicas)
        super().__init__(self._stream_recorder, mapper or StructMapper(JSONTranscoder()))
        self.identity = self._stream_recorder.identity
        self._bookmarks = self._stream_recorder.bucket(_BOOKMARKS)
        self.max_event_bytes = client.call(self._max_payload) - _HEADER_BYTES

    async def _max_payload(self) -> int:
        return (await self._client.connection(self._client.deadline())).max_payload

    def _append_options(self, events: Sequence[Sealed], expected_position: int) -> dict[str, object]:
        return {
            "expected_position": expected_position,
            "message_ids": [sealed.event.event_id for sealed in events],
        }

    def _find(self, chat_id: str, events: Sequence[Sealed]) -> list[int] | None:
        del chat_id, events
        return None  # the recorder has looked already

    def last_position(self) -> int:
        """As declared in `EventLog`."""
        with self.translated("the log"):
            return self._stream_recorder.last_position()

    def _select_chat(self, chat_id: str, *, after: int, after_version: int, limit: int) -> Sequence[Notification]:
        return self._stream_recorder.select_chat(chat_id, after=after, after_version=after_version, limit=limit)

    def erase(self, chat_id: str, *, first_position: int, before: int) -> None:
        """As declared in `EventLog`."""
        with self.translated(f"erasing chat {chat_id!r}"):
            self._stream_recorder.erase_events(chat_id, after=first_position - 1, before=before)

    def wait(self, after: int, timeout_s: float) -> bool:
        """As declared in `EventLog`."""
        with self.translated("the log"):
            return self._stream_recorder.wait(after, timeout_s)

    def load_bookmark(self, key: str) -> Bookmark | None:
        """As declared in `EventLog`."""
        with self.translated("the position of a feed"):
            found = self._bookmarks.get(key)
        return None if found is None else decode_bookmark(found[1], found[0])

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """As declared in `EventLog`."""
        with self.translated(f"the position of feed {bookmark.name!r}"):
            try:
                revision = self._bookmarks.put(bookmark.key, encode_bookmark(bookmark), expected=bookmark.revision)
            except IntegrityError as error:
                raise LostRaceError from error
        return bookmark.saved_as(revision)

    def bookmarks(self) -> list[Bookmark]:
        """As declared in `EventLog`."""
        with self.translated("the positions of feeds"):
            found = self._bookmarks.items()
        return [decode_bookmark(value, revision) for revision, value in found]

    def drop_bookmark(self, key: str) -> None:
        """As declared in `EventLog`."""
        with self.translated("the position of a feed"):
            self._bookmarks.delete(key)

    def close(self) -> None:
        """As declared in `EventLog`."""
        self._stream_recorder.close()
        self._client.close()
