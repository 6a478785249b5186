"""Events to what recorders store and back: msgspec structs in msgpack, compressed and encrypted by the library's seams."""

from typing import Any
from uuid import UUID

from eventsourcing.persistence import Mapper, MapperDeserialisationError, Notification, StoredEvent
from eventsourcing.utils import register_topic

from chatledger.domain.codec import Sealed, decode_event, encode_event, event_hash
from chatledger.domain.errors import ChatledgerError, ConfigurationError, CorruptStateError, UnsupportedFormatError
from chatledger.domain.events import Event, Recorded
from chatledger.domain.vocabulary import BODIES

from .cipher import RecordCipher, UnreadableRecordError, is_encrypted, place_of
from .compression import ZstdCompressor, is_compressed

for _body in BODIES:
    register_topic(_body.TOPIC, _body)


class StructMapper(Mapper[str]):
    """Maps the events of chats. Choose it with `MAPPER_TOPIC=chatledger.infra.log.mapper:StructMapper`."""

    _zstd: ZstdCompressor | None = None

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The stored form of an event."""
        return self.store(domain_event, domain_event.body.TOPIC, encode_event(domain_event))

    def store(self, event: Event[Any], topic: str, state: bytes) -> StoredEvent:
        """The stored form of an event that is encoded already."""
        if self.compressor:
            state = self.compressor.compress(state)
        if isinstance(self.cipher, RecordCipher):
            # The position is not known before the append; chat and version name the place as well.
            state = self.cipher.seal(state, place_of(event.originator_id, event.originator_version, topic))
        elif self.cipher:
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
            CorruptStateError: The stored bytes are damaged, stand in a foreign place, or need another key.
            ConfigurationError: They are encrypted and there is no key, or compressed and the library is missing.
            UnsupportedFormatError: A newer chatledger wrote them.
        """
        try:
            event, digest = self._read(notification)
        except (CorruptStateError, UnsupportedFormatError) as error:
            chat_id, version, position = _text(notification), notification.originator_version, notification.id
            msg = f"event {version} of chat {chat_id!r} at position {position} can not be read: {error}"
            if isinstance(error, UnsupportedFormatError):
                raise UnsupportedFormatError(msg) from error
            raise CorruptStateError(msg, chat_id=chat_id, position=position, version=version) from error
        return Recorded(notification.id, event, digest)

    def _read(self, stored: StoredEvent) -> tuple[Event[Any], bytes]:
        state = self._plain(stored)
        event = decode_event(stored.topic, state)
        if (event.originator_id, event.originator_version) != (_text(stored), stored.originator_version):
            msg = f"event {stored.originator_version} of chat {_text(stored)!r} is found in the place of another one"
            raise CorruptStateError(msg)
        return event, event_hash(stored.topic, state)

    def _plain(self, stored: StoredEvent) -> bytes:
        """The encoded event in a record."""
        try:
            state = self._decrypted(stored)
            if is_compressed(state):
                return self._reader().decompress(state)
            return self.compressor.decompress(state) if self.compressor else state
        except ChatledgerError:
            raise
        except Exception as error:
            reason = f": {error}" if isinstance(error, UnreadableRecordError) else ""
            msg = f"its record can not be decrypted or decompressed{reason}"
            raise CorruptStateError(msg) from error

    def _reader(self) -> ZstdCompressor:
        """What reads compressed records, which a log may hold whether or not new ones are compressed."""
        if self._zstd is None:
            self._zstd = self.compressor if isinstance(self.compressor, ZstdCompressor) else ZstdCompressor()
        return self._zstd

    def _decrypted(self, stored: StoredEvent) -> bytes:
        if isinstance(self.cipher, RecordCipher):
            return self.cipher.unseal(stored.state, place_of(_text(stored), stored.originator_version, stored.topic))
        if self.cipher:
            return self.cipher.decrypt(stored.state)
        if is_encrypted(stored.state):
            msg = (
                f"the log is encrypted (event {stored.originator_version} of chat {_text(stored)!r}). Open it with its key: "
                "chatledger.open(..., encryption=chatledger.Encryption(...)), or CHATLEDGER_ENCRYPTION_KEY for the command line"
            )
            raise ConfigurationError(msg)
        return stored.state


def _text(stored: StoredEvent) -> str:
    # Recorders give ids back as text here; a UUID means a recorder that was set up for UUIDs.
    return str(stored.originator_id) if isinstance(stored.originator_id, UUID) else stored.originator_id
