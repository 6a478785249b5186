"""Reading a backup back, with the chain of every stream, and making a log of it: every record at its position, then all verified."""

import contextlib
import os
import shutil
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
from eventsourcing.persistence import JSONTranscoder, Notification
from msgspec import structs

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChainIntegrityError, ConfigurationError
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, make_folder
from chatledger.projections.operating_system import sync
from chatledger.projections.verify.walk import Walk

from ..ledger.ledger import Ledger
from ..log.bookmarks import decode_bookmark
from ..log.cipher import RecordCipher, is_encrypted
from ..log.envelope import clock_ms
from ..log.mapper import StructMapper
from ..log.nats.endpoint import Login
from ..log.nats_server.directory import LOST_AND_FOUND, DataDirectory, write_private
from ..log.port import EventLog, LostRaceError
from ..store.backup.manifest import Backup, BackupFolder, BackupManifest, Frame, locked, read_segment
from ..store.backup.writing import note_backup
from ..store.opening.encryption import Encryption, keyring_of, scratch_beside
from ..store.opening.locations import checked_sqlite_file, log_at, open_shared
from ..store.opening.options import LogOnly, OpenOptions
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
        frame = next(self.frames(position - 1), None)
        return None if frame is None or frame.position != position else self._recorded(frame)

    def committed_position(self) -> int:
        """The position of the last event; 0 for an empty log."""
        return self._manifest.position

    def plain(self, record: Notification) -> bytes | None:
        """The bytes of a record without encryption and compression; None of what somebody else wrote, and of a gap."""
        return self._mapper.plain(record)

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
        generation = Generation(0, place, map_bytes=INITIAL_MAP_BYTES, is_kept=False)
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
_SQLITE: Final = "sqlite:///"


