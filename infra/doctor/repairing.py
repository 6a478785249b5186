"""Making a sound log beside a damaged one, from what is intact, from a backup, and from the index."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count
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
from ..log.witness import read_last_seen
from ..login import Login
from ..messages import new_id
from ..quarantine import Note, Quarantine, QuarantinedStream
from ..servers import without_secrets
from ..unshared import LogOnly, log_at
from .chains import ChainScan
from .diagnosing import mapper_of
from .findings import Findings
from .index_check import page_damage
from .places import check_format
from .recreating import Recreation, heads_of
from .removing import DOCTOR, check_removable, remove_foreign
from .store_files import StoreFiles

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
        cut: The chats and threads that lost events at their end, which nothing could bring back. They are in quarantine: not
            served until they are restored from a backup, or given up.
        released: Those that an earlier repair had cut, and that this one brought back.
        index_kept_as: Where a damaged index is now; the log was sound, and another index was built from it.
        removed_count: How many foreign messages were removed.
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
    released: tuple[str, ...] = ()
    index_kept_as: str | None = None
    removed_count: int = 0

    def describe(self) -> list[str]:
        """For people, line by line."""
        if self.index_kept_as is not None:
            return [f"The log is sound. The damaged index is kept as {self.index_kept_as}; another one was built."]
        if self.removed_count and self.kept_as is None:
            lines = [f"Removed {self.removed_count:,} foreign messages from {self.location}."]
            return lines + [f"  served again: {stream!r}" for stream in self.released]
        if self.kept_as is None:
            return ["The log is sound; nothing was done."]
        lines = [
            f"Repaired {self.location}. The damaged directory is kept as {self.kept_as}.",
            f"Kept {self.event_count:,} events, {self.from_backup:,} of them from the backup; {self.lost_count:,} are lost.",
        ]
        lines += [f"  from the index, without its history since: chat {chat_id!r}" for chat_id in self.recreated]
        lines += [f"  whole again: {stream!r}" for stream in self.released]
        lines += [f"  in quarantine, nothing has what followed: {stream!r}" for stream in self.cut]
        if self.cut:
            lines.append("With a backup run it again (--backup FOLDER). To serve what is left of one: --give-up CHAT.")
        return lines


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

    Every event that can be trusted keeps its position: those of the log whose chain holds, and those of the backup. Where a
    chat lost events, what the index knows of it (messages, branches, checkpoints, title, metadata) is written anew, marked in
    its history. Runs, annotations and agents' checkpoints are not in that; they end where the chain breaks. What neither the
    backup nor the index has is put into quarantine: every question about such a chat is a `QuarantinedError`, until a
    repair with a backup brings it back or `give_up` accepts what is left. Where the log is sound and the pages of the index are
    damaged, the index is set aside and built anew.

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
    text = os.fspath(location)
    if "://" in text or text == "memory:":
        check_removable(text, has_backup=backup is not None)
        return _remove_foreign(text, encryption, login, timeout_s)
    directory = DataDirectory(text)
    if not directory.path.is_dir():
        msg = f"there is no ledger at {directory.path}"
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
        done = _Run(directory, backup, encryption, timeout_s).run()
    finally:
        lock.release()
    if done.index_kept_as is not None:
        with Ledger(open_shared(text, Options(timeout_s=timeout_s, encryption=encryption))) as ledger:
            ledger.verify()
    return done


def _remove_foreign(location: str, encryption: Encryption | None, login: Login | None, timeout_s: float) -> Repair:
    reason = f"repair {datetime.fromtimestamp(clock_ms() // 1000, UTC):%Y%m%dT%H%M%SZ}: foreign messages were removed"
    scan = remove_foreign(location, encryption=encryption, login=login, timeout_s=timeout_s, reason=reason)
    return Repair(
        location=without_secrets(location),
        kept_as=None,
        event_count=scan.event_count,
        from_backup=0,
        lost_count=0,
        recreated=(),
        cut=(),
        correlation_id=reason,
        released=tuple(sorted({stream for _, stream, _ in scan.foreign if stream})),
        removed_count=len(scan.foreign),
    )


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
        self._quarantine = Quarantine(directory.path)
        self._is_repaired = False
        """Whether the backup is of the log before an earlier repair: it fills holes, and replaces nothing."""
        if backup is not None:
            self._backup, manifest = open_backup(backup, encryption)
            before = {note.log_id for note in self._quarantine.notes().values()}
            self._is_repaired = self._store.identity != manifest.log_id and manifest.log_id in before
            if self._store.identity not in {None, manifest.log_id} and not self._is_repaired:
                msg = f"{backup} is the backup of another log than {directory.path} has"
                raise ConfigurationError(msg)
        self._stamp = _unused_stamp(directory)
        self._reason = f"repair {self._stamp}: the log was damaged"
        self._kept_as = _kept_as(directory, self._stamp)
        self._from_backup = 0
        self._dropped: set[int] = set()

    def run(self) -> Repair:
        """Do it."""
        shutil.rmtree(self._draft(), ignore_errors=True)  # of an interrupted repair
        index, seen = self._copy_of_index()
        seen = max(seen, self._witnessed())
        scan = ChainScan()
        scan.run(self._merged(), self._mapper.recorded)
        if index is not None:
            for chat_id, (version, digest) in heads_of(index).items():
                if scan.heads.get(chat_id) not in {None, (version, digest)} and scan.heads[chat_id][0] == version:
                    scan.distrust(chat_id, "the index has seen another event there")
        last = max(self._store.last, scan.position, seen)
        is_sound = not (scan.breaks or scan.unreadable or scan.foreign or self._store.damages or self._from_backup)
        if is_sound and not scan.lost and last == scan.position:
            return self._sound(scan)
        self._from_backup = 0
        foreign = {position for position, _, _ in scan.foreign}
        kept = [one for one in self._merged() if self._is_kept(one, scan) and one.id not in foreign]
        versions = {str(one.originator_id): one.originator_version for one in kept}
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
        released = self._set_apart(draft / "data", scan, versions, recreation)
        return Repair(
            location=str(self._directory.path),
            kept_as=str(self._swap(draft)),
            event_count=len(kept) - (lost > 0),
            from_backup=self._from_backup,
            lost_count=max(0, lost - len(self._dropped) - len(foreign)),
            removed_count=len(foreign),
            recreated=tuple(sorted(recreation.done)),
            cut=tuple(sorted(stream for stream in scan.breaks if stream not in recreation.done)),
            correlation_id=self._reason,
            released=tuple(sorted(released)),
        )

    def _sound(self, scan: ChainScan) -> Repair:
        """The log needs no repair, but maybe the index."""
        shutil.rmtree(self._draft(), ignore_errors=True)
        damage = page_damage(self._directory.index)
        kept_as = None
        if damage is not None:
            note = Note(made_at=clock_ms(), why=f"the index was damaged: {damage}", kept_as="")
            kept_as = str(self._quarantine.take_in(self._directory.index, self._stamp, note))
        return Repair(
            location=str(self._directory.path),
            kept_as=None,
            event_count=scan.event_count,
            from_backup=0,
            lost_count=0,
            recreated=(),
            cut=(),
            correlation_id=self._reason,
            index_kept_as=kept_as,
        )

    def _set_apart(
        self, repaired: Path, scan: ChainScan, versions: Mapping[str, int], recreation: Recreation
    ) -> list[str]:
        """Note in the repaired directory what is not whole; returns what was not, and is now."""
        self._quarantine.copy_to(repaired)
        quarantine = Quarantine(repaired)
        now = clock_ms()
        whole = {stream: version for stream, version in versions.items() if stream not in scan.breaks}
        released = quarantine.release(whole, now=now)
        seen: dict[str, int] = {}
        for one in self._merged():
            seen[str(one.originator_id)] = max(seen.get(str(one.originator_id), 0), one.originator_version)
        streams = tuple(
            QuarantinedStream(stream, versions.get(stream, 0), max(seen[stream], scan.breaks[stream].version))
            for stream in sorted(scan.breaks)
            if stream not in recreation.done
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

    def _merged(self) -> Iterator[Notification]:
        """The records by position; a backup was read back with its digests, so what it has is right."""
        backed: dict[int, Notification] = {}
        if self._backup is not None:
            backed = {frame.position: frame.notification() for frame in self._backup.frames()}
        records = self._store.records
        for position in sorted(records.keys() | backed.keys()):
            there, saved = records.get(position), backed.get(position)
            if saved is None or (self._is_repaired and there is not None):
                assert there is not None, "it stands in one of the two"
                if self._is_repaired and str(there.originator_id).startswith(LOST):
                    self._dropped.add(position)  # it accounts for what the backup may have
                else:
                    yield there
                continue
            self._from_backup += saved != there
            yield saved

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
        if page_damage(self._directory.index) is not None:
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

    def _witnessed(self) -> int:
        """The last position that was acknowledged, as far as the witness knows."""
        seen = read_last_seen(self._directory.witness)
        return 0 if seen is None else seen.position

    def _draft(self) -> Path:
        draft = self._directory.path.with_name(self._directory.path.name + ".repairing")
        draft.mkdir(mode=0o700, exist_ok=True)
        return draft

    def _swap(self, draft: Path) -> Path:
        """The damaged directory gets another name, and the sound one takes its place."""
        self._directory.path.rename(self._kept_as)
        (draft / "data").rename(self._directory.path)
        shutil.rmtree(draft, ignore_errors=True)
        return self._kept_as


def _unused_stamp(directory: DataDirectory) -> str:
    """The time, for names; with a number where another repair was in the same second."""
    now = datetime.fromtimestamp(clock_ms() // 1000, UTC)
    stamps = chain([f"{now:%Y%m%dT%H%M%SZ}"], (f"{now:%Y%m%dT%H%M%SZ}-{number}" for number in count(2)))
    folder = Quarantine(directory.path).folder
    return next(one for one in stamps if not (_kept_as(directory, one).exists() or (folder / one).exists()))


def _kept_as(directory: DataDirectory, stamp: str) -> Path:
    return directory.path.with_name(f"{directory.path.name}.damaged-{stamp}")


def _pages(records: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
    for start in range(0, len(records), _PAGE):
        yield records[start : start + _PAGE]
