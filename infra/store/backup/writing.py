"""Taking a backup: what is new on a log goes into the folder, and what was deleted leaves it."""

import logging
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from eventsourcing.persistence import Notification

from chatledger.domain.chat.events import ContentRedacted, Recorded, StreamDeleted
from chatledger.domain.chat.state import misplaced
from chatledger.domain.errors import AccessDeniedError, ChainIntegrityError, ConfigurationError, LogRegressedError
from chatledger.domain.log.tombstones import is_foreign
from chatledger.domain.values import Progress

from ...log.bookmarks import BACKUP_MARK, Bookmark, bookmark_key, encode_bookmark
from ...log.envelope import clock_ms
from ...log.port import EventLog, LostRaceError
from ..quarantine import QuarantinedStream
from .manifest import (
    SEGMENT,
    SEGMENT_BYTES,
    Backup,
    BackupFolder,
    BackupManifest,
    BackupSegment,
    Frame,
    SegmentWriter,
    StreamHeads,
    empty_frame,
    frame_of,
    read_segment,
)

_ADVICE = "The backup stays as it was. 'chatledger doctor' says more"


class BackupFollower:
    """
    The chain of every stream, up to the position reached.

    A chat that is deleted while it is read has holes before its tombstone comes. So what does not follow is left out and
    remembered; `problem` says whether a tombstone explained it.
    """

    def __init__(self, before: BackupManifest | None, heads: StreamHeads) -> None:
        self.heads, self.position, self.hash, self.missing, self.erased = heads, 0, b"", 0, 0
        if before is not None:
            self.position, self.hash = before.position, before.hash
            self.missing, self.erased = before.missing, before.erased
        self.reached = self.position
        """The position up to which the log was read; foreign messages after the last event are not in the backup."""
        self.passed: list[int] = []
        """The foreign messages since the last event."""
        self.rest = 0
        self.doomed: list[tuple[str, int, int]] = []
        """(stream, first position, position of the tombstone) of what was deleted."""
        self.redacted: dict[tuple[str, int], set[int]] = {}
        """The slots that events lose, by their streams and versions."""
        self._suspects: dict[str, ChainIntegrityError] = {}

    def expect_tombstone(self) -> None:
        """The event that the backup ends with is gone from the log: only a tombstone can explain that."""
        for stream, (_, digest) in self.heads.items():
            if digest == self.hash:
                msg = (
                    f"the event at position {self.position} of the log, of chat {stream!r}, was there when the last backup "
                    "was taken, and is gone without a deletion"
                )
                self._suspects[stream] = ChainIntegrityError(msg, chat_id=stream, position=self.position)

    def is_foreign(self, recorded: Recorded) -> bool:
        """Whether this is a foreign message: its place is kept in the backup, and nothing of what it says."""
        self.reached = recorded.position
        if is_foreign(recorded) or recorded.version <= self.heads.get(recorded.chat_id, (0, b""))[0]:
            self.passed.append(recorded.position)
            return True
        return False

    def take(self, record: Notification, recorded: Recorded) -> bool:
        """Whether an event belongs into the backup. All of the log are to be given, in order."""
        # Foreign messages hold a position, too, and lost none.
        self.missing += record.id - self.position - 1 - len(self.passed)
        self.passed = []
        self.position, self.hash, self.rest = record.id, recorded.hash, recorded.event.rest
        stream, body = recorded.chat_id, recorded.body
        version, digest = self.heads.get(stream, (0, b""))
        is_next = recorded.version == version + 1 and recorded.event.previous_hash == digest
        if isinstance(body, StreamDeleted) and (recorded.version > version + 1 or is_next):
            self.erased += recorded.version - version - 1
            self._suspects.pop(stream, None)
            self.doomed.append((stream, body.first_position, recorded.position))
        elif stream in self._suspects or not is_next:
            self._suspects.setdefault(
                stream, misplaced(recorded, f"version {version + 1} was expected, in the chain that was read before")
            )
            self.missing += 1
            return False
        if isinstance(body, ContentRedacted):
            for target, slots in body.targets:
                self.redacted.setdefault((stream, target), set()).update(slots)
        self.heads[stream] = (recorded.version, recorded.hash)
        return True

    def problem(self, *, is_dense: bool) -> ChainIntegrityError | None:
        """Return the first gap that no tombstone has explained; None when there is none."""
        for error in self._suspects.values():
            return ChainIntegrityError(f"{error}. {_ADVICE}", chat_id=error.chat_id, position=error.position)
        if is_dense and self.missing > self.erased:
            msg = (
                f"{self.missing:,} positions up to {self.position} hold no event, but deleted chats account for "
                f"{self.erased:,} only: events are lost. {_ADVICE}"
            )
            return ChainIntegrityError(msg)
        return None