def restore(
    folder: str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    encryption: Encryption | None = None,
    rekey: Encryption | None = None,
    login: Login | None = None,
    timeout_s: float = 15.0,
    progress: Progress | None = None,
) -> Backup:
    """
    Make a ledger from a backup, in an empty place, and verify all of it; with `rekey` under other keys.

    Every event stands at the position that it had; so tombstones, anchors, and positions that somebody noted stay right. Named
    feeds go on where they were when the backup was taken. What differs: the log has a new identity, and its server has new
    times of arrival. Interrupted at any point, nothing is at the location that would open. Called again it goes on where it stood, into a
    directory, a stream or a new SQLite file; from a backup that has changed since, or with another key, and into another database, it
    begins anew.

    Args:
        folder: The backup.
        location: As for `chatledger.open`, except `memory:`. A directory that does not exist or is empty; a stream or
            database without events.
        encryption: The keys of an encrypted log, which the backup is read with.
        rekey: Encrypt every event and all large data anew with the first of these keys: the others are needed no more, as after a
            leak. Also for a backup of a log in clear. Positions, hashes and the history stay.
        login: Only for servers: how to log in, as for `chatledger.open`. It must be allowed to make streams.
        timeout_s: The budget of one operation on the log.
        progress: Called with (positions done, positions in all); each counts twice, written and verified. It begins where it goes on.

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
    options = _TargetOptions(rekey or encryption, login, timeout_s)
    run = _RestoreRun(backup, manifest, options, folder=Path(folder), is_rekeyed=rekey is not None, progress=report)
    if place == "memory:":
        msg = "a ledger in memory ends with its process; restore into a directory, nats://, sqlite:// or postgresql://"
        raise ConfigurationError(msg)
    # Before anything is made, of the location as its user knows it.
    options.log_only(place, create=None).check_place(place.partition("://")[0] if "://" in place else "path", place)
    if "://" in place:
        if manifest.quarantined:
            names = ", ".join(repr(stream.id) for stream in manifest.quarantined)
            msg = f"the backup has chats that lost events ({names}), which only a directory can refuse: restore it into one, and give them up there"
            raise ConfigurationError(msg)
        file = checked_sqlite_file(place) if place.startswith(_SQLITE) else None
        if file is None or file.exists():
            run.into(place)
            return manifest.describe(Path(folder).expanduser().absolute())
        with _drafted(file, run.source) as draft:
            run.into(_SQLITE + quote(str(draft)), is_draft=True)
    else:
        with _drafted(DataDirectory(place).path, run.source) as draft:
            run.into(str(draft), is_draft=True)
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
        self,
        backup: BackupLog,
        manifest: BackupManifest,
        options: _TargetOptions,
        *,
        folder: Path,
        is_rekeyed: bool,
        progress: Progress,
    ) -> None:
        self._backup, self._manifest, self._progress, self._folder = backup, manifest, progress, folder
        self._options, self._is_rekeyed = options, is_rekeyed
        key = None if options.encryption is None else keyring_of(options.encryption).current
        parts = (
            [segment.sha256 for segment in manifest.segments],
            (manifest.position, manifest.hash, manifest.bookmarks, manifest.quarantined),
            (is_rekeyed, key and (key.id, sha256(b"chatledger restore" + key.secret).digest())),
        )
        self.source = sha256(msgspec.msgpack.encode(parts)).hexdigest()
        self._bookmarks = [decode_bookmark(raw.encode(), 0) for raw in manifest.bookmarks]  # before anything is written

    def into(self, location: str, *, is_draft: bool = False) -> None:
        """Fill the log at a location, which nobody else has open where it is a draft, and verify it."""
        create = None if is_draft else True
        # A file that is there already may be open somewhere: it is filled at once.
        source = None if location.startswith(_SQLITE) and not is_draft else self.source
        with log_at(self._options.log_only(location, create=create)) as log:
            after = log.restored_position(self.source)
            if after is None:
                log.drop_partial()
            elif not is_draft or after or not log.last_position():
                self._restore_log(log, after, source)
            # Else it is a draft of ours whose log is complete: only the rest was interrupted.
        if after is None:  # what an interrupted restore left is gone with its log, so the new one is opened anew
            with log_at(self._options.log_only(location, create=create)) as log:
                self._restore_log(log, 0, source)
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

    def _restore_log(self, log: EventLog, after: int, source: str | None) -> None:
        manifest = self._manifest
        if log.is_dense and manifest.missing > manifest.erased:
            msg = (
                f"{manifest.missing - manifest.erased:,} positions of this log never held an event, as is usual in a database; "
                "on a NATS server that would mean lost events. Restore it into postgresql:// or sqlite://"
            )
            raise ConfigurationError(msg)
        pages = self._pages(after)
        # What lies in the records, large data among it, stays as it is: so hashes do not see the change.
        if self._is_rekeyed:
            pages = ([log.packed(record, self._backup.plain(record)) for record in page] for page in pages)
        log.restore(pages, source=source)
        for bookmark in self._bookmarks:
            # Named feeds go on where they were, though the log has another identity.
            with contextlib.suppress(LostRaceError):  # it was saved before this was interrupted
                log.save_bookmark(structs.replace(bookmark, log_id=log.identity))
        note_backup(log, self._folder, manifest)
        log.finish_restore()

    def _pages(self, after: int) -> Iterator[Sequence[Notification]]:
        records = (frame.notification() for frame in self._backup.frames(after))
        while page := list(islice(records, _PAGE)):
            yield page
            self._progress(page[-1].id, 2 * self._manifest.position)


@contextlib.contextmanager
def _drafted(target: Path, source: str) -> Generator[Path]:
    """A directory beside the target, which takes its place when the `with` ends well. What an interrupted restore of the same source left is in it."""
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
            noted = draft / "source"
            if not noted.exists() or noted.read_text() != source:
                noted.unlink(missing_ok=True)  # first: it must not stand for half of what it stood for
                for earlier in draft.glob("data*"):
                    shutil.rmtree(earlier, ignore_errors=True)
                    earlier.unlink(missing_ok=True)
                write_private(noted, source.encode())
            yield draft / "data"
            for beside in draft.glob("data-*"):  # of a file; what is there of an earlier one is not of this log
                place = target.with_name(target.name + beside.name.removeprefix("data"))
                if not place.exists():
                    beside.rename(place)
            (draft / "data").rename(target)  # at once: nothing that would open is ever there in part
            sync(target.parent)
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        msg = f"the backup cannot be restored to {target}: {error}"
        raise ConfigurationError(msg) from error
