"""
Events to what recorders store and back: msgspec structs in msgpack, compressed and encrypted by the library's seams.

Compression of records with zstd, where it makes them smaller.

    0xC1 'Z'   4 bytes: CRC-32 of what follows, little endian   a zstd frame without its magic number

A log may hold records with and without it: reading needs no setting. Hashes are over the plain event, so neither this nor
encryption changes them.
"""

import contextlib
import zlib
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import Compressor, Mapper, MapperDeserialisationError, Notification, StoredEvent
from eventsourcing.utils import register_topic

from chatledger.domain.chat.events import Event, Recorded
from chatledger.domain.errors import ChatledgerError, ConfigurationError, CorruptStateError, UnsupportedFormatError
from chatledger.domain.log.codec import (
    BODIES,
    PREFIX,
    EncodedEvent,
    decode_event,
    encode_event,
    is_outdated,
    place_of_event,
    references_in,
    unsupported,
)
from chatledger.domain.log.large_data import (
    Contents,
    Reference,
    UnknownContentError,
    carried,
    carrying,
    is_carrying,
)
from chatledger.domain.log.parts import event_hash, is_without, without
from chatledger.domain.log.tombstones import foreign_message
from chatledger.projections import zstd

from .blobs import Blobs, MissingBlobError
from .cipher import Keyring, RecordCipher, UnknownKeyError, UnreadableRecordError, is_encrypted, place_of
from .envelope import draw_salts

MARK: Final = b"\xc1Z"
MIN_BYTES: Final = 512
"""Smaller records stay as they are: a tenth of them would be gone, for 10 us of an append and 5 of a rebuild."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger records are not compressed, and none that claims to be larger is decompressed. No NATS server takes one."""
_CRC_BYTES: Final = 4


def is_compressed(record: bytes) -> bool:
    return record.startswith(MARK)


class ZstdCompressor(Compressor):
    """Compresses what gets smaller by it, and leaves the rest as it is."""

    def compress(self, data: bytes) -> bytes:
        """The record of these bytes."""
        is_ours = data.startswith(MARK[:1])  # would be taken for a compressed record; no event begins so
        if not is_ours and not MIN_BYTES <= len(data) <= MAX_BYTES:
            return data
        frame = zstd.compress(data)[len(zstd.MAGIC) :]
        record = MARK + zlib.crc32(frame).to_bytes(_CRC_BYTES, "little") + frame
        return record if is_ours or len(record) < len(data) else data

    def decompress(self, data: bytes) -> bytes:
        """
        The bytes of a record, compressed or not.

        Raises:
            UnreadableRecordError: It is damaged, or claims to be larger than `MAX_BYTES`.
        """
        if not data.startswith(MARK):
            return data
        crc, frame = data[len(MARK) : len(MARK) + _CRC_BYTES], data[len(MARK) + _CRC_BYTES :]
        if zlib.crc32(frame).to_bytes(_CRC_BYTES, "little") != crc:
            msg = "it is compressed, and its checksum does not fit"
            raise UnreadableRecordError(msg)
        try:
            return zstd.decompress(zstd.MAGIC + frame, MAX_BYTES)
        except zstd.FrameError as error:
            msg = f"it is compressed, and cannot be decompressed: {error}"
            raise UnreadableRecordError(msg) from error


RecordPlace = tuple[str, int, str]
"""The place of a record: chat, version and topic; or for large data their name, the number of the part and its upload."""

_MARKED: Final = b"\xc1"
"""The first bytes of records that are compressed, encrypted, or carry large data; no event begins with them."""
_READER: Final = ZstdCompressor()
"""For records that a log may hold whether or not new ones are compressed."""

for _body in BODIES:
    register_topic(_body.TOPIC, _body)