PAGE_EVENTS: Final = 250

_logger: Final = logging.getLogger(__name__)


def write_backup(
    log: EventLog,
    folder: str | os.PathLike[str],
    *,
    progress: Progress,
    quarantined: Sequence[QuarantinedStream] = (),
) -> Backup:
    """
    Bring the backup in a folder up to the present end of a log, or begin one.

    Args:
        log: Others may write to it meanwhile.
        folder: New, empty, or with a backup of the same log.
        progress: Called with (position reached, position to reach).
        quarantined: What lost events; a ledger that is restored from the backup refuses it, too.

    Raises:
        ConfigurationError: The folder cannot be used, or has the backup of another log.
        ChainIntegrityError, CorruptStateError: The log is not sound, or not the one that it was; the backup stays as it was.
        LogUnavailableError: The log did not answer.
    """
    home = BackupFolder(folder)
    with home.writing():
        manifest = home.read()
        # Of runs that were killed.
        home.remove_strays(manifest)
        run = _BackupRun(log, home, manifest, quarantined)
        try:
            run.copy(progress)
            manifest_after = run.publish()
        except BaseException:
            run.discard()
            raise
        # After the manifest: until that instant the earlier backup stands, and needs its files.
        home.remove_strays(manifest_after)
        note_backup(log, home.path, manifest_after)
        return manifest_after.describe(home.path, added=run.added, erased=run.erased)


def note_backup(log: EventLog, folder: Path, manifest: BackupManifest) -> None:
    """
    Leave a mark on the log of where a backup is and with which event it ends.

    Reports of erasures name those that have what was erased, and the next run knows that the backup is of this log, when the event is gone.
    """
    mark = Bookmark(
        name=mark_of(folder),
        index=0,
        count=0,
        position=manifest.position,
        holder=manifest.hash.hex(),
        log_id=log.identity,
        saved_at=manifest.updated_at,
    )
    before = log.load_bookmark(mark.key)
    try:
        log.save_bookmark(mark if before is None else mark.saved_as(before.revision))
    except (AccessDeniedError, LostRaceError) as error:  # the backup is whole, and that is what was asked for
        _logger.warning("reports of erasures do not name the backup %s: %s", folder, error)


def forget_mark(log: EventLog, folder: str | os.PathLike[str]) -> bool:
    """Drop the mark of a backup that was deleted; whether there was one. Raises `ConfigurationError` where the backup is there still."""
    home = BackupFolder(folder)
    if home.read() is not None:
        msg = f"{home.path} has a backup still; delete the folder first, or bring it up to date"
        raise ConfigurationError(msg)
    # As the report names it: the path of another machine may be a link on this one.
    names = {mark_of(home.path), _mark(folder)}
    marks = [mark for mark in log.bookmarks() if mark.name in names]
    for mark in marks:
        log.drop_bookmark(mark.key)
    return bool(marks)


def mark_of(folder: Path) -> str:
    return _mark(folder.resolve())


def _mark(folder: str | os.PathLike[str]) -> str:
    # A name of a folder may be no text, and then has lone surrogates, which no log takes.
    return BACKUP_MARK + os.fspath(folder).encode(errors="backslashreplace").decode()


