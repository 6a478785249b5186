r"""
The folder of a backup, and the manifest that says which of its files count.

    manifest.json          {"format": 1, "sha256": digest of what follows, "manifest": {...}}
    <number>.segment       stored records, see below
    <number>.heads         msgpack: stream to [version, hash] of its last event
    lock                   held while a backup is written

A writer makes new files, and then replaces the manifest: before that instant the earlier backup stands, after it the
later one. What the manifest does not name is left over and goes with the next run.

Segment files: the stored records of a stretch of the log, as they are on it.

    chatledger-segment/1\n
    4 bytes: length of the frame   4 bytes: CRC-32 of the frame   the frame: msgpack [position, stream, version, topic, record]
    ...

Numbers are big-endian. Positions ascend. A record may be compressed or encrypted: it is what the log stores.
"""

import contextlib
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, Final

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.errors import (
    DECODE_ERRORS,
    ConfigurationError,
    CorruptStateError,
    LedgerLockedError,
    UnsupportedFormatError,
)
from chatledger.domain.wire import Value
from chatledger.projections.lmdb.environment import absolute_path, make_folder, private
from chatledger.projections.operating_system import OPEN_FLAGS, lock_file, sync

from ...log.nats_server.directory import write_private
from ..quarantine import QuarantinedStream

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


class Backup(Value, frozen=True, kw_only=True):
    """
    A backup: the stored events of a log up to one position.

    Args:
        folder: Where it lies.
        log_id: The identity of the log that it was taken from last.
        position: The last position that it covers.
        hash: The hash of the last event, in hexadecimal digits; empty for an empty log.
        event_count: How many events it holds.
        stream_count: How many chats and threads they are of, deleted ones included.
        size_bytes: The size of its files.
        created_at, updated_at: When it was begun and taken last, in ms.
        added_count: How many events this run added.
        erased_count: How many events this run removed, because their chats were deleted since.
    """

    folder: str
    log_id: str
    position: int
    hash: str
    event_count: int
    stream_count: int
    size_bytes: int
    created_at: int
    updated_at: int
    added_count: int = 0
    erased_count: int = 0


FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
LOCK: Final = "lock"
SEGMENT, HEADS = ".segment", ".heads"
StreamHeads = dict[str, tuple[int, bytes]]
"""The head of each stream: version and hash of its last event."""


class HeadsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest's entry for the file with the heads."""

    file: str
    size: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    The manifest of a backup.

    Args:
        log_id: Of the log that it was taken from.
        is_dense: Whether positions of that log have no gaps but those of erased events.
        position, hash: Of the last event.
        missing, erased: As in the index: positions without an event, and those that tombstones account for.
        bookmarks: The positions of named feeds, as the log encodes them.
        quarantined: The chats and threads that had lost events for good when it was taken.
    """

    log_id: str
    is_dense: bool
    position: int
    hash: bytes
    missing: int
    erased: int
    created_at: int
    updated_at: int
    stream_count: int
    segments: list[BackupSegment]
    heads: HeadsFile
    bookmarks: list[str]
    quarantined: list[QuarantinedStream] = []

    @property
    def event_count(self) -> int:
        """The number of records in its segments."""
        return sum(segment.count for segment in self.segments)

    def describe(self, folder: Path, *, added: int = 0, erased: int = 0) -> Backup:
        return Backup(
            folder=str(folder),
            log_id=self.log_id,
            position=self.position,
            hash=self.hash.hex(),
            event_count=self.event_count,
            stream_count=self.stream_count,
            size_bytes=sum(segment.size for segment in self.segments) + self.heads.size,
            created_at=self.created_at,
            updated_at=self.updated_at,
            added_count=added,
            erased_count=erased,
        )


class _ManifestFile(msgspec.Struct):
    format: int
    sha256: str = ""
    manifest: msgspec.Raw = msgspec.Raw(b"null")


class BackupFolder:
    """The files of a backup."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = absolute_path(path)

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        """
        Make the folder if it is not there, and keep other writers out.

        Raises:
            ConfigurationError: It cannot be written, or holds something else.
            LedgerLockedError: Another backup is being written into it.
        """
        with explained(self.path):
            make_folder(self.path)
            foreign = {entry.name for entry in self.path.iterdir() if not _is_ours(entry.name)}
            # A folder with a manifest is a backup, whatever else somebody has put into it.
            if foreign and not (self.path / MANIFEST).exists():
                msg = f"{self.path} is not empty and no backup; give a new or empty folder"
                raise ConfigurationError(msg)
            with locked(self.path / LOCK, f"another process writes a backup into {self.path}; wait for it"):
                yield

    def read(self) -> BackupManifest | None:
        """
        The manifest; None when there is none.

        Raises:
            CorruptStateError: It is damaged.
            UnsupportedFormatError: A newer chatledger wrote it.
        """
        path = self.path / MANIFEST
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_ManifestFile)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DECODE_ERRORS as error:
            raise _damaged(path, error) from error
        except OSError as error:
            msg = f"the backup cannot be read: {error}"
            raise ConfigurationError(msg) from error
        if file.format > FORMAT:
            msg = f"{path} has format {file.format}, this chatledger reads up to {FORMAT}; upgrade chatledger"
            raise UnsupportedFormatError(msg)
        if sha256(file.manifest).hexdigest() != file.sha256:
            raise _damaged(path, "its digest is wrong")
        try:
            manifest = msgspec.json.decode(file.manifest, type=BackupManifest)
        except DECODE_ERRORS as error:
            raise _damaged(path, error) from error
        # A manifest from elsewhere must not make us read, or remove, files outside of the folder.
        if not all(map(_is_numbered, (manifest.heads.file, *(segment.file for segment in manifest.segments)))):
            raise _damaged(path, "it names a file that is none of a backup")
        return manifest

    def require(self) -> BackupManifest:
        """The manifest. Raises `ConfigurationError` when there is none, and as `read` does."""
        manifest = self.read()
        if manifest is None:
            msg = f"there is no backup in {self.path}; 'chatledger backup FOLDER' makes one"
            raise ConfigurationError(msg)
        return manifest

    def read_heads(self, manifest: BackupManifest) -> StreamHeads:
        """Return the head of each stream in the backup. Raises `CorruptStateError`."""
        path = self.path / manifest.heads.file
        try:
            return msgspec.msgpack.decode(read_sound(path, manifest.heads.sha256), type=StreamHeads)
        except DECODE_ERRORS as error:
            raise _damaged(path, error) from error

    def write_heads(self, heads: StreamHeads) -> HeadsFile:
        raw = msgspec.msgpack.encode(heads)
        path = self.new_file(HEADS)
        write_private(path, raw)
        return HeadsFile(file=path.name, size=len(raw), sha256=sha256(raw).hexdigest())

    def new_file(self, kind: str) -> Path:
        numbers = [int(entry.stem) for entry in self.path.iterdir() if entry.stem.isdecimal()]
        # Never one that was there: the earlier manifest may name it, and counts until the next one is published.
        return self.path / f"{max(numbers, default=0) + 1:08d}{kind}"

    def publish(self, manifest: BackupManifest) -> None:
        """Make a manifest the one that counts, on the disk before this returns."""
        sync(self.path)  # the files that it names
        raw = msgspec.json.encode(manifest)
        file = _ManifestFile(FORMAT, sha256(raw).hexdigest(), msgspec.Raw(raw))
        write_private(self.path / MANIFEST, msgspec.json.encode(file))

    def remove_strays(self, manifest: BackupManifest | None) -> None:
        """Remove what the manifest does not name: files of earlier runs, also of interrupted ones."""
        named: set[str] = {MANIFEST, LOCK}
        if manifest is not None:
            named |= {manifest.heads.file, *(segment.file for segment in manifest.segments)}
        # Only what has a name of ours: people put other files beside a backup.
        for entry in list(self.path.iterdir()):
            if _is_ours(entry.name) and entry.name not in {*named, "lost+found"}:
                entry.unlink()


def _is_numbered(name: str) -> bool:
    stem, _, kind = name.partition(".")
    return stem.isdecimal() and f".{kind}".startswith((SEGMENT, HEADS)) and "/" not in name and "\0" not in name


def _is_ours(name: str) -> bool:
    return _is_numbered(name) or name in {LOCK, "lost+found"} or name.startswith(MANIFEST)


def _damaged(path: Path, why: Any) -> CorruptStateError:
    return CorruptStateError(f"{path} is damaged: {why}; take a new backup into another folder")


@contextlib.contextmanager
def explained(folder: Path) -> Generator[None]:
    """Raise errors of the file system as ours."""
    try:
        yield
    except OSError as error:
        msg = f"the backup in {folder} cannot be written: {error}. What was there before is still good"
        raise ConfigurationError(msg) from error


@contextlib.contextmanager
def locked(file: Path, refusal: str) -> Generator[None]:
    """
    Hold the lock on a file; the kernel frees that of a killed process.

    Raises `LedgerLockedError`, with the message given, when somebody else holds it.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    try:
        try:
            lock_file(descriptor)
        except BlockingIOError as error:
            raise LedgerLockedError(refusal) from error
        yield
    finally:
        os.close(descriptor)
