"""The log of a data directory, read from its files while no server runs on them. Nothing is changed."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from eventsourcing.persistence import DataError, Notification

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.undecodable import UNDECODABLE

from ..embedded import DataDirectory
from ..embedded.blocks import BlockRecord, DamagedBytes, Deleted
from ..jetstream.filling import FILLER
from ..jetstream.reading import TOPIC, VERSION
from ..jetstream.records import FOREIGN_TOPIC
from ..jetstream.stream import LOG_ID, event_prefix, tracking_prefix
from ..jetstream.subjects import ORIGINATOR_ID, decode_header, raw_id, token
from ..locations import STREAM
from ..log.blobs import Packer
from ..log.bookmarks import Bookmark, decode_bookmark
from ..log.jetstream import BLOBS, FEEDS
from .bit_correction import BitCorrection, CorrectedRecord
from .large_files import FileBlobs

_FILLERS = tracking_prefix(STREAM) + token(FILLER)


class StoreFiles:
    """
    The stream of a data directory.

    Attributes:
        records: The stored events that can be read, and foreign messages, by position; what had one flipped bit is
            corrected.
        doubtful: Those of them whose checksum is wrong: the chain may prove that the event is right all the same.
        corrected: Records in which one bit was flipped.
        damages: Bytes of block files that are no intact record, of the streams beside it too.
        unreadable: Positions whose record is damaged in its headers.
        last: The highest position that has a record, readable or not: the last event of all is never deleted.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._folder = directory.log / "jetstream" / "$G" / "streams"
        self.records: dict[int, Notification] = {}
        self.doubtful: set[int] = set()
        self.corrected: list[CorrectedRecord] = []
        self.damages: list[DamagedBytes] = []
        self.unreadable: list[int] = []
        self.last = 0
        self._bookmarks = self._read_bookmarks()
        deleted: set[int] = set()
        blocks = BitCorrection(self._folder / STREAM, STREAM)
        for entry in blocks.entries():
            if isinstance(entry, DamagedBytes):
                self.damages.append(entry)
                continue
            if isinstance(entry, Deleted):
                deleted.add(entry.position)
                continue
            self.last = max(self.last, entry.position)
            if entry.subject != _FILLERS:
                self._take(entry)
        self.corrected += blocks.corrected
        for position in deleted:
            self.records.pop(position, None)
        self.doubtful &= self.records.keys()

    def read_large(self, packer: Packer) -> FileBlobs:
        """The large data of the events."""
        blobs = FileBlobs(self._folder / (STREAM + BLOBS), STREAM + BLOBS, packer)
        self.corrected += blobs.corrected
        self.damages += blobs.damages
        return blobs

    def _take(self, entry: BlockRecord) -> None:
        try:
            self.records[entry.position] = _notification(entry)
            if not entry.is_intact:
                self.doubtful.add(entry.position)
        except (KeyError, ValueError, DataError):
            if {TOPIC, VERSION} & entry.headers.keys():
                self.unreadable.append(entry.position)
            else:
                self.records[entry.position] = _foreign(entry)

    @property
    def folder(self) -> Path:
        """Where the server keeps the stream."""
        return self._folder / STREAM

    @property
    def identity(self) -> str | None:
        """The identity of the log; None when the file that says so can not be read."""
        try:
            found = msgspec.json.decode((self._folder / STREAM / "meta.inf").read_bytes(), type=dict[str, Any])
            return f"{found.get('metadata', {}).get(LOG_ID, '')}@{found['Created']}"
        except (OSError, *UNDECODABLE, KeyError, AttributeError):
            return None

    def stored(self) -> Sequence[Notification]:
        """The records, in order."""
        return [self.records[position] for position in sorted(self.records)]

    def bookmarks(self) -> list[Bookmark]:
        """Where the named feeds stand, as far as that can be read."""
        return self._bookmarks

    def _read_bookmarks(self) -> list[Bookmark]:
        newest: dict[str, BlockRecord] = {}
        name = STREAM + FEEDS
        gone: set[int] = set()
        blocks = BitCorrection(self._folder / name, name)
        for entry in blocks.entries():
            if isinstance(entry, DamagedBytes):
                self.damages.append(entry)
            elif isinstance(entry, Deleted):
                gone.add(entry.position)
            elif entry.is_intact:
                newest[entry.subject] = entry
        self.corrected += blocks.corrected
        found: list[Bookmark] = []
        for entry in newest.values():
            if entry.position not in gone:
                with contextlib.suppress(CorruptStateError):
                    found.append(decode_bookmark(entry.payload, 0))
        return found


def _foreign(entry: BlockRecord) -> Notification:
    """A message of others, as recorders give it."""
    originator = ""
    if entry.subject.startswith(event_prefix(STREAM)):
        with contextlib.suppress(DataError):
            originator = raw_id(entry.subject.removeprefix(event_prefix(STREAM)), entry.headers.get(ORIGINATOR_ID))
    return Notification(originator, 0, FOREIGN_TOPIC, entry.payload, entry.position)


def _notification(entry: BlockRecord) -> Notification:
    token = entry.subject.removeprefix(event_prefix(STREAM))
    return Notification(
        raw_id(token, entry.headers.get(ORIGINATOR_ID)),
        int(entry.headers[VERSION]),
        decode_header(entry.headers[TOPIC]),
        entry.payload,
        entry.position,
    )


def stream_folder(directory: DataDirectory) -> Path:
    """Where the server keeps the stream."""
    return directory.log / "jetstream" / "$G" / "streams" / STREAM
