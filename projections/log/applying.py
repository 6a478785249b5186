"""Applying events that follow each other on the log, in one write transaction."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.events import ContentRedacted, Recorded, StreamDeleted
from chatledger.domain.chat.state import ChatState, StreamHead, StreamRecord, stream_head
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.tombstones import ForeignMessage, owner_digest, removed_until
from chatledger.domain.versioned.record import VersionedRecord

from ..chat.reader import IndexedChat
from ..chat.writer import ChatWriter
from ..custom.records import Attached
from ..generations import Erasure, Generation, IndexState
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..search.indexer import settle
from ..versioned.reader import IndexedVersioned
from ..versioned.writer import VersionedWriter
from .entries import FOREIGN_NO, NO_STREAM_NO, LogEntry, count_between, drop_entries, drop_foreign, put_entries, step_of
from .kinds import CHATS, STREAM_KINDS, THREADS, StoredStream, kind_of
from .stream_trees import TILE, StreamTree, drop_tiles, note_tile

_logger: Final = logging.getLogger(__name__)


class StreamWriter(StoredStream, Protocol):
    """A stream in a write transaction."""

    def apply(self, recorded: Recorded, last: StreamHead | None = None) -> StreamHead:
        """
        Apply its next event, and return that as the end of the stream. `last` is the one before it, where the caller has seen that
        they follow each other.

        Raises:
            ChainIntegrityError: It does not follow.
        """
        ...

    def flush(self) -> None:
        """Write what was kept back."""


_WRITERS: Final[dict[str, Callable[[Tables, Transaction, str], StreamWriter]]] = {
    kind.name: ChatWriter if kind is CHATS else VersionedWriter for kind in STREAM_KINDS
}
"""Writers of the events of a stream, by its kind."""


def describe_foreign(stream: str, position: int, why: str) -> str:
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
        partly_erased: Deleted streams that still have events on the log. These are left out, and are to be erased.
        check: Called with the chat as it stands before an event, and the event, which it may refuse.
        watch: Called with each event, and the end of its stream with it.
        custom: Projections of users that follow.
        is_checked: Whether the log would not give an event that was damaged, and gives out positions without gaps.
        pass_over: Called with foreign messages.
    """

    partly_erased: set[str] = msgspec.field(default_factory=set[str])
    check: Callable[[ChatState, Recorded], None] | None = None
    watch: Callable[[Recorded, StreamHead], None] | None = None
    custom: Attached = msgspec.field(default_factory=Attached)
    is_checked: bool = False
    pass_over: PassOver = pass_over


def apply_events(
    generation: Generation,
    txn: Transaction,
    *,
    events: Sequence[Recorded],
    settings: Settings,
    after: int | None = None,
) -> IndexState:
    """
    Take events in that follow each other on the log; those that were applied before are passed over.

    With `after` nothing is done unless the generation stands there: the events in between are to be read from the log first.
    Returns the state of the generation, which is past the last of them where they are applied.

    Raises:
        ChainIntegrityError: They do not follow what was applied before.
        LogRegressedError: Another event was applied at the position of one of them: the log lost its end.
    """
    state = generation.state(txn)
    if after is not None and state.position != after:
        generation.check_applied(txn, state, events[-1])
        return state
    fresh = [recorded for recorded in events if recorded.position > state.position]
    if not fresh:
        return state
    tables = generation.tables
    batch = EventBatch(generation, txn, settings)
    position, missing = state.position, state.missing
    for recorded in fresh:
        missing += recorded.position - position - 1
        position = recorded.position
        event = recorded.event
        body, stream = event.body, event.originator_id
        if isinstance(body, ForeignMessage):
            batch.take_foreign(recorded, body.why)
            continue
        writer = batch.writers.get(stream)
        if writer is None:
            writer = batch.writers[stream] = _WRITERS[kind_of(stream).name](tables, txn, stream)
        head = stream_head(writer)
        # Asked only where it does not follow at a glance: nearly every event does.
        is_next = event.originator_version == head.version + 1 and event.previous_hash == head.hash
        if not is_next and (wrong := batch.wrong(head, recorded)) is not None:
            batch.take_foreign(recorded, wrong)
            continue
        if settings.check is not None and isinstance(writer, ChatWriter):
            settings.check(writer, recorded)
        if isinstance(body, StreamDeleted):
            batch.take_tombstone(recorded, body, writer, head)
        elif isinstance(body, ContentRedacted):
            batch.take_redaction(recorded, body, writer)
        before = writer.record
        latest = writer.apply(recorded, head if is_next else None)
        batch.note_applied(recorded, writer, head, before, latest)
    batch.flush()
    settings.custom.follow(txn, tables, batch.applied, before=state.position, after=position)
    state = IndexState(position, fresh[-1].hash, missing, state.erased + batch.erased)
    generation.put_state(txn, state)
    return state


