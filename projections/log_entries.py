"""What the index knows of each position of the log: which stream has its event there, and which event that is."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.agents.record import ThreadRecord
from chatledger.domain.agents.streams import thread_stream
from chatledger.domain.events import Recorded
from chatledger.domain.graph_state.ids import state_stream

from .agents.keys import RECORD
from .environment import Transaction
from .graph_state.indexed_state import record_at
from .graph_state.keys import record_key
from .indexed_chat import IndexedChat
from .keys import number, to_number
from .sealed import unseal
from .tables import Tables

NO_STREAM_NO: Final = 0
"""In place of the number of a stream: the event is a tombstone, which is never erased."""
_MARK_BYTES: Final = 8
_ENTRY: Final = Struct(f">QQ{_MARK_BYTES}s")
_MARK_AT: Final = _ENTRY.size - _MARK_BYTES


class LogEntry(NamedTuple):
    """
    An event that was applied, as long as its stream is not deleted.

    Args:
        position: Where it stands.
        stream_no: The number of its chat, thread or state; `NO_STREAM_NO` for a tombstone.
        previous: The position of the event before it in its stream; 0 for the first one, and for a tombstone.
        mark: The beginning of its hash.
    """

    position: int
    stream_no: int
    previous: int
    mark: bytes

    @classmethod
    def of(cls, recorded: Recorded, *, stream_no: int | None, previous: int) -> "LogEntry":
        """The entry of an event."""
        mark = recorded.hash[:_MARK_BYTES]
        if stream_no is None:
            return cls(recorded.position, NO_STREAM_NO, 0, mark)
        return cls(recorded.position, stream_no, previous, mark)


def put_entries(txn: Transaction, tables: Tables, entries: Sequence[LogEntry]) -> None:
    """Add entries; all that are there stand before them."""
    rows = [(number(entry.position), _ENTRY.pack(*entry[1:])) for entry in entries]
    txn.cursor(tables.log_entries).putmulti(rows, append=True)


def drop_entries(txn: Transaction, tables: Tables, last: int) -> None:
    """Forget the events of a stream that is deleted, from its last one back to its first one."""
    while (entry := entry_at(txn, tables, last)) is not None and entry.stream_no != NO_STREAM_NO:
        txn.delete(number(last), db=tables.log_entries)
        last = entry.previous


def entry_at(txn: Transaction, tables: Tables, position: int) -> LogEntry | None:
    """The entry of a position; None when no event was applied there, or it was deleted since."""
    raw = txn.get(number(position), db=tables.log_entries)
    return None if raw is None else LogEntry(position, *_ENTRY.unpack(raw))


def first_difference(
    txn: Transaction, tables: Tables, events: Sequence[Recorded], *, after: int, until: int
) -> LogEntry | None:
    """
    The first entry after a position, up to another one, of which `events` has no event, or another one.

    Args:
        events: What the log has after `after`; those beyond `until` are not compared.
    """
    cursor = txn.cursor(tables.log_entries)
    if after >= until or not cursor.set_range(number(after + 1)):
        return None
    end = number(until)
    wanted = iter(events)
    recorded = next(wanted, None)
    for key, raw in cursor:
        if key > end:
            return None
        while recorded is not None and (at := number(recorded.position)) < key:
            recorded = next(wanted, None)  # of a stream that was deleted since
        if recorded is None or at != key or raw[_MARK_AT:] != recorded.hash[:_MARK_BYTES]:
            return LogEntry(to_number(key), *_ENTRY.unpack(raw))
        recorded = next(wanted, None)
    return None


def first_difference_of_stream(
    txn: Transaction, tables: Tables, events: Sequence[Recorded], *, after: int, head: int
) -> LogEntry | None:
    """
    The same for the events of one stream.

    Args:
        events: What the log has of it after `after`.
        head: The position of the last one that it must have, when there are no events.
    """
    seen = after
    for recorded in events:
        entry = entry_at(txn, tables, recorded.position)
        if entry is not None and (
            entry.previous > seen or entry.mark != recorded.hash[:_MARK_BYTES]
        ):
            return _back_to(txn, tables, entry.previous, seen) or entry
        seen = recorded.position
    return None if events else _back_to(txn, tables, head, seen)


def _back_to(txn: Transaction, tables: Tables, position: int, seen: int) -> LogEntry | None:
    """The first entry of a stream after `seen`, going back from a later one; None when there is none."""
    found: LogEntry | None = None
    while position > seen and (entry := entry_at(txn, tables, position)) is not None:
        found, position = entry, entry.previous
    return found


def living_stream(txn: Transaction, tables: Tables, stream_no: int) -> str | None:
    """The id of the stream of that number, "" where its first events do not tell it; None when it was deleted."""
    profile = IndexedChat(tables, txn, "", stream_no).profile
    if profile is not None:
        return profile.id
    raw = txn.get(number(stream_no) + RECORD, db=tables.agents)
    if raw is not None:
        return thread_stream(msgspec.msgpack.decode(unseal(raw), type=ThreadRecord).thread_id)
    if txn.get(record_key(stream_no), db=tables.states) is None:
        return None
    state_id = record_at(txn, tables, stream_no).state_id
    return state_stream(state_id) if state_id else ""
