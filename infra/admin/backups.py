"""Reading a backup back, with the chain of every stream, and making a log of it: every record at its position, then all verified."""

import contextlib
import os
import shutil
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from eventsourcing.persistence import JSONTranscoder, Notification
from msgspec import structs

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChainIntegrityError, ConfigurationError
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, make_folder
from chatledger.projections.verify.walk import Walk

from ..ledger.ledger import Ledger
from ..log.bookmarks import decode_bookmark
from ..log.cipher import RecordCipher, is_encrypted
from ..log.envelope import clock_ms
from ..log.mapper import StructMapper
from ..log.nats.endpoint import Login
from ..log.nats_server.directory import LOST_AND_FOUND, DataDirectory, sync
from ..log.port import EventLog
from ..store.backup.manifest import Backup, BackupFolder, BackupManifest, locked
from ..store.backup.segments import Frame, read_segment
from ..store.opening.encryption import Encryption, keyring_of, scratch_beside
from ..store.opening.locations import LogOnly, OpenOptions, log_at, open_shared
from ..store.quarantine import Note, Quarantine
from ..store.temp_folders import Scratch

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
            generation.close()
    end = walk.state.position, walk.state.hash, walk.event_count + walk.foreign_count
    if end != (manifest.position, manifest.hash, manifest.event_count):
        msg = (
            f"the backup in {home.path} ends at position {walk.state.position:,} with {walk.event_count:,} events, but its "
            f"manifest says position {manifest.position:,} and {manifest.event_count:,} events"
        )
        raise ChainIntegrityError(msg, position=walk.state.position)
    return manifest.describe(home.path)


_PAGE: Final = 250
_DRAFT: Final = ".restoring"


def restore(
    folder: str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    encryption: Encryption | None = None,
    login: Login | None = None,
    timeout_s: float = 15.0,
    progress: Progress | None = None,
) -> Backup:
    """
    Make a ledger from a backup, in an empty place, and verify all of it.

    Every event stands at the position that it had; so tombstones, anchors, and positions that somebody noted stay right. Named
    feeds go on where they were when the backup was taken. What differs: the log has a new identity, and its server has new
    times of arrival. Interrupted at any point, nothing is at the location that would open; restore again.

    Args:
        folder: The backup.
        location: As for `chatledger.open`, except `memory:`. A directory that does not exist or is empty; a stream or
            database without events.
        encryption: The keys of an encrypted log.
        login: Only for servers: how to log in, as for `chatledger.open`. It must be allowed to make streams.
        timeout_s: The budget of one operation on the log.
        progress: Called with (positions done, positions in all); each counts twice, written and verified.

    Returns:
        What was restored.

    Raises:
        ConfigurationError: The place is not empty, or cannot be used; there is no backup; or its keys are missing.
        CorruptStateError, ChainIntegrityError: The backup is damaged, or what was restored is not what it says.
        UnsupportedFormatError: A newer chatledger wrote the backup.
        LogRefusedError, AccessDeniedError: The server refuses the login, or the login may not make the streams.
        LogUnavailableError: The log did not answer.
    """
    backup, manifest = open_backup(folder, encryption)
    report = progress or no_progress
    place = os.fspath(location)
    options = _TargetOptions(encryption, login, timeout_s)
    run = _RestoreRun(backup, manifest, options, progress=report)
    if place == "memory:":
        msg = "a ledger in memory ends with its process; restore into a directory, nats://, sqlite:// or postgresql://"
        raise ConfigurationError(msg)
    if "://" in place:
        if manifest.quarantined:
            names = ", ".join(repr(stream.id) for stream in manifest.quarantined)
            msg = f"the backup has chats that lost events ({names}), which only a directory can refuse: restore it into one, and give them up there"
            raise ConfigurationError(msg)
        run.into(place, is_stream_made=True)
    else:
        options.log_only(place, create=None).check_place("path", place)
        with _drafted(DataDirectory(place).path) as draft:
            run.into(str(draft))
            if manifest.quarantined:  # what had lost events before the backup was taken is refused here, too
                why = "the log was damaged before the backup was taken"
                streams = tuple(manifest.quarantined)
                note = Note(made_at=clock_ms(), why=why, kept_as="", log_id=manifest.log_id, streams=streams)
                Quarantine(draft).add("restored", note)
    return manifest.describe(Path(folder).expanduser().absolute())


