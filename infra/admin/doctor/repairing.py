"""Making a sound log beside a damaged one, from what is intact, from a backup, and from the index."""

import ctypes
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Final

from eventsourcing.persistence import Notification
from msgspec import structs

from chatledger.domain.errors import ChatledgerError, ConfigurationError, LedgerLockedError
from chatledger.projections.index import Index
from chatledger.projections.operating_system import sync

from ...ledger.drafts import new_id
from ...ledger.ledger import Ledger
from ...log.envelope import clock_ms
from ...log.nats.endpoint import Login
from ...log.nats_server.directory import DataDirectory, OwnerLock
from ...log.witness import read_last_seen
from ...store.opening.encryption import Encryption
from ...store.opening.locations import location_text, log_at, open_shared
from ...store.opening.options import LogOnly, OpenOptions
from ...store.opening.presence import require_ledger, without_secrets
from ...store.quarantine import Note, Quarantine, QuarantinedStream, stamp_now
from ..backups import BackupLog, open_backup
from .account import Accounts, CorrectedEvent, Repair
from .chains import ChainScan
from .checks import Findings, check_format, heads_in, page_damage
from .removing import DOCTOR, LOST, MergedLog, account_for, remove_foreign
from .salvaging import LegibleEvent, Salvage, decode_record, recreate
from .store_files import StoreFiles, stream_folder

_PAGE: Final = 250
_PAGE_BYTES: Final = 8 * 1024 * 1024


def repair(
    location: str | os.PathLike[str],
    *,
    backup: str | os.PathLike[str] | None = None,
    encryption: Encryption | None = None,
    login: Login | None = None,
    timeout_s: float = 15.0,
) -> Repair:
    """
    Replace the damaged log of a directory by a sound one. The damaged directory is kept under another name.

    A record in which one bit is flipped is corrected by its checksum, and nothing of it is lost. Every event that can be trusted
    keeps its position: those of the log whose chain holds, and those of the backup. Where a chat lost events, what the index
    knows of it is written anew, marked in its history, and then what the log has behind the damage; a message that is
    lost and that others name is stood for by a placeholder named `lost`. A chat of which something is missing is in
    quarantine: every question about it is a `QuarantinedError`, until a repair with a backup brings it back or `give_up` accepts
    what is left. Where the log is sound and the pages of the index are damaged, the index is set aside and built anew.

    Of a log elsewhere, e.g. on a NATS server, only foreign messages are removed: what others published into it. It may be in
    use meanwhile. Where such a log lost events, a backup is restored into a new place.

    Args:
        location: A directory that nobody has open, or where another log is.
        backup: A backup of this log; for directories only.
        encryption: The keys of an encrypted log.
        login: Only for servers: how to log in, as for `chatledger.open`; it has to be allowed to write and to delete.
        timeout_s: The budget of one operation on the log.

    Raises:
        ConfigurationError: There is no ledger, or the backup is of another log.
        LedgerLockedError: Somebody has it open.
        CorruptStateError, ChainIntegrityError: The backup is damaged, or what was made is not sound; nothing was replaced.
    """
    text = location_text(LogOnly(location))
    if "://" in text or text == "memory:":
        if text == "memory:" or backup is not None:
            msg = (
                f"only directories are repaired with a backup; restore that of {text!r} into a new place instead. Without one, "
                "a repair removes what others published into the log"
            )
            raise ConfigurationError(msg)
        require_ledger(text)
        reason = f"repair {stamp_now()}: foreign messages were removed"
        scan = remove_foreign(text, encryption=encryption, login=login, timeout_s=timeout_s, reason=reason)
        return Repair(
            location=without_secrets(text),
            event_count=scan.event_count,
            correlation_id=reason,
            released=tuple(sorted({stream for _, stream, _ in scan.foreign if stream})),
            removed_count=len(scan.foreign),
        )
    directory = DataDirectory(text)
    # Before anything else: a repair that was killed between two renames left the directory without its name.
    finish_interrupted_exchange(directory.path, repair_folder(directory))
    if not directory.path.is_dir():
        msg = f"there is no ledger at {directory.path}"
        raise ConfigurationError(msg)
    findings = Findings()
    if not check_format(directory, findings):
        msg = f"{directory.path}: {findings.sorted()[0].what}"
        raise ConfigurationError(msg)
    lock = OwnerLock.try_take(directory.lock_file)
    if lock is None:
        msg = f"somebody has {directory.path} open; close it everywhere before it is repaired"
        raise LedgerLockedError(msg)
    try:
        result = _RepairRun(directory, backup, encryption, timeout_s).run()
    finally:
        lock.release()
    if result.index_kept_as is not None:  # opening builds another index, for which the lock has to be free
        with Ledger(open_shared(OpenOptions(text, timeout_s=timeout_s, encryption=encryption))) as ledger:
            ledger.verify()
    return result