class _BackupRun:
    """One run: segments are written beside those that count, until `publish`."""

    def __init__(
        self, log: EventLog, home: BackupFolder, before: BackupManifest | None, quarantined: Sequence[QuarantinedStream]
    ) -> None:
        self._log, self._home, self._before = log, home, before
        self._quarantined = list(quarantined)
        self._segments: list[BackupSegment] = [] if before is None else list(before.segments)
        self._writer: SegmentWriter | None = None
        # Before the events: a feed that is restored may repeat some, and must not skip those that the backup lacks.
        self._bookmarks = [encode_bookmark(bookmark).decode() for bookmark in log.bookmarks()]
        self._follower = BackupFollower(before, {} if before is None else home.read_heads(before))
        self.added = self.erased = 0
        if before is not None:
            # A restored log may go on with the backup that it came from: what counts is the event at which that
            # ends.
            # From a majority: a server that is behind would be taken for a log that lost its end.
            last = self._log.settled_position(before.position)
            there = self._log.event_at(before.position) if 0 < before.position <= last else None
            # Restored from this backup the log has its mark, also when the event was erased since.
            mark = None if there is not None else self._log.load_bookmark(bookmark_key(mark_of(self._home.path), 0, 0))
            is_marked = mark is not None and (mark.position, mark.holder) == (before.position, before.hash.hex())
            is_there = is_marked if there is None else there.hash == before.hash
            if before.log_id != self._log.identity and before.position and not is_there:
                msg = f"{self._home.path} has the backup of another log; give a folder of its own for each ledger"
                raise ConfigurationError(msg)
            if last < before.position or (there is not None and there.hash != before.hash):
                raise LogRegressedError(last_position=last, seen_position=before.position)
            if there is None and before.position:
                self._follower.expect_tombstone()

    def copy(self, progress: Progress) -> None:
        """Read on to the end of the log, and to where deletions under way are explained."""
        target = self._log.committed_position()
        while True:
            progress(self._follower.position, target)
            if self._follower.reached < target or self._follower.rest:
                follower = self._follower
                page = self._log.stored(follower.reached, PAGE_EVENTS)
                for record in page:
                    # The rest of a commit is read though it is behind the target: half of it is no state that the log ever had.
                    if record.id > target and not follower.rest:
                        break
                    recorded = self._log.decode(record)
                    if follower.is_foreign(recorded):
                        continue
                    passed = follower.passed
                    if follower.take(record, recorded):
                        for position in passed:
                            self._open_writer().add(empty_frame(position))
                        self._open_writer().add(frame_of(record))
                        self.added += 1
                if not bool(page):
                    msg = (
                        f"the log has given out position {target}, but its last event is at {self._follower.position}: the "
                        "events after it are lost. The backup stays as it was"
                    )
                    raise ChainIntegrityError(msg)
                continue
            problem = self._follower.problem(is_dense=self._log.is_dense)
            if problem is None:
                return
            # What looks lost may be erased by now: its tombstone is behind the target, so read on and look again.
            now = self._log.committed_position()
            if now <= target:
                raise problem
            target = now

    def _open_writer(self) -> SegmentWriter:
        if self._writer is not None and self._writer.size >= SEGMENT_BYTES:
            self._close_writer()
        if self._writer is None:
            self._writer = SegmentWriter(self._home.new_file(SEGMENT))
            last = self._segments[-1] if self._segments else None
            # Many small runs would make many small files: the last one is written anew with what is added.
            if last is not None and last.size < SEGMENT_BYTES:
                for frame in read_segment(self._home.path, last):
                    self._writer.add(frame)
                self._segments.pop()
        return self._writer

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            segment = writer.finish()
            if segment is not None:
                self._segments.append(segment)

    def publish(self) -> BackupManifest:
        """Remove what was deleted, and make what was written count."""
        self._close_writer()
        doomed: dict[str, list[tuple[int, int]]] = {}
        for stream, first, before in self._follower.doomed:
            doomed.setdefault(stream, []).append((first, before))
        # Whether or not the log has rewritten them: what was copied in this run or before it may have the content.
        redacted = [
            self._log.read_stream(stream, after=0, after_version=version - 1, limit=1)
            for stream, version in self._follower.redacted
        ]
        ranges = [(page[0].position, page[0].position + 1) for page in redacted if page]
        segments: list[BackupSegment] = []
        for segment in self._segments:
            is_concerned = any(
                first <= segment.last and segment.first < before for first, before in chain(ranges, *doomed.values())
            )
            # Only segments that may have something of it: a backup of many GB is not written anew for one chat.
            rewritten = self._without(segment, doomed) if is_concerned else segment
            if rewritten is not None:
                segments.append(rewritten)
        self._segments = segments
        follower, now = self._follower, clock_ms()
        manifest = BackupManifest(
            log_id=self._log.identity,
            is_dense=self._log.is_dense,
            position=follower.position,
            hash=follower.hash,
            missing=follower.missing,
            erased=follower.erased,
            created_at=now if self._before is None else self._before.created_at,
            updated_at=now,
            stream_count=len(follower.heads),
            segments=self._segments,
            heads=self._home.write_heads(follower.heads),
            bookmarks=self._bookmarks,
            quarantined=self._quarantined,
        )
        self._home.publish(manifest)
        return manifest

    def _without(self, segment: BackupSegment, doomed: dict[str, list[tuple[int, int]]]) -> BackupSegment | None:
        frames = list(read_segment(self._home.path, segment))
        staying = [
            frame
            for frame in frames
            if not any(first <= frame.position < before for first, before in doomed.get(frame.stream, ()))
        ]
        bare = [self._redacted(frame) for frame in staying]
        if bare == frames:
            return segment
        self.erased += len(frames) - len(staying)
        writer = SegmentWriter(self._home.new_file(SEGMENT))
        for frame in bare:
            writer.add(frame)
        return writer.finish()

    def _redacted(self, frame: Frame) -> Frame:
        slots = self._follower.redacted.get((frame.stream, frame.version))
        return frame if slots is None else frame_of(self._log.without(frame.notification(), slots))

    def discard(self) -> None:
        """Close what is open. The files stay as strays, which the next run removes."""
        if self._writer is not None:
            self._writer.discard()