class _TargetOptions(NamedTuple):
    """The options for opening the target, which happens several times."""

    encryption: Encryption | None
    login: Login | None
    timeout_s: float

    def log_only(self, location: str, *, create: bool | None) -> LogOnly:
        return LogOnly(location, create=create, timeout_s=self.timeout_s, encryption=self.encryption, login=self.login)


class _RestoreRun:
    def __init__(
        self, backup: BackupLog, manifest: BackupManifest, options: _TargetOptions, *, progress: Progress
    ) -> None:
        self._backup, self._manifest, self._progress = backup, manifest, progress
        self._options = options
        self._bookmarks = [decode_bookmark(raw.encode(), 0) for raw in manifest.bookmarks]  # before anything is written

    def into(self, location: str, *, is_stream_made: bool = False) -> None:
        """Fill the log at a location, and verify it."""
        create = is_stream_made or None
        with log_at(self._options.log_only(location, create=create)) as log:
            is_again = log.drop_partial()
            if not is_again:
                self._restore_log(log)
        if is_again:  # what an interrupted restore left is gone with its log, so the new one is opened anew
            with log_at(self._options.log_only(location, create=create)) as log:
                self._restore_log(log)
        self._verify(location)

    def _restore_log(self, log: EventLog) -> None:
        manifest = self._manifest
        if log.is_dense and manifest.missing > manifest.erased:
            msg = (
                f"{manifest.missing - manifest.erased:,} positions of this log never held an event, as is usual in a database; "
                "on a NATS server that would mean lost events. Restore it into postgresql:// or sqlite://"
            )
            raise ConfigurationError(msg)
        log.restore(self._pages())
        for bookmark in self._bookmarks:
            # Named feeds go on where they were, though the log has another identity.
            log.save_bookmark(structs.replace(bookmark, log_id=log.identity))

    def _pages(self) -> Iterator[Sequence[Notification]]:
        records = (frame.notification() for frame in self._backup.frames())
        while page := list(islice(records, _PAGE)):
            yield page
            self._progress(page[-1].id, 2 * self._manifest.position)

    def _verify(self, location: str) -> None:
        manifest = self._manifest
        encryption, login, timeout_s = self._options
        options = OpenOptions(location, timeout_s=timeout_s, encryption=encryption, login=login)
        with Ledger(open_shared(options)) as ledger:
            # Twice the positions: `verify` itself reads and compares them.
            verification = ledger.verify(
                progress=lambda done, total: self._progress(
                    manifest.position + (done * manifest.position // total if total else 0), 2 * manifest.position
                )
            )
            digests = [recorded.hash for recorded in ledger.history(after=max(0, manifest.position - 1))]
        position, event_count = verification.position, verification.event_count
        end = position, event_count + verification.foreign_count, digests[-1] if digests else b""
        if end != (manifest.position, manifest.event_count, manifest.hash):
            msg = (
                f"what was restored ends at position {position:,} with {event_count:,} events, but the backup says "
                f"position {manifest.position:,} and {manifest.event_count:,} events. Check the backup: 'chatledger backup --check'"
            )
            raise ChainIntegrityError(msg, position=position)


@contextlib.contextmanager
def _drafted(target: Path) -> Generator[Path]:
    """A directory beside the target, which takes its place when the `with` ends well."""
    try:
        if target.is_dir() and {entry.name for entry in target.iterdir()} == {LOST_AND_FOUND}:
            msg = f"{target} is the root of a volume, which cannot be replaced as a whole; restore into a folder inside it"
            raise ConfigurationError(msg)
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            msg = f"{target} is not empty, and a backup is restored into an empty place only; move it away, or give another"
            raise ConfigurationError(msg)
        make_folder(target.parent)
        draft = target.with_name(target.name + _DRAFT)
        draft.mkdir(mode=0o700, exist_ok=True)
        with locked(draft / "lock", f"another process restores a backup into {draft}; wait for it"):
            shutil.rmtree(draft / "data", ignore_errors=True)  # of an interrupted restore
            yield draft / "data"
            (draft / "data").rename(target)  # at once: nothing that would open is ever there in part
            sync(target.parent)
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        msg = f"the backup cannot be restored to {target}: {error}"
        raise ConfigurationError(msg) from error