class _RepairRun:
    def __init__(
        self,
        directory: DataDirectory,
        backup: str | os.PathLike[str] | None,
        encryption: Encryption | None,
        timeout_s: float,
    ) -> None:
        self._directory, self._encryption, self._timeout_s = directory, encryption, timeout_s
        self._mapper = OpenOptions(directory.path, encryption=encryption).mapper
        self._store = StoreFiles(directory)
        self._mapper.blobs = self._large = self._store.read_large(self._mapper)
        self._quarantine = Quarantine(directory.path)
        saved: BackupLog | None = None
        is_repaired = False
        if backup is not None:
            saved, manifest = open_backup(backup, encryption)
            before = {note.log_id for note in self._quarantine.notes().values()}
            is_repaired = self._store.identity != manifest.log_id and manifest.log_id in before
            if self._store.identity not in {None, manifest.log_id} and not is_repaired:
                msg = f"{backup} is the backup of another log than {directory.path} has"
                raise ConfigurationError(msg)
        self._merged = MergedLog(self._store, self._mapper, saved, self._quarantine, is_repaired=is_repaired)
        # The time, for names; with a number where another repair was in the same second.
        now, folder = stamp_now(), self._quarantine.folder
        stamps = chain([now], (f"{now}-{number}" for number in count(2)))
        self._stamp = next(
            stamp for stamp in stamps if not (_kept_as(directory, stamp).exists() or (folder / stamp).exists())
        )
        self._reason = f"repair {self._stamp}: the log was damaged"
        self._kept_as = _kept_as(directory, self._stamp)

    def run(self) -> Repair:
        draft = repair_folder(self._directory)
        place = DataDirectory(draft / "data")
        if place.path.is_dir():
            # The server of a repair that was killed is told to end, and writes until it has.
            ends_at = time.monotonic() + _PATIENCE_S
            while (lock := OwnerLock.try_take(place.lock_file)) is None and time.monotonic() < ends_at:
                time.sleep(_PAUSE_S)
            if lock is not None:
                lock.release()
        shutil.rmtree(draft, ignore_errors=True)
        index, heads = self._copy_of_index(), dict[str, tuple[int, bytes]]()
        witness = read_last_seen(self._directory.witness)
        seen = 0 if witness is None else witness.position
        if index is not None:
            with index.snapshot() as snapshot:
                seen, heads = max(seen, snapshot.state.position), heads_in(snapshot)
        scan = ChainScan(self._store.doubtful)
        scan.run(self._merged.records(), self._mapper.recorded)
        for stream_id, (version, digest) in heads.items():
            if scan.heads.get(stream_id) not in {None, (version, digest)} and scan.heads[stream_id][0] == version:
                scan.distrust(stream_id, "the index has seen another event there")
        scan.distrust_unproven(heads)
        # Behind all that anybody saw, so that no position is given out twice.
        last = max(self._store.last, scan.position, seen)
        is_damaged = any((scan.breaks, scan.unreadable, scan.foreign, self._store.damages, self._store.corrected))
        is_damaged |= self._large.is_incomplete
        if not (is_damaged or self._merged.from_backup or scan.lost or last > scan.position):
            # The log needs no repair, but maybe the index.
            shutil.rmtree(self._draft(), ignore_errors=True)
            # What stood there at the last stop and is gone is needed by no event; as long as seals stand for it, nothing opens.
            self._directory.seals_file.unlink(missing_ok=True)
            damage = page_damage(self._directory.index)
            kept_as = None
            if damage is not None:
                note = Note(made_at=clock_ms(), why=f"the index was damaged: {damage}", kept_as="")
                kept_as = str(self._quarantine.take_in(self._directory.index, self._stamp, note))
            return Repair(
                location=str(self._directory.path),
                event_count=scan.event_count,
                correlation_id=self._reason,
                index_kept_as=kept_as,
            )
        return self._rewrite(scan, index, heads, seen=seen, last=last)

    def _rewrite(
        self, scan: ChainScan, index: Index | None, heads: Mapping[str, tuple[int, bytes]], *, seen: int, last: int
    ) -> Repair:
        accounts = Accounts(scan, {stream_id: version for stream_id, (version, _) in heads.items()})
        trusted = self._sort(scan, accounts, heads)
        versions = {str(record.originator_id): record.originator_version for record in trusted}
        holes = self._account_for_lost(trusted, last)
        from_backup = self._merged.from_backup
        draft = self._draft()
        self._restore_log(draft / "data", trusted)
        options = OpenOptions(draft / "data", timeout_s=self._timeout_s, encryption=self._encryption)
        with Ledger(open_shared(options)) as ledger:
            recreated: set[str] = set()
            with ledger.context(actor=DOCTOR, correlation_id=self._reason):
                # First what the index has: what stands behind the damage is made to fit a chat that is as whole as it can be.
                if index is not None:
                    recreated = recreate(ledger, index, heads, seen=seen)
                salvage = self._salvage(
                    ledger, scan, {stream_id: heads[stream_id][0] for stream_id in recreated}, index
                )
            ledger.verify()
        if index is not None:
            index.close()
        lost_count = max(0, holes - self._merged.explained - accounts.readable_count - len(scan.foreign))
        lost = accounts.lost(recreated, count=lost_count)
        gone = {loss.chat_id for loss in lost if not loss.is_content_kept} | {
            data.chat_id for data in salvage.lost_data
        }
        cut = sorted(stream for stream in scan.breaks if stream not in recreated or stream in gone)
        released = self._set_apart(draft / "data", cut, versions, accounts, salvage)
        put_in_place(draft / "data", self._directory.path, self._kept_as)
        shutil.rmtree(draft, ignore_errors=True)
        return Repair(
            location=str(self._directory.path),
            kept_as=str(self._kept_as),
            event_count=len(trusted) - (holes > 0),  # without the tombstone that accounts for the lost ones
            from_backup=from_backup,
            lost_count=lost_count,
            removed_count=len(scan.foreign),
            recreated=tuple(sorted(recreated)),
            cut=tuple(cut),
            correlation_id=self._reason,
            released=tuple(sorted(released)),
            corrected=tuple(self._corrected()),
            lost=lost,
            kept_after=salvage.kept(),
            lost_data=tuple(salvage.lost_data),
            not_replaced=tuple(sorted(self._merged.not_replaced)),
        )

    def _restore_log(self, place: Path, trusted: Sequence[Notification]) -> None:
        with log_at(LogOnly(place, timeout_s=self._timeout_s, encryption=self._encryption)) as log:
            log.restore(self._pages(trusted))
            for bookmark in self._store.bookmarks:
                # A bookmark of another log is refused, and the new log has another identity.
                log.save_bookmark(structs.replace(bookmark, log_id=log.identity))

    def _sort(self, scan: ChainScan, accounts: Accounts, heads: Mapping[str, tuple[int, bytes]]) -> list[Notification]:
        """The records that stay where they are; of chats that lost some, note which can be read."""
        # Of these, too, the index has seen more than follows on the log.
        behind = {
            stream_id for stream_id, (version, _) in heads.items() if scan.heads.get(stream_id, (0, b""))[0] < version
        }
        unreadable = {position for position, _, _ in scan.unreadable}
        foreign = {position for position, _, _ in scan.foreign}
        trusted: list[Notification] = []
        for record in self._merged.records():
            if record.id in foreign:
                continue
            is_kept = accounts.is_kept(record)
            if is_kept:
                trusted.append(record)
            stream = str(record.originator_id)
            if stream in scan.breaks or stream in behind or record.id in unreadable:
                accounts.note(record, is_readable=is_kept or self._read(record, scan) is not None)
        return trusted

    def _read(self, record: Notification, scan: ChainScan) -> LegibleEvent | None:
        return None if record.id in scan.unproven else decode_record(self._mapper, record)

    def _salvage(self, ledger: Ledger, scan: ChainScan, recreated: Mapping[str, int], index: Index | None) -> Salvage:
        """Write anew what can be read behind the damage, and the index does not have."""
        salvage = Salvage(ledger, index)
        for record in self._merged.records():
            stream = str(record.originator_id)
            if stream not in scan.breaks:
                continue
            # An index that is behind gives what it knows; what follows it is taken from the log.
            base = max(scan.keeps[stream], recreated.get(stream, 0))
            readable = self._read(record, scan) if record.originator_version > base else None
            if readable is not None:
                salvage.take(readable, base=base)
        return salvage

    def _corrected(self) -> Iterator[CorrectedEvent]:
        """Return the corrected records, with the present names of the files."""
        stream = stream_folder(self._directory)
        for correction in self._store.corrected:
            # A position is that of an event only in the stream of the log, and not in those beside it.
            is_event = correction.file.is_relative_to(stream)
            record = self._store.records.get(correction.position) if is_event else None
            yield CorrectedEvent(
                file=str(self._kept_as / correction.file.relative_to(self._directory.path)),
                offset=correction.offset,
                bit=correction.bit,
                position=correction.position,
                chat_id=None if record is None else str(record.originator_id),
                version=None if record is None else record.originator_version,
            )

    def _set_apart(
        self, repaired: Path, cut: Sequence[str], versions: Mapping[str, int], accounts: Accounts, salvage: Salvage
    ) -> list[str]:
        """Note in the repaired directory what is not whole; returns what was not, and is now."""
        # What earlier repairs noted goes along: their chats are refused until something brings them back.
        self._quarantine.copy_to(repaired)
        quarantine = Quarantine(repaired)
        now = clock_ms()
        whole = {stream: version for stream, version in versions.items() if stream not in cut}
        for stream, rewritten in self._merged.rewritten.items():
            if stream in whole:  # what an earlier repair wrote is not what was lost, so it brings nothing back
                whole[stream] = rewritten.first - 1
        released = quarantine.release(whole, now=now)
        after = {events.chat_id: sum(last - first + 1 for first, last in events.versions) for events in salvage.kept()}
        streams = tuple(
            QuarantinedStream(stream, versions.get(stream, 0), accounts.seen(stream), kept_after=after.get(stream, 0))
            for stream in cut
        )
        note = Note(
            made_at=now,
            why="the log was damaged",
            kept_as=str(self._kept_as),
            log_id=self._store.identity or "",
            streams=streams,
        )
        quarantine.add(self._stamp, note)
        return released

    def _account_for_lost(self, trusted: list[Notification], last: int) -> int:
        """Write a tombstone at the end, so that holes are explained and no position is given out twice; return for how many it accounts."""
        scan = ChainScan()
        scan.run(trusted, self._mapper.recorded)
        lost = scan.lost + last - scan.position
        if lost <= 0:
            return 0
        first = scan.holes[0][0] if scan.holes else scan.position + 1
        (encoded,) = account_for(f"{LOST}{new_id()}", first, lost, self._reason)
        stored = self._mapper.store_encoded(encoded)
        trusted.append(
            Notification(stored.originator_id, stored.originator_version, stored.topic, stored.state, last + 1)
        )
        return lost

    def _pages(self, records: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
        """The records with their large data, a few at a time."""
        page: list[Notification] = []
        size = 0
        for record in records:
            whole = self._mapper.whole(record)
            if page and (len(page) == _PAGE or size + len(whole.state) > _PAGE_BYTES):
                yield page
                page, size = [], 0
            page.append(whole)
            size += len(whole.state)
        yield page

    def _copy_of_index(self) -> Index | None:
        """The index as a witness, opened as a copy."""
        identity = self._store.identity
        if identity is None or not (self._directory.index / "CURRENT").exists():
            return None
        if page_damage(self._directory.index) is not None:  # on which LMDB would end this process
            return None
        # A copy, as opening writes into an index, and nothing of the damaged directory is changed.
        copy = self._draft() / "index"
        shutil.copytree(self._directory.index, copy)
        index = Index(copy, identity=identity)
        try:
            return index if index.open() is None else None
        except (ChatledgerError, OSError):
            return None

    def _draft(self) -> Path:
        draft = repair_folder(self._directory)
        draft.mkdir(mode=0o700, exist_ok=True)
        return draft


def repair_folder(directory: DataDirectory) -> Path:
    """Return the folder in which a repair builds the sound directory."""
    return directory.path.with_name(directory.path.name + ".repairing")


def _kept_as(directory: DataDirectory, stamp: str) -> Path:
    return directory.path.with_name(f"{directory.path.name}.damaged-{stamp}")


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05
_READY: Final = "ready"


def put_in_place(repaired: Path, directory: Path, kept_as: Path) -> None:
    """
    Give a damaged directory another name, and a repaired one its name.

    Where the system exchanges two names at once (Linux), `directory` is one or the other at every moment. Elsewhere there is a
    moment without any; `finish_interrupted_exchange` ends what was interrupted then.
    """
    # Without this mark a later repair would not know that the draft is whole, and remove it.
    (repaired.parent / _READY).touch()
    sync(repaired.parent)
    repaired.rename(kept_as)
    if not _exchange(kept_as, directory):
        kept_as.rename(repaired)
        directory.rename(kept_as)
        repaired.rename(directory)
    sync(directory.parent)


def finish_interrupted_exchange(directory: Path, draft: Path) -> None:
    """End an exchange that was interrupted between two renames: the repaired directory gets the name that nothing has."""
    if not directory.exists() and (draft / _READY).exists() and (draft / "data").is_dir():
        (draft / "data").rename(directory)
        sync(directory.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second)
    return bool(rename(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)
