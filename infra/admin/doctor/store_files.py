"""The log of a data directory, read from its files while no server runs on them. Nothing is changed."""

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, CorruptStateError
from chatledger.domain.log.large_data import data_digest

from ...log.blob_storage import MemoryBlobStorage
from ...log.blobs import NAMES_STRAND, Blobs, Chunk, MissingBlobError, Packer, part_in
from ...log.bookmarks import Bookmark, decode_bookmark
from ...log.nats.auxiliary import bucket_stream
from ...log.nats.event_log import BLOBS, FEEDS
from ...log.nats.reading import TOPIC, VERSION, LogMessage
from ...log.nats.records import FOREIGN_TOPIC, Records
from ...log.nats.restoring import PLACEHOLDER
from ...log.nats.rewritten import REDACTED, rewritten_place
from ...log.nats.stream import LOG_ID
from ...log.nats_server.blocks import BlockRecord, DamagedBytes, DeletedRecord, block_files
from ...log.nats_server.directory import DataDirectory
from ...store.opening import STREAM
from .bit_correction import BitCorrection, CorrectedRecord

_OPEN_FILES: Final = 3
"""So many block files, of 8 MB mostly, are kept in memory: the parts of large data stand one after the other."""


class FileBlobs(Blobs):
    """
    The large data in the files of a stream. Whatever parts are there are put together, and their digest says whether that is right.

    Attributes:
        is_incomplete: Whether some were asked for of which no entry says any more that they are complete, so that a ledger misses them.
    """

    def __init__(self, folder: Path, stream: str, packer: Packer) -> None:
        super().__init__(MemoryBlobStorage(chunk_bytes=0), packer)
        self._blocks = BitCorrection(folder, stream)
        self.corrected: list[CorrectedRecord] = []
        self.damages: list[DamagedBytes] = []
        self.is_incomplete = False
        self._complete: set[str] = set()
        self._prefix = f"{stream}.b."
        self._parts: dict[str, dict[str, dict[int, tuple[Path, int]]]] = {}
        """The file and position of each part, by name, upload and number."""
        self._cached: OrderedDict[Path, dict[int, Chunk]] = OrderedDict()
        for file in block_files(folder):
            self._note(file)

    def get(self, digest: bytes, size: int) -> bytearray:
        names = self._names(digest)
        if self._packer.keyring is None and self._secret is None:
            # What the names depend on was lost, so a ledger finds none of them.
            self.is_incomplete = True
            names = self._names_by_digest.get(digest, [])
        for name in names:
            for upload_id, parts in reversed(self._parts.get(name, {}).items()):
                data = self._joined(name, upload_id, parts)
                if len(data) == size and data_digest(data) == digest:
                    self.is_incomplete |= upload_id not in self._complete
                    return data
        msg = f"its large data, with SHA-256 {digest.hex()}, are damaged or missing"
        raise MissingBlobError(msg)

    @cached_property
    def _names_by_digest(self) -> dict[bytes, list[str]]:
        """The names of data by what they are, which takes reading all of them."""
        names: dict[bytes, list[str]] = {}
        for name, uploads in self._parts.items():
            for upload_id, parts in uploads.items():
                names.setdefault(data_digest(self._joined(name, upload_id, parts)), []).append(name)
        return names

    def _look_for_secret(self) -> int | None:
        return 0  # there is no other than the files have

    def _joined(self, name: str, upload_id: str, parts: dict[int, tuple[Path, int]]) -> bytearray:
        data = bytearray()
        for number in range(len(parts)):
            place = parts.get(number)
            chunk = None if place is None else self._chunks(place[0]).get(place[1])
            try:
                data += b"" if chunk is None else self._unpacked(chunk.data, (name, number, upload_id))
            except ChatledgerError:
                return bytearray()
        return data

    def _note(self, file: Path) -> None:
        block = self._blocks.block(file)
        self.corrected += block.corrected
        self.damages += [DamagedBytes(file, damage.offset, damage.length) for damage in block.scan.damages]
        for entry in block.messages():
            chunk, completed, secret = part_in(entry.payload)
            # All parts of an upload may be there, and the note behind them that they are complete not.
            self._complete.add(completed)
            if entry.subject == self._prefix + NAMES_STRAND:
                self._secret = secret or self._secret
            if chunk is not None and entry.subject.startswith(self._prefix):
                uploads = self._parts.setdefault(entry.subject.removeprefix(self._prefix), {})
                uploads.setdefault(chunk.upload_id, {})[chunk.number] = (file, entry.position)

    def _chunks(self, file: Path) -> dict[int, Chunk]:
        chunks = self._cached.get(file)
        if chunks is None:
            messages = self._blocks.block(file).messages()
            chunks = {
                entry.position: chunk for entry in messages if (chunk := part_in(entry.payload).chunk) is not None
            }
            self._cached[file] = chunks
            if len(self._cached) > _OPEN_FILES:
                self._cached.popitem(last=False)
        self._cached.move_to_end(file)
        return chunks


