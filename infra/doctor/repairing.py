"""Making a sound log beside a damaged one, from what is intact, from a backup, and from the index."""

import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from eventsourcing.persistence import Notification
from msgspec import structs

from chatledger.domain.codec import NO_HASH, Envelope, seal
from chatledger.domain.errors import ChatledgerError, ConfigurationError, LedgerLockedError
from chatledger.domain.events import ChatDeleted
from chatledger.projections.index import Index

from ..backup.checking import BackupLog, open_backup
from ..clock import clock_ms
from ..embedded import DataDirectory
from ..embedded.lock import OwnerLock
from ..encryption import Encryption
from ..ledger import Ledger
from ..locations import Options, open_shared
from ..log.mapper import StructMapper
from ..messages import new_id
from ..unshared import LogOnly, log_at
from .chains import ChainScan
from .diagnosing import mapper_of
from .findings import Findings
from .places import check_format
from .recreating import Recreation, heads_of
from .store_files import StoreFiles

DOCTOR: Final = "chatledger:doctor"
"""The actor of what a repair writes."""
LOST: Final = "chatledger:lost:"
"""What the id of the stream begins with whose tombstone accounts for events that are lost."""
_PAGE: Final = 250


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a repair did.

    Args:
        location: The directory, which has the sound log now.
        kept_as: Where the damaged directory is now; None when nothing was damaged, and nothing done.
        event_count: How many events were kept.
        from_backup: How many of them only the backup had.
        lost_count: How many positions hold no event now that should; a tombstone accounts for them.
        recreated: The chats whose present state was written anew, from the index, as far as that goes.
        cut: The chats and threads that lost events at their end, which nothing could bring back.
        correlation_id: What the events of this repair carry in the history, with the actor `chatledger:doctor`.
    """

    location: str
    kept_as: str | None
    event_count: int
    from_backup: int
    lost_count: int
    recreated: tuple[str, ...]
    cut: tuple[str, ...]
    correlation_id: str

    def describe(self) -> list[str]:
        """For people, line by line."""
        if self.kept_as is None:
            return ["The log is sound; nothing was done."]
        lines = [
            f"Repaired {self.location}. The damaged directory is kept as {self.kept_as}.",
            f"Kept {self.event_count:,} events, {self.from_backup:,} of them from the backup; {self.lost_count:,} are lost.",
        ]
        lines += [f"  from the index, without its history since: chat {chat_id!r}" for chat_id in self.recreated]
        lines += [f"  cut, nothing has what followed: {stream!r}" for stream in self.cut]
        return lines


def repair(
    location: str | os.PathLike[str],
    *,
    backup: str | os.PathLike[str] | None = None,
    encryption: Encryption | None = None,
    timeout_s: float = 15.0,
) -> Repair:
    """
    Replace the damaged log of a directory by a sound one. The damaged directory is kept under another name.

    Every event that can be trusted keeps its position: those of the log whose chain holds, and those of the backup. Where a
    chat lost events, what the index knows of it (messages, branches, checkpoints, title, metadata) is written anew, marked in
    its history. Runs, annotations and agents' checkpoints are not in that; they end where the chain breaks.

    Args:
        location: A directory that nobody has open. Other logs are repaired by restoring a backup.
        backup: A backup of this log.
        encryption: The keys of an encrypted log.
        timeout_s: The budget of one operation on the log.

    Raises:
        ConfigurationError: It is no directory, or the backup is of another log.
        LedgerLockedError: Somebody has it open.
        CorruptStateError, ChainIntegrityError: The backup is damaged, or what was made is not sound; nothing was replaced.
    """
    text = os.fspath(location)
    directory = DataDirectory(text)
    if "://" in text or text == "memory:" or not directory.path.is_dir():
        msg = f"only directories are repaired; restore a backup of {text!r} into a new place instead"
        raise ConfigurationError(msg)
    found = Findings()
    if not check_format(directory, found):
        msg = f"{directory.path}: {found.sorted()[0].what}"
        raise ConfigurationError(msg)
    lock = OwnerLock.try_take(directory.lock_file)
    if lock is None:
        msg = f"somebody has {directory.path} open; close it everywhere before it is repaired"
        raise LedgerLockedError(msg)
    try:
        return _Run(directory, backup, encryption, timeout_s).run()
    finally:
        lock.release()


class _Run:
    def __init__(
        self,
        directory: DataDirectory,
        backup: str | os.PathLike[str] | None,
        encryption: Encryption | None,
        timeout_s: float,
    ) -> None:
        self._directory, self._encryption, self._timeout_s = directory, encryption, timeout_s
        self._mapper: StructMapper = mapper_of(encryption)
        self._store = StoreFiles(directory)
        self._backup: BackupLog | None = None
        if backup is not None:
            self._backup, manifest = open_backup(backup, encryption)
            if self._store.identity not in {None, manifest.log_id}:
                msg = f"{backup} is the backup of another log than {directory.path} has"
                raise ConfigurationError(msg)
        now = datetime.fromtimestamp(clock_ms() // 1000, UTC)
        self._stamp = f"{now:%Y%m%dT%H%M%SZ}"
        self._reason = f"repair {self._stamp}: the log was damaged"
        self._from_backup = 0

    def run(self) -> Repair:
        """Do it."""
        shutil.rmtree(self._draft(), ignore_errors=True)  # of an interrupted repair
        index, seen = self._copy_of_index()
        scan = ChainScan()
        scan.run(self._merged(), self._mapper.recorded)
        if index is not None:
            for chat_id, (version, digest) in heads_of(index).items():
                if scan.heads.get(chat_id) not in {None, (version, digest)} and scan.heads[chat_id][0] == version:
                    scan.distrust(chat_id, "the index has seen another event there")
        last = max(self._store.last, scan.position, seen)
        is_sound = not (scan.breaks or scan.unreadable or self._store.damages or self._from_backup)
        if is_sound and not scan.lost and last == scan.position:
            return self._result(None, scan.event_count, lost=0, recreation=Recreation(), cut=())
        self._from_backup = 0
        kept = [one for one in self._merged() if self._is_kept(one, scan)]
        lost = self._account_for_lost(kept, last)
        draft = self._draft()
        with log_at(str(draft / "data"), LogOnly(timeout_s=self._timeout_s, encryption=self._encryption)) as log:
            log.fill(_pages(kept))
            for bookmark in self._store.bookmarks():
                log.save_bookmark(structs.replace(bookmark, log_id=log.identity))
        options = Options(timeout_s=self._timeout_s, encryption=self._encryption)
        with Ledger(open_shared(str(draft / "data"), options)) as ledger:
            recreation = Recreation()
            if index is not None:
                with ledger.context(actor=DOCTOR, correlation_id=self._reason):
                    recreation = Recreation.run(ledger, index, seen=seen)
            ledger.verify()
        if index is not None:
            index.close()
        cut = tuple(sorted(stream for stream in scan.breaks if stream not in recreation.done))
        return self._result(self._swap(draft), len(kept) - (lost > 0), lost=lost, recreation=recreation, cut=cut)

    def _merged(self) -> Iterator[Notification]:
        """The records by position; a backup was read back with its digests, so what it has is right."""
        backed: dict[int, Notification] = {}
        if self._backup is not None:
            backed = {frame.position: frame.notification() for frame in self._backup.frames()}
        records = self._store.records
        for position in sorted(records.keys() | backed.keys()):
            there, saved = records.get(position), backed.get(position)
            if saved is not None and saved != there:
                self._from_backup += 1
            record = saved if saved is not None else there
            assert record is not None, "it stands in one of the two"
            yield record

    def _is_kept(self, record: Notification, scan: ChainScan) -> bool:
        stream = str(record.originator_id)
        return record.originator_version <= scan.keeps.get(stream, record.originator_version)

    def _account_for_lost(self, kept: list[Notification], last: int) -> int:
        """A tombstone at the end, so that the holes are explained and no position is given out twice."""
        scan = ChainScan()
        scan.run(kept, self._mapper.recorded)
        lost = scan.lost + last - scan.position
        if lost <= 0:
            return 0
        first = scan.holes[0][0] if scan.holes else scan.position + 1
        body = ChatDeleted(first, lost, message_count=0, branch_count=0, checkpoint_count=0)
        (sealed,) = seal(
            [body],
            chat_id=f"{LOST}{new_id()}",
            version=lost,
            previous_hash=NO_HASH,
            occurred_at=clock_ms(),
            event_ids=[new_id()],
            envelope=Envelope(actor=DOCTOR, correlation_id=self._reason),
        )
        stored = self._mapper.store_sealed(sealed)
        kept.append(Notification(stored.originator_id, stored.originator_version, stored.topic, stored.state, last + 1))
        return lost

    def _copy_of_index(self) -> tuple[Index | None, int]:
        """The index as a witness, opened as a copy; and the last position that it has seen."""
        identity = self._store.identity
        if identity is None or not (self._directory.index / "CURRENT").exists():
            return None, 0
        copy = self._draft() / "index"
        shutil.copytree(self._directory.index, copy)
        index = Index(copy, identity=identity)
        try:
            if index.open() is None:
                return index, index.state.position
        except (ChatledgerError, OSError):
            pass
        return None, 0

    def _draft(self) -> Path:
        draft = self._directory.path.with_name(self._directory.path.name + ".repairing")
        draft.mkdir(mode=0o700, exist_ok=True)
        return draft

    def _swap(self, draft: Path) -> Path:
        """The damaged directory gets another name, and the sound one takes its place."""
        target = self._directory.path
        kept_as = target.with_name(f"{target.name}.damaged-{self._stamp}")
        target.rename(kept_as)
        (draft / "data").rename(target)
        shutil.rmtree(draft, ignore_errors=True)
        return kept_as

    def _result(
        self, kept_as: Path | None, event_count: int, *, lost: int, recreation: Recreation, cut: Sequence[str]
    ) -> Repair:
        if kept_as is None:
            shutil.rmtree(self._draft(), ignore_errors=True)
        return Repair(
            location=str(self._directory.path),
            kept_as=None if kept_as is None else str(kept_as),
            event_count=event_count,
            from_backup=self._from_backup,
            lost_count=lost,
            recreated=tuple(sorted(recreation.done)),
            cut=tuple(cut),
            correlation_id=self._reason,
        )


def _pages(records: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
    for start in range(0, len(records), _PAGE):
        yield records[start : start + _PAGE]
