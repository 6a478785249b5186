"""Applying events that follow each other on the log, in one write transaction."""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.chat.state import ChatState, StreamHead, stream_head
from chatledger.domain.log.tombstones import ForeignMessage, removed_until

from ..chat.earlier import step_of
from ..chat.writer import ChatWriter
from ..custom.attached import Attached
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from .entries import FOREIGN_NO, LogEntry, count_between, drop_entries, drop_foreign, put_entries
from .kinds import StreamWriter, kind_of
from .stream_trees import TILE, drop_tiles, note_tile

_logger: Final = logging.getLogger(__name__)


def describe_foreign(stream: str, position: int, why: str) -> str:
    """Return the message about a stream that has a foreign message on its subject."""
    return (
        f"{kind_of(stream).describe(stream)} is in quarantine: at position {position} of the log, on its subject, stands a "
        f"message that is not of it: {why}. Nothing of it is shown or added until 'chatledger doctor --repair' has removed the message"
    )


def pass_over(recorded: Recorded, why: str) -> None:
    """Report a foreign message, which is passed over."""
    whose = (
        f"on the subject of {recorded.chat_id!r}, which is refused from now on" if recorded.chat_id else "of no chat"
    )
    _logger.warning(
        "position %d of the log holds a message that is no event of chatledger, %s: %s. 'chatledger doctor --repair' removes it",
        recorded.position,
        whose,
        why,
    )


PassOver = Callable[[Recorded, str], None]
"""Called with a foreign message, and what is wrong with it."""


class Settings(msgspec.Struct, kw_only=True):
    """
    Settings of how events are applied.

    Args:
        application: The application whose position is tracked.
        partly_erased: Deleted streams that still have events on the log. These are left out, and are to be erased.
        check: Called with the chat as it stands before an event, and the event, which it may refuse.
        watch: Called with each event, and the end of its stream with it.
        custom: Projections of users that follow.
        is_checked: Whether the log would not give an event that was damaged, and gives out positions without gaps.
        pass_over: Called with foreign messages.
    """

    application: str
    partly_erased: set[str] = msgspec.field(default_factory=set[str])
    check: Callable[[ChatState, Recorded], None] | None = None
    watch: Callable[[Recorded, StreamHead], None] | None = None
    custom: Attached = msgspec.field(default_factory=Attached)
    is_checked: bool = False
    pass_over: PassOver = pass_over


class EventBatch:
    """
    Events that are applied together, in one write transaction.

    A foreign message is passed over: a message that no chatledger wrote, that repeats a version, or that does not follow the event
    before it although none can be missing in between. The stream that has it on its subject is noted, to be refused.

    Args:
        txn, tables: Where they are applied.
        position: Of the last event before them.
        settings: How.

    Attributes:
        missing, erased: How many positions held no event, and how many events tombstones account for.
        applied: The events that were applied.
        tombstones: The tombstones among them of what is to be erased.
    """

    def __init__(self, txn: Transaction, tables: Tables, position: int, settings: Settings) -> None:
        self._txn, self._tables, self._position, self._settings = txn, tables, position, settings
        self._writers: dict[str, StreamWriter] = {}
        self._entries: list[LogEntry] = []
        self.missing = self.erased = 0
        self.applied: list[Recorded] = []
        self.tombstones: list[Recorded] = []

    def take(self, recorded: Recorded) -> None:
        """Apply the next event. Raises `ChainIntegrityError` when it does not follow those of its stream."""
        self.missing += recorded.position - self._position - 1
        self._position = recorded.position
        event = recorded.event
        body, stream = event.body, event.originator_id
        if isinstance(body, ForeignMessage):
            self._take_foreign(recorded, body.why)
            return
        writer = self._writers.get(stream)
        if writer is None:
            writer = self._writers[stream] = kind_of(stream).write(self._tables, self._txn, stream)
        head = stream_head(writer)
        # Asked only where it does not follow at a glance: nearly every event does.
        is_next = event.originator_version == head.version + 1 and event.previous_hash == head.hash
        if not is_next and (wrong := self._wrong(head, recorded)) is not None:
            self._take_foreign(recorded, wrong)
            return
        if self._settings.check is not None and isinstance(writer, ChatWriter):
            self._settings.check(writer, recorded)
        if isinstance(body, StreamDeleted):
            # Only events that were not seen here left holes; the others must not excuse losses.
            self.erased += recorded.version - head.version - 1
            if writer.record is not None or stream in self._settings.partly_erased:
                self.tombstones.append(recorded)
            self._forget(recorded, body, head)
            if writer.stream_no is not None:
                drop_tiles(self._txn, self._tables, writer.stream_no)
        before = writer.record
        writer.apply(recorded)
        self.applied.append(recorded)
        after = stream_head(writer)
        if after.size % TILE == 0:
            assert writer.stream_no is not None, "a stream of so many events is alive"
            note_tile(self._txn, self._tables, writer.stream_no, head, recorded, writer.record)
        if self._settings.watch is not None:
            self._settings.watch(recorded, after)
        step = step_of(before, recorded, writer.record)
        self._entries.append(LogEntry.of(recorded, stream_no=writer.stream_no, previous=head.position, step=step))

    def _wrong(self, head: StreamHead, recorded: Recorded) -> str | None:
        """Return why an event that does not follow is a foreign message; None when events may be missing before it."""
        version = recorded.version
        if version <= head.version:
            return f"it repeats version {version} of its stream, which ends with {head.version}"
        if isinstance(recorded.body, StreamDeleted) or not self._settings.is_checked:
            return None
        if version == head.version + 1:
            return f"it does not name the hash of event {head.version}, which is before it"
        # A hole between the two may be where the missing events stood. Where every position has an entry, none can be missing.
        self._put_entries()
        between = recorded.position - head.position - 1
        if count_between(self._txn, self._tables, head.position, recorded.position) < between:
            return None
        return f"it is version {version}, and follows event {head.version}"

    def _take_foreign(self, recorded: Recorded, why: str) -> None:
        self._entries.append(LogEntry.of(recorded, stream_no=FOREIGN_NO, previous=0))
        if recorded.chat_id:
            self._tables.note_foreign(self._txn, recorded.chat_id, recorded.position, why)
        self._settings.pass_over(recorded, why)

    def _forget(self, recorded: Recorded, body: StreamDeleted, head: StreamHead) -> None:
        """Forget what a tombstone accounts for: the events of its stream, or foreign messages that are removed."""
        self._put_entries()
        drop_entries(self._txn, self._tables, head.position)
        until = removed_until(recorded.chat_id)
        if until is None:
            return
        self.erased -= drop_foreign(self._txn, self._tables, body.first_position, until)
        self._tables.forget_foreign(self._txn, until)

    def _put_entries(self) -> None:
        put_entries(self._txn, self._tables, self._entries)
        self._entries.clear()

    def flush(self) -> None:
        """Write what was kept back."""
        for writer in self._writers.values():
            writer.flush()
        self._put_entries()