_RECORDS: Final = Records(STREAM, "text", gives_foreign=True)
_PLACEHOLDERS: Final = _RECORDS.tracking_subject(PLACEHOLDER)


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
        bookmarks: The positions of named feeds, as far as they can be read.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._folder = stream_folder(directory).parent
        self.records: dict[int, Notification] = {}
        self.doubtful: set[int] = set()
        self.corrected: list[CorrectedRecord] = []
        self.damages: list[DamagedBytes] = []
        self.unreadable: list[int] = []
        self.last = 0
        self.bookmarks = self._read_bookmarks()
        entries, deleted = self._entries(STREAM)
        for entry in entries:
            self.last = max(self.last, entry.position)
            if entry.subject == _PLACEHOLDERS:
                continue
            message = LogMessage(entry.position, entry.subject, entry.headers, entry.payload)
            record = _RECORDS.notification(message)
            assert record is not None, "foreign messages are given, too"
            # With one of our headers it was an event, whose headers are damaged; without, somebody else published it.
            if record.topic == FOREIGN_TOPIC and {TOPIC, VERSION} & entry.headers.keys():
                self.unreadable.append(entry.position)
                continue
            self.records[entry.position] = record
            if not entry.is_intact and record.topic != FOREIGN_TOPIC:
                self.doubtful.add(entry.position)
        for position in deleted:
            self.records.pop(position, None)
        self._fill_from_rewritten()
        self.doubtful &= self.records.keys()

    def _fill_from_rewritten(self) -> None:
        """Put in what stands in for events of which content was taken away, the last of each that can be read."""
        entries, deleted = self._entries(STREAM + REDACTED)
        there = self.records.keys() - self.doubtful
        for entry in entries:
            place = rewritten_place(STREAM, entry.subject)
            if place is None or place[0] in there or entry.position in deleted:
                continue
            position, suffix = place
            message = LogMessage(position, _RECORDS.prefix + suffix, entry.headers, entry.payload)
            record = _RECORDS.notification(message)
            assert record is not None, "foreign messages are given, too"
            if record.topic != FOREIGN_TOPIC:
                self.records[position] = record
                (self.doubtful.discard if entry.is_intact else self.doubtful.add)(position)

    def _entries(self, stream: str) -> tuple[list[BlockRecord], set[int]]:
        """The messages of a stream that can be read, in order, and the positions of those that were deleted since."""
        records: list[BlockRecord] = []
        deleted: set[int] = set()
        blocks = BitCorrection(self._folder / stream, stream)
        for entry in blocks.entries():
            if isinstance(entry, DamagedBytes):
                self.damages.append(entry)
            elif isinstance(entry, DeletedRecord):
                deleted.add(entry.position)
            else:
                records.append(entry)
        self.corrected += blocks.corrected
        return records, deleted

    def read_large(self, packer: Packer) -> FileBlobs:
        blobs = FileBlobs(self._folder / (STREAM + BLOBS), STREAM + BLOBS, packer)
        self.corrected += blobs.corrected
        self.damages += blobs.damages
        return blobs

    @property
    def folder(self) -> Path:
        return self._folder / STREAM

    @property
    def identity(self) -> str | None:
        """The identity of the log; None when the file that says so cannot be read."""
        try:
            meta = msgspec.json.decode((self._folder / STREAM / "meta.inf").read_bytes(), type=dict[str, Any])
            return f"{meta.get('metadata', {}).get(LOG_ID, '')}@{meta['Created']}"
        except (OSError, *DECODE_ERRORS, KeyError, AttributeError):
            return None

    def stored(self) -> Sequence[Notification]:
        """The records, in order."""
        return [self.records[position] for position in sorted(self.records)]

    def _read_bookmarks(self) -> list[Bookmark]:
        entries, gone = self._entries(bucket_stream(STREAM + FEEDS))
        newest = {entry.subject: entry for entry in entries if entry.is_intact}
        bookmarks: list[Bookmark] = []
        for entry in newest.values():
            if entry.position not in gone:
                with contextlib.suppress(CorruptStateError):
                    bookmarks.append(decode_bookmark(entry.payload, 0))
        return bookmarks


def stream_folder(directory: DataDirectory) -> Path:
    """Return the folder in which the server keeps the stream."""
    return directory.log / "jetstream" / "$G" / "streams" / STREAM
