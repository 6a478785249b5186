"""Records of custom projections: where their rows are, their positions, and whether they failed or lag behind a deletion."""

from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from .rows import stream_digest

SERVING: Final = b"custom:serving:"
"""The rows that are read."""
BUILDING: Final = b"custom:building:"
"""The rows that will replace them."""
_LAST_NUMBER: Final = b"custom:number"
_TOMBSTONE: Final = number(0)  # no projection has this number


class ProjectionRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    One set of rows of a projection.

    Everything up to `position` is in them. `dirty_until` is the position of a tombstone that they lag behind although they may
    have something of what it deleted; 0 when there is none. A projection that failed at `error_position` stays as it is.
    """

    name: str
    version: int
    number: int
    position: int = 0
    dirty_until: int = 0
    error: str | None = None
    error_position: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ProjectionRecord).decode


def load_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> ProjectionRecord | None:
    """The record of a projection in a slot."""
    raw = txn.get(slot + id_key(name), db=tables.meta)
    return None if raw is None else _decode(raw)


def save_record(txn: Transaction, tables: Tables, slot: bytes, record: ProjectionRecord) -> None:
    """Put a record into a slot."""
    txn.put(slot + id_key(record.name), _encode(record), db=tables.meta)


def load_records(txn: Transaction, tables: Tables) -> list[tuple[bytes, ProjectionRecord]]:
    """All records with their slots."""
    return [(slot, _decode(raw)) for slot in (SERVING, BUILDING) for _, raw in prefixed(txn, tables.meta, slot)]


def new_record(txn: Transaction, tables: Tables, name: str, version: int) -> ProjectionRecord:
    """A record with a number that no rows have; not saved yet."""
    last = to_number(txn.get(_LAST_NUMBER, default=number(0), db=tables.meta))
    txn.put(_LAST_NUMBER, number(last + 1), db=tables.meta)
    return ProjectionRecord(name, version, last + 1)


def drop_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> bool:
    """Remove a record with its rows; False when there is none."""
    record = load_record(txn, tables, slot, name)
    if record is None:
        return False
    drop_rows(txn, tables, record)
    forget_record(txn, tables, slot, name)
    return True


def forget_record(txn: Transaction, tables: Tables, slot: bytes, name: str) -> None:
    """Remove a record, and leave its rows."""
    txn.delete(slot + id_key(name), db=tables.meta)


def drop_rows(txn: Transaction, tables: Tables, record: ProjectionRecord) -> None:
    """Remove the rows of a record."""
    drop_prefixed(txn, tables.custom, number(record.number))


def note_tombstone(txn: Transaction, tables: Tables, tombstone: Recorded) -> None:
    """
    Remember a deletion.

    Projections that are built later, or lag, pass over what was before it: part of it may be erased from the log already.
    """
    txn.put(_TOMBSTONE + stream_digest(tombstone.chat_id), number(tombstone.position), db=tables.custom)


def is_deleted(txn: Transaction, tables: Tables, recorded: Recorded) -> bool:
    """Whether the stream of an event was deleted after it."""
    raw = txn.get(_TOMBSTONE + stream_digest(recorded.chat_id), db=tables.custom)
    return raw is not None and recorded.position < to_number(raw) and not isinstance(recorded.body, StreamDeleted)
