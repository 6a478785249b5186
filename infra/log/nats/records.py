"""Between the library's value objects and messages."""

import contextlib
import os
from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import msgspec
from eventsourcing.persistence import DataError, IntegrityError, Notification, ProgrammingError, StoredEvent, Tracking

from .append import MAX_BATCH, OutgoingMessage
from .reading import MESSAGE_ID, TOPIC, VERSION, LogMessage
from .stream import event_prefix, shared_prefix, tracking_prefix
from .subjects import ORIGINATOR_ID, bucket_at, decode_header, encode_header, raw_id, token

IdType = Literal["uuid", "text"]


class SubjectHead(msgspec.Struct, frozen=True):
    """The last message on a subject: its version (or tracked id) and its position. Zero and below: there is none."""

    version: int
    position: int


NOTHING = SubjectHead(version=-(2**63), position=0)
FOREIGN_TOPIC = ""
"""In place of the topic of an event: the message was not written by this module. No event has it."""


def check_id_type(id_type: IdType) -> None:
    """Raise `ProgrammingError` when ids cannot be of that type."""
    if id_type not in {"uuid", "text"}:
        msg = f"the originator id type is 'uuid' or 'text', not {id_type!r}"
        raise ProgrammingError(msg)


class Records:
    """
    Makes messages of events and events of messages, for one stream.

    Args:
        id_type: What originator ids are: `uuid` (stored and returned as UUID) or `text`.
        gives_foreign: Whether a message that was not written by this module is given as a notification with
            `FOREIGN_TOPIC` and version 0, of the originator whose subject it is on or of "". Else it is an error on the
            subject of an event, and nothing elsewhere.
        is_shared: Whether the subjects of events say their place among the shares.
    """

    def __init__(self, stream: str, id_type: IdType, *, gives_foreign: bool = False, is_shared: bool = False) -> None:
        check_id_type(id_type)
        self._tracking = tracking_prefix(stream)
        self.is_shared, self.prefix = is_shared, (shared_prefix if is_shared else event_prefix)(stream)
        self._id_type, self._gives_foreign = id_type, gives_foreign

    def subject(self, originator_id: UUID | str, place: str = "") -> str:
        """
        The subject of an originator's events, at a place where the log is held in shares.

        Raises:
            DataError: The id is empty, or not a UUID where UUIDs are stored.
        """
        is_plain = self._id_type == "text" and isinstance(originator_id, str)
        name = token(originator_id if is_plain else self._text(originator_id))
        return f"{self.prefix}{place}.{name}" if self.is_shared else self.prefix + name

    def tracking_subject(self, application_name: str) -> str:
        return self._tracking + token(application_name)

    def messages(self, events: Sequence[StoredEvent], message_ids: Sequence[str] | None) -> list[OutgoingMessage]:
        """
        A message per event. Without ids they get random ones: `<id>:<version>` would let a loser look like a winner.

        Raises:
            IntegrityError: The versions of an originator do not increase.
            ProgrammingError: There are more events than fit into a batch, or not as many ids as events.
        """
        if len(events) > MAX_BATCH:
            msg = f"{len(events)} events in one insert; the server takes {MAX_BATCH}"
            raise ProgrammingError(msg)
        if message_ids is not None and len(message_ids) != len(events):
            msg = f"{len(message_ids)} message ids for {len(events)} events"
            raise ProgrammingError(msg)
        call = os.urandom(16).hex() if message_ids is None else ""
        versions: dict[str, int] = {}
        messages: list[OutgoingMessage] = []
        for index, event in enumerate(events):
            message_id = f"{call}.{index}" if message_ids is None else message_ids[index]
            message = self.message(event, message_id)
            if versions.get(message.subject, NOTHING.version) >= event.originator_version:
                msg = f"version {event.originator_version} of {event.originator_id} does not follow within the insert"
                raise IntegrityError(msg)
            versions[message.subject] = event.originator_version
            messages.append(message)
        return messages

    def tracking_message(self, tracking: Tracking) -> OutgoingMessage:
        """The message of a tracking record: what it tracks stands where events have their version."""
        name = tracking.application_name
        subject = self.tracking_subject(name)
        headers = {MESSAGE_ID: os.urandom(16).hex(), VERSION: str(tracking.notification_id)}
        if subject[len(self._tracking)] == "h":
            headers[ORIGINATOR_ID] = encode_header(name)
        return OutgoingMessage(subject, b"", headers)

    def notification(self, message: LogMessage) -> Notification | None:
        """The notification in a message; None when it holds no event."""
        if not message.subject.startswith(self.prefix):
            return self._foreign(message) if self._gives_foreign else None
        headers = message.headers
        try:
            return Notification(
                id=message.position,
                originator_id=self._id(message),
                originator_version=int(headers[VERSION]),
                topic=decode_header(headers[TOPIC]),
                state=message.payload,
            )
        except (KeyError, ValueError, DataError) as error:
            if self._gives_foreign:
                return self._foreign(message)
            raise _foreign(message) from error

    def _foreign(self, message: LogMessage) -> Notification:
        # Whose subject it is on counts although it is no event: that stream is refused, and no other.
        originator: UUID | str = ""
        if message.subject.startswith(self.prefix):
            with contextlib.suppress(DataError):
                originator = self._id(message)
        return Notification(originator, 0, FOREIGN_TOPIC, message.payload, message.position)

    def event(self, message: LogMessage) -> StoredEvent:
        try:
            return StoredEvent(
                originator_id=self._id(message),
                originator_version=int(message.headers[VERSION]),
                topic=decode_header(message.headers[TOPIC]),
                state=message.payload,
            )
        except (KeyError, ValueError) as error:
            raise _foreign(message) from error

    def message(self, event: StoredEvent, message_id: str, place: str = "") -> OutgoingMessage:
        subject = self.subject(event.originator_id, place)
        headers = {
            MESSAGE_ID: message_id,
            TOPIC: encode_header(event.topic),
            VERSION: str(event.originator_version),
        }
        # The hash of a long id cannot be turned back.
        if subject[subject.rindex(".") + 1] == "h":
            headers[ORIGINATOR_ID] = encode_header(str(event.originator_id))
        return OutgoingMessage(subject, event.state, headers)

    def _id(self, message: LogMessage) -> UUID | str:
        name = message.subject[len(self.prefix) :]
        if self.is_shared:
            place, _, name = name.rpartition(".")
            if bucket_at(place) is None:
                msg = f"{message.subject} names no place among the shares"
                raise DataError(msg)
        text = raw_id(name, message.headers.get(ORIGINATOR_ID))
        return self._uuid(text) if self._id_type == "uuid" else text

    def _text(self, originator_id: UUID | str) -> str:
        if isinstance(originator_id, UUID):
            return str(originator_id)
        return str(self._uuid(originator_id)) if self._id_type == "uuid" else originator_id

    @staticmethod
    def _uuid(text: str) -> UUID:
        try:
            return UUID(text)
        except ValueError as error:
            msg = f"the originator id {text!r} is not a UUID; set ORIGINATOR_ID_TYPE=text for other ids"
            raise DataError(msg) from error


def event_version(message: LogMessage) -> int:
    try:
        return int(message.headers[VERSION])
    except (KeyError, ValueError) as error:
        raise _foreign(message) from error


def _foreign(message: LogMessage) -> DataError:
    return DataError(f"the message at position {message.position} of {message.subject} was not written by this module")
