r"""
Segment files: the stored records of a stretch of the log, as they are on it.

    chatledger-segment/1\n
    4 bytes: length of the frame   4 bytes: CRC-32 of the frame   the frame: msgpack [position, stream, version, topic, record]
    ...

Numbers are big-endian. Positions ascend. A record may be compressed or encrypted: it is what the log stores.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.projections.lmdb.environment import private

HEADER: Final = b"chatledger-segment/1\n"
SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""A segment that has this size is not continued."""
_PREFIX: Final = Struct(">II")
_encode: Final = msgspec.msgpack.Encoder().encode


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One record and its place on the log."""

    position: int
    stream: str
    version: int
    topic: str
    state: bytes

    def notification(self) -> Notification:
        """The record as recorders know it."""
        return Notification(self.stream, self.version, self.topic, self.state, self.position)


_decode: Final = msgspec.msgpack.Decoder(Frame).decode


class BackupSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest's entry for a segment file."""

    file: str
    first: int
    last: int
    count: int
    size: int
    sha256: str


def frame_of(record: Notification) -> Frame:
    """The frame of a stored record."""
    return Frame(record.id, str(record.originator_id), record.originator_version, record.topic, record.state)


def empty_frame(position: int) -> Frame:
    """The frame of a foreign message, which keeps its place."""
    return Frame(position, "", 0, "", b"")


class SegmentWriter:
    """
    Writes one segment file, which nobody reads before the manifest names it.

    Args:
        path: A new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Private, and new: by the umask, other users of the machine could read the messages.
        self._file = open(path, "xb", opener=private)  # noqa: SIM115 - closed by `finish` or `discard`
        self._digest = sha256()
        self._first = self._last = self._count = 0
        self.size = 0
        self._write(HEADER)

    def add(self, frame: Frame) -> None:
        """Append a record, whose position is above the last one's."""
        assert frame.position > self._last, "positions ascend"
        raw = _encode(frame)
        self._write(_PREFIX.pack(len(raw), zlib.crc32(raw)) + raw)
        self._first = self._first or frame.position
        self._last = frame.position
        self._count += 1

    def finish(self) -> BackupSegment | None:
        """Sync and close the file; None, and no file, when nothing was added."""
        if not self._count:
            self.discard()
            return None
        # On the disk before the manifest names it.
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return BackupSegment(
            file=self._path.name,
            first=self._first,
            last=self._last,
            count=self._count,
            size=self.size,
            sha256=self._digest.hexdigest(),
        )

    def discard(self) -> None:
        """Close and remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _write(self, raw: bytes) -> None:
        self._file.write(raw)
        self._digest.update(raw)
        self.size += len(raw)


def read_segment(folder: Path, segment: BackupSegment) -> Iterator[Frame]:
    """The records of a segment. Raises `CorruptStateError` when the file is missing, or is not what was written."""
    return _frames(read_sound(folder / segment.file, segment.sha256, _where))


def read_sound(path: Path, digest: str, where: Callable[[bytes], str] = lambda _: "") -> bytes:
    """Return the content of a file of a backup. Raises `CorruptStateError` when it is missing, or has another digest."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        msg = f"the backup lacks a file: {error}; take a new backup into another folder"
        raise CorruptStateError(msg) from error
    if sha256(raw).hexdigest() != digest:
        msg = f"{path} is damaged{where(raw)}: its digest is not that of the manifest; take a new backup into another folder"
        raise CorruptStateError(msg)
    return raw


def _frames(raw: bytes) -> Iterator[Frame]:
    at = len(HEADER)
    while at < len(raw):
        start = at + _PREFIX.size
        length, crc = _PREFIX.unpack_from(raw, at) if start <= len(raw) else (len(raw), 0)
        body = raw[start : start + length]
        try:
            is_sound = len(body) == length and zlib.crc32(body) == crc
            frame = _decode(body) if is_sound else None
        except DECODE_ERRORS:
            frame = None
        if frame is None:
            msg = f"the frame at byte {at} of a segment is damaged; take a new backup into another folder"
            raise CorruptStateError(msg)
        yield frame
        at = start + length


def _where(raw: bytes) -> str:
    """Return the place of the damage in words, by the frames before it that can be read."""
    if not raw.startswith(HEADER):
        return " from its start"
    last = 0
    try:
        for frame in _frames(raw):
            last = frame.position
    except CorruptStateError:
        pass
    return f" after position {last}"
