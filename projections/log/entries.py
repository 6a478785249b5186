"""
The entry of each position of the log: the stream that has its event there, the hash of the event, and the step that it was for a chat.

Steps are counted back from the present: so a chat is described as it stood at an earlier moment.
"""

from collections.abc import Collection, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.events import ChatUpdated, MessagesAnnotated, Recorded, StreamDeleted
from chatledger.domain.chat.state import ChatProfile, ChatRecord, describe_chat
from chatledger.domain.values import Chat

from ..chat.chains import Chains, Place
from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction
from ..lmdb.keys import number, to_number
from ..lmdb.tables import Tables
from .kinds import STREAM_KINDS, kind_of

NO_STREAM_NO: Final = 0
"""Stands in place of the number of a stream: the event is a tombstone, which is never erased."""
FOREIGN_NO: Final = 2**64 - 1
"""The stream number of a message that no chatledger wrote."""
_HASH_BYTES: Final = 32
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_FOREIGN_START: Final = _encode(FOREIGN_NO)
_START: Final = slice(_HASH_BYTES + 1, _HASH_BYTES + 1 + len(_FOREIGN_START))
"""Where the number of the stream stands, after the hash and the beginning of a short array."""

_NO_STEP: Final = ()
_FAR: Final = 2**62  # no entry has a greater number
_NUMBERS: Final = 4
_MOST: Final = 10_000
"""So many events are counted back in some 20 ms. A chat that had more since is better replayed, which is kept."""


Step = tuple[int, ...]
"""Change of an event in the description of its chat; see `step_of`."""


class LogEntry(NamedTuple):
    """
    An event that was applied, as long as its stream is not deleted.

    Args:
        position: Where it stands.
        stream_no: The number of its chat, thread or state; `NO_STREAM_NO` for a tombstone, `FOREIGN_NO` for what is no event.
        previous: The position of the event before it in its stream; 0 for the first one, and for a tombstone.
        hash: Its hash; of a foreign message with all bits flipped, so that it is never that of an event.
        step: What it has changed in the description of its chat; empty where that cannot be undone by numbers.
    """

    position: int
    stream_no: int
    previous: int
    hash: bytes
    step: Step = ()


def put_entries(txn: Transaction, tables: Tables, entries: list[LogEntry]) -> None:
    """Add entries, which stand behind all that are there, and empty the list of them."""
    # The distance to the event before takes fewer bytes than its position.
    rows = [
        (number(position), with_checksum(hash_ + _encode((stream_no, position - previous, *step))))
        for position, stream_no, previous, hash_, step in entries
    ]
    txn.cursor(tables.log_entries).putmulti(rows, append=True)
    entries.clear()


def _parse(position: int, raw: bytes) -> LogEntry:
    row = without_checksum(raw)
    fields = _decode(row[_HASH_BYTES:])
    return LogEntry(position, fields[0], position - fields[1], row[:_HASH_BYTES], fields[2:])


def drop_entries(txn: Transaction, tables: Tables, last: int) -> None:
    """Forget the events of a stream that is deleted, from its last one back to its first one."""
    while (entry := entry_at(txn, tables, last)) is not None and entry.stream_no != NO_STREAM_NO:
        txn.delete(number(last), db=tables.log_entries)
        last = entry.previous


def drop_foreign(txn: Transaction, tables: Tables, first: int, until: int) -> int:
    """Forget the foreign messages from one position to another; return their number."""
    cursor, end = txn.cursor(tables.log_entries), number(until)
    rows = cursor if cursor.set_range(number(first)) else ()
    doomed = [key for key, raw in takewhile(lambda row: row[0] <= end, rows) if raw[_START] == _FOREIGN_START]
    for key in doomed:
        txn.delete(key, db=tables.log_entries)
    return len(doomed)


def count_between(txn: Transaction, tables: Tables, after: int, before: int) -> int:
    """Return the number of entries between two positions."""
    cursor, end = txn.cursor(tables.log_entries), number(before)
    rows = cursor if cursor.set_range(number(after + 1)) else ()
    return sum(1 for _ in takewhile(lambda row: row[0] < end, rows))


