"""Reading a backup back: digests, frames, and the chain of every stream."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from eventsourcing.persistence import JSONTranscoder

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChainIntegrityError, ConfigurationError
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES
from chatledger.projections.verify.walk import Walk

from ...log.cipher import RecordCipher, is_encrypted
from ...log.mapper import StructMapper
from ...store.backup.manifest import Backup, BackupFolder, BackupManifest
from ...store.backup.segments import Frame, read_segment
from ...store.opening.encryption import Encryption, keyring_of, scratch_beside
from ...store.temp_folders import Scratch

__all__ = ["Backup", "BackupLog", "check_backup", "open_backup"]

_READ_PAGE: Final = 1000


class BackupLog:
    """A backup, read as the log that it was taken from; a `WalkedLog`."""

    def __init__(self, home: BackupFolder, manifest: BackupManifest, mapper: StructMapper) -> None:
        self._home, self._manifest, self._mapper = home, manifest, mapper
        self._ends = [segment.last for segment in manifest.segments]
        self._loaded: tuple[str, list[Frame]] = ("", [])

    @property
    def is_dense(self) -> bool:
        """Whether positions have no gaps, as for the log of the backup."""
        return self._manifest.is_dense

    is_checked = False

    def frames(self, after: int = 0) -> Iterator[Frame]:
        """The records after a position, in order."""
        for segment in self._manifest.segments[bisect_right(self._ends, after) :]:
            # The last one read stays: a walk asks for page after page of it.
            name, frames = self._loaded
            if name != segment.file:
                frames = list(read_segment(self._home.path, segment))
                self._loaded = (segment.file, frames)
            yield from (frame for frame in frames if frame.position > after)

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        """The events after a position, in order; empty at the end."""
        return list(map(self._recorded, islice(self.frames(after), limit)))

    def read_stream(self, stream_id: str, *, after: int) -> Sequence[Recorded]:
        """The events of one chat after a position, in order."""
        of_stream = (frame for frame in self.frames(after) if frame.stream == stream_id)
        return list(map(self._recorded, islice(of_stream, _READ_PAGE)))

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position; None where there is none."""
        frame = next(self.frames(position - 1), None)
        return None if frame is None or frame.position != position else self._recorded(frame)

    def committed_position(self) -> int:
        """The position of the last event; 0 for an empty log."""
        return self._manifest.position

    def _recorded(self, frame: Frame) -> Recorded:
        return self._mapper.recorded(frame.notification())


def open_backup(folder: str | os.PathLike[str], encryption: Encryption | None) -> tuple[BackupLog, BackupManifest]:
    """A backup to read events from. Raises `ConfigurationError`, `CorruptStateError`, `UnsupportedFormatError`."""
    home = BackupFolder(folder)
    manifest = home.require()
    cipher = None if encryption is None else RecordCipher(keyring_of(encryption))
    return BackupLog(home, manifest, StructMapper(JSONTranscoder(), cipher=cipher)), manifest


def check_backup(
    folder: str | os.PathLike[str],
    *,
    encryption: Encryption | None = None,
    files_only: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """
    Read a backup back: every file has its digest, every event follows the one before it in its chat. Changes nothing.

    Args:
        folder: Where it lies.
        encryption: The keys, when the log is encrypted.
        files_only: Check the files against their digests and not the events in them, for which no keys are needed.
        progress: Called with (position reached, last position).

    Raises:
        ConfigurationError: There is no backup, or the keys of an encrypted one were not given.
        CorruptStateError, ChainIntegrityError: It is damaged, and where.
        UnsupportedFormatError: A newer chatledger wrote it.
    """
    progress = progress or no_progress
    log, manifest = open_backup(folder, encryption)
    home = BackupFolder(folder)
    home.read_heads(manifest)
    if files_only:  # reading the frames compares each file with its digest
        versions: dict[str, int] = {}
        for frame in log.frames():
            if not frame.topic:
                continue  # the place of a foreign message
            if frame.version <= versions.get(frame.stream, 0):
                msg = f"event {frame.version} of chat {frame.stream!r} stands after event {versions[frame.stream]}"
                raise ChainIntegrityError(msg, chat_id=frame.stream, position=frame.position, version=frame.version)
            versions[frame.stream] = frame.version
            progress(frame.position, manifest.position)
        return manifest.describe(home.path)
    first = next(log.frames(), None)
    if encryption is None and first is not None and is_encrypted(first.state):
        msg = (
            "the backup is of an encrypted log: give its keys, or check its files only (files_only=True, --files-only)"
        )
        raise ConfigurationError(msg)
    scratch = Scratch() if encryption is None else scratch_beside(None)
    scratch.remove_abandoned()
    with scratch.folder() as place:
        generation = Generation(0, place, map_bytes=INITIAL_MAP_BYTES)
        try:
            walk = Walk(log, generation, watch=None, progress=lambda at: progress(at, manifest.position))
            walk.finish()
        finally:
            generation.env.close()
    end = walk.state.position, walk.state.hash, walk.event_count + walk.foreign_count
    if end != (manifest.position, manifest.hash, manifest.event_count):
        msg = (
            f"the backup in {home.path} ends at position {walk.state.position:,} with {walk.event_count:,} events, but its "
            f"manifest says position {manifest.position:,} and {manifest.event_count:,} events"
        )
        raise ChainIntegrityError(msg, position=walk.state.position)
    return manifest.describe(home.path)
