"""
Removing foreign messages from a log while it is in use, and giving up chats that lost events; the records of a damaged
log and those of a backup, by position.
"""

import os
from collections.abc import Iterator
from typing import Final

import msgspec
from eventsourcing.persistence import Notification

from chatledger.domain.chat.events import ChatDeleted, StreamDeleted
from chatledger.domain.errors import ChatledgerError, ConfigurationError
from chatledger.domain.log.codec import NO_HASH, EncodedEvent, Envelope, encode_events
from chatledger.domain.log.tombstones import removed_stream

from ...ledger.drafts import new_id
from ...log.envelope import clock_ms, draw_salts
from ...log.mapper import StructMapper
from ...log.nats.endpoint import Login
from ...log.nats_server.directory import DataDirectory
from ...store.opening.encryption import Encryption
from ...store.opening.locations import log_at
from ...store.opening.options import LogOnly
from ...store.quarantine import Quarantine, QuarantinedStream
from ..backups import BackupLog
from .chains import ChainScan
from .diagnosing import stored_on
from .store_files import StoreFiles

DOCTOR: Final = "chatledger:doctor"
"""The actor of what a repair writes."""
LOST: Final = "chatledger:lost:"
"""The prefix of the id of the stream whose tombstone accounts for lost events."""


class Rewritten(msgspec.Struct):
    """The events that an earlier repair wrote anew for a chat: from which version on, where, and whether somebody wrote to it since."""

    first: int
    positions: set[int]
    is_touched: bool = False


class MergedLog:
    """
    The known records of a log, completed by those of a backup.

    Args:
        backup: A backup of this log, or of what it was before an earlier repair.
        is_repaired: Whether it is the latter: it fills holes, and replaces nothing but what that repair wrote anew.

    Attributes:
        dropped: Positions of what earlier repairs wrote, in place of which the backup has the events themselves.
        not_replaced: Chats for which that is not so, because they were written to since.
        rewritten: What earlier repairs wrote anew, and is still there, by chat.
    """

    def __init__(
        self,
        store: StoreFiles,
        mapper: StructMapper,
        backup: BackupLog | None,
        quarantine: Quarantine,
        *,
        is_repaired: bool,
    ) -> None:
        self._store, self._mapper, self._backup, self._is_repaired = store, mapper, backup, is_repaired
        self.from_backup = self._filled = 0
        self.dropped: set[int] = set()
        self._lost_before: dict[int, int] = {}
        self.not_replaced: set[str] = set()
        self.rewritten = self._find_rewritten() if quarantine.notes() else {}
        if is_repaired and self.rewritten:
            self._choose({stream: lost.seen for stream, lost in quarantine.lost().items()})

    def records(self) -> Iterator[Notification]:
        """All by position; a backup was read back with its digests, so what it has is right."""
        backed: dict[int, Notification] = {}
        if self._backup is not None:
            saves = (frame.notification() for frame in self._backup.frames())
            backed = {save.id: save for save in saves if not self._is_superseded(save)}
        records = self._store.records
        self.from_backup = self._filled = 0
        for position in sorted(records.keys() | backed.keys()):
            there, saved = records.get(position), backed.get(position)
            if saved is None or (self._is_repaired and there is not None):
                assert there is not None, "it stands in one of the two"
                # Its tombstone for lost events goes: the backup may have some of them, and another one counts the rest.
                if self._is_repaired and str(there.originator_id).startswith(LOST):
                    self._drop_tombstone(there)
                elif position not in self.dropped:
                    yield there
                continue
            self.from_backup += there is None or self._is_other(there, saved)
            self._filled += there is None
            # A backup was read back with its digests: nothing of it is in doubt, whatever the file of the log has there.
            self._store.doubtful.discard(position)
            yield saved

    @property
    def explained(self) -> int:
        """Return the number of positions without an event because of earlier repairs."""
        lost = sum(self._lost_before.values())
        return len(self.dropped) + lost - min(lost, self._filled)

    def _drop_tombstone(self, record: Notification) -> None:
        """Drop what accounts for the losses of an earlier repair."""
        self.dropped.add(record.id)
        try:
            body = self._mapper.recorded(record).body
        except ChatledgerError:
            return
        self._lost_before[record.id] = body.event_count if isinstance(body, StreamDeleted) else 0

    def _is_other(self, there: Notification, saved: Notification) -> bool:
        if there == saved:
            return False
        try:
            return self._mapper.recorded(there).hash != self._mapper.recorded(saved).hash
        except ChatledgerError:
            return True

    def _is_superseded(self, saved: Notification) -> bool:
        """Whether an earlier repair wrote anew what a record of the backup says, and that stays."""
        rewritten = self.rewritten.get(str(saved.originator_id)) if self._is_repaired else None
        return rewritten is not None and saved.originator_version >= rewritten.first

    def _find_rewritten(self) -> dict[str, Rewritten]:
        rewritten: dict[str, Rewritten] = {}
        for record in self._store.stored():
            stream = str(record.originator_id)
            if stream.startswith(LOST):
                continue
            try:
                event = self._mapper.recorded(record).event
            except ChatledgerError:
                continue
            # What a repair wrote anew stands behind the hole of its chat, so a backup with the events themselves replaces it.
            if event.actor == DOCTOR:
                rewritten.setdefault(stream, Rewritten(event.originator_version, set())).positions.add(record.id)
            elif stream in rewritten:
                rewritten[stream].is_touched = True
        return rewritten

    def _choose(self, seen: dict[str, int]) -> None:
        """Give up what was written anew of chats that the backup has as far as they were seen."""
        assert self._backup is not None, "it is one of the log before the repair"
        last: dict[str, int] = {}
        for frame in self._backup.frames():
            record = frame.notification()
            stream = str(record.originator_id)
            last[stream] = max(last.get(stream, 0), record.originator_version)
        for stream, rewritten in list(self.rewritten.items()):
            if stream not in seen or last.get(stream, 0) < seen[stream]:
                continue
            # What somebody wrote since stands on what the repair wrote, and would fall with it.
            if rewritten.is_touched:
                self.not_replaced.add(stream)
            else:
                self.dropped |= rewritten.positions
                del self.rewritten[stream]