def streams_between(txn: Transaction, tables: Tables, after: int, until: int) -> set[int]:
    """Return the numbers of the streams that have events after one position, up to another."""
    cursor, end = txn.cursor(tables.log_entries), number(until)
    rows = cursor if cursor.set_range(number(after + 1)) else ()
    streams = {_parse(to_number(key), raw).stream_no for key, raw in takewhile(lambda row: row[0] <= end, rows)}
    return streams - {NO_STREAM_NO, FOREIGN_NO}


def entry_at(txn: Transaction, tables: Tables, position: int) -> LogEntry | None:
    """The entry of a position; None when no event was applied there, or it was deleted since."""
    raw = txn.get(number(position), db=tables.log_entries)
    return None if raw is None else _parse(position, raw)


def is_deleted(txn: Transaction, tables: Tables, recorded: Recorded) -> bool:
    """
    Return whether an event that the index is past is of a stream that was deleted since.

    The log may have it nevertheless until it is erased, or again where the erasure was taken back. Nobody is to see it.
    """
    if isinstance(recorded.body, StreamDeleted):
        return False
    stream_no = kind_of(recorded.chat_id).read(tables, txn, recorded.chat_id).stream_no
    return stream_no is None or recorded.position < stream_no


class Compared(NamedTuple):
    """
    The result of comparing events with the entries of their positions.

    Args:
        lost: The first entry whose event is not there, or is another.
        hidden: The positions of foreign messages among the events, and of events of streams that were deleted since.
    """

    lost: LogEntry | None
    hidden: Collection[int]


def compare(txn: Transaction, tables: Tables, events: Sequence[Recorded], *, after: int, until: int) -> Compared:
    """
    Compare the entries after the position `after`, up to `until`, with what the log has.

    `events` is all that it has after `after`; those beyond `until` are not compared.
    """
    cursor = txn.cursor(tables.log_entries)
    start = number(after + 1)
    if after >= until:
        return Compared(None, ())
    # Nearly always the entries are those of just these events, which is found out for little.
    if cursor.set_range(start) and events and events[-1].position == until:
        stored = list(islice(cursor.iternext(keys=False), len(events)))
        is_whole = len(stored) == len(events) and cursor.key() == number(until)
        if is_whole and [row[:_HASH_BYTES] for row in stored] == [recorded.hash for recorded in events]:
            return Compared(None, ())
    rows = cursor if cursor.set_range(start) else ()
    unseen = {recorded.position: recorded for recorded in events if recorded.position <= until}
    foreign: list[int] = []
    lost: LogEntry | None = None
    for key, raw in rows:
        position = to_number(key)
        if position > until:
            break
        recorded = unseen.pop(position, None)
        if raw[_START] == _FOREIGN_START:
            if recorded is not None:
                foreign.append(position)
        elif recorded is None or raw[:_HASH_BYTES] != recorded.hash:
            lost = _parse(position, raw)
            break
    gone = [position for position, recorded in unseen.items() if is_deleted(txn, tables, recorded)]
    return Compared(lost, {*foreign, *gone})


def compare_stream(
    txn: Transaction, tables: Tables, events: Sequence[Recorded], *, after: int, head: int, until: int
) -> Compared:
    """
    Compare events of one stream, up to the position `until`, with the entries of their positions.

    `head` is the position of the last event that it must have, when there are none after `after`.
    """
    hidden: list[int] = []
    seen = after
    for recorded in events:
        entry = entry_at(txn, tables, recorded.position)
        is_foreign = entry is not None and entry.stream_no == FOREIGN_NO
        if is_foreign or (entry is None and recorded.position <= until and is_deleted(txn, tables, recorded)):
            hidden.append(recorded.position)
            continue
        if entry is not None and (entry.previous > seen or entry.hash != recorded.hash):
            return Compared(_back_to(txn, tables, entry.previous, seen) or entry, hidden)
        seen = recorded.position
    return Compared(None if events else _back_to(txn, tables, head, seen), hidden)


