"""Events to what recorders store and back: msgspec structs in msgpack, compressed and encrypted by the library's seams."""

from typing import Any
from uuid import UUID

from eventsourcing.persistence import Mapper, MapperDeserialisationError, Notification, StoredEvent
from eventsourcing.utils import register_topic

from chatledger.domain.codec import Sealed, decode_event, encode_event, event_hash
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.events import BODIES, Event, Recorded

for _body in BODIES:
    register_topic(_body.TOPIC, _body)


class StructMapper(Mapper[str]):
    """Maps the events of chats. Choose it with `MAPPER_TOPIC=chatledger.infra.log.mapper:StructMapper`."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The stored form of an event."""
        return self.store(domain_event, domain_event.body.TOPIC, encode_event(domain_event))

    def store(self, event: Event[Any], topic: str, state: bytes) -> StoredEvent:
        """The stored form of an event that is encoded already."""
        if self.compressor:
            state = self.compressor.compress(state)
        if self.cipher:
            state = self.cipher.encrypt(state)
        return StoredEvent(event.originator_id, event.originator_version, topic, state)

    def store_sealed(self, sealed: Sealed) -> StoredEvent:
        """The stored form of a sealed event."""
        return self.store(sealed.event, sealed.topic, sealed.state)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The event that was stored. Raises `MapperDeserialisationError` when it is damaged or stands in a foreign place."""
        try:
            return self._read(stored_event)[0]
        except CorruptStateError as error:
            raise MapperDeserialisationError(str(error)) from error

    def recorded(self, notification: Notification) -> Recorded:
        """
        The event at its place on the log.

        Raises:
            CorruptStateError: The stored bytes are damaged, or stand in a foreign place.
            UnsupportedFormatError: A newer chatledger wrote them.
        """
        event, digest = self._read(notification)
        return Recorded(notification.id, event, digest)

    def _read(self, stored: StoredEvent) -> tuple[Event[Any], bytes]:
        state = stored.state
        try:
            if self.cipher:
                state = self.cipher.decrypt(state)
            if self.compressor:
                state = self.compressor.decompress(state)
        except Exception as error:
            msg = f"event {stored.originator_version} of chat {_text(stored)!r} can not be decrypted or decompressed"
            raise CorruptStateError(msg) from error
        event = decode_event(stored.topic, state)
        if (event.originator_id, event.originator_version) != (_text(stored), stored.originator_version):
            msg = f"event {stored.originator_version} of chat {_text(stored)!r} is found in the place of another one"
            raise CorruptStateError(msg)
        return event, event_hash(stored.topic, state)


def _text(stored: StoredEvent) -> str:
    # Recorders give ids back as text here; a UUID means a recorder that was set up for UUIDs.
    return str(stored.originator_id) if isinstance(stored.originator_id, UUID) else stored.originator_id