def remove_foreign(
    location: str | os.PathLike[str],
    *,
    encryption: Encryption | None,
    login: Login | None,
    timeout_s: float,
    reason: str,
) -> ChainScan:
    """
    Delete foreign messages, of which a tombstone says first that their positions are not those of lost events.

    Interrupted at any point, doing it again completes it.

    Returns:
        What was found before.
    """
    options = LogOnly(location, create=False, timeout_s=timeout_s, encryption=encryption, login=login)
    with log_at(options) as log:
        log.check_keys()
        scan = ChainScan(is_checked=log.is_checked)
        scan.run(stored_on(log), log.decode)
        # The tombstone first: a removal that is interrupted before it would look like lost events.
        fresh = [position for position, _, _ in scan.foreign if position > scan.removed_until]
        if fresh:
            stream = removed_stream(fresh[-1], new_id())
            log.append(stream, account_for(stream, fresh[0], len(fresh), reason), expected_position=0)
        log.remove([position for position, _, _ in scan.foreign])
        return scan


def account_for(stream: str, first: int, count: int, reason: str) -> list[EncodedEvent]:
    """Return the tombstone that accounts for so many positions without an event, from a first one on, in a stream of its own."""
    return encode_events(
        [ChatDeleted(first, count, message_count=0, branch_count=0, checkpoint_count=0)],
        stream_id=stream,
        version=count,
        previous_hash=NO_HASH,
        occurred_at=clock_ms(),
        event_ids=[new_id()],
        salts=draw_salts(),
        envelope=Envelope(actor=DOCTOR, correlation_id=reason),
    )


def give_up(location: str | os.PathLike[str], chat_id: str) -> QuarantinedStream:
    """
    Serve what is left of a chat that a repair put into quarantine. That it lost events stays noted there.

    Processes that have the ledger open refuse it until they open it again.

    Args:
        location: The directory of the ledger.
        chat_id: The chat; of a thread of agents or a state of a graph the id of its stream, as the doctor names it.

    Returns:
        How many events it has, and had at least.

    Raises:
        ConfigurationError: It is no directory of a ledger.
        NotFoundError: The chat is not in quarantine.
        CorruptStateError: The notes of the quarantine cannot be read.
    """
    text = os.fspath(location)
    directory = DataDirectory(text).path
    if "://" in text or text == "memory:" or not directory.is_dir():
        msg = f"{text!r} is no directory; only repaired directories have a quarantine"
        raise ConfigurationError(msg)
    return Quarantine(directory).give_up(chat_id, now=clock_ms())