def _back_to(txn: Transaction, tables: Tables, position: int, seen: int) -> LogEntry | None:
    """The first entry of a stream after `seen`, going back from a later entry; None when there is none."""
    earliest: LogEntry | None = None
    while position > seen and (entry := entry_at(txn, tables, position)) is not None:
        earliest, position = entry, entry.previous
    return earliest


def living_stream(txn: Transaction, tables: Tables, stream_no: int) -> str | None:
    """The id of the stream of that number, "" where its first events do not tell it; None when it was deleted."""
    streams = (kind.find(txn, tables, stream_no) for kind in STREAM_KINDS)
    return next((stream for stream in streams if stream is not None), None)


def step_of(before: object, recorded: Recorded, after: object, read_to: Place | UnsetType | None) -> Step:
    """
    Return the step by which an event brought a chat from one record to the next, for its entry.

    The step is: messages added, milliseconds since the event before, by how much more `updated_at` moved, branches added; zeros
    at the end are left out. Where the active branch ends somewhere else since, the segment and the offset of that place follow,
    counted from 1, or two zeros for an empty branch. The step is empty where numbers cannot undo the event: a chat begins, ends, or
    is described anew, or messages are hidden or shown again.
    """
    body = recorded.event.body
    is_described_anew = isinstance(body, ChatUpdated) or (
        isinstance(body, MessagesAnnotated) and "hidden" in body.changes
    )
    if not (isinstance(before, ChatRecord) and isinstance(after, ChatRecord)) or is_described_anew:
        return _NO_STEP
    elapsed = after.head.occurred_at - before.head.occurred_at
    lag = after.updated_at - before.updated_at - elapsed
    branches = after.branch_count - before.branch_count
    if not (-_FAR < elapsed < _FAR and -_FAR < lag < _FAR):
        return _NO_STEP
    messages = after.message_count - before.message_count
    if read_to is not UNSET:
        segment, offset = (-1, -1) if read_to is None else read_to
        return (messages, elapsed, lag, branches, segment + 1, offset + 1)
    return (messages, elapsed, lag, branches) if lag or branches else (messages, elapsed)


def describe_earlier(
    txn: Transaction, tables: Tables, record: ChatRecord, profile: ChatProfile, *, position: int, time: int | None
) -> Chat | UnsetType | None:
    """
    Return a living chat as it stood after its last event up to a position, and up to `time` (ms), unless it is None.

    Costs a row for each event since, and those back to where its active branch last got another end.

    Returns:
        None when there was no such chat. UNSET where only a replay can answer: the chat was described anew, or had very many events
        since.

    Raises:
        CorruptStateError: A row is damaged.
    """
    at, occurred_at, updated_at = record.head.position, record.head.occurred_at, record.updated_at
    messages, branches = record.message_count, record.branch_count
    steps = 0
    while at > position or (time is not None and occurred_at > time):
        if at == record.first_position:
            return None
        entry = entry_at(txn, tables, at)
        steps += 1
        if entry is None or not entry.step or steps > _MOST:
            return UNSET
        added, elapsed, lag, branched = (*entry.step[:_NUMBERS], 0, 0)[:_NUMBERS]
        messages, branches = messages - added, branches - branched
        occurred_at, updated_at = occurred_at - elapsed, updated_at - elapsed - lag
        at = entry.previous
    read_to: tuple[int, ...] = ()
    while at != record.first_position and not read_to:
        entry = entry_at(txn, tables, at)
        steps += 1
        if entry is None or steps > _MOST:
            return UNSET
        at, read_to = entry.previous, entry.step[_NUMBERS:]
    segment, offset = (*read_to, 0, 0)[:2]
    chains = Chains(txn, tables.rows, record.first_position, profile.id)
    last_text = chains.message((segment - 1, offset - 1)).line if segment else None
    present = describe_chat(record, profile, last_text)
    assert present is not None, "its record and its profile are there"
    return msgspec.structs.replace(present, updated_at=updated_at, message_count=messages, branch_count=branches)
