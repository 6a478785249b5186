"""Looking at a ledger from outside, without changing it: what is wrong, and what can be done."""

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from eventsourcing.persistence import Notification

from chatledger.domain.errors import ChatledgerError, ConfigurationError, LogUnavailableError
from chatledger.projections.log.kinds import ITEMS, STATES, THREADS, kind_of

from ...log.bookmarks import Bookmark
from ...log.nats.endpoint import Login
from ...log.nats_server.directory import DataDirectory, OwnerLock
from ...log.nats_server.launcher import ServerBinary
from ...log.nats_server.preflight import check_store
from ...log.port import READ_PAGE, EventLog
from ...store.opening import STREAM
from ...store.opening.encryption import Encryption
from ...store.opening.locations import location_text, open_unshared
from ...store.opening.options import LogOnly
from ...store.opening.presence import require_ledger, sqlite_file, without_secrets
from .chains import ChainScan
from .checks import (
    Diagnosis,
    Findings,
    IndexWitness,
    check_erasures,
    check_format,
    check_leftovers,
    check_owner,
    check_permissions,
    check_quarantine,
    check_room,
    check_server,
    read_index,
)
from .store_files import StoreFiles, stream_folder

__all__ = ["diagnose", "stored_on", "without_secrets"]

_SHOWN = 20
_CORRECT = (
    "do not open it, a server cuts off what follows; 'chatledger doctor --repair' corrects it, and nothing is lost"
)
_REPAIR = "do not open it, a server cuts off what follows; 'chatledger doctor --repair', with --backup FOLDER if there is a backup; or restore a backup"


def diagnose(
    location: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    encryption: Encryption | None = None,
    login: Login | None = None,
    timeout_s: float = 15.0,
) -> Diagnosis:
    """
    Say what is wrong with a ledger and what can be done, also when it does not open. Changes nothing.

    Of a directory that nobody has open, the files of the log are read without a server, because a server that meets damage
    cuts it out of the files. Elsewhere the log is read through its server.

    Args:
        location: As for `chatledger.open`, except `memory:`.
        index: The folder of the index, where it is not at its usual place.
        encryption: The keys of an encrypted log.
        login: Only for servers: how to log in, as for `chatledger.open`; it has to be allowed to read.
        timeout_s: The budget of one operation on a server.

    Raises:
        ConfigurationError: There is nothing at that location, or the log is encrypted and no key was given.
    """
    text = location_text(LogOnly(location))
    if text == "memory:":
        msg = "a ledger in memory is gone with its process; there is nothing to look at"
        raise ConfigurationError(msg)
    findings = Findings()
    options = LogOnly(
        text, index=index, durability="fast", create=False, timeout_s=timeout_s, encryption=encryption, login=login
    )
    options.check_place(text.partition("://")[0] if "://" in text else "path", text)
    if "://" in text:
        with suppress(LogUnavailableError):  # which is a finding
            require_ledger(text)  # opening it would make one
    look = _Look(findings, options)
    scan = look.elsewhere(text) if "://" in text else look.at_directory(DataDirectory(text))
    kinds = Counter(kind_of(stream).name for stream in ({} if scan is None else scan.heads))
    return Diagnosis(
        location=without_secrets(text) if "://" in text else text,
        findings=findings.sorted(),
        event_count=0 if scan is None else scan.event_count,
        stream_count=kinds.total(),
        position=0 if scan is None else scan.position,
        thread_count=kinds[THREADS.name],
        state_count=kinds[STATES.name] + kinds[ITEMS.name],
        key_ids=() if scan is None else tuple(sorted(scan.key_ids)),
        server=look.server,
    )


_REMOVE = "keep whoever writes them out of the stream; 'chatledger doctor --repair' removes them"