class EventBatch:
    """
    Events that are applied together, in one write transaction: what is kept back until all are.

    A foreign message is passed over: a message that no chatledger wrote, that repeats a version, or that does not follow the event
    before it although none can be missing in between. The stream that has it on its subject is noted, to be refused.

    `entries`: those of the events for the log's table.
    """

    def __init__(self, generation: Generation, txn: Transaction, settings: Settings) -> None:
        self._generation, self._txn, self._settings = generation, txn, settings
        self._tables = generation.tables
        self.writers: dict[str, StreamWriter] = {}
        self.entries: list[LogEntry] = []
        self.applied: list[Recorded] = []
        self.erased = 0

    def wrong(self, head: StreamHead, recorded: Recorded) -> str | None:
        """Return why an event that does not follow is a foreign message; None when events may be missing before it."""
        version = recorded.version
        if version <= head.version:
            return f"it repeats version {version} of its stream, which ends with {head.version}"
        if isinstance(recorded.body, StreamDeleted) or not self._settings.is_checked:
            return None
        if version == head.version + 1:
            return f"it does not name the hash of event {head.version}, which is before it"
        # A hole between the two may be where the missing events stood. Where every position has an entry, none can be missing.
        put_entries(self._txn, self._tables, self.entries)
        between = recorded.position - head.position - 1
        if count_between(self._txn, self._tables, head.position, recorded.position) < between:
            return None
        return f"it is version {version}, and follows event {head.version}"

    def take_foreign(self, recorded: Recorded, why: str) -> None:
        """Pass a foreign message over."""
        flipped = bytes(byte ^ 0xFF for byte in recorded.hash)
        self.entries.append(LogEntry(recorded.position, FOREIGN_NO, 0, flipped))
        if recorded.chat_id:
            self._tables.note_foreign(self._txn, recorded.chat_id, recorded.position, why)
        self._settings.pass_over(recorded, why)

    def note_applied(
        self,
        recorded: Recorded,
        writer: StreamWriter,
        head: StreamHead,
        before: StreamRecord | None,
        latest: StreamHead,
    ) -> None:
        """Note an event that was applied: `head` and `before` are those of its stream before it, `latest` is the end of the stream."""
        self.applied.append(recorded)
        record, stream_no = writer.record, writer.stream_no
        if latest.size % TILE == 0:
            assert stream_no is not None, "a stream of so many events is alive"
            note_tile(self._txn, self._tables, stream_no, head, recorded, record)
        if self._settings.watch is not None:
            self._settings.watch(recorded, latest)
        step = step_of(before, recorded, record, writer.read_to if isinstance(writer, ChatWriter) else UNSET)
        if stream_no is None:  # of a tombstone
            self.entries.append(LogEntry(recorded.position, NO_STREAM_NO, 0, recorded.hash))
        else:
            self.entries.append(LogEntry(recorded.position, stream_no, head.position, recorded.hash, step))

    def take_tombstone(self, recorded: Recorded, body: StreamDeleted, writer: StreamWriter, head: StreamHead) -> None:
        """Forget what a tombstone accounts for: the events of its stream, or foreign messages that are removed."""
        # Only events that were not seen here left holes; the others must not excuse losses.
        self.erased += recorded.version - head.version - 1
        if writer.record is not None or recorded.chat_id in self._settings.partly_erased:
            key = writer.record.key if isinstance(writer.record, VersionedRecord) else ""
            self._generation.put_erasure(self._txn, recorded, key)
        put_entries(self._txn, self._tables, self.entries)
        drop_entries(self._txn, self._tables, head.position)
        until = removed_until(recorded.chat_id)
        if until is not None:
            self.erased -= drop_foreign(self._txn, self._tables, body.first_position, until)
            self._tables.forget_foreign(self._txn, until)
        if writer.stream_no is not None:
            drop_tiles(self._txn, self._tables, writer.stream_no)

    def take_redaction(self, recorded: Recorded, body: ContentRedacted, writer: StreamWriter) -> None:
        """Note which slots an event takes the content out of that the log may still have: of a log that is read again, mostly none."""
        put_entries(self._txn, self._tables, self.entries)  # they say where the events are
        assert isinstance(writer, ChatWriter | VersionedWriter), "there are no others"
        if isinstance(writer, ChatWriter):
            writer.put_messages()
        redaction = redaction_of(writer, recorded, body)
        if redaction is not None:  # else the fold refuses it
            self._generation.put_redaction(self._txn, redaction, is_due=writer.is_to_rewrite(body))
            writer.take_slots(body, [position for position, _ in redaction.targets])

    def flush(self) -> None:
        """Write what was kept back."""
        for writer in self.writers.values():
            writer.flush()
        chats = [writer for writer in self.writers.values() if isinstance(writer, ChatWriter)]
        # Last, and by writers of their own: those of the threads have what stood before in memory.
        for thread_id in sorted({thread_id for chat in chats for thread_id in chat.threads_with_runs}):
            VersionedWriter(self._tables, self._txn, THREADS.stream_of(thread_id)).flush()
        if self._tables.caches.is_segment_due:
            settle(self._txn, self._tables)
        put_entries(self._txn, self._tables, self.entries)


def redaction_of(stream: IndexedChat | IndexedVersioned, recorded: Recorded, body: ContentRedacted) -> Erasure | None:
    """
    Return what an event takes away of a stream, by position; None where that has no such messages.

    Raises:
        ChainIntegrityError: The stream has no such events.
    """
    record, stream_no = stream.record, stream.stream_no
    chat = stream if isinstance(stream, IndexedChat) else None
    is_known = not body.message_ids if chat is None else all(map(chat.has_message, body.message_ids))
    if record is None or stream_no is None or not is_known:
        return None
    tree = StreamTree(*stream.read_from, stream_no, record.head)
    first_version = tree.first_version
    if not all(first_version <= version <= record.head.version for version, _ in body.targets):
        msg = f"position {recorded.position} redacts events that {stream.name} does not have"
        raise ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position)
    targets = [(tree.entry(version - first_version).position, slots) for version, slots in body.targets]
    # Names are in no vector and in no live stream: with them nothing of the messages goes.
    emptied = () if body.takes_names or chat is None else body.message_ids
    numbered = [(message_id, chat.ordinal(chat.place_of(message_id))) for message_id in emptied] if chat else []
    return Erasure(
        recorded.chat_id,
        stream_no,
        recorded.position,
        len(targets),
        recorded.occurred_at,
        owner_digest(recorded.chat_id, stream.owner or ""),
        targets=tuple(targets),
        messages=tuple(numbered),
    )
