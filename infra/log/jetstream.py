"""A log on a JetStream stream: one subject per chat, appends compared with the chat's last position by the server."""

from collections.abc import Sequence
from typing import Final

from eventsourcing.persistence import JSONTranscoder, Notification

from chatledger.domain.codec import Sealed

from ..jetstream.client import JetStreamClient
from ..jetstream.reading import PAGE, Pages
from ..jetstream.recorders import JetStreamApplicationRecorder
from ..jetstream.records import version_of
from .mapper import StructMapper
from .port import EventLog, translated

_HEADER_BYTES: Final = 16 * 1024
"""Room for the headers, which the server counts too: an id of 2,048 bytes may take three times that."""


class ChatRecorder(JetStreamApplicationRecorder):
    """The recorder, asked for one chat's events with their positions."""

    def select_chat(self, chat_id: str, *, after: int, after_version: int, limit: int) -> list[Notification]:
        """The notifications of one chat above a position and a version, ascending, at most `limit`."""
        return self._client.call(self._select_chat, self._records.subject(chat_id), after, after_version, limit)

    async def _select_chat(self, subject: str, after: int, after_version: int, limit: int) -> list[Notification]:
        pages = Pages(self._client, self._stream, self._client.deadline(), after=after, subject=subject)
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

    """

    is_dense = True

    def __init__(self, client: JetStreamClient, stream: str, *, create: bool, replicas: int = 1) -> None:
        self._client = client
        with translated(f"stream {stream!r}"):
            self._stream_recorder = ChatRecorder(client, stream, id_type="text", create=create, replicas=replicas)
        super().__init__(self._stream_recorder, StructMapper(JSONTranscoder()))
        self.identity = self._stream_recorder.identity
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

    def close(self) -> None:
        """As declared in `EventLog`."""
        self._stream_recorder.close()
        self._client.close()