class StructMapper(Mapper[str]):
    """Maps the events of chats. Choose it with `MAPPER_TOPIC=chatledger.infra.log.mapper:StructMapper`."""

    blobs: Blobs | None = None
    """The storage of large data. Without it, events carry them."""
    is_in_clear: bool = False
    """Whether the log is known to be in clear."""
    is_checked_below: bool = False
    """Whether what is stored has checksums, so that a record that cannot be read was written like that, by somebody else."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The stored form of an event, with new salts."""
        return self.store_encoded(encode_event(domain_event, draw_salts()))

    def store_encoded(self, encoded: EncodedEvent) -> StoredEvent:
        """Return the record of an encoded event, which carries its large data where blobs are not supported."""
        state, large = encoded.state, encoded.large
        if large and self.blobs is None:
            state = carrying(state, [part.data for part in large])
        # The position is not known before the append; chat and version name the place as well.
        place = (encoded.event.originator_id, encoded.event.originator_version, encoded.topic)
        return StoredEvent(*place, self.pack(state, place))

    def pack(self, data: bytes, place: RecordPlace) -> bytes:
        """The record of these bytes at a place."""
        if self.compressor:
            data = self.compressor.compress(data)
        # Compressed before it is encrypted: what is encrypted does not shrink. The place keeps a record from being moved to another one.
        if isinstance(self.cipher, RecordCipher):
            return self.cipher.seal(data, place_of(*place))
        return self.cipher.encrypt(data) if self.cipher else data

    def unpack(self, record: bytes, place: RecordPlace) -> bytes:
        """
        The bytes of a record.

        Raises:
            CorruptStateError: It is damaged, stands in a foreign place, or needs another key.
            ConfigurationError: It is encrypted and there is no key.
        """
        try:
            data = self._decrypted(record, place)
            if is_compressed(data):
                return _READER.decompress(data)
            return self.compressor.decompress(data) if self.compressor else data
        except ChatledgerError:
            raise
        except Exception as error:
            reason = f": {error}" if isinstance(error, UnreadableRecordError) else ""
            msg = f"its record cannot be decrypted or decompressed{reason}"
            raise CorruptStateError(msg) from error

    def plain(self, record: Notification) -> bytes | None:
        """The bytes in a record, with the large data that it carries; None where it is none of ours."""
        if not record.topic.startswith(PREFIX):
            return None
        try:
            return self.unpack(record.state, _place(record))
        except CorruptStateError as error:
            if self.is_checked_below and self._is_foreign(record, error):
                return None
            raise _located(record, error) from error

    def packed(self, record: Notification, plain: bytes) -> Notification:
        return replace(record, state=self.pack(plain, _place(record)))

    @property
    def keyring(self) -> Keyring | None:
        return self.cipher.keys if isinstance(self.cipher, RecordCipher) else None

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
            ConfigurationError: They are encrypted and there is no key.
            UnsupportedFormatError: A newer chatledger wrote them, or one before 0.1.
        """
        try:
            return self.read(notification)[0]
        except MissingBlobError as error:
            raise _located(notification, CorruptStateError(str(error))) from error

    def read(self, notification: Notification) -> tuple[Recorded, int]:
        """
        As `recorded`, and how many bytes the whole event takes. What no chatledger wrote is given as a `ForeignMessage`.

        Raises:
            MissingBlobError: Its large data are not there.
        """
        if not notification.topic.startswith(PREFIX):
            return _foreign(notification, "it is no event"), len(notification.state)
        try:
            event, hash_, size = self._read(notification)
        except (CorruptStateError, UnsupportedFormatError) as error:
            # JetStream has checksums, and skips what a disk damaged. So what comes and cannot be read was written like that.
            if self.is_checked_below and self._is_foreign(notification, error):
                return _foreign(notification, str(error)), len(notification.state)
            raise _located(notification, error) from error
        return Recorded(notification.id, event, hash_), size

    def event_bytes(self, notification: Notification) -> bytes:
        """Return the bytes of an event, which its hash is over. Large data are not needed for that."""
        try:
            return self._plain(notification)[0]
        except (CorruptStateError, UnsupportedFormatError) as error:
            raise _located(notification, error) from error

    def read_strictly(self, notification: Notification) -> tuple[Recorded, int]:
        """Read a record strictly: nothing is taken for a foreign message, to see whether the keys are right."""
        try:
            event, hash_, size = self._read(notification)
        except (CorruptStateError, UnsupportedFormatError) as error:
            raise _located(notification, error) from error
        return Recorded(notification.id, event, hash_), size

    def decode(self, stored: StoredEvent, fetch: Callable[[Reference], bytes | bytearray]) -> Event[Any]:
        """
        Return the event in a record, with what `fetch` gives for its large data.

        Raises:
            CorruptStateError and the like: It cannot be read.
        """
        state, contents = self._plain(stored)
        contents = contents or {reference.digest: fetch(reference) for reference in references_in(stored.topic, state)}
        return decode_event(stored.topic, state, contents)

    def may_be_event(self, notification: Notification) -> bool:
        """Whether a record is encrypted, or an event in clear that is small; whatever keys are at hand."""
        record = notification.state
        if not notification.topic.startswith(PREFIX):
            return False
        if is_encrypted(record):
            return True
        try:
            place = place_of_event(_READER.decompress(record) if is_compressed(record) else record)
        except Exception:  # noqa: BLE001 - as libraries for compression raise what they like
            return is_outdated(notification.topic)
        return (place.stream, place.version) == (_text(notification), notification.originator_version)

    def whole(self, notification: Notification) -> Notification:
        """Return a record that carries its large data. Raises `MissingBlobError` when they are not there."""
        if not notification.topic.startswith(PREFIX):
            return notification
        try:
            state, contents = self._plain(notification)
            references = [] if contents else references_in(notification.topic, state)
            large = [self._fetch(reference) for reference in references]
        except CorruptStateError as error:
            if self.is_checked_below and self._is_foreign(notification, error):
                return notification
            raise _located(notification, error) from error
        if not large:
            return notification
        return replace(notification, state=self.pack(carrying(state, large), _place(notification)))

    def referring(self, record: Notification) -> Notification:
        """Return a record of a backup without the large data that it carries, which are stored."""
        if self.blobs is None or not record.topic.startswith(PREFIX):
            return record
        try:
            state, contents = self._plain(record)
        except CorruptStateError as error:
            raise _located(record, error) from error
        for digest, data in (contents or {}).items():
            self.blobs.release(self.blobs.hold(digest, memoryview(data)))
        return replace(record, state=self.pack(state, _place(record))) if contents else record

    def without(self, record: Notification, slots: Collection[int]) -> Notification:
        """
        Return a record without the content of these slots, and the large data that it carries for them; as it is where they have none.

        Raises:
            CorruptStateError: It is no event, cannot be read, or could not be read any more.
        """
        if not record.topic.startswith(PREFIX):
            raise _located(record, CorruptStateError("what stands there is no event"))
        try:
            state, contents = self._plain(record)
            bare = without(state, slots)
            if bare == state:
                return record
            needed = {reference.digest for reference in references_in(record.topic, bare)}
            needed_data = [data for digest, data in (contents or {}).items() if digest in needed]
            rewritten = self.packed(record, carrying(bare, needed_data) if needed_data else bare)
            # What it replaces is overwritten: that it can be read with the keys at hand is found out now, or never.
            is_sound = is_without(self._plain(rewritten)[0], state)
            # Nor is there a way back for an event that cannot do without its content, as a chat without the owner.
            with contextlib.suppress(UnknownContentError):
                decode_event(record.topic, bare)
        except (CorruptStateError, UnsupportedFormatError) as error:
            raise _located(record, error) from error
        if not is_sound:
            raise _located(record, CorruptStateError("its content cannot be taken away without a change of what stays"))
        return rewritten

    def located(self, notification: Notification, error: MissingBlobError) -> ChatledgerError:
        """Return the error of an event whose large data are missing."""
        return _located(notification, CorruptStateError(str(error)))

    def _is_foreign(self, notification: Notification, error: CorruptStateError | UnsupportedFormatError) -> bool:
        """Whether somebody else wrote what cannot be read: not a newer chatledger, nor one that has another key."""
        # It may be of one of ours that was given a newer key. Passed over, its event would be missing, without a word.
        if isinstance(error.__cause__, UnknownKeyError):
            return False
        if isinstance(error, CorruptStateError):
            return True
        if is_outdated(notification.topic):
            return False
        try:
            place = place_of_event(self._plain(notification)[0])
        except CorruptStateError:
            return True
        return (place.stream, place.version) != (_text(notification), notification.originator_version)

    def _read(self, stored: StoredEvent) -> tuple[Event[Any], bytes, int]:
        """The event of a record, its hash, and how many bytes it takes with its large data."""
        if is_outdated(stored.topic):
            raise unsupported(stored.topic)
        state, contents = self._plain(stored)
        try:
            event = decode_event(stored.topic, state, contents)
        # Asked for only now: of a page of events few refer to large data, and each would be parsed twice.
        except UnknownContentError:
            contents = {reference.digest: self._fetch(reference) for reference in references_in(stored.topic, state)}
            event = decode_event(stored.topic, state, contents)
        # In clear nothing binds a record to its place but what it says of itself.
        if event.originator_version != stored.originator_version or event.originator_id != _text(stored):
            msg = f"event {stored.originator_version} of chat {_text(stored)!r} is found in the place of another one"
            raise CorruptStateError(msg)
        size = len(state) + sum(map(len, contents.values())) if contents else len(state)
        return event, event_hash(state), size

    def _plain(self, stored: StoredEvent) -> tuple[bytes, Contents | None]:
        """The encoded event in a record, and the large data that it carries."""
        record = stored.state
        is_marking = self.compressor is None or isinstance(self.compressor, ZstdCompressor)
        # The usual record, of an append or of a page, costs one comparison; the path of the others took a tenth of reading it.
        if self.cipher is None and is_marking and record[:1] != _MARKED:
            return record, None  # as it was encoded
        state = self.unpack(record, _place(stored))
        return carried(state) if is_carrying(state) else (state, None)

    def _fetch(self, reference: Reference) -> bytes | bytearray:
        if self.blobs is None:
            msg = "it refers to large data, which are not at hand here; open the log with chatledger.open"
            raise CorruptStateError(msg)
        return self.blobs.get(reference.digest, reference.size)

    def _decrypted(self, record: bytes, place: RecordPlace) -> bytes:
        if isinstance(self.cipher, RecordCipher):
            return self.cipher.unseal(record, place_of(*place))
        if self.cipher:
            return self.cipher.decrypt(record)
        if is_encrypted(record) and self.is_in_clear:
            msg = "it is encrypted, and the log is not"
            raise UnreadableRecordError(msg)
        if is_encrypted(record):
            msg = (
                f"the log is encrypted (event {place[1]} of chat {place[0]!r}). Open it with its key: "
                "chatledger.open(..., encryption=chatledger.Encryption(...)), or CHATLEDGER_ENCRYPTION_KEY for the command line"
            )
            raise ConfigurationError(msg)
        return record


def _place(stored: StoredEvent) -> RecordPlace:
    return _text(stored), stored.originator_version, stored.topic


def _foreign(notification: Notification, why: str) -> Recorded:
    return foreign_message(notification.id, _text(notification), notification.state, why)


def _located(notification: Notification, error: CorruptStateError | UnsupportedFormatError) -> ChatledgerError:
    stream_id, version, position = _text(notification), notification.originator_version, notification.id
    msg = f"event {version} of chat {stream_id!r} at position {position} cannot be read: {error}"
    if isinstance(error, UnsupportedFormatError):
        return UnsupportedFormatError(msg)
    return CorruptStateError(msg, chat_id=stream_id, position=position, version=version)


def _text(stored: StoredEvent) -> str:
    # Recorders give ids back as text here; a UUID means a recorder that was set up for UUIDs.
    return str(stored.originator_id) if isinstance(stored.originator_id, UUID) else stored.originator_id