class _Look:
    def __init__(self, findings: Findings, options: LogOnly) -> None:
        self._findings, self._options = findings, options
        self._mapper = options.mapper
        self.server: ServerBinary | None = None

    def at_directory(self, directory: DataDirectory) -> ChainScan | None:
        findings = self._findings
        if not directory.path.is_dir():
            beside = directory.path.with_name(f"{directory.path.name}.repairing")
            hint = f"; an interrupted repair left {beside}" if beside.exists() else ""
            msg = f"there is no ledger at {directory.path}{hint}"
            raise ConfigurationError(msg)
        if not check_format(directory, findings):
            return None
        check_permissions(directory, findings)
        check_room(directory.path, findings)
        check_quarantine(directory, findings)
        # With the lock nobody starts a server on the files while they are read: one that meets damage cuts it out of them.
        lock = OwnerLock.try_take(directory.lock_file)
        try:
            check_leftovers(directory, findings, is_in_use=lock is None)
            self.server = check_server(directory, findings, is_in_use=lock is None)
            check_erasures(directory, findings, is_in_use=lock is None)
            if lock is not None:
                return self._from_files(directory)
            if check_owner(directory, findings):
                return self.elsewhere(str(directory.path))
            return None
        finally:
            if lock is not None:
                lock.release()

    def _from_files(self, directory: DataDirectory) -> ChainScan | None:
        # An index beside a log that is gone tells a loss from a directory that is new.
        root = self._options.index or directory.index
        if not stream_folder(directory).is_dir():
            if (root / "CURRENT").exists():
                what, remedy = "the folder of the log is gone, though there is an index of it", "restore a backup"
                self._findings.add("error", "log-missing", directory.log, what, remedy)
            else:
                remedy = "nothing: opening the ledger makes one"
                self._findings.add("note", "log-missing", directory.log, "there is no log yet", remedy)
            return None
        store = StoreFiles(directory)
        self._mapper.blobs = store.read_large(self._mapper)
        self._name_damage(store)
        if store.identity is None:
            what = "what the server knows of the stream cannot be read"
            self._findings.add("error", "stream-damaged", stream_folder(directory) / "meta.inf", what, _REPAIR)
        scan = ChainScan(store.doubtful)
        scan.run(store.stored(), self._mapper.recorded)
        witness = read_index(root, store.identity, self._findings)
        # The last event of a chat has no next one that proves it; what the index saw there does.
        scan.distrust_unproven({} if witness is None else witness.heads)
        self._judge(scan, is_dense=True, last=store.last, witness=witness, bookmarks=store.bookmarks)
        # Where an error was found, it says itself why no server would start.
        if not any(finding.severity == "error" for finding in self._findings.sorted()):
            try:
                check_store(directory, STREAM)
            except ChatledgerError as error:
                self._findings.add("error", "store-refused", directory.log, str(error), _REPAIR)
        return scan

    def _name_damage(self, store: StoreFiles) -> None:
        """Say which bytes of the files are no intact record, and of which event they are, where that is known."""
        for damage in store.damages[:_SHOWN]:
            whose = "" if damage.position is None else f" of {_event(store, damage.position)}"
            what = f"the record{whose} from byte {damage.offset:,} on is damaged, {damage.length:,} bytes"
            if not whose:
                what = f"{damage.length:,} bytes from byte {damage.offset:,} on are no record"
            self._findings.add("error", "file-damaged", damage.file, what, _REPAIR)
        if len(store.damages) > _SHOWN:
            what = f"so are {len(store.damages) - _SHOWN:,} more places"
            self._findings.add("error", "file-damaged", "the log", what, _REPAIR)
        for record in store.corrected[:_SHOWN]:
            is_event = record.file.is_relative_to(store.folder)
            whose = _event(store, record.position) if is_event else f"position {record.position}"
            what = f"bit {record.bit:,} of the record of {whose} from byte {record.offset:,} on is flipped; its checksum says which one"
            self._findings.add("error", "bit-flipped", record.file, what, _CORRECT)
        for position in store.unreadable[:_SHOWN]:
            what = "the headers of its record are damaged"
            self._findings.add("error", "event-unreadable", f"position {position}", what, _REPAIR)

    def elsewhere(self, location: str) -> ChainScan | None:
        """A log that is read through its server, or an SQLite file."""
        if location.startswith("sqlite:"):
            check_room(sqlite_file(location).parent, self._findings)
        try:
            with closing(open_unshared(self._options)) as opened:
                return self._through(opened.log, self._options.index or opened.index_folder)
        except ChatledgerError as error:
            remedy = "see the message; a log whose records are damaged is restored from a backup"
            self._findings.add("error", "log-refused", without_secrets(location), str(error), remedy)
            return None

    def _through(self, log: EventLog, root: Path) -> ChainScan:
        try:
            log.check_keys()
        except ConfigurationError:
            raise
        except ChatledgerError as error:
            self._findings.add("error", "event-unreadable", "the first or last event", str(error), _REPAIR)
        self._mapper.is_checked_below, self._mapper.is_in_clear = log.is_checked, self._mapper.cipher is None
        scan = ChainScan(is_checked=log.is_checked)
        scan.run(stored_on(log), self._mapper.recorded)
        witness = read_index(root, log.identity, self._findings)
        self._judge(
            scan, is_dense=log.is_dense, last=log.committed_position(), witness=witness, bookmarks=log.bookmarks()
        )
        return scan

    def _judge(
        self,
        scan: ChainScan,
        *,
        is_dense: bool,
        last: int,
        witness: IndexWitness | None,
        bookmarks: Iterable[Bookmark],
    ) -> None:
        add = self._findings.add
        for position, stream, why in scan.unreadable[:_SHOWN]:
            add("error", "event-unreadable", f"position {position}, {_named(stream)}", why, _REPAIR)
        for broken in list(scan.breaks.values())[:_SHOWN]:
            what = f"event {broken.version} at position {broken.position} does not follow: {broken.why}"
            add("error", "chain-broken", _named(broken.stream), what, _REPAIR)
        if len(scan.breaks) > _SHOWN:
            what = f"so do {len(scan.breaks) - _SHOWN:,} more streams"
            add("error", "chain-broken", "the log", what, _REPAIR)
        for stream in sorted(scan.unerased)[:_SHOWN]:
            what = "it was deleted, and some of its events are still on the log: erasing them was interrupted"
            add("warning", "erasure-pending", _named(stream), what, "open the ledger: that finishes it")
        for position, stream, why in scan.foreign[:_SHOWN]:
            where = f"position {position}, {_named(stream)}" if stream else f"position {position}"
            what = f"a message that is no event of chatledger: {why}"
            what += f". The {kind_of(stream).name} is refused because of it" if stream else ". It is passed over"
            add("error" if stream else "warning", "foreign-message", where, what, _REMOVE)
        if len(scan.foreign) > _SHOWN:
            add("warning", "foreign-message", "the log", f"so are {len(scan.foreign) - _SHOWN:,} more", _REMOVE)
        # In a database, positions that never held an event are usual: a hole there says nothing.
        if is_dense and scan.lost:
            holes = f"; positions without an event: {_ranges(scan.holes)}" if scan.holes else ""
            what = f"{scan.lost:,} events are gone or do not follow, and no deletion accounts for them{holes}"
            add("error", "events-lost", "the log", what, _REPAIR)
        # The last event of all is never deleted, so behind it every position was lost.
        if is_dense and last > scan.position:
            what = f"position {last} was given out, and the last event is at {scan.position}"
            add("error", "tail-lost", f"position {last}", what, _REPAIR)
        if witness is not None:
            self._compare(scan, witness)
        # A feed is moved behind an event only when that is on the log, so one that is ahead saw what was lost.
        for bookmark in bookmarks:
            if bookmark.count and bookmark.position > max(last, scan.position):
                what = f"it has handled position {bookmark.position}, and the log ends at {scan.position}"
                remedy = f"after restoring the log, ledger.forget_feed({bookmark.name!r}) if it handles events anew"
                add("error", "feed-ahead", f"feed {bookmark.name!r}", what, remedy)

    def _compare(self, scan: ChainScan, witness: IndexWitness) -> None:
        add, state = self._findings.add, witness.state
        if state.position > scan.position:
            what = f"the index has seen position {state.position}, and the last event of the log is at {scan.position}"
            add("error", "log-regressed", f"position {state.position}", what, _REPAIR)
        elif state.position == scan.hash_position and state.hash != scan.hash:
            what = (
                "the event there is not the one that the index has seen: it was damaged, or the end was lost and its positions "
                "were given out again"
            )
            add("error", "position-reused", f"position {state.position}", what, _REPAIR)
        shown = 0
        for stream, (version, digest) in witness.heads.items():
            last, last_digest = scan.heads.get(stream, (0, b""))
            is_replaced = last == version and last_digest != digest
            # The index may be behind the log, which is no fault. Of a broken chain more was said above.
            if stream in scan.breaks or not (last < version or is_replaced):
                continue
            shown += 1
            if shown <= _SHOWN:
                what = (
                    f"event {version} is not the one that the index has seen"
                    if is_replaced
                    else f"the index has seen event {version}, the log ends with event {last}"
                )
                add("error", "chat-differs", _named(stream), what, _REPAIR)


def _event(store: StoreFiles, position: int) -> str:
    """The event at a position, as its record says, which may be damaged there too."""
    record = store.records.get(position)
    if record is None:
        return f"position {position}"
    return f"event {record.originator_version} of {_named(str(record.originator_id))} at position {position}"


def _named(stream: str) -> str:
    return kind_of(stream).describe(stream)


def stored_on(log: EventLog) -> Iterable[Notification]:
    """All records of a log, in order."""
    after = 0
    while page := log.stored(after, READ_PAGE):
        yield from page
        after = page[-1].id


def _ranges(holes: list[tuple[int, int]]) -> str:
    shown = [f"{first}-{last}" if last > first else str(first) for first, last in holes[:_SHOWN]]
    return ", ".join([*shown, "..."] if len(holes) > _SHOWN else shown)
